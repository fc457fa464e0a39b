/* SPDX-License-Identifier: Apache-2.0 */
/* Ops that a host apart may run, and the tensors whose fate hangs on where each runs. */
#include "plan/hosted.h"

#include <stdlib.h>

#include "base/base.h"
#include "plan/drive.h"
#include "plan/host.h"
#include "plan/page_sizes.h"

/* How the ops that the host may run, and the others, use a tensor. */
struct uses {
  uint32_t hosted;   /* how many of them */
  bool hosted_read;  /* each does */
  uint32_t writers;  /* how many of them write it */
  bool writers_read; /* each of these reads it too */
  bool hosted_last;
  mr_op_id device_last, device_write; /* the last; MR_NO_OP: none */
};

static struct uses uses_of(const struct mr_graph *graph, const struct mr_liveness *liveness,
                           mr_tensor_id t) {
  struct uses uses = {.hosted_read = true,
                      .writers_read = true,
                      .hosted_last = true,
                      .device_last = MR_NO_OP,
                      .device_write = MR_NO_OP};
  for (uint32_t i = liveness->first[t]; i < liveness->first[t + 1]; i++) {
    const struct mr_access *access = &liveness->accesses[i];
    if (mr_op_is_host_capable(graph, access->op)) {
      uses.hosted++;
      uses.hosted_read = uses.hosted_read && access->reads;
      uses.writers += access->writes;
      uses.writers_read = uses.writers_read && (access->reads || !access->writes);
    } else {
      uses.device_write = access->writes ? access->op : uses.device_write;
      uses.device_last = access->op;
      uses.hosted_last = uses.hosted == 0;
    }
  }
  return uses;
}

/* Small tensors are handed over without their link. */
static bool has_pages(const struct mr_plan_problem *problem, mr_tensor_id t) {
  uint64_t page_bytes = problem->page_bytes > 0 ? problem->page_bytes : MR_MOST_PAGE_BYTES;
  return mr_plan_pages_of(problem->program->tensors[t].bytes, page_bytes) > 0;
}

/* Gives each op that the host may run, or those of them that write the tensor, its slice of it.
 * Returns the first op at which one of them may run; MR_NO_OP: at any. */
static mr_op_id add_users(struct mr_hosted *hosted, const uint32_t *index,
                          const struct mr_graph *graph, const struct mr_liveness *liveness,
                          mr_tensor_id t, bool writers_alone) {
  mr_op_id earliest = MR_NO_OP;
  bool any = false;
  uint32_t *end = &hosted->first_user[t + 1];
  for (uint32_t i = liveness->first[t]; i < liveness->first[t + 1]; i++) {
    const struct mr_access *access = &liveness->accesses[i];
    mr_op_id op = access->op;
    if (!mr_op_is_host_capable(graph, op) || (writers_alone && !access->writes)) continue;
    const struct mr_hosted_op *user = &hosted->ops[index[op]];
    bool first = *end == hosted->first_user[t];
    any = any || user->not_before == MR_NO_OP;
    earliest = first || user->not_before < earliest ? user->not_before : earliest;
    hosted->users[(*end)++] = index[op];
  }
  return any ? MR_NO_OP : earliest;
}

/* What lasts, which such ops alone write, anew, and ops of the device read. */
static void add_anew(struct mr_hosted *hosted, const uint32_t *index, const struct mr_graph *graph,
                     const struct mr_liveness *liveness, mr_tensor_id t) {
  (void)add_users(hosted, index, graph, liveness, t, true);
  uint32_t first = hosted->first_user[t];
  uint32_t count = hosted->first_user[t + 1] - first;
  hosted->rests_after[t] = MR_NO_OP;
  for (uint32_t i = first; i < first + count; i++) {
    hosted->ops[hosted->users[i]].anew_bytes += (double)graph->tensors[t].bytes / count;
  }
}

static void add_tensor(struct mr_hosted *hosted, const uint32_t *index,
                       const struct mr_plan_problem *problem, const struct mr_liveness *liveness,
                       mr_tensor_id t) {
  const struct mr_graph *graph = problem->program;
  const struct mr_tensor *tensor = &graph->tensors[t];
  const struct uses uses = uses_of(graph, liveness, t);
  hosted->first_user[t + 1] = hosted->first_user[t];
  if (uses.hosted == 0 || tensor->role == MR_INPUT || tensor->carried) {
    return;
  }
  bool lasts = mr_tensor_goes_round(tensor);
  bool alone = uses.writers > 0 && uses.device_write == MR_NO_OP;
  bool made = !lasts && uses.hosted_read && uses.hosted_last && uses.device_write != MR_NO_OP;
  if (alone && (lasts || tensor->made_anew) && !uses.writers_read && uses.device_last != MR_NO_OP) {
    add_anew(hosted, index, graph, liveness, t);
  } else if (alone && lasts && uses.writers_read) {
    (void)add_users(hosted, index, graph, liveness, t, true);
    mr_op_id op = hosted->ops[hosted->users[hosted->first_user[t]]].op;
    hosted->rests_after[t] = uses.device_last == MR_NO_OP ? op : MR_NO_OP;
    hosted->rests_before[t] = op + graph->op_count;
  } else if (made && has_pages(problem, t)) {
    mr_op_id till = add_users(hosted, index, graph, liveness, t, false);
    bool rests = till != MR_NO_OP && till > uses.device_last;
    hosted->made[t] = true;
    hosted->made_by[t] = uses.device_write;
    hosted->rests_after[t] = rests ? uses.device_last : MR_NO_OP;
    hosted->rests_before[t] = till + 1;
    for (uint32_t i = hosted->first_user[t]; i < hosted->first_user[t + 1] && !rests; i++) {
      hosted->ops[hosted->users[i]].made_bytes += (double)tensor->bytes / uses.hosted;
    }
  }
}

/* The last op of the device that makes a step's value of what the op reads: before it in its step
 * or, of what was carried into this one, behind it in the step before. MR_NO_OP: none. */
static mr_op_id last_maker(const struct mr_graph *graph, const struct mr_liveness *liveness,
                           mr_op_id op, bool a_step_ago) {
  mr_op_id last = MR_NO_OP;
  for (uint32_t i = 0; i < graph->ops[op].input_count; i++) {
    const struct mr_tensor *tensor = &graph->tensors[graph->ops[op].inputs[i]];
    if (a_step_ago ? !tensor->carried : mr_tensor_goes_round(tensor)) continue;
    mr_tensor_id t = graph->ops[op].inputs[i];
    for (uint32_t j = liveness->first[t]; j < liveness->first[t + 1]; j++) {
      const struct mr_access *access = &liveness->accesses[j];
      bool before = a_step_ago ? access->op > op : access->op < op;
      bool makes = access->writes && before && !mr_op_is_host_capable(graph, access->op);
      last = makes && (last == MR_NO_OP || access->op > last) ? access->op : last;
    }
  }
  return last;
}

/* The device op that is the first in a step to read what lasts of the op's outputs. */
static mr_op_id first_reader(const struct mr_graph *graph, const struct mr_liveness *liveness,
                             mr_op_id op) {
  mr_op_id first = MR_NO_OP;
  for (uint32_t i = 0; i < graph->ops[op].output_count; i++) {
    mr_tensor_id t = graph->ops[op].outputs[i];
    if (!mr_tensor_goes_round(&graph->tensors[t]) && !graph->tensors[t].made_anew) continue;
    for (uint32_t j = liveness->first[t]; j < liveness->first[t + 1]; j++) {
      const struct mr_access *access = &liveness->accesses[j];
      bool reads = access->reads && !mr_op_is_host_capable(graph, access->op);
      first = reads && (first == MR_NO_OP || access->op < first) ? access->op : first;
    }
  }
  return first;
}

/* See plan/hosted.h. */
static void find_barrier(struct mr_hosted *hosted, const struct mr_graph *graph,
                         const struct mr_liveness *liveness) {
  mr_op_id last_reader = 0;
  mr_op_id first_maker = MR_NO_OP;
  bool known = true;
  for (uint32_t i = 0; i < hosted->count; i++) {
    struct mr_hosted_op *op = &hosted->ops[i];
    op->reader = first_reader(graph, liveness, op->op);
    op->maker =
        op->not_before != MR_NO_OP ? op->not_before : last_maker(graph, liveness, op->op, true);
    op->awaited = op->reader != MR_NO_OP;
    if (!op->awaited) continue;
    known = known && op->maker != MR_NO_OP;
    last_reader = op->reader > last_reader ? op->reader : last_reader;
    first_maker = first_maker == MR_NO_OP || op->maker < first_maker ? op->maker : first_maker;
  }
  if (known && first_maker != MR_NO_OP && last_reader < first_maker) {
    hosted->quiet_from = last_reader;
    hosted->barrier = first_maker;
  }
}

static struct mr_hosted_op hosted_op(const struct mr_plan_problem *problem, mr_op_id id) {
  const struct mr_graph *graph = problem->program;
  uint64_t page_bytes = problem->page_bytes > 0 ? problem->page_bytes : MR_LEAST_PAGE_BYTES;
  uint64_t handover_bytes = mr_host_handover_bytes(graph, id, page_bytes);
  return (struct mr_hosted_op){
      .op = id,
      .device_seconds = problem->op_seconds[id],
      .host_seconds = mr_host_op_seconds(problem, id),
      .can_leave = mr_host_can_take(graph, id, page_bytes),
      .handover_seconds = mr_plan_move_seconds(problem, MR_LINK_DEVICE_TO_HOST, handover_bytes),
  };
}

static mr_status fill(struct mr_hosted *hosted, const struct mr_plan_problem *problem,
                      uint32_t *index) {
  const struct mr_graph *graph = problem->program;
  struct mr_liveness liveness = {0};
  for (mr_op_id k = 0; k < graph->op_count; k++) {
    if (mr_op_is_host_capable(graph, k)) {
      index[k] = hosted->count;
      hosted->ops[hosted->count++] = hosted_op(problem, k);
    }
  }
  mr_status status = mr_liveness_init(&liveness, graph);
  for (uint32_t i = 0; i < hosted->count && status == MR_OK; i++) {
    hosted->ops[i].not_before = last_maker(graph, &liveness, hosted->ops[i].op, false);
  }
  if (status == MR_OK) {
    find_barrier(hosted, graph, &liveness);
    hosted->users = mr_allocate(liveness.first[graph->tensor_count], sizeof *hosted->users);
    status = hosted->users == NULL ? MR_NO_MEMORY : MR_OK;
  }
  for (mr_tensor_id t = 0; t < graph->tensor_count && status == MR_OK; t++) {
    add_tensor(hosted, index, problem, &liveness, t);
  }
  mr_liveness_fini(&liveness);
  return status;
}

mr_status mr_hosted_find(struct mr_hosted *hosted, const struct mr_plan_problem *problem) {
  const struct mr_graph *graph = problem->program;
  *hosted = (struct mr_hosted){
      .first_user = mr_allocate(graph->tensor_count + 1ull, sizeof *hosted->first_user),
      .made = mr_allocate(graph->tensor_count, sizeof *hosted->made),
      .made_by = mr_allocate(graph->tensor_count, sizeof *hosted->made_by),
      .rests_after = mr_allocate(graph->tensor_count, sizeof *hosted->rests_after),
      .rests_before = mr_allocate(graph->tensor_count, sizeof *hosted->rests_before)};
  if (hosted->first_user == NULL || hosted->made == NULL || hosted->made_by == NULL ||
      hosted->rests_after == NULL || hosted->rests_before == NULL) {
    return MR_NO_MEMORY;
  }
  if (!problem->host_apart || !mr_host_may_run(problem)) {
    return MR_OK;
  }
  hosted->ops = mr_allocate(graph->op_count, sizeof *hosted->ops);
  uint32_t *index = mr_allocate(graph->op_count, sizeof *index);
  mr_status status =
      hosted->ops == NULL || index == NULL ? MR_NO_MEMORY : fill(hosted, problem, index);
  free(index);
  return status;
}

void mr_hosted_fini(struct mr_hosted *hosted) {
  free(hosted->ops);
  free(hosted->users);
  free(hosted->first_user);
  free(hosted->made);
  free(hosted->made_by);
  free(hosted->rests_after);
  free(hosted->rests_before);
  *hosted = (struct mr_hosted){0};
}

bool mr_hosted_is_quiet(const struct mr_hosted *hosted, mr_op_id op) {
  return hosted->quiet_from < hosted->barrier && op >= hosted->quiet_from && op <= hosted->barrier;
}
