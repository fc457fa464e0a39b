/* SPDX-License-Identifier: Apache-2.0 */
/* memrun plan --problem: a schedule for an abstract planning problem, from text to text. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/file.h"
#include "base/json.h"
#include "plan/problem/problem.h"
#include "tools/info.h"
#include "tools/job.h"
#include "tools/options.h"
#include "tools/plan_problem.h"

/* Far above 35,000 tensors, which take 2 MiB. */
#define MAX_FILE_BYTES (1ull << 30)
/* What is read of a file at first. */
#define FIRST_READ_BYTES (64ull << 10)
/* Doubles tell longer times less exactly than rules are kept. */
#define MOST_SECONDS 1e8

static const char *const decision_names[] = {
    [MR_PROBLEM_KEEP] = "kept",
    [MR_PROBLEM_HOST] = "host",
    [MR_PROBLEM_NVME] = "nvme",
    [MR_PROBLEM_RECOMPUTE] = "recomputed",
};
static const char *const link_names[] = {
    [MR_PROBLEM_OUT] = "device_to_host",
    [MR_PROBLEM_IN] = "host_to_device",
    [MR_PROBLEM_WRITE] = "nvme_write",
    [MR_PROBLEM_READ] = "nvme_read",
};

struct figures {
  double busy_seconds[MR_PROBLEM_LINK_COUNT];
  double moved_bytes[MR_PROBLEM_LINK_COUNT];
  double compute_seconds; /* with what is recomputed */
  double decided_bytes[MR_COUNT_OF(decision_names)];
  const char *bound_by;
  const char *bound_kind; /* which bound is the highest */
};

/* Appends what is left of a file to text, with a terminating 0; pipes have no length beforehand, so
 * the text grows as it comes. */
static mr_status read_rest(FILE *file, const char *path, char **text, uint64_t *length) {
  for (uint64_t room = FIRST_READ_BYTES;; room *= 2) {
    char *larger = realloc(*text, room + 1);
    if (larger == NULL) {
      mr_log(MR_LOG_ERROR, "no memory for the %llu bytes of %s", (unsigned long long)room, path);
      return MR_NO_MEMORY;
    }
    *text = larger;
    *length += fread(*text + *length, 1, room - *length, file);
    if (ferror(file)) {
      mr_log(MR_LOG_ERROR, "cannot read %s: %m", path);
      return MR_IO;
    }
    if (*length > MAX_FILE_BYTES) {
      mr_log(MR_LOG_ERROR, "%s has more than %llu bytes, the most that a problem may have", path,
             MAX_FILE_BYTES);
      return MR_INVALID;
    }
    if (*length < room) {
      (*text)[*length] = '\0';
      return MR_OK;
    }
  }
}

/* The whole file with a terminating 0, which the caller frees. */
static mr_status read_file(const char *path, char **text_out, uint64_t *length_out) {
  char *text = NULL;
  uint64_t length = 0;
  FILE *file = fopen(path, "re");
  if (file == NULL) {
    mr_log(MR_LOG_ERROR, "cannot read %s: %m", path);
    return MR_IO;
  }
  mr_status status = read_rest(file, path, &text, &length);
  fclose(file);
  if (status != MR_OK) {
    free(text);
    return status;
  }
  *text_out = text;
  *length_out = length;
  return MR_OK;
}

static mr_status write_file(const char *path, const char *text) {
  if (!mr_file_write(path, text)) {
    mr_log(MR_LOG_ERROR, "cannot write %s: %m", path);
    return errno == ENOSPC ? MR_NO_SPACE : MR_IO;
  }
  return MR_OK;
}

static void add_up(const struct mr_problem *problem, const struct mr_problem_schedule *schedule,
                   struct figures *figures) {
  figures->bound_by = "compute";
  for (int32_t k = 0; k < problem->segment_count; k++) {
    figures->compute_seconds += problem->compute_seconds[k];
  }
  for (int32_t v = 0; v < problem->tensor_count; v++) {
    const struct mr_problem_tensor *tensor = &problem->tensors[v];
    if (schedule->decisions[v] == MR_PROBLEM_RECOMPUTE) {
      figures->compute_seconds += tensor->recompute_seconds;
    }
    if (!tensor->start && !tensor->end) {
      figures->decided_bytes[schedule->decisions[v]] += tensor->bytes;
    }
    for (int link = 0; link < MR_PROBLEM_LINK_COUNT; link++) {
      if (schedule->moves[link][v].start_seconds >= 0) {
        figures->busy_seconds[link] += tensor->bytes / problem->link_bytes_per_second[link];
        figures->moved_bytes[link] += tensor->bytes;
      }
    }
  }
  double busiest = figures->compute_seconds;
  for (int link = 0; link < MR_PROBLEM_LINK_COUNT; link++) {
    if (figures->busy_seconds[link] > busiest) {
      busiest = figures->busy_seconds[link];
      figures->bound_by = link_names[link];
    }
  }
}

/* Whether the gap is a number: above a bound of 0 any time may be the least, or far from it. */
static bool knows_gap(const struct mr_problem_schedule *schedule) {
  return schedule->bound_seconds > 0 || schedule->seconds <= 0;
}

static double gap_percent(const struct mr_problem_schedule *schedule) {
  return schedule->bound_seconds > 0 ? 100 * (schedule->seconds / schedule->bound_seconds - 1) : 0;
}

static mr_status show_json(struct output *output, const struct mr_problem *problem,
                           const struct mr_problem_schedule *schedule,
                           const struct figures *figures) {
  json_t *object =
      json_pack("{s:s, s:b, s:i, s:i}", "event", "schedule", "fits", schedule->fits, "segments",
                (int)problem->segment_count, "tensors", (int)problem->tensor_count);
  if (object == NULL) {
    return output_json(output, NULL);
  }
  if (!schedule->fits) {
    json_object_set_new(object, "smallest_device_bytes",
                        json_number(schedule->smallest_device_bytes));
    return output_json(output, object);
  }
  json_t *links = json_object();
  for (int link = 0; link < MR_PROBLEM_LINK_COUNT; link++) {
    json_object_set_new(links, link_names[link],
                        json_pack("{s:f, s:f}", "seconds", figures->busy_seconds[link], "bytes",
                                  figures->moved_bytes[link]));
  }
  json_t *decided = json_object();
  for (size_t i = 0; i < MR_COUNT_OF(decision_names); i++) {
    json_object_set_new(decided, decision_names[i], json_real(figures->decided_bytes[i]));
  }
  json_object_set_new(object, "seconds", json_real(schedule->seconds));
  json_object_set_new(object, "bound_seconds", json_real(schedule->bound_seconds));
  json_object_set_new(object, "bound_kind", json_string(figures->bound_kind));
  json_object_set_new(object, "gap_percent",
                      knows_gap(schedule) ? json_real(gap_percent(schedule)) : json_null());
  json_object_set_new(object, "bound_by", json_string(figures->bound_by));
  json_object_set_new(object, "compute_seconds", json_real(figures->compute_seconds));
  json_object_set_new(object, "links", links);
  json_object_set_new(object, "gaps_bytes", decided);
  return output_json(output, object);
}

/* Sums of sizes may be beyond what a number of bytes holds. */
static uint64_t whole_bytes(double bytes) {
  return bytes < (double)UINT64_MAX ? (uint64_t)bytes : UINT64_MAX;
}

static mr_status show_text(struct output *output, const struct mr_problem *problem,
                           const struct mr_problem_schedule *schedule,
                           const struct figures *figures) {
  output_text(output, "problem    %d segments, %d tensors\nverdict    %s\n", problem->segment_count,
              problem->tensor_count, schedule->fits ? "fits" : "does not fit");
  if (!schedule->fits) {
    return output_failed(output);
  }
  output_text(output,
              "schedule   %.9f s, bound by %s\nbound      %.9f s (%s); no schedule takes less\n",
              schedule->seconds, figures->bound_by, schedule->bound_seconds, figures->bound_kind);
  if (knows_gap(schedule)) {
    output_text(output, "gap        %.3f %%\n", gap_percent(schedule));
  } else {
    output_text(output, "gap        unknown: a bound of 0 s says nothing\n");
  }
  output_text(output, "\n%-16s %12s %12s\n%-16s %10.6f s\n", "in all", "busy", "bytes", "compute",
              figures->compute_seconds);
  for (int link = 0; link < MR_PROBLEM_LINK_COUNT; link++) {
    struct mr_size_text bytes;
    output_text(output, "%-16s %10.6f s %12s\n", link_names[link], figures->busy_seconds[link],
                mr_size_format(whole_bytes(figures->moved_bytes[link]), &bytes));
  }
  struct mr_size_text sizes[MR_COUNT_OF(decision_names)];
  for (size_t i = 0; i < MR_COUNT_OF(decision_names); i++) {
    mr_size_format(whole_bytes(figures->decided_bytes[i]), &sizes[i]);
  }
  output_text(output, "between uses: %s stay, %s go to the host, %s to NVMe, %s are recomputed\n",
              sizes[MR_PROBLEM_KEEP].text, sizes[MR_PROBLEM_HOST].text, sizes[MR_PROBLEM_NVME].text,
              sizes[MR_PROBLEM_RECOMPUTE].text);
  return output_failed(output);
}

/* Takes the LP bound where it is above the cut bound. */
static mr_status raise_bound(const struct mr_problem *problem, struct mr_problem_schedule *schedule,
                             struct figures *figures) {
  double seconds = 0;
  mr_status status = mr_problem_bound_lp(problem, &seconds);
  if (status == MR_OK && seconds > schedule->bound_seconds) {
    schedule->bound_seconds = seconds;
    figures->bound_kind = "lp";
  }
  return status;
}

/* Writes the schedule, then tells of it. */
static mr_status deliver(const struct cli *cli, struct output *output,
                         const struct mr_problem *problem, struct mr_problem_schedule *schedule) {
  struct figures figures = {.bound_kind = "cut"};
  mr_status status = MR_OK;
  if (schedule->fits && cli->bound == CLI_BOUND_LP) {
    status = raise_bound(problem, schedule, &figures);
  }
  if (status == MR_OK && schedule->fits && schedule->seconds > MOST_SECONDS) {
    mr_log(
        MR_LOG_ERROR,
        "%s takes %.3g s; a schedule of more than %g s cannot be told to the 1e-7 s that its rules "
        "want: give times in a larger unit, and rates by it",
        cli->problem_path, schedule->seconds, MOST_SECONDS);
    return MR_INVALID;
  }
  add_up(problem, schedule, &figures);
  if (status == MR_OK && schedule->fits && cli->schedule_path != NULL) {
    char *text = NULL;
    status = mr_problem_schedule_print(schedule, &text);
    if (status == MR_OK) {
      status = write_file(cli->schedule_path, text);
    }
    free(text);
  }
  if (status == MR_OK) {
    status = cli->json ? show_json(output, problem, schedule, &figures)
                       : show_text(output, problem, schedule, &figures);
  }
  if (status == MR_OK && !schedule->fits) {
    mr_log(MR_LOG_ERROR,
           "%s does not fit a device of %.0f bytes; the smallest budget that would do is %.0f "
           "bytes",
           cli->problem_path, problem->device_bytes, schedule->smallest_device_bytes);
    return MR_DOES_NOT_FIT;
  }
  return status;
}

/* A problem says everything itself: of the other options only those about output mean anything. */
static mr_status check_options(const struct cli *cli) {
  static const char *const taken[] = {"problem", "schedule", "bound", "json", "verbose"};
  for (uint32_t row = 0; options_table[row].name != NULL; row++) {
    bool fits = !cli->given[row];
    for (size_t i = 0; i < MR_COUNT_OF(taken) && !fits; i++) {
      fits = strcmp(options_table[row].name, taken[i]) == 0;
    }
    if (!fits) {
      mr_log(MR_LOG_ERROR, "--%s says nothing about a problem; leave it out beside --problem",
             options_table[row].name);
      return MR_INVALID;
    }
  }
  return MR_OK;
}

mr_status plan_problem(struct cli *cli, struct output *output) {
  char *text = NULL;
  uint64_t length = 0;
  struct mr_problem *problem = NULL;
  struct mr_problem_schedule *schedule = NULL;
  struct mr_crew crew;
  mr_crew_init(&crew, info_processor_count());
  mr_status status = check_options(cli);
  if (status == MR_OK) {
    status = output_spares("--schedule", cli->schedule_path, cli->problem_path);
  }
  if (status == MR_OK) {
    status = read_file(cli->problem_path, &text, &length);
  }
  if (status == MR_OK) {
    status = mr_problem_parse(text, length, cli->problem_path, &problem);
  }
  if (status == MR_OK) {
    status = mr_problem_plan(problem, &crew, &schedule);
  }
  if (status == MR_OK) {
    status = deliver(cli, output, problem, schedule);
  }
  mr_problem_schedule_destroy(schedule);
  mr_problem_destroy(problem);
  free(text);
  return status;
}
