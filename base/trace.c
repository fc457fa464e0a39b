/* SPDX-License-Identifier: Apache-2.0 */
/* Chrome trace events: one ring for each track, appended to the file between steps. */
#include "base/trace.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

/* Events of one step on one track: a step of the largest preset issues under 10,000. */
#define TRACK_CAPACITY 32768u

struct event {
  const char *name;
  uint64_t bytes;
  uint64_t start_ns;
  uint64_t end_ns;
};

struct track {
  struct event *events;
  uint32_t count;
  uint32_t dropped;
};

struct mr_trace {
  FILE *file;
  char *path;
  struct track *tracks;
  uint32_t track_count;
  uint64_t origin_ns;
  bool told; /* that it cannot be written */
};

static void trace_free(struct mr_trace *trace) {
  if (trace->tracks != NULL) {
    for (uint32_t i = 0; i < trace->track_count; i++) {
      free(trace->tracks[i].events);
    }
  }
  if (trace->file != NULL) {
    fclose(trace->file);
  }
  free(trace->tracks);
  free(trace->path);
  free(trace);
}

static mr_status write_failed(struct mr_trace *trace) {
  if (!trace->told) {
    mr_log(MR_LOG_ERROR, "the trace %s cannot be written: %s", trace->path, strerror(errno));
  }
  trace->told = true;
  return MR_IO;
}

/* A JSON string body. Names may hold any byte; what is neither plain ASCII nor sure to be UTF-8 is
 * shown as a question mark, so that the file is always valid. */
static void write_name(FILE *file, const char *name) {
  for (const char *c = name; *c != '\0'; c++) {
    if (*c == '"' || *c == '\\') {
      fputc('\\', file);
    }
    fputc(*c >= 0x20 && *c < 0x7f ? *c : '?', file);
  }
}

mr_status mr_trace_create(const char *path, const char *const *track_names, uint32_t track_count,
                          struct mr_trace **trace_out) {
  struct mr_trace *trace = mr_allocate(1, sizeof *trace);
  if (trace == NULL) {
    return MR_NO_MEMORY;
  }
  trace->origin_ns = mr_clock_ns();
  trace->track_count = track_count;
  trace->path = mr_string_copy(path);
  trace->tracks = mr_allocate(track_count, sizeof *trace->tracks);
  if (trace->path == NULL || trace->tracks == NULL) {
    trace_free(trace);
    return MR_NO_MEMORY;
  }
  for (uint32_t i = 0; i < track_count; i++) {
    trace->tracks[i].events = mr_allocate(TRACK_CAPACITY, sizeof(struct event));
    if (trace->tracks[i].events == NULL) {
      trace_free(trace);
      return MR_NO_MEMORY;
    }
  }
  trace->file = fopen(path, "we");
  if (trace->file == NULL) {
    mr_status status = write_failed(trace);
    trace_free(trace);
    return status;
  }
  fprintf(trace->file, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n"
                       "{\"ph\":\"M\",\"pid\":1,\"name\":\"process_name\",\"args\":{\"name\":"
                       "\"memrun\"}}");
  for (uint32_t i = 0; i < track_count; i++) {
    fprintf(trace->file,
            ",\n{\"ph\":\"M\",\"pid\":1,\"tid\":%u,\"name\":\"thread_name\",\"args\":"
            "{\"name\":\"",
            i + 1);
    write_name(trace->file, track_names[i]);
    fprintf(trace->file, "\"}}");
  }
  *trace_out = trace;
  return MR_OK;
}

void mr_trace_add(struct mr_trace *trace, uint32_t track, const char *name, uint64_t bytes,
                  uint64_t start_ns, uint64_t end_ns) {
  if (trace == NULL) {
    return;
  }
  MR_ASSERT(track < trace->track_count);
  MR_ASSERT(start_ns >= trace->origin_ns && end_ns >= start_ns);
  struct track *row = &trace->tracks[track];
  if (row->count == TRACK_CAPACITY) {
    row->dropped++;
    return;
  }
  row->events[row->count++] = (struct event){name, bytes, start_ns, end_ns};
}

/* Microseconds with three digits after the point, whatever the locale says of points. */
static void write_us(FILE *file, const char *key, uint64_t ns) {
  fprintf(file, ",\"%s\":%llu.%03u", key, (unsigned long long)(ns / 1000), (unsigned)(ns % 1000));
}

static void write_event(const struct mr_trace *trace, uint32_t track, const struct event *event) {
  fprintf(trace->file, ",\n{\"ph\":\"X\",\"pid\":1,\"tid\":%u", track + 1);
  write_us(trace->file, "ts", event->start_ns - trace->origin_ns);
  write_us(trace->file, "dur", event->end_ns - event->start_ns);
  fprintf(trace->file, ",\"name\":\"");
  write_name(trace->file, event->name);
  fprintf(trace->file, "\",\"args\":{\"bytes\":%llu}}", (unsigned long long)event->bytes);
}

mr_status mr_trace_flush(struct mr_trace *trace) {
  for (uint32_t i = 0; i < trace->track_count; i++) {
    struct track *row = &trace->tracks[i];
    for (uint32_t j = 0; j < row->count; j++) {
      write_event(trace, i, &row->events[j]);
    }
    row->count = 0;
    if (row->dropped != 0) {
      mr_log(MR_LOG_WARN, "trace %s: %u events did not fit the ring of %u and are missing",
             trace->path, row->dropped, TRACK_CAPACITY);
      row->dropped = 0;
    }
  }
  return fflush(trace->file) == 0 && ferror(trace->file) == 0 ? MR_OK : write_failed(trace);
}

mr_status mr_trace_destroy(struct mr_trace *trace) {
  if (trace == NULL) {
    return MR_OK;
  }
  mr_status status = mr_trace_flush(trace);
  fprintf(trace->file, "\n]}\n");
  bool failed = ferror(trace->file) != 0;
  failed = fclose(trace->file) != 0 || failed;
  trace->file = NULL;
  if (status == MR_OK && failed) {
    status = write_failed(trace);
  }
  trace_free(trace);
  return status;
}
