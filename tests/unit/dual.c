/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bound by prices against the optimum of the linear program that it is the dual of, which is
 * written down here once more and solved by a library: never above it, and close below it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>

#include "base/base.h"
#include "plan/dual.h"
#include "plan/host.h"
#include "plan/problem/lp.h"
#include "unit/dual_lp.h"
#include "unit/plan_programs.h"

#define CLOSE   0.99 /* of the optimum */
#define BUDGETS 5u
/* Where ops lose time to what NVMe moves there are so many windows at first, and more where another
 * resource begins to bind, and some where a host apart runs ops: the bound is no higher than with
 * each op in a window of its own. */
#define FIRST_WINDOWS 14u
/* What an update passes: it takes the host so long. */
#define UPDATE_BYTES 1000u
/* An update in so many has scratch: it cannot be handed over. */
#define STAYING 5u
/* Below half a page. */
#define SMALL_BYTES 2048u
/* Updates of one tensor. */
#define MOST_PIECES 2u

static void add_gap(struct dual_model *model, uint32_t after, uint32_t before, double bytes,
                    bool stale) {
  model->gaps[model->gap_count++] =
      (struct dual_gap){after, before, model->version_count - 1, bytes, stale};
  MR_ASSERT(model->op_count > 0);
  for (uint32_t k = after + 1; k < before; k++) {
    model->need_bytes[k % model->op_count] += bytes;
  }
}

/* Where the version begins that the first gaps of a tensor which lasts belong to: at its last write
 * of the step before. */
static uint32_t first_access(const struct mr_access *accesses, uint32_t count) {
  for (uint32_t i = count; i-- > 0;) {
    if (accesses[i].writes) {
      return i;
    }
  }
  return 0;
}

static void add_tensor(struct dual_model *model, const struct mr_tensor *tensor,
                       const struct mr_access *accesses, uint32_t count) {
  bool lasts = mr_role_is_persistent(tensor->role);
  uint32_t start = lasts ? first_access(accesses, count) : 0;
  bool written = accesses[start].writes;
  double bytes = (double)tensor->bytes;
  for (uint32_t j = 0; j < count; j++) {
    uint32_t i = (start + j) % count;
    bool wraps = i + 1 == count;
    uint32_t later = i < start ? model->op_count : 0;
    if (j == 0 || accesses[i].writes) {
      model->versions[model->version_count++] = (struct dual_version){
          .bytes = bytes, .written = written, .write_op = accesses[i].op + later};
    }
    const struct mr_access *next = &accesses[wraps ? 0 : i + 1];
    if (tensor->role != MR_INPUT && (lasts || !wraps) && next->reads) {
      uint32_t before = next->op + (wraps ? model->op_count : 0);
      add_gap(model, accesses[i].op + later, before + later, bytes, false);
    }
    model->need_bytes[accesses[i].op] += bytes;
  }
}

static bool is_update(const struct mr_graph *graph, mr_op_id op) {
  return (graph->ops[op].flags & MR_OP_HOST_CAPABLE) != 0;
}

static uint32_t site_of(struct dual_model *model, const struct mr_graph *graph, mr_op_id update) {
  uint32_t site = 0;
  while (site < model->site_count && model->sites[site].op != update) {
    site++;
  }
  if (site == model->site_count) {
    model->sites[model->site_count++] =
        (struct dual_site){.op = update, .stays = graph->ops[update].scratch_bytes > 0};
  }
  return site;
}

/* What an update has of a tensor that others of the `count` accesses before it use; `anew`: the
 * last of them leaves nothing that is read. */
static void add_piece(struct dual_model *model, const struct mr_graph *graph,
                      const struct mr_access *accesses, uint32_t count, bool anew, mr_op_id update,
                      double bytes) {
  uint32_t n = model->op_count;
  model->versions[model->version_count++] =
      (struct dual_version){.bytes = bytes,
                            .written = true,
                            .rests = count == 0,
                            .site = site_of(model, graph, update) + 1};
  if (count == 0) {
    add_gap(model, update, update + n, bytes, true);
  }
  model->sites[site_of(model, graph, update)].anew_bytes += anew ? bytes : 0;
  for (uint32_t i = 0; i < count; i++) {
    bool wraps = i + 1 == count;
    if (wraps && anew) continue;
    add_gap(model, accesses[i].op, wraps ? accesses[0].op + n : accesses[i + 1].op, bytes, wraps);
  }
}

/* The last op but updates that makes what an update reads and what lives in a step alone. */
static mr_op_id maker_of(const struct mr_graph *graph, mr_op_id update) {
  const struct mr_op *op = &graph->ops[update];
  mr_op_id last = 0;
  for (mr_op_id k = 0; k < graph->op_count; k++) {
    for (uint32_t i = 0; i < op->input_count * graph->ops[k].output_count; i++) {
      mr_tensor_id t = op->inputs[i % op->input_count];
      bool makes = graph->ops[k].outputs[i / op->input_count] == t && !is_update(graph, k) &&
                   !mr_role_is_persistent(graph->tensors[t].role);
      last = makes ? k : last;
    }
  }
  return last;
}

/* What an update has of a gradient, which others use before it: in the end an op that writes it or
 * reads it. Where the update waits for more it rests. */
static void add_made(struct dual_model *model, const struct mr_graph *graph,
                     const struct mr_access *last, mr_op_id written, mr_op_id update,
                     double bytes) {
  uint32_t site = site_of(model, graph, update);
  mr_op_id maker = maker_of(graph, update);
  if (maker <= last->op) {
    model->sites[site].made_bytes += bytes;
    return;
  }
  model->versions[model->version_count++] = (struct dual_version){.bytes = bytes,
                                                                  .written = true,
                                                                  .write_op = written,
                                                                  .rests = true,
                                                                  .made = true,
                                                                  .site = site + 1};
  add_gap(model, last->op, maker + 1, bytes, true);
}

/* A tensor that updates use last, each a piece of it. */
static void add_hosted(struct dual_model *model, const struct mr_graph *graph,
                       const struct mr_tensor *tensor, const struct mr_access *accesses,
                       uint32_t count, uint32_t others) {
  mr_op_id written = 0;
  for (uint32_t i = 0; i < others; i++) {
    model->need_bytes[accesses[i].op] += (double)tensor->bytes;
    written = accesses[i].writes ? accesses[i].op : written;
  }
  for (uint32_t i = others; i < count; i++) {
    double bytes = (double)tensor->bytes / (count - others);
    if (mr_role_is_persistent(tensor->role)) {
      add_piece(model, graph, accesses, others, !accesses[others].reads, accesses[i].op, bytes);
    } else {
      add_made(model, graph, &accesses[others - 1], written, accesses[i].op, bytes);
    }
  }
}

static void set_windows(struct dual_model *model, const uint32_t *starts, uint32_t count) {
  model->window_count = count;
  for (uint32_t w = 0; w < count; w++) {
    model->window_start[w] = starts[w];
    model->window_start[count + w] = starts[w] + model->op_count;
  }
  model->window_start[2 * count] = 2 * model->op_count;
}

/* Into parts of equal numbers of ops, and no more than there are ops. */
static void cut_evenly(struct dual_model *model, uint32_t count) {
  uint32_t starts[DUAL_WINDOWS];
  count = count < model->op_count ? count : model->op_count;
  for (uint32_t w = 0; w < count; w++) {
    starts[w] = w * model->op_count / count;
  }
  set_windows(model, starts, count);
}

/* Cuts the step before the last op that is first to read an updated weight, and before and after
 * the first that ends what an update waits for; before `each_op` that is no update too. */
static void cut_beside_host(struct dual_model *model, const struct mr_graph *graph,
                            const struct mr_liveness *liveness, bool each_op) {
  mr_op_id last_reader = 0;
  mr_op_id first_maker = graph->op_count;
  for (uint32_t t = 0; t < graph->tensor_count; t++) {
    const struct mr_access *accesses = &liveness->accesses[liveness->first[t]];
    uint32_t count = liveness->first[t + 1] - liveness->first[t];
    bool updated = count > 1 && is_update(graph, accesses[count - 1].op);
    bool weight = graph->tensors[t].role == MR_PARAMETER || graph->tensors[t].role == MR_DERIVED;
    if (!updated || !weight || is_update(graph, accesses[0].op)) continue;
    mr_op_id maker = maker_of(graph, accesses[count - 1].op);
    last_reader = accesses[0].op > last_reader ? accesses[0].op : last_reader;
    first_maker = maker < first_maker ? maker : first_maker;
  }
  const uint32_t ends[] = {0, last_reader, first_maker, first_maker + 1, model->op_count};
  uint32_t starts[DUAL_WINDOWS];
  uint32_t count = 0;
  assert_true(0 < last_reader && last_reader < first_maker);
  for (uint32_t i = 0; i + 1 < MR_COUNT_OF(ends); i++) {
    starts[count++] = ends[i];
    for (mr_op_id k = ends[i] + 1; k < ends[i + 1] && each_op; k++) {
      starts[count] = k;
      count += !is_update(graph, k);
    }
  }
  model->quiet_from = last_reader;
  model->barrier = first_maker;
  set_windows(model, starts, count);
}

static struct dual_model make_model(const struct mr_graph *graph,
                                    const struct mr_liveness *liveness, bool apart,
                                    uint32_t windows) {
  size_t accesses = MOST_PIECES * (size_t)liveness->first[graph->tensor_count];
  struct dual_model model = {.apart = apart,
                             .op_count = graph->op_count,
                             .sites = dual_take(graph->op_count, sizeof(struct dual_site)),
                             .need_bytes = dual_take(graph->op_count, sizeof(double)),
                             .gaps = dual_take(accesses, sizeof(struct dual_gap)),
                             .versions = dual_take(accesses, sizeof(struct dual_version))};
  for (uint32_t t = 0; t < graph->tensor_count; t++) {
    uint32_t first = liveness->first[t];
    uint32_t count = liveness->first[t + 1] - first;
    const struct mr_access *of_tensor = &liveness->accesses[first];
    uint32_t others = count;
    while (apart && others > 0 && is_update(graph, of_tensor[others - 1].op)) {
      others--;
    }
    bool small = graph->tensors[t].bytes < SMALL_BYTES; /* it is handed over */
    if (others < count && !small) {
      add_hosted(&model, graph, &graph->tensors[t], of_tensor, count, others);
    } else if (count > 0) {
      add_tensor(&model, &graph->tensors[t], of_tensor, others);
    }
    model.handed_bytes += others < count && small ? (double)graph->tensors[t].bytes : 0;
  }
  for (uint32_t k = 0; k < graph->op_count; k++) {
    model.need_bytes[k] += apart && is_update(graph, k) ? 0 : (double)graph->ops[k].scratch_bytes;
  }
  if (apart) {
    cut_beside_host(&model, graph, liveness, windows > 1);
  } else {
    cut_evenly(&model, windows);
  }
  return model;
}

static void model_fini(struct dual_model *model) {
  free(model->need_bytes);
  free(model->gaps);
  free(model->versions);
  free(model->sites);
}

#define KINDS            8u
#define HOST_APART       5u
#define STAGED           6u
#define MEMORY_SHARED    7u
#define OP_SECONDS       2e-3
#define HOST_PACE        0.3 /* of the device's */
#define HANDOVER_SECONDS (0.2 * OP_SECONDS)

static bool loses(uint32_t kind) {
  return kind == 1 || kind == 2;
}

static bool is_cut(uint32_t kind) {
  return loses(kind) || kind == HOST_APART;
}

/* The tiers of a machine: NVMe alone, fast or slow beside the ops, that costs ops time or not; the
 * host alone, and one that runs updates beside the device, whose memory passes all or less; and
 * NVMe whose reads the host's link holds up. */
static void make_problem(struct mr_plan_problem *problem, struct dual_toll *tolls, uint32_t kind,
                         const struct dual_model *model) {
  double rate = kind % 2 == 0 ? 8e7 : 3e7;
  for (uint32_t l = 0; l < MR_LINK_COUNT; l++) {
    problem->link[l].bytes_per_second = l % 2 == 0 ? rate : 0.8 * rate;
  }
  bool host = kind == 4 || kind == HOST_APART || kind == MEMORY_SHARED;
  problem->budget_bytes[host ? MR_TIER_HOST : MR_TIER_NVME] = UINT64_MAX;
  problem->nvme_op_seconds_per_byte = loses(kind) ? 1e-9 : 0;
  double loss = host ? 0 : problem->nvme_op_seconds_per_byte;
  mr_link in = host ? MR_LINK_HOST_TO_DEVICE : MR_LINK_NVME_READ;
  mr_link out = host ? MR_LINK_DEVICE_TO_HOST : MR_LINK_NVME_WRITE;
  tolls[0] = (struct dual_toll){.in = loss, .out = loss, .op = OP_SECONDS};
  tolls[1] = (struct dual_toll){.in = 1 / problem->link[in].bytes_per_second};
  tolls[2] = (struct dual_toll){.out = 1 / problem->link[out].bytes_per_second};
  for (uint32_t i = 3; i < DUAL_TOLLS; i++) {
    tolls[i] = (struct dual_toll){0};
  }
  if (kind == STAGED) {
    problem->nvme_staged = true;
    tolls[3].in = 1 / problem->link[MR_LINK_HOST_TO_DEVICE].bytes_per_second;
    tolls[4].out = 1 / problem->link[MR_LINK_DEVICE_TO_HOST].bytes_per_second;
  }
  if (model->apart) {
    problem->host_apart = true;
    problem->host_bytes_per_second = HOST_PACE * UPDATE_BYTES / OP_SECONDS;
    problem->link[MR_LINK_DEVICE_TO_HOST].latency_seconds = HANDOVER_SECONDS;
    tolls[0].device = OP_SECONDS;
    tolls[0].handed = HANDOVER_SECONDS + model->handed_bytes * tolls[2].out;
    tolls[3].host = OP_SECONDS / HOST_PACE;
    tolls[4].after_host = tolls[1].in;
  }
  if (kind == MEMORY_SHARED) {
    double memory = 2 * MR_HOST_LEAST_PACE * problem->host_bytes_per_second;
    memory += problem->link[in].bytes_per_second + problem->link[out].bytes_per_second;
    problem->host_memory_bytes_per_second = memory;
    tolls[5] = (struct dual_toll){
        .in = 1 / memory, .out = 1 / memory, .host = (double)UPDATE_BYTES / memory};
  }
}

struct tally {
  double worst;
  uint32_t budgets;
  uint32_t moving;
  uint32_t cut; /* above what the first windows give, or those that must be */
};

static double dual_of(const struct mr_plan_problem *problem, const struct mr_liveness *liveness,
                      double known) {
  double seconds = 0;
  mr_status status = mr_dual_seconds(problem, liveness, problem->budget_bytes, known, &seconds);
  assert_int_equal(status, MR_OK);
  return seconds;
}

/* The ascent goes on where a little less is known, and is given up where that is out of reach. */
static void check_known(const struct mr_plan_problem *problem, const struct mr_liveness *liveness,
                        double seconds) {
  assert_true(dual_of(problem, liveness, seconds * (1 - 1e-9)) == seconds);
  double given_up = dual_of(problem, liveness, 10 * seconds);
  assert_true(given_up > 0 && given_up <= seconds);
}

/* `finest`: the model with the most windows that there may be. */
static void check_budget(const struct mr_plan_problem *problem, const struct dual_model *model,
                         const struct dual_model *finest, const struct dual_toll *tolls,
                         struct tally *tally) {
  struct mr_liveness liveness = {0};
  mr_status status = model->apart ? mr_host_liveness_needed(problem, &liveness)
                                  : mr_liveness_init(&liveness, problem->program);
  assert_int_equal(status, MR_OK);
  double seconds = dual_of(problem, &liveness, 0);
  check_known(problem, &liveness, seconds);
  double device_bytes = (double)problem->budget_bytes[MR_TIER_DEVICE];
  double optimum = dual_lp_optimum(model, tolls, device_bytes);
  bool finer = finest->window_count > model->window_count;
  double most = finer ? dual_lp_optimum(finest, tolls, device_bytes) : optimum;
  print_message("%.6f of %.6f to %.6f\n", seconds, optimum, most);
  assert_true(seconds <= most * (1 + 1e-7));
  assert_true(seconds >= optimum * CLOSE);
  tally->cut += seconds > optimum * (1 + 1e-6);
  tally->budgets++;
  tally->worst = fmin(tally->worst, seconds / optimum);
  double ops_seconds = OP_SECONDS * (model->op_count - model->site_count);
  tally->moving += optimum > ops_seconds * (1 + 1e-6);
  mr_liveness_fini(&liveness);
}

static double most_needed(const struct dual_model *model) {
  double most = 0;
  for (uint32_t k = 0; k < model->op_count; k++) {
    most = fmax(most, model->need_bytes[k]);
  }
  return most;
}

/* A second update of every other weight, with a state of its own. */
static void split_updates(struct mr_graph *graph) {
  uint32_t count = graph->op_count;
  for (mr_op_id k = 0; k < count; k++) {
    const struct mr_op *op = &graph->ops[k];
    if (!is_update(graph, k) || k % MOST_PIECES == 0) continue;
    mr_tensor_id weight = op->inputs[0];
    mr_tensor_id gradient = op->inputs[1];
    mr_tensor_id norm = op->input_count > 4 ? op->inputs[4] : MR_NO_TENSOR;
    mr_tensor_id copy = op->output_count > 3 ? op->outputs[3] : MR_NO_TENSOR;
    mr_tensor_id state = plan_add_tensor(graph, MR_STATE, graph->tensors[weight].bytes);
    mr_tensor_id inputs[] = {weight, gradient, state, norm, copy, MR_NO_TENSOR};
    mr_tensor_id outputs[] = {weight, state, copy, MR_NO_TENSOR};
    mr_op_id second = plan_add_op(graph, inputs, outputs, 0);
    graph->ops[second].flags |= MR_OP_HOST_CAPABLE;
  }
}

/* Under all kinds of tiers for which the step is cut into windows, or under the others. */
static void check_graph(struct mr_graph *graph, bool cut) {
  struct tally tally = {.worst = 1};
  if (mr_lp_library_find() == NULL) {
    mr_graph_destroy(graph);
    skip();
  }
  split_updates(graph);
  for (uint32_t k = 0; k < graph->op_count; k++) {
    graph->ops[k].memory_bytes = UPDATE_BYTES;
    bool stays = is_update(graph, k) && k % STAYING == 0;
    graph->ops[k].scratch_bytes += stays ? UPDATE_BYTES : 0;
  }
  struct mr_liveness liveness = {0};
  assert_int_equal(mr_liveness_init(&liveness, graph), MR_OK);
  double *seconds = plan_op_seconds(graph, OP_SECONDS);
  for (uint32_t kind = 0; kind < KINDS; kind++) {
    if (is_cut(kind) != cut) continue;
    bool apart = kind == HOST_APART;
    uint32_t first = loses(kind) ? FIRST_WINDOWS : 1;
    struct dual_model model = make_model(graph, &liveness, apart, first);
    struct dual_model finest = make_model(graph, &liveness, apart, cut ? DUAL_WINDOWS : 1);
    for (uint32_t i = 0; i < BUDGETS; i++) {
      struct mr_plan_problem problem;
      struct dual_toll tolls[DUAL_TOLLS];
      plan_problem_init(&problem, graph);
      problem.op_seconds = seconds;
      make_problem(&problem, tolls, kind, &model);
      problem.budget_bytes[MR_TIER_DEVICE] = (uint64_t)(most_needed(&model) * (0.9 - 0.17 * i));
      check_budget(&problem, &model, &finest, tolls, &tally);
    }
    model_fini(&model);
    model_fini(&finest);
  }
  print_message(
      "%u budgets, at %u of which more than ops costs time; at worst %.4f of the optimum; at %u "
      "above that of the first windows\n",
      tally.budgets, tally.moving, tally.worst, tally.cut);
  assert_true(tally.moving >= BUDGETS);
  assert_true((tally.cut > 0) == cut);
  free(seconds);
  mr_liveness_fini(&liveness);
  mr_graph_destroy(graph);
}

static void dual_is_close_to_its_optimum(void **state) {
  (void)state;
  check_graph(plan_training_graph(6, 3, 40 * MR_KIB, 100 * MR_KIB), false);
}

/* The same where updates wait for all gradients: beside large activations, and beside small ones;
 * and where ops read copies of weights. */
static void dual_is_close_beside_a_norm(void **state) {
  (void)state;
  check_graph(plan_clipped_graph(6, 3, 80 * MR_KIB, 100 * MR_KIB), false);
  check_graph(plan_clipped_graph(6, 3, 100 * MR_KIB, 8 * MR_KIB), false);
  check_graph(plan_copies_graph(6, 3, 200 * MR_KIB, 8 * MR_KIB), false);
}

/* Fewer layers, for each op has a window of its own in the largest program. Beside small
 * activations it is the gradients that have to go in time. */
static void dual_cuts_windows(void **state) {
  (void)state;
  check_graph(plan_training_graph(4, 2, 40 * MR_KIB, 100 * MR_KIB), true);
  check_graph(plan_clipped_graph(4, 2, 40 * MR_KIB, 100 * MR_KIB), true);
  check_graph(plan_clipped_graph(4, 2, 100 * MR_KIB, 8 * MR_KIB), true);
}

/* Where ops read copies of weights that updates make anew, on the device or on the host: beside
 * small activations it is them that have to come in time. */
static void dual_cuts_windows_beside_copies(void **state) {
  (void)state;
  check_graph(plan_copies_graph(3, 2, 40 * MR_KIB, 100 * MR_KIB), true);
  check_graph(plan_copies_graph(3, 2, 200 * MR_KIB, 8 * MR_KIB), true);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(dual_is_close_to_its_optimum), cmocka_unit_test(dual_is_close_beside_a_norm),
      cmocka_unit_test(dual_cuts_windows), cmocka_unit_test(dual_cuts_windows_beside_copies)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
