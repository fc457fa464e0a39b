/* SPDX-License-Identifier: Apache-2.0 */
/* What a search stands on: the orders in which it goes through the tensors, drafts, a simulation.
 */
#include <math.h>
#include <stdlib.h>

#include "plan/problem/search.h"

/* The golden ratio's fraction: its multiples, but for what is whole in them, lie all over 0 .. 1
 * wherever one stops. */
#define GOLDEN 0.6180339887498949

struct keyed {
  double key;
  double second;
  int32_t p;
  int32_t tensor;
};

static int compare_keyed(const void *left, const void *right) {
  const struct keyed *a = left;
  const struct keyed *b = right;
  if (a->key != b->key) {
    return a->key < b->key ? -1 : 1;
  }
  if (a->second != b->second) {
    return a->second < b->second ? -1 : 1;
  }
  if (a->p != b->p) {
    return a->p < b->p ? -1 : 1;
  }
  return (a->tensor > b->tensor) - (a->tensor < b->tensor);
}

static void sort_into(struct keyed *keyed, int32_t count, int32_t *tensors) {
  qsort(keyed, (size_t)count, sizeof *keyed, compare_keyed);
  for (int32_t i = 0; i < count; i++) {
    tensors[i] = keyed[i].tensor;
  }
}

static void fill_orders(struct mr_problem_search *search, struct keyed *keyed) {
  const struct mr_problem *problem = search->problem;
  int32_t count = 0;
  int32_t price_count = 0;
  double leaving_bytes = 0;
  for (int32_t v = 0; v < problem->tensor_count; v++) {
    const struct mr_problem_tensor *t = &problem->tensors[v];
    if (search->index->free_choice[v] && t->bytes > 0) {
      keyed[count++] = (struct keyed){t->g - t->p, 0, t->p, v};
      leaving_bytes += t->clean ? 0 : t->bytes;
      search->has_clean = search->has_clean || t->clean;
    }
  }
  search->choice_count = count;
  search->may_use_nvme = leaving_bytes > problem->host_bytes;
  sort_into(keyed, count, search->by_gap);
  for (int32_t i = 0; i < count; i++) {
    const struct mr_problem_tensor *t = &problem->tensors[keyed[i].tensor];
    keyed[i].key = t->bytes;
    keyed[i].second = t->recompute_seconds;
    keyed[i].p = t->p;
  }
  sort_into(keyed, count, search->by_class);
  for (int32_t i = 0; i < count; i++) {
    const struct mr_problem_tensor *t = &problem->tensors[keyed[i].tensor];
    if (t->recompute_seconds < MR_PROBLEM_NO_RECOMPUTE) {
      keyed[price_count++] =
          (struct keyed){t->recompute_seconds / t->bytes, 0, -t->p, keyed[i].tensor};
    }
  }
  search->price_count = price_count;
  sort_into(keyed, price_count, search->by_price);
  for (int32_t i = 0; i < price_count; i++) {
    search->has_ties = search->has_ties || (i > 0 && keyed[i].key == keyed[i - 1].key);
    keyed[i].second = fmod(-keyed[i].p * GOLDEN, 1);
  }
  sort_into(keyed, price_count, search->by_price_spread);
}

void mr_problem_search_fini(struct mr_problem_search *search) {
  mr_problem_draft_destroy(search->draft);
  mr_problem_draft_destroy(search->best);
  mr_problem_simulation_destroy(search->simulation);
  mr_problem_index_destroy(search->index);
  free(search->by_gap);
  free(search->by_price);
  free(search->by_price_spread);
  free(search->by_class);
  free(search->excess);
  mr_problem_tree_fini(&search->tree);
}

mr_status mr_problem_search_init(struct mr_problem_search *search, const struct mr_problem *problem,
                                 bool bold) {
  uint64_t n = (uint64_t)problem->tensor_count;
  *search = (struct mr_problem_search){.problem = problem, .best_seconds = INFINITY};
  struct keyed *keyed = mr_allocate(n, sizeof *keyed);
  search->by_gap = mr_allocate(n, sizeof *search->by_gap);
  search->by_price = mr_allocate(n, sizeof *search->by_price);
  search->by_price_spread = mr_allocate(n, sizeof *search->by_price_spread);
  search->by_class = mr_allocate(n, sizeof *search->by_class);
  int32_t point_count = 3 * (problem->segment_count + 1);
  search->excess = mr_allocate((uint64_t)point_count, sizeof *search->excess);
  mr_status status = MR_NO_MEMORY;
  if (keyed != NULL && search->by_gap != NULL && search->by_price != NULL &&
      search->by_price_spread != NULL && search->by_class != NULL && search->excess != NULL) {
    status = mr_problem_tree_init(&search->tree, point_count);
  }
  if (status == MR_OK) {
    status = mr_problem_index_create(problem, bold, &search->index);
  }
  if (status == MR_OK) {
    fill_orders(search, keyed);
    status = mr_problem_simulation_create(problem, &search->simulation);
  }
  if (status == MR_OK) {
    status = mr_problem_draft_create(problem, search->index, &search->draft);
  }
  if (status == MR_OK) {
    status = mr_problem_draft_create(problem, search->index, &search->best);
  }
  free(keyed);
  if (status != MR_OK) {
    mr_problem_search_fini(search);
  }
  return status;
}
