/* SPDX-License-Identifier: Apache-2.0 */
/* Plan files: what is printed comes back the same; what was changed is refused or verified. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/plan_file.h"
#include "recompute/recompute.h"
#include "unit/plan_programs.h"

#define ROUNDS 300u

struct draw {
  struct mr_graph *graph;
  double *op_seconds;
  struct mr_plan_problem problem;
  struct mr_program_plan *plan;
  struct mr_plan_header header;
};

static uint64_t random_budget(struct mr_random *random, uint64_t most) {
  return mr_random_below(random, 3) == 0 ? UINT64_MAX : mr_random_below(random, most);
}

/* A random program and the plan of it under the smallest budget that would do, or a little more. */
static void draw_init(struct draw *draw, struct mr_random *random) {
  *draw = (struct draw){0};
  draw->graph = plan_random_graph(random, 2u << mr_random_below(random, 6), 256 * MR_KIB);
  draw->op_seconds = plan_op_seconds(draw->graph, 1e-3);
  plan_problem_init(&draw->problem, draw->graph);
  draw->problem.op_seconds = draw->op_seconds;
  draw->problem.search_rounds = 4;
  draw->problem.page_bytes = mr_random_below(random, 2) == 0 ? 0 : 4 * MR_KIB;
  draw->problem.half_pages = draw->problem.page_bytes > 0 && mr_random_below(random, 2) == 0;
  draw->problem.budget_bytes[MR_TIER_HOST] = random_budget(random, 4 * MR_MIB);
  draw->problem.budget_bytes[MR_TIER_NVME] = random_budget(random, 8 * MR_MIB);
  draw->problem.budget_bytes[MR_TIER_DEVICE] = 1;
  assert_int_equal(mr_program_plan_make(&draw->problem, &draw->plan), MR_OK);
  if (!draw->plan->fits) {
    uint64_t smallest = draw->plan->smallest_device_bytes;
    draw->problem.budget_bytes[MR_TIER_DEVICE] = smallest + mr_random_below(random, smallest / 8);
    mr_program_plan_destroy(draw->plan);
    assert_int_equal(mr_program_plan_make(&draw->problem, &draw->plan), MR_OK);
  }
  assert_true(draw->plan->fits);
  snprintf(draw->header.machine, sizeof draw->header.machine, "a \"machine\"|2|2");
  draw->header.described = true;
  mr_graph_digest(draw->graph, &draw->header.job);
  memcpy(draw->header.budget_bytes, draw->problem.budget_bytes, sizeof draw->header.budget_bytes);
  draw->header.footprint_bytes = draw->plan->footprint_bytes;
}

static void draw_fini(struct draw *draw) {
  mr_program_plan_destroy(draw->plan);
  free(draw->op_seconds);
  mr_graph_destroy(draw->graph);
}

static char *print(const struct draw *draw) {
  char *text = NULL;
  assert_int_equal(mr_plan_file_print(&draw->header, draw->plan, &text), MR_OK);
  return text;
}

/* Opens and reads; the plan, or NULL where the text is refused. */
static struct mr_program_plan *take(const struct draw *draw, const char *text, size_t bytes) {
  struct mr_plan_file *file = NULL;
  struct mr_program_plan *plan = NULL;
  mr_status status = mr_plan_file_open("text", text, bytes, &file);
  if (status == MR_OK) {
    status = mr_plan_file_read(file, &draw->problem, &plan);
  }
  mr_plan_file_close(file);
  if (status != MR_OK) {
    assert_true(status == MR_CORRUPT || status == MR_DOES_NOT_FIT);
    return NULL;
  }
  return plan;
}

static void check_same_queue(const struct mr_program_plan *a, const struct mr_program_plan *b,
                             uint32_t queue) {
  assert_int_equal(a->instruction_count[queue], b->instruction_count[queue]);
  for (uint32_t i = 0; i < a->instruction_count[queue]; i++) {
    const struct mr_instruction *left = &a->instructions[queue][i];
    const struct mr_instruction *right = &b->instructions[queue][i];
    assert_int_equal(left->op, right->op);
    assert_int_equal(left->needed_by, right->needed_by);
    assert_int_equal(left->instance, right->instance);
    assert_int_equal(left->slot, right->slot);
    assert_int_equal(left->wait_count, right->wait_count);
    assert_memory_equal(a->births + left->first_birth, b->births + right->first_birth,
                        left->birth_count * sizeof *a->births);
    assert_true(left->start_seconds == right->start_seconds);
    assert_true(left->end_seconds == right->end_seconds);
    for (uint32_t w = 0; w < left->wait_count; w++) {
      const struct mr_wait *one = &a->waits[left->first_wait + w];
      const struct mr_wait *other = &b->waits[right->first_wait + w];
      assert_true(one->queue == other->queue && one->count == other->count &&
                  one->previous_step == other->previous_step);
    }
  }
}

static void check_same_gaps(const struct mr_program_plan *a, const struct mr_program_plan *b) {
  assert_int_equal(a->gap_count, b->gap_count);
  for (uint32_t i = 0; i < a->gap_count; i++) {
    assert_int_equal(a->gaps[i].tensor, b->gaps[i].tensor);
    assert_int_equal(a->gaps[i].after_op, b->gaps[i].after_op);
    assert_int_equal(a->gaps[i].decision, b->gaps[i].decision);
    assert_int_equal(a->gaps[i].written, b->gaps[i].written);
  }
}

static void check_same(const struct mr_program_plan *a, const struct mr_program_plan *b) {
  assert_int_equal(a->page_bytes, b->page_bytes);
  assert_int_equal(a->even_drive, b->even_drive);
  assert_int_equal(a->small_bytes, b->small_bytes);
  assert_int_equal(a->device_page_count, b->device_page_count);
  assert_int_equal(a->host_page_count, b->host_page_count);
  assert_int_equal(a->nvme_bytes, b->nvme_bytes);
  assert_int_equal(a->largest_op, b->largest_op);
  assert_int_equal(a->page_entry_count, b->page_entry_count);
  assert_memory_equal(a->pages, b->pages, a->page_entry_count * sizeof *a->pages);
  assert_memory_equal(a->host_pages, b->host_pages,
                      a->host_page_entry_count * sizeof *a->host_pages);
  for (uint32_t queue = 0; queue < MR_QUEUE_COUNT; queue++) {
    check_same_queue(a, b, queue);
  }
  check_same_gaps(a, b);
  for (uint32_t l = 0; l < MR_LINK_COUNT; l++) {
    assert_int_equal(a->moved_bytes[l], b->moved_bytes[l]);
    assert_true(a->link_seconds[l] == b->link_seconds[l]);
  }
  assert_true(a->step_seconds == b->step_seconds);
  assert_true(a->compute_seconds == b->compute_seconds);
  assert_true(a->host_seconds == b->host_seconds);
}

static void what_is_printed_comes_back(void **state) {
  (void)state;
  struct mr_random random;
  mr_random_init(&random, 11);
  uint32_t moving = 0;
  for (uint32_t round = 0; round < ROUNDS; round++) {
    struct draw draw;
    draw_init(&draw, &random);
    char *text = print(&draw);
    struct mr_program_plan *plan = take(&draw, text, strlen(text));
    assert_non_null(plan);
    check_same(draw.plan, plan);
    moving += plan->moved_bytes[MR_LINK_NVME_READ] + plan->moved_bytes[MR_LINK_HOST_TO_DEVICE] > 0;
    mr_program_plan_destroy(plan);
    free(text);
    draw_fini(&draw);
  }
  assert_true(moving > ROUNDS / 4); /* the test is about plans that move something */
}

static void header_comes_back(void **state) {
  (void)state;
  struct mr_random random;
  mr_random_init(&random, 12);
  struct draw draw;
  draw_init(&draw, &random);
  mr_op_id again[] = {0, 1};
  draw.header.again = again;
  draw.header.again_count = 2;
  draw.header.budget_bytes[MR_TIER_HOST] = UINT64_MAX;
  char *text = print(&draw);
  struct mr_plan_file *file = NULL;
  assert_int_equal(mr_plan_file_open("text", text, strlen(text), &file), MR_OK);
  const struct mr_plan_header *header = mr_plan_file_header(file);
  assert_string_equal(header->machine, draw.header.machine);
  assert_int_equal(header->described, draw.header.described);
  assert_memory_equal(header->budget_bytes, draw.header.budget_bytes, sizeof header->budget_bytes);
  assert_int_equal(header->footprint_bytes, draw.header.footprint_bytes);
  assert_int_equal(header->again_count, 2);
  assert_memory_equal(header->again, again, sizeof again);
  assert_int_equal(header->job.hash, draw.header.job.hash);
  assert_int_equal(header->job.bytes, draw.header.job.bytes);
  assert_true(header->job.flops == draw.header.job.flops);
  mr_plan_file_close(file);
  free(text);
  draw_fini(&draw);
}

static void every_prefix_is_refused(void **state) {
  (void)state;
  struct mr_random random;
  mr_random_init(&random, 13);
  struct draw draw;
  draw_init(&draw, &random);
  char *text = print(&draw);
  size_t whole = strlen(text);
  assert_true(text[whole - 1] == '\n');
  for (size_t bytes = 0; bytes + 1 < whole; bytes++) {
    assert_null(take(&draw, text, bytes));
  }
  free(text);
  draw_fini(&draw);
}

/* One bit is turned: the text is refused, or what it says is a plan that the verifier accepts. */
static void every_turned_bit_is_refused_or_verified(void **state) {
  (void)state;
  struct mr_random random;
  mr_random_init(&random, 14);
  uint32_t refused = 0;
  uint32_t accepted = 0;
  for (uint32_t round = 0; round < 40; round++) {
    struct draw draw;
    draw_init(&draw, &random);
    char *text = print(&draw);
    size_t bytes = strlen(text);
    for (uint32_t i = 0; i < 200; i++) {
      size_t at = mr_random_below(&random, bytes);
      char before = text[at];
      text[at] = (char)((unsigned char)before ^ (1u << mr_random_below(&random, 8)));
      struct mr_program_plan *plan = take(&draw, text, bytes);
      if (plan != NULL) {
        assert_int_equal(mr_program_plan_verify(&draw.problem, plan), MR_OK);
        accepted++;
      } else {
        refused++;
      }
      mr_program_plan_destroy(plan);
      text[at] = before;
    }
    free(text);
    draw_fini(&draw);
  }
  print_message("refused %u, accepted %u\n", refused, accepted);
  assert_true(refused > accepted);
}

/* A number of a row is replaced; the row is named. */
static char last_line[1024];

static void keep_line(void *context, mr_log_level level, const char *line) {
  (void)context;
  (void)level;
  snprintf(last_line, sizeof last_line, "%s", line);
}

static void faults_are_named(void **state) {
  (void)state;
  static const struct {
    const char *text, *line;
  } cases[] = {
      {"", "line"},
      {"[]", "an object is wanted"},
      {"{}", "\"memrun_plan\", its version, is missing"},
      {"{\"memrun_plan\":1}", "version 1; this memrun reads version 9"},
      {"{\"memrun_plan\":9,\n\"machine\":\"m\",\n\"machine\":\"m\"}", "line 3"},
      {"{\"memrun_plan\":9,\"machine\":7}", "machine: a name"},
      {"{\"memrun_plan\":9,\"machine\":\"m\",\"budget_bytes\":{\"device\":-1}}",
       "budget_bytes: device"},
  };
  mr_log_configure(keep_line, NULL, MR_LOG_ERROR);
  for (size_t i = 0; i < MR_COUNT_OF(cases); i++) {
    struct mr_plan_file *file = NULL;
    assert_int_equal(mr_plan_file_open("kept.plan", cases[i].text, strlen(cases[i].text), &file),
                     MR_CORRUPT);
    assert_non_null(strstr(last_line, "plan kept.plan: "));
    assert_non_null(strstr(last_line, cases[i].line));
  }
  mr_log_configure(NULL, NULL, MR_LOG_ERROR);
}

/* The same program is made from the ops that run again as from the menu's choice. */
static void ops_that_run_again_make_the_same_program(void **state) {
  (void)state;
  struct mr_random random;
  mr_random_init(&random, 15);
  struct mr_graph *graph = plan_random_graph(&random, 8, 64 * MR_KIB);
  mr_op_id beyond = mr_graph_op_count(graph);
  struct mr_graph *program = NULL;
  assert_int_equal(mr_recompute_repeat(graph, &beyond, 1, &program), MR_INVALID);
  assert_int_equal(mr_recompute_repeat(graph, NULL, 0, &program), MR_OK);
  struct mr_digest before;
  struct mr_digest after;
  mr_graph_digest(graph, &before);
  mr_graph_digest(program, &after);
  assert_int_equal(before.hash, after.hash);
  mr_graph_destroy(program);
  mr_graph_destroy(graph);
}

int main(void) {
  mr_log_configure(keep_line, NULL, MR_LOG_ERROR);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_is_printed_comes_back),
      cmocka_unit_test(header_comes_back),
      cmocka_unit_test(every_prefix_is_refused),
      cmocka_unit_test(every_turned_bit_is_refused_or_verified),
      cmocka_unit_test(faults_are_named),
      cmocka_unit_test(ops_that_run_again_make_the_same_program),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
