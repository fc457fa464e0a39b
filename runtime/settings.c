/* SPDX-License-Identifier: Apache-2.0 */
/* Options become settings: checked, copied, complete. */
#include <errno.h>
#include <linux/magic.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "runtime/runtime.h"

#define MAX_THREADS     1024u
#define DEFAULT_TIMEOUT 30.0
#define MAX_TIMEOUT     86400.0
/* The store's own deadline comes first. */
#define WATCH_FACTOR        1.5
#define WATCH_EXTRA_SECONDS 2.0

void mr_options_init(struct mr_options *options) {
  *options = (struct mr_options){
      .size_bytes = sizeof *options,
      .device_bytes = MR_BUDGET_AUTO,
      .host_bytes = MR_BUDGET_AUTO,
      .offload = MR_OFFLOAD_AUTO,
      .recompute = MR_RECOMPUTE_AUTO,
      .io_engine = MR_IO_AUTO,
      .device = MR_BACKEND_CPU,
      .io_timeout_seconds = DEFAULT_TIMEOUT,
  };
}

static uint32_t usable_processors(void) {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) {
    return 1;
  }
  int count = CPU_COUNT(&set);
  return count < 1 ? 1 : (uint32_t)count;
}

static mr_status refuse(const char *what) {
  mr_log(MR_LOG_ERROR, "options: %s", what);
  return MR_INVALID;
}

static mr_status check(const struct mr_options *options) {
  if (options->size_bytes != sizeof *options) {
    mr_log(
        MR_LOG_ERROR,
        "options: size_bytes is %zu, this library's has %zu bytes; call mr_options_init, and build "
        "against the headers of the library that runs",
        options->size_bytes, sizeof *options);
    return MR_INVALID;
  }
  if (!(options->io_timeout_seconds > 0) || options->io_timeout_seconds > MAX_TIMEOUT) {
    return refuse("the I/O time limit must be above 0 and at most 86400 seconds");
  }
  if (options->threads > MAX_THREADS) {
    return refuse("at most 1024 threads");
  }
  if (options->nvme_count > MR_MAX_NVME_PATHS) {
    return refuse("at most 16 NVMe paths");
  }
  if (options->nvme_count != 0 && options->nvme == NULL) {
    return refuse("there are no NVMe paths, only their number");
  }
  if ((unsigned)options->offload > MR_OFFLOAD_AUTO ||
      (unsigned)options->recompute > MR_RECOMPUTE_FULL ||
      (unsigned)options->io_engine > MR_IO_PREAD || (unsigned)options->policy > MR_POLICY_LRU ||
      (unsigned)options->replan > MR_REPLAN_ALWAYS || (unsigned)options->defer > MR_DEFER_ALWAYS) {
    return refuse("an unknown offload, recompute, replan or defer mode, I/O engine or policy");
  }
  if (mr_device_find(options->device) == NULL) {
    return refuse("an unknown device");
  }
  for (uint32_t i = 0; i < options->nvme_count; i++) {
    if (options->nvme[i].path == NULL || options->nvme[i].path[0] == '\0') {
      return refuse("an NVMe path is empty");
    }
  }
  return MR_OK;
}

static bool on_disk(const char *path) {
  struct statfs info;
  return path != NULL && path[0] != '\0' && statfs(path, &info) == 0 &&
         info.f_type != TMPFS_MAGIC && info.f_type != RAMFS_MAGIC;
}

static mr_status add_path(struct mr_settings *settings, const char *path, uint64_t limit_bytes) {
  char *copy = mr_string_copy(path);
  if (copy == NULL) {
    return MR_NO_MEMORY;
  }
  settings->nvme[settings->nvme_count++] = (struct mr_nvme_path){copy, limit_bytes};
  return MR_OK;
}

static mr_status take_paths(struct mr_settings *settings, const struct mr_options *options) {
  mr_status status = MR_OK;
  for (uint32_t i = 0; status == MR_OK && i < options->nvme_count; i++) {
    status = add_path(settings, options->nvme[i].path, options->nvme[i].limit_bytes);
  }
  if (status != MR_OK || settings->nvme_count != 0) {
    return status;
  }
  const char *temporary = getenv("TMPDIR");
  const char *path = on_disk(temporary) ? temporary : "/var/tmp";
  if (!on_disk(path)) {
    mr_log(MR_LOG_ERROR, "nvme: no path was given, and neither TMPDIR nor /var/tmp is on a disk");
    return MR_INVALID;
  }
  mr_log(MR_LOG_INFO, "nvme: no path was given; using %s", path);
  return add_path(settings, path, MR_BUDGET_AUTO);
}

/* Where the profile is kept of the machine that is in use, unless the options name a file. NULL
 * without an error where the environment names no place. */
static mr_status find_profile_path(struct mr_settings *settings) {
  if (settings->profile_named) {
    return MR_OK;
  }
  const char *cache = getenv("XDG_CACHE_HOME");
  const char *home = getenv("HOME");
  bool use_cache = cache != NULL && cache[0] == '/';
  if (!use_cache && (home == NULL || home[0] != '/')) {
    return MR_OK;
  }
  char name[MR_PROFILE_NAME_BYTES];
  char path[4096];
  mr_profile_name_file(settings, name);
  int length = use_cache ? snprintf(path, sizeof path, "%s/memrun/%s", cache, name)
                         : snprintf(path, sizeof path, "%s/.cache/memrun/%s", home, name);
  if (length < 0 || (size_t)length >= sizeof path) {
    return MR_OK;
  }
  settings->profile_path = mr_string_copy(path);
  return settings->profile_path == NULL ? MR_NO_MEMORY : MR_OK;
}

static mr_status copy_path(const char *path, char **copy_out) {
  if (path == NULL) {
    return MR_OK;
  }
  *copy_out = mr_string_copy(path);
  return *copy_out == NULL ? MR_NO_MEMORY : MR_OK;
}

/* The files that the options name. A profile that the user names may describe another machine. */
static mr_status take_files(struct mr_settings *settings, const struct mr_options *options) {
  settings->profile_named = options->profile_path != NULL;
  mr_status status = copy_path(options->profile_path, &settings->profile_path);
  if (status == MR_OK && settings->profile_named) {
    status = mr_profile_check_file(settings->profile_path);
  }
  if (status == MR_OK) {
    status = copy_path(options->trace_path, &settings->trace_path);
  }
  if (status == MR_OK) {
    status = copy_path(options->plan_path, &settings->plan_path);
  }
  if (status == MR_OK && settings->profile_named &&
      mr_machine_is_described(settings->profile_path)) {
    status = mr_machine_load(settings->profile_path, &settings->machine);
  }
  return status;
}

static mr_status look_at_accelerator(struct mr_settings *settings) {
  char why[256];
  mr_status status = mr_cuda_describe(&settings->accelerator, why, sizeof why);
  if (status != MR_OK) {
    mr_log(MR_LOG_ERROR, "device %s: %s", settings->device->name, why);
  }
  return status;
}

/* The accelerator, where ops run on one that is here, with what is free there when libraries have
 * taken what they need for the ops of the graph. */
static mr_status take_accelerator(struct mr_settings *settings, const struct mr_graph *graph) {
  if (settings->device->streams == NULL || settings->machine != NULL) {
    return MR_OK;
  }
  mr_status status = look_at_accelerator(settings);
  if (status != MR_OK || graph == NULL) {
    return status;
  }
  status = mr_rehearse(graph, settings);
  return status == MR_OK ? look_at_accelerator(settings) : status;
}

/* A plan that the user has chosen is not replaced unasked; and the tiers of two plans must be able
 * to be there together, memory going from one to the other as bytes move. */
static bool can_replan(const struct mr_settings *settings, const struct mr_options *options) {
  struct mr_device_caps caps;
  settings->device->query(&caps);
  bool chosen = options->plan_path != NULL && options->replan == MR_REPLAN_AUTO;
  return caps.deferred && !chosen;
}

/* Pages of plans are mapped and given back by themselves, and may be this small. */
static mr_status check_pages(const struct mr_settings *settings) {
  long page_bytes = sysconf(_SC_PAGESIZE);
  if (settings->machine != NULL || page_bytes <= (long)MR_LEAST_PAGE_BYTES) {
    return MR_OK;
  }
  mr_log(MR_LOG_ERROR,
         "this kernel has pages of %ld bytes, memrun needs such of 4096: boot another kernel, or "
         "plan for this machine with a description of it",
         page_bytes);
  return MR_UNSUPPORTED;
}

static mr_status fill(struct mr_settings *settings, const struct mr_options *options,
                      const struct mr_graph *graph) {
  settings->device = mr_device_find(options->device);
  mr_status status = take_files(settings, options);
  if (status == MR_OK) {
    status = check_pages(settings);
  }
  if (status != MR_OK) {
    return status;
  }
  mr_offload offload = options->offload;
  if (offload == MR_OFFLOAD_AUTO) {
    bool nvme = options->nvme_count != 0 ||
                (settings->machine != NULL && settings->machine->tier_bytes[MR_TIER_NVME] > 0);
    offload = nvme ? MR_OFFLOAD_NVME : MR_OFFLOAD_HOST;
  }
  settings->host = offload != MR_OFFLOAD_NONE;
  settings->offload_nvme = offload == MR_OFFLOAD_NVME;
  settings->recompute = options->recompute;
  settings->defer = options->defer;
  settings->io_engine = options->io_engine;
  settings->io_timeout_seconds = options->io_timeout_seconds;
  settings->threads = options->threads == 0 ? usable_processors() : options->threads;
  settings->reprofile = options->reprofile;
  settings->policy = options->policy;
  settings->replan = can_replan(settings, options) ? options->replan : MR_REPLAN_NEVER;
  /* The paths of a machine that is not here are only sizes. */
  if (settings->offload_nvme && settings->machine == NULL) {
    status = take_paths(settings, options);
  }
  if (status == MR_OK) {
    status = take_accelerator(settings, graph);
  }
  if (status == MR_OK) {
    status = find_profile_path(settings);
  }
  return status == MR_OK ? mr_budget_resolve(settings, options, graph) : status;
}

mr_status mr_settings_init(struct mr_settings *settings, const struct mr_options *options,
                           const struct mr_graph *graph) {
  mr_status status = check(options);
  if (status != MR_OK) {
    return status;
  }
  *settings = (struct mr_settings){0};
  status = fill(settings, options, graph);
  if (status != MR_OK) {
    mr_settings_fini(settings);
  }
  return status;
}

/* Compute, and a copy link either way: each has a thread that launches and one that collects. Less
 * where that is much of the machine. */
#define STREAM_THREADS 6u

uint32_t mr_settings_team_threads(const struct mr_settings *settings) {
  uint32_t spared = 0;
  if (settings->device->streams != NULL) {
    spared = (uint32_t)mr_min_u64(STREAM_THREADS, settings->threads * 3ull / 8);
  }
  return settings->threads - spared;
}

double mr_settings_watch_seconds(const struct mr_settings *settings) {
  return settings->io_timeout_seconds * WATCH_FACTOR + WATCH_EXTRA_SECONDS;
}

void mr_settings_tell_budgets(const struct mr_settings *settings,
                              uint64_t bytes_out[MR_TIER_COUNT]) {
  memcpy(bytes_out, settings->budget_bytes, sizeof settings->budget_bytes);
  if (bytes_out[MR_TIER_DEVICE] != UINT64_MAX) {
    bytes_out[MR_TIER_DEVICE] +=
        settings->outside_bytes + settings->most_table_bytes - settings->short_bytes;
  }
}

void mr_settings_fini(struct mr_settings *settings) {
  for (uint32_t i = 0; i < settings->nvme_count; i++) {
    free((void *)(uintptr_t)settings->nvme[i].path);
  }
  free(settings->trace_path);
  free(settings->profile_path);
  free(settings->plan_path);
  free(settings->machine);
  *settings = (struct mr_settings){0};
}
