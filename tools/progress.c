/* SPDX-License-Identifier: Apache-2.0 */
/* Draws the status line of a training. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/base.h"
#include "tools/job.h"
#include "tools/progress.h"

#define REDRAW_NS       250000000ll
#define PART_COUNT      4u
#define PART_BYTES      160u
#define MAX_BAR_COLUMNS 30u
#define MIN_BAR_COLUMNS 8u

struct progress {
  struct output *output;
  const struct mr_run *run;
  uint64_t first_step;
  uint64_t steps;
  pthread_t thread;
  pthread_mutex_t mutex; /* for all below */
  pthread_cond_t changed;
  bool stopping;
  uint64_t step; /* finished; first_step - 1: none yet */
  double loss;
  double tokens_per_second;
  double link_rates[MR_LINK_COUNT]; /* bytes a second over the last step */
  double step_started;
  double step_predicted;
};

static void draw_bar(char *bar, uint32_t columns, double done) {
  uint32_t inside = columns - 2;
  uint32_t filled = (uint32_t)(done * inside + 0.5);
  filled = filled < inside ? filled : inside;
  bar[0] = '[';
  memset(bar + 1, '#', filled);
  memset(bar + 1 + filled, '.', inside - filled);
  bar[columns - 1] = ']';
  bar[columns] = '\0';
}

void progress_layout(char *line, const char *const *parts, uint32_t part_count, double done,
                     uint32_t columns) {
  size_t room = columns < OUTPUT_STATUS_BYTES ? columns : OUTPUT_STATUS_BYTES - 1;
  size_t used = strlen(parts[0]);
  bool has_bar = used + 2 + MIN_BAR_COLUMNS <= room;
  size_t bar_columns = has_bar ? MIN_BAR_COLUMNS : 0;
  used += has_bar ? MIN_BAR_COLUMNS + 2 : 0;
  uint32_t shown = 1;
  while (shown < part_count && used + 2 + strlen(parts[shown]) <= room) {
    used += 2 + strlen(parts[shown]);
    shown++;
  }
  char *end = line;
  if (has_bar) {
    size_t left = used < room ? room - used : 0;
    bar_columns +=
        left < MAX_BAR_COLUMNS - MIN_BAR_COLUMNS ? left : MAX_BAR_COLUMNS - MIN_BAR_COLUMNS;
    draw_bar(line, (uint32_t)bar_columns, done);
    end = stpcpy(line + bar_columns, "  ");
  }
  for (uint32_t i = 0; i < shown; i++) {
    size_t left = OUTPUT_STATUS_BYTES - (size_t)(end - line);
    int bytes = snprintf(end, left, "%s%s", i == 0 ? "" : "  ", parts[i]);
    end += (size_t)bytes < left ? (size_t)bytes : left - 1;
  }
  if (strlen(line) > room) {
    line[room] = '\0';
  }
}

/* "device 94% ": what the tier holds of its budget. */
static int tier_text(char *text, size_t size, const struct mr_step_report *now, int tier) {
  if (now->budget_bytes[tier] == 0) {
    return 0;
  }
  double part = (double)now->peak_bytes[tier] / (double)now->budget_bytes[tier];
  return snprintf(text, size, "%s %.0f%% ", job_tier_names[tier], 100 * part);
}

static void tiers_part(char part[PART_BYTES], const struct mr_run *run) {
  struct mr_step_report now = {.size_bytes = sizeof now};
  mr_run_observe(run, &now);
  size_t used = 0;
  part[0] = '\0';
  for (int tier = 0; tier < MR_TIER_COUNT; tier++) {
    used += (size_t)tier_text(part + used, PART_BYTES - used, &now, tier);
  }
  part[used == 0 ? 0 : used - 1] = '\0';
}

static void links_part(char part[PART_BYTES], const double rates[MR_LINK_COUNT]) {
  snprintf(part, PART_BYTES, "out %.2f in %.2f read %.2f write %.2f GB/s",
           rates[MR_LINK_DEVICE_TO_HOST] / 1e9, rates[MR_LINK_HOST_TO_DEVICE] / 1e9,
           rates[MR_LINK_NVME_READ] / 1e9, rates[MR_LINK_NVME_WRITE] / 1e9);
}

/* The mutex is held. */
static void draw(struct progress *progress) {
  char text[PART_COUNT][PART_BYTES];
  const char *parts[PART_COUNT] = {text[0], text[1], text[2], text[3]};
  uint32_t part_count = PART_COUNT;
  uint64_t finished = progress->step + 1 - progress->first_step;
  uint64_t all = progress->steps + 1 - progress->first_step;
  /* Within a step the forecast says how far it has come; a late one waits just before its end. */
  double part = progress->step_predicted > 0
                    ? (mr_clock_seconds() - progress->step_started) / progress->step_predicted
                    : 0;
  part = part < 0.99 ? part : 0.99;
  double done = all == 0 || finished >= all ? 1 : ((double)finished + part) / (double)all;
  if (finished == 0) {
    /* Nothing was measured yet. */
    snprintf(text[0], PART_BYTES, "step %llu/%llu", (unsigned long long)progress->first_step,
             (unsigned long long)progress->steps);
    tiers_part(text[1], progress->run);
    part_count = 2;
  } else {
    snprintf(text[0], PART_BYTES, "step %llu/%llu loss %.4f", (unsigned long long)progress->step,
             (unsigned long long)progress->steps, progress->loss);
    snprintf(text[1], PART_BYTES, "%.0f tokens/s", progress->tokens_per_second);
    tiers_part(text[2], progress->run);
    links_part(text[3], progress->link_rates);
  }
  char line[OUTPUT_STATUS_BYTES];
  progress_layout(line, parts, part_count, done, output_columns() - 1);
  output_status(progress->output, line);
}

static void *redraw(void *context) {
  struct progress *progress = context;
  pthread_mutex_lock(&progress->mutex);
  while (!progress->stopping) {
    draw(progress);
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += REDRAW_NS;
    until.tv_sec += until.tv_nsec / 1000000000ll;
    until.tv_nsec %= 1000000000ll;
    pthread_cond_timedwait(&progress->changed, &progress->mutex, &until);
  }
  pthread_mutex_unlock(&progress->mutex);
  return NULL;
}

struct progress *progress_start(struct output *output, const struct mr_run *run,
                                uint64_t first_step, uint64_t steps) {
  if (!output->terminal || output->json) {
    return NULL;
  }
  struct progress *progress = mr_allocate(1, sizeof *progress);
  if (progress == NULL) {
    return NULL;
  }
  struct mr_plan_summary summary = {.size_bytes = sizeof summary};
  mr_plan_summarize(mr_run_plan(run), &summary);
  progress->output = output;
  progress->run = run;
  progress->first_step = first_step;
  progress->step = first_step - 1;
  progress->steps = steps;
  progress->step_started = mr_clock_seconds();
  progress->step_predicted = summary.predicted_seconds;
  pthread_condattr_t monotonic;
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_cond_init(&progress->changed, &monotonic);
  pthread_condattr_destroy(&monotonic);
  pthread_mutex_init(&progress->mutex, NULL);
  int error = pthread_create(&progress->thread, NULL, redraw, progress);
  if (error != 0) {
    mr_log(MR_LOG_WARN, "no thread for the progress bar: %s", strerrordesc_np(error));
    free(progress);
    return NULL;
  }
  return progress;
}

void progress_step(struct progress *progress, const struct trainer_step *step) {
  if (progress == NULL) {
    return;
  }
  const struct mr_step_report *report = &step->report;
  pthread_mutex_lock(&progress->mutex);
  progress->step = step->step;
  progress->loss = step->loss;
  progress->tokens_per_second = step->tokens_per_second;
  for (int link = 0; link < MR_LINK_COUNT; link++) {
    progress->link_rates[link] =
        report->seconds > 0 ? (double)report->moved_bytes[link] / report->seconds : 0;
  }
  progress->step_started = mr_clock_seconds();
  pthread_mutex_unlock(&progress->mutex);
}

void progress_stop(struct progress *progress) {
  if (progress == NULL) {
    return;
  }
  pthread_mutex_lock(&progress->mutex);
  progress->stopping = true;
  pthread_cond_signal(&progress->changed);
  pthread_mutex_unlock(&progress->mutex);
  pthread_join(progress->thread, NULL);
  output_status(progress->output, "");
  pthread_cond_destroy(&progress->changed);
  pthread_mutex_destroy(&progress->mutex);
  free(progress);
}
