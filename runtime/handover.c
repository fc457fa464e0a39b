/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ops that run on the host beside a device whose memory the processor cannot read. All that such an
 * op writes, and all of its large inputs, lie in the host tier. Its small inputs are in the
 * device's small arena: where the op stands on the compute queue, its stream copies them to pinned
 * memory of the op's own, and compute's thread leaves word whether this round runs the op at all.
 * The plan's waits see to the rest: the op comes after that copy, and the copy of the next step
 * after the op.
 */
#include <stdlib.h>

#include "runtime/runtime.h"

static const struct mr_instance *operand_of(const struct mr_run *run, mr_op_id op, uint32_t i) {
  const struct mr_program_plan *layout = run->layout;
  return &layout->instances[layout->operands[layout->first_operand[op] + i]];
}

/* Makes places in the memory at `base` the addresses of small inputs of ops on the host. Returns
 * the bytes of all. */
static uint64_t place_inputs(struct mr_run *run, char *base) {
  const struct mr_program_plan *layout = run->layout;
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < layout->instruction_count[MR_QUEUE_HOST]; i++) {
    mr_op_id id = layout->instructions[MR_QUEUE_HOST][i].op;
    for (uint32_t k = 0; k < layout->program->ops[id].input_count; k++) {
      const struct mr_instance *instance = operand_of(run, id, k);
      if (!instance->small) continue;
      run->operands[layout->first_operand[id] + k] = base + bytes;
      bytes += mr_round_up(instance->bytes, MR_HANDOVER_ALIGNMENT);
    }
  }
  return bytes;
}

mr_status mr_handover_init(struct mr_run *run) {
  struct mr_handover *handover = &run->handover;
  const struct mr_program_plan *layout = run->layout;
  uint32_t count = layout->instruction_count[MR_QUEUE_HOST];
  uint64_t bytes = mr_program_plan_handover_bytes(layout);
  handover->handed = mr_allocate(count, sizeof *handover->handed);
  handover->index = mr_allocate(layout->program->op_count, sizeof *handover->index);
  if (handover->handed == NULL || handover->index == NULL) {
    return MR_NO_MEMORY;
  }
  for (uint32_t i = 0; i < count; i++) {
    handover->index[layout->instructions[MR_QUEUE_HOST][i].op] = i;
  }
  mr_status status = mr_memory_map(bytes, MR_HANDOVER_UNIT, "small tensors for ops on the host",
                                   &handover->memory);
  if (status == MR_OK && bytes > 0) {
    status = run->device_ops->pin(run->device, handover->memory.data, handover->memory.bytes,
                                  "small tensors for ops on the host");
    handover->pinned = status == MR_OK;
  }
  if (status == MR_OK && bytes > 0) {
    uint64_t placed_bytes = place_inputs(run, handover->memory.data);
    MR_ASSERT(placed_bytes <= bytes);
  }
  return status;
}

void mr_handover_fini(struct mr_run *run, bool device_is_settled) {
  struct mr_handover *handover = &run->handover;
  if (handover->pinned) {
    run->device_ops->unpin(run->device, handover->memory.data);
  }
  if (device_is_settled) {
    mr_memory_unmap(&handover->memory);
  }
  free(handover->handed);
  free(handover->index);
  *handover = (struct mr_handover){.pinned = false};
}

mr_status mr_handover_copy(struct mr_run *run, mr_op_id id) {
  const struct mr_program_plan *layout = run->layout;
  const struct mr_queue *queue = &run->queues[MR_QUEUE_COMPUTE];
  const struct mr_op *op = &layout->program->ops[id];
  struct mr_handed *handed = &run->handover.handed[run->handover.index[id]];
  handed->skip = mr_run_skips(run, id);
  handed->mode = mr_run_call(run, id).mode;
  mr_status status = MR_OK;
  for (uint32_t i = 0; status == MR_OK && !handed->skip && i < op->input_count; i++) {
    const struct mr_instance *instance = operand_of(run, id, i);
    uint32_t operand = layout->first_operand[id] + i;
    if (instance->small) {
      status = run->device_ops->streams->copy_out(queue->stream, run->operands[operand],
                                                  run->addresses[layout->operands[operand]],
                                                  instance->bytes);
    }
  }
  mr_taken_count_op(run, id);
  return status;
}

/* What was under way counts when it is over: over many ops that makes no difference. */
static uint64_t moved_by_links(struct mr_run *run) {
  uint64_t bytes = 0;
  for (uint32_t link = 0; link < MR_LINK_COUNT; link++) {
    bytes += atomic_load(&run->queues[MR_QUEUE_OF(link)].moved_bytes);
  }
  return bytes;
}

static mr_status run_op(struct mr_queue *queue, mr_op_id id, mr_step_mode mode) {
  struct mr_run *run = queue->run;
  const struct mr_op *op = &run->layout->program->ops[id];
  struct mr_op_call call = mr_run_call(run, id);
  call.mode = mode;
  uint64_t moved_bytes = moved_by_links(run);
  uint64_t start_ns = mr_clock_ns();
  atomic_store(&queue->op_started_ns, start_ns);
  mr_status status = op->run[MR_BACKEND_CPU](&call);
  uint64_t end_ns = mr_clock_ns();
  const struct mr_host_work work = {.seconds = (double)(end_ns - start_ns) * 1e-9,
                                    .op_bytes = op->memory_bytes,
                                    .moved_bytes = moved_by_links(run) - moved_bytes};
  mr_outlook_record_host(run, &work);
  atomic_store(&queue->op_started_ns, 0);
  atomic_fetch_add(&queue->busy_ns, end_ns - start_ns);
  atomic_fetch_add(&queue->moved_bytes, op->memory_bytes);
  pthread_mutex_lock(&queue->lock);
  mr_trace_add(run->trace, queue->index, op->name, op->memory_bytes, start_ns, end_ns);
  pthread_mutex_unlock(&queue->lock);
  return status;
}

bool mr_handover_run(struct mr_queue *queue, uint32_t index) {
  const struct mr_handed handed = queue->run->handover.handed[index];
  mr_status status =
      handed.skip ? MR_OK : run_op(queue, queue->instructions[index].op, handed.mode);
  if (status != MR_OK) {
    mr_run_fail(queue->run, status);
    return false;
  }
  mr_counter_add(&queue->done, 1);
  return true;
}
