/* SPDX-License-Identifier: Apache-2.0 */
/* The levels of a search: parts or merged problems first, then the problem itself. */
#include <math.h>
#include <stdlib.h>

#include "plan/problem/parts.h"
#include "plan/problem/search.h"

/* A level of the search: tensors at most, and simulated events that it may cost. Local search on
 * few tensors finds the shape, on many it smooths the edges. */
static const struct level {
  int32_t tensors;
  uint64_t work;
} levels[] = {{2000, 6000000}, {8000, 6000000}, {INT32_MAX, 4000000}};

/* What caution leaves further above the bound is searched boldly too, and so are all problems so
 * small. */
#define BOLD_GAP     1e-3
#define BOLD_TENSORS 64
/* Simulated events that this may cost, for each tensor and in all. */
#define BOLD_TENSOR_WORK 40000
#define BOLD_MOST_WORK   12000000
/* A part of that may be spent before, with little heat; then there is more, to get away from where
 * that ended. */
#define COOL_PART 3
/* What is merged into fewer tensors than this part of all is searched so in its merged form first:
 * one is moved in place of many. */
#define COARSE_PART 2
#define BOLD_HEAT   1e-3

/*
 * Problems so small are searched as if they had less of one thing as well, where their shape is
 * another, and what comes of that is taken on from there: a search misses some per cent here and
 * there, and with more to work with it is not to miss what it finds with less. So they are from the
 * seeds of each style, and from where everything leaves or is made again.
 */
#define SMALL_TENSORS 512
/* Simulated events that one of these may cost, for each tensor and in all; and the part of them
 * that taking it on may cost. */
#define LESS_TENSOR_WORK 20000
#define LESS_MOST_WORK   400000
#define REST_PART        4
/* What the best of all is searched from once more may cost so many times one of them, with much
 * heat: starts that lead to neighbouring places are to end in one. */
#define POLISH_FACTOR 10
#define POLISH_HEAT   3e-3

/* Parts of the device, the host, and each link. */
static const struct less {
  double device, host;
  double link[MR_PROBLEM_LINK_COUNT];
} lesses[] = {
    {0.95, 1, {1, 1, 1, 1}}, {0.9, 1, {1, 1, 1, 1}}, {0.8, 1, {1, 1, 1, 1}},
    {0.65, 1, {1, 1, 1, 1}}, {1, 0.7, {1, 1, 1, 1}}, {1, 0.4, {1, 1, 1, 1}},
    {1, 0, {1, 1, 1, 1}},    {1, 1, {0.8, 1, 1, 1}}, {1, 1, {1, 0.8, 1, 1}},
    {1, 1, {1, 1, 0.8, 1}},  {1, 1, {1, 1, 1, 0.8}}, {1, 1, {0.5, 1, 1, 1}},
    {1, 1, {1, 0.5, 1, 1}},  {1, 1, {1, 1, 0.5, 1}}, {1, 1, {1, 1, 1, 0.5}},
};

/* Simulated events that parts may cost together. */
#define PARTS_WORK 6000000

/* The finest merge of at most `limit` tensors, or the coarsest where none is so small; NULL where
 * the problem itself is. */
static mr_status merge_to(const struct mr_problem *problem, int32_t limit,
                          struct mr_problem_merge **merge_out) {
  struct mr_problem_merge *best = NULL;
  bool finer = problem->tensor_count > limit;
  for (int32_t parts = 1; finer; parts *= 2) {
    struct mr_problem_merge *merge = NULL;
    mr_status status = mr_problem_merge_create(problem, parts, &merge);
    if (status != MR_OK) {
      mr_problem_merge_destroy(best);
      return status;
    }
    finer = merge->problem->tensor_count <= limit;
    if (finer || best == NULL) {
      mr_problem_merge_destroy(best);
      best = merge;
    } else {
      mr_problem_merge_destroy(merge);
    }
  }
  *merge_out = best;
  return MR_OK;
}

/* Starts where the level before ended. */
static void take_over(struct mr_problem_search *search, const struct mr_problem_merge *merge,
                      const struct mr_problem_solution *solution) {
  search->draft->knobs = solution->knobs;
  for (int32_t v = 0; v < solution->tensor_count; v++) {
    int32_t group = merge == NULL ? v : merge->group_of[v];
    if (search->index->free_choice[group]) {
      mr_problem_draft_set(search->draft, group, solution->decisions[v]);
    }
  }
  mr_problem_search_try_draft(search);
}

static void hand_over(const struct mr_problem_search *search, const struct mr_problem_merge *merge,
                      struct mr_problem_solution *solution) {
  solution->seconds = search->best_seconds;
  solution->knobs = search->best->knobs;
  for (int32_t v = 0; v < solution->tensor_count; v++) {
    solution->decisions[v] = search->best->decisions[merge == NULL ? v : merge->group_of[v]];
  }
}

static bool is_near(double seconds, const struct mr_problem_solution *solution) {
  return seconds <= solution->bound_seconds * (1 + BOLD_GAP);
}

/* One level, from where the one before ended or from the seeds: what a coarse level found may be
 * worse than the seeds of a finer one. */
static mr_status search_level(const struct mr_problem *problem,
                              const struct mr_problem_merge *merge, uint64_t work,
                              struct mr_problem_solution *solution) {
  struct mr_problem_search search;
  mr_status status =
      mr_problem_search_init(&search, merge == NULL ? problem : merge->problem, false);
  if (status != MR_OK) {
    return status;
  }
  search.bound_seconds = solution->bound_seconds;
  if (solution->seconds < INFINITY) {
    take_over(&search, merge, solution);
  }
  if (!is_near(search.best_seconds, solution)) {
    mr_problem_search_seed(&search);
  }
  if (search.best_seconds < INFINITY) {
    status = mr_problem_search_improve(&search, work, MR_PROBLEM_HEAT);
  }
  hand_over(&search, merge, solution);
  mr_problem_search_fini(&search);
  return status;
}

static bool deserves_boldness(const struct mr_problem *problem,
                              const struct mr_problem_solution *solution) {
  return problem->tensor_count <= BOLD_TENSORS || !is_near(solution->seconds, solution);
}

static uint64_t less_work(const struct mr_problem *problem) {
  return mr_min_u64(LESS_TENSOR_WORK * (uint64_t)problem->tensor_count, LESS_MOST_WORK);
}

/* Takes on what was found elsewhere, and keeps what comes of it where that is better. */
static mr_status take_on(const struct mr_problem *problem, const struct mr_problem_solution *found,
                         bool bold, uint64_t work, double heat,
                         struct mr_problem_solution *solution) {
  struct mr_problem_search search;
  mr_status status = mr_problem_search_init(&search, problem, bold);
  if (status != MR_OK) {
    return status;
  }
  search.bound_seconds = solution->bound_seconds;
  take_over(&search, NULL, found);
  if (search.best_seconds < INFINITY) {
    status = mr_problem_search_improve(&search, work, heat);
  }
  if (search.best_seconds < solution->seconds) {
    hand_over(&search, NULL, solution);
    solution->bold = bold;
  }
  mr_problem_search_fini(&search);
  return status;
}

/* Searches boldly, from the solution or from seeds. */
static mr_status improve_boldly(struct mr_problem_search *search,
                                const struct mr_problem_merge *merge,
                                const struct mr_problem_solution *solution) {
  search->bound_seconds = solution->bound_seconds;
  if (solution->seconds < INFINITY) {
    take_over(search, merge, solution);
  }
  mr_problem_search_seed(search);
  uint64_t work = BOLD_TENSOR_WORK * (uint64_t)search->problem->tensor_count;
  work = mr_min_u64(work, BOLD_MOST_WORK);
  mr_status status = MR_OK;
  if (search->best_seconds < INFINITY) {
    status = mr_problem_search_improve(search, work / COOL_PART, MR_PROBLEM_HEAT);
  }
  if (search->best_seconds < INFINITY && status == MR_OK &&
      !is_near(search->best_seconds, solution)) {
    status = mr_problem_search_improve(search, work, BOLD_HEAT);
  }
  return status;
}

/* The whole problem once more, boldly; taken where that is better. */
static mr_status search_boldly(const struct mr_problem *problem,
                               struct mr_problem_solution *solution) {
  struct mr_problem_search search;
  mr_status status = mr_problem_search_init(&search, problem, true);
  if (status != MR_OK) {
    return status;
  }
  status = improve_boldly(&search, NULL, solution);
  if (search.best_seconds < solution->seconds) {
    hand_over(&search, NULL, solution);
    solution->bold = true;
  }
  mr_problem_search_fini(&search);
  return status;
}

/* A merged problem once more, boldly; taken where that is better for the whole. */
static mr_status search_coarsely(const struct mr_problem *problem,
                                 const struct mr_problem_merge *merge,
                                 struct mr_problem_solution *solution) {
  struct mr_problem_solution found = {.tensor_count = problem->tensor_count};
  struct mr_problem_search search;
  mr_status status = mr_problem_search_init(&search, merge->problem, true);
  if (status != MR_OK) {
    return status;
  }
  found.decisions = mr_allocate((uint64_t)found.tensor_count, sizeof *found.decisions);
  status = found.decisions == NULL ? MR_NO_MEMORY : improve_boldly(&search, merge, solution);
  if (status == MR_OK && search.best_seconds < INFINITY) {
    hand_over(&search, merge, &found);
    status =
        take_on(problem, &found, true, less_work(problem) / REST_PART, MR_PROBLEM_HEAT, solution);
  }
  free(found.decisions);
  mr_problem_search_fini(&search);
  return status;
}

/* Where a brief search starts: from the seeds of a style, or from these. */
enum { ALL_GONE = MR_PROBLEM_STYLES, STARTS, SEEDS };

/* From one start, with brief local search; what is found is taken on for the problem of which this
 * one is a lesser. */
static mr_status search_briefly(const struct mr_problem *problem, const struct mr_problem *lesser,
                                int start, bool bold, struct mr_problem_solution *solution) {
  struct mr_problem_solution found = {.tensor_count = problem->tensor_count};
  struct mr_problem_search search;
  mr_status status = mr_problem_search_init(&search, lesser, bold);
  if (status != MR_OK) {
    return status;
  }
  if (start == SEEDS) {
    mr_problem_search_seed(&search);
  } else if (start == ALL_GONE) {
    mr_problem_search_let_all_go(&search);
  } else {
    mr_problem_search_seed_in_style(&search, start);
  }
  if (search.best_seconds < INFINITY) {
    found.decisions = mr_allocate((uint64_t)found.tensor_count, sizeof *found.decisions);
    status = found.decisions == NULL
                 ? MR_NO_MEMORY
                 : mr_problem_search_improve(&search, less_work(problem), MR_PROBLEM_HEAT);
  }
  if (search.best_seconds < INFINITY && status == MR_OK) {
    hand_over(&search, NULL, &found);
    status =
        take_on(problem, &found, bold, less_work(problem) / REST_PART, MR_PROBLEM_HEAT, solution);
  }
  free(found.decisions);
  mr_problem_search_fini(&search);
  return status;
}

static mr_status try_less(const struct mr_problem *problem, const struct less *less, bool bold,
                          struct mr_problem_solution *solution) {
  struct mr_problem lesser = *problem;
  lesser.device_bytes *= less->device;
  lesser.host_bytes *= less->host;
  for (int link = 0; link < MR_PROBLEM_LINK_COUNT; link++) {
    lesser.link_bytes_per_second[link] *= less->link[link];
  }
  return search_briefly(problem, &lesser, SEEDS, bold, solution);
}

/* With less of one thing, then from other starts, cautiously and boldly, until the bound is met. */
static mr_status search_from_elsewhere(const struct mr_problem *problem,
                                       struct mr_problem_solution *solution) {
  mr_status status = MR_OK;
  int less_count = (int)MR_COUNT_OF(lesses);
  int count = 2 * (less_count + STARTS);
  for (int i = 0; i < count && status == MR_OK && !is_near(solution->seconds, solution); i++) {
    int start = i / 2 - less_count;
    bool bold = i % 2 == 1;
    status = start < 0 ? try_less(problem, &lesses[i / 2], bold, solution)
                       : search_briefly(problem, problem, start, bold, solution);
  }
  return status;
}

/* Decides for part i by itself; adds its time to the solution's. */
static mr_status search_part(struct mr_problem_parts *parts, int32_t i, uint64_t work,
                             struct mr_problem_solution *solution) {
  struct mr_problem_search search;
  mr_problem_parts_take(parts, i, true);
  mr_status status = mr_problem_search_init(&search, &parts->part, false);
  if (status != MR_OK) {
    return status;
  }
  mr_problem_search_seed(&search);
  if (search.best_seconds < INFINITY) {
    status = mr_problem_search_improve(&search, work, MR_PROBLEM_HEAT);
  }
  solution->seconds += search.best_seconds;
  solution->knobs = search.best->knobs;
  for (int32_t v = 0; v < parts->part.tensor_count; v++) {
    solution->decisions[parts->part_members[v]] = search.best->decisions[v];
  }
  mr_problem_search_fini(&search);
  return status;
}

static void repeat_part(const struct mr_problem_parts *parts, int32_t i, uint8_t *decisions) {
  int32_t shift = parts->first_member[i] - parts->first_member[i - 1];
  for (int32_t j = parts->first_member[i]; j < parts->first_member[i + 1]; j++) {
    decisions[parts->members[j]] = decisions[parts->members[j - shift]];
  }
}

/* Decides for each part by itself; the solution is one where all of them fit. */
static mr_status search_parts(const struct mr_problem *problem,
                              struct mr_problem_solution *solution) {
  struct mr_problem_parts *parts = NULL;
  mr_status status = mr_problem_parts_create(problem, &parts);
  if (status != MR_OK || parts->count == 1) {
    mr_problem_parts_destroy(parts);
    return status;
  }
  int32_t different = 1;
  for (int32_t i = 1; i < parts->count; i++) {
    different += !mr_problem_parts_repeat(parts, i);
  }
  solution->seconds = 0;
  for (int32_t i = 0; i < parts->count && status == MR_OK; i++) {
    if (mr_problem_parts_repeat(parts, i)) {
      repeat_part(parts, i, solution->decisions);
    } else {
      status = search_part(parts, i, PARTS_WORK / (uint64_t)different, solution);
    }
  }
  mr_problem_parts_destroy(parts);
  return status;
}

/* Cautiously, level by level. Where merging does not bring the tensors down to a level, the next
 * one would be the same again. */
static mr_status search_cautiously(const struct mr_problem *problem,
                                   struct mr_problem_solution *solution) {
  mr_status status = search_parts(problem, solution);
  bool in_parts = solution->seconds < INFINITY;
  int32_t searched_count = -1;
  for (size_t i = 0; i < MR_COUNT_OF(levels) && status == MR_OK; i++) {
    struct mr_problem_merge *merge = NULL;
    status = merge_to(problem, levels[i].tensors, &merge);
    bool whole = i + 1 == MR_COUNT_OF(levels);
    bool finer = merge != NULL && merge->problem->tensor_count != searched_count;
    if (status == MR_OK && (whole || (finer && !in_parts))) {
      status = search_level(problem, merge, levels[i].work, solution);
      searched_count = merge == NULL ? -1 : merge->problem->tensor_count;
    }
    mr_problem_merge_destroy(merge);
  }
  return status;
}

mr_status mr_problem_search_levels(const struct mr_problem *problem,
                                   struct mr_problem_solution *solution) {
  solution->seconds = INFINITY;
  solution->bold = false;
  mr_status status = search_cautiously(problem, solution);
  struct mr_problem_merge *merge = NULL;
  if (status == MR_OK && !is_near(solution->seconds, solution)) {
    status = merge_to(problem, levels[0].tensors, &merge);
  }
  if (merge != NULL && merge->problem->tensor_count <= problem->tensor_count / COARSE_PART) {
    status = search_coarsely(problem, merge, solution);
  }
  mr_problem_merge_destroy(merge);
  if (status == MR_OK && deserves_boldness(problem, solution)) {
    status = search_boldly(problem, solution);
  }
  if (status == MR_OK && problem->tensor_count <= SMALL_TENSORS) {
    status = search_from_elsewhere(problem, solution);
    if (status == MR_OK && solution->seconds < INFINITY && !is_near(solution->seconds, solution)) {
      status = take_on(problem, solution, solution->bold, POLISH_FACTOR * less_work(problem),
                       POLISH_HEAT, solution);
    }
  }
  return status;
}
