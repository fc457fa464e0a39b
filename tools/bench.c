/* SPDX-License-Identifier: Apache-2.0 */
/* memrun bench: which measurement was asked for. */
#include <stdlib.h>
#include <string.h>

#include "tools/bench.h"
#include "tools/suggest.h"

static const struct {
  const char *name;
  mr_status (*run)(struct cli *cli, struct output *output);
} cases[] = {{"machine", bench_machine}, {"offload", bench_offload}};

static int compare_doubles(const void *a, const void *b) {
  double left = *(const double *)a;
  double right = *(const double *)b;
  return (left > right) - (left < right);
}

double bench_median(double *values, uint32_t count) {
  qsort(values, count, sizeof values[0], compare_doubles);
  return count % 2 == 1 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

mr_status command_bench(struct cli *cli, struct output *output) {
  const char *name = cli->word_count > 1 ? cli->words[1] : "machine";
  struct suggestion near = {.word = name};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    if (strcmp(cases[i].name, name) == 0) {
      return cases[i].run(cli, output);
    }
    suggestion_offer(&near, cases[i].name);
  }
  mr_log(MR_LOG_ERROR, "unknown benchmark '%s'; %s%s", name,
         near.nearest == NULL ? "machine or offload is wanted" : "did you mean ",
         near.nearest == NULL ? "" : near.nearest);
  return MR_INVALID;
}
