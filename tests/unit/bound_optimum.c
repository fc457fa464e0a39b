/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bound of a program against the best of all its plans: tiny random steps, every decision for
 * every gap, every op from which on pages are free and claimed again, writes early or not, each
 * recompute, each place of the update, and updates in this step or the next. The verifier accepts
 * the best plan of each, so that it is one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>

#include "base/base.h"
#include "plan/bound.h"
#include "plan/draft.h"
#include "plan/stages.h"
#include "recompute/recompute.h"
#include "unit/plan_programs.h"

#define PROGRAMS     4000u
#define MOST_OPTIONS 64u   /* of a gap */
#define MOST_DRAFTS  6000u /* of a program */
#define MOST_GAPS    8u
#define PAGE         (4 * MR_KIB)
#define FORWARD_OPS  2u
#define MOST_STATES  2u

/* One way to decide a gap. */
struct option {
  uint8_t decision;
  uint32_t release_op, fetch_op;
  bool late; /* the move out starts when its pages are wanted, not when it could */
};

struct choice {
  struct option options[MOST_OPTIONS];
  uint32_t count;
  uint32_t at;
};

struct tally {
  uint32_t programs, plans, early, moved, on_host, repeated, deferred, tight;
  uint32_t steps, tight_steps; /* of all programs of a step together */
};

/* Half of the tensors are small: they never move, so that there is less to try. */
static mr_tensor_id add_tensor(struct mr_graph *graph, struct mr_random *random, mr_role role) {
  uint64_t pages = 1 + mr_random_below(random, 12);
  return plan_add_tensor(graph, role, mr_random_below(random, 2) == 0 ? 64 : pages * PAGE);
}

static void add_update(struct mr_graph *graph, mr_tensor_id gradient, mr_tensor_id weight,
                       mr_tensor_id state, mr_tensor_id norm) {
  mr_tensor_id none = MR_NO_TENSOR;
  (void)plan_add_op(graph, (mr_tensor_id[]){gradient, weight, state, norm, none},
                    (mr_tensor_id[]){weight, state, none}, 0);
}

/* A step: two forward ops that can be repeated, one backward, perhaps one that waits for it, and an
 * update, perhaps in two pieces, perhaps on the host; perhaps what is updated is read, and left
 * alone by one more op. */
static struct mr_graph *make_step(struct mr_random *random) {
  struct mr_graph *graph = NULL;
  assert_int_equal(mr_graph_create(&graph), MR_OK);
  mr_tensor_id weight = add_tensor(graph, random, MR_PARAMETER);
  mr_tensor_id state = add_tensor(graph, random, MR_STATE);
  mr_tensor_id first = add_tensor(graph, random, MR_ACTIVATION);
  mr_tensor_id second = add_tensor(graph, random, MR_ACTIVATION);
  mr_tensor_id gradient = add_tensor(graph, random, MR_GRADIENT);
  bool reads_weight = mr_random_below(random, 2) == 0;
  bool clips = mr_random_below(random, 3) == 0;
  mr_tensor_id none = MR_NO_TENSOR;
  (void)plan_add_op(graph, (mr_tensor_id[]){weight, none}, (mr_tensor_id[]){first, none}, 0);
  (void)plan_add_op(graph, (mr_tensor_id[]){first, none}, (mr_tensor_id[]){second, none}, 0);
  (void)plan_add_op(graph, (mr_tensor_id[]){first, second, reads_weight ? weight : none, none},
                    (mr_tensor_id[]){gradient, none}, mr_random_below(random, 2) * PAGE);
  mr_tensor_id norm = clips ? plan_add_tensor(graph, MR_ACTIVATION, 64) : none;
  if (clips) {
    (void)plan_add_op(graph, (mr_tensor_id[]){gradient, none}, (mr_tensor_id[]){norm, none}, 0);
  }
  uint32_t updates = graph->op_count;
  add_update(graph, gradient, weight, state, norm);
  if (mr_random_below(random, 3) == 0) {
    add_update(graph, gradient, weight, add_tensor(graph, random, MR_STATE), norm);
  }
  bool capable = mr_random_below(random, 3) == 0;
  bool defers = mr_random_below(random, 2) == 0;
  uint32_t updated = graph->op_count;
  if (mr_random_below(random, 4) == 0) {
    (void)plan_add_op(graph, (mr_tensor_id[]){weight, none}, &none, 0);
    (void)plan_add_op(graph, (mr_tensor_id[]){plan_add_tensor(graph, MR_STATE, 64), none}, &none,
                      mr_random_below(random, 4) * PAGE);
  }
  for (uint32_t k = 0; k < graph->op_count; k++) {
    bool forward = k < FORWARD_OPS;
    graph->ops[k].flags |= forward ? MR_OP_REPEATABLE : MR_OP_TRAIN_ONLY;
    bool update = k >= updates && k < updated;
    graph->ops[k].flags |= capable && update ? MR_OP_HOST_CAPABLE : 0;
    graph->ops[k].flags |= defers && update ? MR_OP_DEFERRABLE : 0;
    graph->ops[k].block = forward ? 0 : MR_NO_BLOCK;
  }
  return graph;
}

static void make_problem(struct mr_plan_problem *problem, struct mr_random *random,
                         const struct mr_graph *graph) {
  plan_problem_init(problem, graph);
  problem->page_bytes = PAGE;
  for (uint32_t l = 0; l < MR_LINK_COUNT; l++) {
    problem->link[l].bytes_per_second = 1e7 * (0.2 + mr_random_unit(random));
    problem->link[l].latency_seconds = 1e-5 * (double)mr_random_below(random, 2);
  }
  if (mr_random_below(random, 2) == 0) {
    problem->nvme_mixed_bytes_per_second = (problem->link[MR_LINK_NVME_READ].bytes_per_second +
                                            problem->link[MR_LINK_NVME_WRITE].bytes_per_second) *
                                           (0.2 + mr_random_unit(random));
  }
  if (mr_random_below(random, 2) == 0) {
    problem->nvme_op_seconds_per_byte = 2e-7 * mr_random_unit(random);
  }
  uint32_t tiers = (uint32_t)mr_random_below(random, 9);
  problem->budget_bytes[MR_TIER_HOST] = tiers < 4 || tiers >= 7 ? UINT64_MAX : 0;
  problem->budget_bytes[MR_TIER_NVME] = tiers >= 4 ? UINT64_MAX : 0;
  if (tiers >= 7) {
    problem->budget_bytes[MR_TIER_HOST] = mr_random_below(random, 24) * PAGE;
  }
  problem->host_apart = mr_random_below(random, 2) == 0;
  problem->host_bytes_per_second = 1e7 * mr_random_unit(random);
  if (mr_random_below(random, 2) == 0) {
    problem->host_memory_bytes_per_second = 3e7 * mr_random_unit(random);
  }
  problem->nvme_staged = mr_random_below(random, 2) == 0;
}

static void add_options(const struct mr_draft *draft, uint32_t gap_index, uint8_t decision,
                        struct choice *choice) {
  const struct mr_draft_gap *gap = &draft->gaps[gap_index];
  uint32_t last = (uint32_t)mr_min_u64(gap->latest_release_op, gap->before_op);
  for (uint32_t release = gap->after_op + 1; release <= last; release++) {
    uint32_t from = release > gap->earliest_fetch_op ? release : gap->earliest_fetch_op;
    for (uint32_t fetch = from; fetch <= gap->before_op; fetch++) {
      for (uint32_t late = 0; late < 2; late++) {
        if (choice->count == MOST_OPTIONS) return;
        bool same = late > 0 && (release == gap->after_op + 1 || release > draft->op_count);
        if (same) continue;
        choice->options[choice->count++] = (struct option){decision, release, fetch, late > 0};
      }
    }
  }
}

/* Lists what can be done with each gap; false: too much to try it all. */
static bool list_choices(const struct mr_draft *draft, struct choice *choices) {
  const uint64_t *budget = draft->problem->budget_bytes;
  uint64_t drafts = 1;
  if (draft->gap_count > MOST_GAPS) {
    return false;
  }
  for (uint32_t i = 0; i < draft->gap_count; i++) {
    const struct mr_draft_gap *gap = &draft->gaps[i];
    choices[i] = (struct choice){0};
    if (!gap->fixed || gap->dead) {
      choices[i].options[choices[i].count++] = (struct option){.decision = MR_DECISION_KEEP};
    }
    if (gap->dead) continue; /* it gives up its pages */
    if (gap->fixed || (budget[MR_TIER_HOST] > 0 && mr_draft_can_evict(draft, gap))) {
      add_options(draft, i, MR_DECISION_HOST, &choices[i]);
    }
    if (!gap->fixed && budget[MR_TIER_NVME] > 0 && mr_draft_can_evict(draft, gap)) {
      add_options(draft, i, MR_DECISION_NVME, &choices[i]);
    }
    drafts *= choices[i].count;
    if (choices[i].count == MOST_OPTIONS || drafts > MOST_DRAFTS) {
      return false;
    }
  }
  return true;
}

/* Turns to the next combination; false: that was the last. */
static bool next_draft(struct choice *choices, uint32_t count) {
  for (uint32_t i = 0; i < count; i++) {
    if (++choices[i].at < choices[i].count) {
      return true;
    }
    choices[i].at = 0;
  }
  return false;
}

/* Decides every gap as chosen; false: a tier has no room, or the step could not start so. */
static bool decide_all(struct mr_draft *draft, const struct choice *choices) {
  mr_draft_reset(draft);
  for (uint32_t i = 0; i < draft->gap_count; i++) {
    const struct option *option = &choices[i].options[choices[i].at];
    if (option->decision == MR_DECISION_KEEP) continue;
    if (!draft->gaps[i].fixed && !mr_draft_decide(draft, i, option->decision)) {
      return false;
    }
    mr_draft_set_fetch(draft, i, option->fetch_op);
    mr_draft_set_release(draft, i, option->release_op);
    if (option->late) {
      draft->gaps[i].evict_op = option->release_op - 1;
    }
  }
  for (uint32_t i = 0; i < draft->gap_count; i++) {
    const struct mr_draft_gap *gap = &draft->gaps[i];
    bool moves = gap->decision != MR_DECISION_KEEP && !gap->resting;
    if (moves && gap->wrap && gap->home_below && gap->fetch_op < draft->op_count) {
      return false;
    }
  }
  return mr_draft_peak(draft) <= draft->limit_pages;
}

/* Has all leave for NVMe as soon as it may, also while it is still read; false: nothing does. */
static bool write_early(struct mr_draft *draft) {
  bool any = false;
  draft->writes_early = true;
  for (uint32_t i = 0; i < draft->gap_count; i++) {
    if (mr_draft_leaves_early(draft, i)) {
      draft->gaps[i].evict_op = draft->gaps[i].changed_op;
      any = true;
    }
  }
  draft->writes_early = false;
  return any;
}

/* The time of a step under the draft's decisions; INFINITY: no plan. The verifier looks at what is
 * faster than `best`. */
static double play(struct mr_draft *draft, double best, struct tally *tally) {
  struct mr_program_plan plan = {.program = draft->program,
                                 .page_bytes = draft->page_bytes,
                                 .small_bytes = draft->small_bytes};
  uint64_t pages = 0;
  double seconds = INFINITY;
  assert_int_equal(mr_draft_lower(draft, draft->limit_pages, &plan, &pages), MR_OK);
  if (pages <= draft->limit_pages) {
    plan.fits = true;
    assert_int_equal(mr_plan_add_waits(&plan), MR_OK);
    assert_int_equal(mr_program_plan_simulate(draft->problem, &plan), MR_OK);
    seconds = plan.step_seconds;
    tally->plans++;
    if (seconds < best) {
      assert_int_equal(mr_program_plan_verify(draft->problem, &plan), MR_OK);
      tally->moved += mr_program_plan_moved_bytes(&plan) > 0;
      tally->on_host += plan.host_op_count > 0;
    }
  }
  mr_plan_clear(&plan);
  return seconds;
}

/* The least time of any plan with these tensors on the host; INFINITY: none, or too many to try. */
static double best_placed(const struct mr_plan_problem *problem, struct tally *tally) {
  static struct choice choices[MOST_GAPS];
  struct mr_draft draft;
  double best = INFINITY;
  assert_int_equal(mr_draft_init(&draft, problem, PAGE), MR_OK);
  bool more = list_choices(&draft, choices);
  for (; more; more = next_draft(choices, draft.gap_count)) {
    if (decide_all(&draft, choices)) {
      best = fmin(best, play(&draft, best, tally));
      if (write_early(&draft)) {
        best = fmin(best, play(&draft, best, tally));
        tally->early++;
      }
    }
  }
  mr_draft_fini(&draft);
  return best;
}

/* With nothing on the host, and with all that ops there may use but the states left out. */
static double best_of(struct mr_plan_problem *problem, struct tally *tally) {
  const struct mr_graph *graph = problem->program;
  double best = best_placed(problem, tally);
  bool *on_host = mr_allocate(graph->tensor_count, sizeof *on_host);
  assert_non_null(on_host);
  problem->on_host = on_host;
  for (uint32_t left_out = 0; left_out < 1u << MOST_STATES; left_out++) {
    uint32_t state = 0;
    for (uint32_t t = 0; t < graph->tensor_count; t++) {
      bool is_state = graph->tensors[t].role == MR_STATE;
      on_host[t] = !is_state || (left_out & 1u << state) == 0;
      state += is_state;
    }
    if (problem->budget_bytes[MR_TIER_HOST] > 0 && left_out < 1u << state) {
      best = fmin(best, best_placed(problem, tally));
    }
  }
  problem->on_host = NULL;
  free(on_host);
  return best;
}

/* A bound that tells whether plans may be of use need tell no more. */
static void check_enough(struct mr_plan_problem problem, double quick, double bound) {
  const double useful[] = {quick, (quick + bound) / 2, bound, 1.01 * bound};
  for (uint32_t i = 0; i < MR_COUNT_OF(useful); i++) {
    double told = 0;
    problem.useful_seconds = useful[i];
    assert_int_equal(mr_program_plan_bound(&problem, &told), MR_OK);
    assert_true(told <= bound && (told >= useful[i]) == (bound >= useful[i]));
    assert_true(told >= fmin(useful[i], bound));
  }
}

/* A bound that nobody asks for any more is not looked for. */
static void check_unwanted(struct mr_plan_problem problem) {
  const atomic_bool unwanted = true;
  double told = -1;
  problem.unwanted = &unwanted;
  assert_int_equal(mr_program_plan_bound(&problem, &told), MR_OK);
  assert_true(told == 0);
}

/* What each op of a program takes, which is kept in its work. */
static double *op_seconds_of(const struct mr_graph *program) {
  double *op_seconds = mr_allocate(program->op_count, sizeof *op_seconds);
  assert_non_null(op_seconds);
  for (uint32_t k = 0; k < program->op_count; k++) {
    op_seconds[k] = program->ops[k].flops;
  }
  return op_seconds;
}

static double bound_of_any_recompute(struct mr_plan_problem problem,
                                     const struct mr_graph *program) {
  double *op_seconds = op_seconds_of(program);
  double bound = 0;
  problem.program = program;
  problem.op_seconds = op_seconds;
  problem.bound_any_recompute = true;
  assert_int_equal(mr_program_plan_bound(&problem, &bound), MR_OK);
  free(op_seconds);
  return bound;
}

static double least_bytes_of(struct mr_plan_problem problem, bool any_recompute) {
  double bytes = 0;
  problem.bound_any_recompute = any_recompute;
  assert_int_equal(mr_program_plan_least_bytes(&problem, &bytes), MR_OK);
  return bytes;
}

/* What fits has all that lives at once in its tiers. */
static void check_least_bytes(const struct mr_plan_problem *problem) {
  double least = least_bytes_of(*problem, false);
  assert_true(least > 0 && least <= mr_plan_room_bytes(problem));
  assert_true(least_bytes_of(*problem, true) <= least);
}

/* The program, planned in all ways, is no faster than its bound and than that of all programs of
 * the step. The time of the fastest. */
static double check_program(struct mr_plan_problem problem, const struct mr_graph *program,
                            double bound_of_all, struct tally *tally) {
  double *op_seconds = op_seconds_of(program);
  problem.program = program;
  problem.op_seconds = op_seconds;
  double bound = 0;
  double quick = 0;
  assert_int_equal(mr_program_plan_bound(&problem, &bound), MR_OK);
  assert_int_equal(mr_program_plan_quick_bound(&problem, &quick), MR_OK);
  check_enough(problem, quick, bound);
  check_unwanted(problem);
  double best = best_of(&problem, tally);
  assert_true(bound <= best * (1 + 1e-9));
  assert_true(quick > 0 && quick <= bound);
  assert_true(bound_of_all <= best * (1 + 1e-9));
  if (isfinite(best)) {
    check_least_bytes(&problem);
  }
  tally->programs += isfinite(best);
  tally->tight += best <= bound * 1.05;
  free(op_seconds);
  return best;
}

/* The graph with the ops in `again` repeated. */
static double check_repeated(const struct mr_plan_problem *problem, const struct mr_graph *graph,
                             uint32_t again, double bound_of_all, struct tally *tally) {
  mr_op_id ops[FORWARD_OPS];
  uint32_t count = 0;
  for (uint32_t k = 0; k < FORWARD_OPS; k++) {
    if ((again & 1u << k) != 0) {
      ops[count++] = k;
    }
  }
  struct mr_graph *program = NULL;
  if (mr_recompute_repeat(graph, ops, count, &program) != MR_OK) {
    return INFINITY;
  }
  double best = check_program(*problem, program, bound_of_all, tally);
  tally->repeated += isfinite(best) && program->op_count > graph->op_count;
  mr_graph_destroy(program);
  return best;
}

/* The graph with its updates in the next step, but for the last so many. */
static double check_deferred(const struct mr_plan_problem *problem, const struct mr_graph *graph,
                             uint32_t staying, double bound_of_all, struct tally *tally) {
  struct mr_graph *program = NULL;
  assert_int_equal(mr_graph_defer(graph, staying, &program), MR_OK);
  if (program == NULL) {
    return INFINITY;
  }
  double best = check_program(*problem, program, bound_of_all, tally);
  tally->deferred += isfinite(best);
  mr_graph_destroy(program);
  return best;
}

static void check_step(uint64_t seed, struct tally *tally) {
  struct mr_random random;
  struct mr_plan_problem problem;
  mr_random_init(&random, seed);
  struct mr_graph *graph = make_step(&random);
  struct mr_graph *deferred = NULL;
  make_problem(&problem, &random, graph);
  uint64_t whole = 0;
  for (uint32_t k = 0; k < graph->op_count; k++) {
    graph->ops[k].flops = 5e-3 * mr_random_unit(&random);
  }
  for (uint32_t t = 0; t < graph->tensor_count; t++) {
    whole += mr_round_up(graph->tensors[t].bytes, PAGE);
  }
  problem.budget_bytes[MR_TIER_DEVICE] = whole * (4 + mr_random_below(&random, 6)) / 10;
  double bound_of_all = bound_of_any_recompute(problem, graph);
  assert_int_equal(mr_graph_defer(graph, 0, &deferred), MR_OK);
  if (deferred != NULL) {
    bound_of_all = fmin(bound_of_all, bound_of_any_recompute(problem, deferred));
    mr_graph_destroy(deferred);
  }
  double best = INFINITY;
  for (uint32_t again = 0; again < 1u << FORWARD_OPS; again++) {
    best = fmin(best, check_repeated(&problem, graph, again, bound_of_all, tally));
  }
  for (uint32_t staying = 0; staying < 2; staying++) {
    best = fmin(best, check_deferred(&problem, graph, staying, bound_of_all, tally));
  }
  tally->steps += isfinite(best);
  tally->tight_steps += best <= bound_of_all * 1.05;
  mr_graph_destroy(graph);
}

static void no_plan_beats_its_bound(void **state) {
  (void)state;
  const char *given = getenv("MEMRUN_TEST_ROUNDS");
  uint64_t steps = given != NULL ? strtoull(given, NULL, 10) : PROGRAMS;
  struct tally tally = {0};
  for (uint64_t seed = 1; seed <= steps; seed++) {
    check_step(seed, &tally);
  }
  print_message(
      "%u programs, %u with ops repeated, %u with updates in the next step, %u plans, %u that "
      "write early; of the best ones so "
      "far %u moved, %u ran an op on the host; at most 5 %% over their bounds %u programs, and "
      "the best of %u of %u steps\n",
      tally.programs, tally.repeated, tally.deferred, tally.plans, tally.early, tally.moved,
      tally.on_host, tally.tight, tally.tight_steps, tally.steps);
  assert_true(steps < PROGRAMS || (tally.repeated > 0 && tally.deferred > 0 && tally.moved > 0 &&
                                   tally.on_host > 0 && tally.early > 0));
}

/* An activation that an op with need of the whole device comes in between must leave and come back,
 * or be made again: the bound has the cheaper of going out and being made. */
static void recompute_pays_a_ransom(void **state) {
  (void)state;
  const double rate = 1e7;
  const double bytes = 10.0 * PAGE;
  struct mr_graph *graph = NULL;
  struct mr_plan_problem problem;
  mr_tensor_id none = MR_NO_TENSOR;
  assert_int_equal(mr_graph_create(&graph), MR_OK);
  mr_tensor_id activation = plan_add_tensor(graph, MR_ACTIVATION, 10 * PAGE);
  mr_tensor_id loss = plan_add_tensor(graph, MR_ACTIVATION, 64);
  (void)plan_add_op(graph, &none, (mr_tensor_id[]){activation, none}, 0);
  (void)plan_add_op(graph, &none, (mr_tensor_id[]){loss, none}, 20 * PAGE);
  (void)plan_add_op(graph, (mr_tensor_id[]){activation, loss, none}, &none, 0);
  graph->ops[0].flags |= MR_OP_REPEATABLE;
  graph->ops[0].block = 0;
  graph->ops[1].block = 0;
  graph->ops[2].flags |= MR_OP_TRAIN_ONLY;
  plan_problem_init(&problem, graph);
  for (uint32_t l = 0; l < MR_LINK_COUNT; l++) {
    problem.link[l] = (struct mr_link_rate){.bytes_per_second = rate};
  }
  problem.budget_bytes[MR_TIER_DEVICE] = 20 * PAGE + 64;
  problem.budget_bytes[MR_TIER_HOST] = 0;
  problem.budget_bytes[MR_TIER_NVME] = UINT64_MAX;
  problem.bound_any_recompute = true;
  const double firsts[] = {0.25 * bytes / rate, 4 * bytes / rate};
  for (uint32_t i = 0; i < MR_COUNT_OF(firsts); i++) {
    double bound = 0;
    problem.op_seconds = (double[]){firsts[i], 1e-3, 2e-3};
    assert_int_equal(mr_program_plan_bound(&problem, &bound), MR_OK);
    double ransom = fmin(firsts[i], bytes / rate);
    assert_true(fabs(bound - (firsts[i] + 3e-3 + ransom)) < 1e-9);
    assert_true(least_bytes_of(problem, true) == 20 * PAGE + 64);
    assert_true(least_bytes_of(problem, false) == 30 * PAGE + 64);
  }
  mr_graph_destroy(graph);
}

/* A host beside the device may run an update at any time between the norm of gradients and the next
 * forward op: what the update uses and device and host together have no room for at the norm comes
 * from NVMe in that time, wherever it runs. */
static void the_turn_of_a_step_is_paid_for(void **state) {
  (void)state;
  const double rate = 1e7;
  struct mr_graph *graph = NULL;
  struct mr_plan_problem problem;
  struct mr_program_plan *plan = NULL;
  mr_tensor_id none = MR_NO_TENSOR;
  assert_int_equal(mr_graph_create(&graph), MR_OK);
  mr_tensor_id weight = plan_add_tensor(graph, MR_PARAMETER, 10 * PAGE);
  mr_tensor_id adam = plan_add_tensor(graph, MR_STATE, 20 * PAGE);
  mr_tensor_id gradient = plan_add_tensor(graph, MR_GRADIENT, 10 * PAGE);
  mr_tensor_id loss = plan_add_tensor(graph, MR_ACTIVATION, 64);
  mr_tensor_id norm = plan_add_tensor(graph, MR_ACTIVATION, 64);
  mr_tensor_id scale = plan_add_tensor(graph, MR_ACTIVATION, 64);
  (void)plan_add_op(graph, (mr_tensor_id[]){weight, none}, (mr_tensor_id[]){loss, none}, 0);
  (void)plan_add_op(graph, (mr_tensor_id[]){weight, loss, none}, (mr_tensor_id[]){gradient, none},
                    0);
  (void)plan_add_op(graph, (mr_tensor_id[]){gradient, none}, (mr_tensor_id[]){norm, none}, 0);
  (void)plan_add_op(graph, (mr_tensor_id[]){norm, none}, (mr_tensor_id[]){scale, none}, 0);
  add_update(graph, gradient, weight, adam, scale);
  graph->ops[4].flags |= MR_OP_HOST_CAPABLE;
  plan_problem_init(&problem, graph);
  for (uint32_t l = 0; l < MR_LINK_COUNT; l++) {
    bool reads = l == MR_LINK_NVME_READ;
    problem.link[l] = (struct mr_link_rate){.bytes_per_second = reads ? rate : 100 * rate};
  }
  problem.op_seconds = (double[]){2e-3, 3e-3, 1e-3, 1e-3, 1e-3};
  problem.host_apart = true;
  problem.host_bytes_per_second = 100 * rate;
  problem.page_bytes = PAGE;
  problem.budget_bytes[MR_TIER_DEVICE] = 21 * PAGE;
  problem.budget_bytes[MR_TIER_HOST] = 12 * PAGE;
  problem.budget_bytes[MR_TIER_NVME] = UINT64_MAX;
  double bound = 0;
  assert_int_equal(mr_program_plan_quick_bound(&problem, &bound), MR_OK);
  double least = 6e-3 + 7.0 * PAGE / rate; /* the norm is scaled meanwhile */
  assert_true(bound >= least);
  assert_int_equal(mr_program_plan_make(&problem, &plan), MR_OK);
  assert_true(!plan->fits || plan->step_seconds >= bound);
  mr_program_plan_destroy(plan);
  mr_graph_destroy(graph);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(recompute_pays_a_ransom),
                                     cmocka_unit_test(the_turn_of_a_step_is_paid_for),
                                     cmocka_unit_test(no_plan_beats_its_bound)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
