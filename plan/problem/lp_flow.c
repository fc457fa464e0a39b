/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The linear program of the LP bound: bytes flow along the intervals from place to place. Columns
 * are what rests in a place at a point, what a link moves in an interval, how long the interval is,
 * and how much of alike tensors is sent away or recomputed. Rows balance each place in each
 * interval and limit links, compute, the device and the host. Bytes are counted in seconds of the
 * fastest link, so that the numbers are of one size.
 */
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "plan/problem/lp.h"

/* Tensors whose bytes cost the same to make again, but for this part, are alike. */
#define SAME_PRICE 0.01

enum place {
  LEAVING,  /* on the device, to go out */
  GRADIENT, /* the same, not to come back */
  HOST,
  SENT, /* out, to be written */
  WRITTEN,
  READ,
  ARRIVED, /* on the device again */
  DROPPED, /* clean bytes that are on the host alone */
  FETCHED, /* clean bytes that came in */
  WEIGHT,  /* weights that came in */
  KEPT,
  PLACE_COUNT,
  NOWHERE = PLACE_COUNT
};

/* Kinds of rows: a balance for each place, then the limits. */
enum {
  ROW_LINK = PLACE_COUNT,
  ROW_COMPUTE = ROW_LINK + MR_PROBLEM_LINK_COUNT,
  ROW_DEVICE,
  ROW_HOST,
  ROW_KINDS
};

static const bool is_on_device[PLACE_COUNT] = {
    [LEAVING] = true, [GRADIENT] = true, [ARRIVED] = true,
    [FETCHED] = true, [WEIGHT] = true,   [KEPT] = true};

static const struct way {
  enum place from;
  enum place to;
  enum mr_problem_link link;
} flow_ways[] = {
    {LEAVING, HOST, MR_PROBLEM_OUT},     {LEAVING, SENT, MR_PROBLEM_OUT},
    {GRADIENT, NOWHERE, MR_PROBLEM_OUT}, {SENT, WRITTEN, MR_PROBLEM_WRITE},
    {WRITTEN, READ, MR_PROBLEM_READ},    {HOST, ARRIVED, MR_PROBLEM_IN},
    {READ, ARRIVED, MR_PROBLEM_IN},      {DROPPED, FETCHED, MR_PROBLEM_IN},
    {NOWHERE, WEIGHT, MR_PROBLEM_IN},
};

/* A tensor with a choice, as the line sees it. */
struct piece {
  int32_t born;   /* the first point at which it is alive */
  int32_t needed; /* the point before which it must be there */
  int32_t again;  /* the interval in which it can be made again; -1: it cannot be */
  bool clean;
  double amount;
  double seconds; /* of recompute */
};

struct flow {
  const struct mr_lp_line *line;
  struct mr_lp_program program;
  struct piece *pieces;
  int32_t piece_count;
  double unit_bytes;
  bool used[PLACE_COUNT + 1];
  int32_t *row_of; /* by kind and interval; -1: there is none yet */
};

static double price_of(const struct piece *piece) {
  return piece->again < 0 ? INFINITY : piece->seconds / piece->amount;
}

static int compare_alive(const struct piece *a, const struct piece *b) {
  if (a->born != b->born) {
    return a->born < b->born ? -1 : 1;
  }
  if (a->needed != b->needed) {
    return a->needed < b->needed ? -1 : 1;
  }
  return (a->clean ? 1 : 0) - (b->clean ? 1 : 0);
}

static int compare_pieces(const void *left, const void *right) {
  const struct piece *a = left;
  const struct piece *b = right;
  int alive = compare_alive(a, b);
  if (alive != 0) {
    return alive;
  }
  if (a->again != b->again) {
    return a->again < b->again ? -1 : 1;
  }
  double x = price_of(a);
  double y = price_of(b);
  if (x != y) {
    return x < y ? -1 : 1;
  }
  return (a->amount > b->amount) - (a->amount < b->amount); /* sums have one order */
}

/* Those that are alive at no point are kept for nothing. */
static void collect_pieces(struct flow *flow) {
  const struct mr_lp_line *line = flow->line;
  const struct mr_problem *problem = line->problem;
  for (int32_t v = 0; v < problem->tensor_count; v++) {
    const struct mr_problem_tensor *t = &problem->tensors[v];
    if (mr_problem_tensor_is_fixed(t) || t->bytes <= 0 ||
        line->first_point[t->p + 1] == line->first_point[t->g]) {
      continue;
    }
    bool again = t->g < problem->segment_count && t->recompute_seconds < MR_PROBLEM_NO_RECOMPUTE;
    flow->pieces[flow->piece_count++] =
        (struct piece){line->first_point[t->p + 1],       line->first_point[t->g],
                       again ? line->interval[t->g] : -1, t->clean,
                       t->bytes / flow->unit_bytes,       t->recompute_seconds};
  }
  qsort(flow->pieces, (size_t)flow->piece_count, sizeof *flow->pieces, compare_pieces);
}

static void choose_places(struct flow *flow) {
  const struct mr_problem *problem = flow->line->problem;
  double ordinary = 0;
  for (int32_t i = 0; i < flow->piece_count; i++) {
    flow->used[DROPPED] = flow->used[DROPPED] || flow->pieces[i].clean;
    ordinary += flow->pieces[i].clean ? 0 : flow->pieces[i].amount;
  }
  for (int32_t v = 0; v < problem->tensor_count; v++) {
    const struct mr_problem_tensor *t = &problem->tensors[v];
    flow->used[GRADIENT] = flow->used[GRADIENT] || t->end;
    flow->used[WEIGHT] = flow->used[WEIGHT] || (t->start && !t->end);
  }
  flow->used[FETCHED] = flow->used[DROPPED];
  flow->used[LEAVING] = flow->used[HOST] = flow->used[ARRIVED] = ordinary > 0;
  /* Where the host can hold everything, NVMe gains nothing. */
  bool nvme = ordinary > problem->host_bytes / flow->unit_bytes;
  flow->used[SENT] = flow->used[WRITTEN] = flow->used[READ] = nvme;
  flow->used[KEPT] = flow->piece_count > 0;
  flow->used[NOWHERE] = true;
}

static void limit_row(struct flow *flow, int kind, int32_t j, int32_t row) {
  const struct mr_problem *problem = flow->line->problem;
  double lower = 0;
  double upper = kind < PLACE_COUNT ? 0 : DBL_MAX;
  if (kind == ROW_COMPUTE) {
    lower = flow->line->work_seconds[j];
  } else if (kind == ROW_DEVICE) {
    lower = -DBL_MAX;
    upper = mr_problem_limit(problem->device_bytes);
    upper = (upper - problem->workset_bytes[flow->line->segment[j]]) / flow->unit_bytes;
  } else if (kind == ROW_HOST) {
    lower = -DBL_MAX;
    upper = mr_problem_limit(problem->host_bytes) / flow->unit_bytes;
  }
  flow->program.row_lower[row] = lower;
  flow->program.row_upper[row] = upper;
}

static int32_t *row_slot(struct flow *flow, int kind, int32_t j) {
  return &flow->row_of[(int64_t)kind * (flow->line->point_count + 1) + j];
}

static int32_t row(struct flow *flow, int kind, int32_t j) {
  int32_t *slot = row_slot(flow, kind, j);
  if (*slot < 0) {
    *slot = flow->program.row_count++;
    limit_row(flow, kind, j, *slot);
  }
  return *slot;
}

static void begin_column(struct flow *flow, double lower, double upper, double cost) {
  struct mr_lp_program *program = &flow->program;
  program->column_lower[program->column_count] = lower;
  program->column_upper[program->column_count] = upper;
  program->column_cost[program->column_count] = cost;
  program->column_start[program->column_count++] = program->entry_count;
}

static void add_entry(struct flow *flow, int32_t row, double value) {
  flow->program.entry_row[flow->program.entry_count] = row;
  flow->program.entry_value[flow->program.entry_count++] = value;
}

/* Bytes that a place gains (or loses) in an interval whatever is decided. */
static void add_supply(struct flow *flow, enum place place, int32_t j, double amount) {
  int32_t balance = row(flow, (int)place, j);
  flow->program.row_lower[balance] -= amount;
  flow->program.row_upper[balance] -= amount;
}

static void add_fixed_tensors(struct flow *flow) {
  const struct mr_lp_line *line = flow->line;
  for (int32_t v = 0; v < line->problem->tensor_count; v++) {
    const struct mr_problem_tensor *t = &line->problem->tensors[v];
    if (t->end) {
      add_supply(flow, GRADIENT, line->first_point[t->p + 1], t->bytes / flow->unit_bytes);
    } else if (t->start) {
      add_supply(flow, WEIGHT, line->first_point[t->g], -t->bytes / flow->unit_bytes);
    }
  }
}

/* A column for what of alike tensors is not kept. */
static void begin_choice(struct flow *flow, const struct piece *piece, double amount,
                         int32_t together_row) {
  begin_column(flow, 0, amount, 0);
  add_entry(flow, row(flow, KEPT, piece->born), -1);
  add_entry(flow, row(flow, KEPT, piece->needed), 1);
  if (together_row >= 0) {
    add_entry(flow, together_row, 1);
  }
}

/* Columns for the bytes of pieces [begin, end) that are made again: one for each price. */
static void add_recompute(struct flow *flow, int32_t begin, int32_t end, int32_t together_row) {
  int32_t next = begin;
  for (int32_t first = begin; first < end; first = next) {
    const struct piece *piece = &flow->pieces[first];
    double most_price = price_of(piece) * (1 + SAME_PRICE);
    double amount = 0;
    double seconds = 0;
    for (next = first; next < end && flow->pieces[next].again == piece->again &&
                       price_of(&flow->pieces[next]) <= most_price;
         next++) {
      amount += flow->pieces[next].amount;
      seconds += flow->pieces[next].seconds;
    }
    if (piece->again >= 0) {
      begin_choice(flow, piece, amount, together_row);
      add_entry(flow, row(flow, ROW_COMPUTE, piece->again), -seconds / amount);
    }
  }
}

/* Pieces [begin, end) are alive at the same points: of their bytes some are sent away, some made
 * again, the rest kept. */
static void add_group(struct flow *flow, int32_t begin, int32_t end) {
  const struct piece *piece = &flow->pieces[begin];
  double amount = 0;
  for (int32_t i = begin; i < end; i++) {
    amount += flow->pieces[i].amount;
  }
  add_supply(flow, KEPT, piece->born, amount);
  add_supply(flow, KEPT, piece->needed, -amount);
  int32_t together_row = -1;
  if (flow->pieces[end - 1].again >= 0) {
    together_row = flow->program.row_count++;
    flow->program.row_lower[together_row] = -DBL_MAX;
    flow->program.row_upper[together_row] = amount;
  }
  begin_choice(flow, piece, amount, together_row);
  add_entry(flow, row(flow, piece->clean ? DROPPED : LEAVING, piece->born), 1);
  add_entry(flow, row(flow, piece->clean ? FETCHED : ARRIVED, piece->needed), -1);
  add_recompute(flow, begin, end, together_row);
}

static void add_groups(struct flow *flow) {
  int32_t end = 0;
  for (int32_t begin = 0; begin < flow->piece_count; begin = end) {
    for (end = begin + 1;
         end < flow->piece_count && compare_alive(&flow->pieces[begin], &flow->pieces[end]) == 0;) {
      end++;
    }
    add_group(flow, begin, end);
  }
}

static void add_moves(struct flow *flow, int32_t j) {
  for (size_t i = 0; i < MR_COUNT_OF(flow_ways); i++) {
    const struct way *way = &flow_ways[i];
    if (!flow->used[way->from] || !flow->used[way->to]) {
      continue;
    }
    begin_column(flow, 0, DBL_MAX, 0);
    if (way->from != NOWHERE) {
      add_entry(flow, row(flow, (int)way->from, j), -1);
    }
    if (way->to != NOWHERE) {
      add_entry(flow, row(flow, (int)way->to, j), 1);
    }
    add_entry(flow, row(flow, ROW_LINK + (int)way->link, j), -1);
  }
}

/* What rests in each place at a point: from the interval before it to the one after. */
static void add_stocks(struct flow *flow, int32_t j) {
  for (int place = 0; place < PLACE_COUNT; place++) {
    if (!flow->used[place]) {
      continue;
    }
    begin_column(flow, 0, DBL_MAX, 0);
    add_entry(flow, row(flow, place, j), -1);
    add_entry(flow, row(flow, place, j + 1), 1);
    if (is_on_device[place]) {
      add_entry(flow, row(flow, ROW_DEVICE, j), 1);
    } else if (place == HOST && flow->used[SENT]) {
      add_entry(flow, row(flow, ROW_HOST, j), 1);
    }
  }
}

/* After all columns that would use the interval's seconds. */
static void add_duration(struct flow *flow, int32_t j) {
  const double *rate = flow->line->problem->link_bytes_per_second;
  begin_column(flow, flow->line->work_seconds[j], DBL_MAX, 1);
  for (int kind = ROW_LINK; kind <= ROW_COMPUTE; kind++) {
    int32_t limit = *row_slot(flow, kind, j);
    if (limit >= 0) {
      add_entry(flow, limit, kind == ROW_COMPUTE ? 1 : rate[kind - ROW_LINK] / flow->unit_bytes);
    }
  }
}

static void build(struct flow *flow) {
  int32_t point_count = flow->line->point_count;
  for (int64_t i = 0; i < (int64_t)ROW_KINDS * (point_count + 1); i++) {
    flow->row_of[i] = -1;
  }
  collect_pieces(flow);
  choose_places(flow);
  add_fixed_tensors(flow);
  add_groups(flow);
  for (int32_t j = 0; j <= point_count; j++) {
    add_moves(flow, j);
  }
  for (int32_t j = 0; j < point_count; j++) {
    add_stocks(flow, j);
  }
  for (int32_t j = 0; j <= point_count; j++) {
    add_duration(flow, j);
  }
  flow->program.column_start[flow->program.column_count] = flow->program.entry_count;
}

/* The price of a unit of what a row limits; `sign` is that of a dual value that means one. */
static double read_price(struct flow *flow, int kind, int32_t j, const double *duals) {
  int32_t limit = *row_slot(flow, kind, j);
  double sign = kind == ROW_DEVICE || kind == ROW_HOST ? -1 : 1;
  double dual = limit < 0 ? 0 : sign * duals[limit];
  return dual > 0 && dual < INFINITY ? dual / flow->unit_bytes : 0;
}

static void read_prices(struct flow *flow, const double *duals, struct mr_lp_prices *prices) {
  for (int32_t j = 0; j <= flow->line->point_count; j++) {
    for (int link = 0; link < MR_PROBLEM_LINK_COUNT; link++) {
      prices->link[link][j] = read_price(flow, ROW_LINK + link, j, duals);
    }
    if (j < flow->line->point_count) {
      prices->device[j] = read_price(flow, ROW_DEVICE, j, duals);
      prices->host[j] = read_price(flow, ROW_HOST, j, duals);
    }
  }
}

static void fini(struct flow *flow) {
  free(flow->program.column_start);
  free(flow->program.entry_row);
  free(flow->program.entry_value);
  free(flow->program.column_lower);
  free(flow->program.column_upper);
  free(flow->program.column_cost);
  free(flow->program.row_lower);
  free(flow->program.row_upper);
  free(flow->pieces);
  free(flow->row_of);
}

/* Memory for the largest program that the line can give: a tensor has at most two columns, of five
 * and four entries, and a row. */
static mr_status init(struct flow *flow, const struct mr_lp_line *line) {
  uint64_t tensors = (uint64_t)line->problem->tensor_count;
  uint64_t intervals = (uint64_t)line->point_count + 1;
  uint64_t columns = 2 * tensors + intervals * (MR_COUNT_OF(flow_ways) + PLACE_COUNT + 1);
  uint64_t rows = tensors + intervals * ROW_KINDS;
  uint64_t interval_entries =
      3 * (MR_COUNT_OF(flow_ways) + (uint64_t)PLACE_COUNT) + MR_PROBLEM_LINK_COUNT + 1;
  uint64_t entries = 9 * tensors + intervals * interval_entries;
  struct mr_lp_program *program = &flow->program;
  *flow = (struct flow){.line = line};
  for (int link = 0; link < MR_PROBLEM_LINK_COUNT; link++) {
    flow->unit_bytes = fmax(flow->unit_bytes, line->problem->link_bytes_per_second[link]);
  }
  program->column_start = mr_allocate(columns + 1, sizeof *program->column_start);
  program->column_lower = mr_allocate(columns, sizeof *program->column_lower);
  program->column_upper = mr_allocate(columns, sizeof *program->column_upper);
  program->column_cost = mr_allocate(columns, sizeof *program->column_cost);
  program->row_lower = mr_allocate(rows, sizeof *program->row_lower);
  program->row_upper = mr_allocate(rows, sizeof *program->row_upper);
  program->entry_row = mr_allocate(entries, sizeof *program->entry_row);
  program->entry_value = mr_allocate(entries, sizeof *program->entry_value);
  flow->pieces = mr_allocate(tensors, sizeof *flow->pieces);
  flow->row_of = mr_allocate(ROW_KINDS * intervals, sizeof *flow->row_of);
  if (program->column_start == NULL || program->column_lower == NULL ||
      program->column_upper == NULL || program->column_cost == NULL || program->row_lower == NULL ||
      program->row_upper == NULL || program->entry_row == NULL || program->entry_value == NULL ||
      flow->pieces == NULL || flow->row_of == NULL) {
    fini(flow);
    return MR_NO_MEMORY;
  }
  return MR_OK;
}

mr_status mr_lp_flow_solve(const struct mr_lp_line *line, const struct mr_lp_library *library,
                           struct mr_lp_prices *prices) {
  struct flow flow;
  mr_status status = init(&flow, line);
  if (status != MR_OK) {
    return status;
  }
  build(&flow);
  /* Where there is nothing to decide there are no rows, which GLPK does not take, and no prices. */
  double *duals = mr_allocate((uint64_t)flow.program.row_count, sizeof *duals);
  status = duals == NULL ? MR_NO_MEMORY : MR_OK;
  if (status == MR_OK && flow.program.row_count > 0) {
    status = library->solve(&flow.program, duals);
  }
  if (status == MR_OK) {
    read_prices(&flow, duals, prices);
  }
  free(duals);
  fini(&flow);
  return status;
}

mr_status mr_lp_flow_count(const struct mr_lp_line *line, int32_t *count_out) {
  struct flow flow;
  mr_status status = init(&flow, line);
  if (status != MR_OK) {
    return status;
  }
  collect_pieces(&flow);
  *count_out = flow.piece_count > 0;
  for (int32_t i = 1; i < flow.piece_count; i++) {
    *count_out += compare_alive(&flow.pieces[i - 1], &flow.pieces[i]) != 0;
  }
  fini(&flow);
  return MR_OK;
}
