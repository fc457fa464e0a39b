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
  return mr_max_double(0, mr_min_double(rate[MR_PROBLEM_WRITE] * write_seconds,
                                        rate[MR_PROBLEM_READ] * read_seconds));
}

/* What is added and taken away again leaves nothing behind, however large it was beside the rest:
 * what rounding loses is kept (D. Knuth, The Art of Computer Programming, 4.2.2, theorem B). */
static void sum_add(struct mr_problem_sum *sum, double value) {
  double high = sum->high + value;
  double added = high - sum->high;
  sum->low += (sum->high - (high - added)) + (value - added);
  sum->high = high;
}

static double sum_of(const struct mr_problem_sum *sum) {
  return sum->high + sum->low;
}

/* The menu of the tensors across the cut, as prefix sums, unless it is there: it has up to as many
 * prices as there are tensors, and most cuts do without. */
static void build_menu(struct mr_problem_cutter *cutter) {
  struct mr_problem_cut *cut = &cutter->cut;
  if (cut->has_menu) {
    return;
  }
  cut->has_menu = true;
  cut->menu_count = 0;
  for (int32_t place = 0; place < cutter->price_count; place++) {
    const struct mr_problem_price *price = &cutter->prices[place];
    if (price->count > 0) {
      int32_t at = cut->menu_count++;
      double seconds = (1 - MR_PROBLEM_SAME_PRICE) * mr_max_double(0, sum_of(&price->seconds));
      cut->menu_bytes[at + 1] = cut->menu_bytes[at] + sum_of(&price->bytes);
      cut->menu_seconds[at + 1] = cut->menu_seconds[at] + seconds;
    }
  }
}

bool mr_problem_cut_can_do(struct mr_problem_cutter *cutter, double before, double after) {
  const struct mr_problem_cut *cut = &cutter->cut;
  const double *rate = cutter->problem->link_bytes_per_second;
  double in_bytes = rate[MR_PROBLEM_IN] * mr_max_double(0, after - cut->last_in_seconds) -
                    cut->weight_after_bytes;
  double early_weight_bytes =
      mr_max_double(0, -in_bytes); /* weights that came before the cut, and lie there */
  if (early_weight_bytes + cut->weight_before_bytes > rate[MR_PROBLEM_IN] * before) {
    return false;
  }
  in_bytes = mr_max_double(0, in_bytes);
  double out_bytes = rate[MR_PROBLEM_OUT] * mr_max_double(0, before - cut->first_out_seconds);
  double gradient_bytes = mr_min_double(cut->gradient_bytes, out_bytes);
  if (cut->gradient_total_bytes - gradient_bytes > rate[MR_PROBLEM_OUT] * after) {
    return false;
  }
  double clean_bytes = mr_min_double(cut->clean_bytes, in_bytes);
  double ordinary_bytes =
      mr_min_double(mr_min_double(in_bytes - clean_bytes, out_bytes - gradient_bytes),
                    mr_min_double(cut->ordinary_bytes, cutter->problem->host_bytes +
                                                           nvme_bytes(cutter, before + after)));
  double moved_bytes = gradient_bytes + clean_bytes + ordinary_bytes;
  double wanted_bytes = cut->needed_bytes + early_weight_bytes;
  if (moved_bytes >= wanted_bytes) {
    return true;
  }
  build_menu(cutter);
  return moved_bytes + recompute_bytes(cut, mr_max_double(0, after - cut->work_after)) >=
         wanted_bytes;
}

/* A tensor comes to lie across the cut (sign 1) or no longer does (-1). */
static void count_across(struct mr_problem_cutter *cutter, int32_t tensor, int32_t sign) {
  const struct mr_problem_tensor *t = &cutter->problem->tensors[tensor];
  int32_t place = cutter->price_place[tensor];
  if (!cutter->index->free_choice[tensor]) {
    return;
  }
  sum_add(&cutter->across_bytes[t->clean], sign * t->bytes);
  if (place >= 0) {
    struct mr_problem_price *price = &cutter->prices[place];
    price->count += sign;
    sum_add(&price->bytes, sign * t->bytes);
    sum_add(&price->seconds, sign * t->recompute_seconds);
  }
}

/* What segment p makes, as far as it is needed after the cut. */
static void count_births(struct mr_problem_cutter *cutter, int32_t p, int32_t sign) {
  const struct mr_problem_index *index = cutter->index;
  for (int32_t i = index->first_birth[p + 1]; i < index->first_birth[p + 2]; i++) {
    if (cutter->problem->tensors[index->by_birth[i]].g > cutter->segment) {
      count_across(cutter, index->by_birth[i], sign);
    }
  }
}

/* What segment g needs, as far as it is made before the cut. */
static void count_needs(struct mr_problem_cutter *cutter, int32_t g, int32_t sign) {
  const struct mr_problem_index *index = cutter->index;
  for (int32_t i = cutter->first_need[g]; i < cutter->first_need[g + 1]; i++) {
    if (cutter->problem->tensors[index->by_need[i]].p < cutter->made_before) {
      count_across(cutter, index->by_need[i], sign);
    }
  }
}

/* Moves the cut, segment by segment. */
static void move_to(struct mr_problem_cutter *cutter, int32_t segment, int32_t made_before) {
  while (cutter->segment < segment) {
    count_needs(cutter, ++cutter->segment, -1);
  }
  while (cutter->segment > segment) {
    count_needs(cutter, cutter->segment--, 1);
  }
  while (cutter->made_before < made_before) {
    count_births(cutter, cutter->made_before++, 1);
  }
  while (cutter->made_before > made_before) {
    count_births(cutter, --cutter->made_before, -1);
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
  return cutter->arrived_bytes[k] + mr_min_double(cutter->handed_bytes[k], workset_bytes);
}

/* Gradients, and weights; and how near to both ends of the schedule anything can move. */
static void fill_moves(struct mr_problem_cutter *cutter, int32_t k, int32_t made_before) {
  struct mr_problem_cut *cut = &cutter->cut;
  int32_t count = cutter->problem->segment_count;
  const double *clock = cutter->clock;
  cut->gradient_bytes = cutter->gradient_bytes[made_before];
  cut->gradient_total_bytes =
      cut->gradient_bytes + cutter->gradient_bytes[count] - cutter->gradient_bytes[k];
  cut->weight_before_bytes = cutter->weight_bytes[k];
  cut->weight_after_bytes = cutter->weight_bytes[count] - cutter->weight_bytes[k];
  int32_t first = cutter->first_birth[k] < cutter->first_gradient ? cutter->first_birth[k]
                                                                  : cutter->first_gradient;
  int32_t last = cutter->last_need[made_before] > cutter->last_weight
                     ? cutter->last_need[made_before]
                     : cutter->last_weight;
  cut->first_out_seconds = clock[first < made_before ? first + 1 : k];
  cut->last_in_seconds = clock[count] - clock[last > k ? last : k];
}

void mr_problem_cut_at(struct mr_problem_cutter *cutter, int32_t k, enum mr_problem_moment moment) {
  const struct mr_problem *problem = cutter->problem;
  /* Before a segment starts, what the one before made may still be part of its working set, and a
   * gradient that it made may have left already, or not: neither counts. */
  int32_t made_before = moment == MR_MOMENT_BEFORE ? k - 1 : k;
  struct mr_problem_cut *cut = &cutter->cut;
  cut->work_before = cutter->clock[k];
  cut->work_after = cutter->clock[problem->segment_count] - cutter->clock[k];
  move_to(cutter, k, made_before);
  cut->ordinary_bytes = mr_max_double(0, sum_of(&cutter->across_bytes[0]));
  cut->clean_bytes = mr_max_double(0, sum_of(&cutter->across_bytes[1]));
  cut->has_menu = false;
  fill_moves(cutter, k, made_before);
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
    cutter->price_place[v] = -1;
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
    cutter->price_place[menu[i].tensor] = cutter->price_count - 1;
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
  } else {
    int32_t *last = &cutter->last_need[t->p + 1];
    *last = t->g > *last ? t->g : *last;
    if (t->g > 0 && !t->clean) {
      int32_t *first = &cutter->first_birth[t->g - 1];
      *first = t->p < *first ? t->p : *first;
    }
  }
  if (cutter->price_place[tensor] < 0) {
    bool handed = !t->start && t->p == t->g - 1;
    (handed ? cutter->handed_bytes : cutter->arrived_bytes)[t->g] += t->bytes;
  }
}

static void fill_first_need(struct mr_problem_cutter *cutter) {
  const struct mr_problem *problem = cutter->problem;
  int32_t at = 0;
  for (int32_t g = 0; g <= problem->segment_count + 1; g++) {
    while (at < problem->tensor_count && problem->tensors[cutter->index->by_need[at]].g < g) {
      at++;
    }
    cutter->first_need[g] = at;
  }
}

static void add_up(struct mr_problem_cutter *cutter) {
  const struct mr_problem *problem = cutter->problem;
  int32_t count = problem->segment_count;
  cutter->first_gradient = count;
  cutter->last_weight = -1;
  for (int32_t k = 0; k <= count; k++) {
    cutter->last_need[k] = -1;
    cutter->first_birth[k] = count;
  }
  for (int32_t v = 0; v < problem->tensor_count; v++) {
    add_tensor(cutter, v);
  }
  for (int32_t k = 0; k < count; k++) {
    int32_t *last = &cutter->last_need[k];
    int32_t *first = &cutter->first_birth[count - k - 1];
    cutter->clock[k + 1] = cutter->clock[k] + problem->compute_seconds[k];
    cutter->gradient_bytes[k + 1] += cutter->gradient_bytes[k];
    cutter->weight_bytes[k + 1] += cutter->weight_bytes[k];
    last[1] = last[0] > last[1] ? last[0] : last[1];
    first[0] = first[1] < first[0] ? first[1] : first[0];
  }
}

void mr_problem_cutter_fini(struct mr_problem_cutter *cutter) {
  mr_problem_index_destroy(cutter->index);
  free(cutter->clock);
  free(cutter->gradient_bytes);
  free(cutter->weight_bytes);
  free(cutter->arrived_bytes);
  free(cutter->handed_bytes);
  free(cutter->first_need);
  free(cutter->last_need);
  free(cutter->first_birth);
  free(cutter->price_place);
  free(cutter->prices);
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
  cutter->price_place = mr_allocate(n, sizeof *cutter->price_place);
  cutter->prices = mr_allocate(n, sizeof *cutter->prices);
  cutter->first_need = mr_allocate(boundary_count + 1, sizeof *cutter->first_need);
  cutter->last_need = mr_allocate(boundary_count, sizeof *cutter->last_need);
  cutter->first_birth = mr_allocate(boundary_count, sizeof *cutter->first_birth);
  cutter->cut.menu_bytes = mr_allocate(n + 1, sizeof *cutter->cut.menu_bytes);
  cutter->cut.menu_seconds = mr_allocate(n + 1, sizeof *cutter->cut.menu_seconds);
  mr_status status = MR_NO_MEMORY;
  if (cutter->clock != NULL && cutter->gradient_bytes != NULL && cutter->weight_bytes != NULL &&
      cutter->arrived_bytes != NULL && cutter->handed_bytes != NULL &&
      cutter->price_place != NULL && cutter->prices != NULL && cutter->first_need != NULL &&
      cutter->last_need != NULL && cutter->first_birth != NULL && cutter->cut.menu_bytes != NULL &&
      cutter->cut.menu_seconds != NULL) {
    status = mr_problem_index_create(problem, false, &cutter->index);
  }
  if (status == MR_OK) {
    status = find_prices(cutter);
  }
  if (status != MR_OK) {
    mr_problem_cutter_fini(cutter);
    return status;
  }
  fill_first_need(cutter);
  add_up(cutter);
  cutter->segment = -1;
  cutter->made_before = -1;
  return MR_OK;
}
