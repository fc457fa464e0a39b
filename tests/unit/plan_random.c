/* SPDX-License-Identifier: Apache-2.0 */
/* plan/ over random programs and budgets: every plan is checked by the verifier and counted anew.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "unit/plan_programs.h"
#include "unit/plans_made.h"

#define ROUNDS      200u
#define HALF_ROUNDS (ROUNDS / 2) /* of one test of two */

static uint64_t environment_u64(const char *name, uint64_t otherwise) {
  const char *text = getenv(name);
  return text != NULL ? strtoull(text, NULL, 10) : otherwise;
}

struct draw {
  uint64_t seed;
  struct mr_graph *graph;
  double *op_seconds;
  struct mr_plan_problem problem;
};

static void draw_init(struct draw *draw, uint64_t seed) {
  struct mr_random random;
  mr_random_init(&random, seed);
  uint32_t ops = 2u << mr_random_below(&random, 6);
  draw->seed = seed;
  draw->graph = plan_random_graph(&random, ops, 256 * MR_KIB);
  plan_problem_init(&draw->problem, draw->graph);
  draw->op_seconds = plan_op_seconds(draw->graph, 1e-3);
  draw->problem.op_seconds = draw->op_seconds;
  for (uint32_t k = 0; k < mr_graph_op_count(draw->graph); k++) {
    draw->op_seconds[k] = 1e-3 * mr_random_unit(&random);
  }
  for (uint32_t l = 0; l < MR_LINK_COUNT; l++) {
    draw->problem.link[l].bytes_per_second = 1e8 * (0.1 + mr_random_unit(&random));
  }
  if (mr_random_below(&random, 2) == 0) {
    draw->problem.nvme_mixed_bytes_per_second =
        draw->problem.link[MR_LINK_NVME_READ].bytes_per_second;
  }
  if (mr_random_below(&random, 4) == 0) {
    draw->problem.page_bytes = 0;
  }
  draw->problem.search_rounds = 1000; /* all there are: then more is never worse */
  uint64_t host[] = {0, mr_random_below(&random, 4 * MR_MIB), UINT64_MAX, UINT64_MAX};
  uint64_t nvme[] = {0, mr_random_below(&random, 8 * MR_MIB), UINT64_MAX, UINT64_MAX};
  draw->problem.budget_bytes[MR_TIER_HOST] = host[mr_random_below(&random, 4)];
  draw->problem.budget_bytes[MR_TIER_NVME] = nvme[mr_random_below(&random, 4)];
  if (mr_random_below(&random, 3) == 0) {
    draw->problem.host_apart = true;
    draw->problem.host_bytes_per_second = 1e8 * (0.1 + mr_random_unit(&random));
    draw->problem.nvme_staged = mr_random_below(&random, 2) == 0;
  }
}

static void draw_fini(struct draw *draw) {
  plans_made_forget();
  free(draw->op_seconds);
  mr_graph_destroy(draw->graph);
}

static struct mr_program_plan *plan_under(struct draw *draw, uint64_t device_bytes) {
  struct mr_program_plan *plan = NULL;
  draw->problem.budget_bytes[MR_TIER_DEVICE] = device_bytes;
  assert_int_equal(mr_program_plan_make(&draw->problem, &plan), MR_OK);
  return plan;
}

static bool covers(const struct mr_instance *instance, uint32_t op) {
  if (instance->always) {
    return true;
  }
  return instance->first_op <= instance->last_op
             ? op >= instance->first_op && op <= instance->last_op
             : op >= instance->first_op || op <= instance->last_op;
}

/* Counts the pages at each op from the instances alone. */
static void check_usage(const struct draw *draw, const struct mr_program_plan *plan) {
  uint64_t peak = 0;
  for (uint32_t k = 0; k < mr_graph_op_count(draw->graph); k++) {
    uint64_t pages = 0;
    for (uint32_t i = 0; i < plan->instance_count; i++) {
      const struct mr_instance *instance = &plan->instances[i];
      pages += covers(instance, k) ? instance->page_count : 0;
    }
    peak = mr_max_u64(peak, pages);
  }
  uint64_t bytes = plan->small_bytes + plan->device_page_count * plan->page_bytes;
  assert_true(peak <= plan->device_page_count);
  assert_true(bytes <= draw->problem.budget_bytes[MR_TIER_DEVICE]);
  assert_true(plan->host_page_count * mr_plan_host_page_bytes(plan->page_bytes) <=
              draw->problem.budget_bytes[MR_TIER_HOST]);
  assert_true(plan->nvme_bytes <= draw->problem.budget_bytes[MR_TIER_NVME]);
  double bound_seconds = 0;
  assert_int_equal(mr_program_plan_bound(&draw->problem, &bound_seconds), MR_OK);
  assert_true(plan->step_seconds >= bound_seconds * (1 - 1e-9));
}

static void check_plan(struct draw *draw, struct mr_program_plan *plan) {
  check_usage(draw, plan);
  if (mr_program_plan_verify(&draw->problem, plan) != MR_OK) {
    fail_msg("seed %llu: the verifier refuses the plan", (unsigned long long)draw->seed);
  }
}

static void check_same_stays(const struct mr_program_plan *a, const struct mr_program_plan *b) {
  for (uint32_t i = 0; i < a->instance_count; i++) {
    const struct mr_instance *left = &a->instances[i];
    const struct mr_instance *right = &b->instances[i];
    assert_int_equal(left->tensor, right->tensor);
    assert_int_equal(left->first_op, right->first_op);
    assert_int_equal(left->last_op, right->last_op);
    assert_int_equal(left->small_offset, right->small_offset);
    assert_int_equal(left->first_page, right->first_page);
    assert_int_equal(left->page_count, right->page_count);
  }
}

static void check_same(const struct mr_program_plan *a, const struct mr_program_plan *b) {
  assert_int_equal(a->instance_count, b->instance_count);
  check_same_stays(a, b);
  assert_memory_equal(a->pages, b->pages, a->page_entry_count * sizeof *a->pages);
  for (uint32_t q = 0; q < MR_QUEUE_COUNT; q++) {
    assert_int_equal(a->instruction_count[q], b->instruction_count[q]);
    for (uint32_t i = 0; i < a->instruction_count[q]; i++) {
      const struct mr_instruction *left = &a->instructions[q][i];
      const struct mr_instruction *right = &b->instructions[q][i];
      assert_int_equal(left->instance, right->instance);
      assert_int_equal(left->slot, right->slot);
      assert_int_equal(left->wait_count, right->wait_count);
      assert_true(left->start_seconds == right->start_seconds);
    }
  }
  assert_int_equal(a->wait_count, b->wait_count);
}

/* With all the memory there is, nothing moves, unless a host that is apart makes steps shorter. */
static uint64_t check_unlimited(struct draw *draw) {
  double host_rate = draw->problem.host_bytes_per_second;
  struct mr_program_plan *beside = plan_under(draw, UINT64_MAX);
  assert_true(beside->fits);
  check_plan(draw, beside);
  draw->problem.host_bytes_per_second = 0;
  struct mr_program_plan *plan = plan_under(draw, UINT64_MAX);
  draw->problem.host_bytes_per_second = host_rate;
  assert_true(beside->step_seconds <= plan->step_seconds);
  assert_true(mr_program_plan_moved_bytes(beside) == 0 ||
              (draw->problem.host_apart && beside->step_seconds < plan->step_seconds));
  mr_program_plan_destroy(beside);
  assert_true(plan->fits);
  assert_int_equal(mr_program_plan_moved_bytes(plan), 0);
  uint64_t footprint = plan->footprint_bytes;
  assert_int_equal(plan->small_bytes + plan->device_page_count * plan->page_bytes, footprint);
  check_plan(draw, plan);
  mr_program_plan_destroy(plan);
  return footprint;
}

struct tally {
  uint32_t plans, slower, moved, on_host, apart, apart_slower, untold;
  double worst;
};

/* A terse refusal leaves out what would do. That has room for what must live at once. */
static void check_terse(struct draw *draw, uint64_t smallest, struct tally *tally) {
  double least = 0;
  for (uint32_t i = 0; i < 2; i++) {
    draw->problem.terse = true;
    struct mr_program_plan *plan = plan_under(draw, i == 0 ? smallest - 1 : 0);
    draw->problem.terse = false;
    assert_false(plan->fits || plan->useless);
    assert_int_equal(plan->smallest_device_bytes, UINT64_MAX);
    mr_program_plan_destroy(plan);
  }
  double room = mr_plan_room_bytes(&draw->problem);
  assert_int_equal(mr_program_plan_least_bytes(&draw->problem, &least), MR_OK);
  assert_true(least <= room + (double)smallest);
  tally->untold += least > room;
}

static uint64_t check_smallest(struct draw *draw, struct tally *tally) {
  struct mr_program_plan *plan = plan_under(draw, 0);
  if (plan->fits) {
    mr_program_plan_destroy(plan);
    return 0;
  }
  uint64_t smallest = plan->smallest_device_bytes;
  mr_program_plan_destroy(plan);
  check_terse(draw, smallest, tally);
  plan = plan_under(draw, smallest);
  if (!plan->fits) {
    fail_msg("seed %llu: %llu bytes should do", (unsigned long long)draw->seed,
             (unsigned long long)smallest);
  }
  check_plan(draw, plan);
  mr_program_plan_destroy(plan);
  plan = plan_under(draw, smallest - 1);
  if (plan->fits) {
    fail_msg("seed %llu: less than %llu bytes do too", (unsigned long long)draw->seed,
             (unsigned long long)smallest);
  }
  assert_int_equal(plan->smallest_device_bytes, smallest);
  mr_program_plan_destroy(plan);
  return smallest;
}

/* The same plan, tersely where it is refused, with threads that make parts of it side by side. */
static struct mr_program_plan *plan_with_crew(struct draw *draw, uint64_t device_bytes) {
  struct mr_crew crew;
  mr_crew_init(&crew, 3);
  draw->problem.crew = &crew;
  draw->problem.terse = true;
  struct mr_program_plan *plan = plan_under(draw, device_bytes);
  draw->problem.crew = NULL;
  draw->problem.terse = false;
  return plan;
}

static void check_between(struct draw *draw, uint64_t smallest, uint64_t footprint,
                          struct tally *tally) {
  double before = 0;
  for (uint32_t i = 0; i <= 4; i++) {
    uint64_t room = footprint > smallest ? footprint - smallest : 0;
    struct mr_program_plan *plan = plan_under(draw, smallest + room * i / 4);
    struct mr_program_plan *again = plan_with_crew(draw, smallest + room * i / 4);
    assert_true(plan->fits == again->fits);
    if (plan->fits) {
      check_plan(draw, plan);
      check_same(plan, again);
      tally->plans++;
      tally->on_host += plan->host_op_count > 0;
      tally->apart += plan->instruction_count[MR_QUEUE_HOST] > 0;
      tally->moved +=
          plan->moved_bytes[MR_LINK_HOST_TO_DEVICE] + plan->moved_bytes[MR_LINK_NVME_READ] > 0;
      if (before > 0 && plan->step_seconds > before * (1 + 1e-9)) {
        tally->slower += !draw->problem.host_apart;
        tally->apart_slower += draw->problem.host_apart;
        double ratio = plan->step_seconds / before;
        tally->worst = ratio > tally->worst ? ratio : tally->worst;
      }
      before = plan->step_seconds;
    }
    mr_program_plan_destroy(plan);
    mr_program_plan_destroy(again);
  }
}

static void check_seed(uint64_t seed, struct tally *tally) {
  struct draw draw;
  draw_init(&draw, seed);
  uint64_t footprint = check_unlimited(&draw);
  uint64_t smallest = check_smallest(&draw, tally);
  check_between(&draw, smallest, footprint, tally);
  draw_fini(&draw);
}

/* With all on the device there, a host that is apart could spare it some ops. */
#define SPARED_SEED 2113u

static void random_plans_hold(void **state) {
  (void)state;
  uint64_t first = environment_u64("MEMRUN_TEST_SEED", 1);
  uint64_t rounds = environment_u64("MEMRUN_TEST_ROUNDS", HALF_ROUNDS);
  struct tally tally = {0};
  print_message("seeds %llu to %llu\n", (unsigned long long)first,
                (unsigned long long)(first + rounds - 1));
  for (uint64_t seed = first; seed < first + rounds; seed++) {
    check_seed(seed, &tally);
  }
  check_seed(SPARED_SEED, &tally);
  print_message(
      "%u plans, %u with moves, %u with ops on the host; %u slower than with less memory, "
      "%u beside a host that is apart, at worst %.3f times\n",
      tally.plans, tally.moved, tally.on_host, tally.slower, tally.apart_slower, tally.worst);
  assert_int_equal(tally.slower, 0);
  assert_int_equal(tally.apart_slower, 0);
  assert_true(rounds < HALF_ROUNDS || (tally.on_host > 0 && tally.untold > 0));
}

/* Pairs of machines, one of which is the better. */
struct harm {
  uint32_t pairs, moved, slower;
  double worst;
};

/* Counts where the plan of a better machine is slower than that of the one before it. */
static void compare(struct harm *harm, const struct mr_program_plan *worse,
                    const struct mr_program_plan *better) {
  if (!worse->fits) {
    return;
  }
  assert_true(better->fits);
  harm->pairs++;
  harm->moved += mr_program_plan_moved_bytes(worse) > 0;
  harm->slower += better->step_seconds > worse->step_seconds * (1 + 1e-9);
  double ratio = better->step_seconds / worse->step_seconds;
  harm->worst = ratio > harm->worst ? ratio : harm->worst;
}

/* A budget between the smallest and the footprint. */
static uint64_t draw_budget(struct draw *draw, struct mr_random *random) {
  struct mr_program_plan *none = plan_under(draw, 0);
  uint64_t footprint = none->footprint_bytes;
  uint64_t smallest = none->fits ? 0 : none->smallest_device_bytes;
  mr_program_plan_destroy(none);
  return smallest < footprint ? smallest + mr_random_below(random, footprint - smallest)
                              : footprint;
}

/* Each link alone up to four times as fast. */
static void compare_links(struct draw *draw, uint64_t device_bytes, struct mr_random *random,
                          struct harm *harm) {
  struct mr_program_plan *plan = plan_under(draw, device_bytes);
  for (uint32_t l = 0; l < MR_LINK_COUNT && plan->fits; l++) {
    struct mr_link_rate link = draw->problem.link[l];
    draw->problem.link[l].bytes_per_second *= 1 + 3 * mr_random_unit(random);
    struct mr_program_plan *faster = plan_under(draw, device_bytes);
    compare(harm, plan, faster);
    mr_program_plan_destroy(faster);
    draw->problem.link[l] = link;
  }
  mr_program_plan_destroy(plan);
}

/* With and without the host, with and without NVMe, of as much room as was drawn or any. */
static void compare_tiers(struct draw *draw, uint64_t device_bytes, struct mr_random *random,
                          struct harm *harm) {
  for (mr_tier lower = MR_TIER_HOST; lower <= MR_TIER_NVME; lower++) {
    uint64_t *budget = &draw->problem.budget_bytes[lower];
    uint64_t drawn = *budget;
    *budget = 0;
    struct mr_program_plan *without = plan_under(draw, device_bytes);
    *budget = drawn > 0 && mr_random_below(random, 2) == 0 ? drawn : UINT64_MAX;
    struct mr_program_plan *with = plan_under(draw, device_bytes);
    compare(harm, without, with);
    mr_program_plan_destroy(without);
    mr_program_plan_destroy(with);
    *budget = drawn;
  }
}

/* A faster link, or one more tier, and the plan is not slower. */
static void more_never_harms(void **state) {
  (void)state;
  uint64_t first = environment_u64("MEMRUN_TEST_SEED", 1);
  uint64_t rounds = environment_u64("MEMRUN_TEST_ROUNDS", ROUNDS);
  struct harm links = {0};
  struct harm tiers = {0};
  for (uint64_t seed = first; seed < first + rounds; seed++) {
    struct draw draw;
    struct mr_random random;
    draw_init(&draw, seed);
    mr_random_init(&random, seed + 2);
    uint64_t device_bytes = draw_budget(&draw, &random);
    compare_links(&draw, device_bytes, &random, &links);
    compare_tiers(&draw, device_bytes, &random, &tiers);
    draw_fini(&draw);
  }
  print_message("links: %u pairs, %u with moves, %u slower, at worst %.3f times\n", links.pairs,
                links.moved, links.slower, links.worst);
  print_message("tiers: %u pairs, %u with moves, %u slower, at worst %.3f times\n", tiers.pairs,
                tiers.moved, tiers.slower, tiers.worst);
  assert_int_equal(links.slower, 0);
  assert_int_equal(tiers.slower, 0);
  assert_true(rounds < ROUNDS || (links.moved > 0 && tiers.moved > 0));
}

/* Whatever is used on the host, wanted or not, the plan holds. */
static void forced_places_hold(void **state) {
  (void)state;
  uint64_t first = environment_u64("MEMRUN_TEST_SEED", 1);
  uint64_t rounds = environment_u64("MEMRUN_TEST_ROUNDS", ROUNDS);
  struct tally tally = {0};
  for (uint64_t seed = first; seed < first + rounds; seed++) {
    struct draw draw;
    struct mr_random random;
    draw_init(&draw, seed);
    mr_random_init(&random, seed + 1);
    uint32_t tensors = mr_graph_tensor_count(draw.graph);
    bool *on_host = mr_allocate(tensors, sizeof *on_host);
    assert_non_null(on_host);
    for (uint32_t t = 0; t < tensors; t++) {
      on_host[t] = mr_random_below(&random, 3) > 0;
    }
    struct mr_program_plan *free_plan = plan_under(&draw, UINT64_MAX);
    draw.problem.on_host = on_host;
    check_between(&draw, check_smallest(&draw, &tally), free_plan->footprint_bytes, &tally);
    mr_program_plan_destroy(free_plan);
    draw_fini(&draw);
    free(on_host);
  }
  print_message("%u plans, %u with moves, %u with ops on the host, %u beside the device\n",
                tally.plans, tally.moved, tally.on_host, tally.apart);
  assert_true(rounds < ROUNDS || (tally.on_host > tally.apart && tally.apart > 0));
}

/* more_never_harms takes as long as the others together, and so is a test by itself. */
int main(int argc, char **argv) {
  cmocka_set_test_filter(argc > 1 ? argv[1] : "random_plans_hold");
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(random_plans_hold),
      cmocka_unit_test(more_never_harms),
      cmocka_unit_test(forced_places_hold),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
