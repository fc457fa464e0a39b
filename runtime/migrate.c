/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Moving what lasts between steps from the tiers of one plan to those of the next. Both plans fit
 * the same budgets, but not beside each other: so memory is given back as soon as its bytes have
 * gone on, and comes to the new tiers as bytes arrive. What goes to NVMe goes first, what comes
 * from there last. What lies in memory twice is one piece, or from one host tier to the other a
 * small one for each thread of the team; of huge pages the kernel has each when its last piece
 * went.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/runtime.h"

/* Whole pages of either plan, and whole chunks. */
#define PIECE_BYTES MR_BOUNCE_BYTES
/* Whole pages of either host tier. */
#define HOST_PIECE_BYTES (MR_MOST_PAGE_BYTES / 8)
/* Small tensors are there twice for a moment; they must not take the libraries' share. */
#define MAX_SMALL_BYTES (MR_OVERHEAD_BYTES / 4)

struct migration {
  struct mr_run *from;
  struct mr_run *to;
  struct mr_memory piece;
  bool shares_store;
  uint32_t *extent_of; /* of each tensor: 1 + the extent in which it lasts and has no successor */
};

/* A tensor that goes from one host tier to the other, on all threads of the team. */
struct host_move {
  const struct migration *migration;
  mr_tensor_id tensor;
};

/* What is derived is restored where the next plan wants it. */
static bool lasts(const struct mr_graph *graph, mr_tensor_id tensor) {
  mr_role role = graph->tensors[tensor].role;
  return role == MR_INPUT || (mr_role_is_persistent(role) && role != MR_DERIVED);
}

/* A tensor that no op uses has no home on the device, and no bytes. */
static bool homeless(const struct mr_home *home) {
  return home->tier == MR_TIER_DEVICE && home->instance == MR_NO_INSTANCE;
}

static void drop_host_page(const struct mr_run *run, uint32_t page) {
  uint64_t page_bytes = mr_plan_host_page_bytes(run->layout->page_bytes);
  mr_memory_drop((char *)run->host.data + page * page_bytes, page_bytes);
}

/* Gives back the pages of a home from byte `first` to byte `end`, whole pages both. */
static void drop_home(const struct mr_run *run, const struct mr_home *home, uint64_t first,
                      uint64_t end) {
  const struct mr_program_plan *layout = run->layout;
  if (home->tier == MR_TIER_DEVICE && !layout->instances[home->instance].small) {
    const struct mr_instance *instance = &layout->instances[home->instance];
    uint64_t end_page = mr_min_u64(mr_div_up(end, layout->page_bytes), instance->page_count);
    for (uint64_t i = first / layout->page_bytes; i < end_page; i++) {
      run->device_ops->drop(run->device, layout->pages[instance->first_page + i]);
    }
  } else if (home->tier == MR_TIER_HOST) {
    const struct mr_slot *slot = &layout->slots[home->slot];
    uint64_t page_bytes = mr_plan_host_page_bytes(layout->page_bytes);
    uint64_t end_page = mr_min_u64(mr_div_up(end, page_bytes), slot->page_count);
    for (uint64_t i = first / page_bytes; i < end_page; i++) {
      drop_host_page(run, layout->host_pages[slot->first_page + i]);
    }
  }
}

static void mark(uint8_t *lives, const uint32_t *pages, uint32_t count) {
  for (uint32_t i = 0; i < count; i++) {
    lives[pages[i]] = 1;
  }
}

/* Gives back every page that holds nothing between steps. */
static mr_status drop_the_rest(struct mr_run *run) {
  const struct mr_program_plan *layout = run->layout;
  uint8_t *device = mr_allocate(layout->device_page_count, 1);
  uint8_t *host = mr_allocate(layout->host_page_count, 1);
  mr_status status = device == NULL || host == NULL ? MR_NO_MEMORY : MR_OK;
  for (uint32_t t = 0; status == MR_OK && t < run->graph->tensor_count; t++) {
    const struct mr_home *home = &layout->homes[t];
    if (!lasts(run->graph, t) || homeless(home)) {
      continue;
    }
    if (home->tier == MR_TIER_DEVICE && !layout->instances[home->instance].small) {
      const struct mr_instance *instance = &layout->instances[home->instance];
      mark(device, &layout->pages[instance->first_page], instance->page_count);
    } else if (home->tier == MR_TIER_HOST) {
      const struct mr_slot *slot = &layout->slots[home->slot];
      mark(host, &layout->host_pages[slot->first_page], slot->page_count);
    }
  }
  for (uint32_t page = 0; status == MR_OK && page < layout->device_page_count; page++) {
    if (device[page] == 0) {
      run->device_ops->drop(run->device, page);
    }
  }
  for (uint32_t page = 0; status == MR_OK && page < layout->host_page_count; page++) {
    if (host[page] == 0) {
      drop_host_page(run, page);
    }
  }
  free(device);
  free(host);
  return status;
}

/* A piece from one host tier to the other; what it had is given back. */
static void move_piece(void *context, uint32_t piece, uint32_t thread) {
  (void)thread;
  const struct host_move *move = context;
  const struct mr_run *from = move->migration->from, *to = move->migration->to;
  const struct mr_home *before = &from->layout->homes[move->tensor];
  const struct mr_home *after = &to->layout->homes[move->tensor];
  uint64_t first = piece * HOST_PIECE_BYTES;
  uint64_t end = mr_min_u64(first + HOST_PIECE_BYTES, from->graph->tensors[move->tensor].bytes);
  uint64_t together = 0;
  for (uint64_t at = first; at < end; at += together) {
    uint64_t there = 0;
    const char *source = mr_host_place(from, &from->layout->slots[before->slot], at, &together);
    char *target = mr_host_place(to, &to->layout->slots[after->slot], at, &there);
    together = mr_min_u64(mr_min_u64(together, there), end - at);
    memcpy(target, source, together);
  }
  drop_home(from, before, first, end);
}

static mr_status move_tensor(struct migration *migration, mr_tensor_id tensor) {
  struct mr_run *from = migration->from;
  struct mr_run *to = migration->to;
  uint64_t bytes = from->graph->tensors[tensor].bytes;
  if (from->layout->homes[tensor].tier == MR_TIER_HOST &&
      to->layout->homes[tensor].tier == MR_TIER_HOST) {
    struct host_move move = {migration, tensor};
    mr_team_run(from->team, (uint32_t)mr_div_up(bytes, HOST_PIECE_BYTES), move_piece, &move);
    return MR_OK;
  }
  uint64_t piece = 0;
  mr_status status = MR_OK;
  for (uint64_t at = 0; status == MR_OK && at < bytes; at += piece) {
    piece = mr_min_u64(PIECE_BYTES, bytes - at);
    status = mr_home_read(from, tensor, at, migration->piece.data, piece);
    if (status == MR_OK) {
      drop_home(from, &from->layout->homes[tensor], at, at + piece);
      status = mr_home_write(to, tensor, at, migration->piece.data, piece);
    }
  }
  return status;
}

static bool rests_on_nvme(const struct mr_program_plan *layout, uint32_t extent) {
  mr_tensor_id tensor = layout->extents[extent].tensor;
  return lasts(layout->program, tensor) && layout->homes[tensor].tier == MR_TIER_NVME;
}

static uint64_t room_bytes(const struct mr_extent *extent) {
  return mr_round_up(extent->bytes, MR_STORE_CHUNK_BYTES);
}

/* Extents that hold nothing between steps make room before any is asked for, and an extent that
 * lasts serves its tensor in the next plan too. */
bool mr_tiers_share_store(const struct mr_run *run, const struct mr_program_plan *layout) {
  if (run->store == NULL) {
    return false;
  }
  struct mr_store_stats stats;
  mr_store_get_stats(run->store, &stats);
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < run->layout->extent_count; i++) {
    bytes += rests_on_nvme(run->layout, i) ? room_bytes(&run->layout->extents[i]) : 0;
  }
  for (uint32_t i = 0; i < layout->extent_count; i++) {
    mr_tensor_id tensor = layout->extents[i].tensor;
    bool there = tensor < run->graph->tensor_count && lasts(run->graph, tensor) &&
                 run->layout->homes[tensor].tier == MR_TIER_NVME;
    bytes += there ? 0 : room_bytes(&layout->extents[i]);
  }
  return bytes <= stats.reserved_bytes;
}

/* Whether a store of the layout's own can be made beside the run's. */
static bool has_room_for_both(const struct mr_run *run, const struct mr_program_plan *layout) {
  const struct mr_settings *settings = &run->plan->settings;
  for (uint32_t i = 0; i < settings->nvme_count; i++) {
    if (access(settings->nvme[i].path, W_OK | X_OK) != 0) {
      return false;
    }
  }
  return run->layout->nvme_bytes + layout->nvme_bytes <= settings->budget_bytes[MR_TIER_NVME];
}

enum turn { TURN_TO_NVME, TURN_IN_MEMORY, TURN_FROM_NVME, TURN_COUNT };

static enum turn turn_of(const struct mr_home *from, const struct mr_home *to) {
  if (to->tier == MR_TIER_NVME) {
    return TURN_TO_NVME;
  }
  return from->tier == MR_TIER_NVME ? TURN_FROM_NVME : TURN_IN_MEMORY;
}

/* Device memory while bytes go over: parts in use of what one plan's device maps at once, and
 * whether the other's has it. */
struct crossing {
  const struct mr_program_plan *from, *to;
  uint32_t parts;        /* pages of what is mapped at once */
  uint8_t *used;         /* of the first plan's: parts that hold what lasts */
  bool *taken;           /* of the next plan's */
  uint64_t mapped, most; /* of both, now and at most */
};

/* The pages [first, end) of the home on the device of the plan that bytes leave are given back. */
static void leave(struct crossing *c, const struct mr_home *home, uint64_t first, uint64_t end) {
  const struct mr_instance *stay = &c->from->instances[home->instance];
  for (uint64_t i = first; i < end && i < stay->page_count; i++) {
    uint32_t mapped = c->from->pages[stay->first_page + i] / c->parts;
    c->mapped -= --c->used[mapped] == 0;
  }
}

/* Those of the plan that bytes go to are taken. */
static void arrive(struct crossing *c, const struct mr_home *home, uint64_t first, uint64_t end) {
  const struct mr_instance *stay = &c->to->instances[home->instance];
  for (uint64_t i = first; i < end && i < stay->page_count; i++) {
    uint32_t mapped = c->to->pages[stay->first_page + i] / c->parts;
    c->mapped += !c->taken[mapped];
    c->taken[mapped] = true;
  }
  c->most = mr_max_u64(c->most, c->mapped);
}

static bool is_paged(const struct mr_program_plan *layout, const struct mr_home *home) {
  return home->tier == MR_TIER_DEVICE && !homeless(home) &&
         !layout->instances[home->instance].small;
}

/* Goes through move_tensor() in pages of the device. */
static void cross(struct crossing *c, mr_tensor_id tensor) {
  const struct mr_home *before = &c->from->homes[tensor];
  const struct mr_home *after = &c->to->homes[tensor];
  uint64_t bytes = c->from->program->tensors[tensor].bytes;
  for (uint64_t at = 0; at < bytes; at += PIECE_BYTES) {
    uint64_t end = mr_min_u64(at + PIECE_BYTES, bytes);
    if (is_paged(c->from, before)) {
      leave(c, before, at / c->from->page_bytes, mr_div_up(end, c->from->page_bytes));
    }
    if (is_paged(c->to, after)) {
      arrive(c, after, at / c->to->page_bytes, mr_div_up(end, c->to->page_bytes));
    }
  }
}

/* The most of the device that is mapped while bytes go over, but for the small arenas. */
static uint64_t crossing_bytes(const struct mr_run *run, struct crossing *c) {
  uint32_t tensors = run->graph->tensor_count;
  for (uint32_t t = 0; t < tensors; t++) {
    const struct mr_home *home = &c->from->homes[t];
    if (!lasts(run->graph, t) || !is_paged(c->from, home)) continue;
    const struct mr_instance *stay = &c->from->instances[home->instance];
    for (uint32_t i = 0; i < stay->page_count; i++) {
      c->mapped += c->used[c->from->pages[stay->first_page + i] / c->parts]++ == 0;
    }
  }
  c->most = c->mapped;
  for (uint32_t turn = 0; turn < TURN_COUNT; turn++) {
    for (uint32_t t = 0; t < tensors; t++) {
      bool moves = lasts(run->graph, t) && turn_of(&c->from->homes[t], &c->to->homes[t]) == turn;
      if (moves) {
        cross(c, t);
      }
    }
  }
  return c->most * c->parts * c->to->page_bytes;
}

/* Whether the device has room for what both plans have of it while bytes go over; false where there
 * is no memory to tell. The small arenas on the cpu device are a part of what libraries are left.
 */
static bool has_room_on_device(const struct mr_run *run, const struct mr_program_plan *layout) {
  if (run->device_ops->streams == NULL) {
    return true;
  }
  struct crossing c = {
      .from = run->layout, .to = layout, .parts = mr_plan_pages_mapped(&run->plan->problem)};
  c.used = mr_allocate(c.from->device_page_count, sizeof *c.used);
  c.taken = mr_allocate(c.to->device_page_count, sizeof *c.taken);
  uint64_t bytes = UINT64_MAX;
  if (c.used != NULL && c.taken != NULL) {
    bytes = c.from->small_bytes + c.to->small_bytes + crossing_bytes(run, &c);
  }
  free(c.used);
  free(c.taken);
  return bytes <= run->plan->settings.budget_bytes[MR_TIER_DEVICE];
}

bool mr_tiers_can_migrate(const struct mr_run *run, const struct mr_program_plan *layout) {
  return layout->fits && has_room_on_device(run, layout) &&
         layout->small_bytes <= MAX_SMALL_BYTES &&
         (layout->extent_count == 0 || mr_tiers_share_store(run, layout) ||
          has_room_for_both(run, layout));
}

/* The store goes over: what lasts in it keeps its extent, new extents take the room of the rest. */
static mr_status share_store(struct migration *migration) {
  struct mr_run *from = migration->from;
  struct mr_run *to = migration->to;
  uint32_t *extent_of = migration->extent_of;
  for (uint32_t i = 0; i < from->layout->extent_count; i++) {
    if (rests_on_nvme(from->layout, i)) {
      extent_of[from->layout->extents[i].tensor] = i + 1;
    } else {
      mr_store_extent_destroy(from->store, from->extents[i]);
    }
  }
  to->store = from->store;
  mr_status status = MR_OK;
  for (uint32_t i = 0; status == MR_OK && i < to->layout->extent_count; i++) {
    mr_tensor_id tensor = to->layout->extents[i].tensor;
    uint32_t there = tensor < from->graph->tensor_count ? extent_of[tensor] : 0;
    if (there == 0) {
      status = mr_tiers_take_extent(to, i);
    } else {
      to->extents[i] = from->extents[there - 1];
      extent_of[tensor] = 0;
    }
  }
  return status;
}

/* What has been read from the store and has no extent there any more leaves it. */
static void give_store(struct migration *migration) {
  struct mr_run *from = migration->from;
  for (uint32_t t = 0; t < from->graph->tensor_count; t++) {
    if (migration->extent_of[t] != 0) {
      mr_store_extent_destroy(from->store, from->extents[migration->extent_of[t] - 1]);
    }
  }
  from->store = NULL;
}

static mr_status move_all(struct migration *migration) {
  const struct mr_graph *graph = migration->from->graph;
  mr_status status = MR_OK;
  for (uint32_t turn = 0; turn < TURN_COUNT; turn++) {
    for (uint32_t t = 0; status == MR_OK && t < graph->tensor_count; t++) {
      const struct mr_home *before = &migration->from->layout->homes[t];
      const struct mr_home *after = &migration->to->layout->homes[t];
      bool stays =
          migration->shares_store && before->tier == MR_TIER_NVME && after->tier == MR_TIER_NVME;
      if (lasts(graph, t) && !stays && !homeless(before) && !homeless(after) &&
          turn_of(before, after) == turn) {
        status = move_tensor(migration, t);
      }
    }
  }
  return status;
}

mr_status mr_tiers_migrate(struct mr_run *from, struct mr_run *to) {
  struct migration migration = {
      .from = from,
      .to = to,
      .shares_store = to->layout->extent_count != 0 && to->store == NULL,
      .extent_of = mr_allocate(from->graph->tensor_count, sizeof *migration.extent_of),
  };
  mr_status status = migration.extent_of == NULL ? MR_NO_MEMORY : MR_OK;
  if (status == MR_OK) {
    status = mr_memory_map(PIECE_BYTES, PIECE_BYTES, "a piece on its way", &migration.piece);
  }
  mr_tiers_unpin(from);
  if (status == MR_OK) {
    status = drop_the_rest(from);
  }
  if (status == MR_OK && migration.shares_store) {
    status = share_store(&migration);
  }
  if (status == MR_OK) {
    status = move_all(&migration);
  }
  if (status == MR_OK && migration.shares_store) {
    give_store(&migration);
  } else if (migration.shares_store) {
    to->store = NULL; /* one of them destroys it */
  }
  mr_memory_unmap(&migration.piece);
  free(migration.extent_of);
  return status;
}
