/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The search for a good draft, in two stages: seeds, which choose what is recomputed and let the
 * rest follow, then a local search that moves tensors in small groups. Large problems are first
 * merged: tensors that share p, g and the price of a byte move as one, and each finer level starts
 * from what the coarser one found.
 */
#ifndef MEMRUN_PLAN_PROBLEM_SEARCH_H
#define MEMRUN_PLAN_PROBLEM_SEARCH_H

#include "plan/problem/draft.h"
#include "plan/problem/tree.h"

struct mr_problem_search {
  const struct mr_problem *problem;
  struct mr_problem_index *index;
  struct mr_problem_simulation *simulation;
  struct mr_problem_draft *draft; /* the one that is tried */
  struct mr_problem_draft *best;
  double best_seconds;         /* INFINITY: none was found */
  double bound_seconds;        /* where to stop */
  const atomic_bool *unwanted; /* by others, meanwhile: what is found does not count; may be NULL */
  bool may_use_nvme;           /* the host cannot hold all that may leave */
  int32_t *by_gap;             /* tensors with a choice, shortest gap first */
  int32_t *by_price;           /* those that can be recomputed, cheapest byte first, then last p */
  int32_t *by_price_spread;    /* of one price all over the segments in place of the last p first */
  int32_t *by_class;           /* tensors with a choice: alike ones beside each other, by p */
  struct mr_problem_tree tree; /* over points or boundaries, for the seeds */
  double *excess;              /* for each point, to fill it with */
  int32_t choice_count;
  int32_t price_count;
  bool has_ties;  /* of prices: the two orders differ */
  bool has_clean; /* tensors with a choice */
};

MR_CHECK_RESULT mr_status mr_problem_search_init(struct mr_problem_search *search,
                                                 const struct mr_problem *problem, bool bold);
void mr_problem_search_fini(struct mr_problem_search *search);

/* Takes search->draft as the best where it is sound and can run. */
void mr_problem_search_try_draft(struct mr_problem_search *search);
/* Tries the drafts with the least on the device, whatever they take; the last one that it tried,
 * search->draft, keeps all that is handed on. */
void mr_problem_search_let_all_go(struct mr_problem_search *search);
/* Styles of seeds: how what is not recomputed is decided. */
#define MR_PROBLEM_STYLES 4
/* Fills in search->best from the seeds; best_seconds stays INFINITY where no seed is sound. */
void mr_problem_search_seed(struct mr_problem_search *search);
/* From those of one style alone; of one that is like another for this problem there are none. */
void mr_problem_search_seed_in_style(struct mr_problem_search *search, int style);
/* Heat with which what is found from seeds gets best. */
#define MR_PROBLEM_HEAT 1e-4
/* Improves search->best until about `work` events have been simulated. At first a trial may make
 * the schedule longer by the part `heat` of it. MR_NO_MEMORY. */
MR_CHECK_RESULT mr_status mr_problem_search_improve(struct mr_problem_search *search, uint64_t work,
                                                    double heat);

/* Whether a tensor that leaves, or is recomputed, can be kept beside all that lies there. */
bool mr_problem_draft_can_keep(const struct mr_problem_draft *draft, int32_t tensor);

/* Decisions that a move tries, and how to take them back. */
struct mr_problem_change {
  int32_t tensor;
  uint8_t old;
};

#define MR_PROBLEM_MAX_CHANGES 4096

struct mr_problem_trial {
  struct mr_problem_search *search;
  struct mr_random random;
  int32_t change_count;
  struct mr_problem_change changes[MR_PROBLEM_MAX_CHANGES];
};

void mr_problem_trial_change(struct mr_problem_trial *trial, int32_t tensor, uint8_t decision);
void mr_problem_trial_undo(struct mr_problem_trial *trial);
/* A number from 0 to count - 1. */
int32_t mr_problem_trial_pick(struct mr_problem_trial *trial, int32_t count);
bool mr_problem_trial_allows(const struct mr_problem_trial *trial, int32_t tensor,
                             uint8_t decision);
/* Lets more tensors go until the draft is sound; false where that was not reached. */
bool mr_problem_trial_repair(struct mr_problem_trial *trial);
/* Keeps one more tensor where one is found that fits. */
void mr_problem_trial_grow(struct mr_problem_trial *trial);
/* One random move. */
void mr_problem_trial_move(struct mr_problem_trial *trial);

/* Prices that differ by less than this part are one: files round their numbers. */
#define MR_PROBLEM_SAME_PRICE 1e-6

/* A problem in which alike tensors are one. */
struct mr_problem_merge {
  struct mr_problem *problem;
  int32_t *group_of; /* for each tensor of the fine problem: the tensor of this one */
};

/*
 * Merges tensors that share p, g, what they are and the price of a byte, each such set into at most
 * `parts` (a power of two): the groups of more parts lie within those of fewer. The sizes and times
 * of a group are the sums of its tensors', so the same decisions give the same loads. MR_NO_MEMORY.
 */
MR_CHECK_RESULT mr_status mr_problem_merge_create(const struct mr_problem *fine, int32_t parts,
                                                  struct mr_problem_merge **merge_out);
void mr_problem_merge_destroy(struct mr_problem_merge *merge);

/* What one level hands to the next, in terms of the whole problem. */
struct mr_problem_solution {
  int32_t tensor_count;
  uint8_t *decisions; /* the caller's */
  struct mr_problem_knobs knobs;
  bool bold;            /* which index the decisions are for */
  double seconds;       /* of the last level's best; INFINITY: none was found */
  double bound_seconds; /* where to stop */
};

/* Fills in the best decisions that were found, knobs, bold and seconds; `crew` as for
 * mr_problem_plan. MR_NO_MEMORY. */
MR_CHECK_RESULT mr_status mr_problem_search_levels(const struct mr_problem *problem,
                                                   struct mr_crew *crew,
                                                   struct mr_problem_solution *solution);

#endif
