/* SPDX-License-Identifier: Apache-2.0 */
/* What no schedule can beat, by given prices. lp.h has the proof. */
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "plan/problem/lp.h"

/* Roundings of one tensor's or one point's part, beside those of the sums over points. */
#define ROUNDINGS_EACH 16
/* Left out of each second, so that its shares do not come to more than 1 by rounding. */
#define SHARE_ROUNDING (16 * DBL_EPSILON)

/* The least that a byte born at one boundary pays, by the point before which it is needed. */
struct ways {
  double *keep;
  double *away;  /* out, and in again */
  double *fetch; /* in alone */
  double send;   /* out alone */
};

struct bound {
  const struct mr_lp_line *line;
  struct mr_lp_prices *prices; /* with shares of at most 1 */
  double *compute_share;       /* for each interval */
  struct ways ways;
  double *weight_fetch; /* as ways.fetch, for bytes that are on the host from the start */
  double gain_seconds;  /* sum of what is > 0 */
  double loss_seconds;  /* sum of what is < 0, without its sign */
};

static void set_shares(struct bound *bound, const struct mr_lp_prices *prices) {
  const struct mr_lp_line *line = bound->line;
  const double *rate = line->problem->link_bytes_per_second;
  for (int32_t j = 0; j <= line->point_count; j++) {
    double links = 0;
    for (int link = 0; link < MR_PROBLEM_LINK_COUNT; link++) {
      links += prices->link[link][j] * rate[link];
    }
    double scale = links > 1 - SHARE_ROUNDING ? (1 - SHARE_ROUNDING) / links : 1;
    for (int link = 0; link < MR_PROBLEM_LINK_COUNT; link++) {
      bound->prices->link[link][j] = prices->link[link][j] * scale;
    }
    bound->compute_share[j] = fmax(0, 1 - SHARE_ROUNDING - links);
  }
}

static void add_constant(struct bound *bound, const struct mr_lp_prices *prices) {
  const struct mr_lp_line *line = bound->line;
  const struct mr_problem *problem = line->problem;
  double device_bytes = mr_problem_limit(problem->device_bytes);
  double host_bytes = mr_problem_limit(problem->host_bytes);
  for (int32_t j = 0; j < line->point_count; j++) {
    bound->prices->device[j] = prices->device[j];
    bound->prices->host[j] = prices->host[j];
    bound->gain_seconds += prices->device[j] * problem->workset_bytes[line->segment[j]];
    bound->loss_seconds += prices->device[j] * device_bytes + prices->host[j] * host_bytes;
  }
  for (int32_t j = 0; j <= line->point_count; j++) {
    bound->gain_seconds += bound->compute_share[j] * line->work_seconds[j];
  }
}

/* Fills in the ways of a byte that is born before the points from `first` on. */
static void price_ways(struct bound *bound, int32_t first) {
  const struct mr_lp_prices *prices = bound->prices;
  struct ways *ways = &bound->ways;
  int32_t point_count = bound->line->point_count;
  double keep = 0;
  double away = INFINITY;
  double fetch = INFINITY;
  double rest = INFINITY; /* on the host */
  double sent = INFINITY; /* by way of NVMe: out, written, read */
  double written = INFINITY;
  double read = INFINITY;
  ways->send = INFINITY;
  for (int32_t j = first; j <= point_count; j++) {
    double out = keep + prices->link[MR_PROBLEM_OUT][j];
    double in = prices->link[MR_PROBLEM_IN][j];
    rest = fmin(rest, out);
    sent = fmin(sent, out);
    written = fmin(written, sent + prices->link[MR_PROBLEM_WRITE][j]);
    read = fmin(read, written + prices->link[MR_PROBLEM_READ][j]);
    ways->send = fmin(ways->send, out);
    ways->keep[j] = keep;
    ways->away[j] = away = fmin(away, fmin(rest, read) + in);
    ways->fetch[j] = fetch = fmin(fetch, in);
    if (j < point_count) {
      keep += prices->device[j];
      away += prices->device[j];
      fetch += prices->device[j];
      rest += prices->host[j];
    }
  }
}

/* The least that a tensor pays; the ways are those of its p. */
static double tensor_seconds(const struct bound *bound, const struct mr_problem_tensor *t) {
  const struct mr_lp_line *line = bound->line;
  int32_t needed = line->first_point[t->g];
  if (t->end) {
    return t->bytes * bound->ways.send;
  }
  if (t->start) {
    return t->bytes * bound->weight_fetch[needed];
  }
  if (t->p >= t->g) {
    return 0;
  }
  double away = (t->clean ? bound->ways.fetch : bound->ways.away)[needed];
  double seconds = t->bytes * fmin(bound->ways.keep[needed], away);
  if (t->g < line->problem->segment_count && t->recompute_seconds < MR_PROBLEM_NO_RECOMPUTE) {
    double share = bound->compute_share[line->interval[t->g]];
    seconds = fmin(seconds, t->recompute_seconds * share);
  }
  return seconds;
}

static void add_tensors(struct bound *bound) {
  const struct mr_lp_line *line = bound->line;
  const struct mr_problem_index *index = line->index;
  price_ways(bound, 0);
  for (int32_t j = 0; j <= line->point_count; j++) {
    bound->weight_fetch[j] = bound->ways.fetch[j];
  }
  for (int32_t boundary = 0; boundary <= line->problem->segment_count; boundary++) {
    int32_t begin = index->first_birth[boundary];
    int32_t end = index->first_birth[boundary + 1];
    if (begin < end) {
      price_ways(bound, line->first_point[boundary]);
    }
    for (int32_t i = begin; i < end; i++) {
      bound->gain_seconds += tensor_seconds(bound, &line->problem->tensors[index->by_birth[i]]);
    }
  }
}

/*
 * Gains and losses are sums of products of numbers that are not negative, so the roundings of one
 * term, at most a few for each point it passes, and of the sums take at most their number times
 * the unit of rounding of gains and losses together.
 */
static double rounding_seconds(const struct bound *bound) {
  double roundings = (double)bound->line->problem->tensor_count +
                     (double)bound->line->problem->segment_count +
                     (double)bound->line->point_count * ROUNDINGS_EACH + ROUNDINGS_EACH;
  return roundings * DBL_EPSILON * (bound->gain_seconds + bound->loss_seconds);
}

mr_status mr_lp_bound(const struct mr_lp_line *line, const struct mr_lp_prices *prices,
                      double *seconds_out) {
  uint64_t interval_count = (uint64_t)line->point_count + 1;
  struct bound bound = {.line = line};
  mr_status status = mr_lp_prices_create(line, &bound.prices);
  bound.compute_share = mr_allocate(interval_count, sizeof *bound.compute_share);
  bound.ways.keep = mr_allocate(interval_count, sizeof *bound.ways.keep);
  bound.ways.away = mr_allocate(interval_count, sizeof *bound.ways.away);
  bound.ways.fetch = mr_allocate(interval_count, sizeof *bound.ways.fetch);
  bound.weight_fetch = mr_allocate(interval_count, sizeof *bound.weight_fetch);
  if (status != MR_OK || bound.compute_share == NULL || bound.ways.keep == NULL ||
      bound.ways.away == NULL || bound.ways.fetch == NULL || bound.weight_fetch == NULL) {
    status = MR_NO_MEMORY;
    goto done;
  }
  set_shares(&bound, prices);
  add_constant(&bound, prices);
  add_tensors(&bound);
  *seconds_out = bound.gain_seconds - bound.loss_seconds - rounding_seconds(&bound);
done:
  mr_lp_prices_destroy(bound.prices);
  free(bound.compute_share);
  free(bound.ways.keep);
  free(bound.ways.away);
  free(bound.ways.fetch);
  free(bound.weight_fetch);
  return status;
}

void mr_lp_prices_destroy(struct mr_lp_prices *prices) {
  if (prices == NULL) {
    return;
  }
  for (int link = 0; link < MR_PROBLEM_LINK_COUNT; link++) {
    free(prices->link[link]);
  }
  free(prices->device);
  free(prices->host);
  free(prices);
}

mr_status mr_lp_prices_create(const struct mr_lp_line *line, struct mr_lp_prices **prices_out) {
  uint64_t point_count = (uint64_t)line->point_count;
  struct mr_lp_prices *prices = mr_allocate(1, sizeof *prices);
  if (prices == NULL) {
    return MR_NO_MEMORY;
  }
  prices->device = mr_allocate(point_count, sizeof *prices->device);
  prices->host = mr_allocate(point_count, sizeof *prices->host);
  bool complete = prices->device != NULL && prices->host != NULL;
  for (int link = 0; link < MR_PROBLEM_LINK_COUNT; link++) {
    prices->link[link] = mr_allocate(point_count + 1, sizeof *prices->link[link]);
    complete = complete && prices->link[link] != NULL;
  }
  if (!complete) {
    mr_lp_prices_destroy(prices);
    return MR_NO_MEMORY;
  }
  *prices_out = prices;
  return MR_OK;
}
