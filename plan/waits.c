/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waits from hazards. The total order of a step is walked twice, so that the second walk sees what
 * the step before left behind. Every instance, host slot and extent remembers who wrote it last and
 * the last access of each queue; every page remembers its last owner. Whoever reads waits for the
 * last writer, whoever writes waits for every access since; the first touch of a stay waits for all
 * that its pages' owners before did. A write that was put off for the sake of reads also waits for
 * the op that it was put off to. A wait is left out where the queue's own order or another wait
 * implies it, which vector clocks tell: entry q of an instruction's clock is how many instructions
 * of queue q are finished whenever it starts.
 */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "plan/stages.h"

#define WALKS     2u
#define NO_OWNER  UINT32_MAX
#define NO_WRITER UINT32_MAX

/* Counts are of instructions finished since the start of the first walk. */
struct clock {
  uint32_t count[MR_QUEUE_COUNT];
};

struct history {
  uint32_t writer_queue;
  uint32_t writer_count;
  struct clock accesses; /* since the first touch, those of the writer too */
};

struct walker {
  struct mr_program_plan *plan;
  struct history *instances;
  struct history *slots;
  struct history *extents;
  uint32_t *page_owner;                 /* instances */
  uint32_t *host_page_owner;            /* slots */
  struct clock *clocks[MR_QUEUE_COUNT]; /* WALKS * instruction_count: finished when each is */
  struct clock started[MR_QUEUE_COUNT]; /* finished when the last walked of each queue starts */
  uint32_t done[MR_QUEUE_COUNT];        /* instructions walked */
  struct clock need;                    /* of the present instruction */
  uint32_t wait_capacity;
};

static void need(struct walker *w, uint32_t queue, uint32_t count) {
  if (w->need.count[queue] < count) {
    w->need.count[queue] = count;
  }
}

static void need_all(struct walker *w, const struct clock *accesses) {
  for (uint32_t q = 0; q < MR_QUEUE_COUNT; q++) {
    need(w, q, accesses->count[q]);
  }
}

/* One access of the present instruction, which will be number `count` of its queue. */
static void access_history(struct walker *w, struct history *history, uint32_t queue, bool writes) {
  uint32_t count = w->done[queue] + 1;
  if (history->writer_queue != NO_WRITER) {
    need(w, history->writer_queue, history->writer_count);
  }
  if (writes) {
    need_all(w, &history->accesses);
    history->writer_queue = queue;
    history->writer_count = count;
  }
  history->accesses.count[queue] = count;
}

/* The first touch of a stay: its pages' former owners must be through with them. */
static void take_pages(struct walker *w, const uint32_t *pages, uint32_t count, uint32_t *owners,
                       const struct history *histories, uint32_t owner) {
  uint32_t last = NO_OWNER;
  for (uint32_t i = 0; i < count; i++) {
    uint32_t before = owners[pages[i]];
    if (before != NO_OWNER && before != last) {
      need_all(w, &histories[before].accesses);
      last = before;
    }
    owners[pages[i]] = owner;
  }
}

static void be_born(struct walker *w, uint32_t stay) {
  const struct mr_instance *instance = &w->plan->instances[stay];
  take_pages(w, &w->plan->pages[instance->first_page], instance->page_count, w->page_owner,
             w->instances, stay);
  w->instances[stay] = (struct history){.writer_queue = NO_WRITER};
}

/* Leaves out what the queue's own order or another wait implies. */
static void reduce(struct walker *w, uint32_t queue, const struct clock *own, bool *kept) {
  for (uint32_t q = 0; q < MR_QUEUE_COUNT; q++) {
    kept[q] = q != queue && w->need.count[q] > own->count[q];
  }
  for (uint32_t q = 0; q < MR_QUEUE_COUNT; q++) {
    for (uint32_t other = 0; other < MR_QUEUE_COUNT && kept[q]; other++) {
      if (other == q || other == queue || w->need.count[other] == 0) continue;
      const struct clock *implied = &w->clocks[other][w->need.count[other] - 1];
      kept[q] = implied->count[q] < w->need.count[q];
    }
  }
}

static mr_status add_wait(struct walker *w, struct mr_instruction *instruction, uint32_t queue) {
  struct mr_program_plan *plan = w->plan;
  mr_status status = mr_array_reserve((void **)&plan->waits, &w->wait_capacity,
                                      plan->wait_count + 1ull, sizeof *plan->waits);
  if (status != MR_OK) {
    return status;
  }
  uint32_t step = plan->instruction_count[queue];
  uint32_t count = w->need.count[queue];
  bool previous = count <= step;
  plan->waits[plan->wait_count++] =
      (struct mr_wait){queue, previous ? count : count - step, previous};
  instruction->wait_count++;
  return MR_OK;
}

static void join(struct clock *clock, const struct clock *other) {
  for (uint32_t q = 0; q < MR_QUEUE_COUNT; q++) {
    clock->count[q] = clock->count[q] > other->count[q] ? clock->count[q] : other->count[q];
  }
}

/* Turns what the present instruction needs into waits and its clock. */
static mr_status finish(struct walker *w, uint32_t queue, uint32_t walk) {
  struct mr_program_plan *plan = w->plan;
  uint32_t index = w->done[queue]++;
  struct clock *clock = &w->started[queue];
  if (!mr_queue_is_nvme(queue)) {
    clock->count[queue] = index;
  }
  bool kept[MR_QUEUE_COUNT];
  reduce(w, queue, clock, kept);
  struct mr_instruction *instruction =
      &plan->instructions[queue][index % plan->instruction_count[queue]];
  instruction->first_wait = plan->wait_count;
  instruction->wait_count = 0;
  for (uint32_t q = 0; q < MR_QUEUE_COUNT; q++) {
    if (kept[q] && walk == WALKS - 1) {
      mr_status status = add_wait(w, instruction, q);
      if (status != MR_OK) {
        return status;
      }
    }
    if (q != queue && w->need.count[q] > 0) {
      join(clock, &w->clocks[q][w->need.count[q] - 1]);
    }
  }
  /* What it needs of its own queue is finished by what it waits for elsewhere. */
  MR_ASSERT(!mr_queue_is_nvme(queue) || w->need.count[queue] <= clock->count[queue]);
  w->clocks[queue][index] = *clock;
  w->clocks[queue][index].count[queue] = index + 1;
  memset(&w->need, 0, sizeof w->need);
  return MR_OK;
}

static void walk_move(struct walker *w, uint32_t queue, const struct mr_instruction *move,
                      bool fetch) {
  const struct mr_program_plan *plan = w->plan;
  bool nvme = mr_queue_is_nvme(queue);
  struct history *below = nvme ? &w->extents[move->slot] : &w->slots[move->slot];
  if (move->after_op) {
    need(w, MR_QUEUE_COMPUTE, w->done[MR_QUEUE_COMPUTE]);
  }
  if (fetch) {
    be_born(w, move->instance);
  } else if (!nvme) {
    const struct mr_slot *slot = &plan->slots[move->slot];
    take_pages(w, &plan->host_pages[slot->first_page], slot->page_count, w->host_page_owner,
               w->slots, move->slot);
  }
  access_history(w, below, queue, !fetch);
  access_history(w, &w->instances[move->instance], queue, fetch);
}

/* What is known of an instance: on the host, of its slot. */
static struct history *history_of(struct walker *w, uint32_t number) {
  const struct mr_instance *instance = &w->plan->instances[number];
  return instance->on_host ? &w->slots[instance->slot] : &w->instances[number];
}

static bool writes_operand(const struct mr_op *op, uint32_t operand) {
  return operand >= op->input_count || mr_op_writes(op, op->inputs[operand]);
}

/* The op's accesses, by the queue that runs it. */
static void walk_operands(struct walker *w, mr_op_id id, uint32_t queue) {
  const struct mr_program_plan *plan = w->plan;
  const struct mr_op *op = &plan->program->ops[id];
  const uint32_t *operands = &plan->operands[plan->first_operand[id]];
  for (uint32_t i = 0; i <= op->input_count + op->output_count; i++) {
    if (operands[i] != MR_NO_INSTANCE && !plan->instances[operands[i]].small) {
      access_history(w, history_of(w, operands[i]), queue, writes_operand(op, i));
    }
  }
}

static void walk_run(struct walker *w, const struct mr_instruction *run) {
  const struct mr_program_plan *plan = w->plan;
  for (uint32_t i = 0; i < run->birth_count; i++) {
    be_born(w, plan->births[run->first_birth + i]);
  }
  if (!run->handed_over) {
    walk_operands(w, run->op, MR_QUEUE_COMPUTE);
    return;
  }
  /* What the op was handed in the step before, it has read. */
  uint32_t host_ops = plan->instruction_count[MR_QUEUE_HOST];
  if (w->done[MR_QUEUE_HOST] >= host_ops) {
    need(w, MR_QUEUE_HOST, w->done[MR_QUEUE_HOST] + 1 - host_ops);
  }
}

/* An op of the queue of the host, right after it was handed over. */
static mr_status walk_host(struct walker *w, mr_op_id id, uint32_t walk) {
  need(w, MR_QUEUE_COMPUTE, w->done[MR_QUEUE_COMPUTE]);
  walk_operands(w, id, MR_QUEUE_HOST);
  return finish(w, MR_QUEUE_HOST, walk);
}

static mr_status walk_op(struct walker *w, uint32_t k, uint32_t walk) {
  const struct mr_instruction *run = &w->plan->instructions[MR_QUEUE_COMPUTE][k];
  walk_run(w, run);
  mr_status status = finish(w, MR_QUEUE_COMPUTE, walk);
  return status == MR_OK && run->handed_over ? walk_host(w, k, walk) : status;
}

/* Walks the moves of a link that hang on op k. */
static mr_status walk_link(struct walker *w, mr_link link, uint32_t k, uint32_t walk) {
  struct mr_program_plan *plan = w->plan;
  uint32_t queue = MR_QUEUE_OF(link);
  uint32_t count = plan->instruction_count[queue];
  bool fetch = mr_link_fetches(link);
  while (w->done[queue] < (walk + 1) * count) {
    const struct mr_instruction *move = &plan->instructions[queue][w->done[queue] - walk * count];
    if (move->op != k) break;
    walk_move(w, queue, move, fetch);
    mr_status status = finish(w, queue, walk);
    if (status != MR_OK) {
      return status;
    }
  }
  return MR_OK;
}

static mr_status walk_step(struct walker *w, uint32_t walk) {
  static const mr_link order[] = {MR_LINK_HOST_TO_DEVICE, MR_LINK_NVME_READ, MR_LINK_COUNT,
                                  MR_LINK_DEVICE_TO_HOST, MR_LINK_NVME_WRITE};
  for (uint32_t k = 0; k < w->plan->instruction_count[MR_QUEUE_COMPUTE]; k++) {
    for (uint32_t i = 0; i < MR_COUNT_OF(order); i++) {
      mr_status status = MR_OK;
      if (order[i] == MR_LINK_COUNT) {
        status = walk_op(w, k, walk);
      } else {
        status = walk_link(w, order[i], k, walk);
      }
      if (status != MR_OK) {
        return status;
      }
    }
  }
  return MR_OK;
}

static struct history *make_histories(uint32_t count) {
  struct history *histories = mr_allocate(count, sizeof *histories);
  for (uint32_t i = 0; histories != NULL && i < count; i++) {
    histories[i].writer_queue = NO_WRITER;
  }
  return histories;
}

static mr_status walker_init(struct walker *w, struct mr_program_plan *plan) {
  *w = (struct walker){.plan = plan};
  w->instances = make_histories(plan->instance_count);
  w->slots = make_histories(plan->slot_count);
  w->extents = make_histories(plan->extent_count);
  w->page_owner = mr_allocate(plan->device_page_count, sizeof *w->page_owner);
  w->host_page_owner = mr_allocate(plan->host_page_count, sizeof *w->host_page_owner);
  bool failed = w->instances == NULL || w->slots == NULL || w->extents == NULL ||
                w->page_owner == NULL || w->host_page_owner == NULL;
  for (uint32_t q = 0; q < MR_QUEUE_COUNT; q++) {
    w->clocks[q] = mr_allocate((uint64_t)WALKS * plan->instruction_count[q], sizeof *w->clocks[q]);
    failed = failed || w->clocks[q] == NULL;
  }
  if (failed) {
    return MR_NO_MEMORY;
  }
  memset(w->page_owner, 0xff, plan->device_page_count * sizeof *w->page_owner);
  memset(w->host_page_owner, 0xff, plan->host_page_count * sizeof *w->host_page_owner);
  return MR_OK;
}

static void walker_fini(struct walker *w) {
  free(w->instances);
  free(w->slots);
  free(w->extents);
  free(w->page_owner);
  free(w->host_page_owner);
  for (uint32_t q = 0; q < MR_QUEUE_COUNT; q++) {
    free(w->clocks[q]);
  }
}

mr_status mr_plan_add_waits(struct mr_program_plan *plan) {
  struct walker walker;
  mr_status status = walker_init(&walker, plan);
  for (uint32_t walk = 0; walk < WALKS && status == MR_OK; walk++) {
    status = walk_step(&walker, walk);
  }
  walker_fini(&walker);
  return status;
}
