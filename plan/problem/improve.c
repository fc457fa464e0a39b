/* SPDX-License-Identifier: Apache-2.0 */
/* The local search: a trial is taken where it makes the schedule no longer. */
#include <math.h>
#include <stdlib.h>

#include "plan/problem/search.h"

/* The same problem gives the same schedule. */
#define SEARCH_SEED 1
/* One trial of so many turns a knob of the simulation. */
#define KNOB_PERIOD 16
/* What a turned knob must gain. */
#define KNOB_GAIN 1e-6
/* The longest lookahead that a trial sets is 2^(this - 1) segments. */
#define LOOKAHEAD_POWERS 10
/* Lags of a link that a trial sets. */
static const double lags[] = {0, 0.05, 0.1, 0.2, 0.3, 0.5, 1};
/* What a trial costs beside the events of its simulation, in events. */
#define TRIAL_WORK 100
/* The part of the search in which trials may make the schedule longer. */
#define HOT_PART 0.7
/* A schedule so near to the bound cannot be improved by anything that counts. */
#define NEAR_ENOUGH 1e-7

static void turn_knob(struct mr_problem_trial *trial) {
  struct mr_problem_knobs *knobs = &trial->search->draft->knobs;
  if (mr_problem_trial_pick(trial, 2) == 0) {
    int link = mr_problem_trial_pick(trial, MR_PROBLEM_LINK_COUNT);
    knobs->lag[link] = lags[mr_problem_trial_pick(trial, MR_COUNT_OF(lags))];
    return;
  }
  knobs->lookahead = 1 << mr_problem_trial_pick(trial, LOOKAHEAD_POWERS);
  knobs->patient = mr_problem_trial_pick(trial, 2) == 1;
}

/* One trial from the present draft, which takes `seconds`: keeps what it changed, and returns the
 * new time, where that is at most `most`, and takes it back otherwise. */
static double try_once(struct mr_problem_trial *trial, double seconds, double most) {
  struct mr_problem_search *search = trial->search;
  struct mr_problem_knobs knobs = search->draft->knobs;
  trial->change_count = 0;
  bool knob = mr_problem_trial_pick(trial, KNOB_PERIOD) == 0;
  if (knob) { /* a knob shapes all later trials: it must earn that */
    turn_knob(trial);
    most = seconds * (1 - KNOB_GAIN);
  } else {
    mr_problem_trial_move(trial);
  }
  bool sound = mr_problem_trial_repair(trial);
  if (sound && mr_problem_trial_pick(trial, 2) == 0) {
    mr_problem_trial_grow(trial);
  }
  double tried_seconds = INFINITY;
  if (sound && (knob || trial->change_count > 0)) {
    tried_seconds = mr_problem_simulate(search->simulation, search->draft, most, NULL);
  }
  if (tried_seconds < INFINITY) {
    return tried_seconds;
  }
  mr_problem_trial_undo(trial);
  search->draft->knobs = knobs;
  return seconds;
}

static bool is_wanted(const struct mr_problem_search *search) {
  return search->unwanted == NULL || !atomic_load_explicit(search->unwanted, memory_order_relaxed);
}

mr_status mr_problem_search_improve(struct mr_problem_search *search, uint64_t work, double heat) {
  if (search->choice_count == 0) {
    return MR_OK;
  }
  struct mr_problem_trial *trial = mr_allocate(1, sizeof *trial);
  if (trial == NULL) {
    return MR_NO_MEMORY;
  }
  trial->search = search;
  mr_random_init(&trial->random, SEARCH_SEED);
  mr_problem_draft_copy(search->draft, search->best);
  uint64_t start = mr_problem_simulation_events(search->simulation);
  uint64_t done = 0;
  double seconds = search->best_seconds;
  for (uint64_t i = 1; done < work && is_wanted(search) &&
                       search->best_seconds > search->bound_seconds * (1 + NEAR_ENOUGH);
       i++) {
    double left = fmax(0, 1 - (double)done / (HOT_PART * (double)work));
    seconds = try_once(trial, seconds, seconds * (1 + heat * left));
    if (seconds < search->best_seconds) {
      search->best_seconds = seconds;
      mr_problem_draft_copy(search->best, search->draft);
    }
    done = i * TRIAL_WORK + mr_problem_simulation_events(search->simulation) - start;
  }
  free(trial);
  return MR_OK;
}
