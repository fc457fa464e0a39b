/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sections. A sweep over starts and ends in order of time: the set of live buffers is in no other
 * moment's set exactly where a start is followed by an end, so there a section is noted.
 */
#include <stdlib.h>

#include "base/base.h"
#include "plan/pack/search.h"

struct event {
  uint64_t time;
  uint32_t buffer;
  bool start;
};

/* Lives are half open, so ends come before starts. */
static int by_time(const void *left, const void *right) {
  const struct event *a = left;
  const struct event *b = right;
  if (a->time != b->time) {
    return a->time < b->time ? -1 : 1;
  }
  if (a->start != b->start) {
    return a->start ? 1 : -1;
  }
  return a->buffer < b->buffer ? -1 : a->buffer > b->buffer;
}

static void sweep(struct mr_pack_sections *sections, const struct mr_pack_problem *problem,
                  const struct event *events) {
  uint64_t load = 0;
  bool started = false; /* since the last section */
  for (uint64_t e = 0; e < 2ull * problem->buffer_count; e++) {
    uint32_t i = events[e].buffer;
    if (events[e].start) {
      if (problem->buffers[i].size_bytes > MR_PACK_MOST_BYTES - load) {
        sections->overfull = i;
        return;
      }
      sections->first[i] = sections->count;
      load += problem->buffers[i].size_bytes;
      started = true;
      continue;
    }
    if (started) {
      sections->load_bytes[sections->count++] = load;
      started = false;
    }
    sections->end[i] = sections->count;
    load -= problem->buffers[i].size_bytes;
  }
}

mr_status mr_pack_sections_init(struct mr_pack_sections *sections,
                                const struct mr_pack_problem *problem) {
  uint32_t count = problem->buffer_count;
  struct event *events = mr_allocate(2ull * count, sizeof *events);
  *sections = (struct mr_pack_sections){
      .first = mr_allocate(count, sizeof *sections->first),
      .end = mr_allocate(count, sizeof *sections->end),
      .load_bytes = mr_allocate(count, sizeof *sections->load_bytes),
      .overfull = MR_PACK_NONE,
  };
  if (events == NULL || sections->first == NULL || sections->end == NULL ||
      sections->load_bytes == NULL) {
    free(events);
    mr_pack_sections_fini(sections);
    return MR_NO_MEMORY;
  }
  for (uint32_t i = 0; i < count; i++) {
    events[2ull * i] = (struct event){problem->buffers[i].lower, i, true};
    events[2ull * i + 1] = (struct event){problem->buffers[i].upper, i, false};
  }
  qsort(events, 2ull * count, sizeof *events, by_time);
  sweep(sections, problem, events);
  free(events);
  return MR_OK;
}

void mr_pack_sections_fini(struct mr_pack_sections *sections) {
  free(sections->first);
  free(sections->end);
  free(sections->load_bytes);
  *sections = (struct mr_pack_sections){0};
}
