/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replays a schedule against a problem, both as text, and says whether it keeps every rule of the
 * two formats. It shares no code with the planner, not even the reader.
 */
#ifndef MEMRUN_TESTS_PROBLEM_REPLAY_H
#define MEMRUN_TESTS_PROBLEM_REPLAY_H

#include <stdbool.h>

struct problem_verdict {
  bool keeps_rules;
  char broken_rule[160]; /* the first one */
  double seconds;
  double bound_seconds;
};

void problem_replay(const char *problem_text, const char *schedule_text,
                    struct problem_verdict *verdict_out);

#endif
