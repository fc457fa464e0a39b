/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A trace is a timeline in Chrome's trace event format, which Perfetto opens: one row for each
 * named track. Events are kept in one ring for each track, allocated at start, and written by
 * mr_trace_flush, which a run calls between steps; an event that finds its ring full is dropped and
 * counted. A track is written by one thread at a time.
 */
#ifndef MEMRUN_BASE_TRACE_H
#define MEMRUN_BASE_TRACE_H

#include <stdint.h>

#include <memrun/status.h>

struct mr_trace;

/* Opens `path` for writing and writes the head. MR_IO names the path; MR_NO_MEMORY. `track_names`
 * are borrowed. */
MR_CHECK_RESULT mr_status mr_trace_create(const char *path, const char *const *track_names,
                                          uint32_t track_count, struct mr_trace **trace_out);

/* Records [start_ns, end_ns) of the monotonic clock; `name` lasts until it is flushed; does not
 * allocate. NULL trace: nothing. */
void mr_trace_add(struct mr_trace *trace, uint32_t track, const char *name, uint64_t bytes,
                  uint64_t start_ns, uint64_t end_ns);

/* Appends what was recorded to the file; no event may be added meanwhile. MR_IO: it cannot be
 * written, which the first call that finds it so tells in a line. */
MR_CHECK_RESULT mr_status mr_trace_flush(struct mr_trace *trace);

/* Flushes, writes the tail, closes. MR_IO where the file could not be written whole. NULL is
 * allowed. */
MR_CHECK_RESULT mr_status mr_trace_destroy(struct mr_trace *trace);

#endif
