/* SPDX-License-Identifier: Apache-2.0 */
/* memrun bench pressure: the sweep, its rounds, and where the results go. */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "base/file.h"
#include "base/json.h"
#include "runtime/profile.h"
#include "tools/bench.h"
#include "tools/job.h"
#include "tools/options.h"
#include "tools/pressure.h"
#include "tools/signals.h"

#define MEASURED_STEPS  3u
#define LEAST_STEPS     2u /* from which a run teaches its profile */
#define DEFAULT_RESULTS "memrun-pressure"
#define MAX_PATH        4096u

static mr_status path_of(const struct cli *cli, const char *ending, char *path) {
  const char *name = cli->results == NULL ? DEFAULT_RESULTS : cli->results;
  int length = snprintf(path, MAX_PATH, "%s%s", name, ending);
  if (length < 0 || (uint32_t)length >= MAX_PATH) {
    mr_log(MR_LOG_ERROR, "--results: a name of %d bytes is too long for a path", length);
    return MR_INVALID;
  }
  return MR_OK;
}

/* Minutes of measuring are not lost to a folder that cannot be written. */
static mr_status check_results(const struct cli *cli) {
  static const char *const endings[] = {".svg", ".json"};
  char path[MAX_PATH];
  mr_status status = MR_OK;
  for (size_t i = 0; i < MR_COUNT_OF(endings) && status == MR_OK; i++) {
    status = path_of(cli, endings[i], path);
    if (status == MR_OK) {
      status = job_spares(cli, "--results", path);
    }
  }
  if (status != MR_OK) {
    return status;
  }
  const char *folder = dirname(path);
  if (access(folder, W_OK | X_OK) != 0) {
    mr_log(MR_LOG_ERROR, "--results: no file can be made in %s: %s", folder,
           strerrordesc_np(errno));
    return MR_IO;
  }
  return MR_OK;
}

static mr_status write_file(const struct cli *cli, const char *ending, const char *text) {
  char path[MAX_PATH];
  mr_status status = path_of(cli, ending, path);
  if (status != MR_OK) {
    return status;
  }
  if (!mr_file_write(path, text)) {
    mr_log(MR_LOG_ERROR, "%s cannot be written: %s", path, strerrordesc_np(errno));
    return MR_IO;
  }
  return MR_OK;
}

/* The status whose exit status the child had; MR_IO for what no memrun gives. */
static mr_status status_of(const struct pressure_end *end) {
  for (mr_status status = MR_INVALID; status <= MR_UNSUPPORTED; status++) {
    if (end->signal_number == 0 && mr_status_exit(status) == end->exit_status) {
      return status;
    }
  }
  return MR_IO;
}

/* Plans a kind under a device budget, by the rates of the profile with the number. */
static mr_status plan_kind(const struct pressure *pressure, enum pressure_kind kind,
                           uint64_t device_bytes, uint32_t profile,
                           struct pressure_plan *plan_out) {
  struct pressure_path path;
  struct pressure_words words;
  struct pressure_end end;
  pressure_profile_path(pressure, profile, &path);
  mr_status status = pressure_words_plan(&words, pressure, kind, device_bytes, path.text);
  if (status != MR_OK) {
    return status;
  }
  status = pressure_plan_run(words.list, plan_out, &end);
  pressure_words_fini(&words);
  if (status == MR_OK && !plan_out->made) {
    status = status_of(&end);
    mr_log(MR_LOG_ERROR, "bench pressure: no plan: %s",
           end.line[0] == '\0' ? mr_status_message(status) : end.line);
  }
  return status;
}

/* The smallest budget by a plan that has next to nothing. */
static uint64_t smallest_of(const struct pressure_plan *plan) {
  uint64_t slack = plan->outside_bytes > 0 ? PRESSURE_SLACK_BYTES : 0;
  if (plan->fits || plan->smallest_bytes > UINT64_MAX - slack) {
    return plan->fits ? PRESSURE_LEAST_BYTES : UINT64_MAX;
  }
  return plan->smallest_bytes + slack;
}

/* The footprint, and the smallest budget of each kind. */
static mr_status plan_least(struct pressure *pressure) {
  struct pressure_plan plan;
  mr_status status = MR_OK;
  for (uint32_t kind = 0; kind < pressure->kind_count && status == MR_OK; kind++) {
    status = plan_kind(pressure, (enum pressure_kind)kind, PRESSURE_LEAST_BYTES, 0, &plan);
    if (status == MR_OK) {
      pressure->footprint_bytes = plan.footprint_bytes;
      pressure->smallest_bytes[kind] = smallest_of(&plan);
    }
  }
  return status;
}

/* How many times as long as its profile says ops took in the round's run without budgets, which
 * waits for nothing else; 1 where it moved something, or failed. */
static mr_status find_pace(const struct pressure *pressure, double *times_out) {
  const struct pressure_row *row = &pressure->rows[0];
  struct pressure_plan plan = {0};
  bool waits = row->turns == 0 || row->turns < pressure->rounds;
  for (mr_link link = 0; link < MR_LINK_COUNT; link++) {
    waits = waits || row->last.moved_bytes[link] > 0;
  }
  *times_out = 1;
  if (waits) {
    return MR_OK;
  }
  mr_status status = plan_kind(pressure, row->kind, row->device_bytes, 0, &plan);
  if (status == MR_OK && plan.predicted_seconds > 0) {
    *times_out = row->seconds[row->turns - 1] / plan.predicted_seconds;
  }
  return status;
}

/* Begins the profile that bounds of the round are by. */
static mr_status begin_bounds(const struct pressure *pressure) {
  double times = 1;
  mr_status status = find_pace(pressure, &times);
  return status == MR_OK ? pressure_profile_pace(pressure, times) : status;
}

/* The bound of a row's budget, by the rates of NVMe that are measured now. */
static mr_status plan_bound(struct pressure *pressure, struct pressure_row *row) {
  struct pressure_plan plan;
  struct pressure_path path;
  if (row->kind != PRESSURE_MEMRUN || row->state == PRESSURE_DOES_NOT_FIT) {
    return MR_OK;
  }
  pressure_profile_path(pressure, pressure->row_count, &path);
  mr_status status = mr_profile_forget_nvme(path.text);
  if (status == MR_OK) {
    status = plan_kind(pressure, row->kind, row->device_bytes, pressure->row_count, &plan);
  }
  if (status == MR_OK) {
    row->bounds[row->bound_count++] = plan.bound_seconds;
  }
  return status;
}

/* "25.0 % (138 MiB), no recompute" */
struct row_name {
  char text[80];
};

static const char *name_row(const struct pressure *pressure, const struct pressure_row *row,
                            struct row_name *name) {
  struct mr_size_text size;
  struct pressure_share share;
  if (row->device_bytes == UINT64_MAX) {
    snprintf(name->text, sizeof name->text, "without budgets");
  } else {
    snprintf(name->text, sizeof name->text, "%s (%s), %s",
             pressure_row_share(pressure, row, &share), mr_size_format(row->device_bytes, &size),
             pressure_kind_titles[row->kind]);
  }
  return name->text;
}

static mr_status fail_row(const struct pressure *pressure, struct pressure_row *row) {
  struct row_name name;
  const struct pressure_end *end = &row->end;
  bool killed = end->signal_number != 0;
  row->state = PRESSURE_FAILED;
  mr_log(MR_LOG_ERROR, "%s: %s %d: %s", name_row(pressure, row, &name),
         killed ? "ended by signal" : "exit status", killed ? end->signal_number : end->exit_status,
         end->line[0] == '\0' ? "it said nothing" : end->line);
  return status_of(end);
}

/* Every run reads the same data, so that its last loss has the same bits. */
static mr_status check_loss(const struct pressure *pressure, struct pressure_row *row,
                            const struct pressure_turn *turn) {
  struct row_name names[2];
  for (uint32_t i = 0; i < pressure->row_count; i++) {
    const struct pressure_row *other = &pressure->rows[i];
    if (other->turns > 0 &&
        memcmp(&other->last.last_loss, &turn->last_loss, sizeof turn->last_loss) != 0) {
      snprintf(row->end.line, sizeof row->end.line, "the loss %.17g differs from %.17g (%s)",
               turn->last_loss, other->last.last_loss, name_row(pressure, other, &names[0]));
      mr_log(MR_LOG_ERROR, "%s: %s", name_row(pressure, row, &names[1]), row->end.line);
      row->state = PRESSURE_FAILED;
      return MR_MISMATCH;
    }
  }
  return MR_OK;
}

/* A row's first turn begins with what the runs without budgets have taught. */
static mr_status prepare_profile(const struct pressure *pressure, const struct pressure_row *row,
                                 struct pressure_path *path_out) {
  struct pressure_path alone;
  pressure_profile_path(pressure, (uint32_t)(row - pressure->rows), path_out);
  if (row == pressure->rows || row->turns > 0) {
    return MR_OK;
  }
  pressure_profile_path(pressure, 0, &alone);
  return pressure_profile_copy(alone.text, path_out->text);
}

/* One turn; a child that fails costs its row alone, and *worst keeps its status. */
static mr_status take_turn(struct pressure *pressure, struct pressure_row *row, mr_status *worst) {
  struct pressure_turn turn = {0};
  struct pressure_path profile;
  struct pressure_words words;
  mr_status status = prepare_profile(pressure, row, &profile);
  if (status == MR_OK) {
    status = pressure_words_init(&words, pressure, row, profile.text);
  }
  if (status != MR_OK) {
    return status;
  }
  status = pressure_turn_run(words.list, signals_stop_word(), &turn, &row->end);
  pressure_words_fini(&words);
  if (status == MR_OK && row->end.exit_status == mr_status_exit(MR_INTERRUPTED)) {
    return MR_INTERRUPTED; /* the terminal told both */
  }
  if (status != MR_OK) {
    return status;
  }
  mr_status failed = MR_OK;
  if (row == pressure->rows && row->end.exit_status == mr_status_exit(MR_DOES_NOT_FIT)) {
    row->state = PRESSURE_DOES_NOT_FIT;
    mr_log(MR_LOG_WARN, "without budgets the job does not fit here: no speed is told beside it");
    return MR_OK;
  }
  if (row->end.exit_status != 0 || row->end.signal_number != 0) {
    failed = fail_row(pressure, row);
  } else {
    failed = check_loss(pressure, row, &turn);
  }
  if (failed != MR_OK) {
    *worst = *worst == MR_OK ? failed : *worst;
    return MR_OK;
  }
  row->seconds[row->turns] = turn.seconds;
  row->others_share = fmax(row->others_share, turn.others_share);
  row->turns++;
  row->last = turn;
  row->state = PRESSURE_MEASURED;
  return MR_OK;
}

/* One turn, announced. */
static mr_status announce_turn(struct pressure *pressure, struct pressure_row *row,
                               struct output *output, const char *when, mr_status *worst) {
  char line[OUTPUT_STATUS_BYTES];
  struct row_name name;
  if (row->state == PRESSURE_DOES_NOT_FIT || row->state == PRESSURE_FAILED) {
    return MR_OK;
  }
  snprintf(line, sizeof line, "%s: %s", when, name_row(pressure, row, &name));
  mr_log(MR_LOG_INFO, "%s", line);
  if (output->terminal) {
    output_status(output, line);
  }
  return *signals_stop_word() != 0 ? MR_INTERRUPTED : take_turn(pressure, row, worst);
}

/* The run without budgets comes first in each round, then the others, every other time from the
 * back; a row's bound is found right behind its turn, while the drive has the pace that it had. */
static mr_status run_round(struct pressure *pressure, struct output *output, mr_status *worst) {
  char when[40];
  uint32_t count = pressure->row_count;
  uint32_t round = pressure->rounds++;
  mr_status status = MR_OK;
  snprintf(when, sizeof when, "round %u of %u", round + 1, pressure->cli->rounds);
  for (uint32_t i = 0; i < count && status == MR_OK; i++) {
    struct pressure_row *row = &pressure->rows[round % 2 == 0 || i == 0 ? i : count - i];
    status = announce_turn(pressure, row, output, when, worst);
    if (status == MR_OK && i == 0) {
      status = begin_bounds(pressure);
    }
    if (status == MR_OK) {
      status = plan_bound(pressure, row);
    }
  }
  return status;
}

static mr_status run_rounds(struct pressure *pressure, struct output *output, mr_status *worst) {
  struct pressure_row *rows = pressure->rows;
  /* Not measured: it teaches the profile with which the others begin. */
  mr_status status = announce_turn(pressure, &rows[0], output, "first run", worst);
  rows[0].turns = 0;
  if (rows[0].state == PRESSURE_MEASURED) {
    rows[0].state = PRESSURE_WAITING;
  }
  while (pressure->rounds < pressure->cli->rounds && status == MR_OK) {
    status = run_round(pressure, output, worst);
  }
  if (output->terminal) {
    output_status(output, "");
  }
  return status;
}

static mr_status write_results(const struct pressure *pressure) {
  char *text = NULL;
  char *svg = NULL;
  mr_status status =
      mr_json_print(pressure_json(pressure), JSON_INDENT(1) | MR_JSON_DIGITS, "the results", &text);
  if (status == MR_OK) {
    status = write_file(pressure->cli, ".json", text);
  }
  if (status == MR_OK) {
    status = pressure_plot(pressure, &svg);
  }
  if (status == MR_OK) {
    status = write_file(pressure->cli, ".svg", svg);
  }
  free(text);
  free(svg);
  return status;
}

static mr_status tell(const struct pressure *pressure, struct output *output) {
  if (pressure->interrupted) {
    bool begun = pressure->rounds > 0;
    mr_log(MR_LOG_ERROR, "interrupted %s round %u of %u; what was measured is told",
           begun ? "in" : "before", begun ? pressure->rounds : 1, pressure->cli->rounds);
  }
  /* What took minutes to measure is shown also where no file can hold it. */
  mr_status written = write_results(pressure);
  mr_status shown = MR_OK;
  if (pressure->cli->json) {
    shown = output_json(output, pressure_json(pressure));
  } else {
    pressure_print(pressure, output);
    shown = output_failed(output);
  }
  return written != MR_OK ? written : shown;
}

/* The bounds that an interruption left out of what was measured. */
static mr_status complete_bounds(struct pressure *pressure) {
  mr_status status = MR_OK;
  for (uint32_t i = 0; i < pressure->row_count && status == MR_OK; i++) {
    struct pressure_row *row = &pressure->rows[i];
    if (row->state == PRESSURE_WAITING || row->bound_count > 0) {
      continue;
    }
    status = i == 0 ? begin_bounds(pressure) : MR_OK;
    if (status == MR_OK) {
      status = plan_bound(pressure, row);
    }
  }
  return status;
}

/* Everything between the graph and the results. *worst: of the runs that failed. */
static mr_status measure(struct pressure *pressure, const struct pressure_point *points,
                         uint32_t point_count, struct output *output, mr_status *worst) {
  mr_status status = plan_least(pressure);
  if (status == MR_OK) {
    status = pressure_rows_init(pressure, points, point_count, pressure->cli->rounds);
  }
  if (status == MR_OK) {
    status = run_rounds(pressure, output, worst);
  }
  pressure->interrupted = status == MR_INTERRUPTED;
  mr_status bounds = pressure->interrupted ? complete_bounds(pressure) : MR_OK;
  return bounds == MR_OK ? status : bounds;
}

/* What the job is. Of a CUDA device nothing is opened for that (tools/pressure.h): sizes are the
 * same wherever ops run. */
static mr_status describe(struct pressure *pressure) {
  struct trainer_options options = pressure->cli->train;
  struct trainer *trainer = NULL;
  bool on_device = options.run.device == MR_BACKEND_CUDA;
  if (on_device) {
    options.run.device = MR_BACKEND_CPU;
    options.reference = true;
  }
  mr_status status = trainer_prepare(&options, &trainer);
  if (status == MR_OK) {
    pressure->info = *trainer_get_info(trainer);
    pressure->info.gemm = on_device ? "cuBLASLt" : pressure->info.gemm;
  }
  return trainer_destroy(trainer, status);
}

static mr_status sweep(struct pressure *pressure, const struct pressure_point *points,
                       uint32_t point_count, struct output *output) {
  mr_status worst = MR_OK;
  mr_status status = pressure_profiles_init(pressure);
  if (status == MR_OK) {
    status = describe(pressure);
  }
  if (status == MR_OK) {
    status = measure(pressure, points, point_count, output, &worst);
  }
  if (status == MR_OK || (status == MR_INTERRUPTED && pressure->rows != NULL)) {
    mr_status told = tell(pressure, output);
    status = told != MR_OK ? told : status != MR_OK ? status : worst;
  }
  return status;
}

static mr_status check_steps(const struct pressure *pressure) {
  if (pressure->steps < LEAST_STEPS) {
    mr_log(MR_LOG_ERROR, "--steps '%u': at least %u are wanted; a run of fewer teaches nothing",
           pressure->steps, LEAST_STEPS);
    return MR_INVALID;
  }
  return MR_OK;
}

mr_status bench_pressure(struct cli *cli, struct output *output) {
  struct pressure_point points[PRESSURE_MAX_BUDGETS];
  uint32_t point_count = 0;
  struct pressure pressure = {
      .cli = cli,
      .kind_count = cli->ablations ? PRESSURE_KIND_COUNT : 1,
      .steps = options_given(cli, "steps") ? (uint32_t)cli->train.steps : MEASURED_STEPS,
  };
  mr_status status = check_steps(&pressure);
  if (status == MR_OK) {
    status = pressure_options_check(cli);
  }
  if (status == MR_OK) {
    status = pressure_points_parse(cli->budgets, points, &point_count);
  }
  if (status == MR_OK) {
    status = check_results(cli);
  }
  if (status == MR_OK) {
    status = pressure_profile_check(cli->train.run.profile_path);
  }
  if (status != MR_OK) {
    return status;
  }
  if (!options_given(cli, "offload")) {
    cli->train.run.offload = MR_OFFLOAD_NVME;
  }
  job_prepare_nvme(cli);
  signals_end_in_order();
  status = sweep(&pressure, points, point_count, output);
  pressure_profiles_fini(&pressure);
  pressure_rows_fini(&pressure);
  return status;
}
