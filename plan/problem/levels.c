/* SPDX-License-Identifier: Apache-2.0 */
/* The levels of a search: parts or merged problems first, then the problem itself. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

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
/* Simulated events that this may cost, for each tensor and in all; and in all where it is not the
 * whole of a small problem (SMALL_TENSORS): nothing else goes on beside it then. */
#define BOLD_TENSOR_WORK 40000
#define BOLD_MOST_WORK   12000000
#define BOLD_LARGE_WORK  4000000
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
/* Searches that end this near to each other are in one place. Where so many pairs, a cautious one
 * and a bold one, have ended at the best since it was found, this near to the bound, the rest is
 * left out: it made 6 of 200 problems better by at most 0.1 %; of those further from their bounds
 * some, by some per cent. */
#define SAME_PLACE 1e-9
#define ENOUGH_MET 3u
#define ENOUGH_GAP 1e-2

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

static void take_better(const struct mr_problem_solution *found,
                        struct mr_problem_solution *solution) {
  if (found->seconds < solution->seconds) {
    uint8_t *decisions = solution->decisions;
    memcpy(decisions, found->decisions, (size_t)found->tensor_count * sizeof *decisions);
    *solution = *found;
    solution->decisions = decisions;
  }
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

/* Searches boldly, from the solution or from seeds; so many events at most. */
static mr_status improve_boldly(struct mr_problem_search *search,
                                const struct mr_problem_merge *merge, uint64_t most_work,
                                const struct mr_problem_solution *solution) {
  search->bound_seconds = solution->bound_seconds;
  if (solution->seconds < INFINITY) {
    take_over(search, merge, solution);
  }
  mr_problem_search_seed(search);
  uint64_t work = BOLD_TENSOR_WORK * (uint64_t)search->problem->tensor_count;
  work = mr_min_u64(work, most_work);
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
static mr_status search_boldly(const struct mr_problem *problem, const atomic_bool *unwanted,
                               struct mr_problem_solution *solution) {
  struct mr_problem_search search;
  mr_status status = mr_problem_search_init(&search, problem, true);
  if (status != MR_OK) {
    return status;
  }
  search.unwanted = unwanted;
  bool small = problem->tensor_count <= SMALL_TENSORS;
  status = improve_boldly(&search, NULL, small ? BOLD_MOST_WORK : BOLD_LARGE_WORK, solution);
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
  status = found.decisions == NULL ? MR_NO_MEMORY
                                   : improve_boldly(&search, merge, BOLD_LARGE_WORK, solution);
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

/* A brief search from one start, with no more to work with than the problem at hand has. */
struct brief {
  struct mr_problem lesser;
  int start;
  bool bold;
  struct mr_problem_solution found; /* for the problem itself */
};

/* What is found with less to work with is taken on for the problem at hand. */
static mr_status search_briefly(const struct mr_problem *problem, struct brief *brief) {
  struct mr_problem_solution *found = &brief->found;
  struct mr_problem_search search;
  mr_status status = mr_problem_search_init(&search, &brief->lesser, brief->bold);
  if (status != MR_OK) {
    return status;
  }
  if (brief->start == SEEDS) {
    mr_problem_search_seed(&search);
  } else if (brief->start == ALL_GONE) {
    mr_problem_search_let_all_go(&search);
  } else {
    mr_problem_search_seed_in_style(&search, brief->start);
  }
  if (search.best_seconds < INFINITY) {
    status = mr_problem_search_improve(&search, less_work(problem), MR_PROBLEM_HEAT);
  }
  if (search.best_seconds < INFINITY && status == MR_OK) {
    hand_over(&search, NULL, found);
    found->seconds = INFINITY;
    status = take_on(problem, found, brief->bold, less_work(problem) / REST_PART, MR_PROBLEM_HEAT,
                     found);
  }
  mr_problem_search_fini(&search);
  return status;
}

static struct mr_problem lessen(const struct mr_problem *problem, const struct less *less) {
  struct mr_problem lesser = *problem;
  lesser.device_bytes *= less->device;
  lesser.host_bytes *= less->host;
  for (int link = 0; link < MR_PROBLEM_LINK_COUNT; link++) {
    lesser.link_bytes_per_second[link] *= less->link[link];
  }
  return lesser;
}

/* Cautiously and boldly. */
struct brief_pair {
  const struct mr_problem *problem;
  struct brief briefs[2];
};

static mr_status search_one_of_pair(void *context, uint32_t task) {
  struct brief_pair *pair = context;
  return search_briefly(pair->problem, &pair->briefs[task]);
}

/* How many pairs have ended where the best was found, both of them, after one more: `met` had. */
static uint32_t met_after(const struct brief_pair *pair, const struct mr_problem_solution *best,
                          uint32_t met) {
  bool both = true;
  for (int k = 0; k < 2; k++) {
    double seconds = pair->briefs[k].found.seconds;
    both = both && seconds <= best->seconds * (1 + SAME_PLACE);
    met = seconds < best->seconds * (1 - SAME_PLACE) ? 0 : met;
  }
  return met + both;
}

/* Whether none better is to be expected. */
static bool is_enough(uint32_t met, const struct mr_problem_solution *solution) {
  return met >= ENOUGH_MET && solution->seconds <= solution->bound_seconds * (1 + ENOUGH_GAP);
}

/* With less of one thing, then from other starts, cautiously and boldly, until the bound is met, or
 * so many have ended in one place that none better is to be expected: *enough_out. */
static mr_status search_from_elsewhere(const struct mr_problem *problem, struct mr_crew *crew,
                                       struct mr_problem_solution *solution, bool *enough_out) {
  int less_count = (int)MR_COUNT_OF(lesses);
  uint64_t n = (uint64_t)problem->tensor_count;
  uint8_t *decisions = mr_allocate(2 * n, sizeof *decisions);
  mr_status status = decisions == NULL ? MR_NO_MEMORY : MR_OK;
  uint32_t met = 0;
  bool enough = is_near(solution->seconds, solution);
  for (int i = 0; i < less_count + STARTS && status == MR_OK && !enough; i++) {
    struct brief_pair pair = {.problem = problem};
    for (int k = 0; k < 2; k++) {
      pair.briefs[k] =
          (struct brief){.lesser = i < less_count ? lessen(problem, &lesses[i]) : *problem,
                         .start = i < less_count ? SEEDS : i - less_count,
                         .bold = k == 1,
                         .found = {.tensor_count = problem->tensor_count,
                                   .decisions = decisions + (uint64_t)k * n,
                                   .seconds = INFINITY,
                                   .bound_seconds = solution->bound_seconds}};
    }
    status = mr_crew_run(crew, 2, search_one_of_pair, &pair);
    if (status == MR_OK) {
      met = met_after(&pair, solution, met);
      take_better(&pair.briefs[0].found, solution);
      take_better(&pair.briefs[1].found, solution);
    }
    enough = is_enough(met, solution) || is_near(solution->seconds, solution);
  }
  free(decisions);
  *enough_out = is_enough(met, solution) || !deserves_boldness(problem, solution);
  return status;
}

/* Where caution alone left too much: two searches side by side, the second of which is in vain
 * where the first found enough. */
struct pursuit {
  const struct mr_problem *problem;
  struct mr_crew *crew;
  struct mr_problem_solution found[2];
  atomic_bool enough;
};

static mr_status pursue(void *context, uint32_t task) {
  struct pursuit *pursuit = context;
  struct mr_problem_solution *found = &pursuit->found[task];
  if (task == 1) {
    return atomic_load(&pursuit->enough) ? MR_OK
                                         : search_boldly(pursuit->problem, &pursuit->enough, found);
  }
  bool enough = false;
  mr_status status = MR_OK;
  if (pursuit->problem->tensor_count <= SMALL_TENSORS) {
    status = search_from_elsewhere(pursuit->problem, pursuit->crew, found, &enough);
  }
  atomic_store(&pursuit->enough, enough);
  return status;
}

static mr_status search_further(const struct mr_problem *problem, struct mr_crew *crew,
                                struct mr_problem_solution *solution) {
  uint64_t n = (uint64_t)problem->tensor_count;
  struct pursuit pursuit = {.problem = problem, .crew = crew, .found = {*solution, *solution}};
  uint8_t *decisions = mr_allocate(2 * n, sizeof *decisions);
  if (decisions == NULL) {
    return MR_NO_MEMORY;
  }
  for (int k = 0; k < 2; k++) {
    pursuit.found[k].decisions = decisions + (uint64_t)k * n;
    memcpy(pursuit.found[k].decisions, solution->decisions, n * sizeof *decisions);
  }
  mr_status status = mr_crew_run(crew, 2, pursue, &pursuit);
  bool enough = atomic_load(&pursuit.enough);
  take_better(&pursuit.found[0], solution);
  if (!enough) {
    take_better(&pursuit.found[1], solution);
  }
  free(decisions);
  if (status == MR_OK && !enough && problem->tensor_count <= SMALL_TENSORS &&
      solution->seconds < INFINITY && !is_near(solution->seconds, solution)) {
    status = take_on(problem, solution, solution->bold, POLISH_FACTOR * less_work(problem),
                     POLISH_HEAT, solution);
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

mr_status mr_problem_search_levels(const struct mr_problem *problem, struct mr_crew *crew,
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
  return status == MR_OK && deserves_boldness(problem, solution)
             ? search_further(problem, crew, solution)
             : status;
}
