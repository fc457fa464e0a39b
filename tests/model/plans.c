/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of plans, a judge of their order, and mutants. */
#include "model/plans.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

#define DRAWS 8u /* random mutants of each kind for each plan */

static void *copy_array(const void *data, uint64_t count, size_t bytes) {
  void *copy = mr_allocate(count, bytes);
  MR_ASSERT(copy != NULL);
  if (count > 0) {
    memcpy(copy, data, count * bytes);
  }
  return copy;
}

struct mr_program_plan *plan_copy(const struct mr_program_plan *plan) {
  struct mr_program_plan *copy = copy_array(plan, 1, sizeof *plan);
  uint32_t op_count = plan->program->op_count;
  copy->instances = copy_array(plan->instances, plan->instance_count, sizeof *plan->instances);
  copy->pages = copy_array(plan->pages, plan->page_entry_count, sizeof *plan->pages);
  copy->host_pages =
      copy_array(plan->host_pages, plan->host_page_entry_count, sizeof *plan->host_pages);
  copy->slots = copy_array(plan->slots, plan->slot_count, sizeof *plan->slots);
  copy->extents = copy_array(plan->extents, plan->extent_count, sizeof *plan->extents);
  copy->gaps = copy_array(plan->gaps, plan->gap_count, sizeof *plan->gaps);
  copy->homes = copy_array(plan->homes, plan->program->tensor_count, sizeof *plan->homes);
  for (uint32_t queue = 0; queue < MR_QUEUE_COUNT; queue++) {
    copy->instructions[queue] =
        copy_array(plan->instructions[queue], plan->instruction_count[queue],
                   sizeof *plan->instructions[queue]);
  }
  copy->waits = copy_array(plan->waits, plan->wait_count, sizeof *plan->waits);
  copy->births = copy_array(plan->births, plan->birth_count, sizeof *plan->births);
  copy->operands =
      copy_array(plan->operands, plan->first_operand[op_count], sizeof *plan->operands);
  copy->first_operand =
      copy_array(plan->first_operand, op_count + 1ull, sizeof *plan->first_operand);
  return copy;
}

void plan_copy_free(struct mr_program_plan *plan) {
  for (uint32_t queue = 0; queue < MR_QUEUE_COUNT; queue++) {
    free(plan->instructions[queue]);
  }
  free(plan->instances);
  free(plan->pages);
  free(plan->host_pages);
  free(plan->slots);
  free(plan->extents);
  free(plan->gaps);
  free(plan->homes);
  free(plan->waits);
  free(plan->births);
  free(plan->operands);
  free(plan->first_operand);
  free(plan);
}

/* ---- The judge. ---- */

struct event {
  uint32_t location;
  uint32_t node;
  bool writes;
};

struct judge {
  const struct mr_program_plan *plan;
  uint32_t base[MR_QUEUE_COUNT];
  uint32_t step_count; /* instructions of a step */
  uint32_t words;      /* of a set of nodes */
  uint64_t *finished;  /* for each node: the set of nodes that have finished when it starts */
  struct event *events;
  uint32_t event_count;
};

static bool overlaps(uint32_t queue) {
  return queue == MR_QUEUE_OF(MR_LINK_NVME_READ) || queue == MR_QUEUE_OF(MR_LINK_NVME_WRITE);
}

/* Adds what has finished before `node`, and the node itself where asked; true where that was news.
 */
static bool set_add(struct judge *j, uint32_t to, uint32_t node, bool itself) {
  bool news = false;
  for (uint32_t i = 0; i < j->words; i++) {
    uint64_t *word = &j->finished[(size_t)to * j->words + i];
    uint64_t more = j->finished[(size_t)node * j->words + i];
    more |= itself && node / 64 == i ? 1ull << node % 64 : 0;
    news = news || (more & ~*word) != 0;
    *word |= more;
  }
  return news;
}

/* A count stands for every instruction of the queue before it, those of the step before included.
 */
static void finished_prefix(struct judge *j, uint32_t node, uint32_t of_step,
                            const struct mr_wait *wait) {
  for (uint32_t step = 0; step <= of_step; step++) {
    uint32_t count = step < of_step ? j->plan->instruction_count[wait->queue] : wait->count;
    for (uint32_t k = 0; k < count; k++) {
      uint32_t done = step * j->step_count + j->base[wait->queue] + k;
      j->finished[(size_t)node * j->words + done / 64] |= 1ull << done % 64;
    }
  }
}

static bool node_update(struct judge *j, uint32_t step, uint32_t queue, uint32_t index) {
  const struct mr_instruction *instruction = &j->plan->instructions[queue][index];
  uint32_t node = step * j->step_count + j->base[queue] + index;
  bool news = false;
  if (index > 0) {
    news = set_add(j, node, node - 1, !overlaps(queue));
  } else if (step > 0) {
    uint32_t last = j->base[queue] + j->plan->instruction_count[queue] - 1;
    news = set_add(j, node, last, !overlaps(queue));
  }
  for (uint32_t i = 0; i < instruction->wait_count; i++) {
    const struct mr_wait *wait = &j->plan->waits[instruction->first_wait + i];
    uint32_t of_step = wait->previous_step ? step - 1 : step;
    if (wait->count > 0 && (step > 0 || !wait->previous_step)) {
      uint32_t last = of_step * j->step_count + j->base[wait->queue] + wait->count - 1;
      news |= set_add(j, node, last, true);
      finished_prefix(j, node, of_step, wait);
    }
  }
  return news;
}

static void event_add(struct judge *j, uint32_t node, uint32_t location, bool writes) {
  j->events[j->event_count++] = (struct event){location, node, writes};
}

static void slot_events(struct judge *j, uint32_t node, uint32_t number, bool writes) {
  const struct mr_slot *slot = &j->plan->slots[number];
  for (uint32_t k = 0; k < slot->page_count; k++) {
    event_add(j, node, j->plan->device_page_count + j->plan->host_pages[slot->first_page + k],
              writes);
  }
}

static void instance_events(struct judge *j, uint32_t node, uint32_t number, bool writes) {
  if (number == MR_NO_INSTANCE) {
    return;
  }
  const struct mr_instance *instance = &j->plan->instances[number];
  if (instance->on_host) {
    slot_events(j, node, instance->slot, writes);
  }
  for (uint32_t k = 0; k < instance->page_count; k++) {
    event_add(j, node, j->plan->pages[instance->first_page + k], writes);
  }
}

/* The place of an op of the queue of the host for what compute hands over to it. */
static uint32_t handover_location(const struct mr_program_plan *plan, mr_op_id op) {
  uint32_t index = 0;
  while (plan->instructions[MR_QUEUE_HOST][index].op != op) {
    index++;
  }
  return plan->device_page_count + plan->host_page_count + plan->extent_count + index;
}

static void op_events(struct judge *j, uint32_t node, uint32_t queue, mr_op_id id) {
  const struct mr_program_plan *plan = j->plan;
  const struct mr_op *op = &plan->program->ops[id];
  bool handed_over = plan->instructions[MR_QUEUE_COMPUTE][id].handed_over;
  if (handed_over) {
    event_add(j, node, handover_location(plan, id), queue == MR_QUEUE_COMPUTE);
  }
  if (handed_over && queue == MR_QUEUE_COMPUTE) {
    return;
  }
  for (uint32_t i = plan->first_operand[id]; i < plan->first_operand[id + 1]; i++) {
    instance_events(j, node, plan->operands[i], i - plan->first_operand[id] >= op->input_count);
  }
}

static void node_events(struct judge *j, uint32_t node, uint32_t queue, uint32_t index) {
  const struct mr_program_plan *plan = j->plan;
  const struct mr_instruction *instruction = &plan->instructions[queue][index];
  if (queue == MR_QUEUE_COMPUTE || queue == MR_QUEUE_HOST) {
    op_events(j, node, queue, instruction->op);
    return;
  }
  bool fetch =
      queue == MR_QUEUE_OF(MR_LINK_HOST_TO_DEVICE) || queue == MR_QUEUE_OF(MR_LINK_NVME_READ);
  instance_events(j, node, instruction->instance, fetch);
  if (overlaps(queue)) {
    uint32_t extents = plan->device_page_count + plan->host_page_count;
    event_add(j, node, extents + instruction->slot, !fetch);
    return;
  }
  slot_events(j, node, instruction->slot, !fetch);
}

static bool knows(const struct judge *j, uint32_t later, uint32_t earlier) {
  return (j->finished[(size_t)later * j->words + earlier / 64] >> earlier % 64 & 1) != 0;
}

static int event_compare(const void *left, const void *right) {
  const struct event *a = left;
  const struct event *b = right;
  return (a->location > b->location) - (a->location < b->location);
}

/* Every pair of events of one location. */
static bool pairs_are_ordered(const struct judge *j) {
  qsort(j->events, j->event_count, sizeof *j->events, event_compare);
  for (uint32_t a = 0; a < j->event_count; a++) {
    const struct event *first = &j->events[a];
    for (uint32_t b = a + 1; b < j->event_count && j->events[b].location == first->location; b++) {
      const struct event *second = &j->events[b];
      if (first->node != second->node && (first->writes || second->writes) &&
          !knows(j, second->node, first->node) && !knows(j, first->node, second->node)) {
        return false;
      }
    }
  }
  return true;
}

bool plan_is_ordered(const struct mr_program_plan *plan) {
  struct judge j = {.plan = plan};
  uint64_t longest = 1ull + plan->page_entry_count + plan->host_page_entry_count;
  for (uint32_t queue = 0; queue < MR_QUEUE_COUNT; queue++) {
    j.base[queue] = j.step_count;
    j.step_count += plan->instruction_count[queue];
  }
  j.words = (2 * j.step_count + 63) / 64;
  j.finished = mr_allocate(2ull * j.step_count * j.words, sizeof *j.finished);
  uint64_t limit = 0;
  for (mr_op_id k = 0; k < plan->program->op_count; k++) {
    for (uint32_t i = plan->first_operand[k]; i < plan->first_operand[k + 1]; i++) {
      const struct mr_instance *instance =
          plan->operands[i] == MR_NO_INSTANCE ? NULL : &plan->instances[plan->operands[i]];
      if (instance != NULL) {
        limit += instance->on_host ? plan->slots[instance->slot].page_count : instance->page_count;
      }
    }
  }
  limit += (j.step_count - plan->program->op_count) * longest;
  limit += plan->instruction_count[MR_QUEUE_HOST];
  j.events = mr_allocate(2 * limit, sizeof *j.events);
  bool news = true;
  while (news) {
    news = false;
    for (uint32_t step = 0; step < 2; step++) {
      for (uint32_t queue = 0; queue < MR_QUEUE_COUNT; queue++) {
        for (uint32_t i = 0; i < plan->instruction_count[queue]; i++) {
          news |= node_update(&j, step, queue, i);
        }
      }
    }
  }
  for (uint32_t step = 0; step < 2; step++) {
    for (uint32_t queue = 0; queue < MR_QUEUE_COUNT; queue++) {
      for (uint32_t i = 0; i < plan->instruction_count[queue]; i++) {
        node_events(&j, step * j.step_count + j.base[queue] + i, queue, i);
      }
    }
  }
  bool ordered = pairs_are_ordered(&j);
  free(j.finished);
  free(j.events);
  return ordered;
}

/* ---- Mutants. ---- */

struct mutation {
  const struct mr_plan_problem *problem;
  const struct mr_program_plan *plan;
  struct mr_random random;
  struct mutation_counts *counts;
};

static void drop_line(void *context, mr_log_level level, const char *line) {
  (void)level;
  strncpy(context, line, 255);
}

/* True where the verifier refuses the mutant, and says why; frees the mutant. */
static bool is_refused(const struct mutation *m, struct mr_program_plan *mutant) {
  char line[256] = "";
  mr_log_configure(drop_line, line, MR_LOG_ERROR);
  mr_status status = mr_program_plan_verify(m->problem, mutant);
  mr_log_configure(NULL, NULL, MR_LOG_INFO);
  assert_true(status == MR_OK || status == MR_CORRUPT);
  assert_true((status == MR_OK) == (line[0] == '\0'));
  m->counts->tried++;
  m->counts->caught += status == MR_CORRUPT;
  return status == MR_CORRUPT;
}

static void expect_refused(const struct mutation *m, struct mr_program_plan *mutant,
                           const char *what, uint32_t where) {
  bool refused = is_refused(m, mutant);
  plan_copy_free(mutant);
  if (!refused) {
    fail_msg("the verifier accepts a plan with %s %u", what, where);
  }
}

/* A wait is needed exactly where without it some two accesses are not ordered. */
static void mutate_waits(const struct mutation *m) {
  for (uint32_t i = 0; i < m->plan->wait_count; i++) {
    uint32_t count = m->plan->waits[i].count;
    for (uint32_t shorter = 0; count > 0 && shorter < 2; shorter++) {
      struct mr_program_plan *mutant = plan_copy(m->plan);
      mutant->waits[i].count = shorter == 0 ? 0 : count - 1;
      bool ordered = plan_is_ordered(mutant);
      bool refused = is_refused(m, mutant);
      plan_copy_free(mutant);
      m->counts->harmless += !refused;
      if (refused == ordered) {
        fail_msg("wait %u with count %u for %u: %s, but the accesses are %s", i,
                 shorter == 0 ? 0 : count - 1, count, refused ? "refused" : "accepted",
                 ordered ? "ordered" : "not ordered");
      }
    }
  }
}

static bool stays_meet(const struct mr_instance *a, const struct mr_instance *b, uint32_t k) {
  for (; k-- > 0;) {
    bool in_a = a->always || (a->first_op <= a->last_op ? a->first_op <= k && k <= a->last_op
                                                        : k >= a->first_op || k <= a->last_op);
    bool in_b = b->always || (b->first_op <= b->last_op ? b->first_op <= k && k <= b->last_op
                                                        : k >= b->first_op || k <= b->last_op);
    if (in_a && in_b) {
      return true;
    }
  }
  return false;
}

static bool rests_on_device(const struct mr_program_plan *plan, uint32_t number) {
  const struct mr_instance *instance = &plan->instances[number];
  if (instance->small || instance->always) {
    return true;
  }
  if (instance->tensor == MR_NO_TENSOR) {
    return false;
  }
  const struct mr_home *home = &plan->homes[instance->tensor];
  return mr_tensor_goes_round(&plan->program->tensors[instance->tensor]) &&
         home->tier == MR_TIER_DEVICE && home->instance == number;
}

static void mutate_births(const struct mutation *m) {
  for (uint32_t i = 0; i < m->plan->birth_count; i++) {
    if (rests_on_device(m->plan, m->plan->births[i])) {
      continue; /* bound before the first step; nobody else may have its pages */
    }
    struct mr_program_plan *mutant = plan_copy(m->plan);
    mutant->births[i] = m->plan->births[i == 0 ? m->plan->birth_count - 1 : i - 1];
    bool same = mutant->births[i] == m->plan->births[i];
    if (same) {
      plan_copy_free(mutant);
    } else {
      expect_refused(m, mutant, "no birth", i);
    }
  }
}

/* Gives an instance a page of another one that is there at the same time, its own page twice, and
 * one that does not exist. */
static void mutate_pages(struct mutation *m) {
  for (uint32_t draw = 0; draw < DRAWS && m->plan->instance_count > 0; draw++) {
    uint32_t a = (uint32_t)mr_random_below(&m->random, m->plan->instance_count);
    uint32_t b = (uint32_t)mr_random_below(&m->random, m->plan->instance_count);
    const struct mr_instance *first = &m->plan->instances[a];
    const struct mr_instance *second = &m->plan->instances[b];
    if (first->page_count == 0) {
      continue;
    }
    uint32_t entry = first->first_page + (uint32_t)mr_random_below(&m->random, first->page_count);
    struct mr_program_plan *mutant = plan_copy(m->plan);
    mutant->pages[entry] = m->plan->device_page_count;
    expect_refused(m, mutant, "a page that does not exist at entry", entry);
    if (first->page_count > 1) {
      mutant = plan_copy(m->plan);
      mutant->pages[first->first_page] = mutant->pages[first->first_page + 1];
      expect_refused(m, mutant, "a page twice in instance", a);
    }
    if (a != b && second->page_count > 0 && stays_meet(first, second, m->plan->program->op_count)) {
      mutant = plan_copy(m->plan);
      mutant->pages[entry] = mutant->pages[second->first_page];
      expect_refused(m, mutant, "a page of two instances at entry", entry);
    }
  }
}

/* A place on the host that is another tensor's, not for good, on the device after all, or not in
 * one piece. */
static void mutate_host_places(const struct mutation *m) {
  for (uint32_t i = 0; i < m->plan->instance_count; i++) {
    const struct mr_instance *instance = &m->plan->instances[i];
    if (!instance->on_host) continue;
    const struct mr_slot *slot = &m->plan->slots[instance->slot];
    struct mr_program_plan *mutant = plan_copy(m->plan);
    mutant->instances[i].slot = (instance->slot + 1) % m->plan->slot_count;
    bool same = mutant->instances[i].slot == instance->slot;
    if (same) {
      plan_copy_free(mutant);
    } else {
      expect_refused(m, mutant, "another slot for instance", i);
    }
    mutant = plan_copy(m->plan);
    mutant->slots[instance->slot].always = false;
    expect_refused(m, mutant, "a slot for a while for instance", i);
    mutant = plan_copy(m->plan);
    mutant->instances[i].on_host = false;
    expect_refused(m, mutant, "no place on the host for instance", i);
    if (slot->page_count > 1) {
      mutant = plan_copy(m->plan);
      uint32_t *pages = &mutant->host_pages[slot->first_page];
      uint32_t first = pages[0];
      pages[0] = pages[1];
      pages[1] = first;
      expect_refused(m, mutant, "host pages in disorder for instance", i);
    }
  }
}

static void mutate_operands(struct mutation *m) {
  uint32_t operand_count = m->plan->first_operand[m->plan->program->op_count];
  for (uint32_t draw = 0; draw < 2 * DRAWS && m->plan->instance_count > 1; draw++) {
    uint32_t i = (uint32_t)mr_random_below(&m->random, operand_count);
    uint32_t other = (uint32_t)mr_random_below(&m->random, m->plan->instance_count);
    if (m->plan->operands[i] != MR_NO_INSTANCE && m->plan->operands[i] != other) {
      struct mr_program_plan *mutant = plan_copy(m->plan);
      mutant->operands[i] = other;
      expect_refused(m, mutant, "another instance as operand", i);
    }
  }
}

/* The next slot or extent; one of the same tensor may hold the same bytes. */
static void mutate_slot(const struct mutation *m, uint32_t queue, uint32_t index) {
  uint32_t slot = m->plan->instructions[queue][index].slot;
  bool nvme = overlaps(queue);
  bool exists = slot + 1 < (nvme ? m->plan->extent_count : m->plan->slot_count);
  mr_tensor_id here = nvme ? m->plan->extents[slot].tensor : m->plan->slots[slot].tensor;
  mr_tensor_id there = MR_NO_TENSOR;
  if (exists) {
    there = nvme ? m->plan->extents[slot + 1].tensor : m->plan->slots[slot + 1].tensor;
  }
  if (here != there) {
    struct mr_program_plan *mutant = plan_copy(m->plan);
    mutant->instructions[queue][index].slot++;
    expect_refused(m, mutant, "another slot in move", index);
  }
}

/* Takes one move out; waits that counted it count the one before. */
static void mutate_moves(struct mutation *m) {
  for (uint32_t queue = 1; queue < MR_QUEUE_HOST; queue++) {
    uint32_t count = m->plan->instruction_count[queue];
    for (uint32_t draw = 0; draw < DRAWS && count > 0; draw++) {
      uint32_t gone = (uint32_t)mr_random_below(&m->random, count);
      struct mr_program_plan *mutant = plan_copy(m->plan);
      struct mr_instruction *list = mutant->instructions[queue];
      memmove(&list[gone], &list[gone + 1], (count - gone - 1) * sizeof *list);
      mutant->instruction_count[queue]--;
      for (uint32_t i = 0; i < mutant->wait_count; i++) {
        mutant->waits[i].count -= mutant->waits[i].queue == queue && mutant->waits[i].count > gone;
      }
      expect_refused(m, mutant, "a move less, number", gone);
      uint32_t instance = (uint32_t)mr_random_below(&m->random, m->plan->instance_count);
      mutant = plan_copy(m->plan);
      bool same = mutant->instructions[queue][gone].instance == instance;
      mutant->instructions[queue][gone].instance = instance;
      if (same) {
        plan_copy_free(mutant);
      } else {
        expect_refused(m, mutant, "another instance in move", gone);
      }
      mutate_slot(m, queue, gone);
    }
  }
}

/* An op that nobody runs, or the device as well, or another in its place. */
static void mutate_host_ops(const struct mutation *m) {
  uint32_t count = m->plan->instruction_count[MR_QUEUE_HOST];
  for (uint32_t i = 0; i < count; i++) {
    struct mr_program_plan *mutant = plan_copy(m->plan);
    mr_op_id op = mutant->instructions[MR_QUEUE_HOST][i].op;
    mutant->instructions[MR_QUEUE_COMPUTE][op].handed_over = false;
    expect_refused(m, mutant, "run twice, host op", i);
    mutant = plan_copy(m->plan);
    mutant->instructions[MR_QUEUE_HOST][i].op = op + 1;
    expect_refused(m, mutant, "another op in place of host op", i);
    struct mr_plan_problem unknown = *m->problem;
    unknown.host_bytes_per_second = 0;
    struct mutation slow = *m;
    slow.problem = &unknown;
    expect_refused(&slow, plan_copy(m->plan), "a rate that is not known, host op", i);
  }
}

static void mutate_homes(struct mutation *m) {
  uint32_t tensor_count = m->plan->program->tensor_count;
  for (uint32_t draw = 0; draw < DRAWS; draw++) {
    mr_tensor_id t = (mr_tensor_id)mr_random_below(&m->random, tensor_count);
    if (!mr_role_is_persistent(m->plan->program->tensors[t].role)) {
      continue;
    }
    struct mr_program_plan *mutant = plan_copy(m->plan);
    struct mr_home *home = &mutant->homes[t];
    if (draw % 2 == 0) {
      home->instance++;
      home->slot++;
    } else if (home->tier == MR_TIER_DEVICE && home->copy != MR_TIER_DEVICE) {
      home->copy = MR_TIER_DEVICE;
    } else {
      home->tier = (mr_tier)((home->tier + 1) % MR_TIER_COUNT);
    }
    expect_refused(m, mutant, "another home for tensor", t);
  }
}

/* Pages, and small inputs of ops there. */
static uint64_t host_bytes(const struct mr_program_plan *plan) {
  uint64_t bytes = plan->host_page_count * (plan->page_bytes < 32768 ? 4096 : plan->page_bytes / 8);
  for (uint32_t i = 0; i < plan->instruction_count[MR_QUEUE_HOST]; i++) {
    mr_op_id id = plan->instructions[MR_QUEUE_HOST][i].op;
    const uint32_t *operands = &plan->operands[plan->first_operand[id]];
    for (uint32_t k = 0; k < plan->program->ops[id].input_count; k++) {
      const struct mr_instance *instance = &plan->instances[operands[k]];
      bytes += instance->small ? (instance->bytes + 63) / 64 * 64 : 0;
    }
  }
  return (bytes + 4095) / 4096 * 4096;
}

static void mutate_numbers(const struct mutation *m) {
  struct mr_program_plan *mutant = plan_copy(m->plan);
  mutant->page_bytes = 3000;
  expect_refused(m, mutant, "odd pages", 0);
  mutant = plan_copy(m->plan);
  mutant->instruction_count[MR_QUEUE_COMPUTE]--;
  expect_refused(m, mutant, "an op less", 0);
  if (m->plan->extent_count > 0) {
    mutant = plan_copy(m->plan);
    mutant->nvme_bytes = 0;
    expect_refused(m, mutant, "no room on nvme", 0);
  }
  if (m->plan->instance_count > 0) {
    mutant = plan_copy(m->plan);
    mutant->instances[0].bytes--;
    expect_refused(m, mutant, "a byte less in instance", 0);
  }
  const uint64_t needs[MR_TIER_COUNT] = {m->plan->small_bytes +
                                             m->plan->device_page_count * m->plan->page_bytes,
                                         host_bytes(m->plan), m->plan->nvme_bytes};
  for (uint32_t tier = 0; tier < MR_TIER_COUNT; tier++) {
    struct mr_plan_problem tight = *m->problem;
    struct mutation budget = *m;
    budget.problem = &tight;
    tight.budget_bytes[tier] = needs[tier];
    mutant = plan_copy(m->plan);
    assert_int_equal(mr_program_plan_verify(&tight, mutant), MR_OK);
    plan_copy_free(mutant);
    if (needs[tier] > 0) {
      tight.budget_bytes[tier]--;
      expect_refused(&budget, plan_copy(m->plan), "a budget one byte too small, tier", tier);
    }
  }
}

void plan_mutate(const struct mr_plan_problem *problem, const struct mr_program_plan *plan,
                 uint64_t seed, struct mutation_counts *waits, struct mutation_counts *others) {
  struct mutation m = {.problem = problem, .plan = plan, .counts = waits};
  mr_random_init(&m.random, seed);
  assert_int_equal(mr_program_plan_verify(problem, plan), MR_OK);
  assert_true(plan_is_ordered(plan));
  mutate_waits(&m);
  m.counts = others;
  mutate_births(&m);
  mutate_pages(&m);
  mutate_host_places(&m);
  mutate_operands(&m);
  mutate_host_ops(&m);
  mutate_moves(&m);
  mutate_homes(&m);
  mutate_numbers(&m);
}
