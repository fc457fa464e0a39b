/* SPDX-License-Identifier: Apache-2.0 */
/* Cuts: what must be away from the device at a moment, and what can be. */
#include "plan/problem/cut.h"

#include <math.h>
#include <stdlib.h>

#include "plan/problem/search.h"

/* A tensor that can be made again. */
struct menu_entry {
  double price; /* seconds for a byte */
  int32_t tensor;
};

static int compare_menu(const void *left, const void *right) {
  const struct menu_entry *a = left;
  const struct menu_entry *b = right;
  if (a->price != b->price) {
    return a->price < b->price ? -1 : 1;
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

static void add_to_cut(struct mr_problem_cutter *cutter, int32_t tensor) {
  struct mr_problem_cut *cut = &cutter->cut;
  const struct mr_problem_tensor *t = &cutter->problem->tensors[tensor];
  double whole = cutter->clock[cutter->problem->segment_count];
  int32_t place = cutter->menu_place[tensor];
  if (t->clean) {
    cut->clean_bytes += t->bytes;
  } else {
    cut->ordinary_bytes += t->bytes;
    cut->first_out_seconds = fmin(cut->first_out_seconds, cutter->clock[t->p + 1]);
  }
  cut->last_in_seconds = fmin(cut->last_in_seconds, whole - cutter->clock[t->g]);
  if (place >= 0) {
    cutter->price_bytes[place] += t->bytes;
    cutter->price_seconds[place] += t->recompute_seconds;
  }
}

/* The tensors that are neither weights nor gradients, and lie across the cut or are away: made
 * before segment `made_before`, needed after k. */
static void add_across(struct mr_problem_cutter *cutter, int32_t k, int32_t made_before) {
  const struct mr_problem_index *index = cutter->index;
  int32_t first = k - cutter->longest_gap > 0 ? k - cutter->longest_gap : 0;
  for (int32_t i = index->first_birth[first]; i < index->first_birth[made_before + 1]; i++) {
    int32_t tensor = index->by_birth[i];
    if (index->free_choice[tensor] && cutter->problem->tensors[tensor].g > k) {
      add_to_cut(cutter, tensor);
    }
  }
}

/* The menu of the tensors across the cut, as prefix sums; clears what it was made of. */
static void build_menu(struct mr_problem_cutter *cutter) {
  struct mr_problem_cut *cut = &cutter->cut;
  cut->menu_count = 0;
  for (int32_t place = 0; place < cutter->price_count; place++) {
    if (cutter->price_bytes[place] > 0) {
      int32_t at = cut->menu_count++;
      cut->menu_bytes[at + 1] = cut->menu_bytes[at] + cutter->price_bytes[place];
      cut->menu_seconds[at + 1] =
          cut->menu_seconds[at] + (1 - MR_PROBLEM_SAME_PRICE) * cutter->price_seconds[place];
      cutter->price_bytes[place] = 0;
      cutter->price_seconds[place] = 0;
    }
  }
}

/*
 * What lies on the device as segment k is about to start, whatever was decided for the tensors
 * across it: all that k needs and cannot make itself, but for what k - 1 makes, because without a
 * pause the working set of k - 1 is there instead.
 */
static double bytes_before(const struct mr_problem_cutter *cutter, int32_t k) {
  const struct mr_problem *problem = cutter->problem;
  bool lasts = problem->compute_seconds[k - 1] >= MR_PROBLEM_SHORTEST_SEGMENT_SECONDS;
  double workset_bytes = lasts ? problem->workset_bytes[k - 1] : 0;
  return cutter->arrived_bytes[k] + fmin(cutter->handed_bytes[k], workset_bytes);
}

void mr_problem_cut_at(struct mr_problem_cutter *cutter, int32_t k, enum mr_problem_moment moment) {
  const struct mr_problem *problem = cutter->problem;
  int32_t count = problem->segment_count;
  double whole = cutter->clock[count];
  /* Before a segment starts, what the one before made may still be part of its working set, and a
   * gradient that it made may have left already, or not: neither counts. */
  int32_t made_before = moment == MR_MOMENT_BEFORE ? k - 1 : k;
  struct mr_problem_cut *cut = &cutter->cut;
  *cut = (struct mr_problem_cut){.work_before = cutter->clock[k],
                                 .work_after = whole - cutter->clock[k],
                                 .first_out_seconds = cutter->clock[k],
                                 .last_in_seconds = whole - cutter->clock[k],
                                 .menu_bytes = cut->menu_bytes,
                                 .menu_seconds = cut->menu_seconds};
  add_across(cutter, k, made_before);
  build_menu(cutter);
  cut->gradient_bytes = cutter->gradient_bytes[made_before];
  cut->gradient_total_bytes =
      cut->gradient_bytes + cutter->gradient_bytes[count] - cutter->gradient_bytes[k];
  if (cutter->first_gradient < made_before) {
    double first = cutter->clock[cutter->first_gradient + 1];
    cut->first_out_seconds = fmin(cut->first_out_seconds, first);
  }
  cut->weight_before_bytes = cutter->weight_bytes[k];
  cut->weight_after_bytes = cutter->weight_bytes[count] - cutter->weight_bytes[k];
  if (cutter->last_weight > k) {
    double last = whole - cutter->clock[cutter->last_weight];
    cut->last_in_seconds = fmin(cut->last_in_seconds, last);
  }
  double fixed_bytes =
      moment == MR_MOMENT_DURING ? problem->workset_bytes[k] : bytes_before(cutter, k);
  cut->needed_bytes = cut->ordinary_bytes + cut->clean_bytes + cut->gradient_bytes + fixed_bytes -
                      mr_problem_limit(problem->device_bytes);
}

/* Sorts the tensors that can be made again by price; prices that are one share a place. */
static mr_status find_prices(struct mr_problem_cutter *cutter) {
  const struct mr_problem *problem = cutter->problem;
  struct menu_entry *menu = mr_allocate((uint64_t)problem->tensor_count, sizeof *menu);
  if (menu == NULL) {
    return MR_NO_MEMORY;
  }
  int32_t count = 0;
  for (int32_t v = 0; v < problem->tensor_count; v++) {
    const struct mr_problem_tensor *t = &problem->tensors[v];
    cutter->menu_place[v] = -1;
    if (cutter->index->free_choice[v] && t->bytes > 0 &&
        t->recompute_seconds < MR_PROBLEM_NO_RECOMPUTE) {
      menu[count++] = (struct menu_entry){t->recompute_seconds / t->bytes, v};
    }
  }
  qsort(menu, (size_t)count, sizeof *menu, compare_menu);
  double first_price = -1;
  for (int32_t i = 0; i < count; i++) {
    if (menu[i].price > first_price * (1 + MR_PROBLEM_SAME_PRICE) || i == 0) {
      first_price = menu[i].price;
      cutter->price_count++;
    }
    cutter->menu_place[menu[i].tensor] = cutter->price_count - 1;
  }
  free(menu);
  return MR_OK;
}

static void add_tensor(struct mr_problem_cutter *cutter, int32_t tensor) {
  const struct mr_problem_tensor *t = &cutter->problem->tensors[tensor];
  if (t->end) {
    cutter->gradient_bytes[t->p + 1] += t->bytes;
    cutter->first_gradient = t->p < cutter->first_gradient ? t->p : cutter->first_gradient;
    return;
  }
  if (t->start) {
    cutter->weight_bytes[t->g] += t->bytes;
    cutter->last_weight = t->g > cutter->last_weight ? t->g : cutter->last_weight;
  } else if (!cutter->index->free_choice[tensor]) {
    return;
  } else if (t->g - t->p > cutter->longest_gap) {
    cutter->longest_gap = t->g - t->p;
  }
  if (cutter->menu_place[tensor] < 0) {
    bool handed = !t->start && t->p == t->g - 1;
    (handed ? cutter->handed_bytes : cutter->arrived_bytes)[t->g] += t->bytes;
  }
}

static void add_up(struct mr_problem_cutter *cutter) {
  const struct mr_problem *problem = cutter->problem;
  cutter->first_gradient = problem->segment_count;
  cutter->last_weight = -1;
  for (int32_t v = 0; v < problem->tensor_count; v++) {
    add_tensor(cutter, v);
  }
  for (int32_t k = 0; k < problem->segment_count; k++) {
    cutter->clock[k + 1] = cutter->clock[k] + problem->compute_seconds[k];
    cutter->gradient_bytes[k + 1] += cutter->gradient_bytes[k];
    cutter->weight_bytes[k + 1] += cutter->weight_bytes[k];
  }
}

void mr_problem_cutter_fini(struct mr_problem_cutter *cutter) {
  mr_problem_index_destroy(cutter->index);
  free(cutter->clock);
  free(cutter->gradient_bytes);
  free(cutter->weight_bytes);
  free(cutter->arrived_bytes);
  free(cutter->handed_bytes);
  free(cutter->menu_place);
  free(cutter->price_bytes);
  free(cutter->price_seconds);
  free(cutter->cut.menu_bytes);
  free(cutter->cut.menu_seconds);
}

mr_status mr_problem_cutter_init(struct mr_problem_cutter *cutter,
                                 const struct mr_problem *problem) {
  uint64_t n = (uint64_t)problem->tensor_count;
  uint64_t boundary_count = (uint64_t)problem->segment_count + 1;
  *cutter = (struct mr_problem_cutter){.problem = problem};
  cutter->clock = mr_allocate(boundary_count, sizeof *cutter->clock);
  cutter->gradient_bytes = mr_allocate(boundary_count, sizeof *cutter->gradient_bytes);
  cutter->weight_bytes = mr_allocate(boundary_count, sizeof *cutter->weight_bytes);
  cutter->arrived_bytes = mr_allocate(boundary_count, sizeof *cutter->arrived_bytes);
  cutter->handed_bytes = mr_allocate(boundary_count, sizeof *cutter->handed_bytes);
  cutter->menu_place = mr_allocate(n, sizeof *cutter->menu_place);
  cutter->price_bytes = mr_allocate(n, sizeof *cutter->price_bytes);
  cutter->price_seconds = mr_allocate(n, sizeof *cutter->price_seconds);
  cutter->cut.menu_bytes = mr_allocate(n + 1, sizeof *cutter->cut.menu_bytes);
  cutter->cut.menu_seconds = mr_allocate(n + 1, sizeof *cutter->cut.menu_seconds);
  mr_status status = MR_NO_MEMORY;
  if (cutter->clock != NULL && cutter->gradient_bytes != NULL && cutter->weight_bytes != NULL &&
      cutter->arrived_bytes != NULL && cutter->handed_bytes != NULL && cutter->menu_place != NULL &&
      cutter->price_bytes != NULL && cutter->price_seconds != NULL &&
      cutter->cut.menu_bytes != NULL && cutter->cut.menu_seconds != NULL) {
    status = mr_problem_index_create(problem, false, &cutter->index);
  }
  if (status == MR_OK) {
    status = find_prices(cutter);
  }
  if (status != MR_OK) {
    mr_problem_cutter_fini(cutter);
    return status;
  }
  add_up(cutter);
  return MR_OK;
}
