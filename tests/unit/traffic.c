/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The least traffic of a step against the optimum of the linear program that it relaxes, which is
 * written down here once more and solved by a library: never above it, and close below it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "plan/problem/lp.h"
#include "plan/traffic.h"
#include "unit/plan_programs.h"

#define CLOSE   0.99 /* of the optimum */
#define BUDGETS 5u
#define TOLLS   3u

/* A time between two accesses of a tensor, and the write that both come after. */
struct gap {
  uint32_t after, before;
  uint32_t version;
  double bytes;
};

struct version {
  double bytes;
  bool written;
};

struct model {
  uint32_t op_count;
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

static void add_gap(struct model *model, uint32_t after, uint32_t before, double bytes) {
  model->gaps[model->gap_count++] = (struct gap){after, before, model->version_count - 1, bytes};
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
      model->versions[model->version_count++] = (struct version){bytes, written};
    }
    if (tensor->role != MR_INPUT && (lasts || !wraps)) {
      uint32_t before = accesses[wraps ? 0 : i + 1].op + (wraps ? model->op_count : 0);
      add_gap(model, accesses[i].op, before, bytes);
    }
    model->need_bytes[accesses[i].op] += bytes;
  }
}

static struct model make_model(const struct mr_graph *graph, const struct mr_liveness *liveness) {
  uint32_t accesses = liveness->first[graph->tensor_count];
  struct model model = {.op_count = graph->op_count,
                        .need_bytes = take(graph->op_count, sizeof(double)),
                        .gaps = take(accesses, sizeof(struct gap)),
                        .versions = take(accesses, sizeof(struct version))};
  for (uint32_t t = 0; t < graph->tensor_count; t++) {
    uint32_t first = liveness->first[t];
    uint32_t count = liveness->first[t + 1] - first;
    if (count > 0) {
      add_tensor(&model, &graph->tensors[t], &liveness->accesses[first], count);
    }
  }
  for (uint32_t k = 0; k < graph->op_count; k++) {
    model.need_bytes[k] += (double)graph->ops[k].scratch_bytes;
  }
  return model;
}

static void model_fini(struct model *model) {
  free(model->need_bytes);
  free(model->gaps);
  free(model->versions);
}

/* What a resource takes: seconds for a byte in and a byte out, and seconds whatever moves. */
struct toll {
  double in, out, seconds;
};

/* Rows: room at each op, gaps that leave after their version went out, resources. Columns: gaps,
 * versions, the step. */
struct lp {
  struct mr_lp_program program;
  int32_t gap_row, toll_row;
};

static void add_entry(struct lp *lp, int32_t row, double value) {
  struct mr_lp_program *program = &lp->program;
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
  size_t columns = gaps + model->version_count + 1;
  size_t rows = model->op_count + gaps + TOLLS;
  size_t entries = gaps * (model->op_count + 2 + TOLLS) + columns * TOLLS;
  struct lp lp = {.gap_row = (int32_t)model->op_count,
                  .toll_row = (int32_t)(model->op_count + gaps)};
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
  for (uint32_t i = 0; i < TOLLS; i++) {
    lp.program.row_lower[lp.toll_row + (int32_t)i] = tolls[i].seconds;
  }
  return lp;
}

static void fill_lp(struct lp *lp, const struct model *model, const struct toll *tolls) {
  for (uint32_t i = 0; i < model->gap_count; i++) {
    const struct gap *gap = &model->gaps[i];
    for (uint32_t k = gap->after + 1; k < gap->before; k++) {
      add_entry(lp, (int32_t)(k % model->op_count), gap->bytes);
    }
    add_entry(lp, lp->gap_row + (int32_t)i, -1);
    for (uint32_t j = 0; j < TOLLS; j++) {
      add_entry(lp, lp->toll_row + (int32_t)j, -tolls[j].in * gap->bytes);
    }
    end_column(lp, 1, 0);
  }
  for (uint32_t v = 0; v < model->version_count; v++) {
    for (uint32_t i = 0; i < model->gap_count; i++) {
      if (model->gaps[i].version == v) {
        add_entry(lp, lp->gap_row + (int32_t)i, 1);
      }
    }
    double bytes = model->versions[v].written ? model->versions[v].bytes : 0;
    for (uint32_t j = 0; j < TOLLS; j++) {
      add_entry(lp, lp->toll_row + (int32_t)j, -tolls[j].out * bytes);
    }
    end_column(lp, 1, 0);
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

/* The tiers of a machine: NVMe alone, fast or slow beside the ops, that costs ops time or not; the
 * host alone. */
static void make_problem(struct mr_plan_problem *problem, struct toll *tolls, uint32_t kind,
                         double ops_seconds) {
  double rate = kind % 2 == 0 ? 8e7 : 3e7;
  for (uint32_t l = 0; l < MR_LINK_COUNT; l++) {
    problem->link[l].bytes_per_second = l % 2 == 0 ? rate : 0.8 * rate;
  }
  bool host = kind == 4;
  problem->budget_bytes[host ? MR_TIER_HOST : MR_TIER_NVME] = UINT64_MAX;
  problem->nvme_op_seconds_per_byte = kind == 1 || kind == 2 ? 1e-9 : 0;
  double loss = host ? 0 : problem->nvme_op_seconds_per_byte;
  mr_link in = host ? MR_LINK_HOST_TO_DEVICE : MR_LINK_NVME_READ;
  mr_link out = host ? MR_LINK_DEVICE_TO_HOST : MR_LINK_NVME_WRITE;
  tolls[0] = (struct toll){loss, loss, ops_seconds};
  tolls[1] = (struct toll){.in = 1 / problem->link[in].bytes_per_second};
  tolls[2] = (struct toll){.out = 1 / problem->link[out].bytes_per_second};
}

static double check_budget(const struct mr_plan_problem *problem, const struct model *model,
                           const struct mr_liveness *liveness, const struct toll *tolls) {
  double seconds = 0;
  assert_int_equal(mr_traffic_seconds(problem, liveness, problem->budget_bytes, &seconds), MR_OK);
  double optimum = optimum_of(model, tolls, (double)problem->budget_bytes[MR_TIER_DEVICE]);
  assert_true(seconds <= optimum * (1 + 1e-7));
  assert_true(seconds >= optimum * CLOSE);
  return seconds / optimum;
}

static void traffic_is_close_to_its_optimum(void **state) {
  (void)state;
  const double op_seconds = 2e-3;
  double worst = 1;
  uint32_t moving = 0;
  if (mr_lp_library_find() == NULL) {
    skip();
  }
  struct mr_graph *graph = plan_training_graph(6, 3, 40 * MR_KIB, 100 * MR_KIB);
  struct mr_liveness liveness = {0};
  assert_int_equal(mr_liveness_init(&liveness, graph), MR_OK);
  struct model model = make_model(graph, &liveness);
  double most = 0;
  for (uint32_t k = 0; k < graph->op_count; k++) {
    most = fmax(most, model.need_bytes[k]);
  }
  double *seconds = plan_op_seconds(graph, op_seconds);
  for (uint32_t kind = 0; kind < 5; kind++) {
    for (uint32_t i = 0; i < BUDGETS; i++) {
      struct mr_plan_problem problem;
      struct toll tolls[TOLLS];
      plan_problem_init(&problem, graph);
      problem.op_seconds = seconds;
      make_problem(&problem, tolls, kind, op_seconds * graph->op_count);
      problem.budget_bytes[MR_TIER_DEVICE] = (uint64_t)(most * (0.9 - 0.17 * i));
      worst = fmin(worst, check_budget(&problem, &model, &liveness, tolls));
      double optimum = optimum_of(&model, tolls, (double)problem.budget_bytes[MR_TIER_DEVICE]);
      moving += optimum > op_seconds * graph->op_count * (1 + 1e-6);
    }
  }
  print_message("%u budgets, at %u of which moves cost time; at worst %.4f of the optimum\n",
                5 * BUDGETS, moving, worst);
  assert_true(moving >= BUDGETS);
  free(seconds);
  model_fini(&model);
  mr_liveness_fini(&liveness);
  mr_graph_destroy(graph);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(traffic_is_close_to_its_optimum)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
