/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One chunk on its way: prepared, handed to the engine, looked at when it comes back, checked and
 * ended. Everything here runs on the lane's thread; the lock is held only where the monitor may
 * take a late slot's request.
 */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "offload/private.h"

/* Results in a row that move nothing (EAGAIN, a short transfer below one block) before it is an
 * error: with the pauses below a fifth of a second, far longer than queues stay full. */
#define EMPTY_TRIES       200u
#define SHORTEST_PAUSE_NS 50000u
#define LONGEST_PAUSE_NS  1000000u

static uint64_t slot_offset(const struct mr_lane *lane, const struct mr_slot *slot) {
  return (uint64_t)(slot->place - lane->first_place) * MR_STORE_CHUNK_BYTES;
}

static uint8_t *slot_buffer(const struct mr_slot *slot) {
  return slot->staged ? slot->pool : slot->data;
}

/* Frees the slot and ends its chunk, unless the monitor has done that. */
static void slot_end(struct mr_lane *lane, struct mr_slot *slot, mr_status status) {
  pthread_mutex_lock(&lane->lock);
  struct mr_store_request *request = slot->request;
  slot->request = NULL;
  slot->issued_ns = 0;
  pthread_mutex_unlock(&lane->lock);
  lane->inflight[slot->io_class]--;
  lane->free_slots[lane->free_count++] = (uint32_t)(slot - lane->slots);
  if (request != NULL) {
    mr_request_finish(request, 1, status);
  }
}

/* Logs a lasting failure, as an error if it is the store's first, and ends the chunk. */
static void slot_fail(struct mr_lane *lane, struct mr_slot *slot, mr_status status,
                      const char *reason) {
  bool first = !atomic_exchange(&lane->store->error_logged, true);
  mr_log(first ? MR_LOG_ERROR : MR_LOG_INFO,
         "nvme %s: %s %u bytes at offset %llu (tensor %s, chunk %llu): %s", lane->path,
         slot->write ? "writing" : "reading", slot->bytes,
         (unsigned long long)slot_offset(lane, slot), lane->store->extents[slot->extent].label,
         (unsigned long long)slot->chunk, reason);
  slot_end(lane, slot, status);
}

static void flip_bit(struct mr_slot *slot) {
  slot_buffer(slot)[slot->bytes / 2] ^= 0x10;
}

/* From here on the monitor may take the slot's request because it is late; false where it has. */
static bool watch(struct mr_lane *lane, struct mr_slot *slot) {
  slot->begun_ns = slot->begun_ns == 0 ? mr_clock_ns() : slot->begun_ns;
  pthread_mutex_lock(&lane->lock);
  bool mine = slot->request != NULL;
  slot->issued_ns = mine ? slot->begun_ns : 0;
  pthread_mutex_unlock(&lane->lock);
  return mine;
}

/* Hands what is left of the chunk to the engine. */
static void slot_begin(struct mr_lane *lane, struct mr_slot *slot) {
  if (!watch(lane, slot)) {
    slot_end(lane, slot, MR_OK);
    return;
  }
  slot->fault = mr_fault_next(&lane->store->faults, slot->write);
  uint32_t bytes = slot->io_bytes - slot->moved_bytes;
  if (slot->fault == MR_FAULT_SHORT && bytes > MR_STORE_ALIGN) {
    bytes = bytes / 2 / MR_STORE_ALIGN * MR_STORE_ALIGN;
  }
  if (slot->fault == MR_FAULT_FLIP && slot->write) {
    flip_bit(slot);
    slot->flipped = !slot->staged;
  }
  struct mr_engine_io io = {
      .write = slot->write,
      .in_pool = slot->staged,
      .slot = (uint32_t)(slot - lane->slots),
      .bytes = bytes,
      .buffer = slot_buffer(slot) + slot->moved_bytes,
      .offset_bytes = slot_offset(lane, slot) + slot->moved_bytes,
  };
  lane->engine_table->submit(lane->engine, &io);
}

/* Copies in and sums what will be written. */
static void prepare_write(struct mr_lane *lane, struct mr_slot *slot) {
  const struct mr_store *store = lane->store;
  uint32_t generation = store->extents[slot->extent].generation;
  uint32_t seed = mr_chunk_seed(slot->extent, generation, slot->chunk);
  store->places[slot->place].state = MR_PLACE_EMPTY;
  if (slot->pool_only) {
    return;
  }
  if (!slot->staged) {
    slot->crc = store->checksums ? mr_chunk_crc(slot->data, slot->bytes, seed) : 0;
    return;
  }
  slot->crc = mr_chunk_copy_in(&lane->copier, slot->pool, slot->data, slot->bytes,
                               store->checksums ? &seed : NULL);
  memset(slot->pool + slot->bytes, 0, slot->io_bytes - slot->bytes);
}

/* Behind the other prepared writes; where it is urgent, before them. */
static void queue_prepared(struct mr_lane *lane, uint32_t index) {
  uint32_t at = lane->slots[index].io_class == MR_IO_DEMAND ? 0 : lane->prepared_count;
  memmove(&lane->prepared[at + 1], &lane->prepared[at],
          (lane->prepared_count - at) * sizeof lane->prepared[0]);
  lane->prepared[at] = index;
  lane->prepared_count++;
}

void mr_slot_start(struct mr_lane *lane, uint32_t index) {
  struct mr_slot *slot = &lane->slots[index];
  struct mr_store *store = lane->store;
  const struct mr_place *place = &store->places[slot->place];
  uint32_t align = lane->direct_io ? MR_STORE_ALIGN : 1;
  mr_store_mode mode = (mr_store_mode)atomic_load(&store->mode);
  slot->staged = slot->pool_only || mr_store_mode_stages(mode, slot->write) ||
                 slot->bytes % align != 0 || (uintptr_t)slot->data % align != 0;
  slot->io_bytes = (uint32_t)mr_round_up(slot->bytes, align);
  if (slot->write) {
    prepare_write(lane, slot);
    (void)watch(lane, slot); /* the next step asks again whether the slot is still ours */
    queue_prepared(lane, index);
    return;
  }
  if (!slot->pool_only && place->state == MR_PLACE_EMPTY) {
    slot_fail(lane, slot, MR_INVALID, "it was never written");
    return;
  }
  if (!slot->pool_only && place->state == MR_PLACE_ZERO) {
    memset(slot->data, 0, slot->bytes);
    slot_end(lane, slot, MR_OK);
    return;
  }
  slot_begin(lane, slot);
}

void mr_slot_write(struct mr_lane *lane, uint32_t index) {
  slot_begin(lane, &lane->slots[index]);
}

void mr_slot_drop(struct mr_lane *lane, uint32_t index, mr_status status) {
  slot_end(lane, &lane->slots[index], status);
}

static void pause_before_try(uint32_t tries) {
  uint64_t pause_ns = mr_min_u64((uint64_t)SHORTEST_PAUSE_NS * tries, LONGEST_PAUSE_NS);
  struct timespec pause = {.tv_nsec = (long)pause_ns};
  nanosleep(&pause, NULL);
}

/* Reads the whole chunk again; false where that has been done already. */
static bool slot_begin_again(struct mr_lane *lane, struct mr_slot *slot, const char *reason) {
  if (slot->write || slot->retried) {
    return false;
  }
  mr_log(MR_LOG_INFO, "nvme %s: reading again %u bytes at offset %llu (tensor %s): %s", lane->path,
         slot->bytes, (unsigned long long)slot_offset(lane, slot),
         lane->store->extents[slot->extent].label, reason);
  slot->retried = true;
  slot->moved_bytes = 0;
  slot->tries = 0;
  atomic_fetch_add(&lane->store->retries, 1);
  slot_begin(lane, slot);
  return true;
}

/* The result was an error or nothing. */
static void slot_failed_result(struct mr_lane *lane, struct mr_slot *slot, int32_t result) {
  int reason = result == 0 ? (slot->write ? EIO : 0) : -result;
  if ((reason == EAGAIN || reason == EINTR) && slot->tries < EMPTY_TRIES) {
    pause_before_try(++slot->tries);
    atomic_fetch_add(&lane->store->retries, 1);
    slot_begin(lane, slot);
    return;
  }
  const char *text = reason == 0 ? "the file ends there" : strerror(reason);
  if (slot_begin_again(lane, slot, text)) {
    return;
  }
  mr_status status = MR_IO;
  if (reason == 0) {
    status = MR_CORRUPT;
  } else if (reason == ENOSPC || reason == EDQUOT) {
    status = MR_NO_SPACE;
  }
  slot_fail(lane, slot, status, text);
}

static void finish_read(struct mr_lane *lane, struct mr_slot *slot) {
  struct mr_store *store = lane->store;
  if (slot->retried) {
    mr_log(MR_LOG_WARN, "nvme %s: offset %llu (tensor %s) was read right at the second try",
           lane->path, (unsigned long long)slot_offset(lane, slot),
           store->extents[slot->extent].label);
  }
  atomic_fetch_add_explicit(&store->read_bytes, slot->bytes, memory_order_relaxed);
  slot_end(lane, slot, MR_OK);
}

static void finish_write(struct mr_lane *lane, struct mr_slot *slot) {
  struct mr_store *store = lane->store;
  atomic_fetch_add_explicit(&store->written_bytes, slot->bytes, memory_order_relaxed);
  if (!slot->pool_only) {
    store->places[slot->place] = (struct mr_place){.crc = slot->crc, .state = MR_PLACE_VALID};
  }
  slot_end(lane, slot, MR_OK);
}

/* Takes the slot back from the engine: false where it is held or the monitor has ended its chunk.
 */
static bool take_back(struct mr_lane *lane, struct mr_slot *slot) {
  if (slot->fault == MR_FAULT_HANG) {
    return false; /* the slot stays taken, as if nothing had come back */
  }
  pthread_mutex_lock(&lane->lock);
  bool mine = slot->request != NULL;
  slot->issued_ns = 0;
  pthread_mutex_unlock(&lane->lock);
  if (!mine) {
    slot_end(lane, slot, MR_OK);
    return false;
  }
  if (slot->flipped) {
    slot->flipped = false;
    flip_bit(slot);
  }
  return true;
}

void mr_slot_complete(struct mr_lane *lane, const struct mr_engine_result *result) {
  struct mr_slot *slot = &lane->slots[result->slot];
  if (!take_back(lane, slot)) {
    return;
  }
  int32_t moved = result->result;
  if (slot->fault == MR_FAULT_EIO || slot->fault == MR_FAULT_ENOSPC) {
    moved = slot->fault == MR_FAULT_EIO ? -EIO : -ENOSPC;
  }
  if (moved <= 0) {
    slot_failed_result(lane, slot, moved);
    return;
  }
  slot->moved_bytes += (uint32_t)moved;
  MR_ASSERT(slot->moved_bytes <= slot->io_bytes);
  if (slot->moved_bytes < slot->io_bytes) {
    /* Direct I/O goes on at a block's edge only. */
    uint32_t edge =
        lane->direct_io ? slot->moved_bytes / MR_STORE_ALIGN * MR_STORE_ALIGN : slot->moved_bytes;
    bool progress = edge > slot->moved_bytes - (uint32_t)moved;
    slot->moved_bytes = edge;
    if (!progress) {
      slot_failed_result(lane, slot, slot->tries < EMPTY_TRIES ? -EAGAIN : -EIO);
      return;
    }
    slot->tries = 0;
    atomic_fetch_add(&lane->store->retries, 1);
    slot_begin(lane, slot);
    return;
  }
  if (slot->write) {
    finish_write(lane, slot);
    return;
  }
  if (slot->fault == MR_FAULT_FLIP) {
    flip_bit(slot);
  }
  if (slot->pool_only) {
    finish_read(lane, slot); /* nothing to copy, so the next read may have its buffer at once */
    return;
  }
  lane->settling[lane->settling_count++] = result->slot;
}

/* Takes the most urgent settling slot out, the oldest first. */
static struct mr_slot *take_settling(struct mr_lane *lane) {
  uint32_t best = 0;
  for (uint32_t i = 1; i < lane->settling_count; i++) {
    if (lane->slots[lane->settling[i]].io_class < lane->slots[lane->settling[best]].io_class) {
      best = i;
    }
  }
  struct mr_slot *slot = &lane->slots[lane->settling[best]];
  lane->settling_count--;
  memmove(&lane->settling[best], &lane->settling[best + 1],
          (lane->settling_count - best) * sizeof lane->settling[0]);
  return slot;
}

/* Copies out where staged; the checksum of what was read. */
static uint32_t copy_and_sum(const struct mr_store *store, struct mr_slot *slot) {
  uint32_t generation = store->extents[slot->extent].generation;
  uint32_t seed = mr_chunk_seed(slot->extent, generation, slot->chunk);
  if (!store->checksums) {
    if (slot->staged) {
      mr_chunk_move_out(slot->data, slot->pool, slot->bytes);
    }
    return store->places[slot->place].crc;
  }
  return slot->staged ? mr_chunk_copy_out(slot->data, slot->pool, slot->bytes, seed)
                      : mr_chunk_crc(slot->data, slot->bytes, seed);
}

void mr_slot_settle(struct mr_lane *lane) {
  struct mr_slot *slot = take_settling(lane);
  struct mr_store *store = lane->store;
  if (copy_and_sum(store, slot) != store->places[slot->place].crc) {
    atomic_fetch_add(&store->crc_failures, 1);
    if (!slot_begin_again(lane, slot, "its checksum does not match")) {
      slot_fail(lane, slot, MR_CORRUPT, "its checksum does not match, nor did it when read again");
    }
    return;
  }
  finish_read(lane, slot);
}
