/* SPDX-License-Identifier: Apache-2.0 */
/* Cuts: what must be away from the device at a moment, and what can be. */
#include "plan/problem/cut.h"

#include <math.h>
#include <stdlib.h>

static int compare_menu(const void *left, const void *right) {
  const struct mr_problem_menu_entry *a = left;
  const struct mr_problem_menu_entry *b = right;
  double x = a->seconds * b->bytes;
  double y = b->seconds * a->bytes;
  if (x != y) {
    return x < y ? -1 : 1;
  }
  return (a->tensor > b->tensor) - (a->tensor < b->tensor);
}

/* Bytes that at most `seconds` of recompute bring: a continuous knapsack, so never too few. */
static double recompute_bytes(const struct mr_problem_cut *cut, double seconds) {
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

/*
 * Bytes that can go by way of NVMe in `seconds`. Nothing is written before one tensor, of the
 * smallest size at least, has gone out, nor read before one was written; after the last write there
 * is a read, and after the last read an in.
 */
static double nvme_bytes(const struct mr_problem_cutter *cutter, double seconds) {
  const struct mr_problem_cut *cut = &cutter->cut;
  const double *rate = cutter->problem->link_bytes_per_second;
  double inner = seconds - cut->first_out_seconds - cut->last_in_seconds -
                 cutter->smallest_bytes / rate[MR_PROBLEM_OUT] -
                 cutter->smallest_bytes / rate[MR_PROBLEM_IN];
  double write_seconds = inner - cutter->smallest_bytes / rate[MR_PROBLEM_READ];
  double read_seconds = inner - cutter->smallest_bytes / rate[MR_PROBLEM_WRITE];
  return fmax(0,
              fmin(rate[MR_PROBLEM_WRITE] * write_seconds, rate[MR_PROBLEM_READ] * read_seconds));
}

bool mr_problem_cut_can_do(const struct mr_problem_cutter *cutter, double before, double after) {
  const struct mr_problem_cut *cut = &cutter->cut;
  const double *rate = cutter->problem->link_bytes_per_second;
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
  double ordinary_bytes = fmin(
      fmin(in_bytes - clean_bytes, out_bytes - gradient_bytes),
      fmin(cut->ordinary_bytes, cutter->problem->host_bytes + nvme_bytes(cutter, before + after)));
  double again_bytes = recompute_bytes(cut, after - cut->work_after);
  return gradient_bytes + clean_bytes + ordinary_bytes + again_bytes >=
         cut->needed_bytes + early_weight_bytes;
}

/* Whether a tensor that is neither weight nor gradient lies across the cut, or is away. Before a
 * segment starts, what the one before made may still be part of its working set. */
static bool lies_across(const struct mr_problem_tensor *t, int32_t k,
                        enum mr_problem_moment moment) {
  return t->p < k - (moment == MR_MOMENT_BEFORE) && t->g > k;
}

/* The menu of the tensors that lie across the cut, as prefix sums. */
static void build_menu(struct mr_problem_cutter *cutter, int32_t k, enum mr_problem_moment moment) {
  struct mr_problem_cut *cut = &cutter->cut;
  cut->menu_count = 0;
  for (int32_t i = 0; i < cutter->menu_count; i++) {
    const struct mr_problem_menu_entry *entry = &cutter->menu[i];
    if (lies_across(&cutter->problem->tensors[entry->tensor], k, moment)) {
      int32_t at = cut->menu_count++;
      cut->menu_bytes[at + 1] = cut->menu_bytes[at] + entry->bytes;
      cut->menu_seconds[at + 1] = cut->menu_seconds[at] + entry->seconds;
    }
  }
}

static void add_gradient(struct mr_problem_cutter *cutter, const struct mr_problem_tensor *t,
                         int32_t k, enum mr_problem_moment moment) {
  struct mr_problem_cut *cut = &cutter->cut;
  if (t->p < k - (moment == MR_MOMENT_BEFORE)) {
    cut->gradient_bytes += t->bytes;
    cut->first_out_seconds = fmin(cut->first_out_seconds, cutter->clock[t->p + 1]);
  } else if (t->p < k) {
    return; /* it may have left already, or not: it does not count */
  }
  cut->gradient_total_bytes += t->bytes;
}

static void add_to_cut(struct mr_problem_cutter *cutter, const struct mr_problem_tensor *t,
                       int32_t k, enum mr_problem_moment moment) {
  struct mr_problem_cut *cut = &cutter->cut;
  if (t->end) {
    add_gradient(cutter, t, k, moment);
    return;
  }
  if (t->start) {
    *(t->g <= k ? &cut->weight_before_bytes : &cut->weight_after_bytes) += t->bytes;
  } else if (!lies_across(t, k, moment)) {
    return;
  } else if (t->clean) {
    cut->clean_bytes += t->bytes;
  } else {
    cut->ordinary_bytes += t->bytes;
    cut->first_out_seconds = fmin(cut->first_out_seconds, cutter->clock[t->p + 1]);
  }
  if (t->g > k) {
    double whole = cutter->clock[cutter->problem->segment_count];
    cut->last_in_seconds = fmin(cut->last_in_seconds, whole - cutter->clock[t->g]);
  }
}

/*
 * What lies on the device as segment k is about to start, whatever was decided for the tensors
 * across it: all that k needs and cannot make itself, but for what k - 1 makes, because without a
 * pause the working set of k - 1 is there instead.
 */
static double arrived_bytes(const struct mr_problem *problem, int32_t k) {
  bool lasts = problem->compute_seconds[k - 1] >= MR_PROBLEM_SHORTEST_SEGMENT_SECONDS;
  double bytes = 0;
  double handed_bytes = 0;
  for (int32_t v = 0; v < problem->tensor_count; v++) {
    const struct mr_problem_tensor *t = &problem->tensors[v];
    bool alive = !t->end && (t->start || t->p < t->g);
    if (t->g == k && alive && t->recompute_seconds >= MR_PROBLEM_NO_RECOMPUTE) {
      *(!t->start && t->p == k - 1 ? &handed_bytes : &bytes) += t->bytes;
    }
  }
  return bytes + fmin(handed_bytes, lasts ? problem->workset_bytes[k - 1] : 0);
}

void mr_problem_cut_at(struct mr_problem_cutter *cutter, int32_t k, enum mr_problem_moment moment) {
  const struct mr_problem *problem = cutter->problem;
  double whole = cutter->clock[problem->segment_count];
  struct mr_problem_cut *cut = &cutter->cut;
  *cut = (struct mr_problem_cut){.work_before = cutter->clock[k],
                                 .work_after = whole - cutter->clock[k],
                                 .first_out_seconds = cutter->clock[k],
                                 .last_in_seconds = whole - cutter->clock[k],
                                 .menu_bytes = cut->menu_bytes,
                                 .menu_seconds = cut->menu_seconds};
  for (int32_t v = 0; v < problem->tensor_count; v++) {
    add_to_cut(cutter, &problem->tensors[v], k, moment);
  }
  double fixed_bytes =
      moment == MR_MOMENT_DURING ? problem->workset_bytes[k] : arrived_bytes(problem, k);
  cut->needed_bytes = cut->ordinary_bytes + cut->clean_bytes + cut->gradient_bytes + fixed_bytes -
                      mr_problem_limit(problem->device_bytes);
  build_menu(cutter, k, moment);
}

void mr_problem_cutter_fini(struct mr_problem_cutter *cutter) {
  free(cutter->menu);
  free(cutter->clock);
  free(cutter->cut.menu_bytes);
  free(cutter->cut.menu_seconds);
}

mr_status mr_problem_cutter_init(struct mr_problem_cutter *cutter, const struct mr_problem *problem,
                                 double discount) {
  uint64_t n = (uint64_t)problem->tensor_count;
  *cutter = (struct mr_problem_cutter){.problem = problem};
  cutter->menu = mr_allocate(n, sizeof *cutter->menu);
  cutter->clock = mr_allocate((uint64_t)problem->segment_count + 1, sizeof *cutter->clock);
  cutter->cut.menu_bytes = mr_allocate(n + 1, sizeof *cutter->cut.menu_bytes);
  cutter->cut.menu_seconds = mr_allocate(n + 1, sizeof *cutter->cut.menu_seconds);
  if (cutter->menu == NULL || cutter->clock == NULL || cutter->cut.menu_bytes == NULL ||
      cutter->cut.menu_seconds == NULL) {
    mr_problem_cutter_fini(cutter);
    return MR_NO_MEMORY;
  }
  for (int32_t k = 0; k < problem->segment_count; k++) {
    cutter->clock[k + 1] = cutter->clock[k] + problem->compute_seconds[k];
  }
  for (int32_t v = 0; v < problem->tensor_count; v++) {
    const struct mr_problem_tensor *t = &problem->tensors[v];
    if (!mr_problem_tensor_is_fixed(t) && t->bytes > 0 &&
        t->recompute_seconds < MR_PROBLEM_NO_RECOMPUTE) {
      cutter->menu[cutter->menu_count++] =
          (struct mr_problem_menu_entry){t->bytes, discount * t->recompute_seconds, v};
    }
  }
  qsort(cutter->menu, (size_t)cutter->menu_count, sizeof *cutter->menu, compare_menu);
  return MR_OK;
}
