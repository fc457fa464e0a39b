/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of planning-problem schedules, written down a second time. */
#include "unit/problem_replay.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Seconds, and parts of a budget: files carry nine digits. */
#define TOLERANCE 1e-7

enum { OUT, IN, WRITE, READ, LINKS };
static const char *const kinds[LINKS] = {"out", "in", "write", "read"};

struct tensor {
  double size;
  int p, g;
  double recompute;
  int start, end, clean;
  bool again;
  bool moves[LINKS];
  double from[LINKS], to[LINKS];
};

/* Bytes that appear (kind 1) or go (kind 0) at a moment. */
struct event {
  double time;
  int kind;
  double bytes;
};

struct replay {
  int segment_count, tensor_count;
  double device, host;
  double speed[LINKS];
  double *compute, *workset, *extra, *from, *to;
  bool *ran;
  struct tensor *tensors;
  struct event *events[2]; /* of the device and of the host */
  int event_count[2];
  bool bound_given;
  double finish;
  struct problem_verdict *verdict;
};

/* Takes down the first broken rule. */
#define BROKEN(r, ...)                                                                             \
  do {                                                                                             \
    if ((r)->verdict->keeps_rules) {                                                               \
      (r)->verdict->keeps_rules = false;                                                           \
      snprintf((r)->verdict->broken_rule, sizeof(r)->verdict->broken_rule, __VA_ARGS__);           \
    }                                                                                              \
  } while (0)

static void *zeros(int count, size_t bytes) {
  void *memory = calloc((size_t)count + 1, bytes);
  if (memory == NULL) {
    abort();
  }
  return memory;
}

static double next_number(const char **at) {
  char *end = NULL;
  double value = strtod(*at, &end);
  if (end == *at) {
    fprintf(stderr, "replay: the problem is too short\n");
    abort();
  }
  *at = end;
  return value;
}

static void read_problem(struct replay *r, const char *text) {
  r->segment_count = (int)next_number(&text);
  r->tensor_count = (int)next_number(&text);
  r->device = next_number(&text);
  r->host = next_number(&text);
  static const int order[LINKS] = {OUT, IN, WRITE, READ};
  for (int i = 0; i < LINKS; i++) {
    r->speed[order[i]] = next_number(&text);
  }
  r->compute = zeros(r->segment_count, sizeof(double));
  r->workset = zeros(r->segment_count, sizeof(double));
  r->extra = zeros(r->segment_count, sizeof(double));
  r->from = zeros(r->segment_count, sizeof(double));
  r->to = zeros(r->segment_count, sizeof(double));
  r->ran = zeros(r->segment_count, sizeof(bool));
  r->tensors = zeros(r->tensor_count, sizeof(struct tensor));
  for (int k = 0; k < r->segment_count; k++) {
    r->compute[k] = next_number(&text);
  }
  for (int k = 0; k < r->segment_count; k++) {
    r->workset[k] = next_number(&text);
  }
  for (int v = 0; v < r->tensor_count; v++) {
    struct tensor *t = &r->tensors[v];
    t->size = next_number(&text);
    t->p = (int)next_number(&text);
    t->g = (int)next_number(&text);
    t->recompute = next_number(&text);
    t->start = (int)next_number(&text);
    t->end = (int)next_number(&text);
    t->clean = (int)next_number(&text);
  }
}

static void read_recompute(struct replay *r, int v) {
  struct tensor *t = &r->tensors[v];
  if (t->again) {
    BROKEN(r, "tensor %d is recomputed twice", v);
  }
  if (t->recompute >= 1e8) {
    BROKEN(r, "tensor %d cannot be recomputed", v);
  }
  t->again = true;
  r->extra[t->g] += t->recompute;
}

static void read_entry(struct replay *r, const char *line) {
  char word[16];
  int index = -1;
  double from = 0;
  double to = 0;
  int count = sscanf(line, "%15s %d %lf %lf", word, &index, &from, &to);
  if (count >= 1 && strcmp(word, "bound") == 0) {
    r->bound_given = sscanf(line, "bound %lf", &r->verdict->bound_seconds) == 1;
    return;
  }
  if (count == 2 && strcmp(word, "recompute") == 0 && index >= 0 && index < r->tensor_count) {
    read_recompute(r, index);
    return;
  }
  if (count == 4 && strcmp(word, "segment") == 0 && index >= 0 && index < r->segment_count &&
      !r->ran[index]) {
    r->ran[index] = true;
    r->from[index] = from;
    r->to[index] = to;
    return;
  }
  for (int link = 0; link < LINKS; link++) {
    if (count == 4 && strcmp(word, kinds[link]) == 0 && index >= 0 && index < r->tensor_count &&
        !r->tensors[index].moves[link]) {
      r->tensors[index].moves[link] = true;
      r->tensors[index].from[link] = from;
      r->tensors[index].to[link] = to;
      return;
    }
  }
  BROKEN(r, "no entry: %.100s", line);
}

static void read_schedule(struct replay *r, const char *text) {
  while (*text != '\0' && r->verdict->keeps_rules) {
    char line[160];
    size_t length = strcspn(text, "\n");
    snprintf(line, sizeof line, "%.*s", (int)length, text);
    read_entry(r, line);
    text += length + (text[length] == '\n');
  }
}

static void check_segments(struct replay *r) {
  double now = 0;
  for (int k = 0; k < r->segment_count; k++) {
    if (!r->ran[k]) {
      BROKEN(r, "segment %d never runs", k);
    }
    if (r->from[k] < now - TOLERANCE) {
      BROKEN(r, "segment %d starts before the one before it ends", k);
    }
    if (r->to[k] - r->from[k] < r->compute[k] + r->extra[k] - TOLERANCE) {
      BROKEN(r, "segment %d is too short", k);
    }
    now = r->to[k];
  }
  r->finish = now;
}

struct move {
  double from, to;
  int v;
};

static int compare_moves(const void *left, const void *right) {
  const struct move *a = left;
  const struct move *b = right;
  if (a->from != b->from) {
    return a->from < b->from ? -1 : 1;
  }
  return (a->to > b->to) - (a->to < b->to);
}

static void check_links(struct replay *r) {
  struct move *moves = zeros(r->tensor_count, sizeof *moves);
  for (int link = 0; link < LINKS; link++) {
    int count = 0;
    for (int v = 0; v < r->tensor_count; v++) {
      const struct tensor *t = &r->tensors[v];
      if (t->moves[link]) {
        moves[count++] = (struct move){t->from[link], t->to[link], v};
      }
    }
    qsort(moves, (size_t)count, sizeof *moves, compare_moves);
    double last = 0;
    for (int i = 0; i < count; i++) {
      if (moves[i].from < last - TOLERANCE) {
        BROKEN(r, "%s of tensor %d overlaps another", kinds[link], moves[i].v);
      }
      double least = r->tensors[moves[i].v].size / r->speed[link];
      if (moves[i].to - moves[i].from < least - TOLERANCE) {
        BROKEN(r, "%s of tensor %d is faster than its link", kinds[link], moves[i].v);
      }
      last = moves[i].to;
      r->finish = fmax(r->finish, last);
    }
  }
  free(moves);
}

static void occupy(struct replay *r, int tier, double from, double to, double bytes) {
  if (to > from) {
    r->events[tier][r->event_count[tier]++] = (struct event){from + TOLERANCE / 4, 1, bytes};
    r->events[tier][r->event_count[tier]++] = (struct event){to - TOLERANCE / 4, 0, -bytes};
  }
}

/* A tensor that comes in: from the host, from NVMe, or from a copy that was always there. */
static void check_return(struct replay *r, int v, double born, double needed) {
  const struct tensor *t = &r->tensors[v];
  double ready = t->start ? 0 : born;
  if (!t->start && !t->clean && !t->moves[OUT]) {
    BROKEN(r, "tensor %d comes in and never went out", v);
  }
  if (t->to[IN] > needed + TOLERANCE) {
    BROKEN(r, "tensor %d arrives too late", v);
  }
  if (t->moves[OUT]) {
    if (t->from[OUT] < born - TOLERANCE) {
      BROKEN(r, "tensor %d leaves before it exists", v);
    }
    occupy(r, 0, born, t->to[OUT], t->size);
    ready = t->to[OUT];
    if (t->moves[WRITE]) {
      if (t->from[WRITE] < t->to[OUT] - TOLERANCE || t->from[READ] < t->to[WRITE] - TOLERANCE) {
        BROKEN(r, "tensor %d: out, write and read are not in order", v);
      }
      ready = t->to[READ];
    } else {
      occupy(r, 1, t->from[OUT], t->to[IN], t->size);
    }
  }
  if (t->from[IN] < ready - TOLERANCE) {
    BROKEN(r, "tensor %d comes in before it is there", v);
  }
  occupy(r, 0, t->from[IN], needed, t->size);
}

static void check_tensor(struct replay *r, int v) {
  const struct tensor *t = &r->tensors[v];
  double born = t->p < 0 ? 0 : r->to[t->p];
  double needed = t->g >= 0 && t->g < r->segment_count ? r->from[t->g] : r->finish;
  if (t->moves[WRITE] != t->moves[READ]) {
    BROKEN(r, "tensor %d: a write without a read, or a read without a write", v);
  }
  if (t->again) {
    if (t->moves[OUT] || t->moves[IN] || t->moves[WRITE] || t->start || t->end) {
      BROKEN(r, "tensor %d is recomputed and moved", v);
    }
  } else if (t->end) {
    if (!t->moves[OUT] || t->from[OUT] < born - TOLERANCE) {
      BROKEN(r, "gradient %d never leaves, or before it exists", v);
    }
    occupy(r, 0, born, t->to[OUT], t->size);
  } else if (t->moves[IN]) {
    check_return(r, v, born, needed);
  } else if (t->start || t->moves[OUT]) {
    BROKEN(r, "tensor %d is below and never comes in", v);
  } else {
    occupy(r, 0, born, needed, t->size);
  }
}

static int compare_events(const void *left, const void *right) {
  const struct event *a = left;
  const struct event *b = right;
  if (a->time != b->time) {
    return a->time < b->time ? -1 : 1;
  }
  if (a->kind != b->kind) {
    return a->kind - b->kind;
  }
  return (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

static void check_levels(struct replay *r) {
  static const char *const names[2] = {"device", "host"};
  double limits[2] = {r->device, r->host};
  for (int k = 0; k < r->segment_count; k++) {
    occupy(r, 0, r->from[k], r->to[k], r->workset[k]);
  }
  for (int tier = 0; tier < 2; tier++) {
    double level = 0;
    qsort(r->events[tier], (size_t)r->event_count[tier], sizeof(struct event), compare_events);
    for (int i = 0; i < r->event_count[tier]; i++) {
      level += r->events[tier][i].bytes;
      if (level > limits[tier] * (1 + TOLERANCE)) {
        BROKEN(r, "the %s holds %.0f bytes of %.0f at %.9f", names[tier], level, limits[tier],
               r->events[tier][i].time);
      }
    }
  }
}

void problem_replay(const char *problem_text, const char *schedule_text,
                    struct problem_verdict *verdict_out) {
  struct replay r = {.verdict = verdict_out};
  *verdict_out = (struct problem_verdict){.keeps_rules = true};
  read_problem(&r, problem_text);
  /* A tensor may lie on the device twice; a segment has a working set. */
  r.events[0] = zeros(4 * r.tensor_count + 2 * r.segment_count, sizeof(struct event));
  r.events[1] = zeros(2 * r.tensor_count, sizeof(struct event));
  read_schedule(&r, schedule_text);
  check_segments(&r);
  check_links(&r);
  for (int v = 0; v < r.tensor_count; v++) {
    check_tensor(&r, v);
  }
  check_levels(&r);
  if (!r.bound_given || verdict_out->bound_seconds > r.finish * (1 + TOLERANCE)) {
    BROKEN(&r, "the bound %.9f is missing, or above the time %.9f", verdict_out->bound_seconds,
           r.finish);
  }
  verdict_out->seconds = r.finish;
  free(r.compute);
  free(r.workset);
  free(r.extra);
  free(r.from);
  free(r.to);
  free(r.ran);
  free(r.tensors);
  free(r.events[0]);
  free(r.events[1]);
}
