/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The verifier replays a plan and believes nothing of it. It shares no code with the planner.
 *
 * Every device page, host page and extent, and every piece of the small arena between two
 * neighbouring instance borders, is a *location*. A location holds bytes of one version of one
 * tensor, or bytes that nobody may read. Versions are counted in program order, one for each write
 * of a tensor by an op, one more for what the client may write between steps.
 *
 * Two proofs together hold for every timing. Order: a vector clock for each instruction says which
 * instructions have surely finished when it starts (those before it on its queue, those that it
 * waits for, and what is known to them); any two accesses to a location of which one writes must be
 * ordered by these clocks, within a step and from one step to the next. Content: instructions are
 * replayed in one order that the waits allow; since conflicting accesses are ordered, every other
 * order gives the same bytes. A step starts with nothing valid but the homes, and must end with the
 * homes valid again, so what holds for one step holds for all. Steps that skip ops are replayed
 * too: an evaluation step, which must leave every persistent tensor as it was, those that run no
 * deferred op or nothing else, and one that restores. They make the same moves.
 *
 * An op on a host that is apart is replayed in two parts: compute copies what is small to a place
 * of the op's own, which is a location too, and the queue of the host runs it.
 *
 * Instructions of the compute, copy and host queues run one after another. Those of the NVMe queues
 * start in order and may overlap: many are in flight, and a count stands for a finished prefix.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/verify.h"

static bool is_fetch(uint32_t queue) {
  return queue == MR_QUEUE_OF(MR_LINK_HOST_TO_DEVICE) || queue == MR_QUEUE_OF(MR_LINK_NVME_READ);
}

struct location_text {
  char text[64];
};

static const char *location_describe(const struct mr_verifier *v, uint32_t location,
                                     struct location_text *buffer) {
  if (location < v->small_base) {
    snprintf(buffer->text, sizeof buffer->text, "device page %u", location);
  } else if (location < v->host_base) {
    snprintf(buffer->text, sizeof buffer->text, "small arena byte %llu",
             (unsigned long long)v->boundaries[location - v->small_base]);
  } else if (location < v->extent_base) {
    snprintf(buffer->text, sizeof buffer->text, "host page %u", location - v->host_base);
  } else if (location < v->handover_base) {
    snprintf(buffer->text, sizeof buffer->text, "extent %u", location - v->extent_base);
  } else {
    snprintf(buffer->text, sizeof buffer->text, "what op %u of the host queue is handed",
             location - v->handover_base);
  }
  return buffer->text;
}

/* The number of the first boundary that is not below `offset`. */
static uint32_t boundary_find(const struct mr_verifier *v, uint64_t offset) {
  uint32_t low = 0;
  uint32_t high = v->boundary_count;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    if (v->boundaries[middle] < offset) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

static struct mr_verify_place slot_place(const struct mr_verifier *v, uint32_t number) {
  const struct mr_slot *slot = &v->plan->slots[number];
  return (struct mr_verify_place){
      .base = v->host_base,
      .numbers = &v->plan->host_pages[slot->first_page],
      .count = slot->page_count,
  };
}

static struct mr_verify_place instance_place(const struct mr_verifier *v, uint32_t number) {
  const struct mr_instance *instance = &v->plan->instances[number];
  if (instance->on_host) {
    return slot_place(v, instance->slot);
  }
  if (!instance->small) {
    return (struct mr_verify_place){
        .numbers = &v->plan->pages[instance->first_page],
        .count = instance->page_count,
    };
  }
  uint32_t first = boundary_find(v, instance->small_offset);
  uint32_t end = boundary_find(v, instance->small_offset + instance->bytes);
  return (struct mr_verify_place){
      .base = v->small_base + first,
      .boundaries = &v->boundaries[first],
      .count = end - first,
  };
}

static struct mr_verify_place extent_place(const struct mr_verifier *v, uint32_t number) {
  return (struct mr_verify_place){.base = v->extent_base + number, .count = 1};
}

static struct mr_verify_place home_place(const struct mr_verifier *v, mr_tensor_id tensor) {
  const struct mr_home *home = &v->plan->homes[tensor];
  if (home->tier == MR_TIER_DEVICE) {
    return instance_place(v, home->instance);
  }
  return home->tier == MR_TIER_HOST ? slot_place(v, home->slot) : extent_place(v, home->slot);
}

/* Of no locations where the home has no copy. */
static struct mr_verify_place copy_place(const struct mr_verifier *v, mr_tensor_id tensor) {
  const struct mr_home *home = &v->plan->homes[tensor];
  if (home->tier != MR_TIER_DEVICE || home->copy == MR_TIER_DEVICE) {
    return (struct mr_verify_place){0};
  }
  return home->copy == MR_TIER_HOST ? slot_place(v, home->slot) : extent_place(v, home->slot);
}

static uint32_t place_location(const struct mr_verify_place *place, uint32_t k) {
  return place->base + (place->numbers != NULL ? place->numbers[k] : k);
}

/* Which part of the tensor the k-th location holds. */
static uint32_t place_index(const struct mr_verify_place *place, uint32_t k) {
  return place->boundaries != NULL ? (uint32_t)(place->boundaries[k] - place->boundaries[0]) : k;
}

/* Takes note of an access and proves that it cannot meet a conflicting one. */
static mr_status location_access(struct mr_verifier *v, const struct mr_verify_actor *actor,
                                 uint32_t number, bool writes) {
  struct mr_verify_location *location = &v->locations[number];
  struct location_text text;
  if (!v->ordered) {
    return MR_OK;
  }
  uint32_t queue = location->write_queue;
  bool own = queue == actor->queue && location->write_count == actor->count;
  if (!own && location->write_count > actor->clock[queue]) {
    return mr_verify_actor_fault(
        v, actor,
        "%s: nothing makes it wait for instruction %u of the %s queue, which writes there",
        location_describe(v, number, &text),
        (location->write_count - 1) % v->plan->instruction_count[queue],
        mr_verify_queue_name(queue));
  }
  for (queue = 0; writes && queue < MR_QUEUE_COUNT; queue++) {
    uint32_t count = location->read_count[queue];
    own = queue == actor->queue && count == actor->count;
    if (!own && count > actor->clock[queue]) {
      return mr_verify_actor_fault(
          v, actor,
          "%s: nothing makes it wait for instruction %u of the %s queue, which reads there",
          location_describe(v, number, &text), (count - 1) % v->plan->instruction_count[queue],
          mr_verify_queue_name(queue));
    }
  }
  if (writes) {
    location->write_queue = actor->queue;
    location->write_count = actor->count;
  } else {
    location->read_count[actor->queue] = actor->count;
  }
  return MR_OK;
}

/* ---- Content: what lies where. ---- */

/* True where the k-th location of the place holds that part of that version. */
static bool holds(const struct mr_verifier *v, const struct mr_verify_place *place, uint32_t k,
                  mr_tensor_id tensor, uint32_t version) {
  const struct mr_verify_location *location = &v->locations[place_location(place, k)];
  return version != MR_VERIFY_UNDEFINED && location->version == version &&
         location->tensor == tensor && location->index == place_index(place, k);
}

static void place_fill(struct mr_verifier *v, const struct mr_verify_place *place,
                       mr_tensor_id tensor, uint32_t version) {
  for (uint32_t k = 0; k < place->count; k++) {
    struct mr_verify_location *location = &v->locations[place_location(place, k)];
    location->tensor = tensor;
    location->version = version;
    location->index = place_index(place, k);
  }
}

static mr_status place_access(struct mr_verifier *v, const struct mr_verify_actor *actor,
                              const struct mr_verify_place *place, bool writes) {
  mr_status status = MR_OK;
  for (uint32_t k = 0; status == MR_OK && k < place->count; k++) {
    status = location_access(v, actor, place_location(place, k), writes);
  }
  return status;
}

/* Names the first location of the place that does not hold `version`. */
static mr_status content_fault(const struct mr_verifier *v, const struct mr_verify_actor *actor,
                               const struct mr_verify_place *place, mr_tensor_id tensor,
                               uint32_t version) {
  uint32_t k = 0;
  while (k + 1 < place->count && holds(v, place, k, tensor, version)) {
    k++;
  }
  struct location_text text;
  const struct mr_verify_location *location = &v->locations[place_location(place, k)];
  return mr_verify_actor_fault(
      v, actor, "wants version %u of %s, part %u; %s holds version %u of %s, part %u", version,
      mr_verify_tensor_name(v, tensor), place_index(place, k),
      location_describe(v, place_location(place, k), &text), location->version,
      location->version == MR_VERIFY_UNDEFINED ? "nothing"
                                               : mr_verify_tensor_name(v, location->tensor),
      location->index);
}

/* The one version of `tensor` that the whole place holds; MR_VERIFY_UNDEFINED where there is none.
 */
static uint32_t place_version(const struct mr_verifier *v, const struct mr_verify_place *place,
                              mr_tensor_id tensor) {
  uint32_t version = v->locations[place_location(place, 0)].version;
  for (uint32_t k = 0; k < place->count; k++) {
    if (!holds(v, place, k, tensor, version)) {
      return MR_VERIFY_UNDEFINED;
    }
  }
  return version;
}

/* Small instances and those on the host are always in their place: nobody else gets their bytes, or
 * the proof of order and content finds out. */
static bool is_bound(const struct mr_instance *instance) {
  return !instance->small && !instance->on_host;
}

/* Binds an instance: its pages get a new owner, and what they held is gone. */
static mr_status replay_birth(struct mr_verifier *v, const struct mr_verify_actor *actor,
                              uint32_t number) {
  const struct mr_instance *born = &v->plan->instances[number];
  struct mr_verify_place place = instance_place(v, number);
  for (uint32_t k = 0; is_bound(born) && k < place.count; k++) {
    struct mr_verify_location *location = &v->locations[place_location(&place, k)];
    if (location->owner == number) {
      continue;
    }
    if (location->owner != MR_NO_INSTANCE) {
      const struct mr_instance *owner = &v->plan->instances[location->owner];
      if (owner->always || born->always || mr_verify_covers(owner, born->first_op) ||
          mr_verify_covers(born, owner->first_op)) {
        return mr_verify_actor_fault(
            v, actor, "birth of instance %u (%s) on device page %u, which instance %u (%s) owns",
            number, mr_verify_tensor_name(v, born->tensor), place_location(&place, k),
            location->owner, mr_verify_tensor_name(v, owner->tensor));
      }
    }
    mr_status status = location_access(v, actor, place_location(&place, k), true);
    if (status != MR_OK) {
      return status;
    }
    location->owner = number;
    location->version = MR_VERIFY_UNDEFINED;
  }
  return MR_OK;
}

static mr_status check_owner(const struct mr_verifier *v, const struct mr_verify_actor *actor,
                             uint32_t number) {
  const struct mr_instance *instance = &v->plan->instances[number];
  struct mr_verify_place place = instance_place(v, number);
  for (uint32_t k = 0; is_bound(instance) && k < place.count; k++) {
    uint32_t owner = v->locations[place_location(&place, k)].owner;
    if (owner != number) {
      return mr_verify_actor_fault(
          v, actor, "touches instance %u (%s), but device page %u is bound to instance %u (%s)",
          number, mr_verify_tensor_name(v, instance->tensor), place_location(&place, k), owner,
          owner == MR_NO_INSTANCE ? "nobody"
                                  : mr_verify_tensor_name(v, v->plan->instances[owner].tensor));
    }
  }
  return MR_OK;
}

static mr_status replay_move(struct mr_verifier *v, const struct mr_verify_actor *actor) {
  const struct mr_instruction *instruction = actor->instruction;
  mr_tensor_id tensor = v->plan->instances[instruction->instance].tensor;
  struct mr_verify_place above = instance_place(v, instruction->instance);
  struct mr_verify_place below = mr_verify_is_nvme(actor->queue)
                                     ? extent_place(v, instruction->slot)
                                     : slot_place(v, instruction->slot);
  const struct mr_verify_place *source = is_fetch(actor->queue) ? &below : &above;
  const struct mr_verify_place *target = is_fetch(actor->queue) ? &above : &below;
  mr_status status = check_owner(v, actor, instruction->instance);
  if (status == MR_OK) {
    status = place_access(v, actor, source, false);
  }
  if (status == MR_OK) {
    status = place_access(v, actor, target, true);
  }
  if (status != MR_OK) {
    return status;
  }
  uint32_t version = place_version(v, source, tensor);
  if (version == MR_VERIFY_UNDEFINED && v->mode == MR_VERIFY_TRAIN) {
    return content_fault(v, actor, source, tensor, v->newest[tensor]);
  }
  place_fill(v, target, tensor, version);
  return MR_OK;
}

/* Reads input number `input` of the op. */
static mr_status replay_read(struct mr_verifier *v, const struct mr_verify_actor *actor,
                             uint32_t input) {
  mr_tensor_id tensor = v->graph->ops[actor->instruction->op].inputs[input];
  uint32_t position = v->plan->first_operand[actor->instruction->op] + input;
  uint32_t instance = v->plan->operands[position];
  struct mr_verify_place place = instance_place(v, instance);
  mr_status status = check_owner(v, actor, instance);
  if (status == MR_OK) {
    status = place_access(v, actor, &place, false);
  }
  uint32_t wanted = v->operand_versions[position];
  /* What no op wrote, of a step that skips some, is undefined by the program itself. */
  if (status == MR_OK && wanted != MR_VERIFY_UNDEFINED &&
      place_version(v, &place, tensor) != wanted) {
    status = content_fault(v, actor, &place, tensor, wanted);
  }
  return status;
}

/* The op's own stamp on every location of an operand: two operands may not overlap. */
static mr_status stamp_operand(struct mr_verifier *v, const struct mr_verify_actor *actor,
                               uint32_t instance) {
  uint32_t stamp = actor->step * v->graph->op_count + actor->instruction->op + 1;
  struct mr_verify_place place = instance_place(v, instance);
  for (uint32_t k = 0; k < place.count; k++) {
    struct mr_verify_location *location = &v->locations[place_location(&place, k)];
    if (location->stamp_op == stamp && location->stamp_instance != instance) {
      return mr_verify_actor_fault(v, actor, "instances %u and %u overlap",
                                   location->stamp_instance, instance);
    }
    location->stamp_op = stamp;
    location->stamp_instance = instance;
  }
  return MR_OK;
}

/* The small tensors that an op of the queue of the host reads. */
static bool is_handed_over(const struct mr_verifier *v, mr_op_id op, uint32_t input) {
  uint32_t instance = v->plan->operands[v->plan->first_operand[op] + input];
  return v->host_index[op] != MR_VERIFY_DEVICE_OP && v->plan->instances[instance].small;
}

/* Compute copies them to the op's own place. */
static mr_status replay_handover(struct mr_verifier *v, const struct mr_verify_actor *actor) {
  mr_op_id id = actor->instruction->op;
  mr_status status = MR_OK;
  for (uint32_t i = 0; status == MR_OK && i < v->graph->ops[id].input_count; i++) {
    bool copied = is_handed_over(v, id, i) && mr_verify_runs_op(v, id);
    status = copied ? replay_read(v, actor, i) : MR_OK;
  }
  return status == MR_OK ? location_access(v, actor, v->handover_base + v->host_index[id], true)
                         : status;
}

static mr_status replay_op(struct mr_verifier *v, const struct mr_verify_actor *actor) {
  mr_op_id id = actor->instruction->op;
  const struct mr_op *op = &v->graph->ops[id];
  const uint32_t *operands = &v->plan->operands[v->plan->first_operand[id]];
  const uint32_t *versions = &v->operand_versions[v->plan->first_operand[id]];
  uint32_t count = op->input_count + op->output_count + (op->scratch_bytes > 0 ? 1 : 0);
  mr_status status = MR_OK;
  if (actor->queue == MR_QUEUE_HOST) {
    status = location_access(v, actor, v->handover_base + actor->index, false);
  }
  for (uint32_t i = 0; status == MR_OK && i < count; i++) {
    status = stamp_operand(v, actor, operands[i]);
  }
  for (uint32_t i = 0; status == MR_OK && i < op->input_count; i++) {
    bool takes = mr_verify_takes(v, id, op->inputs[i]) && !is_handed_over(v, id, i);
    status = takes ? replay_read(v, actor, i) : MR_OK;
  }
  for (uint32_t i = op->input_count; status == MR_OK && i < count; i++) {
    bool output = i < op->input_count + op->output_count;
    struct mr_verify_place place = instance_place(v, operands[i]);
    if (output && !mr_verify_gives(v, id, op->outputs[i - op->input_count])) continue;
    status = check_owner(v, actor, operands[i]);
    if (status == MR_OK) {
      status = place_access(v, actor, &place, true);
    }
    place_fill(v, &place, MR_NO_TENSOR, MR_VERIFY_UNDEFINED);
  }
  for (uint32_t i = op->input_count; status == MR_OK && i < op->input_count + op->output_count;
       i++) {
    struct mr_verify_place place = instance_place(v, operands[i]);
    mr_tensor_id t = op->outputs[i - op->input_count];
    if (mr_verify_gives(v, id, t)) {
      place_fill(v, &place, t, versions[i]);
    }
  }
  return status;
}

static mr_status replay_instruction(struct mr_verifier *v, const struct mr_verify_actor *actor) {
  const struct mr_instruction *instruction = actor->instruction;
  mr_status status = MR_OK;
  for (uint32_t i = 0; status == MR_OK && i < instruction->birth_count; i++) {
    status = replay_birth(v, actor, v->plan->births[instruction->first_birth + i]);
  }
  if (status != MR_OK) {
    return status;
  }
  if (actor->queue != MR_QUEUE_COMPUTE && actor->queue != MR_QUEUE_HOST) {
    return replay_move(v, actor);
  }
  if (!mr_verify_runs_op(v, instruction->op) && !mr_op_restores(v->graph, instruction->op)) {
    return MR_OK;
  }
  bool hands_over =
      actor->queue == MR_QUEUE_COMPUTE && v->host_index[instruction->op] != MR_VERIFY_DEVICE_OP;
  return hands_over ? replay_handover(v, actor) : replay_op(v, actor);
}

/* ---- Steps. ---- */

/* Who owns the device pages before the first step: what is there always, and the homes. */
static mr_status owners_start(struct mr_verifier *v) {
  for (uint32_t i = 0; i < v->plan->instance_count; i++) {
    const struct mr_instance *instance = &v->plan->instances[i];
    bool home = instance->tensor != MR_NO_TENSOR && mr_verify_has_home(v, instance->tensor) &&
                v->plan->homes[instance->tensor].tier == MR_TIER_DEVICE &&
                v->plan->homes[instance->tensor].instance == i;
    struct mr_verify_place place = instance_place(v, i);
    bool starts = (instance->always || home) && is_bound(instance);
    for (uint32_t k = 0; starts && k < place.count; k++) {
      struct mr_verify_location *location = &v->locations[place_location(&place, k)];
      if (location->owner != MR_NO_INSTANCE) {
        return mr_verify_plan_fault("device page %u belongs to instances %u and %u at the start",
                                    place_location(&place, k), location->owner, i);
      }
      location->owner = i;
    }
  }
  return MR_OK;
}

/* A carried tensor rests in its home from a training step to the step that runs deferred ops, a
 * derived one from when it was restored. */
static bool home_starts(const struct mr_verifier *v, mr_tensor_id t) {
  bool pending = v->mode == MR_VERIFY_TRAIN || v->mode == MR_VERIFY_FLUSH;
  bool restored = v->mode != MR_VERIFY_RESTORE || v->graph->tensors[t].role != MR_DERIVED;
  return mr_verify_has_home(v, t) && (pending || !v->graph->tensors[t].carried) && restored;
}

static bool home_ends(const struct mr_verifier *v, mr_tensor_id t) {
  bool trains = v->mode == MR_VERIFY_TRAIN || v->mode == MR_VERIFY_FRESH;
  return mr_verify_has_home(v, t) && (trains || !v->graph->tensors[t].carried);
}

/*
 * Only homes and their copies are valid when a step starts: the client may have written any of
 * them, so each gets a new version, and copies elsewhere are worth nothing.
 */
static void contents_start(struct mr_verifier *v) {
  for (uint32_t i = 0; i < v->location_count; i++) {
    v->locations[i].version = MR_VERIFY_UNDEFINED;
  }
  for (mr_tensor_id t = 0; t < v->graph->tensor_count; t++) {
    v->versions[t] = MR_VERIFY_UNDEFINED;
    if (home_starts(v, t)) {
      struct mr_verify_place place = home_place(v, t);
      struct mr_verify_place copy = copy_place(v, t);
      v->versions[t] = ++v->newest[t];
      place_fill(v, &place, t, v->versions[t]);
      place_fill(v, &copy, t, v->versions[t]);
    }
  }
  mr_verify_number_versions(v);
}

static mr_status contents_end(const struct mr_verifier *v) {
  static const char *const steps[] = {
      [MR_VERIFY_TRAIN] = "a training",    [MR_VERIFY_FRESH] = "a first",
      [MR_VERIFY_FLUSH] = "a flushing",    [MR_VERIFY_EVALUATE] = "an evaluation",
      [MR_VERIFY_RESTORE] = "a restoring",
  };
  for (mr_tensor_id t = 0; t < v->graph->tensor_count; t++) {
    if (!home_ends(v, t)) {
      continue;
    }
    struct mr_verify_place place = home_place(v, t);
    struct mr_verify_place copy = copy_place(v, t);
    uint32_t found = place_version(v, &place, t);
    if (copy.count > 0 && found == v->versions[t]) {
      found = place_version(v, &copy, t);
    }
    if (found != v->versions[t]) {
      return mr_verify_plan_fault("after %s step the home of %s (tier %d) holds version %u of it, "
                                  "not the last one, %u",
                                  steps[v->mode], mr_verify_tensor_name(v, t),
                                  (int)v->plan->homes[t].tier, found, v->versions[t]);
    }
    for (uint32_t k = 0; v->plan->homes[t].tier == MR_TIER_DEVICE && k < place.count; k++) {
      uint32_t owner = v->locations[place_location(&place, k)].owner;
      if (place.numbers != NULL && owner != v->plan->homes[t].instance) {
        return mr_verify_plan_fault("after a step the home of %s is bound to instance %u",
                                    mr_verify_tensor_name(v, t), owner);
      }
    }
  }
  return MR_OK;
}

static mr_status replay_step(struct mr_verifier *v, uint32_t step, enum mr_verify_mode mode) {
  v->mode = mode;
  v->ordered = step < MR_VERIFY_STEPS;
  contents_start(v);
  for (uint32_t i = 0; i < v->order_count; i++) {
    struct mr_verify_actor actor = mr_verify_actor_make(v, step, v->order[i]);
    mr_status status = replay_instruction(v, &actor);
    if (status != MR_OK) {
      return status;
    }
  }
  return contents_end(v);
}

/* Whether the runtime runs such steps of the program. */
static bool has_mode(const struct mr_graph *graph, enum mr_verify_mode mode) {
  bool defers = false;
  bool restores = false;
  for (mr_op_id k = 0; k < graph->op_count; k++) {
    defers = defers || graph->ops[k].deferred;
    restores = restores || mr_op_restores(graph, k);
  }
  return mode == MR_VERIFY_EVALUATE || (mode == MR_VERIFY_RESTORE ? restores : defers);
}

static mr_status replay(struct mr_verifier *v) {
  static const enum mr_verify_mode partial[] = {MR_VERIFY_FRESH, MR_VERIFY_FLUSH,
                                                MR_VERIFY_EVALUATE, MR_VERIFY_RESTORE};
  mr_status status = mr_verify_order(v);
  if (status == MR_OK) {
    status = owners_start(v);
  }
  for (uint32_t step = 0; status == MR_OK && step < MR_VERIFY_STEPS; step++) {
    status = replay_step(v, step, MR_VERIFY_TRAIN);
  }
  for (uint32_t i = 0; status == MR_OK && i < MR_COUNT_OF(partial); i++) {
    bool wanted = has_mode(v->graph, partial[i]);
    status = wanted ? replay_step(v, MR_VERIFY_STEPS, partial[i]) : MR_OK;
  }
  return status;
}

/* ---- The front door. ---- */

static mr_status verify(struct mr_verifier *v) {
  mr_status status = mr_verify_frame(v);
  if (status != MR_OK) {
    return status;
  }
  uint64_t pages = (uint64_t)v->plan->device_page_count + v->plan->host_page_count;
  v->stamps = mr_allocate(pages, sizeof *v->stamps);
  if (v->stamps == NULL) {
    return MR_NO_MEMORY;
  }
  status = mr_verify_stays(v);
  if (status == MR_OK) {
    status = mr_verify_host_queue(v);
  }
  if (status == MR_OK) {
    status = mr_verify_instructions(v);
  }
  if (status == MR_OK) {
    status = mr_verify_memory_init(v);
  }
  return status == MR_OK ? replay(v) : status;
}

mr_status mr_program_plan_verify(const struct mr_plan_problem *problem,
                                 const struct mr_program_plan *plan) {
  if (!plan->fits) {
    mr_log(MR_LOG_ERROR, "there is no plan to check: the program does not fit the budgets");
    return MR_INVALID;
  }
  struct mr_verifier v = {.problem = problem, .plan = plan, .graph = problem->program};
  mr_status status = verify(&v);
  free(v.stamps);
  free(v.host_index);
  mr_verify_memory_fini(&v);
  return status;
}
