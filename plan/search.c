/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a draft is searched for: how much room to leave free when gaps are chosen, how scarce links
 * are in each part of the step, how far ahead fetches look, and when writes yield to reads that
 * share their drive; the best is filled up. What was found best is a recipe, by which almost the
 * same problem is planned without a search (runtime/vary.c). The same draft gives the same plan.
 */
#include <math.h>
#include <string.h>

#include "base/base.h"
#include "plan/alike.h"
#include "plan/draft.h"
#include "plan/host.h"

#define SEARCH_LAPS   2u /* of a trial: one to fill the queues, one to measure */
#define FINAL_LAPS    3u
#define LEAST_GAIN    1e-9 /* relative: a smaller gain is rounding */
#define FIRST_YIELD   6u   /* 1/64 of the limit */
#define USUAL_SPARE   4u   /* 1/16 of it: near what searches find best */
#define GOOD_ENOUGH   1e-4 /* of the compute time: no more trials */
#define LINK_BOUND    2.0  /* times the compute time: links take most of the step */
#define GUIDE_GAIN    0.03 /* relative */
#define EARLY_GAIN    0.01
#define ALIKE_GAIN    5e-4
#define HELD_GAIN     3e-3
#define REFILL_ROUNDS 2u
#define RECIPE_MARGIN 3e-3 /* relative: plans differ from their sweeps by as much */

/* How much is tried. What is left out of usual programs gains less in the time that it takes than
 * anything that is not; of long ones, what gains next to nothing. Short ones are planned for many
 * machines. */
struct effort {
  uint32_t worse;        /* choices that leave less free, and are no better one after another */
  uint32_t price_rounds; /* of choices by prices, */
  uint32_t early_rounds; /* and where tensors leave early, */
  double far;            /* unless one takes so much longer: prices seldom lead back from there */
  uint32_t held;         /* parts of the gradients that stay */
  uint32_t alike;        /* classes of gaps that leave together, */
  uint32_t alike_here;   /* and where the processor computes */
};

enum length { SHORT_PROGRAM, USUAL_PROGRAM, LONG_PROGRAM, LENGTHS };
enum site { ALONE, BESIDE_HOST, SITES }; /* ops run on a host beside the device, or none do */

static const struct effort of_short = {.worse = 2,
                                       .price_rounds = 4,
                                       .early_rounds = 4,
                                       .far = INFINITY,
                                       .alike = 12,
                                       .alike_here = 6};
static const struct effort of_usual = {.worse = 2,
                                       .price_rounds = 4,
                                       .early_rounds = 2,
                                       .far = 0.1,
                                       .held = 2,
                                       .alike = 8,
                                       .alike_here = 6};
static const struct effort of_usual_beside = {.worse = 2,
                                              .price_rounds = 4,
                                              .early_rounds = 4,
                                              .far = INFINITY,
                                              .held = 2,
                                              .alike = 8,
                                              .alike_here = 6};
static const struct effort of_long = {
    .worse = 1, .price_rounds = 2, .far = 0.1, .alike = 2, .alike_here = 4};
static const struct effort of_long_beside = {
    .worse = 2, .price_rounds = 2, .far = 0.1, .alike = 2, .alike_here = 4};

static const struct effort *const efforts[LENGTHS][SITES] = {
    [SHORT_PROGRAM] = {[ALONE] = &of_short, [BESIDE_HOST] = &of_short},
    [USUAL_PROGRAM] = {[ALONE] = &of_usual, [BESIDE_HOST] = &of_usual_beside},
    [LONG_PROGRAM] = {[ALONE] = &of_long, [BESIDE_HOST] = &of_long_beside},
};

struct search {
  struct mr_draft *draft;
  const struct effort *effort;
  struct mr_draft_saved best;
  struct mr_search_trial best_trial;
  double best_seconds;
  double last_seconds; /* of the last choice; INFINITY where that does not fit */
  double compute_seconds;
};

static enum length length_of(const struct mr_draft *draft) {
  return draft->op_count <= MR_MACHINE_OPS ? SHORT_PROGRAM
         : draft->op_count <= MR_LONG_OPS  ? USUAL_PROGRAM
                                           : LONG_PROGRAM;
}

static uint64_t part_of(uint64_t pages, uint32_t halvings) {
  return halvings == 0 ? 0 : mr_max_u64(pages >> halvings, 1);
}

static void set_trial(struct mr_draft *draft, const struct mr_search_trial *trial) {
  /* How far ahead fetches look: the whole step, or less so that early fetches do not take the room
   * of late evictions. */
  static const double parts[MR_LOOKAHEADS] = {[MR_LOOKAHEAD_LEAST] = 0.01,
                                              [MR_LOOKAHEAD_LESS] = 0.04,
                                              [MR_LOOKAHEAD_PART] = 0.15,
                                              [MR_LOOKAHEAD_WHOLE] = 2.0};
  draft->spare_pages = part_of(draft->limit_pages, trial->spare);
  draft->lookahead_seconds = parts[trial->lookahead] * draft->clock[draft->op_count];
  draft->yield_pages = part_of(draft->limit_pages, trial->yield);
  draft->is_guided = trial->guided;
  draft->writes_early = trial->early;
  draft->held_gradients = trial->held;
}

/* Without, a draft that is to write early differs in how it shares the drive alone: it then looks
 * better than its plan is. */
static bool any_leaves_early(const struct mr_draft *draft) {
  bool any = false;
  for (uint32_t i = 0; i < draft->gap_count && !any; i++) {
    any = mr_draft_leaves_early(draft, i);
  }
  return any;
}

/* Sweeps the draft, which is chosen, and keeps it where it is the best so far. */
static mr_status try_sweep(struct search *search, const struct mr_search_trial *trial) {
  struct mr_draft *draft = search->draft;
  set_trial(draft, trial);
  mr_status status = mr_draft_schedule(draft, SEARCH_LAPS, draft->lookahead_seconds);
  if (status == MR_OK && draft->times.seconds < search->best_seconds * (1 - LEAST_GAIN) &&
      (!trial->early || any_leaves_early(draft))) {
    search->best_trial = *trial;
    search->best_seconds = draft->times.seconds;
    mr_draft_save(draft, &search->best);
  }
  return status;
}

/* Has the next sweeps count where they gain so much alone. Returns the best before. */
static double ask_for(struct search *search, double gain) {
  double before = search->best_seconds;
  search->best_seconds = before * (1 - gain);
  return before;
}

/* Ends that: where none did, the best is as it was. */
static void end_asking(struct search *search, double before, double gain) {
  bool found = search->best_seconds < before * (1 - gain);
  search->best_seconds = found ? search->best_seconds : before;
}

static bool good_enough(const struct search *search) {
  return search->best_seconds <= search->compute_seconds * (1 + GOOD_ENOUGH);
}

static bool drive_is_shared(const struct mr_plan_problem *problem) {
  return problem->nvme_mixed_bytes_per_second > 0 && problem->budget_bytes[MR_TIER_NVME] > 0;
}

/* Chooses anew, and keeps the draft where its sweep is the best so far. */
static mr_status try_choice(struct search *search, const struct mr_search_trial *trial) {
  bool fits = false;
  mr_draft_reset(search->draft);
  set_trial(search->draft, trial);
  search->last_seconds = INFINITY;
  mr_status status = mr_draft_choose(search->draft, search->draft->spare_pages, &fits);
  if (status == MR_OK && fits) {
    status = try_sweep(search, trial);
    search->last_seconds = search->draft->times.seconds;
  }
  return status;
}

/* The lookahead of drafts before others are tried. What a host that is apart makes had better come
 * long before it is wanted, while the host is still at work on what is wanted sooner: steps get 1 %
 * shorter on average, up to 10 %. Short programs, planned for many machines, gain nothing. */
static uint32_t first_lookahead(const struct mr_draft *draft) {
  bool asks = mr_draft_is_beside_host(draft) && length_of(draft) != SHORT_PROGRAM;
  return asks ? MR_LOOKAHEAD_PART : MR_LOOKAHEAD_LEAST;
}

/* Drafts that leave more and more of the limit free for moves in flight. */
static mr_status try_spares(struct search *search) {
  struct mr_search_trial trial = {.yield =
                                      drive_is_shared(search->draft->problem) ? FIRST_YIELD : 0,
                                  .lookahead = first_lookahead(search->draft)};
  mr_status status = try_sweep(search, &trial);
  uint32_t most = search->effort->worse;
  uint32_t worse = 0;
  for (uint32_t spare = MR_MOST_SPARE; spare > 0 && status == MR_OK && worse < most; spare--) {
    if (good_enough(search)) break;
    double before = search->best_seconds;
    trial.spare = spare;
    status = try_choice(search, &trial);
    worse = search->best_seconds < before ? 0 : worse + 1;
  }
  return status;
}

/*
 * Choices by what links are worth in each part of the step: sums over the whole step do not tell
 * that one link binds the forward pass, another the backward pass, nor that a drive at work in half
 * of the step holds ops up where one step passes into the next.
 */
static mr_status try_prices(struct search *search, bool early) {
  struct mr_draft *draft = search->draft;
  struct mr_search_trial trial = search->best_trial;
  trial.early = early;
  trial.yield = early ? 0 : trial.yield;
  uint32_t rounds = early ? search->effort->early_rounds : search->effort->price_rounds;
  double far_seconds = search->best_seconds * (1 + search->effort->far);
  mr_status status = MR_OK;
  if (good_enough(search)) {
    return MR_OK;
  }
  mr_draft_restore(draft, &search->best);
  if (early) {
    status = try_sweep(search, &trial);
  } else {
    set_trial(draft, &trial); /* its sweep is known */
  }
  for (uint32_t round = 0; round < rounds && status == MR_OK; round++) {
    bool fits = false;
    if (draft->times.seconds > far_seconds) break;
    mr_draft_price_parts(draft);
    mr_draft_reset(draft);
    status = mr_draft_choose(draft, draft->spare_pages, &fits);
    if (status != MR_OK || !fits) break;
    status = try_sweep(search, &trial);
  }
  return status;
}

/*
 * Choices where what is to leave does so while it is still read (plan/early.c): a weight once it is
 * updated, not where the backward pass is through with it. A drive that does more of reads and
 * writes together than of either is so kept at both all through the step: with NVMe alone beside a
 * GPU steps get 4 % shorter on average, up to 13 %. With the host alone the way out has less to do
 * where gradients leave: steps that links bind get up to 10 % shorter, 0.8 % on average. Small
 * gains are none once pages are coloured.
 */
static mr_status try_early(struct search *search) {
  const struct mr_plan_problem *problem = search->draft->problem;
  bool may = problem->host_apart || problem->budget_bytes[MR_TIER_NVME] > 0;
  if (!may || search->best_seconds < LINK_BOUND * search->compute_seconds) {
    return MR_OK;
  }
  double before = ask_for(search, EARLY_GAIN);
  mr_status status = try_prices(search, true);
  end_asking(search, before, EARLY_GAIN);
  return status;
}

/*
 * Choices by the prices of the linear program that bounds the step: it sees the whole step at once,
 * where sweeps tell what bound the last choice. Steps that links bind get up to a fifth faster.
 * Sweeps do not tell small gains from none, so that only large ones count; where ops are to run on
 * the host it gains next to nothing. Behind a way that is no better than the best before, none
 * changed a plan of 180 jobs.
 */
static mr_status try_guide(struct search *search) {
  static const struct {
    double strength;
    uint32_t spare;
    bool guided;
  } ways[] = {{4, 0, true},  {4, 0, false}, {4, 6, true},
              {4, 4, false}, {4, 4, true},  {16, 0, true}};
  struct mr_draft *draft = search->draft;
  struct mr_search_trial trial = search->best_trial;
  if (search->best_seconds < LINK_BOUND * search->compute_seconds ||
      draft->problem->on_host != NULL) {
    return MR_OK;
  }
  double before = ask_for(search, GUIDE_GAIN);
  mr_status status = mr_draft_find_guide(draft);
  for (uint32_t i = 0; i < MR_COUNT_OF(ways) && status == MR_OK; i++) {
    trial.spare = ways[i].spare;
    trial.guided = ways[i].guided;
    mr_draft_follow_guide(draft, ways[i].strength);
    status = try_choice(search, &trial);
    if (search->last_seconds >= before) break;
  }
  end_asking(search, before, GUIDE_GAIN);
  return status;
}

/*
 * Choices where a part of the gradients stays, so that others leave in their place. What a backward
 * pass makes leaves while there is next to nothing to read, and the drive does less than it could
 * of both at once; what else might leave comes and goes while updates read and write. Prices tell
 * so, but gradients are alike and all follow them, and then the drive is idle there. With NVMe
 * alone beside a GPU steps get up to 1.8 % shorter, 0.3 % on average. Of short programs, planned
 * for many machines, two more would be slower beside a faster link.
 */
static mr_status try_held(struct search *search) {
  static const uint32_t held[] = {6, 4};
  const struct mr_search_trial best_trial = search->best_trial;
  mr_status status = MR_OK;
  if (search->draft->problem->budget_bytes[MR_TIER_NVME] == 0 ||
      mr_host_may_run(search->draft->problem) ||
      search->best_seconds < LINK_BOUND * search->compute_seconds) {
    return MR_OK;
  }
  for (uint32_t i = 0; i < MR_COUNT_OF(held) && status == MR_OK; i++) {
    if (i == search->effort->held) break;
    struct mr_search_trial trial = best_trial;
    trial.held = held[i];
    mr_draft_restore(search->draft, &search->best);
    double before = ask_for(search, HELD_GAIN);
    status = try_choice(search, &trial);
    end_asking(search, before, HELD_GAIN);
  }
  return status;
}

/* Other sweeps of the best choice. */
static mr_status try_sweeps(struct search *search) {
  static const uint32_t yields[] = {0, 4};
  const uint32_t first = first_lookahead(search->draft);
  mr_status status = MR_OK;
  for (uint32_t i = 0; i < MR_LOOKAHEADS && status == MR_OK && !good_enough(search); i++) {
    struct mr_search_trial trial = search->best_trial;
    if (i == first || i == trial.lookahead) continue;
    trial.lookahead = i;
    mr_draft_restore(search->draft, &search->best);
    status = try_sweep(search, &trial);
  }
  bool shared = drive_is_shared(search->draft->problem);
  for (uint32_t i = 0; i < MR_COUNT_OF(yields) && status == MR_OK && shared; i++) {
    struct mr_search_trial trial = search->best_trial;
    if (good_enough(search)) break;
    if (yields[i] == trial.yield) continue;
    trial.yield = yields[i];
    mr_draft_restore(search->draft, &search->best);
    status = try_sweep(search, &trial);
  }
  return status;
}

/* Gains of a sweep by leaving alike are hardly ever those of its plan where a host that is apart
 * runs ops, nor where a device that is apart has NVMe alone: forecasts were 0.07 % longer with it
 * there, for a sixth of the time. */
static bool alike_may_gain(const struct mr_draft *draft) {
  const struct mr_plan_problem *problem = draft->problem;
  bool nvme_alone = problem->budget_bytes[MR_TIER_HOST] == 0;
  return !problem->host_apart || (!nvme_alone && !mr_draft_is_beside_host(draft));
}

/*
 * Choosing stops where everything fits, and keeps what has room then. But room is worth more where
 * a drive holds ops up than where it is idle: a slice of a table that is written in any case may be
 * away in the forward pass, for the price of reading it back while the drive has nothing else to
 * do, and what the updates change waits on the device meanwhile. So kept gaps alike are evicted
 * too, one class after another, where sweeps get shorter by it: steps that NVMe binds get up to 3 %
 * faster.
 */
static mr_status try_alike(struct search *search) {
  struct mr_draft *draft = search->draft;
  struct mr_search_trial trial = search->best_trial;
  struct mr_alike alike = {0};
  if (good_enough(search) || !alike_may_gain(draft)) {
    return MR_OK;
  }
  mr_draft_restore(draft, &search->best);
  mr_status status = mr_alike_init(&alike, draft);
  bool apart = draft->problem->host_apart;
  uint32_t most = apart ? search->effort->alike : search->effort->alike_here;
  for (uint32_t i = 0; i < alike.class_count && i < most && status == MR_OK; i++) {
    mr_draft_restore(draft, &search->best);
    if (!mr_alike_evict(&alike, i, draft)) continue;
    double before = ask_for(search, ALIKE_GAIN);
    status = try_sweep(search, &trial);
    end_asking(search, before, ALIKE_GAIN);
  }
  mr_alike_fini(&alike);
  return status;
}

/* Room that was spared for moves in flight everywhere is wanted in some places alone: what the best
 * sweep left free is filled again. */
static mr_status try_refills(struct search *search) {
  struct mr_draft *draft = search->draft;
  const struct mr_search_trial trial = search->best_trial;
  double before = search->best_seconds;
  uint32_t kept = 0;
  mr_status status = MR_OK;
  mr_draft_restore(draft, &search->best);
  mr_draft_save(draft, draft->unfilled);
  for (uint32_t round = 0; round < REFILL_ROUNDS && !good_enough(search); round++) {
    status = mr_draft_refill(draft, &kept);
    if (status != MR_OK || kept == 0) break;
    status = try_sweep(search, &trial);
    if (status != MR_OK) break;
  }
  draft->is_filled = search->best_seconds < before;
  return status;
}

/* What ranks programs of which the best are searched: the draft at hand, or one with room for moves
 * in flight. Where a host that is apart runs ops, what it makes had better be fetched as soon as it
 * is there, and room hardly ever gains more. */
static mr_status try_usual(struct search *search) {
  uint32_t yield = drive_is_shared(search->draft->problem) ? FIRST_YIELD : 0;
  mr_status status = try_sweep(search, &(struct mr_search_trial){.spare = 0});
  if (status != MR_OK || good_enough(search)) {
    return status;
  }
  if (!mr_draft_is_beside_host(search->draft)) {
    return try_choice(search, &(struct mr_search_trial){.spare = USUAL_SPARE, .yield = yield});
  }
  return try_sweep(search, &(struct mr_search_trial){.lookahead = MR_LOOKAHEAD_WHOLE});
}

/* Choices are priced by what binds their sweeps. Those of a sweep that looks too far ahead, or
 * yields too much, are not those of the best: so sweeps are tried before prices too, and steps on
 * the processor get up to 1 % shorter. Beside a device that is apart it gains nothing, nor in short
 * programs, nor in long ones. */
static bool sweeps_before_prices(const struct mr_draft *draft) {
  return length_of(draft) == USUAL_PROGRAM && !draft->problem->host_apart;
}

static mr_status try_all(struct search *search) {
  mr_status status = try_spares(search);
  double swept_seconds = -1; /* the best whose other sweeps were tried */
  if (status == MR_OK && sweeps_before_prices(search->draft)) {
    status = try_sweeps(search);
    swept_seconds = search->best_seconds;
  }
  if (status == MR_OK) {
    status = try_prices(search, false);
  }
  if (status == MR_OK) {
    status = try_early(search);
  }
  if (status == MR_OK) {
    status = try_guide(search);
  }
  if (status == MR_OK) {
    status = try_held(search);
  }
  if (status == MR_OK && search->best_seconds != swept_seconds) {
    status = try_sweeps(search);
  }
  return status;
}

/* What changes the best choice. */
static mr_status finish(struct search *search) {
  double before = search->best_seconds;
  mr_status status = try_alike(search);
  if (status == MR_OK && search->best_seconds < before) {
    status = try_sweeps(search);
  }
  return status == MR_OK ? try_refills(search) : status;
}

/* The one choice that a search for almost the same problem found best. */
static mr_status follow_recipe(struct search *search) {
  struct mr_draft *draft = search->draft;
  const struct mr_recipe *recipe = draft->problem->recipe;
  struct mr_search_trial trial = recipe->trial;
  trial.guided = false; /* what room is worth is found by searches alone */
  memcpy(draft->scarcity, recipe->scarcity, sizeof draft->scarcity);
  mr_status status = try_choice(search, &trial);
  bool swept = search->best_seconds < INFINITY;
  draft->in_vain = !swept || search->best_seconds > recipe->seconds * (1 + RECIPE_MARGIN);
  return status;
}

static void note_recipe(const struct search *search) {
  struct mr_recipe *recipe = &search->draft->recipe;
  recipe->trial = search->best_trial;
  memcpy(recipe->scarcity, search->best.scarcity, sizeof recipe->scarcity);
  recipe->seconds = search->best_seconds;
  recipe->line = search->draft->line_only;
}

static mr_status search_for_plan(struct search *search) {
  bool follows = mr_draft_follows_recipe(search->draft);
  mr_status status = follows ? follow_recipe(search) : try_all(search);
  if (status != MR_OK || search->draft->in_vain) {
    return status;
  }
  note_recipe(search);
  return finish(search);
}

static mr_status search_from(struct mr_draft *draft) {
  struct search search = {
      .draft = draft,
      .effort = efforts[length_of(draft)][mr_draft_is_beside_host(draft) ? BESIDE_HOST : ALONE],
      .best_seconds = INFINITY,
      .compute_seconds = draft->clock[draft->op_count]};
  mr_status status = mr_draft_saved_init(&search.best, draft);
  if (status == MR_OK) {
    status = draft->effort == MR_EFFORT_SEARCH ? search_for_plan(&search) : try_usual(&search);
  }
  if (status == MR_OK && !draft->in_vain) {
    mr_draft_restore(draft, &search.best);
    set_trial(draft, &search.best_trial);
  }
  mr_draft_saved_fini(&search.best);
  return status;
}

/* Whether another gap of the tensor finds below what this one's move out leaves there, or what
 * rests there between steps because of it. */
static bool is_relied_on(const struct mr_draft *draft, const struct mr_draft_gap *gap) {
  bool found = false;
  for (uint32_t i = draft->first_gap[gap->tensor]; i < draft->first_gap[gap->tensor + 1]; i++) {
    const struct mr_draft_gap *other = &draft->gaps[i];
    found = found || (other != gap && other->decision == gap->decision && !other->written);
  }
  return found && (gap->written || gap->wrap);
}

/* Keeps what comes back at the op from which on its pages would be free: no other has them. */
static void close_empty_holes(struct mr_draft *draft) {
  for (uint32_t i = 0; i < draft->gap_count; i++) {
    const struct mr_draft_gap *gap = &draft->gaps[i];
    bool moves = gap->decision != MR_DECISION_KEEP && !gap->fixed && !gap->resting;
    if (moves && gap->release_op == gap->fetch_op && !(gap->wrap && draft->line_only) &&
        !is_relied_on(draft, gap)) {
      (void)mr_draft_keep_again(draft, i);
    }
  }
}

/* The sweep that the plan is made of. */
static mr_status schedule(struct mr_draft *draft) {
  mr_status status = mr_draft_schedule(draft, FINAL_LAPS, draft->lookahead_seconds);
  if (status == MR_OK) {
    close_empty_holes(draft);
  }
  return status;
}

mr_status mr_draft_repair(struct mr_draft *draft, bool *fits_out) {
  draft->held_gradients = 0; /* they leave after all where that is what fits */
  mr_status status = mr_draft_choose(draft, draft->spare_pages, fits_out);
  if (status != MR_OK || !*fits_out || draft->effort == MR_EFFORT_FIT) {
    return status;
  }
  return schedule(draft);
}

mr_status mr_draft_fill_up(struct mr_draft *draft, bool *changed_out) {
  uint32_t kept = 0;
  mr_status status = mr_draft_refill(draft, &kept);
  *changed_out = kept > 0;
  return status == MR_OK && kept > 0 ? schedule(draft) : status;
}

mr_status mr_draft_unfill(struct mr_draft *draft) {
  mr_draft_restore(draft, draft->unfilled);
  draft->is_filled = false;
  return schedule(draft);
}

mr_status mr_draft_search(struct mr_draft *draft, bool *fits_out) {
  mr_status status = MR_OK;
  draft->is_filled = false;
  draft->recipe = (struct mr_recipe){0};
  draft->in_vain = false;
  if (!mr_draft_follows_recipe(draft)) {
    set_trial(draft, &(struct mr_search_trial){.spare = 0});
    memset(draft->scarcity, 0, sizeof draft->scarcity);
    status = mr_draft_choose(draft, 0, fits_out);
    if (status != MR_OK || !*fits_out || draft->effort == MR_EFFORT_FIT) {
      return status;
    }
  }
  status = search_from(draft);
  *fits_out = status == MR_OK && !draft->in_vain;
  return *fits_out ? schedule(draft) : status;
}
