/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plot of bench pressure, for a page of a README: above, the time of a step against the budget,
 * measured, forecast and bound; below it on the same axis, what was decided for the bytes that wait
 * between two uses; with ablations, bars for each kind at each budget. Budgets shrink to the right,
 * on a logarithmic axis: pressure rises as one reads.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "tools/job.h"
#include "tools/pressure.h"
#include "tools/svg.h"

#define WIDTH        860.0
#define LEFT         80.0
#define PANEL_WIDTH  (WIDTH - LEFT - 22)
#define EDGE         26.0 /* from a panel's edge to the first and the last budget */
#define TIME_TOP     112.0
#define TIME_HEIGHT  240.0
#define GAPS_TOP     (TIME_TOP + TIME_HEIGHT + 50)
#define GAPS_HEIGHT  130.0
#define BARS_TOP     (GAPS_TOP + GAPS_HEIGHT + 108)
#define BARS_HEIGHT  170.0
#define LABEL_WIDTH  48.0 /* of a budget below the axis */
#define LETTER_WIDTH 6.4  /* of the style's font, at most */
#define MOST_TICKS   6u
#define WIDE_BAR     30.0 /* has room for its number across */
#define NARROW_BAR   10.0 /* has room for it upwards */
/* What is left above the highest value, for its label. */
#define TIME_HEADROOM 1.15
#define GAPS_HEADROOM 1.08
#define BAR_HEADROOM  1.25
#define MAX_POINTS    (PRESSURE_MAX_BUDGETS + 1)

enum { KEPT, HOST, NVME, AGAIN, PART_COUNT };

/* Colours of Okabe and Ito (2008), which people with any colour vision tell apart. */
static const char style[] =
    "text{font:12px system-ui,-apple-system,Helvetica,Arial,sans-serif;fill:#24292f}\n"
    ".title{font-size:17px;font-weight:600}.faint{fill:#57606a}\n"
    ".middle{text-anchor:middle}.end{text-anchor:end}\n"
    ".small{font-size:10.5px;text-anchor:middle}.upwards{font-size:10.5px}\n"
    ".card{fill:#ffffff;stroke:#d0d7de}.grid{stroke:#e4e8ec}.axis{stroke:#57606a}\n"
    ".one{stroke:#57606a;stroke-dasharray:4 3}\n"
    ".refused{fill:#f0f1f3}.below{fill:#eceef0}\n"
    ".bound{fill:none;stroke:#57606a;stroke-width:1.5}\n"
    ".predicted{fill:none;stroke:#e69f00;stroke-width:2;stroke-dasharray:6 4}\n"
    ".predicteddot{fill:#ffffff;stroke:#e69f00;stroke-width:2}\n"
    ".measured{fill:none;stroke:#0072b2;stroke-width:2.5}.measureddot{fill:#0072b2}\n"
    ".part0{fill:#56b4e9}.part1{fill:#009e73}.part2{fill:#d55e00}.part3{fill:#cc79a7}\n"
    ".kind0{fill:#0072b2}.kind1{fill:#cc79a7}.kind2{fill:#56b4e9}.kind3{fill:#e69f00}\n"
    ".kind4{fill:#7a7f85}\n";

static const char *const part_titles[PART_COUNT] = {"kept on the device", "host", "NVMe",
                                                    "made again"};
static const char *const part_classes[PART_COUNT] = {"part0", "part1", "part2", "part3"};
static const char *const kind_classes[PRESSURE_KIND_COUNT] = {"kind0", "kind1", "kind2", "kind3",
                                                              "kind4"};

/* Where values are in a panel; y grows upwards from 0. */
struct frame {
  double top, height;
  double most; /* the value at the top */
};

struct plot {
  struct svg svg;
  const struct pressure *pressure;
  const struct pressure_row *rows[MAX_POINTS]; /* memrun's own, the largest budget first */
  uint32_t count;
  double smallest_bytes; /* at the right edge */
};

static double y_at(const struct frame *frame, double value) {
  return frame->top + frame->height * (1 - value / frame->most);
}

static double x_at(const struct plot *plot, double bytes) {
  double footprint = (double)plot->pressure->footprint_bytes;
  double span = log2(footprint / plot->smallest_bytes);
  double part = span > 0 ? log2(footprint / bytes) / span : 0.5;
  return LEFT + EDGE + part * (PANEL_WIDTH - 2 * EDGE);
}

static double row_x(const struct plot *plot, const struct pressure_row *row) {
  return x_at(plot, (double)pressure_row_bytes(plot->pressure, row));
}

/* 1, 2, 2.5 or 5 times a power of ten, so that at most MOST_TICKS steps reach `most`. */
static double tick_step(double most) {
  static const double steps[] = {1, 2, 2.5, 5, 10};
  double power = pow(10, floor(log10(most / MOST_TICKS)));
  size_t i = 0;
  while (steps[i] * power * MOST_TICKS < most && i + 1 < MR_COUNT_OF(steps)) {
    i++;
  }
  return steps[i] * power;
}

/* Grid and numbers at the left; `unit` of the numbers stands at the axis. */
static void draw_frame(struct plot *plot, const struct frame *frame, const char *unit) {
  double step = tick_step(frame->most);
  struct svg_point corner = {LEFT, frame->top};
  for (uint32_t i = 0; i * step <= frame->most * (1 + 1e-9); i++) {
    char number[24];
    double y = y_at(frame, i * step);
    snprintf(number, sizeof number, "%g", i * step);
    svg_line(&plot->svg, i == 0 ? "axis" : "grid", (struct svg_point){LEFT, y},
             (struct svg_point){LEFT + PANEL_WIDTH, y});
    svg_text(&plot->svg, "end faint", (struct svg_point){LEFT - 8, y + 4}, number);
  }
  svg_text_upwards(&plot->svg, "middle faint",
                   (struct svg_point){corner.x - 63, corner.y + frame->height / 2}, unit);
}

/* A row of the legend: each entry is drawn by its kind of mark. */
enum mark { MARK_BOX, MARK_LINE, MARK_LINE_AND_DISC, MARK_AREA };

static double draw_entry(struct plot *plot, struct svg_point at, enum mark mark,
                         const char *class_name, const char *title) {
  struct svg_point from = {at.x, at.y - 4};
  struct svg_point to = {at.x + 22, at.y - 4};
  char dot[32];
  if (mark == MARK_BOX) {
    svg_box(&plot->svg, class_name, (struct svg_point){at.x + 8, at.y - 10}, 12, 12);
  } else {
    if (mark == MARK_AREA) {
      svg_box(&plot->svg, "below", from, 22, 7);
    }
    svg_line(&plot->svg, class_name, from, to);
  }
  if (mark == MARK_LINE_AND_DISC) {
    snprintf(dot, sizeof dot, "%sdot", class_name);
    svg_disc(&plot->svg, dot, (struct svg_point){at.x + 11, at.y - 4}, 3.5);
  }
  svg_text(&plot->svg, "", (struct svg_point){at.x + 28, at.y}, title);
  return at.x + 28 + LETTER_WIDTH * (double)strlen(title) + 14;
}

/* A budget below an axis: its share of the footprint, and its size. */
static void draw_budget(struct plot *plot, const struct pressure_row *row, struct svg_point at) {
  struct pressure_share share;
  struct mr_size_text size;
  svg_text(&plot->svg, "middle", (struct svg_point){at.x, at.y + 20},
           pressure_row_share(plot->pressure, row, &share));
  svg_text(&plot->svg, "small faint", (struct svg_point){at.x, at.y + 35},
           mr_size_format(pressure_row_bytes(plot->pressure, row), &size));
}

/* Budgets below the panels. From the right, so that the tightest are all named; one that has no
 * room is left out, but for its tick. */
static void draw_budgets(struct plot *plot, double y) {
  double free_from = WIDTH;
  for (uint32_t i = plot->count; i-- > 0;) {
    const struct pressure_row *row = plot->rows[i];
    double x = row_x(plot, row);
    svg_line(&plot->svg, "axis", (struct svg_point){x, y}, (struct svg_point){x, y + 5});
    if (x + LABEL_WIDTH / 2 > free_from) continue;
    draw_budget(plot, row, (struct svg_point){x, y});
    free_from = x - LABEL_WIDTH / 2;
  }
  svg_text(&plot->svg, "middle faint", (struct svg_point){LEFT + PANEL_WIDTH / 2, y + 54},
           "device budget, share of the footprint (logarithmic)");
}

/* The budgets below the smallest that would do. */
static void draw_refused(struct plot *plot, const struct frame *frame, bool named) {
  double least = (double)plot->pressure->smallest_bytes[PRESSURE_MEMRUN];
  double x = x_at(plot, least);
  double width = LEFT + PANEL_WIDTH - x;
  if (least <= plot->smallest_bytes) {
    return;
  }
  svg_box(&plot->svg, "refused", (struct svg_point){x, frame->top}, width, frame->height);
  if (named) {
    svg_text_upwards(&plot->svg, "middle faint",
                     (struct svg_point){x + width / 2 + 4, frame->top + frame->height / 2},
                     "does not fit");
  }
}

/* A value of a row's figures, by its place in the struct. */
struct series {
  struct svg_point points[MAX_POINTS + 2];
  uint32_t count;
};

static double seconds_of(const struct pressure_figures *figures, uint32_t which) {
  const double values[] = {figures->bound_seconds, figures->predicted_seconds, figures->seconds};
  return values[which];
}

static double most_seconds(const struct plot *plot) {
  double most = 0;
  for (uint32_t i = 0; i < plot->count; i++) {
    struct pressure_figures figures;
    if (pressure_row_figures(plot->pressure, plot->rows[i], &figures)) {
      for (uint32_t which = 0; which < 3; which++) {
        most = fmax(most, seconds_of(&figures, which));
      }
    }
  }
  return most;
}

static void collect_seconds(const struct plot *plot, const struct frame *frame, uint32_t which,
                            struct series *series) {
  series->count = 0;
  for (uint32_t i = 0; i < plot->count; i++) {
    struct pressure_figures figures;
    if (pressure_row_figures(plot->pressure, plot->rows[i], &figures)) {
      series->points[series->count++] =
          (struct svg_point){row_x(plot, plot->rows[i]), y_at(frame, seconds_of(&figures, which))};
    }
  }
}

static void draw_discs(struct plot *plot, const char *class_name, const struct series *series) {
  for (uint32_t i = 0; i < series->count; i++) {
    svg_disc(&plot->svg, class_name, series->points[i], 4);
  }
}

/* The bound, and the times below it that nothing can reach. */
static void draw_bound(struct plot *plot, const struct frame *frame, struct series *series) {
  collect_seconds(plot, frame, 0, series);
  uint32_t count = series->count;
  if (count == 0) {
    return;
  }
  struct svg_point last = {series->points[count - 1].x, frame->top + frame->height};
  struct svg_point first = {series->points[0].x, frame->top + frame->height};
  series->points[count] = last;
  series->points[count + 1] = first;
  svg_path(&plot->svg, "below", series->points, count + 2, true);
  svg_path(&plot->svg, "bound", series->points, count, false);
}

/* What each measured time is of its bound, where there is room to say so. */
static void draw_ratios(struct plot *plot, const struct frame *frame) {
  double free_from = 0;
  for (uint32_t i = 0; i < plot->count; i++) {
    struct pressure_figures figures;
    char ratio[24];
    double x = row_x(plot, plot->rows[i]);
    if (!pressure_row_figures(plot->pressure, plot->rows[i], &figures) ||
        x - LABEL_WIDTH / 2 < free_from) {
      continue;
    }
    double highest = fmax(figures.seconds, figures.predicted_seconds);
    snprintf(ratio, sizeof ratio, "%.2fx", figures.over_bound);
    svg_text(&plot->svg, "middle", (struct svg_point){x, y_at(frame, highest) - 10}, ratio);
    free_from = x + LABEL_WIDTH / 2;
  }
}

static void draw_times(struct plot *plot) {
  struct frame frame = {TIME_TOP, TIME_HEIGHT, TIME_HEADROOM * most_seconds(plot)};
  struct series series;
  draw_refused(plot, &frame, true);
  draw_bound(plot, &frame, &series);
  draw_frame(plot, &frame, "seconds a step");
  collect_seconds(plot, &frame, 1, &series);
  svg_path(&plot->svg, "predicted", series.points, series.count, false);
  draw_discs(plot, "predicteddot", &series);
  collect_seconds(plot, &frame, 2, &series);
  svg_path(&plot->svg, "measured", series.points, series.count, false);
  draw_discs(plot, "measureddot", &series);
  draw_ratios(plot, &frame);
  struct svg_point at = {LEFT, TIME_TOP - 18};
  at.x =
      draw_entry(plot, at, MARK_LINE_AND_DISC, "measured", "measured, with its ratio to the bound");
  at.x = draw_entry(plot, at, MARK_LINE_AND_DISC, "predicted", "forecast");
  (void)draw_entry(plot, at, MARK_AREA, "bound", "bound: no plan is faster");
}

static double part_bytes(const struct pressure_row *row, uint32_t part) {
  const uint64_t bytes[PART_COUNT] = {row->last.kept_bytes, row->last.host_bytes,
                                      row->last.nvme_bytes, row->last.recomputed_bytes};
  return (double)bytes[part];
}

/* The sum of the first `parts` parts. */
static double stack_bytes(const struct pressure_row *row, uint32_t parts) {
  double sum = 0;
  for (uint32_t part = 0; part < parts; part++) {
    sum += part_bytes(row, part);
  }
  return sum;
}

static void draw_part(struct plot *plot, const struct frame *frame, uint32_t part, double unit) {
  struct svg_point points[2 * MAX_POINTS];
  uint32_t count = 0;
  for (uint32_t i = 0; i < plot->count; i++) {
    if (plot->rows[i]->state == PRESSURE_MEASURED) {
      double top = stack_bytes(plot->rows[i], part + 1) / unit;
      points[count++] = (struct svg_point){row_x(plot, plot->rows[i]), y_at(frame, top)};
    }
  }
  for (uint32_t i = plot->count; i-- > 0;) {
    if (plot->rows[i]->state == PRESSURE_MEASURED) {
      double bottom = stack_bytes(plot->rows[i], part) / unit;
      points[count++] = (struct svg_point){row_x(plot, plot->rows[i]), y_at(frame, bottom)};
    }
  }
  svg_path(&plot->svg, part_classes[part], points, count, true);
}

static void draw_gaps(struct plot *plot) {
  double most = 1;
  for (uint32_t i = 0; i < plot->count; i++) {
    most = fmax(most, stack_bytes(plot->rows[i], PART_COUNT));
  }
  bool large = most >= (double)MR_GIB;
  double unit = large ? (double)MR_GIB : (double)MR_MIB;
  struct frame frame = {GAPS_TOP, GAPS_HEIGHT, GAPS_HEADROOM * most / unit};
  draw_refused(plot, &frame, false);
  draw_frame(plot, &frame, large ? "GiB" : "MiB");
  struct svg_point at = {LEFT, GAPS_TOP - 18};
  svg_text(&plot->svg, "faint", at, "bytes that wait between two uses:");
  at.x += 216;
  for (uint32_t part = 0; part < PART_COUNT; part++) {
    draw_part(plot, &frame, part, unit);
    at.x = draw_entry(plot, at, MARK_BOX, part_classes[part], part_titles[part]);
  }
  draw_budgets(plot, GAPS_TOP + GAPS_HEIGHT);
}

/* A bar, or the reason why there is none; narrow ones are left without words. */
static void draw_bar(struct plot *plot, const struct frame *frame, const struct pressure_row *row,
                     struct svg_point foot, double width) {
  struct pressure_figures figures;
  char label[24];
  double middle = foot.x + width / 2;
  bool told = width >= NARROW_BAR;
  if (!pressure_row_figures(plot->pressure, row, &figures)) {
    const char *reason = row->state == PRESSURE_DOES_NOT_FIT ? "does not fit"
                         : row->state == PRESSURE_FAILED     ? "failed"
                                                             : "not run";
    if (told) {
      svg_text_upwards(&plot->svg, "upwards faint", (struct svg_point){middle + 3, foot.y - 6},
                       reason);
    }
    return;
  }
  double y = y_at(frame, 1 / figures.speed);
  svg_box(&plot->svg, kind_classes[row->kind], (struct svg_point){foot.x, y},
          told ? width - 2 : 0.9 * width, foot.y - y);
  snprintf(label, sizeof label, "%.*f", figures.speed > 0.01 ? 2 : 0, 1 / figures.speed);
  if (told && width < WIDE_BAR) {
    svg_text_upwards(&plot->svg, "upwards", (struct svg_point){middle + 3, y - 5}, label);
  } else if (told) {
    svg_text(&plot->svg, "small", (struct svg_point){middle - 1, y - 5}, label);
  }
}

static double most_slowdown(const struct pressure *pressure) {
  double most = 1;
  for (uint32_t i = 0; i < pressure->row_count; i++) {
    struct pressure_figures figures;
    if (pressure_row_figures(pressure, &pressure->rows[i], &figures)) {
      most = fmax(most, 1 / figures.speed);
    }
  }
  return most;
}

static void draw_bars(struct plot *plot) {
  const struct pressure *pressure = plot->pressure;
  struct frame frame = {BARS_TOP, BARS_HEIGHT, BAR_HEADROOM * most_slowdown(pressure)};
  uint32_t groups = plot->count - 1;
  double group_width = PANEL_WIDTH / groups;
  double bar_width = fmin(0.84 * group_width / pressure->kind_count, 34);
  double floor_y = BARS_TOP + BARS_HEIGHT;
  double free_from = WIDTH;
  draw_frame(plot, &frame, "times as long");
  for (uint32_t group = groups; group-- > 0;) { /* named from the right, as on the axis above */
    const struct pressure_row *rows = &pressure->rows[1 + group * pressure->kind_count];
    double middle = LEFT + (group + 0.5) * group_width;
    double x = middle - bar_width * pressure->kind_count / 2;
    for (uint32_t kind = 0; kind < pressure->kind_count; kind++) {
      draw_bar(plot, &frame, &rows[kind], (struct svg_point){x + kind * bar_width, floor_y},
               bar_width);
    }
    if (middle + LABEL_WIDTH / 2 <= free_from) {
      draw_budget(plot, rows, (struct svg_point){middle, floor_y});
      free_from = middle - LABEL_WIDTH / 2;
    }
  }
  double one = y_at(&frame, 1);
  svg_line(&plot->svg, "one", (struct svg_point){LEFT, one},
           (struct svg_point){LEFT + PANEL_WIDTH, one});
  struct svg_point at = {LEFT, BARS_TOP - 18};
  svg_text(&plot->svg, "faint", at, "step over the step without budgets:");
  at.x += 226;
  for (uint32_t kind = 0; kind < pressure->kind_count; kind++) {
    at.x = draw_entry(plot, at, MARK_BOX, kind_classes[kind], pressure_kind_titles[kind]);
  }
}

static void draw_title(struct plot *plot) {
  const struct pressure *pressure = plot->pressure;
  const struct trainer_info *info = &pressure->info;
  struct job_count count;
  struct mr_size_text footprint;
  uint32_t rounds = pressure_rounds(pressure);
  char text[200];
  snprintf(text, sizeof text, "%s parameters under memory pressure",
           job_parameters_format(info->parameter_count, &count));
  svg_text(&plot->svg, "title", (struct svg_point){LEFT, 34}, text);
  snprintf(text, sizeof text,
           "%u layers, %u wide; %u sequences of %u tokens; footprint %s; medians of %u round%s%s",
           info->layers, info->width, info->batch, info->seq,
           mr_size_format(pressure->footprint_bytes, &footprint), rounds, rounds == 1 ? "" : "s",
           pressure->interrupted ? ", interrupted" : "");
  svg_text(&plot->svg, "faint", (struct svg_point){LEFT, 56}, text);
  if (pressure_others_share(pressure) > 0) {
    snprintf(text, sizeof text, "disturbed: others had up to %.0f %% of the processors",
             100 * pressure_others_share(pressure));
    svg_text(&plot->svg, "faint", (struct svg_point){LEFT, 74}, text);
  }
}

static void plot_init(struct plot *plot, const struct pressure *pressure) {
  *plot = (struct plot){.pressure = pressure};
  uint32_t at = 0;
  for (const struct pressure_row *row = pressure_next_row(pressure, false, &at); row != NULL;
       row = pressure_next_row(pressure, false, &at)) {
    MR_ASSERT(plot->count < MAX_POINTS);
    plot->rows[plot->count++] = row;
  }
  plot->smallest_bytes = (double)pressure_row_bytes(pressure, plot->rows[plot->count - 1]);
}

mr_status pressure_plot(const struct pressure *pressure, char **svg_out) {
  struct plot plot;
  plot_init(&plot, pressure);
  bool bars =
      pressure->kind_count > 1 && plot.count > 1 && pressure->rows[0].state == PRESSURE_MEASURED;
  double height = bars ? BARS_TOP + BARS_HEIGHT + 50 : GAPS_TOP + GAPS_HEIGHT + 70;
  svg_begin(&plot.svg, WIDTH, height, "Step time and placement of bytes against the device budget",
            style);
  draw_title(&plot);
  if (most_seconds(&plot) > 0) {
    draw_times(&plot);
    draw_gaps(&plot);
    if (bars) {
      draw_bars(&plot);
    }
  } else {
    svg_text(&plot.svg, "", (struct svg_point){LEFT, TIME_TOP}, "nothing was measured");
  }
  return svg_finish(&plot.svg, svg_out);
}
