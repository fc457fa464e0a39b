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
/* A rate of the drive that later runs count on wants more: caches of its own take up less. */
#define LEAST_DEEP_BYTES (256ull << 20)
/* A run counts as much as all that came before it: machines change, noise must not. */
#define MACHINE_WEIGHT 0.5
/* What ops take together that differs by more is no noise of a run that nobody disturbs: what is
 * known of them was measured while others had the machine, or the machine is another. */
#define MOST_NOISE 1.3
/* Links that are busy for less than this part of compute's time do not show what they cost it. */
#define LEAST_BESIDE 0.05
/* The most that is believed of what links cost: ops go on, if slowly, and a byte is not worth more
 * than 1 s for a GB. */
#define SLOWEST_PACE          0.3
#define MOST_SECONDS_PER_BYTE 1e-9
/* Fewer moves of pages in a step do not show what one takes: births that move none take a
 * microsecond each. */
#define LEAST_MOVES 50u
/* An op beside links that takes less than this part of what it is known to take alone is not so by
 * chance: what is known of it is wrong. */
#define LEAST_OF_KNOWN 0.8
/* Links that move less, as a part of what an op on the host gets through, leave it alone; with more
 * they show what both get through together. */
#define ALONE_SHARE  0.05
#define BESIDE_SHARE 0.25
/* Ops that keep more of their speed beside links are not held up by them. */
#define HELD_UP 0.95
/* Of a normal distribution: the standard deviation over the median distance from the median, and
 * the standard error of a median over the deviation and the root of the count, sqrt(pi / 2). */
#define DEVIATIONS_OF_MEDIAN 1.4826
#define MEDIAN_ERROR         1.2533

mr_status mr_outlook_init(struct mr_run *run) {
  uint64_t samples = (uint64_t)MR_LESSON_STEPS * run->layout->program->op_count;
  float *op_seconds = mr_allocate(samples, sizeof *op_seconds);
  float *op_bytes = mr_allocate(samples, sizeof *op_bytes);
  if (op_seconds == NULL || op_bytes == NULL) {
    free(op_seconds);
    free(op_bytes);
    return MR_NO_MEMORY;
  }
  mr_outlook_fini(run);
  run->outlook.op_seconds = op_seconds;
  run->outlook.op_bytes = op_bytes;
  return MR_OK;
}

void mr_outlook_fini(struct mr_run *run) {
  free(run->outlook.op_seconds);
  free(run->outlook.op_bytes);
  run->outlook = (struct mr_outlook){0};
}

void mr_outlook_record_op(struct mr_run *run, mr_op_id op, const struct mr_op_sample *sample) {
  struct mr_outlook *outlook = &run->outlook;
  uint64_t row = outlook->lesson_count % MR_LESSON_STEPS;
  uint64_t at = row * run->layout->program->op_count + op;
  outlook->op_seconds[at] = (float)(sample->crowded ? -sample->seconds : sample->seconds);
  outlook->op_bytes[at] = (float)sample->nvme_bytes;
}

static void add_host_work(struct mr_host_work *to, const struct mr_host_work *from) {
  to->seconds += from->seconds;
  to->op_bytes += from->op_bytes;
  to->moved_bytes += from->moved_bytes;
}

void mr_outlook_record_host(struct mr_run *run, const struct mr_host_work *work) {
  struct mr_queue *queue = &run->queues[MR_QUEUE_HOST];
  double share = (double)work->moved_bytes / fmax((double)work->op_bytes, 1);
  if (share > ALONE_SHARE && share < BESIDE_SHARE) {
    return;
  }
  pthread_mutex_lock(&queue->lock);
  add_host_work(&run->outlook.host[share <= ALONE_SHARE ? MR_HOST_ALONE : MR_HOST_BESIDE], work);
  pthread_mutex_unlock(&queue->lock);
}

static void take_host_work(struct mr_run *run, struct mr_host_work *work_out) {
  struct mr_queue *queue = &run->queues[MR_QUEUE_HOST];
  pthread_mutex_lock(&queue->lock);
  memcpy(work_out, run->outlook.host, sizeof run->outlook.host);
  memset(run->outlook.host, 0, sizeof run->outlook.host);
  pthread_mutex_unlock(&queue->lock);
}

static void look_at_load(struct mr_outlook *outlook) {
  if (mr_clock_seconds() - outlook->load_mark.wall_seconds > LOAD_SECONDS) {
    struct mr_load_mark now;
    mr_load_take(&now);
    outlook->others_share = mr_load_others_share(&outlook->load_mark, &now);
  }
}

/* What a step took beyond all that its ops did and waited for. */
static double displaced_seconds(const struct mr_step_report *report) {
  double known = report->compute_busy_seconds + report->stall_seconds + report->bind_seconds;
  return fmax(report->seconds - known, 0);
}

void mr_outlook_record(struct mr_run *run, const struct mr_step_report *report) {
  struct mr_outlook *outlook = &run->outlook;
  struct mr_lesson lesson = {.seconds = report->seconds,
                             .compute_seconds = report->compute_busy_seconds,
                             .bind_seconds = report->bind_seconds,
                             .displaced_seconds = displaced_seconds(report)};
  take_host_work(run, lesson.host);
  mr_traffic_take(&run->traffic, &lesson.traffic);
  if (outlook->load_mark.processors == 0) {
    mr_load_take(&outlook->load_mark);
  }
  if (atomic_load(&run->round) != MR_ROUND_TRAIN || run->step_index <= run->plan_base + 1) {
    return;
  }
  memcpy(lesson.moved_bytes, report->moved_bytes, sizeof lesson.moved_bytes);
  memcpy(lesson.busy_seconds, report->link_busy_seconds, sizeof lesson.busy_seconds);
  outlook->lessons[outlook->lesson_count % MR_LESSON_STEPS] = lesson;
  outlook->step_seconds[outlook->lesson_count % MR_OUTLOOK_STEPS] = report->seconds;
  outlook->lesson_count++;
  outlook->step_count++;
  look_at_load(outlook);
}

void mr_outlook_restart(struct mr_outlook *outlook, const struct mr_judged_forecast *before) {
  outlook->before = *before;
  outlook->step_count = 0;
  outlook->load_mark = (struct mr_load_mark){0};
}

static int compare_seconds(const void *a, const void *b) {
  const double *first = a;
  const double *second = b;
  return (*first > *second) - (*first < *second);
}

static double median_of(double *seconds, uint64_t count) {
  qsort(seconds, count, sizeof seconds[0], compare_seconds);
  return count == 0 ? 0 : (seconds[count / 2] + seconds[(count - 1) / 2]) / 2;
}

/* The median of the last steps, `wanted` of them or as many as are kept: *count_out, their times in
 * `seconds_out` in order. */
static double median_of_last(const struct mr_outlook *outlook, uint64_t wanted, double *seconds_out,
                             uint64_t *count_out) {
  uint64_t count = mr_min_u64(wanted, MR_OUTLOOK_STEPS);
  for (uint64_t i = 0; i < count; i++) {
    seconds_out[i] = outlook->step_seconds[(outlook->lesson_count - 1 - i) % MR_OUTLOOK_STEPS];
  }
  *count_out = count;
  return median_of(seconds_out, count);
}

double mr_outlook_median_seconds(const struct mr_outlook *outlook) {
  double sorted[MR_OUTLOOK_STEPS];
  uint64_t count = 0;
  return median_of_last(outlook, outlook->step_count, sorted, &count);
}

double mr_outlook_step_seconds(const struct mr_outlook *outlook) {
  double sorted[MR_OUTLOOK_STEPS];
  uint64_t count = 0;
  return median_of_last(outlook, outlook->lesson_count, sorted, &count);
}

double mr_outlook_error(const struct mr_outlook *outlook, double predicted_seconds) {
  double away[MR_OUTLOOK_STEPS];
  uint64_t count = 0;
  double median = median_of_last(outlook, outlook->step_count, away, &count);
  for (uint64_t i = 0; i < count; i++) {
    away[i] = fabs(away[i] - median);
  }
  double deviation = DEVIATIONS_OF_MEDIAN * median_of(away, count);
  double chance = MEDIAN_ERROR * deviation / sqrt(fmax((double)count, 1));
  double error = fabs(median - predicted_seconds);
  return count > 0 && error > chance ? error / predicted_seconds : 0;
}

struct mr_judged_forecast mr_outlook_judge(const struct mr_outlook *outlook,
                                           double predicted_seconds) {
  if (outlook->step_count < MR_REVIEW_STEPS && outlook->before.step_count >= MR_REVIEW_STEPS) {
    return outlook->before;
  }
  return (struct mr_judged_forecast){predicted_seconds, mr_outlook_median_seconds(outlook),
                                     mr_min_u64(outlook->step_count, MR_OUTLOOK_STEPS)};
}

bool mr_outlook_disturbed(const struct mr_outlook *outlook) {
  return outlook->others_share > MOST_OTHERS;
}

/* The typical steps: rows of the rings, and what they showed together. */
struct typical {
  uint32_t rows[MR_LESSON_STEPS];
  uint32_t count;
  struct mr_lesson sums;
  double crowding; /* what ops beside links took, displaced time and all, over what they ran */
};

static void add_row(const struct mr_outlook *outlook, uint32_t row, struct typical *typical) {
  const struct mr_lesson *lesson = &outlook->lessons[row];
  struct mr_lesson *sums = &typical->sums;
  typical->rows[typical->count++] = row;
  sums->seconds += lesson->seconds;
  sums->compute_seconds += lesson->compute_seconds;
  sums->bind_seconds += lesson->bind_seconds;
  sums->displaced_seconds += lesson->displaced_seconds;
  for (uint32_t i = 0; i < MR_HOST_SPELLS; i++) {
    add_host_work(&sums->host[i], &lesson->host[i]);
  }
  for (uint32_t link = 0; link < MR_LINK_COUNT; link++) {
    sums->moved_bytes[link] += lesson->moved_bytes[link];
    sums->busy_seconds[link] += lesson->busy_seconds[link];
  }
  mr_traffic_add(&sums->traffic, &lesson->traffic);
}

static uint32_t kept_rows(const struct mr_outlook *outlook) {
  return (uint32_t)mr_min_u64(outlook->lesson_count, MR_LESSON_STEPS);
}

/* Who moves bytes displaces the thread that starts ops as it does those in ops, and that shows in
 * no op: it is shared by all that ran beside links, where they are enough to have shown it. */
static double crowding(const struct mr_outlook *outlook, const struct typical *typical,
                       uint32_t op_count) {
  double crowded = 0;
  for (uint32_t i = 0; i < typical->count; i++) {
    const float *row = outlook->op_seconds + (uint64_t)typical->rows[i] * op_count;
    for (uint32_t k = 0; k < op_count; k++) {
      crowded -= fmin((double)row[k], 0);
    }
  }
  bool shown = crowded >= LEAST_BESIDE * typical->sums.compute_seconds && crowded > 0;
  return shown ? 1 + typical->sums.displaced_seconds / crowded : 1;
}

/* Rows in the order of their steps' times; a quarter is left out at each end. */
static void find_typical(const struct mr_run *run, struct typical *typical) {
  const struct mr_outlook *outlook = &run->outlook;
  uint32_t sorted[MR_LESSON_STEPS];
  uint32_t count = kept_rows(outlook);
  for (uint32_t row = 0; row < count; row++) {
    uint32_t place = row;
    while (place > 0 &&
           outlook->lessons[sorted[place - 1]].seconds > outlook->lessons[row].seconds) {
      sorted[place] = sorted[place - 1];
      place--;
    }
    sorted[place] = row;
  }
  *typical = (struct typical){0};
  uint32_t left_out = count < 3 ? 0 : (count + 1) / 4;
  for (uint32_t i = left_out; i < count - left_out; i++) {
    add_row(outlook, sorted[i], typical);
  }
  typical->crowding = crowding(outlook, typical, run->layout->program->op_count);
}

static void merge(double *value, double now, double weight) {
  *value = (1 - weight) * *value + weight * now;
}

/* A rate of the machine, or what it is the inverse of. */
static void merge_rate(double *known, double now, double weight) {
  merge(known, now, mr_profile_refutes(*known, now) ? 1 : weight);
}

/* What links do beside ops is reckoned, or measured beside other ops, until a run shows it: that
 * counts alone. */
static double first_counts(bool learned, double weight) {
  return learned ? weight : 1;
}

/* What an op showed; means, 0 where it never ran so. */
struct typical_op {
  double alone_seconds; /* when no link was busy beside it */
  double crowded_seconds;
  double crowded_bytes; /* that NVMe moved then */
  double crowded_share; /* of the steps in which it was timed */
};

/* Adds what the op showed in one row, where it was timed. */
static void add_sample(const struct mr_run *run, uint32_t row, mr_op_id op, uint32_t counts[2],
                       struct typical_op *sums) {
  const struct mr_outlook *outlook = &run->outlook;
  uint64_t at = (uint64_t)row * run->layout->program->op_count + op;
  double seconds = (double)outlook->op_seconds[at];
  if (seconds < 0) {
    sums->crowded_seconds -= seconds;
    sums->crowded_bytes += (double)outlook->op_bytes[at];
    counts[1]++;
  } else if (seconds > 0) {
    sums->alone_seconds += seconds;
    counts[0]++;
  }
}

/* In typical steps; where it was timed in none of them, in all that are kept. */
static void find_typical_op(const struct mr_run *run, const struct typical *typical, mr_op_id op,
                            struct typical_op *found_out) {
  struct typical_op found = {0};
  uint32_t counts[2] = {0}; /* alone, crowded */
  for (uint32_t i = 0; i < typical->count; i++) {
    add_sample(run, typical->rows[i], op, counts, &found);
  }
  for (uint32_t row = 0; counts[0] + counts[1] == 0 && row < kept_rows(&run->outlook); row++) {
    add_sample(run, row, op, counts, &found);
  }
  found.alone_seconds /= fmax(counts[0], 1);
  found.crowded_seconds *= typical->crowding / fmax(counts[1], 1);
  found.crowded_bytes /= fmax(counts[1], 1);
  found.crowded_share = counts[1] / fmax(counts[0] + counts[1], 1);
  *found_out = found;
}

static double mean_seconds(const struct typical *typical) {
  return typical->count == 0 ? 0 : typical->sums.seconds / typical->count;
}

double mr_outlook_typical_seconds(const struct mr_run *run, double *op_seconds_out) {
  uint32_t op_count = run->layout->program->op_count;
  struct typical typical;
  find_typical(run, &typical);
  for (uint32_t k = 0; k < op_count; k++) {
    struct typical_op op;
    find_typical_op(run, &typical, k, &op);
    op_seconds_out[k] =
        (1 - op.crowded_share) * op.alone_seconds + op.crowded_share * op.crowded_seconds;
  }
  return mean_seconds(&typical);
}

/* What a run teaches. */
struct learned {
  struct mr_profile *profile;
  struct mr_store_rates *nvme;
  double weight; /* of the new */
};

/* Whether the profile knows what an op takes alone, and that can be: no link makes ops faster, or
 * slower than is believed of any. Rates that are wrong by more were learned on a machine that has
 * changed since, or of other kernels. */
static bool is_known(const struct mr_profile *profile, const struct mr_op *op,
                     const struct typical_op *typical) {
  double crowded = typical->crowded_seconds;
  double known = mr_profile_knows(profile, op) ? mr_profile_op_seconds(profile, op) : 0;
  return known > 0 && LEAST_OF_KNOWN * known <= crowded && known >= SLOWEST_PACE * crowded;
}

static double copy_seconds(const struct typical *typical) {
  const double *busy = typical->sums.busy_seconds;
  return (busy[MR_LINK_DEVICE_TO_HOST] + busy[MR_LINK_HOST_TO_DEVICE]) / typical->count;
}

/* The pace of ops beside links, of which copies are some for a part of the time. */
static double pace_beside(const struct mr_run *run, const struct typical *typical,
                          const struct mr_profile *profile) {
  double crowded = 0;
  for (uint32_t k = 0; k < run->layout->program->op_count; k++) {
    struct typical_op op;
    find_typical_op(run, typical, k, &op);
    crowded += op.crowded_share * op.crowded_seconds;
  }
  double share = crowded > 0 ? fmin(copy_seconds(typical) / crowded, 1) : 0;
  return 1 - share * (1 - profile->pace_beside_copy);
}

/* How much what the ops took counts; 0 seconds: not measured. */
static double weight_of_ops(const struct learned *learned, const struct mr_graph *program,
                            const double *seconds) {
  double now = 0;
  double known = 0;
  for (uint32_t k = 0; k < program->op_count; k++) {
    const struct mr_op *op = &program->ops[k];
    if (seconds[k] > 0 && mr_profile_knows(learned->profile, op)) {
      now += seconds[k];
      known += mr_profile_op_seconds(learned->profile, op);
    }
  }
  return now > MOST_NOISE * known || known > MOST_NOISE * now ? 1 : learned->weight;
}

/* Ops that ran beside no busy link teach what they take alone. One that never did teaches only
 * where nothing is known of it, or what is known cannot be: what it took, less what the links'
 * presence should have cost it. */
static mr_status learn_ops(const struct mr_run *run, const struct typical *typical,
                           const struct learned *learned) {
  const struct mr_graph *program = run->layout->program;
  double pace = pace_beside(run, typical, learned->profile);
  double *seconds = mr_allocate(program->op_count, sizeof *seconds);
  if (seconds == NULL) {
    return MR_NO_MEMORY;
  }
  for (uint32_t k = 0; k < program->op_count; k++) {
    struct typical_op op;
    find_typical_op(run, typical, k, &op);
    seconds[k] = op.alone_seconds;
    if (!(seconds[k] > 0) && !is_known(learned->profile, &program->ops[k], &op)) {
      double lost = op.crowded_bytes * learned->nvme->op_seconds_per_byte;
      seconds[k] = pace * fmax(op.crowded_seconds - lost, SLOWEST_PACE * op.crowded_seconds);
    }
  }
  double weight = weight_of_ops(learned, program, seconds);
  mr_profile_learn(learned->profile, program, seconds, weight);
  free(seconds);
  return MR_OK;
}

/* What ops of a step whose time alone is known took beside links, and lost to them. */
struct beside {
  double seconds;
  double lost_seconds;
  double nvme_bytes; /* that moved meanwhile */
};

static void add_beside(const struct mr_profile *profile, const struct mr_op *op,
                       const struct typical_op *typical, struct beside *beside) {
  double alone = typical->alone_seconds;
  if (!(alone > 0) && is_known(profile, op, typical)) {
    alone = mr_profile_op_seconds(profile, op);
  }
  if (alone > 0) {
    double share = typical->crowded_share;
    beside->seconds += share * typical->crowded_seconds;
    beside->lost_seconds += share * (typical->crowded_seconds - alone);
    beside->nvme_bytes += share * typical->crowded_bytes;
  }
}

static void find_beside(const struct mr_run *run, const struct typical *typical,
                        const struct mr_profile *profile, struct beside *beside_out) {
  const struct mr_graph *program = run->layout->program;
  *beside_out = (struct beside){0};
  for (uint32_t k = 0; k < program->op_count; k++) {
    struct typical_op op;
    find_typical_op(run, typical, k, &op);
    add_beside(profile, &program->ops[k], &op, beside_out);
  }
}

/*
 * What ops took beyond what they take alone is what the links' presence cost: for the time in which
 * copies were under way, and for the bytes that NVMe moved meanwhile. Where a run has both, the one
 * that should have cost less is taken to have cost what was known of it.
 */
static void learn_presence(const struct mr_run *run, const struct typical *typical,
                           const struct learned *learned) {
  const struct mr_lesson *sums = &typical->sums;
  struct beside beside;
  find_beside(run, typical, learned->profile, &beside);
  if (beside.seconds * typical->count < LEAST_BESIDE * sums->compute_seconds) {
    return;
  }
  double *pace = &learned->profile->pace_beside_copy;
  double *cost = &learned->nvme->op_seconds_per_byte;
  double copying = fmin(copy_seconds(typical), beside.seconds);
  double by_copies = copying * (1 - *pace);
  double by_nvme = beside.nvme_bytes * *cost;
  bool copies = copying * typical->count >= LEAST_BESIDE * sums->compute_seconds;
  bool nvme = beside.nvme_bytes >= LEAST_MOVED_BYTES;
  if (copies && (by_copies >= by_nvme || !nvme)) {
    double now = 1 - (beside.lost_seconds - by_nvme) / copying;
    merge(pace, fmin(fmax(now, SLOWEST_PACE), 1),
          first_counts(learned->profile->copies_learned, learned->weight));
    learned->profile->copies_learned = true;
  } else if (nvme) {
    double now = (beside.lost_seconds - by_copies) / beside.nvme_bytes;
    merge(cost, fmin(fmax(now, 0), MOST_SECONDS_PER_BYTE),
          first_counts(learned->nvme->cost_learned, learned->weight));
    learned->nvme->cost_learned = true;
  }
}

/* Moves of pages by the compute queue in a step. */
static uint64_t bind_moves(const struct mr_program_plan *layout) {
  uint64_t moves = 0;
  for (uint32_t k = 0; k < layout->instruction_count[MR_QUEUE_COMPUTE]; k++) {
    moves += layout->instructions[MR_QUEUE_COMPUTE][k].bind_moves;
  }
  return moves;
}

static void learn_moves(const struct mr_run *run, const struct typical *typical, double weight,
                        struct mr_profile *profile) {
  uint64_t moves = bind_moves(run->layout);
  if (moves >= LEAST_MOVES && typical->count > 0) {
    double each = typical->sums.bind_seconds / (double)(moves * typical->count);
    merge_rate(&profile->bind_seconds_per_move, fmax(each, 1e-9), weight);
  }
}

/* A link that staged NVMe crosses carried that beside the copies, as much in any second of a step.
 */
static void learn_copies(const struct mr_run *run, const struct mr_lesson *sums, double weight,
                         struct mr_profile *profile) {
  static const mr_link crossing[] = {
      [MR_LINK_DEVICE_TO_HOST] = MR_LINK_NVME_WRITE, [MR_LINK_HOST_TO_DEVICE] = MR_LINK_NVME_READ};
  for (uint32_t link = MR_LINK_DEVICE_TO_HOST; link <= MR_LINK_HOST_TO_DEVICE; link++) {
    if (sums->moved_bytes[link] >= LEAST_MOVED_BYTES &&
        sums->busy_seconds[link] > LEAST_BUSY_SECONDS) {
      double rate = (double)sums->moved_bytes[link] / sums->busy_seconds[link];
      if (run->plan->problem.nvme_staged && sums->seconds > 0) {
        rate += (double)sums->moved_bytes[crossing[link]] / sums->seconds;
      }
      merge_rate(&profile->copy_bytes_per_second[link], rate,
                 first_counts(profile->copies_learned, weight));
    }
  }
}

static bool shows_a_rate(const struct mr_host_work *work) {
  return work->op_bytes >= LEAST_MOVED_BYTES && work->seconds > LEAST_BUSY_SECONDS;
}

/* Ops beside moves show what the host's memory does for both, where it holds them up. */
static void learn_host(const struct mr_lesson *sums, double weight, struct mr_profile *profile) {
  const struct mr_host_work *alone = &sums->host[MR_HOST_ALONE];
  const struct mr_host_work *beside = &sums->host[MR_HOST_BESIDE];
  double *all = &profile->host_memory_bytes_per_second;
  if (shows_a_rate(alone)) {
    merge_rate(&profile->host_bytes_per_second, (double)alone->op_bytes / alone->seconds, weight);
  }
  if (shows_a_rate(beside)) {
    double now = (double)(beside->op_bytes + beside->moved_bytes) / beside->seconds;
    double rate = (double)beside->op_bytes / beside->seconds;
    bool held_up = rate < HELD_UP * profile->host_bytes_per_second;
    if (held_up || (*all > 0 && now > *all)) {
      merge_rate(all, now, weight);
    }
  }
}

static void learn_nvme(const struct mr_traffic_sums *traffic, enum mr_lesson_scope scope,
                       double weight, struct mr_store_rates *nvme) {
  double *const rates[] = {[MR_TRAFFIC_READS] = &nvme->read_bytes_per_second,
                           [MR_TRAFFIC_WRITES] = &nvme->write_bytes_per_second,
                           [MR_TRAFFIC_BOTH] = &nvme->mixed_bytes_per_second};
  bool deep = scope == MR_LESSON_MACHINE;
  for (uint32_t what = MR_TRAFFIC_READS; what <= MR_TRAFFIC_BOTH; what++) {
    double rate = mr_traffic_rate(traffic, what, deep, deep ? LEAST_DEEP_BYTES : LEAST_MOVED_BYTES);
    if (rate > 0) {
      merge_rate(rates[what], rate, weight);
    }
  }
}

mr_status mr_outlook_learn(const struct mr_run *run, enum mr_lesson_scope scope,
                           struct mr_profile *profile, struct mr_store_rates *nvme) {
  double weight = scope == MR_LESSON_RUN ? 1 : MACHINE_WEIGHT;
  struct typical typical;
  find_typical(run, &typical);
  if (typical.count == 0) {
    return MR_OK;
  }
  struct learned learned = {profile, nvme, weight};
  /* Before ops: what they took alone, as far as only the profile knows, is from other runs. */
  learn_copies(run, &typical.sums, weight, profile);
  learn_presence(run, &typical, &learned);
  learn_moves(run, &typical, weight, profile);
  learn_host(&typical.sums, weight, profile);
  learn_nvme(&typical.sums.traffic, scope, weight, nvme);
  return learn_ops(run, &typical, &learned);
}
