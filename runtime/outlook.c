/* SPDX-License-Identifier: Apache-2.0 */
/* What a run measures under its plan, and what it learns from that. */
#include "runtime/outlook.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/runtime.h"

/* Ticks of the kernel's books are 10 ms: shorter spells say nothing. */
#define LOAD_SECONDS 0.3
/* Others that take more than this of the processors show in the times of ops. */
#define MOST_OTHERS 0.04
/* A link that moved less than this in all has shown no rate. */
#define LEAST_MOVED_BYTES  (8ull << 20)
#define LEAST_BUSY_SECONDS 1e-4

mr_status mr_outlook_init(struct mr_run *run) {
  uint32_t op_count = run->layout->program->op_count;
  struct mr_outlook outlook = {
      .op_seconds_sum = mr_allocate(op_count, sizeof *outlook.op_seconds_sum),
      .op_samples = mr_allocate(op_count, sizeof *outlook.op_samples),
  };
  if (outlook.op_seconds_sum == NULL || outlook.op_samples == NULL) {
    free(outlook.op_seconds_sum);
    free(outlook.op_samples);
    return MR_NO_MEMORY;
  }
  mr_outlook_fini(run);
  run->outlook = outlook;
  return MR_OK;
}

void mr_outlook_fini(struct mr_run *run) {
  free(run->outlook.op_seconds_sum);
  free(run->outlook.op_samples);
  run->outlook = (struct mr_outlook){0};
}

void mr_outlook_record(struct mr_run *run, mr_step_mode mode, const struct mr_step_report *report) {
  struct mr_outlook *outlook = &run->outlook;
  if (outlook->load_mark.processors == 0) {
    mr_load_take(&outlook->load_mark);
  }
  if (mode != MR_STEP_TRAIN || run->step_index <= run->plan_base + 1) {
    return;
  }
  outlook->step_seconds[outlook->step_count++ % MR_OUTLOOK_STEPS] = report->seconds;
  for (uint32_t link = 0; link < MR_LINK_COUNT; link++) {
    outlook->moved_bytes[link] += report->moved_bytes[link];
    outlook->busy_seconds[link] += report->link_busy_seconds[link];
  }
  if (mr_clock_seconds() - outlook->load_mark.wall_seconds > LOAD_SECONDS) {
    struct mr_load_mark now;
    mr_load_take(&now);
    outlook->others_share = mr_load_others_share(&outlook->load_mark, &now);
  }
}

void mr_outlook_restart(struct mr_outlook *outlook) {
  outlook->step_count = 0;
  outlook->load_mark = (struct mr_load_mark){0};
}

static int compare_seconds(const void *a, const void *b) {
  const double *first = a;
  const double *second = b;
  return (*first > *second) - (*first < *second);
}

double mr_outlook_median_seconds(const struct mr_outlook *outlook) {
  double sorted[MR_OUTLOOK_STEPS];
  uint64_t count = mr_min_u64(outlook->step_count, MR_OUTLOOK_STEPS);
  if (count == 0) {
    return 0;
  }
  memcpy(sorted, outlook->step_seconds, count * sizeof sorted[0]);
  qsort(sorted, count, sizeof sorted[0], compare_seconds);
  return (sorted[count / 2] + sorted[(count - 1) / 2]) / 2;
}

bool mr_outlook_disturbed(const struct mr_outlook *outlook) {
  return outlook->others_share > MOST_OTHERS;
}

static void learn_link(const struct mr_outlook *outlook, mr_link link, double *rate) {
  if (outlook->moved_bytes[link] >= LEAST_MOVED_BYTES &&
      outlook->busy_seconds[link] > LEAST_BUSY_SECONDS) {
    *rate = (double)outlook->moved_bytes[link] / outlook->busy_seconds[link];
  }
}

void mr_outlook_learn(const struct mr_run *run, struct mr_profile *profile,
                      struct mr_store_rates *nvme) {
  const struct mr_outlook *outlook = &run->outlook;
  mr_profile_learn(profile, run->layout->program, outlook->op_seconds_sum, outlook->op_samples, 1);
  learn_link(outlook, MR_LINK_DEVICE_TO_HOST, &profile->copy_bytes_per_second[0]);
  learn_link(outlook, MR_LINK_HOST_TO_DEVICE, &profile->copy_bytes_per_second[1]);
  learn_link(outlook, MR_LINK_NVME_READ, &nvme->read_bytes_per_second);
  learn_link(outlook, MR_LINK_NVME_WRITE, &nvme->write_bytes_per_second);
}
