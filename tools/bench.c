/* SPDX-License-Identifier: Apache-2.0 */
/* memrun bench: which measurement was asked for. */
#include <stdlib.h>
#include <string.h>

#include "tools/bench.h"
#include "tools/options.h"
#include "tools/suggest.h"

static const struct {
  const char *name;
  mr_status (*run)(struct cli *cli, struct output *output);
  bool sweeps; /* over budgets */
} cases[] = {{"machine", bench_machine, false},
             {"offload", bench_offload, false},
             {"pressure", bench_pressure, true}};

static const char *const sweep_options[] = {"budgets", "ablations", "results"};
/* Runs leave nothing behind, and evaluate nothing. */
static const char *const refused_options[] = {"save", "ckpt", "ckpt-every", "resume", "eval-every"};

static int compare_doubles(const void *a, const void *b) {
  double left = *(const double *)a;
  double right = *(const double *)b;
  return (left > right) - (left < right);
}

double bench_median(double *values, uint32_t count) {
  qsort(values, count, sizeof values[0], compare_doubles);
  return count % 2 == 1 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

static mr_status check_options(const struct cli *cli, const char *name, bool sweeps) {
  for (size_t i = 0; i < sizeof sweep_options / sizeof sweep_options[0]; i++) {
    if (!sweeps && options_given(cli, sweep_options[i])) {
      mr_log(MR_LOG_ERROR, "--%s is no option of bench %s; bench pressure takes it",
             sweep_options[i], name);
      return MR_INVALID;
    }
  }
  for (size_t i = 0; i < sizeof refused_options / sizeof refused_options[0]; i++) {
    if (options_given(cli, refused_options[i])) {
      mr_log(MR_LOG_ERROR, "--%s is no option of bench %s, which keeps nothing of its runs",
             refused_options[i], name);
      return MR_INVALID;
    }
  }
  return MR_OK;
}

mr_status command_bench(struct cli *cli, struct output *output) {
  const char *name = cli->word_count > 1 ? cli->words[1] : "machine";
  struct suggestion near = {.word = name};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    if (strcmp(cases[i].name, name) == 0) {
      mr_status status = check_options(cli, name, cases[i].sweeps);
      return status == MR_OK ? cases[i].run(cli, output) : status;
    }
    suggestion_offer(&near, cases[i].name);
  }
  mr_log(MR_LOG_ERROR, "unknown benchmark '%s'; %s%s", name,
         near.nearest == NULL ? "machine, offload or pressure is wanted" : "did you mean ",
         near.nearest == NULL ? "" : near.nearest);
  return MR_INVALID;
}
