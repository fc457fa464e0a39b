/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether a file of weights is of the model that begins with it: it has all of its tensors and none
 * that the model would leave out, and the config.json beside it, where there is one, says the same
 * of what shapes do not tell.
 */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "train/common.h"
#include "train/job.h"
#include "train/json.h"

#define MOST_CONFIG_BYTES (1u << 20)
/* Elements that are compared at once. */
#define COMPARED 65536u

static bool ends_with(const char *text, const char *end) {
  size_t length = strlen(text);
  size_t end_length = strlen(end);
  return length >= end_length && strcmp(text + length - end_length, end) == 0;
}

/* The scores may be another matrix than the embedding in files of other programs; in the model they
 * are the same. */
static mr_status compare_head(const struct safetensors_file *file,
                              const struct safetensors_entry *head,
                              const struct safetensors_entry *embedding) {
  float *pieces[2] = {train_allocate(COMPARED, sizeof(float)),
                      train_allocate(COMPARED, sizeof(float))};
  mr_status status = pieces[0] != NULL && pieces[1] != NULL ? MR_OK : MR_NO_MEMORY;
  bool same = head->dtype != SAFETENSORS_OTHER && head->count == embedding->count;
  for (uint64_t at = 0; status == MR_OK && same && at < head->count; at += COMPARED) {
    uint64_t count = train_min_u64(COMPARED, head->count - at);
    status = safetensors_read(file, head, at, count, pieces[0]);
    if (status == MR_OK) {
      status = safetensors_read(file, embedding, at, count, pieces[1]);
    }
    same = status != MR_OK || memcmp(pieces[0], pieces[1], count * sizeof(float)) == 0;
  }
  free(pieces[0]);
  free(pieces[1]);
  if (status == MR_OK && !same) {
    mr_log(MR_LOG_ERROR,
           "%s: %s differs from %s; this model has one matrix for both (tie_word_embeddings)",
           file->path, head->name, embedding->name);
    status = MR_UNSUPPORTED;
  }
  return status;
}

/* A tensor that is none of the model's. Older programs wrote the masks of attention. */
static mr_status check_other(const struct safetensors_file *file,
                             const struct safetensors_entry *entry,
                             const struct safetensors_entry *embedding, uint32_t layers) {
  if (strcmp(entry->name, "lm_head.weight") == 0) {
    return compare_head(file, entry, embedding);
  }
  if (ends_with(entry->name, ".attn.bias") || ends_with(entry->name, ".attn.masked_bias")) {
    return MR_OK;
  }
  mr_log(MR_LOG_ERROR,
         "%s: %s is no tensor of a GPT-2 of %u layers: set --layers as the file has it", file->path,
         entry->name, layers);
  return MR_INVALID;
}

/* The config.json beside `path` as an object; NULL where there is none that can be read. */
static mr_status read_config(const char *path, json_t **root_out) {
  char name[TRAIN_PATH_BYTES];
  const char *slash = strrchr(path, '/');
  char *folder = slash == NULL ? strdup(".") : strndup(path, (size_t)(slash - path + 1));
  *root_out = NULL;
  if (folder == NULL) {
    return MR_NO_MEMORY;
  }
  mr_status status = train_path(name, folder, CHECKPOINT_CONFIG);
  free(folder);
  int fd = status == MR_OK ? open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
  struct stat found;
  if (fd < 0) {
    return status;
  }
  char *text = NULL;
  bool fit = fstat(fd, &found) == 0 && S_ISREG(found.st_mode) && found.st_size > 0 &&
             found.st_size <= MOST_CONFIG_BYTES;
  if (fit) {
    text = train_allocate((uint64_t)found.st_size, 1);
    status =
        text == NULL ? MR_NO_MEMORY : train_read_at(fd, name, 0, text, (uint64_t)found.st_size);
  }
  close(fd);
  if (fit && status == MR_OK) {
    status = json_read(name, text, (uint64_t)found.st_size, root_out);
    status = status == MR_CORRUPT ? MR_OK : status;
  }
  free(text);
  return status;
}

static mr_status compare_config(const char *path, const json_t *root, uint32_t heads) {
  const json_t *n_head = json_object_get(root, "n_head");
  const char *activation = json_string_value(json_object_get(root, "activation_function"));
  const json_t *epsilon = json_object_get(root, "layer_norm_epsilon");
  if (json_is_integer(n_head) && json_integer_value(n_head) != (json_int_t)heads) {
    mr_log(MR_LOG_ERROR,
           "%s: the config.json beside it says %lld heads, the model has %u: set "
           "--heads as the file has it",
           path, (long long)json_integer_value(n_head), heads);
    return MR_INVALID;
  }
  if (activation != NULL && strcmp(activation, "gelu_new") != 0 &&
      strcmp(activation, "gelu_pytorch_tanh") != 0) {
    mr_log(MR_LOG_ERROR, "%s: the config.json beside it says %s; this model has gelu_new", path,
           activation);
    return MR_UNSUPPORTED;
  }
  if (json_is_number(epsilon) && fabs(json_number_value(epsilon) - 1e-5) > 1e-9) {
    mr_log(MR_LOG_ERROR,
           "%s: the config.json beside it says a layer_norm_epsilon of %g; this model has 1e-05",
           path, json_number_value(epsilon));
    return MR_UNSUPPORTED;
  }
  return MR_OK;
}

static mr_status check_tensors(const struct step *step, const struct safetensors_file *file) {
  const struct safetensors_entry *embedding = NULL;
  bool *known = train_allocate(file->header.entry_count, sizeof *known);
  mr_status status = known == NULL ? MR_NO_MEMORY : MR_OK;
  for (uint32_t i = 0; status == MR_OK && i < bundle_count(step, BUNDLE_MODEL); i++) {
    struct bundle_tensor tensor = bundle_tensor_at(step, BUNDLE_MODEL, i);
    const struct safetensors_entry *entry = NULL;
    status = bundle_find_tensor(file, &tensor, &entry);
    if (status == MR_OK) {
      known[entry - file->header.entries] = true;
      embedding = ends_with(tensor.name, ".wte.weight") ? entry : embedding;
    }
  }
  for (uint32_t i = 0; status == MR_OK && i < file->header.entry_count; i++) {
    if (!known[i]) {
      status = check_other(file, &file->header.entries[i], embedding, step->options.config.layers);
    }
  }
  free(known);
  return status;
}

mr_status weights_check(const struct step *step, const char *path) {
  struct safetensors_file file;
  json_t *config = NULL;
  mr_status status = safetensors_open(path, &file);
  if (status != MR_OK) {
    return status;
  }
  status = check_tensors(step, &file);
  safetensors_close(&file);
  if (status == MR_OK) {
    status = read_config(path, &config);
  }
  if (config != NULL) {
    status = compare_config(path, config, step->options.config.heads);
    json_decref(config);
  }
  return status;
}

mr_status weights_spared(const char *path, const char *save_dir) {
  char name[TRAIN_PATH_BYTES];
  struct stat read;
  struct stat written;
  if (path == NULL || save_dir == NULL) {
    return MR_OK;
  }
  mr_status status = train_path(name, save_dir, CHECKPOINT_MODEL);
  bool same = status == MR_OK && stat(path, &read) == 0 && stat(name, &written) == 0 &&
              read.st_dev == written.st_dev && read.st_ino == written.st_ino;
  if (same) {
    mr_log(MR_LOG_ERROR, "--save %s would replace %s, which --init reads; name another folder",
           save_dir, path);
    status = MR_INVALID;
  }
  return status;
}
