/* SPDX-License-Identifier: Apache-2.0 */
/* The verifier on what the planner makes of random programs: right as they are, wrong when spoiled.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdlib.h>

#include "base/base.h"
#include "model/plans.h"
#include "model/program.h"
#include "recompute/recompute.h"

#define PLAIN_ROUNDS  100u /* from the seed that MEMRUN_TEST_SEED names on, else from 1 */
#define MUTANT_ROUNDS 24u
#define MANY_OPS      3000u

static void quiet(void *context, mr_log_level level, const char *line) {
  (void)context;
  (void)level;
  (void)line;
}

struct drawn {
  struct mr_graph *graph;
  double *seconds;
  struct mr_plan_problem problem;
  struct mr_program_plan *plan; /* NULL: does not fit */
};

/* The bytes that a plan with no limits takes, and at least. */
static struct mr_program_plan *plan_make(const struct mr_plan_problem *problem) {
  struct mr_program_plan *plan = NULL;
  assert_int_equal(mr_program_plan_make(problem, &plan), MR_OK);
  return plan;
}

/* A program with every choice of recompute drawn. */
static struct mr_graph *rewritten(struct mr_graph *graph, const double *seconds,
                                  struct mr_random *random) {
  struct mr_recompute_menu menu;
  struct mr_graph *program = NULL;
  assert_int_equal(mr_recompute_menu_init(&menu, graph, seconds), MR_OK);
  uint32_t *selected = mr_allocate(menu.block_count, sizeof *selected);
  for (uint32_t i = 0; i < menu.block_count; i++) {
    selected[i] = (uint32_t)mr_random_below(random, menu.blocks[i].choice_count);
  }
  assert_int_equal(mr_recompute_apply(&menu, graph, selected, &program), MR_OK);
  free(selected);
  mr_recompute_menu_fini(&menu);
  mr_graph_destroy(graph);
  return program;
}

/* The program with its updates in the next step, where they may run there. */
static struct mr_graph *deferred(struct mr_graph *graph) {
  struct mr_graph *program = NULL;
  assert_int_equal(mr_graph_defer(graph, 0, &program), MR_OK);
  if (program == NULL) {
    return graph;
  }
  mr_graph_destroy(graph);
  return program;
}

static bool has_deferred(const struct mr_graph *graph) {
  bool any = false;
  for (mr_op_id k = 0; k < graph->op_count; k++) {
    any = any || graph->ops[k].deferred;
  }
  return any;
}

static double *seconds_draw(const struct mr_graph *graph, struct mr_random *random) {
  double *seconds = mr_allocate(graph->op_count, sizeof *seconds);
  for (mr_op_id k = 0; k < graph->op_count; k++) {
    seconds[k] = mr_random_unit(random) * 1e-4;
  }
  return seconds;
}

/* Budgets between just enough and plenty; host and NVMe each there or not. */
static void budgets_draw(struct drawn *d, struct mr_random *random, bool tight) {
  d->problem.budget_bytes[MR_TIER_DEVICE] = UINT64_MAX;
  struct mr_program_plan *plenty = plan_make(&d->problem);
  assert_true(plenty->fits);
  uint64_t footprint = plenty->footprint_bytes;
  mr_program_plan_destroy(plenty);
  bool host = tight || mr_random_below(random, 4) > 0;
  bool nvme = tight || mr_random_below(random, 4) > 0;
  d->problem.budget_bytes[MR_TIER_HOST] = host ? mr_random_below(random, footprint) : 0;
  d->problem.budget_bytes[MR_TIER_NVME] = nvme ? UINT64_MAX : 0;
  d->problem.budget_bytes[MR_TIER_DEVICE] = 1;
  struct mr_program_plan *least = plan_make(&d->problem);
  assert_true(!least->fits);
  uint64_t smallest = least->smallest_device_bytes;
  mr_program_plan_destroy(least);
  uint64_t room = footprint > smallest ? footprint - smallest : 0;
  d->problem.budget_bytes[MR_TIER_DEVICE] =
      smallest + (tight || mr_random_below(random, 3) == 0 ? 0 : mr_random_below(random, room + 1));
}

static struct drawn plan_draw(uint64_t seed, const struct model_options *options) {
  struct mr_random random;
  mr_random_init(&random, seed);
  struct drawn d = {.graph = model_program_create(seed, options)};
  d.seconds = seconds_draw(d.graph, &random);
  if (mr_random_below(&random, 2) == 0) {
    d.graph = rewritten(d.graph, d.seconds, &random);
    free(d.seconds);
    d.seconds = seconds_draw(d.graph, &random);
  }
  if (mr_random_below(&random, 2) == 0) {
    d.graph = deferred(d.graph);
  }
  d.problem = (struct mr_plan_problem){
      .program = d.graph,
      .op_seconds = d.seconds,
      .page_bytes = 4096,
      .extent_unit_bytes = 4096,
      .search_rounds = (uint32_t)mr_random_below(&random, 3) * 20,
  };
  for (uint32_t link = 0; link < MR_LINK_COUNT; link++) {
    d.problem.link[link] = (struct mr_link_rate){1e8 + mr_random_unit(&random) * 1e10, 1e-6};
  }
  if (mr_random_below(&random, 3) == 0) {
    d.problem.host_apart = true;
    d.problem.host_bytes_per_second = 1e8 + mr_random_unit(&random) * 1e12;
    d.problem.host_memory_bytes_per_second = 1e10 * (double)mr_random_below(&random, 3);
    d.problem.nvme_staged = mr_random_below(&random, 2) == 0;
  }
  budgets_draw(&d, &random, false);
  d.plan = plan_make(&d.problem);
  return d;
}

static void drawn_free(struct drawn *d) {
  mr_program_plan_destroy(d->plan);
  mr_graph_destroy(d->graph);
  free(d->seconds);
}

static void plans_are_right(void **state) {
  (void)state;
  uint32_t fitting = 0;
  uint32_t on_host = 0;
  uint32_t deferring = 0;
  uint32_t apart = 0;
  uint64_t moves = 0;
  const char *given = getenv("MEMRUN_TEST_SEED");
  uint64_t first = given != NULL ? strtoull(given, NULL, 10) : 1;
  mr_log_configure(quiet, NULL, MR_LOG_ERROR);
  for (uint64_t seed = first; seed < first + PLAIN_ROUNDS; seed++) {
    struct model_options options;
    model_options_draw(seed, &options);
    options.large_bytes = 1ull << (12 + seed % 5);
    struct drawn d = plan_draw(seed, &options);
    if (d.plan->fits) {
      fitting++;
      on_host += d.plan->host_op_count > 0;
      deferring += has_deferred(d.graph);
      apart += d.plan->instruction_count[MR_QUEUE_HOST] > 0;
      for (uint32_t queue = 1; queue < MR_QUEUE_COUNT; queue++) {
        moves += d.plan->instruction_count[queue];
      }
      mr_log_configure(NULL, NULL, MR_LOG_ERROR);
      mr_status status = mr_program_plan_verify(&d.problem, d.plan);
      mr_log_configure(quiet, NULL, MR_LOG_ERROR);
      if (status != MR_OK) {
        fail_msg("seed %llu: the planner made a wrong plan", (unsigned long long)seed);
      }
    }
    drawn_free(&d);
  }
  mr_log_configure(NULL, NULL, MR_LOG_INFO);
  print_message(
      "seeds from %llu: %u plans of %u fit, %u with ops on the host (%u beside the device), "
      "%u with deferred ops, %llu moves\n",
      (unsigned long long)first, fitting, PLAIN_ROUNDS, on_host, apart, deferring,
      (unsigned long long)moves);
  assert_true(fitting > PLAIN_ROUNDS / 2 && moves > 10ull * fitting && on_host > fitting / 10 &&
              deferring > fitting / 10 && apart > 0);
}

static void mutants_are_refused(void **state) {
  (void)state;
  struct mutation_counts waits = {0};
  struct mutation_counts others = {0};
  for (uint64_t seed = 1; seed <= MUTANT_ROUNDS; seed++) {
    struct model_options options = {
        .layers = 1 + (uint32_t)(seed % 3),
        .micro_steps = 1 + (uint32_t)(seed % 2),
        .layer_ops = 2 + (uint32_t)(seed % 3),
        .small_bytes = 2048,
        .large_bytes = 16384,
    };
    struct drawn d = plan_draw(seed * 7919, &options);
    if (d.plan->fits) {
      print_message("seed %llu\n", (unsigned long long)seed * 7919);
      plan_mutate(&d.problem, d.plan, seed, &waits, &others);
    }
    drawn_free(&d);
  }
  print_message("waits: %u of %u caught, the rest harmless; others: %u of %u\n", waits.caught,
                waits.tried, others.caught, others.tried);
  assert_int_equal(waits.caught + waits.harmless, waits.tried);
  assert_int_equal(others.caught, others.tried);
  assert_true(waits.caught > 500);
}

static void many_ops_are_quick(void **state) {
  (void)state;
  struct model_options options = {
      .layers = 16, .micro_steps = 12, .layer_ops = 8, .small_bytes = 2048, .large_bytes = 65536};
  struct drawn d = {.graph = model_program_create(5, &options)};
  struct mr_random random;
  mr_random_init(&random, 5);
  d.seconds = seconds_draw(d.graph, &random);
  d.problem = (struct mr_plan_problem){
      .program = d.graph, .op_seconds = d.seconds, .page_bytes = 4096, .extent_unit_bytes = 4096};
  for (uint32_t link = 0; link < MR_LINK_COUNT; link++) {
    d.problem.link[link] = (struct mr_link_rate){1e9, 1e-6};
  }
  budgets_draw(&d, &random, true);
  double start = mr_clock_seconds();
  d.plan = plan_make(&d.problem);
  double planned = mr_clock_seconds();
  assert_true(d.graph->op_count >= MANY_OPS && d.plan->fits);
  assert_int_equal(mr_program_plan_verify(&d.problem, d.plan), MR_OK);
  double verified = mr_clock_seconds();
  uint32_t instructions = 0;
  for (uint32_t queue = 0; queue < MR_QUEUE_COUNT; queue++) {
    instructions += d.plan->instruction_count[queue];
  }
  print_message("%u ops, %u instructions, %u pages: planned in %.3f s, verified in %.3f s\n",
                d.graph->op_count, instructions, d.plan->page_entry_count, planned - start,
                verified - planned);
  drawn_free(&d);
}

int main(int argc, char **argv) {
  if (argc > 1) {
    cmocka_set_test_filter(argv[1]);
  } else {
    cmocka_set_skip_filter("mutants_are_refused");
  }
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(plans_are_right),
      cmocka_unit_test(mutants_are_refused),
      cmocka_unit_test(many_ops_are_quick),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
