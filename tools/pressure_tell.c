/* SPDX-License-Identifier: Apache-2.0 */
/* What bench pressure found, as tables and as JSON. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "base/json.h"
#include "tools/job.h"
#include "tools/pressure.h"

#define LINE_BYTES 256u

/* Text that is built up in a line; what does not fit is cut. */
struct line {
  char text[LINE_BYTES];
  size_t length;
};

static void line_add(struct line *line, const char *format, ...) MR_PRINTF(2, 3);

static void line_add(struct line *line, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  size_t room = sizeof line->text - line->length;
  /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): va_start is one line above */
  int bytes = vsnprintf(line->text + line->length, room, format, arguments);
  va_end(arguments);
  MR_ASSERT(bytes >= 0);
  line->length += (size_t)bytes < room ? (size_t)bytes : room - 1;
}

static void line_print(const struct line *line, struct output *output) {
  output_text(output, "%s\n", line->text);
}

/* "50.0 %  276 MiB" */
static void add_budget(struct line *line, const struct pressure *pressure,
                       const struct pressure_row *row) {
  struct pressure_share share;
  struct mr_size_text size;
  line_add(line, "%7s %9s", pressure_row_share(pressure, row, &share),
           mr_size_format(pressure_row_bytes(pressure, row), &size));
}

/* Why a row has no figures. */
static void add_reason(struct line *line, const struct pressure_row *row) {
  struct mr_size_text size;
  if (row->state == PRESSURE_DOES_NOT_FIT && row->device_bytes == UINT64_MAX) {
    line_add(line, "does not fit here");
  } else if (row->state == PRESSURE_DOES_NOT_FIT) {
    line_add(line, "needs %s", mr_size_format_enough(row->smallest_bytes, &size));
  } else if (row->state == PRESSURE_FAILED) {
    bool killed = row->end.signal_number != 0;
    line_add(line, "failed, %s %d", killed ? "signal" : "exit",
             killed ? row->end.signal_number : row->end.exit_status);
  } else {
    line_add(line, "not run");
  }
}

static void print_times(const struct pressure *pressure, struct output *output) {
  uint32_t at = 0;
  output_text(output, "\n%-17s %9s %9s %7s %9s %8s %6s %8s  %s\n", "device budget", "step",
              "forecast", "error", "bound", "x bound", "speed", "at most", "bound by");
  for (const struct pressure_row *row = pressure_next_row(pressure, false, &at); row != NULL;
       row = pressure_next_row(pressure, false, &at)) {
    struct pressure_figures figures;
    struct job_seconds seconds[3];
    struct line line = {.length = 0};
    add_budget(&line, pressure, row);
    if (pressure_row_figures(pressure, row, &figures)) {
      line_add(&line, " %9s %9s %5.1f %% %9s %8.3f ",
               job_seconds_format(figures.seconds, &seconds[0]),
               job_seconds_format(figures.predicted_seconds, &seconds[1]), 100 * figures.error,
               job_seconds_format(figures.bound_seconds, &seconds[2]), figures.over_bound);
      if (isnan(figures.speed)) {
        line_add(&line, "%6s %8s", "-", "-");
      } else {
        line_add(&line, "%6.3f %8.3f", figures.speed, figures.most_speed);
      }
      line_add(&line, "  %s", row->last.bound_by);
    } else {
      line_add(&line, "  ");
      add_reason(&line, row);
    }
    line_print(&line, output);
  }
}

/* A table of four counts of bytes for each budget that was measured. */
static void print_bytes(const struct pressure *pressure, struct output *output,
                        const char *const *titles,
                        void (*get)(const struct pressure_turn *turn, uint64_t *bytes)) {
  uint32_t at = 0;
  output_text(output, "\n%-17s %10s %10s %10s %10s\n", titles[0], titles[1], titles[2], titles[3],
              titles[4]);
  for (const struct pressure_row *row = pressure_next_row(pressure, true, &at); row != NULL;
       row = pressure_next_row(pressure, true, &at)) {
    uint64_t bytes[4];
    struct line line = {.length = 0};
    struct mr_size_text size;
    get(&row->last, bytes);
    add_budget(&line, pressure, row);
    for (size_t i = 0; i < MR_COUNT_OF(bytes); i++) {
      line_add(&line, " %10s", mr_size_format(bytes[i], &size));
    }
    line_print(&line, output);
  }
}

static void get_moved(const struct pressure_turn *turn, uint64_t *bytes) {
  memcpy(bytes, turn->moved_bytes, sizeof turn->moved_bytes);
}

static void get_gaps(const struct pressure_turn *turn, uint64_t *bytes) {
  bytes[0] = turn->kept_bytes;
  bytes[1] = turn->host_bytes;
  bytes[2] = turn->nvme_bytes;
  bytes[3] = turn->recomputed_bytes;
}

/* "95.1 MiB of 96.0 MiB", or "-" for a tier that was not used. */
static void add_peak(struct line *line, uint64_t peak_bytes, uint64_t budget_bytes) {
  struct mr_size_text peak;
  struct mr_size_text budget;
  char text[64] = "-";
  if (budget_bytes > 0) {
    snprintf(text, sizeof text, "%s of %s", mr_size_format(peak_bytes, &peak),
             mr_size_format(budget_bytes, &budget));
  }
  line_add(line, " %21s", text);
}

static void print_peaks(const struct pressure *pressure, struct output *output) {
  uint32_t at = 0;
  output_text(output, "\n%-17s %21s %21s %21s %10s\n", "peaks", "device", "host", "nvme",
              "process");
  for (const struct pressure_row *row = pressure_next_row(pressure, true, &at); row != NULL;
       row = pressure_next_row(pressure, true, &at)) {
    struct line line = {.length = 0};
    struct mr_size_text size;
    add_budget(&line, pressure, row);
    for (int tier = 0; tier < MR_TIER_COUNT; tier++) {
      add_peak(&line, row->last.peak_bytes[tier], row->last.budget_bytes[tier]);
    }
    line_add(&line, " %10s", mr_size_format(row->last.resident_bytes, &size));
    line_print(&line, output);
  }
}

static void print_ablations(const struct pressure *pressure, struct output *output) {
  if (pressure->kind_count == 1) {
    return;
  }
  struct line head = {.length = 0};
  line_add(&head, "%-17s", "step, x bound");
  for (uint32_t kind = 0; kind < pressure->kind_count; kind++) {
    line_add(&head, " %15s", pressure_kind_titles[kind]);
  }
  output_text(output, "\n%s\n", head.text);
  for (uint32_t i = 1; i < pressure->row_count; i += pressure->kind_count) {
    struct line line = {.length = 0};
    add_budget(&line, pressure, &pressure->rows[i]);
    for (uint32_t kind = 0; kind < pressure->kind_count; kind++) {
      const struct pressure_row *row = &pressure->rows[i + kind];
      struct pressure_figures figures;
      struct line cell = {.length = 0};
      struct job_seconds seconds;
      if (pressure_row_figures(pressure, row, &figures)) {
        line_add(&cell, "%s %6.3f", job_seconds_format(figures.seconds, &seconds),
                 figures.over_bound);
      } else {
        add_reason(&cell, row);
      }
      line_add(&line, " %15s", cell.text);
    }
    line_print(&line, output);
  }
}

void pressure_print(const struct pressure *pressure, struct output *output) {
  static const char *const moved_titles[] = {"moved in a step", "out", "in", "read", "write"};
  static const char *const gap_titles[] = {"between two uses", "kept", "host", "nvme",
                                           "made again"};
  struct mr_size_text footprint;
  struct mr_size_text smallest;
  job_print_model(output, &pressure->info);
  output_text(output, "footprint  %s; the smallest device budget is %s\n",
              mr_size_format(pressure->footprint_bytes, &footprint),
              mr_size_format_enough(pressure->smallest_bytes[PRESSURE_MEMRUN], &smallest));
  uint32_t rounds = pressure_rounds(pressure);
  output_text(output, "measured   medians of %u round%s, %u steps in each after %u\n", rounds,
              rounds == 1 ? "" : "s", pressure->steps, PRESSURE_WARM_STEPS);
  if (pressure_others_share(pressure) > 0) {
    output_text(output, "disturbed  others had up to %.0f %% of the processors during a run\n",
                100 * pressure_others_share(pressure));
  }
  double least = pressure_least_over_bound(pressure);
  if (least < 1) {
    output_text(output,
                "unsteady   a round's step took %.3f of a bound that no plan can beat: the machine "
                "changed its pace\n",
                least);
  }
  print_times(pressure, output);
  print_bytes(pressure, output, moved_titles, get_moved);
  print_bytes(pressure, output, gap_titles, get_gaps);
  print_peaks(pressure, output);
  print_ablations(pressure, output);
}

/* What each round gave. */
static json_t *rounds_json(const double *values, uint32_t count) {
  json_t *list = json_array();
  for (uint32_t i = 0; list != NULL && i < count; i++) {
    if (json_array_append_new(list, json_number(values[i])) != 0) {
      json_decref(list);
      list = NULL;
    }
  }
  return list;
}

/* The words after the program's name: what anybody can run again. */
static json_t *words_json(const struct pressure *pressure, const struct pressure_row *row) {
  struct pressure_words words;
  if (pressure_words_init(&words, pressure, row, pressure->cli->train.run.profile_path) != MR_OK) {
    return NULL;
  }
  json_t *list = json_array();
  for (uint32_t i = 1; list != NULL && i < words.count; i++) {
    if (json_array_append_new(list, mr_json_text(words.list[i])) != 0) {
      json_decref(list);
      list = NULL;
    }
  }
  pressure_words_fini(&words);
  return list;
}

static json_t *measured_json(const struct pressure_row *row,
                             const struct pressure_figures *figures) {
  const struct pressure_row *own = pressure_own_row(row);
  const struct pressure_turn *last = &row->last;
  json_t *peaks = job_tiers_json(last->peak_bytes);
  if (peaks != NULL &&
      json_object_set_new(peaks, "resident", json_integer((json_int_t)last->resident_bytes)) != 0) {
    json_decref(peaks);
    return NULL;
  }
  return json_pack(
      "{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:s, s:o, s:{s:I, s:I, s:I, s:I}, s:o, s:o, "
      "s:o}",
      "seconds", json_number(figures->seconds), "round_seconds",
      rounds_json(row->seconds, row->turns), "predicted_seconds",
      json_number(figures->predicted_seconds), "prediction_error", json_number(figures->error),
      "bound_seconds", json_number(figures->bound_seconds), "round_bound_seconds",
      rounds_json(own->bounds, own->bound_count), "over_bound", json_number(figures->over_bound),
      "speed", json_number(figures->speed), "most_speed", json_number(figures->most_speed),
      "bound_by", last->bound_by, "moved_bytes", job_links_json(last->moved_bytes), "gap_bytes",
      "kept", (json_int_t)last->kept_bytes, "host", (json_int_t)last->host_bytes, "nvme",
      (json_int_t)last->nvme_bytes, "recomputed", (json_int_t)last->recomputed_bytes, "peak_bytes",
      peaks, "budget_bytes", job_tiers_json(last->budget_bytes), "others_share",
      json_number(row->others_share));
}

static json_t *row_json(const struct pressure *pressure, const struct pressure_row *row) {
  static const char *const states[] = {[PRESSURE_WAITING] = "not run",
                                       [PRESSURE_MEASURED] = "measured",
                                       [PRESSURE_DOES_NOT_FIT] = "does not fit",
                                       [PRESSURE_FAILED] = "failed"};
  struct pressure_figures figures;
  uint64_t bytes = pressure_row_bytes(pressure, row);
  json_t *object = json_pack(
      "{s:s, s:s, s:I, s:o, s:I, s:o}", "kind", pressure_kind_names[row->kind], "state",
      states[row->state], "device_bytes", (json_int_t)bytes, "share",
      json_number((double)bytes / (double)pressure->footprint_bytes), "smallest_device_bytes",
      (json_int_t)row->smallest_bytes, "arguments", words_json(pressure, row));
  json_t *more = NULL;
  if (pressure_row_figures(pressure, row, &figures)) {
    more = measured_json(row, &figures);
  } else if (row->state == PRESSURE_FAILED) {
    more = json_pack("{s:i, s:i, s:o}", "exit_status", row->end.exit_status, "signal",
                     row->end.signal_number, "line", mr_json_text(row->end.line));
  } else {
    return object;
  }
  if (object == NULL || more == NULL || json_object_update(object, more) != 0) {
    json_decref(object);
    object = NULL;
  }
  json_decref(more);
  return object;
}

json_t *pressure_json(const struct pressure *pressure) {
  json_t *rows = json_array();
  for (uint32_t i = 0; rows != NULL && i < pressure->row_count; i++) {
    if (json_array_append_new(rows, row_json(pressure, &pressure->rows[i])) != 0) {
      json_decref(rows);
      rows = NULL;
    }
  }
  return json_pack("{s:s, s:s, s:i, s:b, s:i, s:o, s:I, s:I, s:o}", "event", "bench", "case",
                   "pressure", "rounds", (int)pressure_rounds(pressure), "interrupted",
                   pressure->interrupted, "steps", (int)pressure->steps, "model",
                   job_model_json(&pressure->info), "footprint_bytes",
                   (json_int_t)pressure->footprint_bytes, "smallest_device_bytes",
                   (json_int_t)pressure->smallest_bytes[PRESSURE_MEMRUN], "rows", rows);
}
