/* SPDX-License-Identifier: Apache-2.0 */
/* What a step has to place and to move: spans by version, windows, resources, what is short. */
#include "plan/dual_model.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "plan/host.h"

double mr_toll_on(const struct mr_toll *toll, const struct mr_toll *amounts) {
  return toll->in * amounts->in + toll->out * amounts->out + toll->ops * amounts->ops +
         toll->host_ops * amounts->host_ops + toll->host_in * amounts->host_in +
         toll->host_out * amounts->host_out;
}

void mr_toll_add(struct mr_toll *sum, double times, const struct mr_toll *toll) {
  sum->in += times * toll->in;
  sum->out += times * toll->out;
  sum->ops += times * toll->ops;
  sum->host_ops += times * toll->host_ops;
  sum->host_in += times * toll->host_in;
  sum->host_out += times * toll->host_out;
}

void mr_dual_fini(struct mr_dual *t) {
  mr_spans_fini(&t->spans);
  mr_hosted_fini(&t->hosted);
  free(t->window_of);
  free(t->stays);
  free(t->versions);
  free(t->short_bytes);
  free(t->sites);
  free(t->price);
  free(t->before);
  free(t->back);
  free(t->ahead);
  free(t->again);
  free(t->freed);
  free(t->excess);
}

/* How many versions and stays each span of a tensor may be in: one for each hosted op with a slice
 * of it. */
static uint32_t slices_of(const struct mr_dual *t, mr_tensor_id tensor) {
  uint32_t users = t->hosted.first_user[tensor + 1] - t->hosted.first_user[tensor];
  return users > 0 ? users : 1;
}

static mr_status allocate(struct mr_dual *t) {
  uint32_t n = t->op_count;
  uint64_t stays = 0;
  for (uint32_t i = 0; i < t->spans.count; i++) {
    stays += slices_of(t, t->spans.items[i].tensor);
  }
  t->window_of = mr_allocate(n, sizeof *t->window_of);
  t->stays = mr_allocate(stays, sizeof *t->stays);
  t->versions = mr_allocate(stays, sizeof *t->versions);
  t->short_bytes = mr_allocate(n, sizeof *t->short_bytes);
  t->sites = mr_allocate(t->hosted.count, sizeof *t->sites);
  t->price = mr_allocate(n, sizeof *t->price);
  t->before = mr_allocate(2ull * n + 1, sizeof *t->before);
  t->freed = mr_allocate(2ull * n + 1, sizeof *t->freed);
  t->excess = mr_allocate(n, sizeof *t->excess);
  bool failed = t->window_of == NULL || t->stays == NULL || t->versions == NULL ||
                t->short_bytes == NULL || t->sites == NULL || t->price == NULL ||
                t->before == NULL || t->freed == NULL || t->excess == NULL;
  return failed ? MR_NO_MEMORY : MR_OK;
}

/* Hosted ops may run in any window but quiet ones. So those are taken together: they are as long as
 * what the step has to do in them all. */
static void begin_windows(struct mr_dual *t, const struct mr_dual_cuts *cuts) {
  MR_ASSERT(cuts->count > 0 && cuts->count <= MR_DUAL_WINDOWS && cuts->ops[0] == 0);
  t->window_count = cuts->count;
  uint32_t open = MR_DUAL_WINDOWS;
  for (uint32_t i = 0; i < cuts->count; i++) {
    t->window_start[i] = cuts->ops[i];
    t->quiet[i] = mr_hosted_is_quiet(&t->hosted, cuts->ops[i]);
    open = !t->quiet[i] && i < open ? i : open;
    t->same[i] = t->hosted.count > 0 && !t->quiet[i] ? open : i;
  }
}

static void place_windows(struct mr_dual *t, const struct mr_plan_problem *problem) {
  uint32_t n = t->op_count;
  uint32_t w = 0;
  for (uint32_t i = 0; i <= t->window_count; i++) {
    t->window_start[t->window_count + i] = n + (i < t->window_count ? t->window_start[i] : n);
  }
  memset(t->ops_seconds, 0, sizeof t->ops_seconds);
  for (uint32_t k = 0; k < n; k++) {
    w += k == t->window_start[w + 1];
    t->window_of[k] = w;
    t->ops_seconds[w] += mr_host_least_seconds(problem, k);
  }
}

/* What hosted ops alone use spans the step; what is made for one is wanted till it may run. */
static mr_status add_resting(struct mr_dual *t, const struct mr_graph *graph) {
  const struct mr_hosted *hosted = &t->hosted;
  mr_status status = MR_OK;
  t->resting_from = t->spans.count;
  for (mr_tensor_id i = 0; i < graph->tensor_count && status == MR_OK; i++) {
    bool rests = hosted->first_user[i] < hosted->first_user[i + 1];
    if (!rests || hosted->rests_after[i] == MR_NO_OP) continue;
    mr_op_id write = hosted->made[i] ? hosted->made_by[i] : hosted->rests_after[i];
    status = mr_spans_add(&t->spans, &(struct mr_span){.tensor = i,
                                                       .bytes = (double)graph->tensors[i].bytes,
                                                       .last_write = write,
                                                       .after_op = hosted->rests_after[i],
                                                       .before_op = hosted->rests_before[i],
                                                       .written = true,
                                                       .maker = MR_NO_OP});
  }
  return status;
}

/* Of spans of one tensor: whether it is the same write that both come after. */
static bool same_version(const struct mr_dual *t, uint32_t a, uint32_t b) {
  int64_t apart = t->spans.items[a].last_write - t->spans.items[b].last_write;
  return apart == 0 || apart == t->op_count || apart == -(int64_t)t->op_count;
}

/* Adds the span to the last version, which it belongs to. Before the first write of a step it comes
 * after the last one of the step before. */
static void add_stay(struct mr_dual *t, uint32_t index) {
  const struct mr_span *span = &t->spans.items[index];
  struct mr_version *version = &t->versions[t->version_count - 1];
  uint32_t later = span->last_write < 0 ? t->op_count : 0;
  uint32_t begin = span->after_op + 1 + later;
  uint32_t end = span->before_op + later;
  if (begin >= end) {
    return; /* it cannot leave */
  }
  uint32_t turn = begin >= t->op_count && end > 2 * t->op_count ? t->op_count : 0;
  t->stays[version->end++] =
      (struct mr_stay){.span = index, .begin = begin - turn, .end = end - turn, .remake = -1};
}

/* Of one slice of the tensor. */
static void begin_version(struct mr_dual *t, uint32_t index) {
  const struct mr_span *span = &t->spans.items[index];
  uint32_t slices = slices_of(t, span->tensor);
  uint32_t first = t->version_count > 0 ? t->versions[t->version_count - 1].end : 0;
  int64_t write = span->last_write < 0 ? span->last_write + t->op_count : span->last_write;
  t->versions[t->version_count++] = (struct mr_version){.first = first,
                                                        .end = first,
                                                        .bytes = span->bytes / slices,
                                                        .written = span->written,
                                                        .write_op = (uint32_t)write};
}

/* What a hosted op writes has one version, since no device op writes it; what it writes anew has no
 * stay that the op runs in. What is made for one goes out once, which its resting span pays for, or
 * its op on the host. */
static void mark_hosted(struct mr_dual *t, struct mr_version *version, uint32_t slice) {
  const struct mr_hosted *hosted = &t->hosted;
  uint32_t first = t->stays[version->first].span;
  mr_tensor_id tensor = t->spans.items[first].tensor;
  uint32_t user = hosted->first_user[tensor] + slice;
  bool has_user = user < hosted->first_user[tensor + 1];
  bool made = hosted->made[tensor];
  version->rests = first >= t->resting_from;
  version->made = version->rests && made;
  version->written = (has_user && !made) || version->rests || (version->written && !made);
  if (!has_user || (made && !version->rests)) {
    return;
  }
  version->hosted = 1 + hosted->users[user];
  const struct mr_hosted_op *writer = &hosted->ops[hosted->users[user]];
  mr_op_id op = writer->op;
  version->stale = version->rests ? version->first : version->end;
  for (uint32_t i = version->first; i < version->end && !version->rests; i++) {
    const struct mr_span *span = &t->spans.items[t->stays[i].span];
    bool within = span->after_op < op && op < span->before_op;
    version->stale = within || op + t->op_count < span->before_op ? i : version->stale;
  }
  MR_ASSERT(version->stale < version->end || writer->anew_bytes > 0);
}

/* The versions of a slice of a tensor, whose spans are given. */
static void add_versions(struct mr_dual *t, uint32_t begin, uint32_t end, uint32_t slice) {
  uint32_t from = t->version_count;
  uint32_t split = begin + 1;
  while (split < end && same_version(t, split, begin)) {
    split++;
  }
  for (uint32_t i = 0; i < end - begin; i++) {
    uint32_t at = split + i < end ? split + i : split + i - (end - begin);
    uint32_t last = at == begin ? end - 1 : at - 1;
    if (i == 0 || !same_version(t, at, last)) {
      begin_version(t, at);
    }
    add_stay(t, at);
  }
  for (uint32_t v = from; v < t->version_count; v++) {
    if (t->versions[v].first < t->versions[v].end) {
      mark_hosted(t, &t->versions[v], slice);
    }
  }
}

static void find_versions(struct mr_dual *t) {
  uint32_t begin = 0;
  while (begin < t->spans.count) {
    mr_tensor_id tensor = t->spans.items[begin].tensor;
    uint32_t end = begin + 1;
    while (end < t->spans.count && t->spans.items[end].tensor == tensor) {
      end++;
    }
    for (uint32_t slice = 0; slice < slices_of(t, tensor); slice++) {
      add_versions(t, begin, end, slice);
    }
    begin = end;
  }
}

/* One run of an op makes all its outputs anew, each of which ends one span: so each byte of them
 * has its part of the op's time. `bytes` is of each op, 0. */
static void find_remakes(struct mr_dual *t, const struct mr_plan_problem *problem, double *bytes) {
  for (uint32_t i = 0; i < t->spans.count; i++) {
    const struct mr_span *span = &t->spans.items[i];
    bool first = i == 0 || t->spans.items[i - 1].tensor != span->tensor ||
                 t->spans.items[i - 1].maker != span->maker;
    if (span->maker != MR_NO_OP && first) {
      bytes[span->maker] += span->bytes;
    }
  }
  uint32_t count = t->version_count > 0 ? t->versions[t->version_count - 1].end : 0;
  for (uint32_t i = 0; i < count; i++) {
    mr_op_id maker = t->spans.items[t->stays[i].span].maker;
    if (maker != MR_NO_OP) {
      t->stays[i].remake = mr_host_least_seconds(problem, maker) / bytes[maker];
    }
  }
}

/* What all spans take beyond the budget. */
static void measure_short(struct mr_dual *t, double device_bytes, const double *held_bytes) {
  double spanned = 0;
  for (uint32_t i = 0; i < t->spans.count; i++) {
    mr_span_spread(&t->spans.items[i], t->op_count, t->spans.items[i].bytes, t->short_bytes);
  }
  for (uint32_t k = 0; k < t->op_count; k++) {
    spanned += t->short_bytes[k];
    t->short_bytes[k] = spanned + held_bytes[k] - device_bytes;
  }
}

/* The resources: ops with what they lose to moves, and the faces of the links below. */
static void list_tolls(struct mr_dual *t, const struct mr_rates *rates) {
  bool drive_alone = rates->to_device == 0;
  double loss = drive_alone ? rates->loss : 0;
  t->tolls[t->toll_count++] = (struct mr_toll){.in = loss, .out = loss, .ops = 1};
  for (uint32_t i = 0; i < rates->face_count; i++) {
    const struct mr_drive_face *face = &rates->faces[i];
    /* In a second the host's links take so many seconds of the drive off it. */
    double beside = 1 + face->read * rates->to_device + face->write * rates->to_host;
    t->tolls[t->toll_count++] =
        (struct mr_toll){.in = face->read / beside, .out = face->write / beside};
  }
  if (rates->all_in > 0) {
    t->tolls[t->toll_count++] = (struct mr_toll){.in = 1 / rates->all_in};
    t->tolls[t->toll_count++] = (struct mr_toll){.out = 1 / rates->all_out};
  }
  t->movable = t->toll_count > 1;
  if (t->may_host) {
    t->tolls[t->toll_count++] = (struct mr_toll){.host_ops = 1};
    t->tolls[t->toll_count++] = (struct mr_toll){.host_in = 1 / rates->to_device};
  }
  if (t->may_host && rates->host_memory > 0) {
    double byte = 1 / rates->host_memory;
    t->tolls[t->toll_count++] =
        (struct mr_toll){.in = byte, .out = byte, .host_ops = byte * rates->host_ops};
  }
  if (t->may_host && rates->read > 0) {
    t->tolls[t->toll_count++] = (struct mr_toll){.host_out = 1 / rates->to_host};
  }
}

mr_status mr_dual_init(struct mr_dual *t, const struct mr_plan_problem *problem,
                       const struct mr_liveness *liveness,
                       const uint64_t budget_bytes[MR_TIER_COUNT]) {
  const struct mr_rates rates = mr_rates_under(problem, budget_bytes);
  *t = (struct mr_dual){.op_count = problem->program->op_count};
  double *scratch = mr_allocate(t->op_count, sizeof *scratch);
  mr_status status = scratch == NULL ? MR_NO_MEMORY : mr_hosted_find(&t->hosted, problem);
  if (status == MR_OK) {
    t->may_host = t->hosted.count > 0 && budget_bytes[MR_TIER_HOST] > 0;
    status = mr_spans_find(&t->spans, problem, liveness);
  }
  if (status == MR_OK) {
    status = add_resting(t, problem->program);
  }
  if (status == MR_OK) {
    status = allocate(t);
  }
  if (status == MR_OK) {
    find_versions(t);
    find_remakes(t, problem, scratch);
    mr_spans_measure_held(problem->program, liveness, scratch);
    measure_short(t, (double)budget_bytes[MR_TIER_DEVICE], scratch);
    list_tolls(t, &rates);
  }
  free(scratch);
  return status;
}

/* Of an op counted over two steps. */
static uint32_t window_at(const struct mr_dual *t, uint32_t op) {
  return op < t->op_count ? t->window_of[op] : t->window_of[op - t->op_count] + t->window_count;
}

mr_status mr_dual_cut(struct mr_dual *t, const struct mr_plan_problem *problem,
                      const struct mr_dual_cuts *cuts) {
  uint32_t cells = 0;
  begin_windows(t, cuts);
  place_windows(t, problem);
  for (uint32_t v = 0; v < t->version_count; v++) {
    struct mr_version *version = &t->versions[v];
    version->write_window = window_at(t, version->write_op);
    for (uint32_t i = version->first; i < version->end; i++) {
      struct mr_stay *stay = &t->stays[i];
      stay->from = window_at(t, stay->begin);
      stay->to = window_at(t, stay->end - 1);
      stay->ahead = cells;
      cells += stay->to - stay->from + 1;
    }
  }
  free(t->back);
  free(t->ahead);
  free(t->again);
  t->back = mr_allocate(cells, sizeof *t->back);
  t->ahead = mr_allocate(cells, sizeof *t->ahead);
  t->again = mr_allocate(cells, sizeof *t->again);
  bool failed = t->back == NULL || t->ahead == NULL || t->again == NULL;
  return failed ? MR_NO_MEMORY : MR_OK;
}
