/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Buffers that are taken for one, so that the exact search has less to decide. Where memory is full
 * before and after a moment, what begins to live then fills the places of what does not live any
 * more. So a buffer that begins when one of its size ends probably lies where that one lay; and so
 * does a group that lives and dies together and has that size in all. Joined, they are one buffer,
 * which may fit another in turn. What lives at each moment is as much as before.
 *
 * A packing of the joined buffers is one of all. That there is none proves nothing: to join is to
 * guess.
 */
#ifndef MEMRUN_PLAN_PACK_JOIN_H
#define MEMRUN_PLAN_PACK_JOIN_H

#include "plan/pack/pack.h"

/*
 * What is guessed: that a buffer lies where another lay, or a group, if at that moment no others
 * have the same size; or, before that, that buffers which live and die together lie one above
 * another. The second guess leaves less to search and is wrong more often.
 */
enum mr_pack_guess { MR_PACK_MATCHED, MR_PACK_STACKED, MR_PACK_GUESSES };

struct mr_pack_joined {
  struct mr_pack_buffer *buffers; /* those that are joined are the last */
  uint32_t count;
  uint32_t *whole;  /* of each buffer given: which of `buffers` it is a part of */
  uint64_t *within; /* and at which offset in it */
};

/* MR_NO_MEMORY. mr_pack_joined_fini afterwards in any case. */
MR_CHECK_RESULT mr_status mr_pack_join(struct mr_pack_joined *joined,
                                       const struct mr_pack_problem *problem,
                                       enum mr_pack_guess guess);
void mr_pack_joined_fini(struct mr_pack_joined *joined);

#endif
