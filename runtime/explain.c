/* SPDX-License-Identifier: Apache-2.0 */
/* Why a plan is as it is, as JSON: the sums of plan/explain.h and the answers of whatif.h. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>

#include "base/json.h"
#include "runtime/whatif.h"

#define SECONDS_OF_A_DAY 86400.0
#define MORE_BYTES       MR_GIB
#define FASTER           2.0

static const char *const tier_names[MR_TIER_COUNT] = {"device", "host", "nvme"};
static const char *const phase_names[MR_PHASE_COUNT] = {"forward", "backward", "update"};
static const char *const decision_names[] = {"keep", "host", "nvme", "again"};

/* Adds `value`, which is handed over, to an object or (key NULL) an array, unless something has
 * failed before. Memory that ran out is told here, once. */
static void put(json_t *parent, const char *key, json_t *value, mr_status *status) {
  if (*status != MR_OK) {
    json_decref(value);
    return;
  }
  int failed =
      key == NULL ? json_array_append_new(parent, value) : json_object_set_new(parent, key, value);
  if (failed != 0) {
    mr_log(MR_LOG_ERROR, "out of host memory: the JSON of the explanation");
    *status = MR_NO_MEMORY;
  }
}

static json_t *seconds_by_link(const double *seconds) {
  json_t *object = json_object();
  mr_status status = object == NULL ? MR_NO_MEMORY : MR_OK;
  for (uint32_t link = 0; link < MR_LINK_COUNT; link++) {
    put(object, mr_link_names[link], json_real(seconds[link]), &status);
  }
  return object;
}

/* ---- Tiers ---- */

static json_t *holding_json(const struct mr_holding *holding) {
  json_t *object = json_object();
  mr_status status = object == NULL ? MR_NO_MEMORY : MR_OK;
  for (uint32_t role = 0; role < MR_HELD_ROLES; role++) {
    put(object, mr_role_names[role], json_integer((json_int_t)holding->role_bytes[role]), &status);
  }
  put(object, "small", json_integer((json_int_t)holding->small_bytes), &status);
  put(object, "rounding", json_integer((json_int_t)holding->rounding_bytes), &status);
  put(object, "idle", json_integer((json_int_t)holding->idle_bytes), &status);
  return object;
}

static mr_status put_tiers(const struct mr_plan *plan, const struct mr_plan_summary *summary,
                           json_t *root) {
  struct mr_holding holdings[MR_TIER_COUNT] = {{0}};
  const struct mr_graph *program = plan->problem.program;
  mr_status status = MR_OK;
  if (summary->fits) {
    status = mr_explain_holdings(&plan->problem, plan->layout, holdings);
  }
  json_t *tiers = json_object();
  put(root, "tiers", tiers, &status);
  for (uint32_t t = 0; status == MR_OK && t < MR_TIER_COUNT; t++) {
    bool limited = summary->budget_bytes[t] != UINT64_MAX;
    json_t *tier =
        json_pack("{s:I, s:o}", "need_bytes", (json_int_t)summary->need_bytes[t], "budget_bytes",
                  limited ? json_integer((json_int_t)summary->budget_bytes[t]) : json_null());
    put(tiers, tier_names[t], tier, &status);
    if (summary->fits) {
      put(tier, "peak_op", mr_json_text(program->ops[holdings[t].op].name), &status);
      json_t *holds = holding_json(&holdings[t]);
      put(tier, "holds", holds, &status);
      if (t == MR_TIER_DEVICE && summary->outside_bytes > 0) {
        put(holds, "outside", json_integer((json_int_t)summary->outside_bytes), &status);
      }
    }
  }
  return status;
}

/* ---- Phases ---- */

static mr_status put_phases(const struct mr_plan *plan, json_t *root) {
  struct mr_phase_time phases[MR_PHASE_COUNT];
  mr_status status = mr_explain_phases(plan->layout, phases);
  json_t *list = json_array();
  put(root, "phases", list, &status);
  for (uint32_t p = 0; status == MR_OK && p < MR_PHASE_COUNT; p++) {
    const struct mr_phase_time *phase = &phases[p];
    if (phase->op_count == 0) continue;
    put(list, NULL,
        json_pack("{s:s, s:I, s:f, s:f, s:f, s:f, s:o, s:s}", "phase", phase_names[p], "ops",
                  (json_int_t)phase->op_count, "seconds", phase->seconds, "compute_seconds",
                  phase->compute_seconds, "host_seconds", phase->host_seconds, "waiting_seconds",
                  fmax(phase->seconds - phase->compute_seconds, 0), "links",
                  seconds_by_link(phase->link_seconds), "bound_by",
                  mr_bound_name(phase->compute_seconds, phase->host_seconds, phase->link_seconds)),
        &status);
  }
  return status;
}

/* ---- What else was possible ---- */

/* null: not asked, because it cannot be. */
static json_t *outcome_json(const struct mr_outcome *outcome) {
  if (!outcome->asked) {
    return json_null();
  }
  const uint64_t *bytes = outcome->decision_bytes;
  return json_pack("{s:b, s:o, s:{s:I, s:I, s:I}}", "fits", outcome->fits, "predicted_seconds",
                   outcome->fits ? json_real(outcome->seconds) : json_null(), "bytes",
                   decision_names[MR_DECISION_KEEP], (json_int_t)bytes[MR_DECISION_KEEP],
                   decision_names[MR_DECISION_HOST], (json_int_t)bytes[MR_DECISION_HOST],
                   decision_names[MR_DECISION_NVME], (json_int_t)bytes[MR_DECISION_NVME]);
}

static mr_status put_decisions(const struct mr_plan *plan, const struct mr_interview *interview,
                               json_t *root) {
  mr_status status = MR_OK;
  json_t *list = json_array();
  put(root, "decisions", list, &status);
  for (uint32_t i = 0; status == MR_OK && i < interview->decision_count; i++) {
    const struct mr_decision *decision = &interview->decisions[i];
    const struct mr_tensor *tensor = &plan->problem.program->tensors[decision->tensor];
    put(list, NULL,
        json_pack("{s:s, s:o, s:s, s:I, s:I, s:f, s:o, s:o}", "decision",
                  decision_names[decision->decision], "tensor", mr_json_text(tensor->name), "role",
                  mr_role_names[tensor->role], "tensors", (json_int_t)decision->tensor_count,
                  "bytes", (json_int_t)decision->bytes, "seconds", decision->seconds, "without",
                  outcome_json(&interview->without[i]), "again",
                  outcome_json(&interview->again[i])),
        &status);
  }
  return status;
}

/* ---- What more would gain ---- */

static json_t *gain_json(const struct mr_plan *plan, const struct mr_outcome *outcome) {
  const struct mr_program_plan *layout = plan->layout;
  if (!outcome->asked) {
    return json_null();
  }
  return json_pack("{s:b, s:o, s:o}", "fits", outcome->fits, "predicted_seconds",
                   outcome->fits ? json_real(outcome->seconds) : json_null(), "gain_seconds",
                   layout->fits ? json_real(layout->step_seconds - outcome->seconds) : json_null());
}

static mr_status put_gains(const struct mr_plan *plan, const struct mr_interview *interview,
                           json_t *root) {
  json_t *more = json_object();
  json_t *faster = json_object();
  mr_status status = MR_OK;
  put(root, "one_more_gib", more, &status);
  put(root, "twice_as_fast", faster, &status);
  for (uint32_t t = 0; t < MR_TIER_COUNT; t++) {
    put(more, tier_names[t], gain_json(plan, &interview->more[t]), &status);
  }
  for (uint32_t link = 0; link < MR_LINK_COUNT; link++) {
    put(faster, mr_link_names[link], gain_json(plan, &interview->faster[link]), &status);
  }
  bool known = interview->smallest_device_bytes != UINT64_MAX;
  uint64_t smallest = known ? mr_plan_smallest_bytes(plan, interview->smallest_device_bytes) : 0;
  put(root, "smallest_device_bytes", known ? json_integer((json_int_t)smallest) : json_null(),
      &status);
  return status;
}

/* What is told of a plan that fits alone. */
static mr_status put_fitting(const struct mr_plan *plan, const struct mr_interview *interview,
                             json_t *root) {
  const struct mr_program_plan *layout = plan->layout;
  mr_status status = MR_OK;
  put(root, "gap", json_real(fmax(layout->step_seconds / plan->bound_seconds - 1, 0)), &status);
  put(root, "host_ops", json_integer(layout->host_op_count), &status);
  if (plan->problem.host_apart) {
    double rate = plan->problem.host_bytes_per_second;
    double shared = plan->problem.host_memory_bytes_per_second;
    put(root, "host_bytes_per_second", rate > 0 ? json_real(rate) : json_null(), &status);
    put(root, "host_memory_bytes_per_second", shared > 0 ? json_real(shared) : json_null(),
        &status);
    put(root, "host_seconds", json_real(layout->host_seconds), &status);
  }
  status = status == MR_OK ? put_phases(plan, root) : status;
  status = status == MR_OK ? put_decisions(plan, interview, root) : status;
  double bytes = (double)layout->moved_bytes[MR_LINK_NVME_WRITE];
  put(root, "nvme_written_bytes_a_step", json_integer((json_int_t)bytes), &status);
  put(root, "nvme_written_bytes_a_day", json_real(bytes * SECONDS_OF_A_DAY / layout->step_seconds),
      &status);
  return status;
}

mr_status mr_plan_explain(const struct mr_plan *plan, char **json_out) {
  struct mr_plan_summary summary;
  struct mr_interview interview;
  mr_plan_summarize(plan, &summary);
  mr_status status = mr_whatif_ask(plan, MORE_BYTES, FASTER, &interview);
  if (status != MR_OK) {
    return status;
  }
  json_t *root = json_object();
  status = put_tiers(plan, &summary, root);
  if (status == MR_OK && summary.fits) {
    status = put_fitting(plan, &interview, root);
  }
  status = status == MR_OK ? put_gains(plan, &interview, root) : status;
  if (status != MR_OK) {
    json_decref(root);
    return status;
  }
  return mr_json_print(root, JSON_COMPACT | MR_JSON_DIGITS, "the explanation", json_out);
}
