/* SPDX-License-Identifier: Apache-2.0 */
/* runtime/planning.h: which programs are planned. The machine is one that is written down, so that
 * nothing depends on the one that tests. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "plan/ladder.h"
#include "runtime/planning.h"
#include "runtime/search.h"
#include "runtime/whatif.h"
#include "unit/plan_programs.h"

/* A step whose update has large scratch and stands where an activation is wanted once more: done in
 * the next step, before the activation is made anew, it needs less room. */
static struct mr_graph *make_step(void) {
  const mr_tensor_id none = MR_NO_TENSOR;
  struct mr_graph *graph = NULL;
  assert_int_equal(mr_graph_create(&graph), MR_OK);
  mr_tensor_id weight = plan_add_tensor(graph, MR_PARAMETER, MR_MIB);
  mr_tensor_id activation = plan_add_tensor(graph, MR_ACTIVATION, 8 * MR_MIB);
  mr_tensor_id gradient = plan_add_tensor(graph, MR_GRADIENT, MR_MIB);
  mr_tensor_id loss = plan_add_tensor(graph, MR_ACTIVATION, MR_MIB);
  (void)plan_add_op(graph, (mr_tensor_id[]){weight, none}, (mr_tensor_id[]){activation, none}, 0);
  (void)plan_add_op(graph, (mr_tensor_id[]){activation, weight, none},
                    (mr_tensor_id[]){gradient, none}, 0);
  mr_op_id update = plan_add_op(graph, (mr_tensor_id[]){gradient, weight, none},
                                (mr_tensor_id[]){weight, none}, 4 * MR_MIB);
  (void)plan_add_op(graph, (mr_tensor_id[]){activation, none}, (mr_tensor_id[]){loss, none}, 0);
  graph->ops[update].flags |= MR_OP_DEFERRABLE | MR_OP_TRAIN_ONLY;
  return graph;
}

static struct mr_options shed_options(uint64_t device_bytes, uint64_t host_bytes) {
  struct mr_options options;
  mr_options_init(&options);
  options.profile_path = SHED_PROFILE;
  options.device_bytes = device_bytes;
  options.host_bytes = host_bytes;
  return options;
}

static struct mr_plan *make_plan(const struct mr_graph *graph, uint64_t device_bytes,
                                 mr_defer defer) {
  struct mr_options options = shed_options(device_bytes, MR_MIB);
  struct mr_plan *plan = NULL;
  options.offload = MR_OFFLOAD_NONE;
  options.defer = defer;
  assert_int_equal(mr_plan_create(graph, &options, &plan), MR_OK);
  return plan;
}

static uint64_t smallest_bytes(const struct mr_graph *graph, uint64_t device_bytes,
                               mr_defer defer) {
  struct mr_plan *plan = make_plan(graph, device_bytes, defer);
  assert_false(plan->layout->fits);
  uint64_t bytes = plan->layout->smallest_device_bytes;
  mr_plan_destroy(plan);
  return bytes;
}

static void updates_are_deferred_where_only_that_fits(void **state) {
  (void)state;
  struct mr_graph *graph = make_step();
  uint64_t in_place = smallest_bytes(graph, 4096, MR_DEFER_NEVER);
  uint64_t smallest = smallest_bytes(graph, 4096, MR_DEFER_AUTO);
  assert_true(smallest < in_place);
  assert_int_equal(smallest_bytes(graph, 4096, MR_DEFER_ALWAYS), smallest);
  assert_int_equal(smallest_bytes(graph, smallest - 1, MR_DEFER_AUTO), smallest);
  assert_int_equal(smallest_bytes(graph, smallest, MR_DEFER_NEVER), in_place);

  struct mr_plan *plan = make_plan(graph, smallest, MR_DEFER_AUTO);
  assert_true(plan->layout->fits);
  assert_int_equal(plan->deferred_op_count, 1);
  assert_int_equal(mr_plan_verify(plan), MR_OK);
  mr_plan_destroy(plan);

  /* With room for either there is nothing to defer for; the smallest budget is the same. */
  struct mr_interview interview;
  plan = make_plan(graph, 64 * MR_MIB, MR_DEFER_AUTO);
  assert_int_equal(plan->deferred_op_count, 0);
  assert_int_equal(mr_whatif_ask(plan, MR_MIB, 2, &interview), MR_OK);
  assert_int_equal(interview.smallest_device_bytes, smallest);
  mr_plan_destroy(plan);
  mr_graph_destroy(graph);
}

/* What is asked about a plan that was to defer is answered by plans that do. */
static void questions_defer_where_the_plan_had_to(void **state) {
  (void)state;
  struct mr_graph *graph = make_step();
  struct mr_plan *plan = make_plan(graph, 64 * MR_MIB, MR_DEFER_ALWAYS);
  assert_int_equal(plan->deferred_op_count, 1);
  struct mr_plan trial = *plan;
  trial.layout = NULL;
  trial.rewritten = NULL;
  trial.op_seconds = NULL;
  trial.deferred_op_count = 0;
  trial.problem.budget_bytes[MR_TIER_DEVICE] *= 2;
  assert_int_equal(mr_planning_search(&trial), MR_OK);
  assert_int_equal(trial.deferred_op_count, 1);
  mr_planning_clear(&trial);
  mr_plan_destroy(plan);
  mr_graph_destroy(graph);
}

/* Plans on so many threads and returns what is saved of it. */
static char *plan_text(const struct mr_graph *graph, uint32_t threads, bool waits,
                       long *bytes_out) {
  struct mr_options options = shed_options(96 * MR_MIB, 160 * MR_MIB);
  struct mr_plan *plan = NULL;
  char path[64];
  snprintf(path, sizeof path, "/var/tmp/memrun-planning-%ld.plan", (long)getpid());
  options.threads = threads;
  assert_int_equal(mr_plan_create(graph, &options, &plan), MR_OK);
  assert_true(plan->layout->fits && mr_program_plan_moved_bytes(plan->layout) > 0);
  assert_null(plan->problem.crew);
  assert_int_equal(plan->layout->step_seconds > plan->layout->compute_seconds * (1 + 1e-9), waits);
  assert_int_equal(mr_plan_save(plan, path), MR_OK);
  mr_plan_destroy(plan);

  FILE *file = fopen(path, "re");
  assert_non_null(file);
  assert_int_equal(fseek(file, 0, SEEK_END), 0);
  *bytes_out = ftell(file);
  rewind(file);
  char *text = malloc((size_t)*bytes_out);
  assert_non_null(text);
  assert_int_equal(fread(text, 1, (size_t)*bytes_out, file), *bytes_out);
  fclose(file);
  unlink(path);
  return text;
}

/* A short program is planned for several machines, a long one for that at hand; the search ends
 * early where moves hold up no op, as in the first and the last. */
static void threads_do_not_change_the_plan(void **state) {
  (void)state;
  static const struct {
    uint32_t layers;
    uint64_t memory_bytes;
    bool waits;
  } programs[] = {{2, 4 * MR_MIB, false}, {11, 4 * MR_MIB, true}, {11, 32 * MR_MIB, false}};
  static const uint32_t threads[] = {2, 8};
  for (uint32_t i = 0; i < MR_COUNT_OF(programs); i++) {
    struct mr_graph *graph = plan_layers_graph(programs[i].layers, programs[i].memory_bytes);
    long one_bytes = 0;
    char *one = plan_text(graph, 1, programs[i].waits, &one_bytes);
    for (uint32_t k = 0; k < MR_COUNT_OF(threads); k++) {
      long bytes = 0;
      char *text = plan_text(graph, threads[k], programs[i].waits, &bytes);
      assert_int_equal(bytes, one_bytes);
      assert_memory_equal(text, one, (size_t)bytes);
      free(text);
    }
    free(one);
    mr_graph_destroy(graph);
  }
}

/* INFINITY: nothing fits. */
static double seconds_under(const struct mr_graph *graph, mr_offload offload, uint64_t device_bytes,
                            uint64_t host_bytes) {
  struct mr_options options = shed_options(device_bytes, host_bytes);
  struct mr_plan *plan = NULL;
  options.offload = offload;
  assert_int_equal(mr_plan_create(graph, &options, &plan), MR_OK);
  double seconds = plan->layout->fits ? plan->layout->step_seconds : INFINITY;
  mr_plan_destroy(plan);
  return seconds;
}

static double seconds_with(const struct mr_graph *graph, mr_offload offload,
                           uint64_t device_bytes) {
  double seconds = seconds_under(graph, offload, device_bytes, 4 * MR_GIB);
  assert_true(isfinite(seconds));
  return seconds;
}

/* Long programs are not planned for machines that depend on the program alone, but without NVMe
 * where the host would do. Nor does NVMe gain anything there: what it moves crosses the host's
 * links, which bind. */
static void nvme_beside_a_host_that_would_do_changes_no_plan(void **state) {
  (void)state;
  struct mr_graph *graph = plan_layers_graph(12, LINKS_TAKE_LONGER);
  assert_true(graph->op_count > 256);
  for (uint64_t mebibytes = 80; mebibytes <= 400; mebibytes += 32) {
    double host = seconds_with(graph, MR_OFFLOAD_HOST, mebibytes * MR_MIB);
    double both = seconds_with(graph, MR_OFFLOAD_NVME, mebibytes * MR_MIB);
    print_message("%3u MiB: %.6f s with the host, %.6f s with NVMe too\n", (uint32_t)mebibytes,
                  host, both);
    assert_true(both <= host && both > 0.99 * host);
  }
  mr_graph_destroy(graph);
}

/* Nor where the host would do for some programs alone: what is best with NVMe is mostly another
 * then. Before such jobs were planned without it too, they were slower with it. */
static void nvme_beside_a_small_host_makes_no_plan_slower(void **state) {
  (void)state;
  static const struct {
    uint64_t device_bytes, host_bytes;
  } budgets[] = {{80 * MR_MIB, 950 * MR_MIB}, {184 * MR_MIB, 850 * MR_MIB}};
  struct mr_graph *graph = plan_layers_graph(12, LINKS_TAKE_LONGER);
  for (uint32_t i = 0; i < MR_COUNT_OF(budgets); i++) {
    uint64_t device_bytes = budgets[i].device_bytes;
    uint64_t host_bytes = budgets[i].host_bytes;
    double host = seconds_under(graph, MR_OFFLOAD_HOST, device_bytes, host_bytes);
    double both = seconds_under(graph, MR_OFFLOAD_NVME, device_bytes, host_bytes);
    print_message("%3u + %3u MiB: %.6f s with the host, %.6f s with NVMe too\n",
                  (uint32_t)(device_bytes / MR_MIB), (uint32_t)(host_bytes / MR_MIB), host, both);
    assert_true(isfinite(host) && both <= host * (1 + 1e-9));
  }
  mr_graph_destroy(graph);
}

/* What one search misses is found for a budget or for links near those at hand: before finalists
 * were planned for such, more memory made the first two of these slower. */
static void more_memory_makes_no_plan_slower(void **state) {
  (void)state;
  static const struct {
    uint32_t layers;
    double mebibytes;
  } jobs[] = {{2, 49.92}, {3, 86.208}, {2, 68.4}};
  for (uint32_t i = 0; i < MR_COUNT_OF(jobs); i++) {
    struct mr_graph *graph = plan_layers_graph(jobs[i].layers, LINKS_TAKE_LONGER);
    double bytes = jobs[i].mebibytes * (double)MR_MIB;
    double seconds = seconds_with(graph, MR_OFFLOAD_NVME, (uint64_t)bytes);
    double with_more = seconds_with(graph, MR_OFFLOAD_NVME, (uint64_t)(1.04 * bytes));
    print_message("%u layers, %.1f MiB: %.6f s, %.6f s with more\n", jobs[i].layers,
                  jobs[i].mebibytes, seconds, with_more);
    assert_true(with_more <= seconds * (1 + 1e-9));
    mr_graph_destroy(graph);
  }
}

/* Of budgets right below a rung of the ladder, plans use what the rung below that leaves of them.
 */
static void plans_use_all_of_a_budget(void **state) {
  (void)state;
  struct mr_graph *graph = plan_layers_graph(12, LINKS_TAKE_LONGER);
  uint64_t rung_bytes = 400 * MR_MIB;
  uint32_t beyond = 0;
  for (uint32_t i = 0; i < 12; i++) {
    struct mr_options options = shed_options(rung_bytes - 1, 4 * MR_GIB);
    struct mr_plan *plan = NULL;
    options.offload = MR_OFFLOAD_HOST;
    assert_int_equal(mr_plan_create(graph, &options, &plan), MR_OK);
    const struct mr_program_plan *layout = plan->layout;
    uint64_t need_bytes = layout->small_bytes + layout->device_page_count * layout->page_bytes;
    assert_true(layout->fits && need_bytes <= rung_bytes);
    rung_bytes = mr_ladder_below(layout->footprint_bytes, rung_bytes);
    beyond += i > 0 && need_bytes > rung_bytes;
    mr_plan_destroy(plan);
  }
  print_message("%u plans of 11 need more than the rung below\n", beyond);
  assert_true(beyond >= 6);
  mr_graph_destroy(graph);
}

/* Without search, so many of the updates on the host and the others in the next step. */
static double seconds_staying(const struct mr_search *search, uint32_t staying) {
  struct mr_graph *deferred = NULL;
  assert_int_equal(mr_graph_defer(search->plan->graph, staying, &deferred), MR_OK);
  if (deferred == NULL) {
    return INFINITY;
  }
  struct mr_candidate candidate = {.program = deferred, .rewritten = deferred};
  assert_int_equal(mr_search_plan(search, &candidate, true), MR_OK);
  double seconds = candidate.layout->fits ? candidate.layout->step_seconds : INFINITY;
  mr_candidate_fini(&candidate);
  return seconds;
}

/* As many updates stay as a look at numbers all along finds best, or nearly; the faster the host,
 * the more. */
static void a_host_runs_as_many_updates_as_it_had_better(void **state) {
  (void)state;
  const uint32_t layers = 32;
  const uint32_t updates = 8 * layers;
  const double hosts[] = {1e8, 3e8, 1e9};
  struct mr_graph *graph = plan_layers_graph(layers, LINKS_TAKE_LONGER);
  struct mr_options options = shed_options(160 * MR_MIB, 4 * MR_GIB);
  uint32_t before = 0;
  struct mr_plan *plan = NULL;
  options.recompute = MR_RECOMPUTE_NONE;
  options.defer = MR_DEFER_NEVER;
  assert_int_equal(mr_plan_create(graph, &options, &plan), MR_OK);
  for (uint32_t i = 0; i < MR_COUNT_OF(hosts); i++) {
    plan->problem.host_bytes_per_second = hosts[i];
    struct mr_search search = {.plan = plan};
    mr_finalists_init(&search.finalists, plan);
    search.finalists.max_page_count = UINT64_MAX;
    uint32_t best = 1;
    double least = INFINITY;
    for (uint32_t staying = 1; staying < updates; staying += 15) {
      double seconds = seconds_staying(&search, staying);
      best = seconds < least ? staying : best;
      least = fmin(seconds, least);
    }
    uint32_t found = 0;
    assert_int_equal(mr_search_find_staying(&search, graph, &found), MR_OK);
    double seconds = seconds_staying(&search, found);
    print_message("%.0e bytes/s: %u stay, %.6f s; at best %u, %.6f s\n", hosts[i], found, seconds,
                  best, least);
    assert_true(isfinite(least) && seconds <= 1.02 * least);
    assert_true(found >= before);
    before = found;
  }
  assert_true(before > 0);
  mr_plan_destroy(plan);
  mr_graph_destroy(graph);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(updates_are_deferred_where_only_that_fits),
      cmocka_unit_test(questions_defer_where_the_plan_had_to),
      cmocka_unit_test(threads_do_not_change_the_plan),
      cmocka_unit_test(nvme_beside_a_host_that_would_do_changes_no_plan),
      cmocka_unit_test(nvme_beside_a_small_host_makes_no_plan_slower),
      cmocka_unit_test(more_memory_makes_no_plan_slower),
      cmocka_unit_test(plans_use_all_of_a_budget),
      cmocka_unit_test(a_host_runs_as_many_updates_as_it_had_better),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
