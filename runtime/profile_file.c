/* SPDX-License-Identifier: Apache-2.0 */
/* The profile as a file: one JSON object, checked number by number when it is read. */
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/base.h"
#include "base/file.h"
#include "base/json.h"
#include "runtime/profile.h"

#define FORMAT_VERSION 2 /* 1 had coarser sizes of ops */
#define VERSION_KEY    "memrun_profile"

/* A number above 0 that a machine may show, or its inverse: with others sums of seconds would be no
 * numbers any more. */
#define LEAST_RATE 1e-18
#define MOST_RATE  1e18

static bool get_rate(const json_t *object, const char *key, double *value_out) {
  const json_t *value = json_object_get(object, key);
  double number = json_is_number(value) ? json_number_value(value) : 0;
  if (!(number >= LEAST_RATE && number <= MOST_RATE)) {
    return false;
  }
  *value_out = number;
  return true;
}

static bool get_text(const json_t *object, const char *key, char *text_out, size_t capacity) {
  const char *text = json_string_value(json_object_get(object, key));
  if (text == NULL || strlen(text) >= capacity) {
    return false;
  }
  memcpy(text_out, text, strlen(text) + 1);
  return true;
}

static bool get_name(const json_t *object, const char *key, char *name_out, size_t capacity) {
  return get_text(object, key, name_out, capacity) && name_out[0] != '\0';
}

static bool get_index(const json_t *object, const char *key, json_int_t limit,
                      uint32_t *index_out) {
  const json_t *value = json_object_get(object, key);
  if (!json_is_integer(value) || json_integer_value(value) < 0 ||
      json_integer_value(value) > limit) {
    return false;
  }
  *index_out = (uint32_t)json_integer_value(value);
  return true;
}

static bool read_op(const json_t *item, struct mr_op_rate *rate) {
  const json_t *by_flops = json_object_get(item, "by_flops");
  rate->by_flops = json_is_true(by_flops);
  return json_is_boolean(by_flops) && get_text(item, "kind", rate->kind, sizeof rate->kind) &&
         get_index(item, "size_class", 1023, &rate->size_class) &&
         get_rate(item, "seconds_per_unit", &rate->seconds_per_unit);
}

static bool read_weights(const json_t *list, double *weights) {
  if (!json_is_array(list) || json_array_size(list) > MR_MAX_NVME_PATHS) {
    return false;
  }
  for (size_t i = 0; i < json_array_size(list); i++) {
    double weight = json_number_value(json_array_get(list, i));
    if (!json_is_number(json_array_get(list, i)) || !isfinite(weight) || weight < 0 ||
        weight > 1e18) {
      return false;
    }
    weights[i] = weight;
  }
  return true;
}

/* A number from `least` to 1; `fallback` where it is left out. */
static bool get_loss(const json_t *object, const char *key, double least, double fallback,
                     double *value_out) {
  const json_t *value = json_object_get(object, key);
  double number = value == NULL ? fallback : json_number_value(value);
  if ((value != NULL && !json_is_number(value)) || !(number >= least && number <= 1)) {
    return false;
  }
  *value_out = number;
  return true;
}

/* False where it is left out. */
static bool get_flag(const json_t *object, const char *key, bool *flag_out) {
  const json_t *value = json_object_get(object, key);
  *flag_out = json_is_true(value);
  return value == NULL || json_is_boolean(value);
}

static bool read_path(const json_t *item, struct mr_path_rate *path) {
  uint32_t mode = 0;
  if (!get_name(item, "devices", path->devices, sizeof path->devices) ||
      !get_rate(item, "read", &path->rates.read_bytes_per_second) ||
      !get_rate(item, "write", &path->rates.write_bytes_per_second) ||
      !get_rate(item, "mixed", &path->rates.mixed_bytes_per_second) ||
      !get_loss(item, "op_seconds_per_byte", 0, 0, &path->rates.op_seconds_per_byte) ||
      !get_flag(item, "cost_learned", &path->rates.cost_learned) ||
      !get_loss(item, "latency_seconds", 0, MR_NVME_LATENCY_SECONDS,
                &path->rates.latency_seconds) ||
      !get_index(item, "mode", MR_STORE_WRITE_DIRECT, &mode)) {
    return false;
  }
  path->rates.mode = (mr_store_mode)mode;
  return read_weights(json_object_get(item, "weights"), path->rates.path_weights);
}

static bool read_lists(const json_t *root, struct mr_profile *profile) {
  const json_t *ops = json_object_get(root, "ops");
  const json_t *paths = json_object_get(root, "paths");
  if (!json_is_array(ops) || json_array_size(ops) > MR_PROFILE_MAX_RATES || !json_is_array(paths) ||
      json_array_size(paths) > MR_PROFILE_MAX_PATHS) {
    return false;
  }
  for (size_t i = 0; i < json_array_size(ops); i++) {
    if (!read_op(json_array_get(ops, i), &profile->rates[profile->rate_count++])) {
      return false;
    }
  }
  for (size_t i = 0; i < json_array_size(paths); i++) {
    if (!read_path(json_array_get(paths, i), &profile->paths[profile->path_count++])) {
      return false;
    }
  }
  return true;
}

/* Of an accelerator's host; a file of a machine without one leaves it out. */
static bool get_host_rate(const json_t *root, const char *key, double *rate_out) {
  return json_object_get(root, key) == NULL || get_rate(root, key, rate_out);
}

static bool read_root(const json_t *root, struct mr_profile *profile) {
  uint32_t version = 0;
  return get_index(root, VERSION_KEY, FORMAT_VERSION, &version) && version == FORMAT_VERSION &&
         get_name(root, "machine", profile->machine, sizeof profile->machine) &&
         get_rate(root, "device_to_host", &profile->copy_bytes_per_second[0]) &&
         get_rate(root, "host_to_device", &profile->copy_bytes_per_second[1]) &&
         get_rate(root, "flops_per_second", &profile->flops_per_second) &&
         get_rate(root, "bytes_per_second", &profile->bytes_per_second) &&
         get_loss(root, "bind_seconds_per_move", 0, 0, &profile->bind_seconds_per_move) &&
         get_loss(root, "pace_beside_copy", 1e-9, 1, &profile->pace_beside_copy) &&
         get_flag(root, "copies_learned", &profile->copies_learned) &&
         get_host_rate(root, "host_bytes_per_second", &profile->host_bytes_per_second) &&
         get_host_rate(root, "host_memory_bytes_per_second",
                       &profile->host_memory_bytes_per_second) &&
         read_lists(root, profile);
}

mr_status mr_profile_parse(const char *text, size_t bytes, struct mr_profile *profile_out) {
  if (bytes > MR_PROFILE_MAX_BYTES) {
    return MR_INVALID;
  }
  struct mr_profile *profile = mr_allocate(1, sizeof *profile);
  if (profile == NULL) {
    return MR_NO_MEMORY;
  }
  json_error_t error;
  json_t *root = NULL;
  mr_status status = mr_json_read("the profile", text, bytes, &root, &error);
  if (status == MR_OK && read_root(root, profile)) {
    *profile_out = *profile;
  } else if (status != MR_NO_MEMORY) {
    bool is_profile = json_is_integer(json_object_get(root, VERSION_KEY));
    status = is_profile ? MR_UNSUPPORTED : MR_INVALID;
  }
  json_decref(root);
  free(profile);
  return status;
}

static int print_ops(json_t *root, const struct mr_profile *profile) {
  json_t *ops = json_array();
  int failed = 0;
  for (uint32_t i = 0; i < profile->rate_count; i++) {
    const struct mr_op_rate *rate = &profile->rates[i];
    failed |= json_array_append_new(ops, json_pack("{s:s, s:b, s:I, s:f}", "kind", rate->kind,
                                                   "by_flops", rate->by_flops, "size_class",
                                                   (json_int_t)rate->size_class, "seconds_per_unit",
                                                   rate->seconds_per_unit));
  }
  return failed | json_object_set_new(root, "ops", ops);
}

static int print_paths(json_t *root, const struct mr_profile *profile) {
  json_t *paths = json_array();
  int failed = 0;
  for (uint32_t i = 0; i < profile->path_count; i++) {
    const struct mr_path_rate *path = &profile->paths[i];
    json_t *weights = json_array();
    for (uint32_t k = 0; k < MR_MAX_NVME_PATHS; k++) {
      failed |= json_array_append_new(weights, json_real(path->rates.path_weights[k]));
    }
    const struct mr_store_rates *rates = &path->rates;
    failed |= json_array_append_new(
        paths,
        json_pack("{s:s, s:f, s:f, s:f, s:f, s:b, s:f, s:i, s:o}", "devices", path->devices, "read",
                  rates->read_bytes_per_second, "write", rates->write_bytes_per_second, "mixed",
                  rates->mixed_bytes_per_second, "op_seconds_per_byte", rates->op_seconds_per_byte,
                  "cost_learned", (int)rates->cost_learned, "latency_seconds",
                  rates->latency_seconds, "mode", (int)rates->mode, "weights", weights));
  }
  return failed | json_object_set_new(root, "paths", paths);
}

static int print_host_rate(json_t *root, const char *key, double rate) {
  return rate > 0 ? json_object_set_new(root, key, json_real(rate)) : 0;
}

mr_status mr_profile_print(const struct mr_profile *profile, char **text_out) {
  json_t *root =
      json_pack("{s:i, s:s, s:f, s:f, s:f, s:f, s:f, s:f, s:b}", VERSION_KEY, FORMAT_VERSION,
                "machine", profile->machine, "device_to_host", profile->copy_bytes_per_second[0],
                "host_to_device", profile->copy_bytes_per_second[1], "flops_per_second",
                profile->flops_per_second, "bytes_per_second", profile->bytes_per_second,
                "bind_seconds_per_move", profile->bind_seconds_per_move, "pace_beside_copy",
                profile->pace_beside_copy, "copies_learned", (int)profile->copies_learned);
  if (root != NULL &&
      (print_host_rate(root, "host_bytes_per_second", profile->host_bytes_per_second) != 0 ||
       print_host_rate(root, "host_memory_bytes_per_second",
                       profile->host_memory_bytes_per_second) != 0 ||
       print_ops(root, profile) != 0 || print_paths(root, profile) != 0)) {
    json_decref(root);
    root = NULL;
  }
  return mr_json_print(root, JSON_INDENT(1), "the profile", text_out);
}

/* As mr_profile_load, whichever machine it is of. */
static mr_status read_profile(const char *path, struct mr_profile *profile_out) {
  FILE *file = fopen(path, "re");
  if (file == NULL) {
    return MR_IO;
  }
  char *text = mr_allocate(MR_PROFILE_MAX_BYTES + 1, 1);
  if (text == NULL) {
    fclose(file);
    return MR_NO_MEMORY;
  }
  size_t bytes = fread(text, 1, MR_PROFILE_MAX_BYTES + 1, file);
  int error = errno;
  mr_status status = ferror(file) ? MR_IO : mr_profile_parse(text, bytes, profile_out);
  fclose(file);
  free(text);
  if (status == MR_UNSUPPORTED) {
    mr_log(MR_LOG_WARN,
           "profile %s: of another version of memrun, or a value in it is missing or out of range; "
           "measuring again",
           path);
  }
  errno = error;
  return status;
}

mr_status mr_profile_load(const char *path, const char *machine, struct mr_profile *profile_out) {
  mr_status status = read_profile(path, profile_out);
  if (status == MR_OK && strcmp(profile_out->machine, machine) != 0) {
    mr_log(
        machine[0] == '\0' ? MR_LOG_DEBUG : MR_LOG_WARN,
        "profile %s: of another machine or thread count ('%s', here '%s'); measuring this one in "
        "its place",
        path, profile_out->machine, machine);
    status = MR_UNSUPPORTED;
  }
  return status;
}

static void make_directories(char *path) {
  for (char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
    *slash = '\0';
    /* A directory that cannot be made shows when the file is opened. */
    (void)mkdir(path, 0755);
    *slash = '/';
  }
}

static bool write_line(const char *path, const char *text) {
  struct mr_new_file file;
  return mr_new_file_open(&file, path) &&
         mr_new_file_close(&file, fprintf(file.stream, "%s\n", text) >= 0);
}

void mr_profile_save(const char *path, const struct mr_profile *profile) {
  char *text = NULL;
  char *folders = strdup(path);
  if (folders == NULL || mr_profile_print(profile, &text) != MR_OK) {
    free(folders);
    return;
  }
  make_directories(folders);
  if (!write_line(path, text)) {
    mr_log(MR_LOG_WARN, "profile %s: %s; the machine will be measured again next time", path,
           strerror(errno));
  }
  free(text);
  free(folders);
}

/* Changes the file, where there is one. */
static mr_status change(const char *path, void (*edit)(struct mr_profile *, double), double by) {
  struct mr_profile *profile = mr_allocate(1, sizeof *profile);
  if (profile == NULL) {
    return MR_NO_MEMORY;
  }
  mr_status status = read_profile(path, profile);
  if (status == MR_OK) {
    edit(profile, by);
    mr_profile_save(path, profile);
  }
  free(profile);
  return status == MR_NO_MEMORY ? status : MR_OK;
}

static void forget_nvme(struct mr_profile *profile, double unused) {
  (void)unused;
  profile->path_count = 0;
}

static void slow_ops(struct mr_profile *profile, double times) {
  for (uint32_t i = 0; i < profile->rate_count; i++) {
    profile->rates[i].seconds_per_unit *= times;
  }
  profile->flops_per_second /= times;
  profile->bytes_per_second /= times;
}

mr_status mr_profile_forget_nvme(const char *path) {
  return change(path, forget_nvme, 0);
}

mr_status mr_profile_slow_ops(const char *path, double times) {
  return change(path, slow_ops, times);
}
