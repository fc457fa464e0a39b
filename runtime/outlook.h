/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The outlook holds what was measured under the present plan against what the plan forecast: times
 * of steps and ops, busy links, and how much of the processors others took meanwhile. A plan's
 * first step counts for nothing: it warms caches and libraries up.
 *
 * What is learned comes from *typical* steps: of the last steps, the half whose times are nearest
 * the median. One in which the disk or the processor was held up by something else teaches nothing,
 * as it does not move the median either.
 */
#ifndef MEMRUN_RUNTIME_OUTLOOK_H
#define MEMRUN_RUNTIME_OUTLOOK_H

#include <stdbool.h>
#include <stdint.h>

#include <memrun/run.h>

#include "runtime/load.h"
#include "runtime/profile.h"
#include "runtime/traffic.h"

/* Steps whose median is told: enough to pass over some bad ones, few enough to sort at each step.
 */
#define MR_OUTLOOK_STEPS 63u
/* Steps of which everything is kept, to learn from. */
#define MR_LESSON_STEPS 31u
/* Steps that say something of a forecast. */
#define MR_REVIEW_STEPS 4u

/* What ops on a host apart got through, in what time, and what links moved meanwhile. */
struct mr_host_work {
  double seconds;
  uint64_t op_bytes;
  uint64_t moved_bytes;
};
/* While links moved next to nothing, or much; what is between the two teaches nothing. */
enum mr_host_spell { MR_HOST_ALONE, MR_HOST_BESIDE, MR_HOST_SPELLS };

/* What one step showed, or several together. */
struct mr_lesson {
  double seconds;
  double compute_seconds;
  double bind_seconds;
  double displaced_seconds; /* between ops that could have run: others had its processor */
  uint64_t moved_bytes[MR_LINK_COUNT];
  double busy_seconds[MR_LINK_COUNT];
  struct mr_host_work host[MR_HOST_SPELLS];
  struct mr_traffic_sums traffic;
};

/* A forecast beside the steps that it was of. */
struct mr_judged_forecast {
  double predicted_seconds;
  double median_seconds; /* 0: none was measured */
  uint64_t step_count;
};

struct mr_outlook {
  struct mr_judged_forecast before; /* as mr_outlook_judge had it when this forecast was made */
  double step_seconds[MR_OUTLOOK_STEPS]; /* of the plan's last training steps, a ring */
  uint64_t step_count;                   /* since the forecast */
  /* Rings of the plan's last steps: what each showed, and for each op of the program its seconds,
   * below 0 where a link was busy beside it and 0 where it was not timed, and the bytes that NVMe
   * moved meanwhile. */
  struct mr_lesson lessons[MR_LESSON_STEPS];
  float *op_seconds;                        /* MR_LESSON_STEPS * op count */
  float *op_bytes;                          /* the same */
  uint64_t lesson_count;                    /* since the plan took over */
  struct mr_host_work host[MR_HOST_SPELLS]; /* since the last step; the host queue's lock */
  struct mr_load_mark load_mark;
  double others_share; /* of the processors, while these steps were measured */
};

struct mr_run;

/* Nothing measured yet, for the program of run->layout. MR_NO_MEMORY leaves the outlook as it was.
 */
MR_CHECK_RESULT mr_status mr_outlook_init(struct mr_run *run);
void mr_outlook_fini(struct mr_run *run);

/* The steps so far belong to a forecast that is gone, and judged as `before` says; what ops and
 * links took stays. */
void mr_outlook_restart(struct mr_outlook *outlook, const struct mr_judged_forecast *before);

/* The last forecast that MR_REVIEW_STEPS steps were measured under, where there is one: one or two
 * steps say little of a forecast. `predicted_seconds` is the present one. */
struct mr_judged_forecast mr_outlook_judge(const struct mr_outlook *outlook,
                                           double predicted_seconds);

/* What an op took. */
struct mr_op_sample {
  double seconds;      /* 0: it was not timed in this step */
  bool crowded;        /* a link was busy beside it */
  uint64_t nvme_bytes; /* that NVMe read and wrote meanwhile */
};
void mr_outlook_record_op(struct mr_run *run, mr_op_id op, const struct mr_op_sample *sample);

/* An op on a host apart; any thread. */
void mr_outlook_record_host(struct mr_run *run, const struct mr_host_work *work);

/* Adds a step, where it is one of those that the forecast is of: a training step that runs all of
 * the plan's ops. */
void mr_outlook_record(struct mr_run *run, const struct mr_step_report *report);

/* The median step since the forecast; 0 where none was measured. */
double mr_outlook_median_seconds(const struct mr_outlook *outlook);

/* How far the median is off a forecast, as a part of it; 0 where that is less than the standard
 * error of the median by the spread of the steps: those do not contradict the forecast. */
double mr_outlook_error(const struct mr_outlook *outlook, double predicted_seconds);

/* True where others took so much of the machine that its speed cannot be learned from the steps. */
bool mr_outlook_disturbed(const struct mr_outlook *outlook);

/* The median of all the plan's steps that are kept, those before the forecast too: a spell in which
 * the machine was slower is passed over as long as it has less than half of them. 0 where none was
 * measured. */
double mr_outlook_step_seconds(const struct mr_outlook *outlook);

/* What typical steps took, and each op of the program in them, beside busy links or not; 0 where
 * none was measured. */
double mr_outlook_typical_seconds(const struct mr_run *run, double *op_seconds_out);

/* Whose rates are learned: this run's, whatever it found, or those of all runs on the machine,
 * where this one counts a part, and for NVMe only what the drive reached when it was kept at work.
 */
enum mr_lesson_scope { MR_LESSON_RUN, MR_LESSON_MACHINE };

/* Merges the rates that typical steps show into the profile's and the store's; what the steps did
 * not use stays. MR_NO_MEMORY. */
MR_CHECK_RESULT mr_status mr_outlook_learn(const struct mr_run *run, enum mr_lesson_scope scope,
                                           struct mr_profile *profile, struct mr_store_rates *nvme);

#endif
