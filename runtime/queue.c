/* SPDX-License-Identifier: Apache-2.0 */
/* The queues of the links and of the host: threads that follow their instructions, step after step.
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/runtime.h"

#define STACK_BYTES (256ull << 10)
/* How often a wait looks whether anything still moves. */
#define WATCH_NS 1000000000ull
/* Threads of a run that failed because nothing moved for too long end in this time, or not at all.
 */
#define GRACE_NS 1000000000ull

static void wake_all(struct mr_run *run) {
  atomic_store(&run->stop, true);
  for (uint32_t q = 0; q < MR_QUEUE_COUNT; q++) {
    mr_counter_wake(&run->queues[q].done);
    mr_counter_wake(&run->queues[q].enqueued);
  }
  mr_counter_wake(&run->steps);
}

/* Keeps the first failure; whether this is it. */
static bool keep_failure(struct mr_run *run, mr_status status) {
  MR_ASSERT(status != MR_OK);
  pthread_mutex_lock(&run->status_lock);
  bool first = run->status == MR_OK;
  run->status = first ? status : run->status;
  pthread_mutex_unlock(&run->status_lock);
  return first;
}

void mr_run_fail(struct mr_run *run, mr_status status) {
  (void)keep_failure(run, status);
  wake_all(run);
}

mr_status mr_run_status(struct mr_run *run) {
  pthread_mutex_lock(&run->status_lock);
  mr_status status = run->status;
  pthread_mutex_unlock(&run->status_lock);
  return status;
}

/* Changes whenever anything moves on: counters, bytes of the store. */
static uint64_t progress_mark(const struct mr_run *run) {
  uint64_t mark = 0;
  for (uint32_t q = 0; q < MR_QUEUE_COUNT; q++) {
    mark = mark * 1000003u + mr_counter_load(&run->queues[q].done);
    mark = mark * 1000003u + mr_counter_load(&run->queues[q].enqueued);
  }
  if (run->store != NULL) {
    struct mr_store_stats stats;
    mr_store_get_stats(run->store, &stats);
    mark = mark * 1000003u + stats.read_bytes;
    mark = mark * 1000003u + stats.written_bytes;
  }
  return mark;
}

/* Whether the queue's stream has an op or a copy. What a stream has waits for other streams at
 * most, which have what it waits for. */
static bool stream_works(const struct mr_queue *queue) {
  return queue->stream != NULL &&
         mr_counter_load(&queue->enqueued) != mr_counter_load(&queue->done);
}

/* An op or a copy of the processor may take as long as it takes: it runs, it does not wait. */
static bool processor_works(const struct mr_run *run) {
  for (uint32_t q = 0; q < MR_QUEUE_COUNT; q++) {
    if (atomic_load(&run->queues[q].op_started_ns) != 0) {
      return true;
    }
  }
  return false;
}

bool mr_queues_busy(struct mr_run *run) {
  bool busy = false;
  for (uint32_t link = 0; link < MR_LINK_COUNT && !busy; link++) {
    struct mr_queue *queue = &run->queues[MR_QUEUE_OF(link)];
    busy = stream_works(queue) || atomic_load(&queue->op_started_ns) != 0;
    if (queue->transfers != NULL && queue->count != 0) {
      pthread_mutex_lock(&queue->lock);
      busy = queue->in_flight_bytes != 0;
      pthread_mutex_unlock(&queue->lock);
    }
  }
  return busy;
}

const char *mr_instruction_name(const struct mr_run *run,
                                const struct mr_instruction *instruction) {
  const struct mr_graph *program = run->layout->program;
  if (instruction->instance == MR_NO_INSTANCE) {
    return program->ops[instruction->op].name;
  }
  mr_tensor_id tensor = run->layout->instances[instruction->instance].tensor;
  return program->tensors[tensor].name;
}

struct mr_work mr_instruction_work(const struct mr_run *run,
                                   const struct mr_instruction *instruction) {
  bool op = instruction->instance == MR_NO_INSTANCE;
  return (struct mr_work){
      .kind = op ? "op" : "tensor",
      .name = mr_instruction_name(run, instruction),
      .bytes = op ? run->layout->program->ops[instruction->op].memory_bytes
                  : run->layout->instances[instruction->instance].bytes,
  };
}

const char *mr_queue_name(uint32_t index) {
  if (index == MR_QUEUE_HOST) {
    return "the host";
  }
  return index == MR_QUEUE_COMPUTE ? "compute" : mr_link_names[index - MR_QUEUE_OF(0)];
}

/* The first of a queue that is not done. */
static const struct mr_instruction *first_undone(const struct mr_queue *queue) {
  uint32_t base = (mr_counter_load(&queue->run->steps) - 1) * queue->count;
  int32_t ahead = (int32_t)(mr_counter_load(&queue->done) - base);
  uint32_t index = ahead < 0 ? queue->count - (uint32_t)-ahead : (uint32_t)ahead;
  return &queue->instructions[index % queue->count];
}

/* The queue whose stream works: best one whose work has begun and so waits for no other stream.
 * NULL: no stream works. */
static const struct mr_queue *find_hung(const struct mr_run *run) {
  const struct mr_queue *hung = NULL;
  for (uint32_t q = 0; q < MR_QUEUE_COUNT; q++) {
    const struct mr_queue *queue = &run->queues[q];
    if (!stream_works(queue)) continue;
    uint32_t mark = (uint32_t)(first_undone(queue) - queue->instructions);
    if (run->device_ops->streams->has_begun(queue->stream, mark)) {
      return queue;
    }
    hung = hung == NULL ? queue : hung;
  }
  return hung;
}

static void report_hung(const struct mr_queue *hung, double age_seconds) {
  const struct mr_run *run = hung->run;
  const struct mr_instruction *instruction = first_undone(hung);
  bool compute = hung->index == MR_QUEUE_COMPUTE;
  mr_log(MR_LOG_ERROR,
         "device %s hangs: %s%s of step %llu (%s) has not ended, and nothing has moved for %.1f s "
         "(time limit %.1f s); the run can only be left, and go on from its last checkpoint; raise "
         "--io-timeout if it may take so long",
         run->device_ops->name, compute ? "op " : "the copy of tensor ",
         mr_instruction_name(run, instruction), (unsigned long long)run->step_index,
         mr_queue_name(hung->index), age_seconds, mr_settings_watch_seconds(&run->plan->settings));
}

static void report_stuck(struct mr_queue *queue, const struct mr_queue *awaited,
                         const struct mr_instruction *instruction, double age_seconds) {
  const struct mr_run *run = queue->run;
  const struct mr_queue *hung = find_hung(run);
  if (hung != NULL) {
    report_hung(hung, age_seconds);
    return;
  }
  const struct mr_instruction *stuck = first_undone(awaited);
  mr_log(MR_LOG_ERROR,
         "%s of %s has waited %.1f s for %s of %s, and nothing has moved since (time limit %.1f s)",
         mr_queue_name(queue->index), mr_instruction_name(run, instruction), age_seconds,
         mr_queue_name(awaited->index), mr_instruction_name(run, stuck),
         run->plan->settings.io_timeout_seconds);
}

bool mr_queue_await(struct mr_queue *queue, struct mr_queue *awaited, struct mr_counter *counter,
                    uint32_t target, const struct mr_instruction *instruction) {
  struct mr_run *run = queue->run;
  if (mr_counter_wait(counter, target, &run->stop, 0)) {
    return true;
  }
  if (queue->index == MR_QUEUE_COMPUTE && awaited->transfers != NULL && !run->layout->even_drive) {
    mr_transfer_promote(awaited, target);
  }
  double limit = mr_settings_watch_seconds(&run->plan->settings);
  uint64_t still_since_ns = mr_clock_ns();
  uint64_t looked_ns = still_since_ns;
  uint64_t mark = progress_mark(run);
  while (!mr_counter_wait(counter, target, &run->stop, WATCH_NS)) {
    if (atomic_load(&run->stop)) {
      return false;
    }
    uint64_t now_mark = progress_mark(run);
    uint64_t now_ns = mr_clock_ns();
    bool was_stopped = now_ns - looked_ns > 2 * WATCH_NS; /* the whole process */
    looked_ns = now_ns;
    if (now_mark != mark || was_stopped || processor_works(run)) {
      mark = now_mark;
      still_since_ns = now_ns;
    }
    double age = (double)(now_ns - still_since_ns) * 1e-9;
    if (age > limit) {
      if (keep_failure(run, MR_TIMEOUT)) { /* several queues may find it at once: one line */
        report_stuck(queue, awaited, instruction, age);
      }
      wake_all(run);
      return false;
    }
  }
  return true;
}

bool mr_queue_wait(struct mr_queue *queue, const struct mr_instruction *instruction,
                   uint64_t step) {
  struct mr_run *run = queue->run;
  for (uint32_t i = 0; i < instruction->wait_count; i++) {
    const struct mr_wait *wait = &run->layout->waits[instruction->first_wait + i];
    if (wait->previous_step && step == 0) {
      continue;
    }
    struct mr_queue *awaited = &run->queues[wait->queue];
    uint32_t base = (uint32_t)(step - (wait->previous_step ? 1 : 0)) * awaited->count;
    uint32_t target = base + wait->count;
    bool over = queue->stream != NULL && awaited->stream != NULL
                    ? mr_stream_follow(queue, awaited, wait->count, target, instruction)
                    : mr_queue_await(queue, awaited, &awaited->done, target, instruction);
    if (!over) {
      return false;
    }
  }
  return !atomic_load(&run->stop);
}

mr_status mr_queue_bind(struct mr_queue *queue, const struct mr_instruction *instruction) {
  const struct mr_run *run = queue->run;
  const struct mr_program_plan *layout = run->layout;
  for (uint32_t i = 0; i < instruction->birth_count; i++) {
    mr_status status = mr_tiers_bind(run, layout->births[instruction->first_birth + i]);
    if (status != MR_OK) {
      return status;
    }
  }
  return MR_OK;
}

static void copy_instance(const struct mr_queue *queue, const struct mr_instruction *instruction) {
  const struct mr_run *run = queue->run;
  const struct mr_program_plan *layout = run->layout;
  const struct mr_slot *slot = &layout->slots[instruction->slot];
  uint64_t bytes = layout->instances[instruction->instance].bytes;
  char *device = run->addresses[instruction->instance];
  bool out = queue->index == MR_QUEUE_OF(MR_LINK_DEVICE_TO_HOST);
  uint64_t piece = 0;
  for (uint64_t at = 0; at < bytes; at += piece) {
    char *host = mr_host_place(run, slot, at, &piece);
    run->device_ops->copy(out ? host : device + at, out ? device + at : host, piece);
  }
}

static void run_copy(struct mr_queue *queue, const struct mr_instruction *instruction) {
  struct mr_run *run = queue->run;
  uint64_t bytes = run->layout->instances[instruction->instance].bytes;
  uint64_t start_ns = mr_clock_ns();
  atomic_store(&queue->op_started_ns, start_ns);
  if (queue->index == MR_QUEUE_OF(MR_LINK_DEVICE_TO_HOST)) {
    mr_taken_count_slot(run, instruction->slot);
  }
  copy_instance(queue, instruction);
  uint64_t end_ns = mr_clock_ns();
  atomic_store(&queue->op_started_ns, 0);
  atomic_fetch_add(&queue->busy_ns, end_ns - start_ns);
  atomic_fetch_add(&queue->moved_bytes, bytes);
  pthread_mutex_lock(&queue->lock);
  mr_trace_add(run->trace, queue->index, mr_instruction_name(run, instruction), bytes, start_ns,
               end_ns);
  pthread_mutex_unlock(&queue->lock);
  mr_counter_add(&queue->done, 1);
}

/* Does the move or the op, or sees to it that it is done; false where the run stopped. */
static bool start_work(struct mr_queue *queue, uint32_t index, uint64_t step) {
  if (queue->index == MR_QUEUE_HOST) {
    return mr_handover_run(queue, index);
  }
  if (queue->transfers != NULL) {
    return mr_transfer_issue(queue, index, step);
  }
  if (queue->stream != NULL) {
    return mr_stream_copy(queue, &queue->instructions[index]);
  }
  run_copy(queue, &queue->instructions[index]);
  return true;
}

/* A flush moves what its ops use, and be it between two of them alone, and what must be in its home
 * afterwards: nothing else has a value between steps. Streams and rings keep their books by what
 * they do, so they move all the same. */
static bool passes_over(const struct mr_queue *queue, const struct mr_instruction *instruction) {
  const struct mr_program_plan *layout = queue->run->layout;
  if (instruction->instance == MR_NO_INSTANCE) {
    return false;
  }
  mr_tensor_id id = layout->instances[instruction->instance].tensor;
  const struct mr_tensor *tensor = &layout->program->tensors[id];
  return atomic_load(&queue->run->round) == MR_ROUND_FLUSH && queue->stream == NULL &&
         queue->ring == NULL && !mr_tensor_goes_round(tensor) && !tensor->used_late;
}

/* Moves nothing, and counts as done. */
static void pass_over(struct mr_queue *queue, uint32_t index) {
  if (queue->transfers == NULL) {
    mr_counter_add(&queue->done, 1);
  } else {
    mr_transfer_pass(queue, index);
  }
}

static bool run_step(struct mr_queue *queue, uint64_t step) {
  for (uint32_t i = 0; i < queue->count; i++) {
    const struct mr_instruction *instruction = &queue->instructions[i];
    if (!mr_queue_wait(queue, instruction, step)) {
      return false;
    }
    mr_status status = mr_queue_bind(queue, instruction);
    if (status != MR_OK) {
      mr_run_fail(queue->run, status);
      return false;
    }
    if (passes_over(queue, instruction)) {
      pass_over(queue, i);
    } else if (!start_work(queue, i, step)) {
      return false;
    }
  }
  return true;
}

static void *queue_main(void *argument) {
  struct mr_queue *queue = argument;
  struct mr_run *run = queue->run;
  mr_status status = run->device_ops->enter == NULL ? MR_OK : run->device_ops->enter(run->device);
  if (status != MR_OK) {
    mr_run_fail(run, status);
  }
  bool going = status == MR_OK;
  for (uint64_t step = 0; going; step++) {
    going = mr_counter_wait(&run->steps, (uint32_t)(step + 1), &run->stop, UINT64_MAX) &&
            run_step(queue, step);
  }
  mr_counter_add(&run->ended, 1);
  return NULL;
}

void mr_queues_init(struct mr_run *run) {
  pthread_mutex_init(&run->status_lock, NULL);
  mr_traffic_init(&run->traffic);
  for (uint32_t q = 0; q < MR_QUEUE_COUNT; q++) {
    run->queues[q].run = run;
    run->queues[q].index = q;
    pthread_mutex_init(&run->queues[q].lock, NULL);
  }
}

mr_status mr_queues_load(struct mr_run *run) {
  mr_counter_init(&run->steps, 0);
  run->round_count = 0;
  for (uint32_t q = 0; q < MR_QUEUE_COUNT; q++) {
    struct mr_queue *queue = &run->queues[q];
    queue->count = run->layout->instruction_count[q];
    queue->instructions = run->layout->instructions[q];
    mr_counter_init(&queue->done, 0);
    mr_counter_init(&queue->enqueued, 0);
    queue->issued = queue->finished = queue->finished_index = queue->demand_until = 0;
    free(queue->transfers);
    queue->transfers = NULL;
  }
  for (uint32_t link = MR_LINK_NVME_READ; link <= MR_LINK_NVME_WRITE; link++) {
    struct mr_queue *queue = &run->queues[MR_QUEUE_OF(link)];
    queue->transfers = mr_allocate(queue->count, sizeof *queue->transfers);
    if (queue->transfers == NULL) {
      return MR_NO_MEMORY;
    }
  }
  return MR_OK;
}

mr_status mr_queue_thread(struct mr_queue *queue, void *(*start)(void *argument), void *argument) {
  struct mr_run *run = queue->run;
  pthread_attr_t attributes;
  MR_ASSERT(run->thread_count < MR_RUN_THREADS);
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, STACK_BYTES);
  int error = pthread_create(&run->threads[run->thread_count], &attributes, start, argument);
  pthread_attr_destroy(&attributes);
  if (error != 0) {
    mr_log(MR_LOG_ERROR, "no thread for queue %s: %s", mr_queue_name(queue->index),
           strerror(error));
    return MR_NO_MEMORY;
  }
  run->thread_count++;
  return MR_OK;
}

mr_status mr_queues_start(struct mr_run *run) {
  mr_traffic_watch(&run->traffic, run->store);
  mr_counter_init(&run->ended, 0);
  mr_status status = mr_streams_start(run);
  if (status == MR_OK) {
    status = mr_rings_start(run);
  }
  for (uint32_t q = 1; status == MR_OK && q < MR_QUEUE_COUNT; q++) {
    struct mr_queue *queue = &run->queues[q];
    if (queue->count != 0) {
      status = mr_queue_thread(queue, queue_main, queue);
    }
  }
  return status;
}

static void join_all(struct mr_run *run) {
  for (uint32_t i = 0; i < run->thread_count; i++) {
    pthread_join(run->threads[i], NULL);
  }
  run->thread_count = 0;
}

/* Of a run that is left: what has ended, or ever will, is nobody's to join. */
static void detach_all(struct mr_run *run) {
  for (uint32_t i = 0; i < run->thread_count; i++) {
    pthread_detach(run->threads[i]);
  }
}

/* Whether all threads end; those of a device that does not hang do when their work is over. */
static bool await_threads(struct mr_run *run) {
  double limit_ns = mr_settings_watch_seconds(&run->plan->settings) * 1e9;
  uint64_t patience_ns = mr_run_status(run) == MR_TIMEOUT ? GRACE_NS : (uint64_t)limit_ns;
  bool ended = run->device_ops->streams == NULL;
  while (!ended) {
    ended = mr_counter_wait(&run->ended, run->thread_count, NULL, patience_ns);
    if (!ended && !processor_works(run)) {
      return false;
    }
  }
  return true;
}

bool mr_queues_stop(struct mr_run *run) {
  mr_run_fail(run, MR_INTERRUPTED);
  if (!await_threads(run)) {
    if (mr_run_status(run) != MR_TIMEOUT) {
      mr_log(MR_LOG_ERROR, "device %s hangs: its work has not ended %.1f s after the run",
             run->device_ops->name, mr_settings_watch_seconds(&run->plan->settings));
    }
    detach_all(run);
    return false;
  }
  join_all(run);
  mr_streams_fini(run);
  return true;
}

void mr_queues_rest(struct mr_run *run) {
  wake_all(run);
  join_all(run);
  mr_streams_fini(run);
  atomic_store(&run->stop, false);
}

void mr_queues_fini(struct mr_run *run) {
  for (uint32_t q = 0; q < MR_QUEUE_COUNT; q++) {
    pthread_mutex_destroy(&run->queues[q].lock);
    free(run->queues[q].transfers);
  }
  mr_traffic_fini(&run->traffic);
  pthread_mutex_destroy(&run->status_lock);
}

mr_status mr_run_drain(struct mr_run *run) {
  static const struct mr_instruction last = {.instance = MR_NO_INSTANCE};
  uint32_t steps = mr_counter_load(&run->steps);
  for (uint32_t q = 1; q < MR_QUEUE_COUNT; q++) {
    struct mr_queue *queue = &run->queues[q];
    if (queue->count != 0 && !mr_queue_await(&run->queues[MR_QUEUE_COMPUTE], queue, &queue->done,
                                             steps * queue->count, &last)) {
      break;
    }
  }
  mr_taken_tell(run);
  return mr_run_status(run);
}
