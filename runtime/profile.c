/* SPDX-License-Identifier: Apache-2.0 */
/* The profile in use: getting one, asking it, teaching it. */
#include "runtime/profile.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "base/json.h"
#include "runtime/runtime.h"

/* Written and read by the store's probe of NVMe, at most: seven rounds. With two of them one
 * disturbed transfer chose how later ones go. */
#define PROBE_BYTES (768ull << 20)
/* What calling an op costs. */
#define OP_OVERHEAD_SECONDS 2e-6
/* In an octave of work. With one of them, layers 768 wide went by what others had taught last that
 * are 512 wide, and that run at another rate. */
#define SIZE_CLASSES 8.0
/* What an op takes counts for no more than this times the median of its kind and size: of steps
 * that nothing disturbed that cuts off less than 1 %, and what is held up takes up to twice as
 * long. What was known before counts as so many ops in that median. */
#define MOST_OF_MEDIAN 1.25
#define KNOWN_LESSONS  2u

/* "model name|cores of the machine|threads of the run", and the accelerator's name. */
static void machine_key(const struct mr_settings *settings, char *key) {
  char model[80] = "unknown";
  uint32_t cores = 0;
  FILE *file = fopen("/proc/cpuinfo", "re");
  char line[512];
  while (file != NULL && fgets(line, sizeof line, file) != NULL) {
    const char *colon = strchr(line, ':');
    if (colon != NULL && strncmp(line, "processor", 9) == 0) {
      cores++;
    } else if (colon != NULL && strncmp(line, "model name", 10) == 0) {
      snprintf(model, sizeof model, "%.*s", (int)strcspn(colon + 1, "\n"), colon + 1);
    }
  }
  if (file != NULL) {
    fclose(file);
  }
  const char *accelerator = settings->accelerator.name;
  snprintf(key, MR_PROFILE_KEY_BYTES, "%s|%u|%u%s%.60s", model[0] == ' ' ? model + 1 : model, cores,
           settings->threads, accelerator[0] == '\0' ? "" : "|", accelerator);
}

void mr_profile_name_file(const struct mr_settings *settings, char name[MR_PROFILE_NAME_BYTES]) {
  char key[MR_PROFILE_KEY_BYTES];
  machine_key(settings, key);
  size_t length = (size_t)snprintf(name, MR_PROFILE_NAME_BYTES, "profile");
  bool gap = true;
  for (const char *letter = key; *letter != '\0'; letter++) {
    char lower = (char)(*letter | 0x20);
    bool plain = (lower >= 'a' && lower <= 'z') || (*letter >= '0' && *letter <= '9');
    if (plain && gap) {
      name[length++] = '-';
    }
    if (plain) {
      name[length++] = *letter;
    }
    gap = !plain;
  }
  snprintf(name + length, MR_PROFILE_NAME_BYTES - length, ".json");
}

static mr_status device_key(const struct mr_settings *settings, char *key) {
  size_t length = (size_t)snprintf(key, MR_PROFILE_KEY_BYTES, "engine %d", settings->io_engine);
  for (uint32_t i = 0; i < settings->nvme_count; i++) {
    struct stat info;
    if (stat(settings->nvme[i].path, &info) != 0) {
      mr_log(MR_LOG_ERROR, "nvme path %s: %m", settings->nvme[i].path);
      return MR_IO;
    }
    length += (size_t)snprintf(key + length, MR_PROFILE_KEY_BYTES - length, "+%u:%u",
                               major(info.st_dev), minor(info.st_dev));
    if (length >= MR_PROFILE_KEY_BYTES) {
      key[MR_PROFILE_KEY_BYTES - 1] = '\0';
      return MR_OK;
    }
  }
  return MR_OK;
}

static mr_status probe_paths(const struct mr_settings *settings, struct mr_store_rates *rates_out) {
  struct mr_store_options options = {
      .path_count = settings->nvme_count,
      .capacity_bytes = PROBE_BYTES,
      .engine = settings->io_engine,
      .mode = MR_STORE_PROBE,
      .checksums = true,
      .timeout_seconds = settings->io_timeout_seconds,
  };
  for (uint32_t i = 0; i < settings->nvme_count; i++) {
    options.paths[i] = settings->nvme[i];
  }
  uint64_t bytes = mr_min_u64(PROBE_BYTES, settings->budget_bytes[MR_TIER_NVME] / 2);
  mr_status status = mr_store_probe(&options, bytes - bytes % MR_STORE_CHUNK_BYTES, rates_out);
  if (status == MR_OK) {
    status = mr_profile_measure_nvme(&options, settings->threads, rates_out);
  }
  if (settings->device->streams != NULL) {
    rates_out->op_seconds_per_byte = 0; /* its ops do not run here */
  }
  return status;
}

/* Rates for a file system too small to be measured on: a slow disk, so that plans avoid it. */
static const struct mr_store_rates tiny_rates = {.read_bytes_per_second = 1e8,
                                                 .write_bytes_per_second = 1e8,
                                                 .mixed_bytes_per_second = 1e8,
                                                 .mode = MR_STORE_STAGED,
                                                 .latency_seconds = MR_NVME_LATENCY_SECONDS};
#define SMALLEST_PROBE_BYTES (16ull << 20)

/* path_count: the profile does not know these devices. */
static uint32_t find_path(const struct mr_profile *profile, const char *devices) {
  uint32_t at = 0;
  while (at < profile->path_count && strcmp(profile->paths[at].devices, devices) != 0) {
    at++;
  }
  return at;
}

static void keep_path(struct mr_profile *profile, const struct mr_path_rate *path) {
  uint32_t at = find_path(profile, path->devices);
  if (at == MR_PROFILE_MAX_PATHS) {
    memmove(&profile->paths[0], &profile->paths[1],
            (MR_PROFILE_MAX_PATHS - 1) * sizeof profile->paths[0]);
    at--;
  } else if (at == profile->path_count) {
    profile->path_count++;
  }
  profile->paths[at] = *path;
}

static mr_status get_paths(const struct mr_settings *settings, struct mr_profile *profile,
                           bool *changed, struct mr_store_rates *nvme_out) {
  struct mr_path_rate path = {.rates = tiny_rates};
  mr_status status = device_key(settings, profile->devices);
  if (status != MR_OK) {
    return status;
  }
  memcpy(path.devices, profile->devices, sizeof path.devices);
  uint32_t known = find_path(profile, path.devices);
  if (known < profile->path_count && !settings->reprofile) {
    *nvme_out = profile->paths[known].rates;
    return MR_OK;
  }
  if (settings->budget_bytes[MR_TIER_NVME] / 2 >= SMALLEST_PROBE_BYTES) {
    status = probe_paths(settings, &path.rates);
    if (status != MR_OK) {
      return status;
    }
    keep_path(profile, &path);
    *changed = true;
  }
  *nvme_out = path.rates;
  return MR_OK;
}

struct mr_store_rates *mr_profile_nvme(struct mr_profile *profile) {
  uint32_t at = find_path(profile, profile->devices);
  bool known = profile->devices[0] != '\0' && at < profile->path_count;
  return known ? &profile->paths[at].rates : NULL;
}

/* Times what the profile does not know of a graph's ops. One that was made without a graph knows an
 * accelerator's host by a drill of memory alone. */
static mr_status get_ops(const struct mr_settings *settings, const struct mr_graph *graph,
                         struct mr_profile *profile, bool *changed) {
  if (graph == NULL) {
    return MR_OK;
  }
  bool learned = false;
  mr_status status = mr_rehearse_unknown(graph, settings, profile, &learned);
  bool knows_host = settings->device->streams == NULL || profile->host_memory_bytes_per_second > 0;
  if (status == MR_OK && !knows_host) {
    status = mr_rehearse_host(graph, settings, profile);
    learned = learned || profile->host_memory_bytes_per_second > 0;
  }
  *changed = *changed || learned;
  return status;
}

/* Logs why a file that somebody named is left alone, by what reading it gave; errno is of that. */
static mr_status check_named(const char *path, mr_status status) {
  if (status == MR_IO && errno != ENOENT) {
    mr_log(MR_LOG_ERROR, "profile %s: %s", path, strerror(errno));
    return status;
  }
  if (status == MR_INVALID) {
    mr_log(MR_LOG_ERROR,
           "profile %s: neither a profile that memrun wrote nor a machine's description; it is not "
           "overwritten: name another file, or remove it",
           path);
    return status;
  }
  return status == MR_NO_MEMORY ? status : MR_OK;
}

mr_status mr_profile_check_file(const char *path) {
  struct stat about;
  if (stat(path, &about) != 0 || S_ISREG(about.st_mode) || S_ISDIR(about.st_mode)) {
    return MR_OK;
  }
  mr_log(MR_LOG_ERROR,
         "profile %s: a pipe or a device; it is read more than once, and written: name a file",
         path);
  return MR_INVALID;
}

mr_status mr_profile_check(const char *path) {
  mr_status status = mr_profile_check_file(path);
  if (status != MR_OK) {
    return status;
  }
  struct mr_profile *profile = mr_allocate(1, sizeof *profile);
  if (profile == NULL) {
    return MR_NO_MEMORY;
  }
  status = check_named(path, mr_profile_load(path, "", profile));
  free(profile);
  return status;
}

/* Loads what can be used of the settings' file. MR_UNSUPPORTED: nothing, and the machine may be
 * measured into it. */
static mr_status find_profile(const struct mr_settings *settings, const char *machine,
                              struct mr_profile *profile) {
  const char *path = settings->profile_path;
  mr_status status = path == NULL ? MR_UNSUPPORTED : mr_profile_load(path, machine, profile);
  if (settings->profile_named && check_named(path, status) != MR_OK) {
    return status;
  }
  if (status == MR_INVALID) {
    mr_log(MR_LOG_WARN, "profile %s: not written by memrun; measuring again", path);
  } else if (status == MR_IO && settings->profile_named) {
    mr_log(MR_LOG_WARN, "profile %s: not there; measuring this machine into it", path);
  }
  bool lacks_host = settings->device->streams != NULL && !(profile->host_bytes_per_second > 0);
  bool useless = status != MR_OK || settings->reprofile || lacks_host;
  return useless && status != MR_NO_MEMORY ? MR_UNSUPPORTED : status;
}

mr_status mr_profile_get(const struct mr_settings *settings, const struct mr_graph *graph,
                         struct mr_profile **profile_out, struct mr_store_rates *nvme_out) {
  struct mr_profile *profile = mr_allocate(1, sizeof *profile);
  if (profile == NULL) {
    return MR_NO_MEMORY;
  }
  char machine[MR_PROFILE_KEY_BYTES];
  machine_key(settings, machine);
  bool changed = false;
  mr_status status = find_profile(settings, machine, profile);
  if (status == MR_UNSUPPORTED) {
    *profile = (struct mr_profile){0};
    memcpy(profile->machine, machine, sizeof machine);
    status = settings->device->streams != NULL ? mr_profile_measure_accelerator(settings, profile)
                                               : mr_profile_measure(settings->threads, profile);
    changed = true;
  }
  if (status == MR_OK && settings->offload_nvme) {
    status = get_paths(settings, profile, &changed, nvme_out);
  }
  if (status == MR_OK) {
    status = get_ops(settings, graph, profile, &changed);
  }
  if (status != MR_OK) {
    free(profile);
    return status;
  }
  if (changed && settings->profile_path != NULL) {
    mr_profile_save(settings->profile_path, profile);
  }
  *profile_out = profile;
  return MR_OK;
}

static double op_units(const struct mr_op *op, bool *by_flops_out) {
  *by_flops_out = op->flops > 0;
  return op->flops > 0 ? op->flops : (double)op->memory_bytes;
}

static uint32_t size_class_of(double units) {
  return units < 1 ? 0 : (uint32_t)(SIZE_CLASSES * log2(units));
}

/* An op's kind as rates have it, and as their file can hold it: as much of it as there is room for;
 * where that is not UTF-8, and be it for being cut, with other bytes than ASCII as question marks.
 */
static void copy_kind(const struct mr_op *op, char kind_out[MR_PROFILE_KIND_BYTES]) {
  snprintf(kind_out, MR_PROFILE_KIND_BYTES, "%s", op->kind);
  bool plain = mr_json_can_hold(kind_out);
  for (char *letter = kind_out; !plain && *letter != '\0'; letter++) {
    *letter = (char)((unsigned char)*letter < 0x80 ? *letter : '?');
  }
}

#define NO_RATE UINT32_MAX

/* The rate of the nearest size of the op's kind. */
static uint32_t find_rate(const struct mr_profile *profile, const struct mr_op *op, bool by_flops,
                          uint32_t size_class) {
  uint32_t best = NO_RATE;
  uint32_t best_distance = UINT32_MAX;
  char kind[MR_PROFILE_KIND_BYTES];
  copy_kind(op, kind);
  for (uint32_t i = 0; i < profile->rate_count; i++) {
    const struct mr_op_rate *rate = &profile->rates[i];
    uint32_t distance = rate->size_class > size_class ? rate->size_class - size_class
                                                      : size_class - rate->size_class;
    bool nearer = distance < best_distance && rate->by_flops == by_flops;
    if (nearer && strcmp(rate->kind, kind) == 0) {
      best = i;
      best_distance = distance;
    }
  }
  return best;
}

bool mr_profile_knows(const struct mr_profile *profile, const struct mr_op *op) {
  bool by_flops = false;
  uint32_t size_class = size_class_of(op_units(op, &by_flops));
  uint32_t found = find_rate(profile, op, by_flops, size_class);
  return found != NO_RATE && profile->rates[found].size_class == size_class;
}

double mr_profile_op_seconds(const struct mr_profile *profile, const struct mr_op *op) {
  bool by_flops = false;
  double units = op_units(op, &by_flops);
  uint32_t found = find_rate(profile, op, by_flops, size_class_of(units));
  if (found != NO_RATE) {
    return fmax(units * profile->rates[found].seconds_per_unit, 1e-9);
  }
  double arithmetic = op->flops / profile->flops_per_second;
  double memory = (double)op->memory_bytes / profile->bytes_per_second;
  return fmax(arithmetic, memory) + OP_OVERHEAD_SECONDS;
}

/* What one op says of a rate of the profile. */
struct lesson {
  uint32_t rate;
  double seconds_per_unit;
  double units; /* 0: what was known before, which counts in the median alone */
};

/* The rate of the op's kind and size; where there is none it is added, in place of the first that
 * has no lesson where there is no room. NO_RATE: all have one. */
static uint32_t rate_for(struct mr_profile *profile, const bool *taught, const struct mr_op *op) {
  bool by_flops = false;
  uint32_t size_class = size_class_of(op_units(op, &by_flops));
  uint32_t found = find_rate(profile, op, by_flops, size_class);
  if (found != NO_RATE && profile->rates[found].size_class == size_class) {
    return found;
  }
  uint32_t at = 0;
  while (at < profile->rate_count && (profile->rate_count < MR_PROFILE_MAX_RATES || taught[at])) {
    at++;
  }
  if (at == MR_PROFILE_MAX_RATES) {
    return NO_RATE;
  }
  profile->rate_count = at == profile->rate_count ? at + 1 : profile->rate_count;
  profile->rates[at] = (struct mr_op_rate){.by_flops = by_flops, .size_class = size_class};
  copy_kind(op, profile->rates[at].kind);
  return at;
}

static int compare_lessons(const void *a, const void *b) {
  const struct lesson *first = a;
  const struct lesson *second = b;
  if (first->rate != second->rate) {
    return first->rate < second->rate ? -1 : 1;
  }
  return (first->seconds_per_unit > second->seconds_per_unit) -
         (first->seconds_per_unit < second->seconds_per_unit);
}

/* Leaves of ordered lessons those that ops showed. Returns how many. */
static uint32_t keep_shown(struct lesson *lessons, uint32_t count) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < count; i++) {
    if (lessons[i].units > 0) {
      lessons[kept++] = lessons[i];
    }
  }
  return kept;
}

static double median_of(const struct lesson *lessons, uint32_t count) {
  return (lessons[count / 2].seconds_per_unit + lessons[(count - 1) / 2].seconds_per_unit) / 2;
}

/* The rate that ordered lessons show together: their mean, where none counts for much more than a
 * median. */
static double rate_shown(const struct lesson *lessons, uint32_t count, double median) {
  double seconds = 0;
  double units = 0;
  for (uint32_t i = 0; i < count; i++) {
    seconds += lessons[i].units * fmin(lessons[i].seconds_per_unit, MOST_OF_MEDIAN * median);
    units += lessons[i].units;
  }
  return fmax(seconds / units, 1e-18);
}

/* Teaches a rate what its ordered lessons show: in their median what was known counts too, unless
 * they refute it. */
static void teach_rate(double *known, struct lesson *lessons, uint32_t count, double weight) {
  double median = median_of(lessons, count);
  uint32_t shown = keep_shown(lessons, count);
  double of_shown = median_of(lessons, shown);
  bool anew = !(*known > 0) || mr_profile_refutes(*known, of_shown);
  double now = rate_shown(lessons, shown, anew ? of_shown : median);
  *known = anew ? now : (1 - weight) * *known + weight * now;
}

/* Teaches the rates what the lessons show, each all of its own. */
static void teach(struct mr_profile *profile, struct lesson *lessons, uint32_t count,
                  double weight) {
  qsort(lessons, count, sizeof *lessons, compare_lessons);
  uint32_t start = 0;
  for (uint32_t i = 1; i <= count; i++) {
    if (i < count && lessons[i].rate == lessons[start].rate) continue;
    double *known = &profile->rates[lessons[start].rate].seconds_per_unit;
    teach_rate(known, &lessons[start], i - start, weight);
    start = i;
  }
}

/* Those with a lesson go behind the others: the first is the one that was not used for longest. */
static void order_rates(struct mr_profile *profile, const bool *taught, struct mr_op_rate *used) {
  uint32_t used_count = 0;
  uint32_t kept = 0;
  for (uint32_t i = 0; i < profile->rate_count; i++) {
    if (taught[i]) {
      used[used_count++] = profile->rates[i];
    } else {
      profile->rates[kept++] = profile->rates[i];
    }
  }
  memcpy(&profile->rates[kept], used, used_count * sizeof *used);
}

/* Lists what the ops show, and what was known of their rates unless all of it is to go; and which
 * rates these are. */
static uint32_t list_lessons(struct mr_profile *profile, const struct mr_graph *program,
                             const double *seconds, double weight, struct lesson *lessons,
                             bool *taught) {
  uint32_t count = 0;
  for (uint32_t k = 0; k < program->op_count; k++) {
    const struct mr_op *op = &program->ops[k];
    bool by_flops = false;
    double units = op_units(op, &by_flops);
    bool teaches = seconds[k] > 0 && units >= 1;
    uint32_t rate = teaches ? rate_for(profile, taught, op) : NO_RATE;
    if (rate != NO_RATE) {
      taught[rate] = true;
      lessons[count++] = (struct lesson){rate, seconds[k] / units, units};
    }
  }
  for (uint32_t rate = 0; rate < profile->rate_count && weight < 1; rate++) {
    double known = profile->rates[rate].seconds_per_unit;
    for (uint32_t i = 0; i < KNOWN_LESSONS && taught[rate] && known > 0; i++) {
      lessons[count++] = (struct lesson){rate, known, 0};
    }
  }
  return count;
}

void mr_profile_learn(struct mr_profile *profile, const struct mr_graph *program,
                      const double *seconds, double weight) {
  uint64_t most = (uint64_t)program->op_count + (uint64_t)KNOWN_LESSONS * MR_PROFILE_MAX_RATES;
  struct lesson *lessons = mr_allocate(most, sizeof *lessons);
  bool *taught = mr_allocate(MR_PROFILE_MAX_RATES, sizeof *taught);
  struct mr_op_rate *used = mr_allocate(MR_PROFILE_MAX_RATES, sizeof *used);
  if (lessons != NULL && taught != NULL && used != NULL) {
    uint32_t count = list_lessons(profile, program, seconds, weight, lessons, taught);
    teach(profile, lessons, count, weight);
    order_rates(profile, taught, used);
  }
  free(lessons);
  free(taught);
  free(used);
}
