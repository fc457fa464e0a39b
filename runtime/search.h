/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The search for a plan: its candidates, which are made and planned in batches (runtime/batch.c),
 * and looked for along the path of a menu (runtime/along.c); runtime/planning.c says which kinds of
 * them there are.
 */
#ifndef MEMRUN_RUNTIME_SEARCH_H
#define MEMRUN_RUNTIME_SEARCH_H

#include "runtime/candidates.h"
#include "runtime/finalists.h"

struct mr_search {
  struct mr_plan *plan; /* not changed while candidates are planned */
  struct mr_finalists finalists;
  struct mr_recompute_menu menu;
  struct mr_path path;
  bool deferred;    /* candidates run their updates in the next step, where they can */
  uint32_t staying; /* but for the last so many, which the host runs */
  uint32_t tried;
};

/* Candidates that are planned side by side at most: what each is compared with is the best before
 * the first of them, so that the plan does not depend on which of them ends first. */
#define MR_MOST_AT_ONCE (3 * MR_FINALISTS)

/* Candidates to be planned without search, and what came of them. */
struct mr_batch {
  const struct mr_search *search;
  struct mr_candidate candidates[MR_MOST_AT_ONCE]; /* that have their program alone */
  uint32_t count;
  double seconds[MR_MOST_AT_ONCE]; /* INFINITY: it does not fit, or is of no use */
};

/* Whether updates may run in the next step where that is faster. */
bool mr_search_wants_deferred(const struct mr_search *search);
/* Whether there are any that may. */
bool mr_search_may_defer(const struct mr_search *search);

/* Adds the program with the blocks of path->selected run again. MR_NO_MEMORY. */
MR_CHECK_RESULT mr_status mr_batch_add(const struct mr_search *search, const struct mr_path *path,
                                       struct mr_batch *batch);
/* Makes a batch of the programs at some positions of the path; none of them where one cannot be
 * made. MR_NO_MEMORY. */
MR_CHECK_RESULT mr_status mr_batch_fill(const struct mr_search *search, const struct mr_path *path,
                                        const uint32_t *positions, uint32_t count,
                                        struct mr_batch *batch);
/* Ends what was not planned. */
void mr_batch_fini(struct mr_batch *batch);

/* Plans a candidate that has its program alone, without search. `staying`: the host is to run all
 * updates that are not deferred; else the planner chooses what it runs. MR_NO_MEMORY,
 * MR_INVALID. */
MR_CHECK_RESULT mr_status mr_search_plan(const struct mr_search *search,
                                         struct mr_candidate *candidate, bool staying);

/* Plans a batch side by side; in its order, puts each among the finalists or ends it. MR_NO_MEMORY,
 * MR_INVALID. */
MR_CHECK_RESULT mr_status mr_search_try(struct mr_search *search, struct mr_batch *batch);
/* Plans a candidate alone, or the graph, with the blocks of path->selected run again unless path is
 * NULL. */
MR_CHECK_RESULT mr_status mr_search_try_candidate(struct mr_search *search,
                                                  struct mr_candidate candidate,
                                                  double *seconds_out);
MR_CHECK_RESULT mr_status mr_search_try_selected(struct mr_search *search,
                                                 const struct mr_path *path, double *seconds_out);

/* How many of a program's updates had better stay in their step, for the host beside the device to
 * run them, while the others are deferred (runtime/staying.c); 0: no plan does so. MR_NO_MEMORY,
 * MR_INVALID. */
MR_CHECK_RESULT mr_status mr_search_find_staying(const struct mr_search *search,
                                                 const struct mr_graph *program,
                                                 uint32_t *staying_out);

/* Plans candidates along the path, which has steps; the time at its begin, where nothing runs
 * again, is known. MR_NO_MEMORY, MR_INVALID. */
MR_CHECK_RESULT mr_status mr_search_along(struct mr_search *search, double first_seconds);

#endif
