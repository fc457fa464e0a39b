/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan/ turns a program and a machine into a plan: pure arithmetic, no devices, no threads of its
 * own. Where the caller lends a crew, plans that do not depend on each other are made side by side,
 * and what comes of them is looked at in the order in which one thread would have made them: the
 * plan is the same whatever the crew.
 *
 * Nouns. A *gap* is the time between two accesses of a tensor, counted in ops: after op p, before
 * op g; a persistent tensor also has the gap that goes round the end of the step. For each gap the
 * planner *decides*: keep it on the device, send it to the host, or send it to NVMe (recompute is a
 * rewrite of the program, made before: recompute/). An *instance* is one stay of a tensor, or of an
 * op's scratch, on the device: the ops [first_op, last_op] during which its pages belong to it. An
 * *instruction* is one op on the compute queue or one move on a link's queue. A *wait* is a (queue,
 * count) pair: the instruction starts when that queue has finished so many instructions of this
 * step, or of the step before. Compute and copies run one after another; the instructions of an
 * NVMe queue start in order and may overlap, and a count stands for a finished prefix.
 *
 * How a plan is right whatever the timing. Time is measured in ops, not in seconds: an evicted
 * tensor gives its pages up before an op e > p, a fetched one takes pages from an op j <= g on, and
 * at every op the pages in use are at most the budget. Intervals on a line colour perfectly, so
 * pages are assigned without waste. Then waits follow from hazards alone: whoever touches a page, a
 * host page or an extent waits for whoever touched it before in a conflicting way, across the end
 * of the step too. Seconds (from the simulator) choose e and j, and so how well moves hide behind
 * ops; they can make a plan slow, never wrong. Every wait points backwards in one total order (op,
 * then fetch < run < evict), and each queue follows that order, so no plan can deadlock.
 *
 * Halves. A device may map twice a page at once. Then a stay has whole pairs of pages and at most
 * one page without the other of its pair, which is another stay's: rounding costs half as much.
 * Such halves do not always find each other, so colouring may need a little more than is in use;
 * that is taken off the limit, and the choice is made again (plan/colour.c, plan/attempt.c).
 *
 * The step is a circle: a plan starts and ends in the same state, the *homes* of the persistent
 * tensors. A tensor that rests on the host or on NVMe at the end of the step is fetched in the next
 * one. One that the next step needs early may be fetched before the end of this one: then it rests
 * on the device, and where the step relies on what is below as well, because it gives the pages up
 * without a move or has an op on the host use them, its home has a *copy*.
 *
 * Clean copies. A tensor that was fetched and not written since has a valid copy below, so evicting
 * it again is free: no instruction. Its slot or extent stays its own until the next write.
 *
 * Dead tensors. What the next op writes without reading it need not be kept till then: a carried
 * tensor, and a derived one that the device alone uses, give their pages up after their last use
 * and take new ones at that op (plan/lives.c).
 *
 * Early writes. What NVMe is to have may be written as soon as it is changed no more, while ops of
 * the step still read it: a weight right behind its update, though its pages are given up only
 * after the backward pass. Where a step is bound by a drive that does more of reads and writes
 * together than of either alone, it has both to do all the time. Where a device that is apart has
 * the host alone, what leaves for it round the end of the step may be written so, too: the way out
 * is then free for gradients in the backward pass.
 *
 * Ops on the host. An op whose bytes outweigh its arithmetic (MR_OP_HOST_CAPABLE: an optimizer's
 * update) may use tensors where they rest, in the host tier. Such a tensor has one host slot for
 * good, and the op's operand is an instance that is that slot. What only such ops use never moves;
 * for others, a gap between two uses on the device is longer by the uses on the host inside it, and
 * is sent to the host: out before the first of them, back after the last. What lives inside one
 * step comes in once where such ops make it, and goes out once where they are the last to use it.
 * plan/place.c chooses the tensors, and plan/place_apart.c where the host is apart; the ops keep
 * their place on the compute queue, beside operands on the device.
 *
 * Where the processor cannot read the device's memory, such an op has all its paged operands on the
 * host, and the queue of the host runs it, beside the ops that the device computes meanwhile. Its
 * instruction on the compute queue *hands it over*: it copies the small tensors that the op reads
 * to the op's own place on the host, so that only compute touches the small arena there too. The op
 * waits for that and for the moves of the others, moves that need its outputs wait for it, and the
 * next step's copy waits until the op has read this one's. An op with scratch, or with a small
 * output, is the device's.
 *
 * The ladder: more memory is never worse. A search may find a worse plan for a larger budget, so
 * plans are not made for the budget itself but for the *rungs* below it: budgets between which the
 * budget itself, or what it is short of, changes by a few percent, and at the foot the smallest
 * budget that would do. The rungs depend on the program alone, and the plan of a rung on neither
 * the budget nor what was tried before. From the highest rung that the budget holds on, rungs are
 * tried downwards, and the fastest plan is taken. The rungs of a budget are among those of any
 * larger one; so if all were tried, the larger could not be slower. Trying stops at a rung whose
 * bound is no better than the best plan: no plan of a smaller budget beats its bound, so nothing is
 * lost, and what the smaller budget's own plan takes is no less either. search_rounds may end it
 * sooner, for the sake of time; then the order is likely, not certain.
 *
 * Faster links and more tiers are never worse either. A fixed plan does not get slower by a faster
 * link, since each instruction starts when fixed others have finished (a max-plus system; where
 * reads and writes share a drive's rate, or NVMe and copies a link, that is no law, but no plan was
 * seen to break it). A plan found for a faster link is another one, and may be worse. So where a
 * short program is searched at length, plans are not made for the machine at hand but for machines
 * that depend on the program alone (plan/machines.c), with all tiers and with one less; each is
 * played on the machine at hand, and the fastest is taken. That set is the same whatever the links'
 * rates are, and one more tier only adds to it. Longer programs, and briefer searches, are planned
 * for the machine at hand: there the order is likely, not certain. So it is for jobs whose
 * candidates compete, the short ones of which runtime/finalists.c has planned for budgets and links
 * near those at hand, the others for all of the budget too; bench/monotone.c counts how often it
 * fails. It never fails by more than the gap of the plan with more, whose bound holds for whoever
 * has less. Where the host would do, runtime/ has them planned without NVMe first, so that NVMe
 * beside it makes none slower.
 *
 * Yielding. While reads and writes share a drive and there is room, writes wait: what an update has
 * changed leaves while the next forward pass computes, and the reads that updates wait for have the
 * drive for themselves. Updates are left where the client put them: those of the first layers come
 * first, whose gradients were made last and are still here, and what they read and write streams in
 * that order.
 *
 * Sharing. While compute waits for a read or a write, that has most of a drive that both share: it
 * ends soonest. Where a step is as long as its drive is busy, the favoured side runs dry first and
 * the drive does less than it could of both at once. So each plan is played both ways and keeps the
 * faster (even_drive).
 *
 * Small tensors (below half a page) never move: they and small scratch live in the small arena,
 * packed by offset over their lifetimes, which only the compute queue touches. Inputs never move
 * either.
 *
 * Not here: devices, measuring, choosing recompute (runtime/ tries what recompute/ offers and keeps
 * the best plan).
 */
#ifndef MEMRUN_PLAN_PLAN_H
#define MEMRUN_PLAN_PLAN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <memrun/run.h>

#include "base/base.h"
#include "base/crew.h"
#include "graph/graph.h"

/* Queue 0 computes; queue 1 + l serves link l; the last runs ops on the host beside a device whose
 * memory it cannot read. */
#define MR_QUEUE_COMPUTE  0u
#define MR_QUEUE_OF(link) (1u + (uint32_t)(link))
#define MR_QUEUE_HOST     MR_QUEUE_OF(MR_LINK_COUNT)
#define MR_QUEUE_COUNT    (MR_QUEUE_HOST + 1u)
#define MR_NO_INSTANCE    UINT32_MAX
#define MR_NO_SLOT        UINT32_MAX

/* Moves over links of NVMe overlap; those between device and host come one after the other. */
static inline bool mr_link_is_nvme(mr_link link) {
  return link == MR_LINK_NVME_READ || link == MR_LINK_NVME_WRITE;
}

/* Whether what crosses the link comes to the device. */
static inline bool mr_link_fetches(mr_link link) {
  return link == MR_LINK_HOST_TO_DEVICE || link == MR_LINK_NVME_READ;
}

/* Whether a queue serves a link of NVMe. */
static inline bool mr_queue_is_nvme(uint32_t queue) {
  return queue == MR_QUEUE_OF(MR_LINK_NVME_READ) || queue == MR_QUEUE_OF(MR_LINK_NVME_WRITE);
}

/* Sums of the same seconds in another order differ by less, relatively. */
#define MR_ROUNDING 1e-9
/* What has fewer seconds left in a simulation is over. */
#define MR_INSTANT 1e-12

/* What the machine does; from measurement or from a file. */
struct mr_link_rate {
  double bytes_per_second; /* > 0 */
  double latency_seconds;  /* of one move; NVMe moves overlap, so that it delays who waits alone */
};

enum { MR_DECISION_KEEP = 0, MR_DECISION_HOST = 1, MR_DECISION_NVME = 2 };

/* Parts of a step, of equal numbers of ops: what a link is worth differs from one to the next. */
#define MR_STEP_PARTS 32u

/* How far ahead fetches look, in the order in which searches try them. */
enum {
  MR_LOOKAHEAD_LEAST = 0,
  MR_LOOKAHEAD_WHOLE,
  MR_LOOKAHEAD_PART,
  MR_LOOKAHEAD_LESS,
  MR_LOOKAHEADS
};

/* How gaps are chosen, and moves swept then (plan/search.c). */
struct mr_search_trial {
  uint32_t spare;     /* pages left free when gaps are chosen: the limit over 2^spare; 0: none */
  uint32_t lookahead; /* MR_LOOKAHEAD_LEAST ... */
  uint32_t yield;     /* pages kept free by writes that yield: the limit over 2^yield; 0: none do */
  bool guided;        /* by what room is worth */
  bool early;         /* what is to leave does so while it is still read */
  uint32_t held;      /* gradients of eight that do not leave */
};
#define MR_MOST_SPARE 6u

/* What a search found best. By it a plan of almost the same problem is made with one choice and
 * sweep in place of thirty, and is little slower. */
struct mr_recipe {
  struct mr_search_trial trial;
  double scarcity[MR_LINK_COUNT][MR_STEP_PARTS]; /* of links when gaps were chosen (plan/draft.h) */
  double seconds; /* of the sweep of what was chosen; 0: there was no search */
  bool line;      /* no stay goes round the end of the step unless it lasts all the time */
};

/* A decision that a plan may not take for any gap of the tensor, to see what else there is. */
struct mr_plan_ban {
  mr_tensor_id tensor;
  uint8_t decision; /* MR_DECISION_HOST or MR_DECISION_NVME */
};

/* Longer programs, and searches of fewer rungs, are planned for the machine at hand alone. */
#define MR_MACHINE_OPS    256u
#define MR_MACHINE_ROUNDS 16u

/* A program of more ops, which is that of some 9,000 tensors, is planned in fewer ways, so that one
 * of 35,000 takes about 5 s. */
#define MR_LONG_OPS 5000u

struct mr_plan_problem {
  const struct mr_graph *program; /* borrowed while the plan lives */
  const double *op_seconds;       /* for each op of the program; borrowed during the call */
  struct mr_link_rate link[MR_LINK_COUNT];
  double nvme_mixed_bytes_per_second; /* read and write together share this; 0: they do not share */
  /* NVMe cannot reach the device's memory: what it reads and writes crosses the host's links too,
   * at their rates, and copies have what it leaves of these. */
  bool nvme_staged;
  /* What a simulation adds to ops and moves; it only makes steps longer, and 0 is for nothing. */
  double bind_seconds_per_move; /* bringing pages that lie side by side to the instance that an
                                   instruction begins */
  double pace_beside_copy;      /* of ops, while a copy between device and host runs: 1 as alone */
  double nvme_op_seconds_per_byte; /* lost by ops to a byte that NVMe moves while they run: who
                                      moves it takes up processors and memory too */
  uint64_t
      budget_bytes[MR_TIER_COUNT]; /* 0 for a tier that may not be used; UINT64_MAX: no limit */
  uint64_t page_bytes;             /* 0: chosen from the budget and the tensors, 4 KiB to 2 MiB */
  /* Pages are halves of what the device maps at once: a stay has whole ones and at most one half,
   * the lower one at its end or the upper one at its start. */
  bool half_pages;
  uint64_t extent_unit_bytes; /* room on NVMe is taken in these units */
  bool huge_pages;            /* pages of 2 MiB make ops and moves faster: they may waste more */
  /* The bound is to hold for every program that recompute makes of this one too. */
  bool bound_any_recompute;
  /* The pages of every stay are neighbours, ascending: for a device that cannot map pages where it
   * likes. Where packing needs more than the budget, the choice is made again for less. */
  bool contiguous;
  uint32_t search_from;   /* budgets of the ladder, from the highest, that were tried before */
  uint32_t search_rounds; /* budgets of the ladder that are tried at most; 0: no search */
  bool whole_budget;      /* the highest of them is all of the budget, not the rung below it; short
                             programs that are searched at length keep to the ladder */
  double useful_seconds;  /* a plan that takes as long is of no use; 0: any is, and so is what a
                             refusal says; INFINITY: any that fits is */
  bool footprint_alone;   /* that, and the size of pages, is told, and no plan is made */
  const struct mr_recipe *recipe; /* what a search is replaced by; no plan is made, for it is of no
                                     use, where the sweep takes 0.3 % longer than the recipe's.
                                     NULL: search; borrowed during the call */
  bool terse;       /* a refusal does not say what would do: it takes longer than a plan */
  mr_policy policy; /* MR_POLICY_LRU: no search; moves happen on demand */
  /* For each tensor: ops that can run on the host use it there, where it is paged, the host has
   * room and a rule of plan/host.c allows it; borrowed during the call. NULL: the planner chooses
   * the tensors. */
  const bool *on_host;
  bool host_apart;              /* the processor cannot read the device's memory */
  double host_bytes_per_second; /* of memory that ops on the host get through, where it is apart;
                                   0: not known, so that no op runs there */
  double host_memory_bytes_per_second; /* that these ops and the links get through together: beside
                                          moves the ops have what those leave; 0: no limit */
  const struct mr_plan_ban *bans;      /* borrowed during the call */
  uint32_t ban_count;
  struct mr_crew *crew; /* makes plans side by side; borrowed during the call; NULL: the caller */
  const atomic_bool *unwanted; /* true once nobody asks for the bound any more: it ends where it is;
                                  borrowed during the call; NULL: it is wanted */
};

#define MR_LEAST_PAGE_BYTES (4 * MR_KIB)
#define MR_MOST_PAGE_BYTES  (2 * MR_MIB)

/* What places on the host are counted in: nothing is mapped there, so they need not be as large as
 * the device's pages. */
static inline uint64_t mr_plan_host_page_bytes(uint64_t page_bytes) {
  return mr_max_u64(page_bytes / 8, MR_LEAST_PAGE_BYTES);
}

/* All budgets together; no limit is very much. */
static inline double mr_plan_room_bytes(const struct mr_plan_problem *problem) {
  double bytes = 0;
  for (uint32_t tier = 0; tier < MR_TIER_COUNT; tier++) {
    bytes += (double)problem->budget_bytes[tier];
  }
  return bytes;
}

/* How many pages the device maps at once. */
static inline uint32_t mr_plan_pages_mapped(const struct mr_plan_problem *problem) {
  return problem->half_pages ? 2 : 1;
}

/* One stay on the device, or a tensor's place on the host for the ops that use it there. */
struct mr_instance {
  mr_tensor_id tensor; /* MR_NO_TENSOR: scratch of first_op */
  uint64_t bytes;
  uint32_t first_op; /* its pages are its own from the start of first_op ... */
  uint32_t last_op;  /* ... to the end of last_op; last_op < first_op: round the end of the step */
  bool always;       /* on the device all the time: first_op, last_op mean nothing */
  bool small;
  uint64_t small_offset; /* in the small arena; small alone */
  uint32_t first_page;   /* pages[first_page .. first_page + page_count) are its pages in order */
  uint32_t page_count;   /* 0 where small, and on the host */
  bool on_host;  /* it is the host slot itself, at addresses that are always the same; of what
                    does not last others may use them before and after */
  uint32_t slot; /* on_host alone */
};

struct mr_wait {
  uint32_t queue;
  uint32_t count;     /* of finished instructions */
  bool previous_step; /* of the step before; in the first step of a run such a wait is over at once
                       */
};

struct mr_instruction {
  bool handed_over; /* compute: the queue of the host runs the op */
  uint32_t op; /* compute: the op; fetch: the op from whose start on its pages are its own; evict:
                  the op it follows */
  uint32_t needed_by; /* fetch: the op that reads it; evict: the op from which on the pages are
                         others'; compute: op */
  bool after_op;     /* a move: waits for its op to end, or the op before where it fetches, although
                        nothing of its own is at stake */
  uint32_t instance; /* of a move; MR_NO_INSTANCE for compute */
  uint32_t slot;     /* host slot or extent of a move; MR_NO_SLOT for compute */
  uint32_t first_wait;
  uint32_t wait_count;  /* at most one for each other queue and step */
  uint32_t first_birth; /* births[]: instances whose pages this instruction is the first to touch;
                           bind them before. Those that are small or always there have none */
  uint32_t birth_count;
  uint32_t bind_moves;  /* of pages side by side that bind them */
  double start_seconds; /* predicted, from the start of the step's first op */
  double end_seconds;
};

/* The small tensors that an op of the queue of the host reads take no more together, each rounded
 * up to MR_HANDOVER_ALIGNMENT: scalars, and the tokens of a batch. Those of all such ops are a part
 * of the host's budget, rounded up to MR_HANDOVER_UNIT. */
#define MR_HANDOVER_BYTES     (256ull * 1024)
#define MR_HANDOVER_ALIGNMENT 64u
#define MR_HANDOVER_UNIT      4096u

/* Room on the host for one or more stays of a tensor. */
struct mr_slot {
  mr_tensor_id tensor;
  uint64_t bytes;
  uint32_t first_page; /* host_pages[] */
  uint32_t page_count;
  uint32_t first_op, last_op;
  bool always;
};

/* Room on NVMe: one extent for a tensor that is ever sent there. */
struct mr_extent {
  mr_tensor_id tensor;
  uint64_t bytes;
};

/* Where a persistent tensor or an input rests between steps. */
struct mr_home {
  mr_tier tier;
  uint32_t instance; /* tier device */
  uint32_t slot;     /* tier host: slot; tier NVMe: extent; tier device: of the copy */
  mr_tier copy;      /* tier device: where the same bytes rest below too; MR_TIER_DEVICE: nowhere */
};

/* A gap and what was decided, for the explanation. */
struct mr_gap {
  mr_tensor_id tensor;
  uint32_t after_op;   /* p */
  uint32_t before_op;  /* g; <= p: round the end of the step */
  uint32_t release_op; /* e: the pages are free for ops from here on; keep: 0 */
  uint32_t fetch_op;   /* j; keep: 0 */
  uint8_t decision;
  bool written; /* evicting costs a move out (not clean) */
  bool final;   /* the last use is on the host, by op g: nothing is fetched */
};

struct mr_program_plan {
  const struct mr_graph *program;
  bool fits;
  bool useless; /* no plan was made: none was asked for, the bound says that it would take
                   useful_seconds or longer, or nothing after search_from fits */
  /* Where it does not fit: the op with the largest working set, the smallest device budget that
   * would do, and what a plan for that takes of the tiers below. */
  mr_op_id largest_op;
  uint64_t largest_op_bytes;
  uint64_t smallest_device_bytes;
  uint64_t smallest_host_bytes;
  uint64_t smallest_nvme_bytes;
  mr_tier failed_tier;

  uint64_t page_bytes;
  uint64_t small_bytes;       /* of the small arena, a multiple of page_bytes */
  uint32_t device_page_count; /* the peak: small_bytes + device_page_count * page_bytes <= the
                                 device budget */
  uint32_t host_page_count;   /* of mr_plan_host_page_bytes() */
  uint64_t nvme_bytes;        /* of all extents, rounded up to units */
  uint64_t footprint_bytes; /* the device peak with no budget at all, from the same layout rules */
  struct mr_recipe recipe;  /* that it was made by */
  bool even_drive; /* NVMe reads and writes share the drive evenly, also while compute waits for one
                      of them: no transfer is promoted */

  struct mr_instance *instances;
  uint32_t instance_count;
  uint32_t host_op_count; /* ops with an operand on the host */
  uint32_t *pages;        /* device page numbers of the instances, ascending offset within each */
  uint32_t page_entry_count;
  uint32_t *host_pages;
  uint32_t host_page_entry_count;
  struct mr_slot *slots;
  uint32_t slot_count;
  struct mr_extent *extents;
  uint32_t extent_count;
  struct mr_gap *gaps;
  uint32_t gap_count;
  struct mr_home *homes; /* for each tensor; those of what goes round the end of the step and of
                            inputs mean something */

  /* Queue 0 has one instruction for each op, in order; the queue of the host, for those that it
   * runs. */
  struct mr_instruction *instructions[MR_QUEUE_COUNT];
  uint32_t instruction_count[MR_QUEUE_COUNT];
  struct mr_wait *waits;
  uint32_t wait_count;
  uint32_t *births;
  uint32_t birth_count;
  /* operands[first_operand[op] ...]: instances of inputs, then outputs, then scratch
   * (MR_NO_INSTANCE: none). */
  uint32_t *operands;
  uint32_t *first_operand; /* op count + 1 */

  double step_seconds;    /* predicted, steady state: from one step's first op to the next one's */
  double compute_seconds; /* of the device */
  double host_seconds;    /* of the queue of the host */
  double link_seconds[MR_LINK_COUNT];
  uint64_t moved_bytes[MR_LINK_COUNT];
};

/*
 * Plans. A problem that does not fit gives MR_OK and fits false with the figures. The same problem
 * gives the same plan. MR_INVALID, and one line says why: a rate that is not positive, a latency or
 * seconds of an op that are negative or no number, page_bytes that is no power of two from 4 KiB to
 * 2 MiB, more pages than have numbers, no ops, extents in units of 0 bytes. MR_NO_MEMORY.
 */
MR_CHECK_RESULT mr_status mr_program_plan_make(const struct mr_plan_problem *problem,
                                               struct mr_program_plan **plan_out);
void mr_program_plan_destroy(struct mr_program_plan *plan);

/* What the ops of the queue of the host are handed; that and all pages of the host. */
uint64_t mr_program_plan_handover_bytes(const struct mr_program_plan *plan);
uint64_t mr_program_plan_host_bytes(const struct mr_program_plan *plan);

/* What a step moves over all links. */
uint64_t mr_program_plan_moved_bytes(const struct mr_program_plan *plan);

/*
 * Instances with the same pages in the same order have the same addresses, so that no page moves
 * where one follows another. ranges[i] is the range of instance i, MR_NO_RANGE where it has no
 * pages; ranges are numbered from 0. MR_NO_MEMORY.
 */
#define MR_NO_RANGE UINT32_MAX
MR_CHECK_RESULT mr_status mr_program_plan_list_ranges(const struct mr_program_plan *plan,
                                                      uint32_t *ranges, uint32_t *count_out);

/* Whether it fits and no link has anything to move; tensors may rest below. */
bool mr_program_plan_moves_nothing(const struct mr_program_plan *plan);

/*
 * Checks a plan with code of its own: replays two steps symbolically in every order that the waits
 * allow (vector clocks) and proves that each op reads the bytes that the last writer in program
 * order wrote, that no page, slot or extent has two owners at once, that births name every instance
 * before its first touch, that budgets hold at every moment and that the second step starts in the
 * state in which the first did: every home holds the last version of its tensor, and nothing else
 * need be valid, because the client may write homes between steps. So are the steps that run other
 * than the rest: the first, the last before a rest, the one after it, and an evaluation step, which
 * runs every move but skips ops, so that what a skipped op would have written whole must have been
 * fetched where it goes home. MR_CORRUPT logs the first fault by name; MR_INVALID: the
 * plan does not fit; MR_NO_MEMORY.
 */
MR_CHECK_RESULT mr_status mr_program_plan_verify(const struct mr_plan_problem *problem,
                                                 const struct mr_program_plan *plan);

/* Seconds that no plan of the program can beat: plan/bound.h. Where they are useful_seconds or
 * more, as many may be told and no more: telling the rest takes most of the time. MR_NO_MEMORY. */
MR_CHECK_RESULT mr_status mr_program_plan_bound(const struct mr_plan_problem *problem,
                                                double *seconds_out);
/* The same without prices: a little less, in a small part of the time. */
MR_CHECK_RESULT mr_status mr_program_plan_quick_bound(const struct mr_plan_problem *problem,
                                                      double *seconds_out);
/* Raises the quick bound to the other by prices, which takes the rest of the time; useful_seconds
 * as there. MR_NO_MEMORY. */
MR_CHECK_RESULT mr_status mr_program_plan_raise_bound(const struct mr_plan_problem *problem,
                                                      double *seconds);
/* Bytes that every plan of the program has in some tier at once: those of the op at which most is
 * alive, without what may be made again instead where the bound is to hold for that too.
 * MR_NO_MEMORY. */
MR_CHECK_RESULT mr_status mr_program_plan_least_bytes(const struct mr_plan_problem *problem,
                                                      double *bytes_out);

/* Fills in bind_moves, start_seconds and end_seconds, the step time and what links take, by event
 * simulation over several steps on the problem's machine, which may be another than the plan was
 * made for. MR_NO_MEMORY. */
MR_CHECK_RESULT mr_status mr_program_plan_simulate(const struct mr_plan_problem *problem,
                                                   struct mr_program_plan *plan);
/* The same, with even_drive as makes the step shorter. */
MR_CHECK_RESULT mr_status mr_program_plan_share_drive(const struct mr_plan_problem *problem,
                                                      struct mr_program_plan *plan);

#endif
