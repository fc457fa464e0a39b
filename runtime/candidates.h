/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which blocks recompute what: the order in which candidates are tried.
 *
 * A *path* leads from "save all" to every block's last choice in *steps*: one block goes one
 * choice deeper. Steps are taken by their price, the seconds of ops run again for each byte freed,
 * which is what a byte moved instead may cost; blocks alike have equal prices and go one after
 * another, the first of the program first or last. So all blocks at one choice are points of the
 * path, and between them some blocks are a choice deeper than the others, alike. The time of a
 * step falls and then rises along the path, near enough: some points far apart are tried, then
 * points between the best and its neighbours, halving the distance each time. Points are tried two
 * at a time, on any machine: which ones does not depend on how fast answers come. Where there is
 * nothing on one side of the best, the second is the one that halving would come to next. Bounds
 * fall and rise as the times do, and cost a tenth of a plan: so the path is searched for the least
 * bound first, and plans are made from there to where bounds are no better than a plan.
 */
#ifndef MEMRUN_RUNTIME_CANDIDATES_H
#define MEMRUN_RUNTIME_CANDIDATES_H

#include <stdbool.h>
#include <stdint.h>

#include "recompute/recompute.h"

struct mr_path_step;

struct mr_path {
  const struct mr_recompute_menu *menu;
  struct mr_path_step *steps;
  uint32_t step_count;
  uint32_t *selected; /* of each block of the menu, by the last mr_path_select */
};

/* A path through the menu, which is borrowed. MR_NO_MEMORY. */
MR_CHECK_RESULT mr_status mr_path_init(struct mr_path *path, const struct mr_recompute_menu *menu,
                                       bool last_first);
void mr_path_fini(struct mr_path *path);

/* Takes the first `position` steps. */
void mr_path_select(struct mr_path *path, uint32_t position);

#define MR_PATH_TRIALS 2u /* at a time */

/* What a client of mr_path_search knows: the time of a step at each of so many positions, INFINITY
 * where it is not better than what was tried before or does not fit. */
typedef mr_status mr_path_trial(void *context, struct mr_path *path, const uint32_t *positions,
                                uint32_t count, double *seconds_out);

/* A position and its time; INFINITY: no plan of use is there. */
struct mr_path_point {
  uint32_t position;
  double seconds;
};

#define MR_PATH_KNOWN 3u

/* A search for the best position. */
struct mr_path_search {
  mr_path_trial *trial;
  void *context;
  uint32_t most_trials;
  bool in_pairs;                             /* of positions far apart an even number is tried */
  uint32_t from, to;                         /* the positions to search, both among them */
  struct mr_path_point known[MR_PATH_KNOWN]; /* that are not tried */
  uint32_t known_count;
  struct mr_path_point best;
};

/* Adds what is known of a position, unless something is already. */
void mr_path_know(struct mr_path_search *search, uint32_t position, double seconds);

/* Fills in the best of all positions that were or are known. MR_NO_MEMORY, and what a trial
 * returns. */
MR_CHECK_RESULT mr_status mr_path_find(struct mr_path *path, struct mr_path_search *search);

#endif
