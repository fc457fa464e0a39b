/* SPDX-License-Identifier: Apache-2.0 */
/* Paths through a recompute menu, and the search along one. */
#include "runtime/candidates.h"

#include <math.h>
#include <stdlib.h>

#include "base/base.h"

/* Points that are tried before any between them: at most half of all, but no fewer than are tried
 * side by side. */
#define FAR_POINTS 6u

/* Block b takes choice instead of the one before. */
struct mr_path_step {
  double price; /* seconds for each byte freed */
  uint32_t block;
  uint32_t choice;
  uint32_t turn; /* of equals, who goes first */
};

static int step_compare(const void *left, const void *right) {
  const struct mr_path_step *a = left;
  const struct mr_path_step *b = right;
  if (a->price != b->price) {
    return a->price < b->price ? -1 : 1;
  }
  if (a->choice != b->choice) {
    return a->choice < b->choice ? -1 : 1;
  }
  return (a->turn > b->turn) - (a->turn < b->turn);
}

/* Prices within a block ascend, as those of a convex hull do, but for what seconds round to. */
static void add_steps(struct mr_path *path, uint32_t block, bool last_first) {
  const struct mr_recompute_block *from = &path->menu->blocks[block];
  double price = 0;
  for (uint32_t choice = 1; choice < from->choice_count; choice++) {
    const struct mr_recompute_choice *before = &from->choices[choice - 1];
    const struct mr_recompute_choice *after = &from->choices[choice];
    uint64_t freed_bytes = after->freed_bytes - before->freed_bytes;
    price = fmax(price, (after->seconds - before->seconds) / (double)mr_max_u64(freed_bytes, 1));
    path->steps[path->step_count++] =
        (struct mr_path_step){.price = price,
                              .block = block,
                              .choice = choice,
                              .turn = last_first ? path->menu->block_count - block : block};
  }
}

mr_status mr_path_init(struct mr_path *path, const struct mr_recompute_menu *menu,
                       bool last_first) {
  uint64_t steps = 0;
  for (uint32_t b = 0; b < menu->block_count; b++) {
    steps += menu->blocks[b].choice_count - 1;
  }
  *path = (struct mr_path){.menu = menu};
  path->steps = mr_allocate(steps, sizeof *path->steps);
  path->selected = mr_allocate(menu->block_count, sizeof *path->selected);
  if (path->steps == NULL || path->selected == NULL) {
    mr_path_fini(path);
    return MR_NO_MEMORY;
  }
  for (uint32_t b = 0; b < menu->block_count; b++) {
    add_steps(path, b, last_first);
  }
  qsort(path->steps, path->step_count, sizeof *path->steps, step_compare);
  return MR_OK;
}

void mr_path_fini(struct mr_path *path) {
  free(path->steps);
  free(path->selected);
  *path = (struct mr_path){0};
}

void mr_path_select(struct mr_path *path, uint32_t position) {
  MR_ASSERT(position <= path->step_count);
  for (uint32_t b = 0; b < path->menu->block_count; b++) {
    path->selected[b] = 0;
  }
  for (uint32_t i = 0; i < position; i++) {
    path->selected[path->steps[i].block] = path->steps[i].choice;
  }
}

/* Where the search stands: the positions tried, ascending. */
struct finder {
  struct mr_path *path;
  struct mr_path_search *search;
  uint32_t *positions;
  uint32_t count;
  uint32_t trials;
};

static void add_position(struct finder *finder, uint32_t position, double seconds) {
  uint32_t at = finder->count++;
  for (; at > 0 && finder->positions[at - 1] > position; at--) {
    finder->positions[at] = finder->positions[at - 1];
  }
  finder->positions[at] = position;
  if (seconds < finder->search->best.seconds) {
    finder->search->best = (struct mr_path_point){position, seconds};
  }
}

static bool was_tried(const struct finder *finder, uint32_t position) {
  for (uint32_t i = 0; i < finder->count; i++) {
    if (finder->positions[i] == position) {
      return true;
    }
  }
  return false;
}

/* Tries those of some ascending positions that were not tried before, as far as trials are left. */
static mr_status try_positions(struct finder *finder, const uint32_t *positions, uint32_t count) {
  struct mr_path_search *search = finder->search;
  mr_status status = MR_OK;
  uint32_t i = 0;
  while (status == MR_OK && i < count) {
    uint32_t fresh[MR_PATH_TRIALS];
    double seconds[MR_PATH_TRIALS];
    uint32_t fresh_count = 0;
    for (; i < count && fresh_count < MR_PATH_TRIALS; i++) {
      bool again = fresh_count > 0 && positions[i] == fresh[fresh_count - 1];
      if (!again && !was_tried(finder, positions[i]) && finder->trials < search->most_trials) {
        fresh[fresh_count++] = positions[i];
        finder->trials++;
      }
    }
    if (fresh_count == 0) break;
    status = search->trial(search->context, finder->path, fresh, fresh_count, seconds);
    for (uint32_t k = 0; status == MR_OK && k < fresh_count; k++) {
      add_position(finder, fresh[k], seconds[k]);
    }
  }
  return status;
}

static uint32_t middle_of(uint32_t a, uint32_t b) {
  return (uint32_t)(((uint64_t)a + b) / 2);
}

/* Positions between the best one and its neighbours: the middle on either side, or where there is
 * nothing on one of them, that of the other and the one between it and the best, which would come
 * next. */
static uint32_t list_beside(const struct finder *finder, uint32_t positions[MR_PATH_TRIALS]) {
  uint32_t best = finder->search->best.position;
  uint32_t at = 0;
  while (finder->positions[at] != best) {
    at++;
  }
  uint32_t before = at > 0 ? finder->positions[at - 1] : best;
  uint32_t after = at + 1 < finder->count ? finder->positions[at + 1] : best;
  bool left = best - before > 1;
  bool right = after - best > 1;
  uint32_t first = left ? middle_of(before, best) : middle_of(best, after);
  uint32_t second = left && right ? middle_of(best, after) : middle_of(first, best);
  positions[0] = first < second ? first : second;
  positions[1] = first < second ? second : first;
  return left || right ? 2 : 0;
}

/* Goes nearer to the best position from its neighbours until they are at its side. */
static mr_status refine(struct finder *finder) {
  mr_status status = MR_OK;
  uint32_t before = 0;
  while (status == MR_OK && before != finder->count) {
    uint32_t positions[MR_PATH_TRIALS];
    before = finder->count;
    status = try_positions(finder, positions, list_beside(finder, positions));
  }
  return status;
}

void mr_path_know(struct mr_path_search *search, uint32_t position, double seconds) {
  for (uint32_t i = 0; i < search->known_count; i++) {
    if (search->known[i].position == position) {
      return;
    }
  }
  MR_ASSERT(search->known_count < MR_PATH_KNOWN);
  search->known[search->known_count++] = (struct mr_path_point){position, seconds};
}

mr_status mr_path_find(struct mr_path *path, struct mr_path_search *search) {
  struct finder finder = {.path = path, .search = search};
  uint32_t steps = search->to - search->from;
  finder.positions =
      mr_allocate((uint64_t)search->most_trials + search->known_count, sizeof *finder.positions);
  if (finder.positions == NULL) {
    return MR_NO_MEMORY;
  }
  search->best = (struct mr_path_point){.position = search->from, .seconds = INFINITY};
  for (uint32_t i = 0; i < search->known_count; i++) {
    add_position(&finder, search->known[i].position, search->known[i].seconds);
  }
  uint32_t half =
      search->most_trials / 2 > MR_PATH_TRIALS ? search->most_trials / 2 : MR_PATH_TRIALS;
  uint32_t far = half < FAR_POINTS ? half : FAR_POINTS;
  /* What is known at the ends is not tried: one more, where another would be alone. */
  uint32_t fresh = far + 1 - was_tried(&finder, search->from) - was_tried(&finder, search->to);
  far += search->in_pairs && fresh % 2 == 1;
  uint32_t positions[FAR_POINTS + 2];
  for (uint32_t i = 0; i <= far; i++) {
    positions[i] = search->from + (uint32_t)((uint64_t)steps * i / far);
  }
  mr_status status = try_positions(&finder, positions, far + 1);
  if (status == MR_OK) {
    status = refine(&finder);
  }
  free(finder.positions);
  return status;
}
