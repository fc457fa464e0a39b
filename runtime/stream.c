/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compute and copies on a device with streams. Each of these queues has a stream with one mark for
 * each of its instructions, taken again in the next step once its former work is over. A collector
 * thread follows the marks in their order: what a queue has done becomes visible there, with the
 * time that the device took for it.
 */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/prctl.h>

#include "runtime/runtime.h"

/* The end of work that was over before anybody waited for it is not known; it is shown where its
 * queue's row ended, and the wait is taken for none where it was shorter than this. */
#define NO_WAIT_NS 20000u

/* How many ops or copies a stream may have been given that are not over. The driver takes some 1000
 * launches, copies and events before a call blocks until others are over, and an op is a dozen of
 * them at most; that many are milliseconds of work. */
#define MOST_AHEAD 64u

static bool has_stream(uint32_t index) {
  return index == MR_QUEUE_COMPUTE || index == MR_QUEUE_OF(MR_LINK_DEVICE_TO_HOST) ||
         index == MR_QUEUE_OF(MR_LINK_HOST_TO_DEVICE);
}

/* A timed mark holds its stream up: 4 us on an H200, where ops of 50 are common. So all marks are
 * timed in a plan's first steps, up to the first that teaches something, and one of so many in the
 * rounds after that, others in each. */
#define TIMED_PART 8u

/* How much later than asked for a collector may be woken; by default 50 us. */
#define TIMER_SLACK_NS 1000ul

/* ---- Failing ---- */

/* A fault shows wherever somebody asks the device next; what it had then is what may be at fault.
 */
static void tell_fault(const struct mr_run *run) {
  const struct mr_queue *queue = &run->queues[MR_QUEUE_COMPUTE];
  uint32_t done = mr_counter_load(&queue->done);
  uint32_t count = mr_counter_load(&queue->enqueued) - done;
  if (queue->stream == NULL || count == 0) {
    return;
  }
  const struct mr_work work = mr_instruction_work(run, &queue->instructions[done % queue->count]);
  mr_log(MR_LOG_ERROR,
         "device %s: the fault is that of an op or a copy before: step %llu was at op %s, %llu "
         "bytes, first of %u that had not ended; with CUDA_LAUNCH_BLOCKING=1 in the environment "
         "the call that fails is that of the op at fault",
         run->device_ops->name, (unsigned long long)run->step_index, work.name,
         (unsigned long long)work.bytes, count);
}

void mr_stream_fail(struct mr_run *run, mr_status status) {
  bool faulty = run->device_ops->faulty(run->device);
  if (faulty && !atomic_exchange(&run->fault_told, true)) {
    tell_fault(run);
  }
  mr_run_fail(run, status);
}

/* ---- Enqueuing ---- */

/* Waits until the stream has room for the next instruction, whose former work is over then; false
 * where the run stopped. */
static bool await_room(struct mr_queue *queue, const struct mr_instruction *instruction) {
  uint32_t next = mr_counter_load(&queue->enqueued);
  uint32_t most = queue->count < MOST_AHEAD ? queue->count : MOST_AHEAD;
  return mr_queue_await(queue, queue, &queue->done, next + 1 - most, instruction);
}

/* Opens the mark of the next instruction. */
static mr_status begin(struct mr_queue *queue, const struct mr_instruction *instruction) {
  const struct mr_run *run = queue->run;
  const struct mr_work work = mr_instruction_work(run, instruction);
  uint32_t mark = (uint32_t)(instruction - queue->instructions);
  uint32_t round = mr_counter_load(&queue->enqueued) / queue->count;
  bool timed = atomic_load(&run->times_all) || (round + mark) % TIMED_PART == 0;
  return run->device_ops->streams->begin(queue->stream, mark, &work, timed);
}

bool mr_stream_follow(struct mr_queue *queue, struct mr_queue *awaited, uint32_t count,
                      uint32_t target, const struct mr_instruction *instruction) {
  struct mr_run *run = queue->run;
  if ((int32_t)(mr_counter_load(&awaited->done) - target) >= 0) {
    return true;
  }
  if (!mr_queue_await(queue, awaited, &awaited->enqueued, target, instruction)) {
    return false;
  }
  /* Taken again by the next step meanwhile, the mark would only be waited for longer: that step's
   * work cannot depend on what is enqueued here, which it would have had to wait for. */
  uint32_t mark = (count == 0 ? awaited->count : count) - 1;
  const struct mr_work work = mr_instruction_work(run, instruction);
  mr_status status = run->device_ops->streams->follow(queue->stream, awaited->stream, mark, &work);
  if (status != MR_OK) {
    mr_stream_fail(run, status);
  }
  return status == MR_OK;
}

static mr_status copy_instance(struct mr_queue *queue, const struct mr_instruction *instruction) {
  struct mr_run *run = queue->run;
  const struct mr_program_plan *layout = run->layout;
  const struct mr_stream_ops *streams = run->device_ops->streams;
  const struct mr_slot *slot = &layout->slots[instruction->slot];
  char *device = run->addresses[instruction->instance];
  uint64_t bytes = layout->instances[instruction->instance].bytes;
  bool out = queue->index == MR_QUEUE_OF(MR_LINK_DEVICE_TO_HOST);
  uint64_t piece = 0;
  mr_status status = MR_OK;
  for (uint64_t at = 0; status == MR_OK && at < bytes; at += piece) {
    char *host = mr_host_place(run, slot, at, &piece);
    status = out ? streams->copy_out(queue->stream, host, device + at, piece)
                 : streams->copy_in(queue->stream, device + at, host, piece);
  }
  return status;
}

bool mr_stream_copy(struct mr_queue *queue, const struct mr_instruction *instruction) {
  struct mr_run *run = queue->run;
  if (!await_room(queue, instruction)) {
    return false;
  }
  if (queue->index == MR_QUEUE_OF(MR_LINK_DEVICE_TO_HOST)) {
    mr_taken_count_slot(run, instruction->slot);
  }
  mr_status status = begin(queue, instruction);
  if (status == MR_OK) {
    status = copy_instance(queue, instruction);
  }
  if (status == MR_OK) {
    status = run->device_ops->streams->end(queue->stream);
  }
  if (status != MR_OK) {
    mr_stream_fail(run, status);
    return false;
  }
  mr_counter_add(&queue->enqueued, 1);
  return true;
}

mr_status mr_stream_run_op(struct mr_run *run, mr_op_id id) {
  struct mr_queue *queue = &run->queues[MR_QUEUE_COMPUTE];
  const struct mr_stream_ops *streams = run->device_ops->streams;
  const struct mr_op *op = &run->layout->program->ops[id];
  if (!await_room(queue, &queue->instructions[id])) {
    return mr_run_status(run);
  }
  mr_status status = begin(queue, &queue->instructions[id]);
  if (status == MR_OK && queue->instructions[id].handed_over) {
    status = mr_handover_copy(run, id);
  } else if (status == MR_OK && !mr_run_skips(run, id)) {
    struct mr_op_call call = mr_run_call(run, id);
    call.stream = streams->handle(queue->stream);
    call.team = NULL;
    mr_taken_count_op(run, id);
    status = op->run[run->device_ops->backend](&call);
  }
  if (status == MR_OK) {
    status = streams->end(queue->stream);
  }
  if (status != MR_OK) {
    mr_stream_fail(run, status);
  }
  return status;
}

mr_status mr_stream_drain(struct mr_run *run) {
  struct mr_queue *queue = &run->queues[MR_QUEUE_COMPUTE];
  uint32_t target = mr_counter_load(&queue->enqueued);
  const struct mr_instruction *last = &queue->instructions[queue->count - 1];
  (void)mr_queue_await(queue, queue, &queue->done, target, last);
  return mr_run_status(run);
}

/* ---- Collecting ---- */

/* Adds an instruction that is over to the queue's figures; `seconds` below 0: it was not timed, and
 * is taken to have taken what it took when it was last. */
static void account(struct mr_queue *queue, const struct mr_instruction *instruction,
                    double seconds, uint64_t end_ns) {
  struct mr_run *run = queue->run;
  float *known = &queue->known_seconds[instruction - queue->instructions];
  *known = seconds < 0 ? *known : (float)seconds;
  uint64_t busy_ns = (uint64_t)((double)*known * 1e9);
  uint64_t bytes = 0;
  atomic_fetch_add(&queue->busy_ns, busy_ns);
  if (instruction->handed_over) {
    bytes = 0; /* the op itself is accounted for where it runs */
  } else if (queue->index == MR_QUEUE_COMPUTE) {
    struct mr_op_sample sample = {.seconds = fmax(seconds, 0), .crowded = mr_queues_busy(run)};
    mr_run_record_op(run, instruction->op, &sample);
    bytes = run->layout->program->ops[instruction->op].memory_bytes;
  } else {
    bytes = run->layout->instances[instruction->instance].bytes;
    atomic_fetch_add(&queue->moved_bytes, bytes);
  }
  pthread_mutex_lock(&queue->lock);
  uint64_t start_ns = mr_max_u64(end_ns - mr_min_u64(busy_ns, end_ns), queue->traced_until_ns);
  mr_trace_add(run->trace, queue->index, mr_instruction_name(run, instruction), bytes,
               mr_min_u64(start_ns, end_ns), end_ns);
  queue->traced_until_ns = end_ns;
  pthread_mutex_unlock(&queue->lock);
}

static mr_status collect(struct mr_queue *queue, uint32_t index) {
  struct mr_run *run = queue->run;
  const struct mr_instruction *instruction = &queue->instructions[index];
  uint64_t before_ns = mr_clock_ns();
  double seconds = 0;
  mr_status status = run->device_ops->streams->wait(queue->stream, index, &seconds);
  if (status != MR_OK || atomic_load(&run->stop)) {
    return status;
  }
  uint64_t now_ns = mr_clock_ns();
  uint64_t end_ns = queue->traced_until_ns + (uint64_t)(fmax(seconds, 0) * 1e9);
  if (now_ns - before_ns > NO_WAIT_NS || end_ns > now_ns) {
    end_ns = now_ns;
  }
  bool compute = queue->index == MR_QUEUE_COMPUTE;
  if (!compute || !mr_run_skips(run, instruction->op)) {
    account(queue, instruction, seconds, end_ns);
  }
  return MR_OK;
}

/* Until the run stops, or something fails. */
static mr_status collect_all(struct mr_queue *queue) {
  uint32_t index = 0;
  for (uint32_t done = 0;; done++) {
    if (!mr_counter_wait(&queue->enqueued, done + 1, &queue->run->stop, UINT64_MAX)) {
      return MR_OK;
    }
    mr_status status = collect(queue, index);
    if (status != MR_OK) {
      return status;
    }
    index = index + 1 == queue->count ? 0 : index + 1;
    mr_counter_add(&queue->done, 1);
  }
}

static void *collector_main(void *argument) {
  struct mr_queue *queue = argument;
  struct mr_run *run = queue->run;
  mr_status status = run->device_ops->enter(run->device);
  /* Naps of the device's waits are to be no longer than they are asked to be. */
  (void)prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS);
  if (status == MR_OK) {
    status = collect_all(queue);
  }
  if (status != MR_OK) {
    mr_stream_fail(run, status);
  }
  mr_counter_add(&run->ended, 1);
  return NULL;
}

mr_status mr_streams_start(struct mr_run *run) {
  const struct mr_stream_ops *streams = run->device_ops->streams;
  mr_status status = MR_OK;
  for (uint32_t q = 0; streams != NULL && status == MR_OK && q < MR_QUEUE_COUNT; q++) {
    struct mr_queue *queue = &run->queues[q];
    if (!has_stream(q) || queue->count == 0) {
      continue;
    }
    queue->traced_until_ns = mr_clock_ns(); /* what the first work may have begun at */
    queue->known_seconds = mr_allocate(queue->count, sizeof *queue->known_seconds);
    status = queue->known_seconds == NULL
                 ? MR_NO_MEMORY
                 : streams->create(run->device, queue->count, &queue->stream);
    if (status == MR_OK) {
      status = mr_queue_thread(queue, collector_main, queue);
    }
  }
  return status;
}

void mr_streams_fini(struct mr_run *run) {
  for (uint32_t q = 0; q < MR_QUEUE_COUNT; q++) {
    if (run->queues[q].stream != NULL) {
      run->device_ops->streams->destroy(run->queues[q].stream);
      run->queues[q].stream = NULL;
    }
    free(run->queues[q].known_seconds);
    run->queues[q].known_seconds = NULL;
  }
}
