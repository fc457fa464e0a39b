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
/* Links that are busy for less than this part of compute's time do not show what they cost it. */
#define LEAST_BESIDE 0.05
#define SLOWEST_PACE 0.3
#define LEAST_MOVES  100u

mr_status mr_outlook_init(struct mr_run *run) {
  uint32_t op_count = run->layout->program->op_count;
  struct mr_outlook outlook = {
      .alone = mr_allocate(op_count, sizeof *outlook.alone),
      .crowded = mr_allocate(op_count, sizeof *outlook.crowded),
  };
  if (outlook.alone == NULL || outlook.crowded == NULL) {
    free(outlook.alone);
    free(outlook.crowded);
    return MR_NO_MEMORY;
  }
  mr_outlook_fini(run);
  run->outlook = outlook;
  return MR_OK;
}

void mr_outlook_fini(struct mr_run *run) {
  free(run->outlook.alone);
  free(run->outlook.crowded);
  run->outlook = (struct mr_outlook){0};
}

void mr_outlook_record_op(struct mr_run *run, mr_op_id op, double seconds, bool crowded) {
  struct mr_op_sum *sum = crowded ? &run->outlook.crowded[op] : &run->outlook.alone[op];
  sum->seconds += seconds;
  sum->samples++;
}

void mr_outlook_record(struct mr_run *run, const struct mr_step_report *report) {
  struct mr_outlook *outlook = &run->outlook;
  if (outlook->load_mark.processors == 0) {
    mr_load_take(&outlook->load_mark);
  }
  if (atomic_load(&run->round) != MR_ROUND_TRAIN || run->step_index <= run->plan_base + 1) {
    return;
  }
  outlook->step_seconds[outlook->step_count++ % MR_OUTLOOK_STEPS] = report->seconds;
  for (uint32_t link = 0; link < MR_LINK_COUNT; link++) {
    outlook->moved_bytes[link] += report->moved_bytes[link];
    outlook->busy_seconds[link] += report->link_busy_seconds[link];
  }
  outlook->compute_seconds += report->compute_busy_seconds;
  outlook->bind_seconds += report->bind_seconds;
  outlook->measured_steps++;
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

static void merge(double *value, double now, double weight) {
  *value = (1 - weight) * *value + weight * now;
}

static void learn_link(const struct mr_outlook *outlook, mr_link link, double weight,
                       double *rate) {
  if (outlook->moved_bytes[link] >= LEAST_MOVED_BYTES &&
      outlook->busy_seconds[link] > LEAST_BUSY_SECONDS) {
    merge(rate, (double)outlook->moved_bytes[link] / outlook->busy_seconds[link], weight);
  }
}

/* Ops that ran beside no busy link teach what they take alone. One that never did teaches only
 * where nothing is known of its kind, less what the links' presence should have cost it. */
static mr_status learn_ops(const struct mr_run *run, double weight, struct mr_profile *profile) {
  const struct mr_graph *program = run->layout->program;
  const struct mr_outlook *outlook = &run->outlook;
  double *seconds = mr_allocate(program->op_count, sizeof *seconds);
  uint32_t *samples = mr_allocate(program->op_count, sizeof *samples);
  if (seconds == NULL || samples == NULL) {
    free(seconds);
    free(samples);
    return MR_NO_MEMORY;
  }
  double pace = fmin(profile->pace_beside_copy, profile->pace_beside_nvme);
  for (uint32_t k = 0; k < program->op_count; k++) {
    bool alone = outlook->alone[k].samples > 0;
    if (alone || !mr_profile_knows(profile, &program->ops[k])) {
      const struct mr_op_sum *sum = alone ? &outlook->alone[k] : &outlook->crowded[k];
      seconds[k] = sum->seconds * (alone ? 1 : pace);
      samples[k] = sum->samples;
    }
  }
  mr_profile_learn(profile, program, seconds, samples, weight);
  free(seconds);
  free(samples);
  return MR_OK;
}

/* Moves of pages by the compute queue in a step. */
static uint64_t bind_moves(const struct mr_program_plan *layout) {
  uint64_t moves = 0;
  for (uint32_t k = 0; k < layout->instruction_count[MR_QUEUE_COMPUTE]; k++) {
    moves += layout->instructions[MR_QUEUE_COMPUTE][k].bind_moves;
  }
  return moves;
}

/* What ops took beyond what they take alone, over the time in which links were busy beside them, is
 * what the links' presence costs. */
static void learn_pace(const struct mr_run *run, double weight, struct mr_profile *profile) {
  const struct mr_outlook *outlook = &run->outlook;
  const struct mr_graph *program = run->layout->program;
  double copies =
      outlook->busy_seconds[MR_LINK_DEVICE_TO_HOST] + outlook->busy_seconds[MR_LINK_HOST_TO_DEVICE];
  double nvme =
      fmax(outlook->busy_seconds[MR_LINK_NVME_READ], outlook->busy_seconds[MR_LINK_NVME_WRITE]);
  double beside = fmin(copies + nvme, outlook->compute_seconds);
  if (beside < LEAST_BESIDE * outlook->compute_seconds) {
    return;
  }
  double alone = 0;
  for (uint32_t k = 0; k < program->op_count; k++) {
    alone += mr_profile_op_seconds(profile, &program->ops[k]);
  }
  double lost = outlook->compute_seconds - alone * (double)outlook->measured_steps;
  double pace = fmin(fmax(1 - lost / beside, SLOWEST_PACE), 1);
  merge(nvme > copies ? &profile->pace_beside_nvme : &profile->pace_beside_copy, pace, weight);
}

mr_status mr_outlook_learn(const struct mr_run *run, double weight, struct mr_profile *profile,
                           struct mr_store_rates *nvme) {
  const struct mr_outlook *outlook = &run->outlook;
  mr_status status = learn_ops(run, weight, profile);
  if (status != MR_OK || outlook->measured_steps == 0) {
    return status;
  }
  learn_pace(run, weight, profile);
  uint64_t moves = bind_moves(run->layout) * outlook->measured_steps;
  if (moves > LEAST_MOVES) {
    /* 0: of a profile that does not know it. */
    merge(&profile->bind_seconds_per_move, fmax(outlook->bind_seconds / (double)moves, 1e-9),
          profile->bind_seconds_per_move > 0 ? weight : 1);
  }
  learn_link(outlook, MR_LINK_DEVICE_TO_HOST, weight, &profile->copy_bytes_per_second[0]);
  learn_link(outlook, MR_LINK_HOST_TO_DEVICE, weight, &profile->copy_bytes_per_second[1]);
  learn_link(outlook, MR_LINK_NVME_READ, weight, &nvme->read_bytes_per_second);
  learn_link(outlook, MR_LINK_NVME_WRITE, weight, &nvme->write_bytes_per_second);
  return MR_OK;
}
