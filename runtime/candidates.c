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

/* The middle between the best position and its neighbour before or after it; the best itself where
 * there is none. */
static uint32_t middle_beside(const struct finder *finder, bool after) {
  uint32_t best = finder->search->best.position;
  uint32_t at = 0;
  while (finder->positions[at] != best) {
    at++;
  }
  if (after ? at + 1 == finder->count : at == 0) {
    return best;
  }
  uint32_t beside = finder->positions[after ? at + 1 : at - 1];
  return beside < best ? beside + (best - beside) / 2 : best + (beside - best) / 2;
}

/* Halves the distances to the best position's neighbours until they are at its side. */
static mr_status refine(struct finder *finder) {
  mr_status status = MR_OK;
  uint32_t before = 0;
  while (status == MR_OK && before != finder->count) {
    before = finder->count;
    uint32_t positions[MR_PATH_TRIALS] = {middle_beside(finder, false),
                                          middle_beside(finder, true)};
    status = try_positions(finder, positions, MR_PATH_TRIALS);
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
  uint32_t positions[FAR_POINTS + 1];
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
