/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A draft is a plan in the making: the gaps of a program under one page size, what was decided for
 * each, and the pages in use at every op. It knows nothing of page numbers, slots or waits; those
 * follow from a finished draft (lower.c, instructions.c, waits.c), in that order.
 *
 * Time on the circle. Ops are counted on an unrolled line: a gap that goes round the end of the
 * step has before_op >= op_count, and its release and fetch ops may lie on either side of
 * op_count. The pages of an evicted gap are free for ops release_op .. fetch_op - 1.
 *
 * A new draft keeps everything. Once a choice, a repair or a sweep says that the draft fits, the
 * pages in use at every op are at most limit_pages, and whatever refills, narrows or moves holes
 * then keeps it so. Decisions never take more than host_limit_pages or nvme_limit_units; whether
 * the device has room for what they keep is the caller's concern.
 */
#ifndef MEMRUN_PLAN_DRAFT_H
#define MEMRUN_PLAN_DRAFT_H

#include "base/base.h"
#include "plan/books.h"
#include "plan/dual.h"
#include "plan/plan.h"

/* The decision for a gap in which nobody wants the bytes: the pages are free, and nothing moves. */
#define MR_DRAFT_DEAD UINT8_MAX

struct mr_draft_gap {
  mr_tensor_id tensor;
  uint32_t after_op;   /* p < op_count */
  uint32_t before_op;  /* g > p, at most p + op_count; unrolled */
  uint32_t release_op; /* e in (p, j]; unrolled, meaningful where evicted */
  uint32_t fetch_op;   /* j in [e, g] */
  /* Where ops on the host use the tensor inside the gap, it is out before the first and comes back
   * after the last: e and j go no further than these (but see mr_draft_last_release()). Else g and
   * p + 1. */
  uint32_t latest_release_op;
  uint32_t earliest_fetch_op;
  uint32_t next_life_op; /* final: where the tensor's life begins in the next step, unrolled */
  uint32_t changed_op;  /* the last op before the gap in its step that changes the tensor; MR_NO_OP:
                           none is known */
  uint32_t evict_op;    /* below e, and from p or, where the draft writes early, from changed_op on:
                           a move out starts when this op has ended; below op_count */
  double fetch_seconds; /* when its fetch began in the last sweep, since the start of the step that
                           has j */
  uint8_t decision;
  bool yielded; /* its move out was put off for the sake of reads, not because its lane was busy */
  bool wrap;
  bool resting;      /* no op on the device touches the tensor: it lies somewhere, never moves */
  bool fixed;        /* sent to the host whatever is decided, for the ops that use it there */
  bool dead;         /* a carried or derived tensor between its last use and its next birth, where
                        it gives up its pages: MR_DRAFT_DEAD */
  bool made_below;   /* only ops on the host come before: nothing moves out; after_op is the last */
  bool final;        /* only ops on the host follow: nothing is fetched */
  bool host_writes;  /* one of the ops on the host inside the gap writes the tensor */
  bool after_writes; /* the access that opens the gap changes the tensor */
  bool written;      /* evicting it needs a move out */
  bool home_below;   /* wrap: the step relies on what is below from the start */
  uint8_t banned;    /* a bit for each decision that may not be taken */
};

/* How much work a plan is worth. */
enum mr_draft_effort {
  MR_EFFORT_FIT = 0,    /* whether it fits: moves happen when they must */
  MR_EFFORT_FIRST = 1,  /* the first choice, with moves that run ahead and behind */
  MR_EFFORT_SEARCH = 2, /* the best of many */
};

/* What a schedule found of a step. */
struct mr_draft_times {
  double seconds;
  double part[MR_STEP_PARTS];
  double busy[MR_LINK_COUNT][MR_STEP_PARTS]; /* of each link in each part */
};

struct mr_draft_saved;

struct mr_draft {
  const struct mr_plan_problem *problem;
  const struct mr_graph *program;
  bool *on_host;        /* for each tensor: ops on the host use it there */
  bool *runs_on_host;   /* for each op: it uses tensors there; host_apart: all of them */
  uint32_t *turn_of;    /* for each tensor: its place of those taken in turns (plan/host.c) */
  uint64_t *turn_pages; /* of each such place */
  uint32_t turn_count;
  struct mr_liveness liveness;      /* accesses on the device ... */
  struct mr_liveness host_liveness; /* ... and on the host */
  uint32_t op_count;
  uint64_t page_bytes;
  uint64_t small_bytes;
  uint64_t *small_offsets; /* for each tensor, then for each op's scratch; small ones alone */
  uint64_t *pages;         /* for each tensor, then for each op's scratch; 0: small or none */
  uint64_t *host_pages;    /* for each tensor, of the host's size; 0: small */
  struct mr_draft_gap *gaps;
  uint32_t gap_count;
  uint32_t *first_gap;                   /* tensor_count + 1 */
  double *clock;                         /* op_count + 1: compute seconds before each op */
  uint8_t *part;                         /* of the step that each op is in */
  double (*move_seconds)[MR_LINK_COUNT]; /* for each tensor */
  uint32_t *leaving;                     /* for each tensor: gaps that are not kept */

  uint64_t limit_pages;      /* of the device, without the small arena */
  uint64_t host_limit_pages; /* without what ops on the host are handed or take in turns */
  uint64_t handover_bytes;
  uint64_t nvme_limit_units;
  enum mr_draft_effort effort;
  double lookahead_seconds; /* what the search found best for schedules of this draft */
  uint64_t spare_pages;
  uint64_t yield_pages;  /* while so many are free, writes wait for reads that share their drive; 0:
                            never */
  bool line_only;        /* no stay may go round the end of the step unless it lasts all the time */
  uint64_t whole_pages;  /* with every gap kept */
  struct mr_guide guide; /* for limits of a level of it; holds nothing before it is asked for */
  uint32_t guide_level;
  bool writes_early;       /* what is to leave may do so before its gap, while ops still read it */
  bool is_guided;          /* choosing goes by what the guide says of room */
  uint32_t held_gradients; /* of eight, so many do not leave while gaps are chosen */
  struct mr_draft_saved *unfilled; /* the best that the search had before it filled free room */
  bool is_filled;                  /* what it found is another */
  struct mr_recipe recipe;         /* what it found, before that */
  bool in_vain;                    /* the problem's recipe told that no plan of use will be made */

  struct mr_books kept_usage; /* device pages while everything is kept */
  struct mr_books usage;      /* device pages */
  struct mr_books host_usage; /* host pages */
  uint64_t nvme_units;
  double link_seconds[MR_LINK_COUNT];
  double scarcity[MR_LINK_COUNT][MR_STEP_PARTS]; /* what choosing adds to a link's price, as a part
                                                     of it, for moves in each part of the step */
  struct mr_draft_times times;                   /* by the last schedule */
};

/* The part of the step that an op, unrolled below two steps, is in; the first op of a part. */
static inline uint32_t mr_draft_part(const struct mr_draft *draft, uint32_t op) {
  return draft->part[op < draft->op_count ? op : op - draft->op_count];
}

static inline uint32_t mr_draft_part_start(const struct mr_draft *draft, uint32_t part) {
  return (uint32_t)mr_div_up((uint64_t)part * draft->op_count, MR_STEP_PARTS);
}

/* Whether the problem's recipe takes the place of a search. */
static inline bool mr_draft_follows_recipe(const struct mr_draft *draft) {
  return draft->effort == MR_EFFORT_SEARCH && draft->problem->recipe != NULL;
}

/* For how long the op takes up the device. */
double mr_draft_op_seconds(const struct mr_draft *draft, mr_op_id op);

/* Whether the queue of a host that is apart runs the op, and how long handing it over takes the
 * device. */
bool mr_draft_hands_over(const struct mr_draft *draft, mr_op_id op);
double mr_draft_handover_seconds(const struct mr_draft *draft, mr_op_id op);

/* Whether that queue runs any op. */
bool mr_draft_is_beside_host(const struct mr_draft *draft);

/* The last op, unrolled, from which on the pages of a gap may be free: they are held back for a
 * move out up to the fetch, or the op on the host that wants what is moved; where the queue of a
 * host that is apart runs that, beside ops that the device goes on with, further. */
uint32_t mr_draft_last_release(const struct mr_draft *draft, const struct mr_draft_gap *gap);

/* The access on the device with which a tensor's life begins: the first; of a carried tensor, and
 * of a derived one that only the device uses, the first that writes without reading; of others that
 * last, and of what ops on the host make, none (UINT32_MAX). Counted from the tensor's first
 * access.
 */
uint32_t mr_draft_birth(const struct mr_draft *draft, mr_tensor_id tensor);

/* The last op on the host that uses the tensor before op `before`; MR_NO_OP: none. */
mr_op_id mr_draft_last_on_host(const struct mr_draft *draft, mr_tensor_id tensor, mr_op_id before);

/* Lists the gaps of all tensors. MR_NO_MEMORY. */
MR_CHECK_RESULT mr_status mr_draft_make_gaps(struct mr_draft *draft);
/* Books the pages that are in use while everything is kept: kept_usage. */
void mr_draft_measure_kept(struct mr_draft *draft);
/* The pages in use with every gap evicted that may be, of a draft that nothing was chosen for: no
 * plan needs fewer. MR_NO_MEMORY. */
MR_CHECK_RESULT mr_status mr_draft_least_pages(const struct mr_draft *draft, uint64_t *pages_out);

/* Which ops run on the host and which tensors they use there; no gaps. MR_NO_MEMORY. */
MR_CHECK_RESULT mr_status mr_draft_init_places(struct mr_draft *draft,
                                               const struct mr_plan_problem *problem,
                                               uint64_t page_bytes);

/* Everything kept, limits from the problem's budgets. MR_NO_MEMORY. */
MR_CHECK_RESULT mr_status mr_draft_init(struct mr_draft *draft,
                                        const struct mr_plan_problem *problem, uint64_t page_bytes);
void mr_draft_fini(struct mr_draft *draft);

/* Takes the limits from the problem's budgets, which may have changed. */
void mr_draft_set_limits(struct mr_draft *draft);

/* Keeps every gap again. */
void mr_draft_reset(struct mr_draft *draft);

/* Where decisions can be put aside and taken back. */
struct mr_draft_saved {
  struct mr_draft_gap *gaps;
  uint32_t *leaving;
  struct mr_books usage;
  struct mr_books host_usage;
  uint64_t nvme_units;
  double link_seconds[MR_LINK_COUNT];
  double scarcity[MR_LINK_COUNT][MR_STEP_PARTS];
  struct mr_draft_times times;
};
MR_CHECK_RESULT mr_status mr_draft_saved_init(struct mr_draft_saved *saved,
                                              const struct mr_draft *draft);
void mr_draft_saved_fini(struct mr_draft_saved *saved);
void mr_draft_save(const struct mr_draft *draft, struct mr_draft_saved *saved);
void mr_draft_restore(struct mr_draft *draft, const struct mr_draft_saved *saved);

/* Whether host and NVMe have room for what was decided, on_host included. */
bool mr_draft_lower_tiers_fit(const struct mr_draft *draft);

/* The most device pages in use at once. */
uint64_t mr_draft_peak(const struct mr_draft *draft);

/* True where the hole of the gap could free pages for at least one op. */
bool mr_draft_can_evict(const struct mr_draft *draft, const struct mr_draft_gap *gap);

/*
 * Evicts a gap that is kept to a tier, with the widest hole; false (and nothing changed) where that
 * has no room, where the gap is fixed, or where the problem bans it.
 */
bool mr_draft_decide(struct mr_draft *draft, uint32_t index, uint8_t decision);
/* Has a derived tensor stay where it is dead. */
void mr_draft_revive(struct mr_draft *draft, uint32_t index);
/* Whether the device has room is the caller's concern; a fixed gap is left as it is. */
void mr_draft_keep(struct mr_draft *draft, uint32_t index);
/* The same where it is not the undoing of a decision. A tensor that stays round the end of the step
 * may need two places on the host at the op that writes it, where it had one all the time: false
 * (and nothing changed) where the host has no room for that, or the gap is fixed. */
bool mr_draft_keep_again(struct mr_draft *draft, uint32_t index);

/* Whether so many ops use the tensor that what depends on a decision is looked at alone. */
bool mr_draft_has_many_gaps(const struct mr_draft *draft, mr_tensor_id tensor);

/* The seconds of all moves of a gap's tensor, each link's weighted by its price and by how scarce
 * it is where the gap begins or ends, were this gap decided so; of a tensor with many gaps, of the
 * moves that depend on it. */
double mr_draft_tensor_price(const struct mr_draft *draft, uint32_t index, uint8_t decision,
                             const double *price);

/* The gaps whose prices are others once this one has been decided: of the same tensor, [from, to)
 * in each range. Returns how many ranges. */
#define MR_PRICED_RANGES 2u
struct mr_gap_range {
  uint32_t from;
  uint32_t to;
};
uint32_t mr_draft_list_priced(const struct mr_draft *draft, uint32_t index,
                              struct mr_gap_range ranges[MR_PRICED_RANGES]);

/* Whether the gap's bytes could leave before it opens, were it decided so, and whether they do. */
bool mr_draft_may_leave_early(const struct mr_draft *draft, const struct mr_draft_gap *gap,
                              uint8_t decision);
bool mr_draft_leaves_early(const struct mr_draft *draft, uint32_t index);

/* Moves the ends of an evicted gap's hole; the caller has seen to it that there is room. */
void mr_draft_set_release(struct mr_draft *draft, uint32_t index, uint32_t release_op);
void mr_draft_set_fetch(struct mr_draft *draft, uint32_t index, uint32_t fetch_op);

/* Makes every hole as wide as it can be. */
void mr_draft_widen(struct mr_draft *draft);

/* Bytes that the device maps at once. */
uint64_t mr_draft_map_bytes(const struct mr_draft *draft);

/* True where `pages` more fit at every op of [from, to), unrolled. */
bool mr_draft_has_room(const struct mr_draft *draft, uint32_t from, uint32_t to, uint64_t pages);

/* Calls for the host slots of a tensor: one for each run of host gaps that one copy serves. */
struct mr_draft_slot {
  uint32_t first_op;
  uint32_t last_op;
  bool always;
  uint32_t first_gap; /* the gaps [first_gap, last_gap] that are on the host use it */
  uint32_t last_gap;
};
/* The next slot of the tensor at or after gap *cursor (start with first_gap[tensor]); false: no
 * more. */
bool mr_draft_next_slot(const struct mr_draft *draft, mr_tensor_id tensor, uint32_t *cursor,
                        struct mr_draft_slot *slot_out);

#define MR_NO_TURN UINT32_MAX

/* Of all places that tensors take in turns. */
uint64_t mr_draft_turn_pages(const struct mr_draft *draft);

/* Fills in on_host, runs_on_host, the turns and handover_bytes, as far as the host has room, and
 * takes the accesses on the host out of the liveness; pages are known. MR_NO_MEMORY. */
MR_CHECK_RESULT mr_status mr_draft_place(struct mr_draft *draft);

/* Packs what is below half a page; fills in small_offsets and small_bytes. MR_NO_MEMORY. */
MR_CHECK_RESULT mr_status mr_draft_pack_small(struct mr_draft *draft);

/*
 * Evicts until every op fits, by the bytes that a gap takes off crowded ops for each second of
 * moves, then keeps again what turned out not to be needed. Where it can, spare_pages of the limit
 * are left free, so that moves have room to run ahead and behind. False: no choice was found.
 * MR_NO_MEMORY.
 */
MR_CHECK_RESULT mr_status mr_draft_choose(struct mr_draft *draft, uint64_t spare_pages,
                                          bool *fits_out);

/* Evicts a gap that is kept, with the widest hole, and where it must the tensor's way round the end
 * of the step too; false where there is no room below. */
bool mr_draft_evict(struct mr_draft *draft, uint32_t index, uint8_t decision);

/* Where carried and derived tensors are dead they give up their pages. On a line alone, where they
 * leave round the end of the step too, a derived one that `close` finds no room below for stays
 * instead; false where a carried one finds none. */
bool mr_draft_close_dead(struct mr_draft *draft,
                         bool (*close)(struct mr_draft *draft, mr_tensor_id tensor));

/* Keeps again what the last sweep left room for, the most seconds of moves for its room first.
 * *kept_out: gaps. MR_NO_MEMORY. */
MR_CHECK_RESULT mr_status mr_draft_refill(struct mr_draft *draft, uint32_t *kept_out);

/*
 * Sweeps forward through `laps` steps: ops, evictions and fetches run as the queues would run them,
 * and each hole is narrowed as far as memory allows so that its moves hide. Fetches look at most
 * `lookahead_seconds` of compute ahead. draft->times.seconds is the period of the last lap.
 * MR_NO_MEMORY.
 */
MR_CHECK_RESULT mr_status mr_draft_schedule(struct mr_draft *draft, uint32_t laps,
                                            double lookahead_seconds);

/* Finds the guide for the draft's limit, unless it has it: one for limits that are about alike, so
 * that it depends on the limit alone and need not be found often. MR_NO_MEMORY. */
MR_CHECK_RESULT mr_status mr_draft_find_guide(struct mr_draft *draft);

/* Takes a step towards how scarce links are by the last schedule. */
void mr_draft_price_parts(struct mr_draft *draft);

/* Makes links as scarce as the guide says, times `strength`. */
void mr_draft_follow_guide(struct mr_draft *draft, double strength);

/* Chooses, schedules, and tries other choices, as draft->effort says. MR_NO_MEMORY. */
MR_CHECK_RESULT mr_status mr_draft_search(struct mr_draft *draft, bool *fits_out);

/* Keeps what the limit, which was raised since, has room for, and schedules that; *changed_out:
 * false where it has none. MR_NO_MEMORY. */
MR_CHECK_RESULT mr_status mr_draft_fill_up(struct mr_draft *draft, bool *changed_out);

/* Goes back to what the search had before it filled free room, and schedules it. MR_NO_MEMORY. */
MR_CHECK_RESULT mr_status mr_draft_unfill(struct mr_draft *draft);

/* Evicts what was used longest ago at every op that wants room, from a draft that keeps everything;
 * no search, no fetching ahead. MR_NO_MEMORY. */
MR_CHECK_RESULT mr_status mr_draft_evict_lru(struct mr_draft *draft, bool *fits_out);

/* Makes a draft fit again after its limit was lowered, with as few changes as it can.
 * MR_NO_MEMORY. */
MR_CHECK_RESULT mr_status mr_draft_repair(struct mr_draft *draft, bool *fits_out);

/*
 * From a finished draft to instances, pages, slots, extents, homes, gaps, instructions, births and
 * operands of the plan. *pages_out is what colouring needed, UINT64_MAX where the host has too few
 * pages; where that is more than page_limit the plan holds nothing new. MR_NO_MEMORY, MR_INVALID
 * (more pages than can be counted).
 */
MR_CHECK_RESULT mr_status mr_draft_lower(const struct mr_draft *draft, uint64_t page_limit,
                                         struct mr_program_plan *plan, uint64_t *pages_out);

/* Decides anew under the draft's limit and lowers; the plan has no waits yet. MR_NO_MEMORY,
 * MR_INVALID. */
MR_CHECK_RESULT mr_status mr_draft_make(struct mr_draft *draft, enum mr_draft_effort effort,
                                        struct mr_program_plan *plan, bool *fits_out);

#endif
