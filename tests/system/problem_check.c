/* SPDX-License-Identifier: Apache-2.0 */
/*
 * problem_check PROBLEM SCHEDULE: replays a schedule. Exit 0 and "TIME BOUND" where it keeps every
 * rule, 1 and the first broken one otherwise.
 */
#include <stdio.h>
#include <stdlib.h>

#include "unit/problem_replay.h"

static char *read_whole(const char *path) {
  char *text = NULL;
  FILE *file = fopen(path, "re");
  long length = -1;
  if (file != NULL && fseek(file, 0, SEEK_END) == 0) {
    length = ftell(file);
    rewind(file);
    text = calloc(1, (size_t)length + 1);
  }
  if (text == NULL || fread(text, 1, (size_t)length, file) != (size_t)length) {
    perror(path);
    exit(2);
  }
  fclose(file);
  return text;
}

int main(int argc, char **argv) {
  if (argc != 3) {
    fprintf(stderr, "usage: problem_check PROBLEM SCHEDULE\n");
    return 2;
  }
  char *problem = read_whole(argv[1]);
  char *schedule = read_whole(argv[2]);
  struct problem_verdict verdict;
  problem_replay(problem, schedule, &verdict);
  free(problem);
  free(schedule);
  if (!verdict.keeps_rules) {
    printf("%s\n", verdict.broken_rule);
    return 1;
  }
  printf("%.9f %.9f\n", verdict.seconds, verdict.bound_seconds);
  return 0;
}
