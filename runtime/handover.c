/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ops that run on the host beside a device whose memory the processor cannot read. All that such an
 * op writes, and all of its large inputs, lie in the host tier. Its small inputs are in the
 * device's small arena: where the op stands on the compute queue, its stream copies them to pinned
 * memory of the op's own, and compute's thread leaves word whether this round runs the op at all.
 * The plan's waits see to the rest: the op comes after that copy, and the copy of the next step
 * after the op.
 *
 * A copy of some bytes on the compute stream waits for its turn on the engine that carries large
 * copies out: 1 ms on an H200 whose link was at work, 389 times a step. So of ops that read the
 * same value the first alone has it copied. When it runs it gives the value to the places of the
 * others, which have run in the step before and will only run after it in this one: the host runs
 * ops in their order. Where a round leaves it out, each of the others has a copy of its own.
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/runtime.h"

static const struct mr_instance *operand_of(const struct mr_run *run, mr_op_id op, uint32_t i) {
  const struct mr_program_plan *layout = run->layout;
  return &layout->instances[layout->operands[layout->first_operand[op] + i]];
}

static uint32_t count_inputs(const struct mr_run *run) {
  const struct mr_program_plan *layout = run->layout;
  uint32_t count = 0;
  for (uint32_t i = 0; i < layout->instruction_count[MR_QUEUE_HOST]; i++) {
    mr_op_id id = layout->instructions[MR_QUEUE_HOST][i].op;
    for (uint32_t k = 0; k < layout->program->ops[id].input_count; k++) {
      count += operand_of(run, id, k)->small;
    }
  }
  return count;
}

/* Makes places in the memory at `base` the addresses of small inputs of ops on the host. Returns
 * the bytes of all. */
static uint64_t place_inputs(struct mr_run *run, char *base) {
  const struct mr_program_plan *layout = run->layout;
  struct mr_handover *handover = &run->handover;
  uint64_t bytes = 0;
  uint32_t count = 0;
  for (uint32_t i = 0; i < layout->instruction_count[MR_QUEUE_HOST]; i++) {
    mr_op_id id = layout->instructions[MR_QUEUE_HOST][i].op;
    for (uint32_t k = 0; k < layout->program->ops[id].input_count; k++) {
      const struct mr_instance *instance = operand_of(run, id, k);
      if (!instance->small) continue;
      run->operands[layout->first_operand[id] + k] = base + bytes;
      handover->inputs[count] =
          (struct mr_handed_input){base + bytes, instance->bytes, i, count, MR_NO_INPUT};
      count++;
      bytes += mr_round_up(instance->bytes, MR_HANDOVER_ALIGNMENT);
    }
    handover->first_input[i + 1] = count;
  }
  return bytes;
}

/* Joins the small inputs of an op to those that read the same values before; last[t]: the last one
 * of tensor t since it was written. */
static void join_inputs(struct mr_run *run, mr_op_id id, uint32_t *last) {
  struct mr_handover *handover = &run->handover;
  const struct mr_op *op = &run->layout->program->ops[id];
  uint32_t input = handover->first_input[handover->index[id]];
  for (uint32_t k = 0; k < op->input_count; k++) {
    if (!operand_of(run, id, k)->small) continue;
    uint32_t before = last[op->inputs[k]];
    if (before != MR_NO_INPUT) {
      MR_ASSERT(before < input);
      handover->inputs[input].giver = handover->inputs[before].giver;
      handover->inputs[before].next = input;
    }
    last[op->inputs[k]] = input++;
  }
}

/* Finds who gives which value to whom. MR_NO_MEMORY. */
static mr_status find_givers(struct mr_run *run) {
  const struct mr_program_plan *layout = run->layout;
  const struct mr_graph *program = layout->program;
  uint32_t *last = mr_allocate(program->tensor_count, sizeof *last);
  if (last == NULL) {
    return MR_NO_MEMORY;
  }
  memset(last, 0xff, program->tensor_count * sizeof *last);
  for (mr_op_id id = 0; id < program->op_count; id++) {
    if (layout->instructions[MR_QUEUE_COMPUTE][id].handed_over) {
      join_inputs(run, id, last);
    }
    for (uint32_t k = 0; k < program->ops[id].output_count; k++) {
      last[program->ops[id].outputs[k]] = MR_NO_INPUT;
    }
  }
  free(last);
  return MR_OK;
}

mr_status mr_handover_init(struct mr_run *run) {
  struct mr_handover *handover = &run->handover;
  const struct mr_program_plan *layout = run->layout;
  uint32_t count = layout->instruction_count[MR_QUEUE_HOST];
  uint64_t bytes = mr_program_plan_handover_bytes(layout);
  handover->handed = mr_allocate(count, sizeof *handover->handed);
  handover->index = mr_allocate(layout->program->op_count, sizeof *handover->index);
  handover->inputs = mr_allocate(count_inputs(run), sizeof *handover->inputs);
  handover->first_input = mr_allocate(count + 1ull, sizeof *handover->first_input);
  if (handover->handed == NULL || handover->index == NULL || handover->inputs == NULL ||
      handover->first_input == NULL) {
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
    status = find_givers(run);
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
  free(handover->inputs);
  free(handover->first_input);
  *handover = (struct mr_handover){.pinned = false};
}

/* Whether an op that runs before it in this round gives the input its value. */
static bool is_given(const struct mr_handover *handover, uint32_t input) {
  uint32_t giver = handover->inputs[input].giver;
  return giver != input && !handover->handed[handover->inputs[giver].instruction].skip;
}

mr_status mr_handover_copy(struct mr_run *run, mr_op_id id) {
  const struct mr_program_plan *layout = run->layout;
  const struct mr_queue *queue = &run->queues[MR_QUEUE_COMPUTE];
  const struct mr_handover *handover = &run->handover;
  uint32_t instruction = handover->index[id];
  struct mr_handed *handed = &handover->handed[instruction];
  uint32_t input = handover->first_input[instruction];
  mr_status status = MR_OK;
  handed->skip = mr_run_skips(run, id);
  handed->mode = mr_run_call(run, id).mode;
  for (uint32_t i = 0; status == MR_OK && i < layout->program->ops[id].input_count; i++) {
    const struct mr_instance *instance = operand_of(run, id, i);
    if (!instance->small) continue;
    if (!handed->skip && !is_given(handover, input)) {
      uint32_t operand = layout->operands[layout->first_operand[id] + i];
      status = run->device_ops->streams->copy_out(queue->stream, handover->inputs[input].place,
                                                  run->addresses[operand], instance->bytes);
    }
    input++;
  }
  mr_taken_count_op(run, id);
  return status;
}

/* What the op was handed goes to those that have it from there. */
static void give_inputs(const struct mr_handover *handover, uint32_t instruction) {
  const struct mr_handed_input *inputs = handover->inputs;
  for (uint32_t i = handover->first_input[instruction]; i < handover->first_input[instruction + 1];
       i++) {
    for (uint32_t to = inputs[i].next; inputs[i].giver == i && to != MR_NO_INPUT;
         to = inputs[to].next) {
      memcpy(inputs[to].place, inputs[i].place, inputs[i].bytes);
    }
  }
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
  mr_status status = MR_OK;
  if (!handed.skip) {
    give_inputs(&queue->run->handover, index);
    status = run_op(queue, queue->instructions[index].op, handed.mode);
  }
  if (status != MR_OK) {
    mr_run_fail(queue->run, status);
    return false;
  }
  mr_counter_add(&queue->done, 1);
  return true;
}
