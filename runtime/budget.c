/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Budgets as numbers. What a user gives holds where the machine can keep it; what is left open is
 * taken from the lowest of the cgroup limits and the machine's available memory.
 *
 * On the cpu device, device and host memory are the same silicon, so a byte of host tier saves no
 * more than a byte of device memory would and costs two copies. The host gets a share at all
 * because tensors that rest in it need no huge page of their own: a quarter, and the device the
 * rest; without offload the device gets everything.
 *
 * An accelerator has memory of its own. What is in use there before the run takes any (its context,
 * libraries, the client's kernels, other processes) counts against the budget, so that a budget is
 * a promise about the device as a whole. Where it is left open, a part stays free for what
 * libraries take later.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/runtime.h"

/* A cgroup counts its pages in batches, so a limit of exactly what is asked for may look short. */
#define COUNTING_SLACK_BYTES (4ull << 20)

/* The number after `key` at the start of a line, in units of `unit`; `fallback` where there is
 * none. */
static uint64_t read_field(const char *path, const char *key, uint64_t unit, uint64_t fallback) {
  FILE *file = fopen(path, "re");
  if (file == NULL) {
    return fallback;
  }
  char line[256];
  uint64_t value = fallback;
  size_t key_length = strlen(key);
  while (fgets(line, sizeof line, file) != NULL) {
    if (strncmp(line, key, key_length) == 0) {
      char *end = NULL;
      errno = 0;
      unsigned long long number = strtoull(line + key_length, &end, 10);
      if (end != line + key_length && errno == 0 && !mr_mul_u64(number, unit, &value)) {
        value = UINT64_MAX;
      }
      break;
    }
  }
  fclose(file);
  return value;
}

/* What a cgroup leaves to this process: its limit less what others in it hold. Files in its page
 * cache give way. UINT64_MAX: no limit. */
static uint64_t group_available(const char *directory, bool unified, uint64_t own_bytes) {
  char limit_path[4352];
  char stat_path[4352];
  snprintf(limit_path, sizeof limit_path, "%s/%s", directory,
           unified ? "memory.max" : "memory.limit_in_bytes");
  snprintf(stat_path, sizeof stat_path, "%s/memory.stat", directory);
  uint64_t limit = read_field(limit_path, "", 1, UINT64_MAX);
  if (limit >= UINT64_MAX / 4) {
    return UINT64_MAX;
  }
  uint64_t used = read_field(stat_path, unified ? "anon " : "total_rss ", 1, 0) +
                  read_field(stat_path, unified ? "shmem " : "total_shmem ", 1, 0);
  uint64_t others = used > own_bytes ? used - own_bytes : 0;
  return limit > others ? limit - others : 0;
}

/* The lowest over the group of this line of /proc/self/cgroup and its parents. */
static uint64_t line_available(const char *line, uint64_t own_bytes) {
  const char *first = strchr(line, ':');
  const char *second = first == NULL ? NULL : strchr(first + 1, ':');
  if (second == NULL) {
    return UINT64_MAX;
  }
  bool unified = second == first + 1;
  bool memory = strncmp(first + 1, "memory:", 7) == 0 || strstr(first + 1, ",memory") != NULL;
  if (!unified && !memory) {
    return UINT64_MAX;
  }
  static const char *const roots[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"};
  uint64_t lowest = UINT64_MAX;
  for (size_t r = 0; r < (unified ? MR_COUNT_OF(roots) : 1); r++) {
    char directory[4200];
    const char *root = unified ? roots[r] : "/sys/fs/cgroup/memory";
    int length = snprintf(directory, sizeof directory, "%s%.*s", root,
                          (int)strcspn(second + 1, "\n"), second + 1);
    size_t root_length = strlen(root);
    while (length > 0 && strlen(directory) >= root_length) {
      lowest = mr_min_u64(lowest, group_available(directory, unified, own_bytes));
      char *slash = strrchr(directory, '/');
      if (slash == NULL) {
        break;
      }
      *slash = '\0';
    }
  }
  return lowest;
}

uint64_t mr_budget_available_bytes(void) {
  uint64_t own = read_field("/proc/self/status", "RssAnon:", 1024, 0);
  uint64_t lowest = read_field("/proc/meminfo", "MemAvailable:", 1024, UINT64_MAX / 2) + own;
  FILE *file = fopen("/proc/self/cgroup", "re");
  if (file != NULL) {
    char line[4096];
    while (fgets(line, sizeof line, file) != NULL) {
      lowest = mr_min_u64(lowest, line_available(line, own));
    }
    fclose(file);
  }
  return lowest > MR_OVERHEAD_BYTES ? lowest - MR_OVERHEAD_BYTES : 0;
}

/* Libraries load kernels and take workspaces when they are first used. */
#define LIBRARY_BYTES (256ull << 20)

/* See mr_budget_table_bytes. */
#define BYTES_OF_TABLE_BYTE 512u
#define TABLE_UNIT          (2 * MR_MIB)

uint64_t mr_budget_table_bytes(const struct mr_settings *settings, uint64_t pinned_bytes) {
  bool apart = settings->device->streams != NULL && settings->machine == NULL;
  return apart ? mr_round_up(mr_div_up(pinned_bytes, BYTES_OF_TABLE_BYTE), TABLE_UNIT) : 0;
}

/* What a plan pins at most: each tensor has one place in the host tier at a time, in whole pages,
 * of a tensor and its like that is made again only one lives, and each op may be handed something;
 * beside that two rings. */
static uint64_t most_pinned_bytes(const struct mr_settings *settings,
                                  const struct mr_graph *graph) {
  uint64_t page_bytes = mr_plan_host_page_bytes(MR_MOST_PAGE_BYTES);
  uint64_t bytes = graph == NULL ? 0 : (uint64_t)graph->op_count * MR_HANDOVER_BYTES;
  for (uint32_t t = 0; graph != NULL && t < graph->tensor_count; t++) {
    bytes += mr_round_up(graph->tensors[t].bytes, page_bytes);
  }
  uint64_t budget = settings->budget_bytes[MR_TIER_HOST];
  uint64_t rings = settings->offload_nvme ? 2 * MR_RING_BYTES : 0;
  return rings + (graph == NULL ? budget : mr_min_u64(bytes, budget));
}

/* Nothing fits a byte, and a refusal says what would do. */
static void share_device(struct mr_settings *settings, uint64_t device_bytes,
                         uint64_t outside_bytes) {
  uint64_t taken_bytes = outside_bytes + settings->most_table_bytes;
  uint64_t own_bytes = device_bytes > taken_bytes ? device_bytes - taken_bytes : 1;
  settings->outside_bytes = outside_bytes;
  settings->short_bytes = own_bytes + taken_bytes - device_bytes;
  settings->budget_bytes[MR_TIER_DEVICE] = own_bytes;
}

void mr_budget_leave_outside(struct mr_settings *settings, uint64_t outside_bytes) {
  uint64_t budget[MR_TIER_COUNT];
  mr_settings_tell_budgets(settings, budget);
  share_device(settings, budget[MR_TIER_DEVICE], outside_bytes);
}

static void resolve_accelerator(struct mr_settings *settings, const struct mr_options *options,
                                const struct mr_graph *graph) {
  const struct mr_accelerator *accelerator = &settings->accelerator;
  uint64_t in_use = accelerator->memory_bytes - accelerator->free_bytes;
  uint64_t device = mr_min_u64(options->device_bytes, accelerator->memory_bytes);
  struct mr_size_text text[2];
  if (options->device_bytes == MR_BUDGET_AUTO) {
    uint64_t left = LIBRARY_BYTES + accelerator->memory_bytes / 64;
    device = accelerator->memory_bytes > left ? accelerator->memory_bytes - left : 0;
  }
  mr_log(MR_LOG_INFO, "device %s: %s are in use already and count against the budget of %s",
         settings->device->name, mr_size_format(in_use, &text[0]),
         mr_size_format(device, &text[1]));
  uint64_t available = mr_budget_available_bytes();
  available = available > MR_DRIVER_BYTES ? available - MR_DRIVER_BYTES : 0;
  settings->budget_bytes[MR_TIER_HOST] =
      settings->host ? mr_min_u64(options->host_bytes, available) : 0;
  settings->most_table_bytes = mr_budget_table_bytes(settings, most_pinned_bytes(settings, graph));
  share_device(settings, device, in_use);
  if (options->host_bytes != MR_BUDGET_AUTO &&
      options->host_bytes > available + COUNTING_SLACK_BYTES) {
    mr_log(MR_LOG_WARN, "only %s of memory are available for the host budget",
           mr_size_format(available, &text[0]));
  }
}

static void resolve_memory(struct mr_settings *settings, const struct mr_options *options) {
  uint64_t available = mr_budget_available_bytes();
  bool device_open = options->device_bytes == MR_BUDGET_AUTO;
  bool host_open = settings->host && options->host_bytes == MR_BUDGET_AUTO;
  uint64_t device = device_open ? 0 : options->device_bytes;
  uint64_t host = settings->host && !host_open ? options->host_bytes : 0;
  bool cut =
      device > available + COUNTING_SLACK_BYTES || host > available + COUNTING_SLACK_BYTES - device;
  if (cut) {
    device = mr_min_u64(device, available);
    host = mr_min_u64(host, available - device);
  }
  uint64_t left = available > device + host ? available - device - host : 0;
  if (host_open) {
    host = device_open ? left / 4 : left;
  }
  if (device_open) {
    device = host_open ? left - host : left;
  }
  if (cut) {
    struct mr_size_text text[3];
    mr_log(MR_LOG_WARN, "only %s of memory are available: device budget %s, host budget %s",
           mr_size_format(available, &text[0]), mr_size_format(device, &text[1]),
           mr_size_format(host, &text[2]));
  }
  settings->budget_bytes[MR_TIER_DEVICE] = device;
  settings->budget_bytes[MR_TIER_HOST] = host;
}

void mr_budget_tell_cut(const struct mr_settings *settings) {
  uint64_t budget_bytes = settings->budget_bytes[MR_TIER_NVME];
  struct mr_size_text text[2];
  if (settings->nvme_asked_bytes > budget_bytes) {
    mr_log(MR_LOG_WARN, "only %s of nvme can be used, less than the budget of %s, which is cut",
           mr_size_format(budget_bytes, &text[0]),
           mr_size_format(settings->nvme_asked_bytes, &text[1]));
  }
}

/* What the paths can hold, in whole chunks. */
static mr_status resolve_nvme(struct mr_settings *settings) {
  uint64_t limit_bytes = 0;
  uint64_t *budget_bytes = &settings->budget_bytes[MR_TIER_NVME];
  bool open = settings->budget_open[MR_TIER_NVME];
  for (uint32_t i = 0; i < settings->nvme_count && !open; i++) {
    uint64_t path_bytes = settings->nvme[i].limit_bytes / MR_STORE_CHUNK_BYTES;
    open = settings->nvme[i].limit_bytes == MR_BUDGET_AUTO ||
           !mr_add_u64(limit_bytes, path_bytes * MR_STORE_CHUNK_BYTES, &limit_bytes);
  }
  settings->nvme_asked_bytes = open ? 0 : limit_bytes;
  return mr_store_available(settings->nvme, settings->nvme_count, budget_bytes);
}

/* A budget is no more than the machine that is described has. */
static uint64_t cut_to_described(const struct mr_settings *settings, uint32_t tier,
                                 uint64_t given_bytes) {
  static const char *const names[MR_TIER_COUNT] = {"device memory", "host memory", "NVMe"};
  uint64_t has_bytes = settings->machine->tier_bytes[tier];
  if (given_bytes <= has_bytes) {
    return given_bytes;
  }
  struct mr_size_text text[2];
  mr_log(MR_LOG_WARN,
         "profile %s: '%s' has %s of %s, less than the budget of %s, which is cut to it",
         settings->profile_path, settings->machine->name, mr_size_format(has_bytes, &text[0]),
         names[tier], mr_size_format(given_bytes, &text[1]));
  return has_bytes;
}

/* The budgets on a machine that is not here: what was given, as far as it has that, else all. */
static void resolve_described(struct mr_settings *settings, const struct mr_options *options) {
  const uint64_t *has = settings->machine->tier_bytes;
  const bool *open = settings->budget_open;
  uint64_t given[MR_TIER_COUNT] = {options->device_bytes, options->host_bytes, 0};
  for (uint32_t i = 0; i < options->nvme_count && !open[MR_TIER_NVME]; i++) {
    if (!mr_add_u64(given[MR_TIER_NVME], options->nvme[i].limit_bytes, &given[MR_TIER_NVME])) {
      given[MR_TIER_NVME] = UINT64_MAX;
    }
  }
  const bool used[MR_TIER_COUNT] = {true, settings->host, settings->offload_nvme};
  for (uint32_t tier = 0; tier < MR_TIER_COUNT; tier++) {
    if (used[tier]) {
      settings->budget_bytes[tier] =
          open[tier] ? has[tier] : cut_to_described(settings, tier, given[tier]);
    }
  }
}

/* Which budgets are left open: all of a tier's, as far as NVMe is concerned. */
static void find_open(struct mr_settings *settings, const struct mr_options *options) {
  settings->budget_open[MR_TIER_DEVICE] = options->device_bytes == MR_BUDGET_AUTO;
  settings->budget_open[MR_TIER_HOST] = options->host_bytes == MR_BUDGET_AUTO;
  settings->budget_open[MR_TIER_NVME] = true;
  for (uint32_t i = 0; i < options->nvme_count; i++) {
    if (options->nvme[i].limit_bytes != MR_BUDGET_AUTO) {
      settings->budget_open[MR_TIER_NVME] = false;
    }
  }
}

mr_status mr_budget_resolve(struct mr_settings *settings, const struct mr_options *options,
                            const struct mr_graph *graph) {
  find_open(settings, options);
  if (settings->machine != NULL) {
    resolve_described(settings, options);
    return MR_OK;
  }
  if (settings->device->streams != NULL) {
    resolve_accelerator(settings, options, graph);
  } else {
    resolve_memory(settings, options);
  }
  return settings->nvme_count == 0 ? MR_OK : resolve_nvme(settings);
}
