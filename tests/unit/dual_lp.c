/* SPDX-License-Identifier: Apache-2.0 */
/* See dual_lp.h: rows and columns, and the optimum by their duals. */
#include "unit/dual_lp.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "plan/problem/lp.h"

static bool is_quiet(const struct dual_model *model, uint32_t window) {
  MR_ASSERT(model->window_count > 0);
  uint32_t op = model->window_start[window % model->window_count];
  return model->apart && model->quiet_from <= op && op <= model->barrier;
}

uint32_t dual_window_of(const struct dual_model *model, uint32_t op) {
  uint32_t w = 0;
  while (model->window_start[w + 1] <= op) {
    w++;
  }
  return w;
}

/* Rows: room at each op, resources in each window, then what columns share as they come. */
struct lp {
  struct mr_lp_program program;
  const struct dual_model *model;
  const struct dual_toll *tolls;
};

#define MOST_ROWS    40000u
#define MOST_COLUMNS 200000u
#define MOST_ENTRIES 10000000u

static int32_t add_row(struct lp *lp, double lower) {
  struct mr_lp_program *program = &lp->program;
  MR_ASSERT(program->row_count < (int32_t)MOST_ROWS);
  program->row_lower[program->row_count] = lower;
  program->row_upper[program->row_count] = DBL_MAX;
  return program->row_count++;
}

/* Adds to what the column has in a row. */
static void add_entry(struct lp *lp, int32_t row, double value) {
  struct mr_lp_program *program = &lp->program;
  for (int32_t e = program->column_start[program->column_count]; e < program->entry_count; e++) {
    if (program->entry_row[e] == row) {
      program->entry_value[e] += value;
      return;
    }
  }
  MR_ASSERT(program->entry_count < (int32_t)MOST_ENTRIES);
  program->entry_row[program->entry_count] = row;
  program->entry_value[program->entry_count++] = value;
}

static void end_column(struct lp *lp, double upper, double cost) {
  struct mr_lp_program *program = &lp->program;
  MR_ASSERT(program->column_count + 1 < (int32_t)MOST_COLUMNS);
  program->column_upper[program->column_count] = upper;
  program->column_cost[program->column_count++] = cost;
  program->column_start[program->column_count] = program->entry_count;
}

static int32_t toll_row(const struct lp *lp, uint32_t toll, uint32_t window) {
  uint32_t w = window % lp->model->window_count;
  return (int32_t)(lp->model->op_count + w * DUAL_TOLLS + toll);
}

static struct lp make_lp(const struct dual_model *model, const struct dual_toll *tolls,
                         double device_bytes) {
  struct lp lp = {.model = model, .tolls = tolls};
  lp.program = (struct mr_lp_program){.column_start = dual_take(MOST_COLUMNS, sizeof(int32_t)),
                                      .entry_row = dual_take(MOST_ENTRIES, sizeof(int32_t)),
                                      .entry_value = dual_take(MOST_ENTRIES, sizeof(double)),
                                      .column_lower = dual_take(MOST_COLUMNS, sizeof(double)),
                                      .column_upper = dual_take(MOST_COLUMNS, sizeof(double)),
                                      .column_cost = dual_take(MOST_COLUMNS, sizeof(double)),
                                      .row_lower = dual_take(MOST_ROWS, sizeof(double)),
                                      .row_upper = dual_take(MOST_ROWS, sizeof(double))};
  for (uint32_t k = 0; k < model->op_count; k++) {
    (void)add_row(&lp, model->need_bytes[k] - device_bytes);
  }
  for (uint32_t w = 0; w < model->window_count; w++) {
    uint32_t ops = model->window_start[w + 1] - model->window_start[w];
    for (uint32_t i = 0; i < model->site_count; i++) {
      ops -= dual_window_of(model, model->sites[i].op) == w ? 1 : 0;
    }
    for (uint32_t i = 0; i < DUAL_TOLLS; i++) {
      (void)add_row(&lp, 0);
    }
    for (uint32_t i = 0; i < DUAL_TOLLS; i++) {
      lp.program.row_lower[toll_row(&lp, i, w)] += tolls[i].op * ops;
    }
  }
  return lp;
}

static void add_room(struct lp *lp, double bytes, uint32_t from, uint32_t to) {
  for (uint32_t k = from; k < to; k++) {
    add_entry(lp, (int32_t)(k % lp->model->op_count), bytes);
  }
}

/* So much of each in a window. */
static void add_use(struct lp *lp, uint32_t window, const struct dual_toll *amount) {
  for (uint32_t j = 0; j < DUAL_TOLLS; j++) {
    const struct dual_toll *toll = &lp->tolls[j];
    double seconds = toll->in * amount->in + toll->out * amount->out +
                     toll->device * amount->device + toll->host * amount->host +
                     toll->handed * amount->handed + toll->after_host * amount->after_host;
    add_entry(lp, toll_row(lp, j, window), -seconds);
  }
}

/* The same in any window of the step, but quiet ones where it `waits`; the row has how much. */
static void add_anywhere(struct lp *lp, const struct dual_toll *amount, bool waits, int32_t row) {
  for (uint32_t w = 0; w < lp->model->window_count; w++) {
    if (waits && is_quiet(lp->model, w)) continue;
    add_use(lp, w, amount);
    add_entry(lp, row, 1);
    end_column(lp, DBL_MAX, 0);
  }
}

/* A gap leaves no sooner than in a window, or `at_once`, and comes back in any then, no more than
 * the row has. */
static void add_returns(struct lp *lp, const struct dual_gap *gap, uint32_t out_window,
                        bool at_once, int32_t row) {
  const struct dual_model *model = lp->model;
  uint32_t begin = gap->after + 1;
  uint32_t gone = model->window_start[out_window] + 1;
  if (begin >= gap->before) {
    return;
  }
  uint32_t from = dual_window_of(model, begin);
  from = at_once || from > out_window ? from : out_window;
  begin = at_once || begin > gone ? begin : gone;
  for (uint32_t v = from; v <= dual_window_of(model, gap->before - 1); v++) {
    uint32_t end = model->window_start[v + 1];
    add_room(lp, gap->bytes, begin, end < gap->before ? end : gap->before);
    add_use(lp, v, &(struct dual_toll){.in = gap->bytes});
    add_entry(lp, row, -1);
    end_column(lp, DBL_MAX, 0);
  }
}

/* What was made for an update goes out in a window: up to then the gap takes room. */
static void add_made_out(struct lp *lp, const struct dual_gap *gap, uint32_t window) {
  const struct dual_model *model = lp->model;
  uint32_t begin = gap->after + 1;
  uint32_t gone = model->window_start[window] + 1;
  add_room(lp, -gap->bytes, begin, gone < gap->before ? gone : gap->before);
}

/* A version that goes out in a window, or was never written: each of its gaps leaves no more. */
static void add_out(struct lp *lp, uint32_t v, int32_t whole, uint32_t window, int32_t *left) {
  const struct dual_model *model = lp->model;
  const struct dual_version *version = &model->versions[v];
  add_entry(lp, whole, -1);
  add_use(lp, window, &(struct dual_toll){.out = version->written ? version->bytes : 0});
  for (uint32_t i = 0; i < model->gap_count; i++) {
    if (model->gaps[i].version == v) {
      left[i] = add_row(lp, 0);
      add_entry(lp, left[i], 1);
    }
    if (model->gaps[i].version == v && version->made) {
      add_made_out(lp, &model->gaps[i], window);
    }
  }
  end_column(lp, 1, 0);
}

/* A version that updates have nothing to do with. */
static void add_version(struct lp *lp, uint32_t v, int32_t *left) {
  const struct dual_model *model = lp->model;
  const struct dual_version *version = &model->versions[v];
  int32_t whole = add_row(lp, -1);
  uint32_t first = version->written ? dual_window_of(model, version->write_op) : 0;
  uint32_t last = version->written ? 2 * model->window_count - 1 : 0;
  for (uint32_t u = first; u <= last; u++) {
    add_out(lp, v, whole, u, left);
    for (uint32_t i = 0; i < model->gap_count; i++) {
      if (model->gaps[i].version == v) {
        add_returns(lp, &model->gaps[i], u, !version->written, left[i]);
      }
    }
  }
}

/* What rests for an update comes back in any window; where that is quiet and before the barrier, it
 * takes room beside it. */
static void add_rest_returns(struct lp *lp, const struct dual_gap *gap, int32_t row) {
  const struct dual_model *model = lp->model;
  for (uint32_t w = 0; w < model->window_count; w++) {
    add_room(lp, gap->bytes, gap->after + 1, gap->before);
    if (is_quiet(model, w) && model->window_start[w + 1] <= model->barrier) {
      add_room(lp, -gap->bytes, model->barrier, model->barrier + 1);
    }
    add_use(lp, w, &(struct dual_toll){.in = gap->bytes});
    add_entry(lp, row, -1);
    end_column(lp, DBL_MAX, 0);
  }
}

/* What an update wrote on the host comes in. */
static void add_stale_returns(struct lp *lp, const struct dual_gap *gap, int32_t row) {
  const struct dual_model *model = lp->model;
  uint32_t begin = gap->after + 1;
  for (uint32_t v = dual_window_of(model, begin); v <= dual_window_of(model, gap->before - 1);
       v++) {
    uint32_t end = model->window_start[v + 1];
    if (is_quiet(model, v)) continue;
    add_room(lp, gap->bytes, begin, end < gap->before ? end : gap->before);
    add_use(lp, v, &(struct dual_toll){.in = gap->bytes, .after_host = gap->bytes});
    add_entry(lp, row, 1);
    end_column(lp, DBL_MAX, 0);
  }
}

/* What hangs on where an update runs: its bytes go out in any window, and its gaps leave whenever
 * that was. */
static void add_hosted_version(struct lp *lp, uint32_t v, int32_t whole, int32_t *left,
                               int32_t *hosted) {
  const struct dual_model *model = lp->model;
  const struct dual_version *version = &model->versions[v];
  uint32_t first = version->made ? dual_window_of(model, version->write_op) : 0;
  for (uint32_t w = first; w < first + model->window_count; w++) {
    add_out(lp, v, whole, w, left);
    for (uint32_t i = 0; i < model->gap_count; i++) {
      const struct dual_gap *gap = &model->gaps[i];
      if (gap->version == v && version->rests) {
        add_rest_returns(lp, gap, left[i]);
      } else if (gap->version == v) {
        add_returns(lp, gap, 0, true, left[i]);
      }
    }
  }
  for (uint32_t i = 0; i < model->gap_count; i++) {
    const struct dual_gap *gap = &model->gaps[i];
    if (gap->version != v || (gap->stale && version->rests && !version->made)) continue;
    hosted[i] = add_row(lp, 0);
    for (uint32_t w = first; w < first + model->window_count && version->made; w++) {
      add_made_out(lp, gap, w);
      add_use(lp, w, &(struct dual_toll){.out = gap->bytes});
      add_entry(lp, hosted[i], 1);
      end_column(lp, DBL_MAX, 0);
    }
    if (version->made) continue;
    if (gap->stale) {
      add_stale_returns(lp, gap, hosted[i]);
    } else {
      add_returns(lp, gap, 0, true, hosted[i]);
    }
  }
}

/* An update, and what it alone writes. */
static void add_site(struct lp *lp, uint32_t site, int32_t *left, int32_t *hosted) {
  const struct dual_model *model = lp->model;
  int32_t *whole = dual_take(model->version_count, sizeof *whole);
  int32_t here = add_row(lp, 1);
  int32_t there = add_row(lp, 0);
  int32_t handed = add_row(lp, 0);
  int32_t made = add_row(lp, 0);
  int32_t anew = add_row(lp, 0);
  double anew_bytes = model->sites[site].anew_bytes;
  for (uint32_t v = 0; v < model->version_count; v++) {
    if (model->versions[v].site == site + 1) {
      whole[v] = add_row(lp, -1);
      add_hosted_version(lp, v, whole[v], left, hosted);
    }
  }
  add_anywhere(lp, &(struct dual_toll){.device = 1}, true, here);
  add_anywhere(lp, &(struct dual_toll){.host = 1}, true, there);
  add_anywhere(lp, &(struct dual_toll){.handed = 1}, true, handed);
  add_anywhere(lp, &(struct dual_toll){.out = model->sites[site].made_bytes}, false, made);
  add_anywhere(lp, &(struct dual_toll){.in = anew_bytes, .after_host = anew_bytes}, true, anew);
  if (model->sites[site].stays) {
    free(whole);
    return;
  }
  add_entry(lp, here, 1);
  add_entry(lp, there, -1);
  add_entry(lp, handed, -1);
  add_entry(lp, made, -1);
  add_entry(lp, anew, -1);
  for (uint32_t v = 0; v < model->version_count; v++) {
    if (model->versions[v].site == site + 1) {
      add_entry(lp, whole[v], -1);
    }
  }
  for (uint32_t i = 0; i < model->gap_count; i++) {
    const struct dual_gap *gap = &model->gaps[i];
    const struct dual_version *version = &model->versions[gap->version];
    if (version->site != site + 1) continue;
    if (gap->stale && version->rests) {
      add_room(lp, gap->bytes, gap->after + 1, gap->before);
    }
    if (!version->rests || version->made) {
      add_entry(lp, hosted[i], gap->stale ? -1 : 1);
    }
  }
  end_column(lp, 1, 0);
  free(whole);
}

static void fill_lp(struct lp *lp) {
  const struct dual_model *model = lp->model;
  int32_t *left = dual_take(model->gap_count, sizeof *left);
  int32_t *hosted = dual_take(model->gap_count, sizeof *hosted);
  for (uint32_t v = 0; v < model->version_count; v++) {
    if (model->versions[v].site == 0) {
      add_version(lp, v, left);
    }
  }
  for (uint32_t site = 0; site < model->site_count; site++) {
    add_site(lp, site, left, hosted);
  }
  for (uint32_t w = 0; w < model->window_count; w++) {
    for (uint32_t j = 0; j < DUAL_TOLLS; j++) {
      add_entry(lp, toll_row(lp, j, w), 1);
    }
    end_column(lp, DBL_MAX, 1);
  }
  free(left);
  free(hosted);
}

/* The optimum, by the duals of the rows, all of which are of the kind "at least". */
static double solve(struct lp *lp) {
  const struct mr_lp_program *program = &lp->program;
  double *duals = dual_take((size_t)program->row_count, sizeof *duals);
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

/* Solvers take 1e-7 for nothing, in each column. */
#define SCALE 1e4

static struct dual_toll scale(const struct dual_toll *toll) {
  return (struct dual_toll){.in = SCALE * toll->in,
                            .out = SCALE * toll->out,
                            .device = SCALE * toll->device,
                            .host = SCALE * toll->host,
                            .handed = SCALE * toll->handed,
                            .after_host = SCALE * toll->after_host,
                            .op = SCALE * toll->op};
}

double dual_lp_optimum(const struct dual_model *model, const struct dual_toll *tolls,
                       double device_bytes) {
  struct dual_toll scaled[DUAL_TOLLS];
  for (uint32_t i = 0; i < DUAL_TOLLS; i++) {
    scaled[i] = scale(&tolls[i]);
  }
  struct lp lp = make_lp(model, scaled, device_bytes);
  fill_lp(&lp);
  double scaled_seconds = solve(&lp);
  lp_fini(&lp);
  return scaled_seconds / SCALE;
}
