/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of bench pressure: which there are, how each is run, and its figures. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "tools/bench.h"
#include "tools/options.h"
#include "tools/pressure.h"

#define BUDGET_UNIT 4096u
#define DISTURBED   0.02 /* a share of the processors that shows in the figures */
/* Ratios to a bound are told with three digits; a run without budgets may be what its bound was
 * made from, and its ratio 1 but for rounding. */
#define BELOW_BOUND 0.9995

const char *const pressure_kind_titles[PRESSURE_KIND_COUNT] = {"memrun", "no recompute",
                                                               "no offload", "no search", "LRU"};
const char *const pressure_kind_names[PRESSURE_KIND_COUNT] = {"memrun", "no_recompute",
                                                              "no_offload", "no_search", "lru"};

/* Set for each row, or of no use to it. */
static const char *const own_options[] = {"host-mem", "offload", "recompute", "policy",
                                          "replan",   "steps",   "json",      "reprofile",
                                          "verbose",  "profile", NULL};

static bool is_listed(const char *name, const char *const *list) {
  for (uint32_t i = 0; list[i] != NULL; i++) {
    if (strcmp(list[i], name) == 0) {
      return true;
    }
  }
  return false;
}

mr_status pressure_options_check(const struct cli *cli) {
  bool budget = options_given(cli, "device-mem");
  if (!budget && !options_given(cli, "trace")) {
    return MR_OK;
  }
  mr_log(MR_LOG_ERROR, "--%s is no option of bench pressure, which %s",
         budget ? "device-mem" : "trace",
         budget ? "sets budgets itself: --budgets LIST" : "keeps nothing of its runs");
  return MR_INVALID;
}

struct mr_options pressure_run_options(const struct pressure *pressure, enum pressure_kind kind,
                                       uint64_t device_bytes) {
  struct mr_options run = pressure->cli->train.run;
  run.device_bytes = device_bytes;
  bool nvme =
      run.offload == MR_OFFLOAD_NVME || (run.offload == MR_OFFLOAD_AUTO && run.nvme_count > 0);
  if (nvme && !options_given(pressure->cli, "host-mem")) {
    run.host_bytes = 0; /* on the cpu device both are the same memory */
  }
  if (device_bytes == MR_BUDGET_AUTO) {
    run.host_bytes = MR_BUDGET_AUTO;
    run.offload = MR_OFFLOAD_NONE;
    run.recompute = MR_RECOMPUTE_NONE;
  }
  if (kind == PRESSURE_NO_OFFLOAD) {
    run.offload = MR_OFFLOAD_NONE;
  }
  if (kind == PRESSURE_NO_RECOMPUTE || kind == PRESSURE_LRU) {
    run.recompute = MR_RECOMPUTE_NONE;
  }
  if (kind == PRESSURE_NO_SEARCH || kind == PRESSURE_LRU) {
    run.policy = kind == PRESSURE_LRU ? MR_POLICY_LRU : MR_POLICY_FIRST;
  }
  return run;
}

/* "text" or, with a value, "text=value". */
static mr_status add_word(struct pressure_words *words, const char *text, const char *value) {
  size_t size = strlen(text) + strlen(value) + 2;
  mr_status status = mr_array_reserve((void **)&words->list, &words->capacity, words->count + 2ull,
                                      sizeof *words->list);
  char *word = status == MR_OK ? mr_allocate(size, 1) : NULL;
  if (word == NULL) {
    return MR_NO_MEMORY;
  }
  snprintf(word, size, "%s%s%s", text, *value == '\0' ? "" : "=", value);
  words->list[words->count++] = word;
  words->list[words->count] = NULL;
  return MR_OK;
}

static mr_status add_option(struct pressure_words *words, const struct option *option,
                            const char *value) {
  char name[40];
  snprintf(name, sizeof name, "--%s", option->name);
  return add_word(words, name, value);
}

static mr_status add_choice(struct pressure_words *words, const char *name, int choice) {
  const struct option *option = options_table;
  while (strcmp(option->name, name) != 0) {
    option++;
  }
  return add_option(words, option, option->choices[choice]);
}

/* The command line's own options, as far as train takes them and the row does not set them; plan
 * takes them all. */
static mr_status add_taken(struct pressure_words *words, const struct cli *cli) {
  mr_status status = MR_OK;
  for (uint32_t i = 0; i < cli->taken_count && status == MR_OK; i++) {
    const struct option *option = &options_table[cli->taken[i].row];
    if ((option->commands & CLI_TRAIN) != 0 && !is_listed(option->name, own_options)) {
      status = add_option(words, option, cli->taken[i].value);
    }
  }
  return status;
}

static mr_status add_budget(struct pressure_words *words, const char *name, uint64_t bytes) {
  char text[24];
  snprintf(text, sizeof text, "%llu", (unsigned long long)bytes);
  return bytes == MR_BUDGET_AUTO ? MR_OK : add_word(words, name, text);
}

static mr_status add_all(struct pressure_words *words, const char *command,
                         const struct pressure *pressure, const struct mr_options *run,
                         const char *profile) {
  char steps[24];
  snprintf(steps, sizeof steps, "%u", PRESSURE_WARM_STEPS + pressure->steps);
  mr_status status = add_word(words, "memrun", "");
  status = status != MR_OK ? status : add_word(words, command, "");
  status = status != MR_OK ? status : add_taken(words, pressure->cli);
  status = status != MR_OK ? status : add_choice(words, "offload", (int)run->offload);
  status = status != MR_OK ? status : add_choice(words, "recompute", (int)run->recompute);
  status = status != MR_OK ? status : add_choice(words, "policy", (int)run->policy);
  /* One plan for each turn: its few steps are measured under it. */
  status = status != MR_OK ? status : add_choice(words, "replan", (int)MR_REPLAN_NEVER);
  status = status != MR_OK ? status : add_budget(words, "--device-mem", run->device_bytes);
  status = status != MR_OK ? status : add_budget(words, "--host-mem", run->host_bytes);
  status = status != MR_OK ? status : add_word(words, "--steps", steps);
  if (profile != NULL) {
    status = status != MR_OK ? status : add_word(words, "--profile", profile);
  }
  return status != MR_OK ? status : add_word(words, "--json", "");
}

static mr_status words_init(struct pressure_words *words, const char *command,
                            const struct pressure *pressure, const struct mr_options *run,
                            const char *profile) {
  *words = (struct pressure_words){.list = NULL};
  mr_status status = add_all(words, command, pressure, run, profile);
  if (status != MR_OK) {
    pressure_words_fini(words);
  }
  return status;
}

mr_status pressure_words_init(struct pressure_words *words, const struct pressure *pressure,
                              const struct pressure_row *row, const char *profile) {
  struct mr_options run = pressure_run_options(pressure, row->kind, row->device_bytes);
  return words_init(words, "train", pressure, &run, profile);
}

mr_status pressure_words_plan(struct pressure_words *words, const struct pressure *pressure,
                              enum pressure_kind kind, uint64_t device_bytes, const char *profile) {
  struct mr_options run = pressure_run_options(pressure, kind, device_bytes);
  return words_init(words, "plan", pressure, &run, profile);
}

void pressure_words_fini(struct pressure_words *words) {
  for (uint32_t i = 0; i < words->count; i++) {
    free(words->list[i]);
  }
  free(words->list);
  *words = (struct pressure_words){.list = NULL};
}

static int larger_first(const void *a, const void *b) {
  uint64_t left = *(const uint64_t *)a;
  uint64_t right = *(const uint64_t *)b;
  return (left < right) - (left > right);
}

/* The budgets of the points in bytes, each once, without those that are no pressure. */
static uint32_t resolve(const struct pressure *pressure, const struct pressure_point *points,
                        uint32_t count, uint64_t *bytes) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < count; i++) {
    uint64_t size = points[i].size_bytes;
    if (points[i].percent > 0) {
      double share = points[i].percent / 100 * (double)pressure->footprint_bytes;
      size = mr_max_u64((uint64_t)share / BUDGET_UNIT * BUDGET_UNIT, PRESSURE_LEAST_BYTES);
    } else if (size == 0) {
      size = pressure->smallest_bytes[PRESSURE_MEMRUN];
    }
    if (points[i].percent < 100 && size < pressure->footprint_bytes) {
      bytes[kept++] = size;
    }
  }
  qsort(bytes, kept, sizeof *bytes, larger_first);
  uint32_t different = 0;
  for (uint32_t i = 0; i < kept; i++) {
    if (different == 0 || bytes[different - 1] != bytes[i]) {
      bytes[different++] = bytes[i];
    }
  }
  return different;
}

static mr_status row_init(const struct pressure *pressure, struct pressure_row *row,
                          uint32_t rounds) {
  row->smallest_bytes = pressure->smallest_bytes[row->kind];
  if (row->device_bytes < row->smallest_bytes) {
    row->state = PRESSURE_DOES_NOT_FIT;
  }
  row->seconds = mr_allocate(rounds, sizeof *row->seconds);
  row->bounds = mr_allocate(rounds, sizeof *row->bounds);
  return row->seconds == NULL || row->bounds == NULL ? MR_NO_MEMORY : MR_OK;
}

mr_status pressure_rows_init(struct pressure *pressure, const struct pressure_point *points,
                             uint32_t count, uint32_t rounds) {
  uint64_t bytes[PRESSURE_MAX_BUDGETS];
  uint32_t budgets = resolve(pressure, points, count, bytes);
  pressure->row_count = 1 + budgets * pressure->kind_count;
  pressure->rows = mr_allocate(pressure->row_count, sizeof *pressure->rows);
  if (pressure->rows == NULL) {
    return MR_NO_MEMORY;
  }
  pressure->rows[0] = (struct pressure_row){.kind = PRESSURE_MEMRUN, .device_bytes = UINT64_MAX};
  for (uint32_t i = 1; i < pressure->row_count; i++) {
    uint32_t place = i - 1;
    pressure->rows[i].kind = (enum pressure_kind)(place % pressure->kind_count);
    pressure->rows[i].device_bytes = bytes[place / pressure->kind_count];
  }
  mr_status status = MR_OK;
  for (uint32_t i = 0; i < pressure->row_count && status == MR_OK; i++) {
    status = row_init(pressure, &pressure->rows[i], rounds);
  }
  return status;
}

void pressure_rows_fini(struct pressure *pressure) {
  for (uint32_t i = 0; i < pressure->row_count && pressure->rows != NULL; i++) {
    free(pressure->rows[i].seconds);
    free(pressure->rows[i].bounds);
  }
  free(pressure->rows);
  pressure->rows = NULL;
  pressure->row_count = 0;
}

uint64_t pressure_row_bytes(const struct pressure *pressure, const struct pressure_row *row) {
  return mr_min_u64(row->device_bytes, pressure->footprint_bytes);
}

const char *pressure_row_share(const struct pressure *pressure, const struct pressure_row *row,
                               struct pressure_share *share) {
  double percent =
      100 * (double)pressure_row_bytes(pressure, row) / (double)pressure->footprint_bytes;
  double quarters = round(4 * percent) / 4;
  double asked = quarters / 100 * (double)pressure->footprint_bytes;
  double less = asked - (double)pressure_row_bytes(pressure, row);
  bool listed = less >= 0 && less < BUDGET_UNIT; /* budgets are rounded down */
  snprintf(share->text, sizeof share->text, listed ? "%g %%" : "%.1f %%",
           listed ? quarters : percent);
  return share->text;
}

const struct pressure_row *pressure_next_row(const struct pressure *pressure, bool measured,
                                             uint32_t *at) {
  while (*at < pressure->row_count) {
    const struct pressure_row *row = &pressure->rows[(*at)++];
    if (row->kind == PRESSURE_MEMRUN && (!measured || row->state == PRESSURE_MEASURED)) {
      return row;
    }
  }
  return NULL;
}

const struct pressure_row *pressure_own_row(const struct pressure_row *row) {
  return row - (uint32_t)row->kind;
}

/* The median of what the rounds gave, which stay in their order; 0 where there is nothing. */
static double median(const double *values, uint32_t count) {
  double sorted[CLI_MAX_ROUNDS];
  memcpy(sorted, values, count * sizeof *values);
  return count == 0 ? 0 : bench_median(sorted, count);
}

/* The median over rounds of one value's share of another; a machine changes its pace, so what one
 * round gave is set beside what the same round gave. NAN where no round has both. */
static double median_ratio(const double *values, uint32_t value_count, const double *of,
                           uint32_t of_count) {
  double ratios[CLI_MAX_ROUNDS];
  uint32_t count = value_count < of_count ? value_count : of_count;
  for (uint32_t i = 0; i < count; i++) {
    ratios[i] = values[i] / of[i];
  }
  return count == 0 ? NAN : bench_median(ratios, count);
}

bool pressure_row_figures(const struct pressure *pressure, const struct pressure_row *row,
                          struct pressure_figures *figures_out) {
  if (row->state != PRESSURE_MEASURED) {
    return false;
  }
  /* A budget's bound is that of memrun's own row there, which leaves nothing out. */
  const struct pressure_row *own = pressure_own_row(row);
  const struct pressure_row *free_row = &pressure->rows[0];
  MR_ASSERT(own >= pressure->rows && own->kind == PRESSURE_MEMRUN);
  struct pressure_figures figures = {
      .seconds = median(row->seconds, row->turns),
      .predicted_seconds = row->last.predicted_seconds,
      .bound_seconds = median(own->bounds, own->bound_count),
      .over_bound = median_ratio(row->seconds, row->turns, own->bounds, own->bound_count),
      .speed = median_ratio(free_row->seconds, free_row->turns, row->seconds, row->turns),
      .most_speed = median_ratio(free_row->seconds, free_row->turns, own->bounds, own->bound_count),
  };
  figures.error = fabs(figures.predicted_seconds - figures.seconds) / figures.seconds;
  *figures_out = figures;
  return true;
}

uint32_t pressure_rounds(const struct pressure *pressure) {
  uint32_t most = 0;
  for (uint32_t i = 0; i < pressure->row_count; i++) {
    const struct pressure_row *row = &pressure->rows[i];
    most = row->state == PRESSURE_MEASURED && row->turns > most ? row->turns : most;
  }
  return most;
}

double pressure_others_share(const struct pressure *pressure) {
  double most = 0;
  for (uint32_t i = 0; i < pressure->row_count; i++) {
    most = fmax(most, pressure->rows[i].others_share);
  }
  return most < DISTURBED ? 0 : most;
}

double pressure_least_over_bound(const struct pressure *pressure) {
  double least = INFINITY;
  for (uint32_t i = 0; i < pressure->row_count; i++) {
    const struct pressure_row *row = &pressure->rows[i];
    const struct pressure_row *own = pressure_own_row(row);
    for (uint32_t round = 0; round < row->turns && round < own->bound_count; round++) {
      least = fmin(least, row->seconds[round] / own->bounds[round]);
    }
  }
  return least < 1 && least >= BELOW_BOUND ? 1 : least;
}
