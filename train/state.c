/* SPDX-License-Identifier: Apache-2.0 */
/* The state.json of a checkpoint: written, parsed, compared. */
#include "train/state.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/common.h"
#include "train/json.h"

#define STATE_FORMAT       1
#define STATE_MOST_TENSORS (1u << 20)
#define FIRST_LINE_BYTES   23u /* {"crc32c":"xxxxxxxx",\n and the terminating 0 */

const char *const state_file_names[STATE_FILES] = {CHECKPOINT_MODEL, CHECKPOINT_OPTIMIZER,
                                                   CHECKPOINT_CONFIG};
static const char *const bundle_names[BUNDLE_KINDS] = {"model_tensors", "optimizer_tensors"};

struct state_identity state_identity_of(const struct trainer *trainer) {
  const struct trainer_info *info = &trainer->info;
  return (struct state_identity){
      .layers = info->layers,
      .heads = info->heads,
      .width = info->width,
      .vocab = info->vocab,
      .positions = info->positions,
      .batch = info->batch,
      .seq = info->seq,
      .grad_accum = trainer->options.grad_accum,
      .seed = trainer->options.seed,
      .shuffle = trainer->options.shuffle,
      .data_tokens = data_token_count(trainer->data),
  };
}

struct state_settings state_settings_of(const struct trainer *trainer) {
  const struct trainer_options *options = &trainer->options;
  return (struct state_settings){
      .lr = options->lr,
      .min_lr = options->min_lr,
      .beta1 = options->beta1,
      .beta2 = options->beta2,
      .eps = options->eps,
      .weight_decay = options->weight_decay,
      .clip = options->clip,
      .warmup = (double)options->warmup,
      .decay_steps = (double)options->decay_steps,
      .threads = options->run.threads,
  };
}

/* json_integer holds 63 bits and a sign; the bits of a number of 64 pass through it unchanged. */
static bool set_integer(json_t *object, const char *name, uint64_t value) {
  return json_object_set_new(object, name, json_integer((json_int_t)value)) == 0;
}

static bool get_integer(const json_t *object, const char *name, uint64_t *value_out) {
  const json_t *value = json_object_get(object, name);
  *value_out = (uint64_t)json_integer_value(value);
  return json_is_integer(value);
}

static bool get_number(const json_t *object, const char *name, double *value_out) {
  const json_t *value = json_object_get(object, name);
  *value_out = json_number_value(value);
  return json_is_number(value);
}

static json_t *sum_json(uint32_t crc) {
  char text[9];
  snprintf(text, sizeof text, "%08" PRIx32, crc);
  return json_string(text);
}

static bool get_sum(const json_t *value, uint32_t *crc_out) {
  const char *text = json_string_value(value);
  if (text == NULL || strlen(text) != 8 || strspn(text, "0123456789abcdef") != 8) {
    return false;
  }
  *crc_out = (uint32_t)strtoul(text, NULL, 16);
  return true;
}

static const char *dtype_name(mr_dtype dtype) {
  return dtype == MR_BF16 ? "bf16" : "f32";
}

/* Files from before there was a choice say nothing and mean fp32. */
static bool get_dtype(const json_t *root, mr_dtype *dtype_out) {
  const json_t *value = json_object_get(root, "dtype");
  const char *text = value == NULL ? "f32" : json_string_value(value);
  *dtype_out = text != NULL && strcmp(text, "bf16") == 0 ? MR_BF16 : MR_F32;
  return text != NULL && strcmp(text, dtype_name(*dtype_out)) == 0;
}

/* Files from before it was written say nothing. */
static bool get_gemm(const json_t *root, char gemm_out[STATE_NAME_BYTES]) {
  const json_t *value = json_object_get(root, "gemm");
  const char *text = value == NULL ? "" : json_string_value(value);
  if (text == NULL) {
    return false;
  }
  snprintf(gemm_out, STATE_NAME_BYTES, "%s", text);
  return true;
}

static bool get_data(const json_t *root, struct checkpoint_state *state) {
  const json_t *value = json_object_get(root, "data-crc32c");
  state->data_known = value != NULL;
  return value == NULL || get_sum(value, &state->data_crc);
}

static bool format_files(const struct checkpoint_state *state, json_t *root) {
  json_t *files = json_object();
  bool made = files != NULL;
  for (uint32_t i = 0; made && i < STATE_FILES; i++) {
    json_t *file = json_object();
    made = file != NULL && set_integer(file, "bytes", state->files[i].bytes) &&
           json_object_set_new(file, "crc32c", sum_json(state->files[i].crc)) == 0;
    made = json_object_set_new(files, state_file_names[i], file) == 0 && made;
  }
  return json_object_set_new(root, "files", files) == 0 && made;
}

static bool format_tensors(const struct checkpoint_state *state, json_t *root,
                           enum bundle_kind kind) {
  json_t *crcs = json_array();
  bool made = crcs != NULL;
  for (uint32_t i = 0; made && i < state->tensor_counts[kind]; i++) {
    made = json_array_append_new(crcs, sum_json(state->tensor_crcs[kind][i])) == 0;
  }
  return json_object_set_new(root, bundle_names[kind], crcs) == 0 && made;
}

static bool format_root(const struct checkpoint_state *state, json_t *root) {
  bool made = set_integer(root, "format", STATE_FORMAT) && set_integer(root, "step", state->step) &&
              set_integer(root, "window", state->window) &&
              json_object_set_new(root, "dtype", json_string(dtype_name(state->dtype))) == 0 &&
              json_object_set_new(root, "gemm", json_string(state->gemm)) == 0 &&
              json_object_set_new(root, "data-crc32c", sum_json(state->data_crc)) == 0;
#define STATE_SET(name, field) made = made && set_integer(root, name, state->identity.field);
  STATE_IDENTITY(STATE_SET)
#undef STATE_SET
#define STATE_SET(name, field)                                                                     \
  made = made && json_object_set_new(root, name, json_real(state->settings.field)) == 0;
  STATE_SETTINGS(STATE_SET)
#undef STATE_SET
  return made && format_files(state, root) && format_tensors(state, root, BUNDLE_MODEL) &&
         format_tensors(state, root, BUNDLE_OPTIMIZER);
}

mr_status state_format(const struct checkpoint_state *state, char **text_out) {
  json_t *root = json_object();
  if (root != NULL && !format_root(state, root)) {
    json_decref(root);
    root = NULL;
  }
  char *body = json_write(root, JSON_INDENT(1));
  char *text = NULL;
  if (body != NULL) {
    const char *rest = body + 1; /* without its brace, which the first line opens */
    int length = snprintf(NULL, 0, "{\"crc32c\":\"%08x\",\n%s\n", 0u, rest);
    text = train_allocate((uint64_t)length + 1, 1);
    if (text != NULL) {
      uint32_t crc = train_crc32c(0, rest, strlen(rest));
      crc = train_crc32c(crc, "\n", 1);
      snprintf(text, (size_t)length + 1, "{\"crc32c\":\"%08x\",\n%s\n", crc, rest);
    }
    free(body);
  } else {
    mr_log(MR_LOG_ERROR, "out of host memory: " CHECKPOINT_STATE);
  }
  if (text == NULL) {
    return MR_NO_MEMORY;
  }
  *text_out = text;
  return MR_OK;
}

static bool parse_files(const json_t *root, struct checkpoint_state *state) {
  const json_t *files = json_object_get(root, "files");
  bool good = true;
  for (uint32_t i = 0; i < STATE_FILES; i++) {
    const json_t *file = json_object_get(files, state_file_names[i]);
    good = good && get_integer(file, "bytes", &state->files[i].bytes) &&
           get_sum(json_object_get(file, "crc32c"), &state->files[i].crc);
  }
  return good;
}

static mr_status parse_tensors(const json_t *root, struct checkpoint_state *state,
                               enum bundle_kind kind) {
  const json_t *crcs = json_object_get(root, bundle_names[kind]);
  size_t count = json_array_size(crcs);
  if (count == 0 || count > STATE_MOST_TENSORS) {
    return MR_CORRUPT;
  }
  state->tensor_crcs[kind] = train_allocate(count, sizeof *state->tensor_crcs[kind]);
  if (state->tensor_crcs[kind] == NULL) {
    return MR_NO_MEMORY;
  }
  state->tensor_counts[kind] = (uint32_t)count;
  for (size_t i = 0; i < count; i++) {
    if (!get_sum(json_array_get(crcs, i), &state->tensor_crcs[kind][i])) {
      return MR_CORRUPT;
    }
  }
  return MR_OK;
}

static mr_status parse_root(const json_t *root, struct checkpoint_state *state) {
  uint64_t format = 0;
  bool good = get_integer(root, "format", &format) && format == STATE_FORMAT &&
              get_integer(root, "step", &state->step) &&
              get_integer(root, "window", &state->window) && get_dtype(root, &state->dtype) &&
              get_gemm(root, state->gemm) && get_data(root, state);
#define STATE_GET(name, field) good = good && get_integer(root, name, &state->identity.field);
  STATE_IDENTITY(STATE_GET)
#undef STATE_GET
#define STATE_GET(name, field) good = good && get_number(root, name, &state->settings.field);
  STATE_SETTINGS(STATE_GET)
#undef STATE_GET
  if (!good || !parse_files(root, state)) {
    return MR_CORRUPT;
  }
  mr_status status = parse_tensors(root, state, BUNDLE_MODEL);
  return status == MR_OK ? parse_tensors(root, state, BUNDLE_OPTIMIZER) : status;
}

/* True where the first line is what state_format wrote over the rest. */
static bool first_line_agrees(const char *text, uint64_t bytes) {
  char expected[FIRST_LINE_BYTES];
  uint64_t line = FIRST_LINE_BYTES - 1;
  if (bytes < line) {
    return false;
  }
  uint32_t crc = train_crc32c(0, text + line, bytes - line);
  snprintf(expected, sizeof expected, "{\"crc32c\":\"%08x\",\n", crc);
  return memcmp(text, expected, line) == 0;
}

mr_status state_parse(const char *text, uint64_t bytes, struct checkpoint_state **state_out,
                      const char **fault_out) {
  if (!first_line_agrees(text, bytes)) {
    *fault_out = "its CRC32C does not agree with its first line";
    return MR_CORRUPT;
  }
  struct checkpoint_state *state = train_allocate(1, sizeof *state);
  if (state == NULL) {
    return MR_NO_MEMORY;
  }
  json_t *root = NULL;
  mr_status status = json_read(CHECKPOINT_STATE, text, bytes, &root);
  if (status == MR_OK) {
    status = parse_root(root, state);
  }
  json_decref(root);
  if (status != MR_OK) {
    *fault_out = "a field is missing or makes no sense";
    state_destroy(state);
    return status;
  }
  *state_out = state;
  return MR_OK;
}

void state_destroy(struct checkpoint_state *state) {
  if (state == NULL) {
    return;
  }
  free(state->tensor_crcs[BUNDLE_MODEL]);
  free(state->tensor_crcs[BUNDLE_OPTIMIZER]);
  free(state);
}

mr_status state_match(const char *path, const struct state_identity *found,
                      const struct state_identity *wanted) {
#define STATE_CHECK(name, field)                                                                   \
  if (found->field != wanted->field) {                                                             \
    mr_log(MR_LOG_ERROR, "cannot go on from %s: it has " name " %llu, this run %llu", path,        \
           (unsigned long long)found->field, (unsigned long long)wanted->field);                   \
    return MR_INVALID;                                                                             \
  }
  STATE_IDENTITY(STATE_CHECK)
#undef STATE_CHECK
  return MR_OK;
}

mr_status state_match_data(const char *path, const struct checkpoint_state *found,
                           const struct trainer *trainer) {
  if (found->data_known && found->data_crc != data_crc(trainer->data)) {
    mr_log(MR_LOG_ERROR,
           "cannot go on from %s: its data was another file of as many tokens than %s is now", path,
           trainer->options.data_path);
    return MR_INVALID;
  }
  return MR_OK;
}

void state_compare_settings(const char *path, const struct state_settings *found,
                            const struct state_settings *wanted) {
#define STATE_CHECK(name, field)                                                                   \
  if (found->field != wanted->field) {                                                             \
    mr_log(MR_LOG_WARN, "%s was written with " name " %.9g, this run has %.9g", path,              \
           found->field, wanted->field);                                                           \
  }
  STATE_SETTINGS(STATE_CHECK)
#undef STATE_CHECK
}

void state_compare_dtype(const char *path, mr_dtype found, mr_dtype wanted) {
  if (found != wanted) {
    mr_log(MR_LOG_WARN, "%s was written with dtype %s, this run has %s", path, dtype_name(found),
           dtype_name(wanted));
  }
}

void state_compare_gemm(const char *path, const char *found, const char *wanted) {
  if (found[0] != '\0' && strncmp(found, wanted, STATE_NAME_BYTES - 1) != 0) {
    mr_log(MR_LOG_WARN,
           "%s was written with matrix products by %s, this run has them by %s: sums may differ in "
           "their last bits from those of one unbroken run",
           path, found, wanted);
  }
}
