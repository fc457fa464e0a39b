/* SPDX-License-Identifier: Apache-2.0 */
/* The verifier on a plan made by hand: accepted as it is, refused with anything wrong in it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "model/plans.h"

#define PAGE 4096u

static mr_status no_run(const struct mr_op_call *call) {
  (void)call;
  return MR_OK;
}

/*
 * Five ops. w rests on the host, m on NVMe, s and x on the device; a goes to NVMe and comes back.
 *   0 f: x w -> a, scratch   1 g: a s -> b s   2 k: b s -> s, scratch   3 h: b a w -> w   4 u: b m
 * -> m
 */
enum { X, S, W, A, B, M, TENSORS };

static struct mr_graph *graph_make(void) {
  static const struct {
    const char *name;
    mr_role role;
    uint64_t bytes;
  } tensors[TENSORS] = {{"x", MR_INPUT, PAGE},      {"s", MR_STATE, 64},
                        {"w", MR_PARAMETER, 8192},  {"a", MR_ACTIVATION, 8192},
                        {"b", MR_ACTIVATION, PAGE}, {"m", MR_STATE, PAGE}};
  static const struct {
    const char *name;
    mr_tensor_id operands[6];
    uint32_t input_count, output_count;
    uint64_t scratch_bytes;
    uint32_t flags;
  } ops[] = {{"f", {X, W, A}, 2, 1, PAGE, 0},
             {"g", {A, S, B, S}, 2, 2, 0, 0},
             {"k", {B, S, S}, 2, 1, 8192, MR_OP_TRAIN_ONLY},
             {"h", {B, A, W, W}, 3, 1, 0, MR_OP_TRAIN_ONLY},
             {"u", {B, M, M}, 2, 1, 0, MR_OP_TRAIN_ONLY}};
  struct mr_graph *graph = NULL;
  assert_int_equal(mr_graph_create(&graph), MR_OK);
  for (uint32_t i = 0; i < TENSORS; i++) {
    struct mr_tensor_desc desc = {.size_bytes = sizeof desc,
                                  .name = tensors[i].name,
                                  .role = tensors[i].role,
                                  .dtype = MR_U8,
                                  .rank = 1,
                                  .shape = {tensors[i].bytes}};
    mr_tensor_id id = 0;
    assert_int_equal(mr_graph_add_tensor(graph, &desc, &id), MR_OK);
  }
  for (uint32_t i = 0; i < MR_COUNT_OF(ops); i++) {
    struct mr_op_desc desc = {.size_bytes = sizeof desc,
                              .name = ops[i].name,
                              .kind = ops[i].name,
                              .run = {no_run},
                              .inputs = ops[i].operands,
                              .input_count = ops[i].input_count,
                              .outputs = ops[i].operands + ops[i].input_count,
                              .output_count = ops[i].output_count,
                              .scratch_bytes = ops[i].scratch_bytes,
                              .flags = ops[i].flags,
                              .block = MR_NO_BLOCK};
    mr_op_id id = 0;
    assert_int_equal(mr_graph_add_op(graph, &desc, &id), MR_OK);
  }
  return graph;
}

enum { IX, IS, IW, IF, IA, IA2, IK, IW2, IB, IM, INSTANCES };

static struct mr_instance instances[INSTANCES] = {
    [IX] = {.tensor = X, .bytes = PAGE, .always = true, .first_page = 0, .page_count = 1},
    [IS] = {.tensor = S, .bytes = 64, .always = true, .small = true},
    [IW] = {.tensor = W, .bytes = 8192, .first_page = 1, .page_count = 2},
    [IF] = {.tensor = MR_NO_TENSOR, .bytes = PAGE, .first_page = 3, .page_count = 1},
    [IA] = {.tensor = A, .bytes = 8192, .last_op = 1, .first_page = 4, .page_count = 2},
    [IA2] =
        {.tensor = A, .bytes = 8192, .first_op = 3, .last_op = 3, .first_page = 1, .page_count = 2},
    [IK] = {.tensor = MR_NO_TENSOR,
            .bytes = 8192,
            .first_op = 2,
            .last_op = 2,
            .first_page = 4,
            .page_count = 2},
    [IW2] =
        {.tensor = W, .bytes = 8192, .first_op = 3, .last_op = 4, .first_page = 4, .page_count = 2},
    [IB] =
        {.tensor = B, .bytes = PAGE, .first_op = 1, .last_op = 4, .first_page = 3, .page_count = 1},
    [IM] =
        {.tensor = M, .bytes = PAGE, .first_op = 4, .last_op = 4, .first_page = 6, .page_count = 1},
};
static uint32_t pages[] = {0, 1, 2, 3, 4, 5, 6};
static uint32_t host_pages[] = {0, 1};
static struct mr_slot slots[] = {{.tensor = W, .bytes = 8192, .page_count = 2, .always = true}};
static struct mr_extent extents[] = {{A, 8192}, {M, PAGE}};
static struct mr_home homes[TENSORS] = {
    [X] = {MR_TIER_DEVICE, IX, 0},
    [S] = {MR_TIER_DEVICE, IS, 0},
    [W] = {MR_TIER_HOST, MR_NO_INSTANCE, 0},
    [M] = {MR_TIER_NVME, MR_NO_INSTANCE, 1},
};
static uint32_t operands[] = {IX,
                              IW,
                              IA,
                              IF, /* f */
                              IA,
                              IS,
                              IB,
                              IS,
                              MR_NO_INSTANCE, /* g */
                              IB,
                              IS,
                              IS,
                              IK, /* k */
                              IB,
                              IA2,
                              IW2,
                              IW2,
                              MR_NO_INSTANCE, /* h */
                              IB,
                              IM,
                              IM,
                              MR_NO_INSTANCE}; /* u */
static uint32_t first_operand[] = {0, 4, 9, 13, 18, 22};

enum { COMPUTE, OUT, IN, READ, WRITE };

static struct mr_wait waits[] = {
    {IN, 1, false},      {OUT, 1, true},    /* 0: f */
    {WRITE, 1, false},                      /* 2: k */
    {IN, 2, false},      {READ, 1, false},  /* 3: h */
    {READ, 2, false},                       /* 5: u */
    {COMPUTE, 4, false},                    /* 6: w goes home */
    {COMPUTE, 4, true},  {OUT, 1, true},    /* 7: w comes for f */
    {COMPUTE, 3, false},                    /* 9: w comes for h */
    {COMPUTE, 1, false}, {WRITE, 1, false}, /* 10: a comes back */
    {WRITE, 2, true},                       /* 12: m comes */
    {COMPUTE, 2, false},                    /* 13: a goes */
    {COMPUTE, 5, false},                    /* 14: m goes home */
};
static uint32_t births[] = {IF, IA, IB, IK, IW, IW2, IA2, IM};

#define NOBODY .instance = MR_NO_INSTANCE, .slot = MR_NO_SLOT
static struct mr_instruction compute[] = {
    {.op = 0, NOBODY, .first_wait = 0, .wait_count = 2, .first_birth = 0, .birth_count = 2},
    {.op = 1, NOBODY, .first_birth = 2, .birth_count = 1},
    {.op = 2, NOBODY, .first_wait = 2, .wait_count = 1, .first_birth = 3, .birth_count = 1},
    {.op = 3, NOBODY, .first_wait = 3, .wait_count = 2},
    {.op = 4, NOBODY, .first_wait = 5, .wait_count = 1},
};
static struct mr_instruction out[] = {{.op = 3, .instance = IW2, .first_wait = 6, .wait_count = 1}};
static struct mr_instruction in[] = {
    {.op = 0, .instance = IW, .first_wait = 7, .wait_count = 2, .first_birth = 4, .birth_count = 1},
    {.op = 3,
     .instance = IW2,
     .first_wait = 9,
     .wait_count = 1,
     .first_birth = 5,
     .birth_count = 1},
};
static struct mr_instruction nvme_read[] = {
    {.op = 3,
     .instance = IA2,
     .first_wait = 10,
     .wait_count = 2,
     .first_birth = 6,
     .birth_count = 1},
    {.op = 4,
     .instance = IM,
     .slot = 1,
     .first_wait = 12,
     .wait_count = 1,
     .first_birth = 7,
     .birth_count = 1},
};
static struct mr_instruction nvme_write[] = {
    {.op = 1, .instance = IA, .first_wait = 13, .wait_count = 1},
    {.op = 4, .instance = IM, .slot = 1, .first_wait = 14, .wait_count = 1},
};

static struct mr_program_plan plan_make(const struct mr_graph *graph) {
  return (struct mr_program_plan){
      .program = graph,
      .fits = true,
      .page_bytes = PAGE,
      .small_bytes = PAGE,
      .device_page_count = 7,
      .host_page_count = 2,
      .nvme_bytes = 3 * PAGE,
      .instances = instances,
      .instance_count = INSTANCES,
      .pages = pages,
      .page_entry_count = MR_COUNT_OF(pages),
      .host_pages = host_pages,
      .host_page_entry_count = MR_COUNT_OF(host_pages),
      .slots = slots,
      .slot_count = MR_COUNT_OF(slots),
      .extents = extents,
      .extent_count = MR_COUNT_OF(extents),
      .homes = homes,
      .instructions = {compute, out, in, nvme_read, nvme_write},
      .instruction_count = {MR_COUNT_OF(compute), MR_COUNT_OF(out), MR_COUNT_OF(in),
                            MR_COUNT_OF(nvme_read), MR_COUNT_OF(nvme_write)},
      .waits = waits,
      .wait_count = MR_COUNT_OF(waits),
      .births = births,
      .birth_count = MR_COUNT_OF(births),
      .operands = operands,
      .first_operand = first_operand,
  };
}

struct fixture {
  struct mr_graph *graph;
  struct mr_program_plan plan;
  struct mr_plan_problem problem;
};

static struct fixture fixture_make(void) {
  struct fixture f = {.graph = graph_make()};
  f.plan = plan_make(f.graph);
  f.problem = (struct mr_plan_problem){
      .program = f.graph,
      .budget_bytes = {8 * PAGE, 2 * PAGE, 3 * PAGE},
      .extent_unit_bytes = PAGE,
  };
  return f;
}

static void the_plan_is_right(void **state) {
  (void)state;
  struct fixture f = fixture_make();
  assert_int_equal(mr_program_plan_verify(&f.problem, &f.plan), MR_OK);
  mr_graph_destroy(f.graph);
}

static void mutants_are_refused(void **state) {
  (void)state;
  struct fixture f = fixture_make();
  struct mutation_counts wait_counts = {0};
  struct mutation_counts other_counts = {0};
  for (uint64_t seed = 1; seed <= 40; seed++) {
    plan_mutate(&f.problem, &f.plan, seed, &wait_counts, &other_counts);
  }
  assert_int_equal(other_counts.caught, other_counts.tried);
  print_message("waits: %u of %u caught, the rest harmless; others: %u of %u\n", wait_counts.caught,
                wait_counts.tried, other_counts.caught, other_counts.tried);
  mr_graph_destroy(f.graph);
}

static char last_line[512];

static void keep_line(void *context, mr_log_level level, const char *line) {
  (void)context;
  (void)level;
  strncpy(last_line, line, sizeof last_line - 1);
}

/* Refused, in words that contain all of `words` (separated by '|'). */
static void expect_words(struct fixture *f, const char *words) {
  char copy[256];
  strncpy(copy, words, sizeof copy - 1);
  copy[sizeof copy - 1] = '\0';
  mr_log_configure(keep_line, NULL, MR_LOG_ERROR);
  assert_int_equal(mr_program_plan_verify(&f->problem, &f->plan), MR_CORRUPT);
  mr_log_configure(NULL, NULL, MR_LOG_INFO);
  char *rest = NULL;
  for (char *word = strtok_r(copy, "|", &rest); word != NULL; word = strtok_r(NULL, "|", &rest)) {
    if (strstr(last_line, word) == NULL) {
      fail_msg("'%s' does not say '%s'", last_line, word);
    }
  }
  f->plan = plan_make(f->graph);
}

static void faults_are_named(void **state) {
  (void)state;
  struct fixture f = fixture_make();
  waits[2].count = 0;
  expect_words(&f, "nvme write queue, instruction 0|op g|tensor a|device page 4");
  waits[2].count = 1;
  waits[6].count = 3;
  expect_words(&f, "device to host queue|tensor w|instance 7");
  waits[6].count = 4;
  /* f would wait for the write of a, which waits for g. */
  waits[1] = (struct mr_wait){WRITE, 1, false};
  expect_words(&f, "for ever|compute queue, instruction 0");
  waits[1] = (struct mr_wait){OUT, 1, true};
  slots[0].always = false;
  expect_words(&f, "home of w");
  slots[0].always = true;
  homes[W].tier = (mr_tier)MR_TIER_COUNT; /* no tier at all */
  expect_words(&f, "home of w|tier 3");
  homes[W].tier = MR_TIER_HOST;
  homes[S].copy = (mr_tier)MR_TIER_COUNT;
  expect_words(&f, "home of s|copy in 3");
  homes[S].copy = MR_TIER_DEVICE;
  f.problem.contiguous = true;
  assert_int_equal(mr_program_plan_verify(&f.problem, &f.plan), MR_OK);
  uint32_t first = instances[IW].first_page;
  uint32_t page = pages[first];
  pages[first] = pages[first + 1];
  pages[first + 1] = page;
  expect_words(&f, "instance|of w is in one piece");
  pages[first + 1] = pages[first];
  pages[first] = page;
  f.problem.contiguous = false;
  f.plan.device_page_count = 8;
  expect_words(&f, "device|36864|32768");
  instances[IB].last_op = 3;
  expect_words(&f, "op u|instance 8");
  instances[IB].last_op = 4;
  instances[IX].small = true; /* of a whole page */
  instances[IX].small_offset = 64;
  instances[IX].page_count = 0;
  f.plan.small_bytes = 2 * PAGE;
  f.problem.budget_bytes[MR_TIER_DEVICE] = 9 * PAGE;
  expect_words(&f, "instance 0 of x|4096 bytes are small|half a page is 2048");
  instances[IX].small = false;
  instances[IX].small_offset = 0;
  instances[IX].page_count = 1;
  f.problem.budget_bytes[MR_TIER_DEVICE] = 8 * PAGE;
  pages[3] = 6; /* b where m is */
  expect_words(&f, "device page 6|(b)|(m)");
  pages[3] = 3;
  nvme_write[1].op = 3;
  expect_words(&f, "nvme write queue, instruction 1|tensor m");
  nvme_write[1].op = 4;
  f.plan.instruction_count[WRITE] = 1;
  expect_words(&f, "wait");
  f.plan.fits = false;
  mr_log_configure(keep_line, NULL, MR_LOG_ERROR);
  assert_int_equal(mr_program_plan_verify(&f.problem, &f.plan), MR_INVALID);
  mr_log_configure(NULL, NULL, MR_LOG_INFO);
  mr_graph_destroy(f.graph);
}

/* An op of training alone that writes m whole needs no fetch of m in training, but evaluation skips
 * it and would send whatever was on the pages home. */
static void evaluation_keeps_homes(void **state) {
  (void)state;
  struct fixture f = fixture_make();
  struct mr_op *u = &f.graph->ops[4];
  u->input_count = 1;
  uint32_t kept[] = {operands[19], operands[20], operands[21]};
  operands[19] = IM;
  operands[20] = MR_NO_INSTANCE;
  first_operand[5] = 21;
  assert_int_equal(mr_program_plan_verify(&f.problem, &f.plan), MR_OK);
  /* Without the fetch: u is the first to touch m's page and waits for m's last way home. */
  waits[5] = (struct mr_wait){WRITE, 2, true};
  compute[4].first_birth = 7;
  compute[4].birth_count = 1;
  f.plan.instruction_count[READ] = 1;
  expect_words(&f, "evaluation|home of m");
  f.plan.instruction_count[READ] = 1;
  u->flags = 0;
  assert_int_equal(mr_program_plan_verify(&f.problem, &f.plan), MR_OK);
  waits[5] = (struct mr_wait){READ, 2, false};
  compute[4].first_birth = 0;
  compute[4].birth_count = 0;
  memcpy(&operands[19], kept, sizeof kept);
  first_operand[5] = 22;
  u->input_count = 2;
  mr_graph_destroy(f.graph);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_plan_is_right),
      cmocka_unit_test(mutants_are_refused),
      cmocka_unit_test(faults_are_named),
      cmocka_unit_test(evaluation_keeps_homes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
