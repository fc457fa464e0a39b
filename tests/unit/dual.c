/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bound by prices against the optimum of the linear program that it is the dual of, which is
 * written down here once more and solved by a library: never above it, and close below it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "plan/draft.h"
#include "plan/dual.h"
#include "plan/problem/lp.h"
#include "unit/plan_programs.h"

#define CLOSE   0.99 /* of the optimum */
#define BUDGETS 5u
#define TOLLS   6u
/* What an update passes: it takes the host so long. */
#define UPDATE_BYTES 1000u
/* Updates of one tensor. */
#define MOST_PIECES 2u

/* A time between two accesses of a tensor, and the write that both come after. */
struct gap {
  uint32_t after, before;
  uint32_t version;
  double bytes;
  bool stale; /* the op that wrote the version runs in it */
};

struct version {
  double bytes;
  bool written;
  bool rests;    /* nothing but an update uses it */
  uint32_t site; /* 1 + the number of the update that wrote it, perhaps on the host; 0: none */
};

/* An update that runs on the device or on the host. */
struct site {
  mr_op_id op;
  double made_bytes; /* on the device, for it */
};

struct model {
  bool apart; /* the host is: updates have sites */
  struct site *sites;
  uint32_t site_count;
  uint32_t op_count;
  uint32_t alone_ops; /* between the last reader of an update's results and the first gradient */
  double *need_bytes; /* of each op, with every gap kept */
  struct gap *gaps;
  uint32_t gap_count;
  struct version *versions;
  uint32_t version_count;
};

static void *take(size_t count, size_t size) {
  void *memory = mr_allocate(count, size);
  MR_ASSERT(memory != NULL);
  return memory;
}

static void add_gap(struct model *model, uint32_t after, uint32_t before, double bytes,
                    bool stale) {
  model->gaps[model->gap_count++] =
      (struct gap){after, before, model->version_count - 1, bytes, stale};
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

static void add_tensor(struct model *model, const struct mr_tensor *tensor,
                       const struct mr_access *accesses, uint32_t count) {
  bool lasts = mr_role_is_persistent(tensor->role);
  uint32_t start = lasts ? first_access(accesses, count) : 0;
  bool written = accesses[start].writes;
  double bytes = (double)tensor->bytes;
  for (uint32_t j = 0; j < count; j++) {
    uint32_t i = (start + j) % count;
    bool wraps = i + 1 == count;
    if (j == 0 || accesses[i].writes) {
      model->versions[model->version_count++] =
          (struct version){.bytes = bytes, .written = written};
    }
    if (tensor->role != MR_INPUT && (lasts || !wraps)) {
      uint32_t before = accesses[wraps ? 0 : i + 1].op + (wraps ? model->op_count : 0);
      add_gap(model, accesses[i].op, before, bytes, false);
    }
    model->need_bytes[accesses[i].op] += bytes;
  }
}

static bool is_update(const struct mr_graph *graph, mr_op_id op) {
  return (graph->ops[op].flags & MR_OP_HOST_CAPABLE) != 0;
}

static uint32_t site_of(struct model *model, mr_op_id update) {
  uint32_t site = 0;
  while (site < model->site_count && model->sites[site].op != update) {
    site++;
  }
  if (site == model->site_count) {
    model->sites[model->site_count++] = (struct site){.op = update};
  }
  return site;
}

/* What an update has of a tensor that others of the `count` accesses before it use. */
static void add_piece(struct model *model, const struct mr_access *accesses, uint32_t count,
                      mr_op_id update, double bytes) {
  uint32_t n = model->op_count;
  model->versions[model->version_count++] = (struct version){
      .bytes = bytes, .written = true, .rests = count == 0, .site = site_of(model, update) + 1};
  if (count == 0) {
    add_gap(model, update, update + n, bytes, true);
  }
  for (uint32_t i = 0; i < count; i++) {
    bool wraps = i + 1 == count;
    add_gap(model, accesses[i].op, wraps ? accesses[0].op + n : accesses[i + 1].op, bytes, wraps);
  }
}

/* A tensor that updates use last, each a piece of it. */
static void add_hosted(struct model *model, const struct mr_graph *graph,
                       const struct mr_tensor *tensor, const struct mr_access *accesses,
                       uint32_t count) {
  uint32_t others = count;
  while (others > 0 && is_update(graph, accesses[others - 1].op)) {
    others--;
  }
  for (uint32_t i = 0; i < others; i++) {
    model->need_bytes[accesses[i].op] += (double)tensor->bytes;
  }
  for (uint32_t i = others; i < count; i++) {
    double bytes = (double)tensor->bytes / (count - others);
    if (mr_role_is_persistent(tensor->role)) {
      add_piece(model, accesses, others, accesses[i].op, bytes);
    } else {
      uint32_t site = site_of(model, accesses[i].op);
      model->sites[site].made_bytes += bytes;
    }
  }
}

/* The ops from the last that is first to read an updated weight to the first that makes a gradient.
 */
static uint32_t count_alone(const struct mr_graph *graph, const struct mr_liveness *liveness) {
  mr_op_id last_reader = 0;
  mr_op_id first_maker = graph->op_count;
  for (uint32_t t = 0; t < graph->tensor_count; t++) {
    const struct mr_access *accesses = &liveness->accesses[liveness->first[t]];
    uint32_t count = liveness->first[t + 1] - liveness->first[t];
    bool updated = count > 1 && is_update(graph, accesses[count - 1].op);
    if (!updated || is_update(graph, accesses[0].op)) continue;
    if (graph->tensors[t].role == MR_PARAMETER && accesses[0].op > last_reader) {
      last_reader = accesses[0].op;
    } else if (graph->tensors[t].role == MR_GRADIENT && accesses[0].op < first_maker) {
      first_maker = accesses[0].op;
    }
  }
  return last_reader <= first_maker ? first_maker - last_reader + 1 : 0;
}

static struct model make_model(const struct mr_graph *graph, const struct mr_liveness *liveness,
                               bool apart) {
  size_t accesses = MOST_PIECES * (size_t)liveness->first[graph->tensor_count];
  struct model model = {.apart = apart,
                        .op_count = graph->op_count,
                        .sites = take(graph->op_count, sizeof(struct site)),
                        .need_bytes = take(graph->op_count, sizeof(double)),
                        .gaps = take(accesses, sizeof(struct gap)),
                        .versions = take(accesses, sizeof(struct version))};
  for (uint32_t t = 0; t < graph->tensor_count; t++) {
    uint32_t first = liveness->first[t];
    uint32_t count = liveness->first[t + 1] - first;
    const struct mr_access *of_tensor = &liveness->accesses[first];
    if (count > 0 && apart && is_update(graph, of_tensor[count - 1].op)) {
      add_hosted(&model, graph, &graph->tensors[t], of_tensor, count);
    } else if (count > 0) {
      add_tensor(&model, &graph->tensors[t], of_tensor, count);
    }
  }
  for (uint32_t k = 0; k < graph->op_count; k++) {
    model.need_bytes[k] += (double)graph->ops[k].scratch_bytes;
  }
  model.alone_ops = count_alone(graph, liveness);
  return model;
}

static void model_fini(struct model *model) {
  free(model->need_bytes);
  free(model->gaps);
  free(model->versions);
  free(model->sites);
}

/* What a resource takes: seconds for a byte in and a byte out, for an update on the device and on
 * the host, for a byte in because an update ran there, and seconds whatever moves. */
struct toll {
  double in, out, device, host, after_host, seconds;
};

/* Rows: room at each op; gaps that leave no more than their version goes out, and where updates run
 * on the host, than they do; versions that go out where they do not; resources. Columns: gaps, gaps
 * beside the host, versions, updates on the host, the step. */
struct lp {
  struct mr_lp_program program;
  int32_t gap_row, beside_row, version_row, toll_row;
};

/* Adds to what the column has in a row. */
static void add_entry(struct lp *lp, int32_t row, double value) {
  struct mr_lp_program *program = &lp->program;
  for (int32_t e = program->column_start[program->column_count]; e < program->entry_count; e++) {
    if (program->entry_row[e] == row) {
      program->entry_value[e] += value;
      return;
    }
  }
  program->entry_row[program->entry_count] = row;
  program->entry_value[program->entry_count++] = value;
}

static void end_column(struct lp *lp, double upper, double cost) {
  struct mr_lp_program *program = &lp->program;
  program->column_upper[program->column_count] = upper;
  program->column_cost[program->column_count++] = cost;
  program->column_start[program->column_count] = program->entry_count;
}

static struct lp make_lp(const struct model *model, const struct toll *tolls, double device_bytes) {
  size_t gaps = model->gap_count;
  size_t columns = 2 * gaps + model->version_count + model->site_count + 1;
  size_t rows = model->op_count + 2 * gaps + model->version_count + TOLLS;
  size_t entries = 3 * gaps * (model->op_count + 2 + TOLLS) + 2 * columns * TOLLS;
  struct lp lp = {.gap_row = (int32_t)model->op_count,
                  .beside_row = (int32_t)(model->op_count + gaps),
                  .version_row = (int32_t)(model->op_count + 2 * gaps),
                  .toll_row = (int32_t)(rows - TOLLS)};
  lp.program = (struct mr_lp_program){.row_count = (int32_t)rows,
                                      .column_start = take(columns + 1, sizeof(int32_t)),
                                      .entry_row = take(entries, sizeof(int32_t)),
                                      .entry_value = take(entries, sizeof(double)),
                                      .column_lower = take(columns, sizeof(double)),
                                      .column_upper = take(columns, sizeof(double)),
                                      .column_cost = take(columns, sizeof(double)),
                                      .row_lower = take(rows, sizeof(double)),
                                      .row_upper = take(rows, sizeof(double))};
  for (size_t i = 0; i < rows; i++) {
    lp.program.row_upper[i] = DBL_MAX;
  }
  for (uint32_t k = 0; k < model->op_count; k++) {
    lp.program.row_lower[k] = model->need_bytes[k] - device_bytes;
  }
  for (uint32_t v = 0; v < model->version_count; v++) {
    lp.program.row_lower[lp.version_row + (int32_t)v] = -1;
  }
  for (uint32_t i = 0; i < TOLLS; i++) {
    lp.program.row_lower[lp.toll_row + (int32_t)i] =
        tolls[i].seconds + tolls[i].device * model->site_count;
  }
  return lp;
}

static void add_room(struct lp *lp, const struct model *model, const struct gap *gap) {
  for (uint32_t k = gap->after + 1; k < gap->before; k++) {
    add_entry(lp, (int32_t)(k % model->op_count), gap->bytes);
  }
}

static void add_tolls(struct lp *lp, const struct toll *tolls, double in_bytes, double out_bytes) {
  for (uint32_t j = 0; j < TOLLS; j++) {
    double seconds = tolls[j].in * in_bytes + tolls[j].out * out_bytes;
    add_entry(lp, lp->toll_row + (int32_t)j, -seconds);
  }
}

/* A gap leaves for which its version went out, or `beside` an update on the host. */
static void add_leaving(struct lp *lp, const struct model *model, const struct toll *tolls,
                        uint32_t index, bool beside) {
  const struct gap *gap = &model->gaps[index];
  bool may = !beside || (model->versions[gap->version].site > 0 && !gap->stale);
  if (may) {
    add_room(lp, model, gap);
    add_entry(lp, (beside ? lp->beside_row : lp->gap_row) + (int32_t)index, -1);
    add_tolls(lp, tolls, gap->bytes, 0);
  }
  end_column(lp, may, 0);
}

static void add_version(struct lp *lp, const struct model *model, const struct toll *tolls,
                        uint32_t v) {
  for (uint32_t i = 0; i < model->gap_count; i++) {
    if (model->gaps[i].version == v) {
      add_entry(lp, lp->gap_row + (int32_t)i, 1);
    }
  }
  add_entry(lp, lp->version_row + (int32_t)v, -1);
  add_tolls(lp, tolls, 0, model->versions[v].written ? model->versions[v].bytes : 0);
  end_column(lp, 1, 0);
}

static void add_site(struct lp *lp, const struct model *model, const struct toll *tolls,
                     uint32_t site) {
  for (uint32_t v = 0; v < model->version_count; v++) {
    if (model->versions[v].site == site + 1) {
      add_entry(lp, lp->version_row + (int32_t)v, -1);
    }
  }
  for (uint32_t i = 0; i < model->gap_count; i++) {
    const struct gap *gap = &model->gaps[i];
    const struct version *version = &model->versions[gap->version];
    if (version->site == site + 1 && gap->stale) {
      add_room(lp, model, gap);
      add_tolls(lp, tolls, version->rests ? 0 : gap->bytes, 0);
      for (uint32_t j = 0; j < TOLLS && !version->rests; j++) {
        add_entry(lp, lp->toll_row + (int32_t)j, -tolls[j].after_host * gap->bytes);
      }
    } else if (version->site == site + 1) {
      add_entry(lp, lp->beside_row + (int32_t)i, 1);
    }
  }
  add_tolls(lp, tolls, 0, model->sites[site].made_bytes);
  for (uint32_t j = 0; j < TOLLS; j++) {
    add_entry(lp, lp->toll_row + (int32_t)j, tolls[j].device - tolls[j].host);
  }
  end_column(lp, 1, 0);
}

static void fill_lp(struct lp *lp, const struct model *model, const struct toll *tolls) {
  for (uint32_t i = 0; i < model->gap_count; i++) {
    add_leaving(lp, model, tolls, i, false);
  }
  for (uint32_t i = 0; i < model->gap_count; i++) {
    add_leaving(lp, model, tolls, i, true);
  }
  for (uint32_t v = 0; v < model->version_count; v++) {
    add_version(lp, model, tolls, v);
  }
  for (uint32_t site = 0; site < model->site_count; site++) {
    add_site(lp, model, tolls, site);
  }
  for (uint32_t j = 0; j < TOLLS; j++) {
    add_entry(lp, lp->toll_row + (int32_t)j, 1);
  }
  end_column(lp, DBL_MAX, 1);
}

/* The optimum, by the duals of the rows, all of which are of the kind "at least". */
static double solve(struct lp *lp) {
  const struct mr_lp_program *program = &lp->program;
  double *duals = take((size_t)program->row_count, sizeof *duals);
  double value = 0;
  assert_int_equal(mr_lp_library_find()->solve(program, duals), MR_OK);
  for (int32_t i = 0; i < program->row_count; i++) {
    duals[i] = fmax(duals[i], 0);
    value += duals[i] * program->row_lower[i];
  }
  for (int32_t c = 0; c + 1 < program->column_count; c++) {
    double cost = program->column_cost[c];
    for (int32_t e = program->column_start[c]; e < program->column_start[c + 1]; e++) {
      cost -= duals[program->entry_row[e]] * program->entry_value[e];
    }
    value += fmin(cost, 0);
  }
  free(duals);
  return value;
}

static void lp_fini(struct lp *lp) {
  struct mr_lp_program *program = &lp->program;
  free(program->column_start);
  free(program->entry_row);
  free(program->entry_value);
  free(program->column_lower);
  free(program->column_upper);
  free(program->column_cost);
  free(program->row_lower);
  free(program->row_upper);
}

static double optimum_of(const struct model *model, const struct toll *tolls, double device_bytes) {
  struct lp lp = make_lp(model, tolls, device_bytes);
  fill_lp(&lp, model, tolls);
  double seconds = solve(&lp);
  lp_fini(&lp);
  return seconds;
}

#define KINDS      7u
#define HOST_APART 5u
#define STAGED     6u
#define OP_SECONDS 2e-3
#define HOST_PACE  0.3 /* of the device's */

/* The tiers of a machine: NVMe alone, fast or slow beside the ops, that costs ops time or not; the
 * host alone, and one that runs updates beside the device; and NVMe whose reads the host's link
 * holds up. */
static void make_problem(struct mr_plan_problem *problem, struct toll *tolls, uint32_t kind,
                         const struct model *model) {
  double rate = kind % 2 == 0 ? 8e7 : 3e7;
  for (uint32_t l = 0; l < MR_LINK_COUNT; l++) {
    problem->link[l].bytes_per_second = l % 2 == 0 ? rate : 0.8 * rate;
  }
  bool host = kind == 4 || kind == HOST_APART;
  problem->budget_bytes[host ? MR_TIER_HOST : MR_TIER_NVME] = UINT64_MAX;
  problem->nvme_op_seconds_per_byte = kind == 1 || kind == 2 ? 1e-9 : 0;
  double loss = host ? 0 : problem->nvme_op_seconds_per_byte;
  mr_link in = host ? MR_LINK_HOST_TO_DEVICE : MR_LINK_NVME_READ;
  mr_link out = host ? MR_LINK_DEVICE_TO_HOST : MR_LINK_NVME_WRITE;
  double ops = model->op_count - model->site_count;
  tolls[0] = (struct toll){.in = loss, .out = loss, .seconds = OP_SECONDS * ops};
  tolls[1] = (struct toll){.in = 1 / problem->link[in].bytes_per_second};
  tolls[2] = (struct toll){.out = 1 / problem->link[out].bytes_per_second};
  for (uint32_t i = 3; i < TOLLS; i++) {
    tolls[i] = (struct toll){0};
  }
  if (kind == STAGED) {
    problem->nvme_staged = true;
    tolls[3].in = 1 / problem->link[MR_LINK_HOST_TO_DEVICE].bytes_per_second;
    tolls[4].out = 1 / problem->link[MR_LINK_DEVICE_TO_HOST].bytes_per_second;
  }
  if (model->apart) {
    double alone = OP_SECONDS * model->alone_ops;
    problem->host_apart = true;
    problem->host_bytes_per_second = HOST_PACE * UPDATE_BYTES / OP_SECONDS;
    tolls[0].device = OP_SECONDS;
    tolls[3].host = OP_SECONDS / HOST_PACE;
    tolls[4] = (struct toll){.host = OP_SECONDS / HOST_PACE, .seconds = alone};
    tolls[5] = (struct toll){.after_host = tolls[1].in, .seconds = alone};
  }
}

struct tally {
  double worst;
  uint32_t moving;
};

static void check_budget(const struct mr_plan_problem *problem, const struct model *model,
                         const struct toll *tolls, struct tally *tally) {
  struct mr_liveness liveness = {0};
  double seconds = 0;
  mr_status status = model->apart ? mr_host_liveness_needed(problem, &liveness)
                                  : mr_liveness_init(&liveness, problem->program);
  assert_int_equal(status, MR_OK);
  assert_int_equal(mr_dual_seconds(problem, &liveness, problem->budget_bytes, &seconds), MR_OK);
  double optimum = optimum_of(model, tolls, (double)problem->budget_bytes[MR_TIER_DEVICE]);
  print_message("%.6f of %.6f\n", seconds, optimum);
  assert_true(seconds <= optimum * (1 + 1e-7));
  assert_true(seconds >= optimum * CLOSE);
  tally->worst = fmin(tally->worst, seconds / optimum);
  tally->moving += optimum > tolls[0].seconds * (1 + 1e-6);
  mr_liveness_fini(&liveness);
}

static double most_needed(const struct model *model) {
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
    mr_tensor_id state = plan_add_tensor(graph, MR_STATE, graph->tensors[weight].bytes);
    mr_op_id second = plan_add_op(graph, (mr_tensor_id[]){weight, gradient, state, MR_NO_TENSOR},
                                  (mr_tensor_id[]){weight, state, MR_NO_TENSOR}, 0);
    graph->ops[second].flags |= MR_OP_HOST_CAPABLE;
  }
}

static void dual_is_close_to_its_optimum(void **state) {
  (void)state;
  struct tally tally = {.worst = 1};
  if (mr_lp_library_find() == NULL) {
    skip();
  }
  struct mr_graph *graph = plan_training_graph(6, 3, 40 * MR_KIB, 100 * MR_KIB);
  split_updates(graph);
  for (uint32_t k = 0; k < graph->op_count; k++) {
    graph->ops[k].memory_bytes = UPDATE_BYTES;
  }
  struct mr_liveness liveness = {0};
  assert_int_equal(mr_liveness_init(&liveness, graph), MR_OK);
  double *seconds = plan_op_seconds(graph, OP_SECONDS);
  for (uint32_t kind = 0; kind < KINDS; kind++) {
    struct model model = make_model(graph, &liveness, kind == HOST_APART);
    for (uint32_t i = 0; i < BUDGETS; i++) {
      struct mr_plan_problem problem;
      struct toll tolls[TOLLS];
      plan_problem_init(&problem, graph);
      problem.op_seconds = seconds;
      make_problem(&problem, tolls, kind, &model);
      problem.budget_bytes[MR_TIER_DEVICE] = (uint64_t)(most_needed(&model) * (0.9 - 0.17 * i));
      check_budget(&problem, &model, tolls, &tally);
    }
    model_fini(&model);
  }
  print_message(
      "%u budgets, at %u of which more than ops costs time; at worst %.4f of the optimum\n",
      KINDS * BUDGETS, tally.moving, tally.worst);
  assert_true(tally.moving >= BUDGETS);
  free(seconds);
  mr_liveness_fini(&liveness);
  mr_graph_destroy(graph);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(dual_is_close_to_its_optimum)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
