/* SPDX-License-Identifier: Apache-2.0 */
/* The cut bound: the least time that one cut leaves, then windows between two. */
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "plan/problem/cut.h"
#include "plan/problem/parts.h"

/* Halvings of an interval of times; 2^-45 of it is far below what the files can carry. */
#define BISECTIONS 45
/* Narrowings of the interval of a cut's time by a third each. */
#define TERNARY_STEPS 70
/* Cuts are taken in rounds, at segments so far apart. */
static const int32_t cut_strides[] = {64, 8, 1};
/* Rounds after which a window's sides are taken as they are, and windows that are tried. */
#define FIXPOINT_ROUNDS 8
#define WINDOW_ROUNDS   6
#define LITTLE_LONGER   1e-6
/* What the searches may leave open, taken off the result. They end far within it, because each
 * begins with an interval that is at most four times as long as what it looks for. */
#define SEARCH_ERROR 1e-9

/* The least time after the cut where `before` seconds have passed; at most `most`, or INFINITY. */
static double least_after(struct mr_problem_cutter *cutter, double before, double most) {
  double low = cutter->cut.work_after;
  if (low > most || !mr_problem_cut_can_do(cutter, before, most)) {
    return INFINITY;
  }
  if (mr_problem_cut_can_do(cutter, before, low)) {
    return low;
  }
  double high = most;
  for (int i = 0; i < BISECTIONS; i++) {
    double middle = low + (high - low) / 2;
    if (mr_problem_cut_can_do(cutter, before, middle)) {
      high = middle;
    } else {
      low = middle;
    }
  }
  return low;
}

/* A time that is enough on either side of the cut: less than twice the least, or at most `best`;
 * INFINITY where `serial`, in which everything can be done, is not enough. */
static double enough_seconds(struct mr_problem_cutter *cutter, double best, double serial) {
  double enough = serial;
  if (!mr_problem_cut_can_do(cutter, enough, enough)) {
    return INFINITY;
  }
  while (enough > best && mr_problem_cut_can_do(cutter, enough / 2, enough / 2)) {
    enough /= 2;
  }
  return enough;
}

/*
 * The least time by the present cut; 0 where it is not above `best`. Both sides' times are wanted;
 * the pairs that can do form a convex set, so their least sum is found by a search in one of them.
 */
static double cut_seconds(struct mr_problem_cutter *cutter, double best, double serial) {
  double low = cutter->cut.work_before;
  if (mr_problem_cut_can_do(cutter, low, best - low)) {
    return 0;
  }
  double enough = enough_seconds(cutter, best, serial);
  /* Neither side of the least pair has more than both have in a pair that can do. */
  double most =
      2 * mr_max_double(enough, mr_max_double(cutter->cut.work_before, cutter->cut.work_after));
  double high = most;
  if (most == INFINITY) {
    return 0;
  }
  double least = INFINITY;
  for (int i = 0; i < TERNARY_STEPS; i++) {
    double left = low + (high - low) / 3;
    double right = high - (high - low) / 3;
    double left_seconds = left + least_after(cutter, left, most);
    double right_seconds = right + least_after(cutter, right, most);
    least = mr_min_double(least, mr_min_double(left_seconds, right_seconds));
    if (least <= best) {
      return 0;
    }
    if (left_seconds <= right_seconds && left_seconds < INFINITY) {
      high = right;
    } else {
      low = left;
    }
  }
  return least < INFINITY ? least * (1 - SEARCH_ERROR) : 0;
}

/*
 * The least time before the cut where the whole takes `seconds`: what is infeasible stays so, so
 * each round starts from the last one's result with less time after the cut, and whenever it ends
 * the result is not too large.
 */
static double least_before(struct mr_problem_cutter *cutter, double seconds) {
  double least = cutter->cut.work_before;
  for (int round = 0; round < FIXPOINT_ROUNDS; round++) {
    double after = seconds - least;
    double high = seconds - cutter->cut.work_after;
    if (high <= least || mr_problem_cut_can_do(cutter, least, after)) {
      break;
    }
    if (!mr_problem_cut_can_do(cutter, high, after)) {
      return high; /* the whole is too short for this cut alone */
    }
    for (int i = 0; i < BISECTIONS; i++) {
      double middle = least + (high - least) / 2;
      *(mr_problem_cut_can_do(cutter, middle, after) ? &high : &least) = middle;
    }
  }
  return least;
}

/* The same after the cut. */
static double least_after_within(struct mr_problem_cutter *cutter, double seconds) {
  double least = cutter->cut.work_after;
  for (int round = 0; round < FIXPOINT_ROUNDS; round++) {
    double before = seconds - least;
    double high = seconds - cutter->cut.work_before;
    if (high <= least || mr_problem_cut_can_do(cutter, before, least)) {
      break;
    }
    if (!mr_problem_cut_can_do(cutter, before, high)) {
      return high;
    }
    for (int i = 0; i < BISECTIONS; i++) {
      double middle = least + (high - least) / 2;
      *(mr_problem_cut_can_do(cutter, before, middle) ? &high : &least) = middle;
    }
  }
  return least;
}

/* The more of `enough` and what the present cut asks for; that takes long to find, and mostly it is
 * less. */
static double start_by_cut(struct mr_problem_cutter *cutter, double seconds, double enough) {
  bool is_enough =
      enough >= cutter->cut.work_before && mr_problem_cut_can_do(cutter, enough, seconds - enough);
  return is_enough ? enough : mr_max_double(enough, least_before(cutter, seconds));
}

/* The same after the cut. */
static double end_by_cut(struct mr_problem_cutter *cutter, double seconds, double enough) {
  bool is_enough =
      enough >= cutter->cut.work_after && mr_problem_cut_can_do(cutter, seconds - enough, enough);
  return is_enough ? enough : mr_max_double(enough, least_after_within(cutter, seconds));
}

static bool lasts(const struct mr_problem_cutter *cutter, int32_t k) {
  return cutter->problem->compute_seconds[k] >= MR_PROBLEM_SHORTEST_SEGMENT_SECONDS;
}

/* Seconds before segment k can start in a schedule of `seconds`; `enough` where it is not more. */
static double start_seconds(struct mr_problem_cutter *cutter, int32_t k, double seconds,
                            double enough) {
  double least = mr_max_double(enough, cutter->clock[k]);
  if (lasts(cutter, k)) {
    mr_problem_cut_at(cutter, k, MR_MOMENT_DURING);
    least = start_by_cut(cutter, seconds, least);
  }
  if (k > 0) {
    mr_problem_cut_at(cutter, k, MR_MOMENT_BEFORE);
    least = start_by_cut(cutter, seconds, least);
  }
  return least;
}

/* Seconds after the end of segment k, or after the next one's start; `enough` where they are not
 * more. */
static double end_seconds(struct mr_problem_cutter *cutter, int32_t k, double seconds,
                          double enough) {
  int32_t count = cutter->problem->segment_count;
  double least = mr_max_double(enough, cutter->clock[count] - cutter->clock[k + 1]);
  if (lasts(cutter, k)) {
    mr_problem_cut_at(cutter, k, MR_MOMENT_DURING);
    cutter->cut.work_before += cutter->problem->compute_seconds[k];
    cutter->cut.work_after -= cutter->problem->compute_seconds[k];
    least = end_by_cut(cutter, seconds, least);
  }
  if (k + 1 < count) {
    mr_problem_cut_at(cutter, k + 1, MR_MOMENT_BEFORE);
    least = end_by_cut(cutter, seconds, least);
  }
  return least;
}

struct window {
  int32_t first;
  int32_t last;
  double seconds; /* of a schedule: before the window, its compute, and after it */
};

/* The window that asks for most in a schedule of `seconds`. */
static struct window find_window(struct mr_problem_cutter *cutter, double seconds) {
  struct window best = {0, 0, 0};
  double most_before = -INFINITY; /* beyond the compute before `first` */
  int32_t first = 0;
  for (int32_t k = 0; k < cutter->problem->segment_count; k++) {
    double known = most_before + cutter->clock[k];
    double before = start_seconds(cutter, k, seconds, known);
    if (before > known) {
      most_before = before - cutter->clock[k];
      first = k;
    }
    double rest = most_before + cutter->clock[k + 1];
    known = best.seconds - rest;
    double after = end_seconds(cutter, k, seconds, known);
    if (after > known) {
      best = (struct window){first, k, rest + after};
    }
  }
  return best;
}

/* The least time of one window, found by halving; at least `best`. */
static double one_window_seconds(struct mr_problem_cutter *cutter, const struct window *window,
                                 double best) {
  double inside = cutter->clock[window->last + 1] - cutter->clock[window->first];
  double high = window->seconds;
  for (int i = 0; i < BISECTIONS; i++) {
    double middle = best + (high - best) / 2;
    double all = start_seconds(cutter, window->first, middle, 0) + inside +
                 end_seconds(cutter, window->last, middle, 0);
    *(all > middle ? &best : &high) = middle;
  }
  return best;
}

/* Raises the bound from `best` by windows. Where a schedule of that time is just too short for a
 * cut, which then seems to ask for all of it, windows that tell more are seen in one that takes a
 * little longer. */
static double window_seconds(struct mr_problem_cutter *cutter, double best) {
  int vain = 0;
  for (int round = 0; round < WINDOW_ROUNDS && vain < 2; round++) {
    double looked_at = vain == 0 ? best : best * (1 + LITTLE_LONGER);
    struct window window = find_window(cutter, looked_at);
    double before = best;
    if (window.seconds > looked_at * (1 + SEARCH_ERROR)) {
      best = one_window_seconds(cutter, &window, best);
    }
    vain = best > before * (1 + SEARCH_ERROR) ? 0 : vain + 1;
  }
  return best * (1 - SEARCH_ERROR);
}

/* What one link must carry whatever is decided: gradients once they are made, weights before they
 * are needed. */
static double mandatory_seconds(const struct mr_problem_cutter *cutter) {
  const struct mr_problem *problem = cutter->problem;
  const struct mr_problem_index *index = cutter->index;
  const double *clock = cutter->clock;
  const double *rate = problem->link_bytes_per_second;
  double whole = clock[problem->segment_count];
  double best = whole;
  double bytes = 0;
  for (int32_t i = problem->tensor_count - 1; i >= 0; i--) {
    const struct mr_problem_tensor *t = &problem->tensors[index->by_birth[i]];
    if (t->end) {
      bytes += t->bytes;
      best = mr_max_double(best, clock[t->p + 1] + bytes / rate[MR_PROBLEM_OUT]);
    }
  }
  bytes = 0;
  for (int32_t i = 0; i < problem->tensor_count; i++) {
    const struct mr_problem_tensor *t = &problem->tensors[index->by_need[i]];
    if (t->start && !t->end) {
      bytes += t->bytes;
      best = mr_max_double(best, bytes / rate[MR_PROBLEM_IN] + whole - clock[t->g]);
    }
  }
  return best;
}

/* A tensor that can be made again, and what a byte of it costs then. */
struct again {
  double bytes, seconds;
};

static int compare_price(const void *left, const void *right) {
  const struct again *a = left;
  const struct again *b = right;
  double x = a->seconds * b->bytes;
  double y = b->seconds * a->bytes;
  if (x != y) {
    return x < y ? -1 : 1;
  }
  return (a->bytes > b->bytes) - (a->bytes < b->bytes); /* sums have one order */
}

/* The least seconds in which so many bytes are made again; the cheapest first. */
static double cheapest_seconds(struct again *list, int32_t count, double bytes) {
  double seconds = 0;
  qsort(list, (size_t)count, sizeof *list, compare_price);
  for (int32_t i = 0; i < count && bytes > 0; i++) {
    seconds += list[i].seconds * mr_min_double(1, bytes / list[i].bytes);
    bytes -= list[i].bytes;
  }
  return seconds;
}

/* Of the tensors in `order`, those that one segment makes, or needs, are on the device together
 * when it ends, or starts, but for what is made again: moves take time. Seconds that this takes at
 * least, over all segments; `list` has room for all tensors. */
static double crowded_seconds(const struct mr_problem_cutter *cutter, const int32_t *order,
                              bool needs, struct again *list) {
  const struct mr_problem *problem = cutter->problem;
  double seconds = 0;
  int32_t next = 0;
  for (int32_t i = 0; i < problem->tensor_count; i = next) {
    const struct mr_problem_tensor *first = &problem->tensors[order[i]];
    int32_t segment = needs ? first->g : first->p;
    int32_t count = 0;
    double bytes = 0;
    for (next = i; next < problem->tensor_count; next++) {
      const struct mr_problem_tensor *t = &problem->tensors[order[next]];
      if ((needs ? t->g : t->p) != segment) break;
      bool lives =
          cutter->clock[t->g] - cutter->clock[t->p + 1] >= MR_PROBLEM_SHORTEST_SEGMENT_SECONDS;
      if (!lives || !cutter->index->free_choice[order[next]] || (t->clean && !needs)) continue;
      bytes += t->bytes;
      if (t->bytes > 0 && t->g < problem->segment_count &&
          t->recompute_seconds < MR_PROBLEM_NO_RECOMPUTE) {
        list[count++] = (struct again){t->bytes, t->recompute_seconds};
      }
    }
    seconds += cheapest_seconds(list, count, bytes - mr_problem_limit(problem->device_bytes));
  }
  return seconds;
}

/* What must be made again, beside all segments. */
static mr_status again_seconds(const struct mr_problem_cutter *cutter, double *seconds_out) {
  const struct mr_problem_index *index = cutter->index;
  struct again *list = mr_allocate((uint64_t)cutter->problem->tensor_count, sizeof *list);
  if (list == NULL) {
    return MR_NO_MEMORY;
  }
  *seconds_out = cutter->clock[cutter->problem->segment_count] +
                 mr_max_double(crowded_seconds(cutter, index->by_birth, false, list),
                               crowded_seconds(cutter, index->by_need, true, list));
  free(list);
  return MR_OK;
}

/* A time that is enough for any problem that fits: everything, one thing after the other. */
static double serial_seconds(const struct mr_problem_cutter *cutter) {
  const struct mr_problem *problem = cutter->problem;
  double seconds = cutter->clock[problem->segment_count];
  for (int32_t v = 0; v < problem->tensor_count; v++) {
    for (int link = 0; link < MR_PROBLEM_LINK_COUNT; link++) {
      seconds += problem->tensors[v].bytes / problem->link_bytes_per_second[link];
    }
  }
  return seconds;
}

/* The smallest size among tensors that may go by way of NVMe. */
static double smallest_bytes(const struct mr_problem *problem) {
  double bytes = INFINITY;
  for (int32_t v = 0; v < problem->tensor_count; v++) {
    const struct mr_problem_tensor *t = &problem->tensors[v];
    if (!mr_problem_tensor_is_fixed(t) && !t->clean) {
      bytes = mr_min_double(bytes, t->bytes);
    }
  }
  return bytes;
}

/* The least time by single cuts at all segments; at least `best`. Only a cut that tells more than
 * all before it takes long, so a few that are far apart come first. */
static double single_seconds(struct mr_problem_cutter *cutter, double best) {
  double serial = serial_seconds(cutter);
  for (size_t i = 0; i < MR_COUNT_OF(cut_strides); i++) {
    for (int32_t k = 0; k < cutter->problem->segment_count; k += cut_strides[i]) {
      if (lasts(cutter, k)) {
        mr_problem_cut_at(cutter, k, MR_MOMENT_DURING);
        best = mr_max_double(best, cut_seconds(cutter, best, serial));
      }
      if (k > 0) {
        mr_problem_cut_at(cutter, k, MR_MOMENT_BEFORE);
        best = mr_max_double(best, cut_seconds(cutter, best, serial));
      }
    }
  }
  return best;
}

/* The bound by single cuts and windows. */
static mr_status bound_whole(const struct mr_problem *problem, double *seconds_out) {
  struct mr_problem_cutter cutter;
  mr_status status = mr_problem_cutter_init(&cutter, problem);
  if (status != MR_OK) {
    return status;
  }
  cutter.smallest_bytes = smallest_bytes(problem);
  double again = 0;
  status = again_seconds(&cutter, &again);
  if (status == MR_OK) {
    double best = mr_max_double(again, mandatory_seconds(&cutter));
    best = single_seconds(&cutter, best);
    *seconds_out = mr_max_double(best, window_seconds(&cutter, best));
  }
  mr_problem_cutter_fini(&cutter);
  return status;
}

/* The part by which sums of times and bytes, here and in a schedule, may differ by rounding. */
static double sum_error(const struct mr_problem *problem) {
  return 4 * DBL_EPSILON * ((double)problem->segment_count + (double)problem->tensor_count);
}

mr_status mr_problem_bound_cut(const struct mr_problem *problem, double *seconds_out) {
  struct mr_problem_parts *parts = NULL;
  double whole_seconds = 0;
  mr_status status = bound_whole(problem, &whole_seconds);
  if (status == MR_OK) {
    status = mr_problem_parts_create(problem, &parts);
  }
  double sum_seconds = 0;
  for (int32_t i = 0; status == MR_OK && parts->count > 1 && i < parts->count; i++) {
    double part_seconds = 0;
    mr_problem_parts_take(parts, i, false);
    status = bound_whole(&parts->part, &part_seconds);
    sum_seconds += part_seconds;
  }
  if (status == MR_OK) {
    *seconds_out = mr_max_double(whole_seconds, sum_seconds) * (1 - sum_error(problem));
  }
  mr_problem_parts_destroy(parts);
  return status;
}
