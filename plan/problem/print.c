/* SPDX-License-Identifier: Apache-2.0 */
/* Schedules as text. Times have all their digits: rounded, the end of a short schedule might come
 * before its bound. */
#include <stdio.h>
#include <stdlib.h>

#include "base/base.h"
#include "plan/problem/problem.h"

static void print_moves(FILE *file, const struct mr_problem_schedule *schedule) {
  static const char *const names[MR_PROBLEM_LINK_COUNT] = {"out", "in", "write", "read"};
  for (int link = 0; link < MR_PROBLEM_LINK_COUNT; link++) {
    for (int32_t v = 0; v < schedule->tensor_count; v++) {
      const struct mr_problem_span *move = &schedule->moves[link][v];
      if (move->start_seconds >= 0) {
        fprintf(file, "%s %d %.17g %.17g\n", names[link], v, move->start_seconds,
                move->end_seconds);
      }
    }
  }
}

mr_status mr_problem_schedule_print(const struct mr_problem_schedule *schedule, char **text_out) {
  MR_ASSERT(schedule->fits);
  char *text = NULL;
  size_t length = 0;
  FILE *file = open_memstream(&text, &length);
  if (file == NULL) {
    mr_log(MR_LOG_ERROR, "no memory for the text of a schedule");
    return MR_NO_MEMORY;
  }
  for (int32_t k = 0; k < schedule->segment_count; k++) {
    fprintf(file, "segment %d %.17g %.17g\n", k, schedule->segments[k].start_seconds,
            schedule->segments[k].end_seconds);
  }
  for (int32_t v = 0; v < schedule->tensor_count; v++) {
    if (schedule->decisions[v] == MR_PROBLEM_RECOMPUTE) {
      fprintf(file, "recompute %d\n", v);
    }
  }
  print_moves(file, schedule);
  fprintf(file, "bound %.17g\n", schedule->bound_seconds);
  bool failed = ferror(file) != 0;
  if (fclose(file) != 0 || failed) {
    mr_log(MR_LOG_ERROR, "no memory for the text of a schedule");
    free(text);
    return MR_NO_MEMORY;
  }
  *text_out = text;
  return MR_OK;
}
