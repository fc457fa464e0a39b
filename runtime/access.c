/* SPDX-License-Identifier: Apache-2.0 */
/* The client's reads and writes between steps, wherever a tensor rests. */
#include <string.h>

#include "runtime/runtime.h"

/* One read or write; `to` and `from`: one of them is the client's. */
struct access {
  struct mr_run *run;
  mr_tensor_id tensor;
  const struct mr_home *home;
  uint64_t offset_bytes;
  uint64_t bytes;
  const char *from; /* NULL: a read */
  char *to;
};

static mr_status access_device(const struct access *access) {
  const struct mr_run *run = access->run;
  const char *name = run->graph->tensors[access->tensor].name;
  char *resident = (char *)run->addresses[access->home->instance] + access->offset_bytes;
  if (access->from != NULL) {
    return run->device_ops->write(run->device, resident, access->from, access->bytes, name);
  }
  MR_ASSERT(access->to != NULL);
  return run->device_ops->read(run->device, access->to, resident, access->bytes, name);
}

static void access_host(const struct access *access) {
  const struct mr_run *run = access->run;
  const struct mr_slot *slot = &run->layout->slots[access->home->slot];
  uint64_t piece = 0;
  for (uint64_t done = 0; done < access->bytes; done += piece) {
    char *resident = mr_host_place(run, slot, access->offset_bytes + done, &piece);
    piece = mr_min_u64(piece, access->bytes - done);
    if (access->from != NULL) {
      memcpy(resident, access->from + done, piece);
    } else {
      memcpy(access->to + done, resident, piece);
    }
  }
}

/* Whole chunks between an extent and memory. */
static mr_status transfer(struct mr_run *run, uint32_t extent, bool write, uint64_t offset_bytes,
                          void *data, uint64_t bytes) {
  struct mr_store_request request = {
      .extent = run->extents[extent],
      .write = write,
      .io_class = MR_IO_DEMAND,
      .offset_bytes = offset_bytes,
      .bytes = bytes,
      .data = data,
  };
  return mr_store_transfer(run->store, &request);
}

/* One piece through the bounce buffer: whole chunks around [offset, offset + bytes). */
static mr_status access_bounced(const struct access *access, uint64_t offset_bytes, uint64_t bytes,
                                uint64_t done) {
  struct mr_run *run = access->run;
  uint32_t extent = access->home->slot;
  uint64_t extent_bytes = run->layout->extents[extent].bytes;
  uint64_t first = offset_bytes / MR_STORE_CHUNK_BYTES;
  uint64_t count = mr_div_up(offset_bytes + bytes, MR_STORE_CHUNK_BYTES) - first;
  uint64_t start = first * MR_STORE_CHUNK_BYTES;
  uint64_t length = mr_min_u64(count * MR_STORE_CHUNK_BYTES, extent_bytes - start);
  char *data = (char *)run->bounce.data + (offset_bytes - start);
  mr_status status = MR_OK;
  if (access->from == NULL || offset_bytes != start || bytes != length) {
    status = transfer(run, extent, false, start, run->bounce.data, length);
  }
  if (status != MR_OK) {
    return status;
  }
  if (access->from == NULL) {
    memcpy(access->to + done, data, bytes);
    return MR_OK;
  }
  memcpy(data, access->from + done, bytes);
  return transfer(run, extent, true, start, run->bounce.data, length);
}

static mr_status access_nvme(const struct access *access) {
  uint64_t piece = 0;
  for (uint64_t done = 0; done < access->bytes; done += piece) {
    uint64_t at = access->offset_bytes + done;
    piece = mr_min_u64(access->bytes - done, MR_BOUNCE_BYTES - at % MR_BOUNCE_BYTES);
    mr_status status = access_bounced(access, at, piece, done);
    if (status != MR_OK) {
      return status;
    }
  }
  return MR_OK;
}

static mr_status check(const struct access *access) {
  const struct mr_graph *graph = access->run->graph;
  if (access->tensor >= access->run->tensor_count) {
    mr_log(MR_LOG_ERROR, "tensor %u is not in the graph of %u", access->tensor,
           access->run->tensor_count);
    return MR_INVALID;
  }
  const struct mr_tensor *tensor = &graph->tensors[access->tensor];
  if (tensor->role != MR_INPUT && !mr_role_is_persistent(tensor->role)) {
    mr_log(MR_LOG_ERROR, "tensor %s does not live between steps", tensor->name);
    return MR_INVALID;
  }
  if (tensor->role == MR_DERIVED) {
    mr_log(MR_LOG_ERROR, "tensor %s is derived: read or write what its ops make it from",
           tensor->name);
    return MR_INVALID;
  }
  if (access->from == NULL && access->to == NULL && access->bytes != 0) {
    mr_log(MR_LOG_ERROR, "tensor %s: no memory was given to read into or write from", tensor->name);
    return MR_INVALID;
  }
  uint64_t end = 0;
  if (!mr_add_u64(access->offset_bytes, access->bytes, &end) || end > tensor->bytes) {
    mr_log(MR_LOG_ERROR, "tensor %s: bytes %llu to %llu are outside its %llu", tensor->name,
           (unsigned long long)access->offset_bytes, (unsigned long long)end,
           (unsigned long long)tensor->bytes);
    return MR_INVALID;
  }
  return MR_OK;
}

/* What is always on the device is touched by ops alone, which have finished; everything else waits
 * for the links. */
static bool needs_drain(const struct access *access) {
  if (access->home->tier != MR_TIER_DEVICE) {
    return true;
  }
  const struct mr_instance *instance = &access->run->layout->instances[access->home->instance];
  return !instance->small && !instance->always;
}

static mr_status access_tier(const struct access *access, mr_tier tier) {
  if (tier == MR_TIER_NVME) {
    return access_nvme(access);
  }
  if (tier == MR_TIER_DEVICE) {
    return access_device(access);
  }
  access_host(access);
  return MR_OK;
}

/* What is written to a home is written to its copy too. */
static mr_status access_home(const struct access *access) {
  const struct mr_home *home = access->home;
  mr_status status = access_tier(access, home->tier);
  if (status == MR_OK && access->from != NULL && home->copy != MR_TIER_DEVICE) {
    status = access_tier(access, home->copy);
  }
  return status;
}

mr_status mr_home_read(struct mr_run *run, mr_tensor_id tensor, uint64_t offset_bytes, void *data,
                       uint64_t bytes) {
  struct access access = {.run = run,
                          .tensor = tensor,
                          .home = &run->layout->homes[tensor],
                          .offset_bytes = offset_bytes,
                          .bytes = bytes,
                          .to = data};
  return access_home(&access);
}

mr_status mr_home_write(struct mr_run *run, mr_tensor_id tensor, uint64_t offset_bytes,
                        const void *data, uint64_t bytes) {
  struct access access = {.run = run,
                          .tensor = tensor,
                          .home = &run->layout->homes[tensor],
                          .offset_bytes = offset_bytes,
                          .bytes = bytes,
                          .from = data};
  return access_home(&access);
}

static mr_status perform(struct access *access) {
  struct mr_run *run = access->run;
  mr_status status =
      mr_run_check_outside(run, access->from != NULL ? "mr_run_write" : "mr_run_read");
  if (status == MR_OK) {
    status = mr_run_status(run);
  }
  if (status == MR_OK) {
    status = check(access);
  }
  if (status != MR_OK) {
    return status;
  }
  access->home = &run->layout->homes[access->tensor];
  if (access->bytes == 0) {
    return MR_OK;
  }
  if (mr_run_is_pending(run, access->tensor, access->from != NULL)) {
    status = mr_run_flush(run);
  }
  if (status == MR_OK && needs_drain(access)) {
    status = mr_run_drain(run);
  }
  if (status != MR_OK) {
    return status;
  }
  status = access_home(access);
  if (status != MR_OK) {
    mr_run_fail(run, status);
  } else if (access->from != NULL) {
    mr_run_note_written(run, access->tensor);
  }
  return status;
}

mr_status mr_run_write(struct mr_run *run, mr_tensor_id tensor, uint64_t offset_bytes,
                       const void *data, uint64_t bytes) {
  struct access access = {
      .run = run, .tensor = tensor, .offset_bytes = offset_bytes, .bytes = bytes, .from = data};
  return perform(&access);
}

mr_status mr_run_read(struct mr_run *run, mr_tensor_id tensor, uint64_t offset_bytes, void *data,
                      uint64_t bytes) {
  struct access access = {
      .run = run, .tensor = tensor, .offset_bytes = offset_bytes, .bytes = bytes, .to = data};
  return perform(&access);
}
