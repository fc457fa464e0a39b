/* SPDX-License-Identifier: Apache-2.0 */
/* The fake driver's handles: a place in a table and the number of its use, so that a handle of
 * something that is gone is never taken for another's. */
#include <pthread.h>

#include "tests/fake/state.h"

#define MAX_HANDLES     65536u
#define INDEX_BITS      20
#define GENERATION_BITS 32

struct slot {
  void *object; /* NULL: free */
  enum fake_kind kind;
  uint32_t generation;
  uint32_t next_free; /* its index + 1 */
};

static struct {
  pthread_mutex_t lock;
  struct slot slots[MAX_HANDLES];
  uint32_t used;
  uint32_t first_free; /* index + 1 */
  uint32_t counts[FAKE_KIND_COUNT];
} table = {.lock = PTHREAD_MUTEX_INITIALIZER};

static uint64_t handle_of(uint32_t index) {
  const struct slot *slot = &table.slots[index];
  return (uint64_t)(slot->kind + 1) << (INDEX_BITS + GENERATION_BITS) |
         (uint64_t)slot->generation << INDEX_BITS | (index + 1);
}

static struct slot *slot_of(enum fake_kind kind, uint64_t handle) {
  uint64_t place = handle & ((1u << INDEX_BITS) - 1);
  if (place == 0 || place > table.used) {
    return NULL;
  }
  struct slot *slot = &table.slots[place - 1];
  bool same =
      slot->object != NULL && slot->kind == kind && handle == handle_of((uint32_t)place - 1);
  return same ? slot : NULL;
}

static void *empty_slot(struct slot *slot) {
  void *object = slot->object;
  slot->object = NULL;
  slot->generation++;
  slot->next_free = table.first_free;
  table.first_free = (uint32_t)(slot - table.slots) + 1;
  table.counts[slot->kind]--;
  return object;
}

uint64_t fake_handle_add(enum fake_kind kind, void *object) {
  uint64_t handle = 0;
  pthread_mutex_lock(&table.lock);
  uint32_t index = MAX_HANDLES;
  if (table.first_free != 0) {
    index = table.first_free - 1;
    table.first_free = table.slots[index].next_free;
  } else if (table.used < MAX_HANDLES) {
    index = table.used++;
  }
  if (index < MAX_HANDLES) {
    table.slots[index].object = object;
    table.slots[index].kind = kind;
    table.counts[kind]++;
    handle = handle_of(index);
  }
  pthread_mutex_unlock(&table.lock);
  return handle;
}

void *fake_handle_find(enum fake_kind kind, uint64_t handle) {
  pthread_mutex_lock(&table.lock);
  const struct slot *slot = slot_of(kind, handle);
  void *object = slot == NULL ? NULL : slot->object;
  pthread_mutex_unlock(&table.lock);
  return object;
}

void *fake_handle_remove(enum fake_kind kind, uint64_t handle) {
  pthread_mutex_lock(&table.lock);
  struct slot *slot = slot_of(kind, handle);
  void *object = slot == NULL ? NULL : empty_slot(slot);
  pthread_mutex_unlock(&table.lock);
  return object;
}

void fake_handle_clear(enum fake_kind kind, void (*destroy)(void *object)) {
  pthread_mutex_lock(&table.lock);
  for (uint32_t i = 0; i < table.used; i++) {
    struct slot *slot = &table.slots[i];
    if (slot->object != NULL && slot->kind == kind) {
      destroy(empty_slot(slot));
    }
  }
  pthread_mutex_unlock(&table.lock);
}

uint32_t fake_handle_count(enum fake_kind kind) {
  pthread_mutex_lock(&table.lock);
  uint32_t count = table.counts[kind];
  pthread_mutex_unlock(&table.lock);
  return count;
}
