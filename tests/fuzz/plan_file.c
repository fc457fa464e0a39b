/* SPDX-License-Identifier: Apache-2.0 */
/* Plan files: what is accepted has passed the verifier, and can be printed and read again. */
#include "plan/plan_file.h"

#include <string.h>

#include "fuzz/fuzz.h"
#include "unit/plan_programs.h"

#define LIST(...) ((const mr_tensor_id[]){__VA_ARGS__, MR_NO_TENSOR})
#define PAGE      4096u

struct world {
  struct mr_graph *graph;
  double *op_seconds;
  struct mr_plan_problem problem;
  struct mr_plan_header header;
};

/* Takes the graph. */
static void world_init(struct world *world, struct mr_graph *graph, const char *machine) {
  world->graph = graph;
  world->op_seconds = plan_op_seconds(graph, 1e-3);
  plan_problem_init(&world->problem, graph);
  world->problem.op_seconds = world->op_seconds;
  snprintf(world->header.machine, sizeof world->header.machine, "%s", machine);
  mr_graph_digest(graph, &world->header.job);
}

/* A step with a weight and activations of which half fit, on a machine with a host and NVMe. */
static void world_init_near(struct world *world) {
  struct mr_graph *graph = NULL;
  FUZZ_REQUIRE(mr_graph_create(&graph) == MR_OK);
  mr_tensor_id weight = plan_add_tensor(graph, MR_PARAMETER, 2 * PAGE);
  mr_tensor_id first = plan_add_tensor(graph, MR_ACTIVATION, 3 * PAGE);
  mr_tensor_id second = plan_add_tensor(graph, MR_ACTIVATION, 3 * PAGE);
  mr_tensor_id loss = plan_add_tensor(graph, MR_STATE, 4);
  (void)plan_add_op(graph, LIST(weight), LIST(first), 2 * PAGE);
  (void)plan_add_op(graph, LIST(weight), LIST(second), 100);
  (void)plan_add_op(graph, LIST(second), LIST(loss), 0);
  (void)plan_add_op(graph, LIST(first, weight), LIST(weight), 0);
  world_init(world, graph, "near");
  world->problem.budget_bytes[MR_TIER_DEVICE] = 8 * PAGE;
  world->problem.budget_bytes[MR_TIER_HOST] = 3 * PAGE;
  world->problem.budget_bytes[MR_TIER_NVME] = 64 * PAGE;
}

/* Layers whose updates run on a host that is apart and make copies of weights anew, beside a device
 * that maps two halves at once. */
static void world_init_apart(struct world *world) {
  world_init(world, plan_copies_graph(1, 2, 3 * PAGE, 3 * PAGE), "apart");
  world->problem.half_pages = true;
  world->problem.host_apart = true;
  world->problem.host_bytes_per_second = 1e9;
  world->problem.budget_bytes[MR_TIER_DEVICE] = 40 * PAGE;
  world->problem.budget_bytes[MR_TIER_HOST] = 640 * PAGE;
}

#define WORLDS 2u

static struct world *shared_worlds(void) {
  static struct world worlds[WORLDS];
  if (worlds[0].graph == NULL) {
    world_init_near(&worlds[0]);
    world_init_apart(&worlds[1]);
  }
  return worlds;
}

_Bool fuzz_seed_at(uint32_t index, struct fuzz_seed *seed_out) {
  static char *texts[WORLDS];
  if (index >= WORLDS) {
    return 0;
  }
  if (texts[index] == NULL) {
    struct world *world = &shared_worlds()[index];
    struct mr_program_plan *plan = NULL;
    FUZZ_REQUIRE(mr_program_plan_make(&world->problem, &plan) == MR_OK && plan->fits);
    FUZZ_REQUIRE((plan->instruction_count[MR_QUEUE_HOST] > 0) == world->problem.host_apart);
    FUZZ_REQUIRE(mr_plan_file_print(&world->header, plan, &texts[index]) == MR_OK);
    mr_program_plan_destroy(plan);
  }
  *seed_out = (struct fuzz_seed){texts[index], strlen(texts[index])};
  return 1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  struct mr_plan_file *file = NULL;
  if (mr_plan_file_open("text", (const char *)data, bytes, &file) != MR_OK) {
    return 0;
  }
  bool apart = strcmp(mr_plan_file_header(file)->machine, "apart") == 0;
  struct world *world = &shared_worlds()[apart ? 1 : 0];
  struct mr_program_plan *plan = NULL;
  if (mr_plan_file_read(file, &world->problem, &plan) == MR_OK) {
    char *text = NULL;
    struct mr_program_plan *again = NULL;
    struct mr_plan_file *printed = NULL;
    FUZZ_REQUIRE(mr_plan_file_print(mr_plan_file_header(file), plan, &text) == MR_OK);
    FUZZ_REQUIRE(mr_plan_file_open("printed", text, strlen(text), &printed) == MR_OK);
    FUZZ_REQUIRE(mr_plan_file_read(printed, &world->problem, &again) == MR_OK);
    FUZZ_REQUIRE(again->step_seconds == plan->step_seconds);
    mr_plan_file_close(printed);
    mr_program_plan_destroy(again);
    free(text);
  }
  mr_program_plan_destroy(plan);
  mr_plan_file_close(file);
  return 0;
}
