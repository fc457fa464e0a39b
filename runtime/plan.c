/* SPDX-License-Identifier: Apache-2.0 */
/* A plan's life: the problem from settings, profile and store; made or loaded; destroyed. */
#include <stdlib.h>
#include <string.h>

#include "runtime/planning.h"

/* What starting a copy costs beside its bytes; a transfer of the store. */
#define COPY_LATENCY_SECONDS 5e-6

/* The links of the machine that is described. */
static void take_links(struct mr_plan_problem *problem, const struct mr_machine *machine) {
  problem->host_apart = true;
  problem->nvme_staged = true;
  problem->host_bytes_per_second = machine->host_bytes_per_second;
  problem->host_memory_bytes_per_second = machine->host_memory_bytes_per_second;
  memcpy(problem->link, machine->link, sizeof problem->link);
  problem->nvme_mixed_bytes_per_second = machine->nvme_mixed_bytes_per_second;
}

void mr_planning_query(const struct mr_settings *settings, struct mr_device_caps *caps_out) {
  bool is_here = settings->machine == NULL;
  (is_here ? settings->device : mr_device_find(MR_BACKEND_CUDA))->query(caps_out);
}

void mr_planning_fill_problem(struct mr_plan *plan, const struct mr_store_rates *nvme) {
  struct mr_plan_problem *problem = &plan->problem;
  *problem = (struct mr_plan_problem){.extent_unit_bytes = MR_STORE_CHUNK_BYTES,
                                      .policy = plan->settings.policy};
  plan->nvme = *nvme;
  memcpy(problem->budget_bytes, plan->settings.budget_bytes, sizeof problem->budget_bytes);
  struct mr_device_caps caps;
  mr_planning_query(&plan->settings, &caps);
  problem->half_pages = caps.map_bytes > 0;
  problem->page_bytes = caps.map_bytes / 2;
  if (plan->settings.machine != NULL) {
    take_links(problem, plan->settings.machine);
    return;
  }
  for (uint32_t i = 0; i < 2; i++) {
    problem->link[i] =
        (struct mr_link_rate){plan->profile->copy_bytes_per_second[i], COPY_LATENCY_SECONDS};
  }
  problem->link[MR_LINK_NVME_READ] =
      (struct mr_link_rate){nvme->read_bytes_per_second, nvme->latency_seconds};
  problem->link[MR_LINK_NVME_WRITE] =
      (struct mr_link_rate){nvme->write_bytes_per_second, nvme->latency_seconds};
  problem->nvme_mixed_bytes_per_second = nvme->mixed_bytes_per_second;
  problem->huge_pages = caps.huge_pages;
  problem->host_apart = plan->settings.device->streams != NULL;
  problem->nvme_staged = problem->host_apart; /* through the rings of runtime/ring.c */
  problem->host_bytes_per_second = plan->profile->host_bytes_per_second;
  problem->host_memory_bytes_per_second = plan->profile->host_memory_bytes_per_second;
  problem->bind_seconds_per_move = plan->profile->bind_seconds_per_move;
  problem->pace_beside_copy = plan->profile->pace_beside_copy;
  problem->nvme_op_seconds_per_byte = nvme->op_seconds_per_byte;
}

mr_status mr_planning_make(struct mr_plan *plan, const struct mr_store_rates *nvme) {
  mr_planning_fill_problem(plan, nvme);
  mr_status status = mr_planning_search(plan);
  return status == MR_OK ? mr_plan_verify(plan) : status;
}

static mr_status make(struct mr_plan *plan) {
  /* A machine without NVMe in the plan still needs positive rates there. */
  struct mr_store_rates nvme = {
      .read_bytes_per_second = 1, .write_bytes_per_second = 1, .mixed_bytes_per_second = 1};
  mr_status status = MR_OK;
  if (plan->settings.machine == NULL) {
    status = mr_profile_get(&plan->settings, plan->graph, &plan->profile, &nvme);
  } else {
    mr_machine_check_rates(plan->settings.machine, plan->settings.profile_path, plan->graph);
  }
  if (status != MR_OK) {
    return status;
  }
  return plan->settings.plan_path != NULL ? mr_plan_load(plan, &nvme)
                                          : mr_planning_make(plan, &nvme);
}

mr_status mr_plan_create(const struct mr_graph *graph, const struct mr_options *options,
                         struct mr_plan **plan_out) {
  if (graph->op_count == 0) {
    mr_log(MR_LOG_ERROR, "the graph has no ops; there is nothing to plan");
    return MR_INVALID;
  }
  struct mr_plan *plan = mr_allocate(1, sizeof *plan);
  if (plan == NULL) {
    return MR_NO_MEMORY;
  }
  plan->graph = graph;
  mr_status status = mr_settings_init(&plan->settings, options, graph);
  if (status == MR_OK) {
    status = make(plan);
  }
  if (status != MR_OK) {
    mr_plan_destroy(plan);
    return status;
  }
  if (plan->layout->fits) {
    mr_budget_tell_cut(&plan->settings);
  }
  *plan_out = plan;
  return MR_OK;
}

void mr_planning_clear(struct mr_plan *plan) {
  mr_program_plan_destroy(plan->layout);
  mr_graph_destroy(plan->rewritten);
  free(plan->op_seconds);
  plan->layout = NULL;
  plan->rewritten = NULL;
  plan->op_seconds = NULL;
}

void mr_plan_destroy(struct mr_plan *plan) {
  if (plan == NULL) {
    return;
  }
  mr_planning_clear(plan);
  free(plan->profile);
  mr_settings_fini(&plan->settings);
  free(plan);
}

mr_status mr_plan_verify(const struct mr_plan *plan) {
  if (!plan->layout->fits) {
    return MR_OK;
  }
  return mr_program_plan_verify(&plan->problem, plan->layout);
}
