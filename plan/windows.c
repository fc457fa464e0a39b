/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes over rates, summed over the windows of the best cut of a step. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "plan/bound.h"
#include "plan/dual.h"
#include "plan/host.h"
#include "plan/rates.h"

static double over(double bytes, double rate) {
  return bytes > 0 && rate > 0 ? bytes / rate : 0;
}

/* Seconds for so many bytes to come in and go out in one window. */
static double passing_seconds(const struct mr_rates *rates, double in, double out) {
  in = mr_max_double(in, 0);
  out = mr_max_double(out, 0);
  double seconds = mr_max_double(over(in, rates->all_in), over(out, rates->all_out));
  double deep_in = mr_max_double(in - rates->host_bytes, 0);
  double deep_out = mr_max_double(out - rates->host_bytes, 0);
  for (uint32_t i = 0; i < rates->face_count; i++) {
    const struct mr_drive_face *face = &rates->faces[i];
    /* In t seconds at most t times the host's rates pass beside the drive. */
    double beside = 1 + face->read * (in > 0 ? rates->to_device : 0) +
                    face->write * (out > 0 ? rates->to_host : 0);
    seconds = mr_max_double(seconds, (face->read * in + face->write * out) / beside);
    seconds = mr_max_double(seconds, face->read * deep_in + face->write * deep_out);
  }
  return seconds;
}

/* Seconds for ops that take so long alone, while so many bytes come in and go out. */
static double working_seconds(const struct mr_rates *rates, double ops, double in, double out) {
  double deep =
      mr_max_double(in - rates->host_bytes, 0) + mr_max_double(out - rates->host_bytes, 0);
  return ops + rates->loss * deep;
}

static double total_seconds(const struct mr_bound *bound, const struct mr_rates *rates,
                            double device) {
  double ops = bound->clock[bound->cut_count];
  double seconds = 0;
  for (uint32_t k = 0; k < bound->problem->program->op_count; k++) {
    double in = bound->live_bytes[k] - device;
    double out = in - bound->constant_bytes[k];
    if (in > 0) {
      seconds = mr_max_double(seconds, passing_seconds(rates, in, out));
      seconds = mr_max_double(seconds, passing_seconds(rates, in, 0));
      seconds = mr_max_double(seconds, working_seconds(rates, ops, in, out));
    }
  }
  return seconds;
}

/* A window: from a cut to the d-th after it. */
struct window {
  double ops_seconds;
  double first_seconds, last_seconds; /* of its ops */
  double in_bytes, out_bytes;         /* that must pass; below 0: so much more room there is */
};

static struct window window_of(const struct mr_bound *bound, double device, uint32_t cut,
                               uint32_t d) {
  uint32_t count = bound->cut_count;
  uint32_t end = (cut + d) % count;
  double turn = cut + d >= count ? bound->clock[count] : 0;
  return (struct window){
      .ops_seconds = bound->clock[end] - bound->clock[cut] + turn,
      .first_seconds = bound->first_seconds[cut],
      .last_seconds = bound->last_seconds[end],
      .in_bytes = bound->in_bytes[(size_t)cut * (count + 1) + d] + bound->held_bytes[cut] - device,
      .out_bytes =
          bound->out_bytes[(size_t)end * (count + 1) + d] + bound->held_bytes[end] - device,
  };
}

static double window_seconds(const struct mr_rates *rates, const struct window *window) {
  double in = window->in_bytes;
  double out = window->out_bytes;
  double seconds = mr_max_double(working_seconds(rates, window->ops_seconds, in, out),
                                 passing_seconds(rates, in, out));
  if (in > 0) {
    seconds = mr_max_double(seconds, passing_seconds(rates, in, 0) + window->last_seconds);
  }
  if (out > 0) {
    seconds = mr_max_double(seconds, passing_seconds(rates, 0, out) + window->first_seconds);
  }
  return seconds;
}

/* A window lasts at least so long, and so much longer for each byte more that goes out. */
struct line {
  double seconds, seconds_per_byte;
};

#define MOST_LINES (4 * MR_DRIVE_FACES + 2)

static void add_line(struct line *lines, uint32_t *count, double seconds, double seconds_per_byte) {
  lines[(*count)++] = (struct line){seconds, seconds_per_byte};
}

/* The parts of passing_seconds() and working_seconds() that grow with what goes out. */
static uint32_t list_lines(const struct mr_rates *rates, const struct window *window,
                           struct line *lines) {
  uint32_t count = 0;
  double in = mr_max_double(window->in_bytes, 0);
  double out = window->out_bytes;
  if (rates->all_out > 0) {
    add_line(lines, &count, out / rates->all_out + window->first_seconds, 1 / rates->all_out);
  }
  if (rates->read == 0) {
    return count;
  }
  double deep_in = mr_max_double(in - rates->host_bytes, 0);
  double deep_out = out - rates->host_bytes;
  for (uint32_t i = 0; i < rates->face_count; i++) {
    const struct mr_drive_face *face = &rates->faces[i];
    double alone = 1 + face->write * rates->to_host;
    double beside = alone + face->read * (in > 0 ? rates->to_device : 0);
    add_line(lines, &count, (face->read * in + face->write * out) / beside, face->write / beside);
    add_line(lines, &count, face->read * deep_in + face->write * deep_out, face->write);
    add_line(lines, &count, face->write * out / alone + window->first_seconds, face->write / alone);
    add_line(lines, &count, face->write * deep_out + window->first_seconds, face->write);
  }
  add_line(lines, &count, window->ops_seconds + rates->loss * (deep_in + deep_out), rates->loss);
  MR_ASSERT(count <= MOST_LINES);
  return count;
}

/* What holds for all windows of a bound under one device budget. */
struct measure {
  const struct mr_bound *bound;
  struct mr_rates rates;
  double device_bytes;
  double *windows; /* [cut * (cut_count + 1) + d] */
};

static double *window_at(const struct measure *measure, uint32_t cut, uint32_t d) {
  return &measure->windows[(size_t)cut * (measure->bound->cut_count + 1) + d];
}

/* Two windows with a cut between them, of which the first begins d cuts before it: see ransom.h.
 * behind[e]: what the second takes at least, were nothing run again in it, to the e-th cut on. */
static void ransom_window(const struct measure *measure, uint32_t cut, uint32_t d,
                          const double *behind) {
  const struct mr_bound *bound = measure->bound;
  uint32_t count = bound->cut_count;
  uint32_t from = (cut + count - d) % count;
  double bytes = mr_ransoms_bytes(&bound->ransoms, cut, d);
  struct window window = window_of(bound, measure->device_bytes, from, d);
  struct line lines[MOST_LINES];
  double least[MR_BOUND_CUTS + 1];
  uint32_t line_count = list_lines(&measure->rates, &window, lines);
  for (uint32_t i = 0; i < line_count; i++) {
    double most = lines[i].seconds + lines[i].seconds_per_byte * bytes;
    if (most <= *window_at(measure, from, d)) continue;
    mr_ransoms_least(&bound->ransoms, cut, d, lines[i].seconds_per_byte, count - d, least);
    for (uint32_t e = 1; e <= count - d; e++) {
      double *both = window_at(measure, from, d + e);
      *both = mr_max_double(*both, lines[i].seconds + least[e] + behind[e]);
    }
  }
}

/* Lengthens windows by what recompute must pay at a cut inside them. */
static void ransom_cut(const struct measure *measure, uint32_t cut) {
  const struct mr_bound *bound = measure->bound;
  double behind[MR_BOUND_CUTS + 1] = {0};
  for (uint32_t e = 1; e < bound->cut_count; e++) {
    struct window window = window_of(bound, measure->device_bytes, cut, e);
    behind[e] =
        working_seconds(&measure->rates, window.ops_seconds, window.in_bytes, window.out_bytes);
  }
  for (uint32_t d = 1; d < bound->cut_count; d++) {
    ransom_window(measure, cut, d, behind);
  }
}

static void measure_windows(const struct measure *measure) {
  const struct mr_bound *bound = measure->bound;
  for (uint32_t cut = 0; cut < bound->cut_count; cut++) {
    for (uint32_t d = 1; d <= bound->cut_count; d++) {
      struct window window = window_of(bound, measure->device_bytes, cut, d);
      *window_at(measure, cut, d) = window_seconds(&measure->rates, &window);
    }
  }
  for (uint32_t cut = 0; cut < bound->cut_count; cut++) {
    if (bound->ransoms.first[cut] < bound->ransoms.first[cut + 1]) {
      ransom_cut(measure, cut);
    }
  }
}

/* The longest sum of windows once round from the cut `start`, by cuts behind it that no start
 * before it looked at: so each way round is looked at once, from its first cut. reached[d] is the
 * longest to the d-th cut after it. */
static double longest_round(const double *windows, uint32_t count, uint32_t start,
                            double *reached) {
  uint32_t behind = count - start;
  memset(reached, 0, (behind + 1ull) * sizeof *reached);
  double longest = 0;
  for (uint32_t from = 0; from < behind; from++) {
    const double *row = &windows[(start + from) * (count + 1ull)];
    double before = reached[from];
    double *after = &reached[from];
    for (uint32_t d = 1; d < behind - from; d++) {
      after[d] = mr_max_double(after[d], before + row[d]);
    }
    longest = mr_max_double(longest, before + row[count - from]);
  }
  return longest;
}

mr_status mr_bound_seconds(const struct mr_bound *bound, const uint64_t budget_bytes[MR_TIER_COUNT],
                           double enough, double *seconds_out) {
  uint32_t count = bound->cut_count;
  struct measure measure = {.bound = bound,
                            .rates = mr_rates_under(bound->problem, budget_bytes),
                            .device_bytes = (double)budget_bytes[MR_TIER_DEVICE]};
  *seconds_out = total_seconds(bound, &measure.rates, measure.device_bytes);
  if (*seconds_out >= enough) {
    return MR_OK;
  }
  measure.windows = mr_allocate(count * (count + 1ull), sizeof *measure.windows);
  double *reached = mr_allocate(count + 1ull, sizeof *reached);
  bool failed = measure.windows == NULL || reached == NULL;
  if (!failed) {
    measure_windows(&measure);
    for (uint32_t start = 0; start < count && *seconds_out < enough; start++) {
      double seconds = longest_round(measure.windows, count, start, reached);
      *seconds_out = mr_max_double(*seconds_out, seconds);
    }
  }
  free(measure.windows);
  free(reached);
  return failed ? MR_NO_MEMORY : MR_OK;
}

/* What a bound looks at. */
struct view {
  uint64_t budget_bytes[MR_TIER_COUNT];
  struct mr_liveness liveness;
  bool pooled; /* the device budget is what device and host hold together */
};

/* All accesses, with the room of the host; none where that is not limited, or there is no NVMe. */
static mr_status view_pooled(struct view *view, const struct mr_plan_problem *problem,
                             bool *any_out) {
  const uint64_t *budget = problem->budget_bytes;
  *any_out = budget[MR_TIER_HOST] > 0 && budget[MR_TIER_NVME] > 0 &&
             budget[MR_TIER_HOST] < UINT64_MAX - budget[MR_TIER_DEVICE];
  if (!*any_out) {
    return MR_OK;
  }
  view->pooled = true;
  view->budget_bytes[MR_TIER_DEVICE] = budget[MR_TIER_DEVICE] + budget[MR_TIER_HOST];
  view->budget_bytes[MR_TIER_NVME] = budget[MR_TIER_NVME];
  /* Ops of a host that is apart need not run when the device comes to their place. */
  return problem->host_apart ? mr_host_liveness_needed(problem, &view->liveness)
                             : mr_liveness_init(&view->liveness, problem->program);
}

static mr_status bound_by_windows(const struct mr_plan_problem *problem, const struct view *view,
                                  double *seconds_out) {
  struct mr_bound bound;
  mr_status status = mr_bound_init(&bound, problem, &view->liveness, view->pooled);
  if (status == MR_OK) {
    status = mr_bound_seconds(&bound, view->budget_bytes, mr_bound_enough(problem), seconds_out);
    mr_bound_fini(&bound);
  }
  return status;
}

#define MOST_VIEWS 2u

/* The views of a problem. */
struct views {
  struct view of[MOST_VIEWS];
  uint32_t count;
};

static void views_fini(struct views *views) {
  for (uint32_t i = 0; i < MOST_VIEWS; i++) {
    mr_liveness_fini(&views->of[i].liveness);
  }
}

static mr_status views_init(struct views *views, const struct mr_plan_problem *problem) {
  bool pooled = false;
  *views = (struct views){.count = 1};
  memcpy(views->of[0].budget_bytes, problem->budget_bytes, sizeof views->of[0].budget_bytes);
  mr_status status = mr_host_liveness_needed(problem, &views->of[0].liveness);
  if (status == MR_OK) {
    status = view_pooled(&views->of[1], problem, &pooled);
  }
  views->count += pooled;
  if (status != MR_OK) {
    views_fini(views);
  }
  return status;
}

/* The highest by windows. */
static mr_status bound_by_views(const struct mr_plan_problem *problem, const struct views *views,
                                double *seconds_out) {
  double enough = mr_bound_enough(problem);
  mr_status status = MR_OK;
  *seconds_out = 0;
  for (uint32_t i = 0; i < views->count && status == MR_OK && *seconds_out < enough; i++) {
    double seconds = 0;
    if (!mr_bound_is_wanted(problem)) break;
    status = bound_by_windows(problem, &views->of[i], &seconds);
    *seconds_out = mr_max_double(*seconds_out, seconds);
  }
  return status;
}

/* The highest by prices, beyond what is known. The last view is priced first: where it tells more,
 * prices of the others are soon given up. */
static mr_status price_views(const struct mr_plan_problem *problem, const struct views *views,
                             double *seconds) {
  double enough = mr_bound_enough(problem);
  mr_status status = MR_OK;
  for (uint32_t i = views->count; i-- > 0 && status == MR_OK && *seconds < enough;) {
    const struct view *view = &views->of[i];
    double priced = 0;
    if (!mr_bound_is_wanted(problem)) break;
    status = mr_dual_seconds(problem, &view->liveness, view->budget_bytes, *seconds, &priced);
    *seconds = mr_max_double(*seconds, priced);
  }
  return status;
}

mr_status mr_program_plan_quick_bound(const struct mr_plan_problem *problem, double *seconds_out) {
  struct views views;
  mr_status status = views_init(&views, problem);
  if (status == MR_OK) {
    status = bound_by_views(problem, &views, seconds_out);
    views_fini(&views);
  }
  return status;
}

mr_status mr_program_plan_raise_bound(const struct mr_plan_problem *problem, double *seconds) {
  struct views views;
  mr_status status = views_init(&views, problem);
  if (status == MR_OK) {
    status = price_views(problem, &views, seconds);
    views_fini(&views);
  }
  return status;
}

mr_status mr_program_plan_bound(const struct mr_plan_problem *problem, double *seconds_out) {
  mr_status status = mr_program_plan_quick_bound(problem, seconds_out);
  return status == MR_OK ? mr_program_plan_raise_bound(problem, seconds_out) : status;
}
