/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which box the exact search takes next. A turn has a rule and a ranking of the boxes, which
 * decides among equals.
 */
#ifndef MEMRUN_PLAN_PACK_CHOOSE_H
#define MEMRUN_PLAN_PACK_CHOOSE_H

#include "plan/pack/search.h"

/*
 * Rules: the box with the lowest offset of all; or the box with the lowest offset in the section
 * with the lowest floor (the lowest low in it), and of several such sections in that with the most
 * bytes to be placed, or in that whose check failed most often. The second kind fills valleys and
 * sees at once when one cannot be filled; the first alone keeps all sections at one height.
 */
enum mr_pack_rule { MR_PACK_LOWEST, MR_PACK_FULLEST_VALLEY, MR_PACK_HARDEST_VALLEY, MR_PACK_RULES };

#define MR_PACK_RANKINGS 5u
#define MR_PACK_TURNS    ((uint32_t)MR_PACK_RULES * MR_PACK_RANKINGS)

struct mr_pack_traits; /* what boxes are ranked by */

struct mr_pack_chooser {
  enum mr_pack_rule rule;
  struct mr_pack_traits *traits; /* of each box */
  int64_t *floor;                /* scratch, of each section */
  bool *open;                    /* scratch, of each section: a box may be taken there */
};

MR_CHECK_RESULT mr_status mr_pack_chooser_init(struct mr_pack_chooser *chooser,
                                               const struct mr_pack_problem *problem,
                                               const struct mr_pack_sections *sections);
void mr_pack_chooser_fini(struct mr_pack_chooser *chooser);

/* Sets the rule and ranks the boxes for a turn, 0 to MR_PACK_TURNS - 1. */
void mr_pack_chooser_turn(struct mr_pack_chooser *chooser, struct mr_pack_state *state,
                          uint32_t turn);

/*
 * A box of the members, which live in sections [from, end), that is neither placed nor raised and
 * below whose offset no other can end. MR_PACK_NONE: all that are left are raised, so that none of
 * them can rest on anything.
 */
uint32_t mr_pack_choose(struct mr_pack_chooser *chooser, const struct mr_pack_state *state,
                        struct mr_pack_members members, uint32_t from, uint32_t end);

#endif
