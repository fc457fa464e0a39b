/* SPDX-License-Identifier: Apache-2.0 */
/* Spans of what ops that a host apart may run use, wherever and whenever each of them runs. */
#include "plan/hosted.h"
#include "plan/spans.h"

/* When a tensor's users run: after the end of `maker`, which is of the step itself, and before the
 * start of `reader`, which is counted on from there. */
struct runs {
  mr_op_id maker;
  uint32_t reader;
};

/* Of the user that waits for its maker for longest, or for shortest; false where that is not known
 * of all. */
static bool find_runs(const struct mr_hosted *hosted, uint32_t op_count, mr_tensor_id t,
                      bool longest, struct runs *runs_out) {
  uint32_t first = hosted->first_user[t];
  for (uint32_t i = first; i < hosted->first_user[t + 1]; i++) {
    const struct mr_hosted_op *user = &hosted->ops[hosted->users[i]];
    if (user->maker == MR_NO_OP || user->reader == MR_NO_OP) {
      return false;
    }
    bool better = longest ? user->maker > runs_out->maker : user->maker < runs_out->maker;
    if (i == first || better) {
      uint32_t turn = user->reader > user->maker ? 0 : op_count;
      *runs_out = (struct runs){user->maker, user->reader + turn};
    }
  }
  return hosted->first_user[t + 1] > first;
}

/* What only such ops use is wanted all the time: when it is used it was so last a step before, and
 * is again a step later. */
static mr_status add_own(struct mr_spans *spans, const struct mr_graph *graph,
                         const struct runs *runs, mr_tensor_id t) {
  uint32_t n = graph->op_count;
  struct mr_span span = {.tensor = t,
                         .bytes = (double)graph->tensors[t].bytes,
                         .last_write = (int64_t)runs->maker - n,
                         .after_op = runs->maker,
                         .before_op = runs->reader,
                         .touched_op = runs->reader + n,
                         .written = true,
                         .maker = MR_NO_OP};
  mr_status status = runs->reader > runs->maker + 1 ? mr_spans_add(spans, &span) : MR_OK;
  uint32_t turn = runs->reader > n ? n : 0;
  span.after_op = runs->reader - 1 - turn;
  span.before_op = runs->maker + 1 + n - turn;
  span.touched_op = runs->reader + n - turn;
  span.last_write = (int64_t)runs->maker - turn;
  return status == MR_OK ? mr_spans_add(spans, &span) : status;
}

/* What device ops make for them is wanted until they can run. */
static mr_status add_made(struct mr_spans *spans, const struct mr_hosted *hosted,
                          const struct mr_graph *graph, const struct runs *runs, mr_tensor_id t) {
  struct mr_span span = {.tensor = t,
                         .bytes = (double)graph->tensors[t].bytes,
                         .last_write = hosted->made_by[t],
                         .after_op = hosted->rests_after[t],
                         .before_op = runs->maker + 1,
                         .touched_op = runs->reader,
                         .written = true,
                         .maker = MR_NO_OP};
  bool wanted = hosted->rests_after[t] != MR_NO_OP && runs->maker > hosted->rests_after[t];
  return wanted ? mr_spans_add(spans, &span) : MR_OK;
}

/* What device ops read and such ops alone write has been written since their makers ended. */
static void mark_written(struct mr_spans *spans, const struct mr_hosted *hosted,
                         uint32_t op_count) {
  for (uint32_t i = 0; i < spans->count; i++) {
    struct mr_span *span = &spans->items[i];
    struct runs runs = {0};
    if (!span->written && !hosted->made[span->tensor] &&
        find_runs(hosted, op_count, span->tensor, false, &runs)) {
      span->written = true;
      span->last_write = (int64_t)runs.maker - op_count;
    }
  }
}

static mr_status add_all(struct mr_spans *spans, const struct mr_graph *graph,
                         const struct mr_hosted *hosted) {
  mr_status status = MR_OK;
  mark_written(spans, hosted, graph->op_count);
  for (mr_tensor_id t = 0; t < graph->tensor_count && status == MR_OK; t++) {
    struct runs runs = {0};
    bool own = !hosted->made[t] && hosted->rests_after[t] != MR_NO_OP;
    if (!find_runs(hosted, graph->op_count, t, hosted->made[t], &runs)) continue;
    if (own) {
      status = add_own(spans, graph, &runs, t);
    } else if (hosted->made[t]) {
      status = add_made(spans, hosted, graph, &runs, t);
    }
  }
  return status;
}

mr_status mr_spans_add_hosted(struct mr_spans *spans, const struct mr_plan_problem *problem) {
  struct mr_hosted hosted;
  mr_status status = mr_hosted_find(&hosted, problem);
  if (status == MR_OK && hosted.count > 0) {
    status = add_all(spans, problem->program, &hosted);
  }
  mr_hosted_fini(&hosted);
  return status;
}
