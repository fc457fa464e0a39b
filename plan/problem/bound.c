/* SPDX-License-Identifier: Apache-2.0 */
/* The cut bound: what no schedule can beat, from one moment at a time. problem.h has the proof. */
#include <math.h>
#include <stdlib.h>

#include "plan/problem/draft.h"

/* Halvings of an interval of times; 2^-45 of it is far below what the files can carry. */
#define BISECTIONS 45
/* Narrowings of the interval of a cut's time by a third each. */
#define TERNARY_STEPS 70
/* Rounds after which a window's sides are taken as they are, and windows that are tried. */
#define FIXPOINT_ROUNDS 8
#define WINDOW_ROUNDS   4
/* What the two searches may leave open, taken off the result. */
#define SEARCH_ERROR 1e-9
/* Segments this short may be over before their working set counts: no cut there. */
#define SHORTEST_SEGMENT_SECONDS 1e-6

/* One menu of recompute: making `bytes` again costs `seconds`, cheapest byte first. */
struct menu_entry {
  double bytes;
  double seconds;
  int32_t tensor;
};

struct cut {
  double work_before; /* compute seconds before the cut */
  double work_after;
  double needed_bytes; /* that must be away from the device */
  double ordinary_bytes;
  double clean_bytes;
  double gradient_bytes; /* made before the cut */
  double gradient_total_bytes;
  double weight_before_bytes; /* that must have come in before the cut */
  double weight_after_bytes;
  double first_out_seconds; /* no byte that counts here can leave earlier */
  double last_in_seconds;   /* from the latest arrival to the end of all segments */
  int32_t menu_count;
  double *menu_bytes; /* prefix sums: menu_count + 1 entries */
  double *menu_seconds;
};

struct bound {
  const struct mr_problem *problem;
  struct menu_entry *menu; /* of all tensors, by seconds per byte */
  int32_t menu_count;
  double *clock; /* compute seconds before each segment; segment_count + 1 entries */
  struct cut cut;
};

static int compare_menu(const void *left, const void *right) {
  const struct menu_entry *a = left;
  const struct menu_entry *b = right;
  double x = a->seconds * b->bytes;
  double y = b->seconds * a->bytes;
  if (x != y) {
    return x < y ? -1 : 1;
  }
  return (a->tensor > b->tensor) - (a->tensor < b->tensor);
}

/* Bytes that at most `seconds` of recompute bring: a continuous knapsack, so never too few. */
static double recompute_bytes(const struct cut *cut, double seconds) {
  int32_t low = 0;
  int32_t high = cut->menu_count;
  while (low < high) {
    int32_t middle = low + (high - low + 1) / 2;
    if (cut->menu_seconds[middle] <= seconds) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  double bytes = cut->menu_bytes[low];
  if (low < cut->menu_count) {
    double step = cut->menu_seconds[low + 1] - cut->menu_seconds[low];
    bytes += (cut->menu_bytes[low + 1] - bytes) * ((seconds - cut->menu_seconds[low]) / step);
  }
  return bytes;
}

/* Whether `before` seconds up to the cut and `after` seconds from it can be enough. */
static bool can_do(const struct bound *bound, double before, double after) {
  const struct cut *cut = &bound->cut;
  const double *rate = bound->problem->link_bytes_per_second;
  double in_bytes =
      rate[MR_PROBLEM_IN] * fmax(0, after - cut->last_in_seconds) - cut->weight_after_bytes;
  double early_weight_bytes =
      fmax(0, -in_bytes); /* weights that came before the cut, and lie there */
  if (early_weight_bytes + cut->weight_before_bytes > rate[MR_PROBLEM_IN] * before) {
    return false;
  }
  in_bytes = fmax(0, in_bytes);
  double out_bytes = rate[MR_PROBLEM_OUT] * fmax(0, before - cut->first_out_seconds);
  double gradient_bytes = fmin(cut->gradient_bytes, out_bytes);
  if (cut->gradient_total_bytes - gradient_bytes > rate[MR_PROBLEM_OUT] * after) {
    return false;
  }
  double clean_bytes = fmin(cut->clean_bytes, in_bytes);
  double slowest = fmin(rate[MR_PROBLEM_WRITE], rate[MR_PROBLEM_READ]);
  double nvme_bytes =
      slowest * fmax(0, before + after - cut->first_out_seconds - cut->last_in_seconds);
  double ordinary_bytes = fmin(fmin(in_bytes - clean_bytes, out_bytes - gradient_bytes),
                               fmin(cut->ordinary_bytes, bound->problem->host_bytes + nvme_bytes));
  double again_bytes = recompute_bytes(cut, after - cut->work_after);
  return gradient_bytes + clean_bytes + ordinary_bytes + again_bytes >=
         cut->needed_bytes + early_weight_bytes;
}

/* The least time after the cut where `before` seconds have passed; at most `most`, or INFINITY. */
static double least_after(const struct bound *bound, double before, double most) {
  double low = bound->cut.work_after;
  if (low > most || !can_do(bound, before, most)) {
    return INFINITY;
  }
  if (can_do(bound, before, low)) {
    return low;
  }
  double high = most;
  for (int i = 0; i < BISECTIONS; i++) {
    double middle = low + (high - low) / 2;
    if (can_do(bound, before, middle)) {
      high = middle;
    } else {
      low = middle;
    }
  }
  return low;
}

/* The menu of the tensors that lie across the cut, as prefix sums. */
static void build_menu(struct bound *bound, int32_t k) {
  struct cut *cut = &bound->cut;
  cut->menu_count = 0;
  for (int32_t i = 0; i < bound->menu_count; i++) {
    const struct menu_entry *entry = &bound->menu[i];
    const struct mr_problem_tensor *t = &bound->problem->tensors[entry->tensor];
    if (t->p < k && t->g > k) {
      int32_t at = cut->menu_count++;
      cut->menu_bytes[at + 1] = cut->menu_bytes[at] + entry->bytes;
      cut->menu_seconds[at + 1] = cut->menu_seconds[at] + entry->seconds;
    }
  }
}

static void add_to_cut(struct cut *cut, const struct mr_problem_tensor *t, int32_t k,
                       const double *clock, double whole) {
  if (t->end) {
    cut->gradient_total_bytes += t->bytes;
    if (t->p < k) {
      cut->gradient_bytes += t->bytes;
      cut->first_out_seconds = fmin(cut->first_out_seconds, clock[t->p + 1]);
    }
    return;
  }
  if (t->start) {
    *(t->g <= k ? &cut->weight_before_bytes : &cut->weight_after_bytes) += t->bytes;
  } else if (t->p < k && t->g > k) {
    *(t->clean ? &cut->clean_bytes : &cut->ordinary_bytes) += t->bytes;
    if (!t->clean) {
      cut->first_out_seconds = fmin(cut->first_out_seconds, clock[t->p + 1]);
    }
  } else {
    return;
  }
  if (t->g > k) {
    cut->last_in_seconds = fmin(cut->last_in_seconds, whole - clock[t->g]);
  }
}

static void build_cut(struct bound *bound, int32_t k) {
  const struct mr_problem *problem = bound->problem;
  double whole = bound->clock[problem->segment_count];
  bound->cut = (struct cut){.work_before = bound->clock[k],
                            .work_after = whole - bound->clock[k],
                            .first_out_seconds = bound->clock[k],
                            .last_in_seconds = whole - bound->clock[k],
                            .menu_bytes = bound->cut.menu_bytes,
                            .menu_seconds = bound->cut.menu_seconds};
  for (int32_t v = 0; v < problem->tensor_count; v++) {
    add_to_cut(&bound->cut, &problem->tensors[v], k, bound->clock, whole);
  }
  bound->cut.needed_bytes = bound->cut.ordinary_bytes + bound->cut.clean_bytes +
                            bound->cut.gradient_bytes + problem->workset_bytes[k] -
                            mr_problem_limit(problem->device_bytes);
  build_menu(bound, k);
}

/*
 * The least time by the present cut; 0 where it is not above `best`. Both sides' times are wanted;
 * the pairs that can do form a convex set, so their least sum is found by a search in one of them.
 */
static double cut_seconds(const struct bound *bound, double best, double most) {
  double low = bound->cut.work_before;
  double high = most;
  if (low + least_after(bound, low, most) <= best) {
    return 0;
  }
  double least = INFINITY;
  for (int i = 0; i < TERNARY_STEPS; i++) {
    double left = low + (high - low) / 3;
    double right = high - (high - low) / 3;
    double left_seconds = left + least_after(bound, left, most);
    double right_seconds = right + least_after(bound, right, most);
    least = fmin(least, fmin(left_seconds, right_seconds));
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
static double least_before(const struct bound *bound, double seconds) {
  double least = bound->cut.work_before;
  for (int round = 0; round < FIXPOINT_ROUNDS; round++) {
    double after = seconds - least;
    double high = seconds - bound->cut.work_after;
    if (high <= least || can_do(bound, least, after)) {
      break;
    }
    if (!can_do(bound, high, after)) {
      return high; /* the whole is too short for this cut alone */
    }
    for (int i = 0; i < BISECTIONS; i++) {
      double middle = least + (high - least) / 2;
      *(can_do(bound, middle, after) ? &high : &least) = middle;
    }
  }
  return least;
}

/* The same after the cut. */
static double least_after_within(const struct bound *bound, double seconds) {
  double least = bound->cut.work_after;
  for (int round = 0; round < FIXPOINT_ROUNDS; round++) {
    double before = seconds - least;
    double high = seconds - bound->cut.work_before;
    if (high <= least || can_do(bound, before, least)) {
      break;
    }
    if (!can_do(bound, before, high)) {
      return high;
    }
    for (int i = 0; i < BISECTIONS; i++) {
      double middle = least + (high - least) / 2;
      *(can_do(bound, before, middle) ? &high : &least) = middle;
    }
  }
  return least;
}

/* Seconds before segment k can start, and after its end, in a schedule of `seconds`. */
static double start_seconds(struct bound *bound, int32_t k, double seconds) {
  build_cut(bound, k);
  return least_before(bound, seconds);
}

static double end_seconds(struct bound *bound, int32_t k, double seconds) {
  build_cut(bound, k);
  bound->cut.work_before += bound->problem->compute_seconds[k];
  bound->cut.work_after -= bound->problem->compute_seconds[k];
  return least_after_within(bound, seconds);
}

struct window {
  int32_t first;
  int32_t last;
  double seconds; /* of a schedule: before the window, its compute, and after it */
};

/* The window that asks for most in a schedule of `seconds`. */
static struct window find_window(struct bound *bound, double seconds) {
  struct window best = {0, 0, 0};
  double most_before = -INFINITY; /* beyond the compute before `first` */
  int32_t first = 0;
  for (int32_t k = 0; k < bound->problem->segment_count; k++) {
    if (bound->problem->compute_seconds[k] < SHORTEST_SEGMENT_SECONDS) {
      continue;
    }
    double before = start_seconds(bound, k, seconds) - bound->clock[k];
    if (before > most_before) {
      most_before = before;
      first = k;
    }
    double all = most_before + bound->clock[k + 1] + end_seconds(bound, k, seconds);
    if (all > best.seconds) {
      best = (struct window){first, k, all};
    }
  }
  return best;
}

/* Raises the bound from `best` by windows: each has its own least time, found by halving. */
static double window_seconds(struct bound *bound, double best) {
  for (int round = 0; round < WINDOW_ROUNDS; round++) {
    struct window window = find_window(bound, best);
    if (window.seconds <= best * (1 + SEARCH_ERROR)) {
      break;
    }
    double inside = bound->clock[window.last + 1] - bound->clock[window.first];
    double high = window.seconds;
    for (int i = 0; i < BISECTIONS; i++) {
      double middle = best + (high - best) / 2;
      double all = start_seconds(bound, window.first, middle) + inside +
                   end_seconds(bound, window.last, middle);
      *(all > middle ? &best : &high) = middle;
    }
  }
  return best * (1 - SEARCH_ERROR);
}

/* What one link must carry whatever is decided: gradients once they are made, weights before they
 * are needed. */
static double mandatory_seconds(const struct bound *bound, const struct mr_problem_index *index) {
  const struct mr_problem *problem = bound->problem;
  const double *rate = problem->link_bytes_per_second;
  double whole = bound->clock[problem->segment_count];
  double best = whole;
  double bytes = 0;
  for (int32_t i = problem->tensor_count - 1; i >= 0; i--) {
    const struct mr_problem_tensor *t = &problem->tensors[index->by_birth[i]];
    if (t->end) {
      bytes += t->bytes;
      best = fmax(best, bound->clock[t->p + 1] + bytes / rate[MR_PROBLEM_OUT]);
    }
  }
  bytes = 0;
  for (int32_t i = 0; i < problem->tensor_count; i++) {
    const struct mr_problem_tensor *t = &problem->tensors[index->by_need[i]];
    if (t->start && !t->end) {
      bytes += t->bytes;
      best = fmax(best, bytes / rate[MR_PROBLEM_IN] + whole - bound->clock[t->g]);
    }
  }
  return best;
}

/* A time that is enough for any problem that fits: everything, one thing after the other. */
static double serial_seconds(const struct bound *bound) {
  const struct mr_problem *problem = bound->problem;
  double seconds = bound->clock[problem->segment_count];
  for (int32_t v = 0; v < problem->tensor_count; v++) {
    for (int link = 0; link < MR_PROBLEM_LINK_COUNT; link++) {
      seconds += problem->tensors[v].bytes / problem->link_bytes_per_second[link];
    }
  }
  return seconds;
}

static void build_clock_and_menu(struct bound *bound) {
  const struct mr_problem *problem = bound->problem;
  for (int32_t k = 0; k < problem->segment_count; k++) {
    bound->clock[k + 1] = bound->clock[k] + problem->compute_seconds[k];
  }
  for (int32_t v = 0; v < problem->tensor_count; v++) {
    const struct mr_problem_tensor *t = &problem->tensors[v];
    if (!mr_problem_tensor_is_fixed(t) && t->bytes > 0 &&
        t->recompute_seconds < MR_PROBLEM_NO_RECOMPUTE) {
      bound->menu[bound->menu_count++] = (struct menu_entry){t->bytes, t->recompute_seconds, v};
    }
  }
  qsort(bound->menu, (size_t)bound->menu_count, sizeof *bound->menu, compare_menu);
}

mr_status mr_problem_bound_cut(const struct mr_problem *problem, double *seconds_out) {
  uint64_t n = (uint64_t)problem->tensor_count;
  struct mr_problem_index *index = NULL;
  struct bound bound = {.problem = problem};
  bound.menu = mr_allocate(n, sizeof *bound.menu);
  bound.clock = mr_allocate((uint64_t)problem->segment_count + 1, sizeof *bound.clock);
  bound.cut.menu_bytes = mr_allocate(n + 1, sizeof *bound.cut.menu_bytes);
  bound.cut.menu_seconds = mr_allocate(n + 1, sizeof *bound.cut.menu_seconds);
  mr_status status = MR_NO_MEMORY;
  if (bound.menu == NULL || bound.clock == NULL || bound.cut.menu_bytes == NULL ||
      bound.cut.menu_seconds == NULL) {
    goto done;
  }
  status = mr_problem_index_create(problem, false, &index);
  if (status != MR_OK) {
    goto done;
  }
  build_clock_and_menu(&bound);
  double best = mandatory_seconds(&bound, index);
  double most = serial_seconds(&bound);
  for (int32_t k = 0; k < problem->segment_count; k++) {
    if (problem->compute_seconds[k] >= SHORTEST_SEGMENT_SECONDS) {
      build_cut(&bound, k);
      best = fmax(best, cut_seconds(&bound, best, most));
    }
  }
  *seconds_out = fmax(best, window_seconds(&bound, best));
done:
  mr_problem_index_destroy(index);
  free(bound.menu);
  free(bound.clock);
  free(bound.cut.menu_bytes);
  free(bound.cut.menu_seconds);
  return status;
}
