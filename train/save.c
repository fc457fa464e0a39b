/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors of a run to and from safetensors files, a piece at a time; small files; directories. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "train/common.h"
#include "train/job.h"

#define NAME_PREFIX "transformer."

uint32_t bundle_count(const struct step *step, enum bundle_kind kind) {
  uint32_t parameters = model_parameter_count(&step->options.config);
  return kind == BUNDLE_MODEL ? parameters : 2 * parameters;
}

struct bundle_tensor bundle_tensor_at(const struct step *step, enum bundle_kind kind,
                                      uint32_t index) {
  uint32_t index_of_parameter = kind == BUNDLE_MODEL ? index : index / 2;
  struct model_parameter parameter = model_parameter_at(&step->options.config, index_of_parameter);
  struct bundle_tensor tensor = {.rank = parameter.rank,
                                 .shape = {parameter.shape[0], parameter.shape[1]},
                                 .count = parameter.count};
  const char *prefix = kind == BUNDLE_MODEL ? "" : index % 2 == 0 ? "m." : "v.";
  snprintf(tensor.name, sizeof tensor.name, "%s%.128s", prefix, parameter.name);
  return tensor;
}

/* Where elements of a bundle's tensor lie in the run. */
struct place {
  mr_tensor_id tensor;
  uint64_t first, count; /* elements of that tensor from the one that was asked for on */
};

static struct place locate(const struct step *step, enum bundle_kind kind, uint32_t index,
                           uint64_t element) {
  const struct model_config *config = &step->options.config;
  uint32_t part = model_part_of(config, kind == BUNDLE_MODEL ? index : index / 2, element);
  struct model_part description = model_part_at(config, part);
  uint64_t first = element - description.first;
  if (kind == BUNDLE_MODEL) {
    return (struct place){step->parts[part].tensor, first, description.count - first};
  }
  const struct optimizer *optimizer = &step->optimizer;
  uint64_t number = optimizer->first_piece[part] + first / OPTIMIZER_PIECE_ELEMENTS;
  const struct optimizer_piece *piece = &optimizer->pieces[number];
  first -= piece->first;
  return (struct place){index % 2 == 0 ? piece->m : piece->v, first, piece->count - first};
}

/* Elements [first, first + count) of a bundle's tensor into the trainer's piece, from as many
 * tensors of the run as hold them. */
static mr_status run_to_piece(struct trainer *trainer, enum bundle_kind kind, uint32_t index,
                              uint64_t first, uint64_t count) {
  mr_status status = MR_OK;
  uint64_t here = 0;
  for (uint64_t done = 0; status == MR_OK && done < count; done += here) {
    struct place place = locate(trainer->step, kind, index, first + done);
    here = train_min_u64(place.count, count - done);
    status = mr_run_read(trainer->run, place.tensor, place.first * sizeof(float),
                         trainer->piece + done, here * sizeof(float));
  }
  return status;
}

/* The way back. */
static mr_status piece_to_run(struct trainer *trainer, enum bundle_kind kind, uint32_t index,
                              uint64_t first, uint64_t count) {
  mr_status status = MR_OK;
  uint64_t here = 0;
  for (uint64_t done = 0; status == MR_OK && done < count; done += here) {
    struct place place = locate(trainer->step, kind, index, first + done);
    here = train_min_u64(place.count, count - done);
    status = mr_run_write(trainer->run, place.tensor, place.first * sizeof(float),
                          trainer->piece + done, here * sizeof(float));
  }
  return status;
}

static mr_status append_tensor(struct trainer *trainer, enum bundle_kind kind, uint32_t index,
                               struct safetensors_writer *writer, uint32_t *crc_out) {
  uint64_t total = bundle_tensor_at(trainer->step, kind, index).count;
  uint32_t crc = 0;
  mr_status status = MR_OK;
  for (uint64_t at = 0; status == MR_OK && at < total; at += TRAIN_PIECE_ELEMENTS) {
    uint64_t count = train_min_u64(TRAIN_PIECE_ELEMENTS, total - at);
    status = run_to_piece(trainer, kind, index, at, count);
    if (status == MR_OK) {
      crc = train_crc32c(crc, trainer->piece, count * sizeof(float));
      status = safetensors_append(writer, trainer->piece, count);
    }
  }
  *crc_out = crc;
  return status;
}

/* The names of `tensors` point into `descriptions`. */
static mr_status create_bundle(const struct step *step, enum bundle_kind kind, const char *path,
                               struct safetensors_writer *writer) {
  uint32_t count = bundle_count(step, kind);
  struct bundle_tensor *descriptions = train_allocate(count, sizeof *descriptions);
  struct safetensors_tensor *tensors = train_allocate(count, sizeof *tensors);
  mr_status status = MR_NO_MEMORY;
  if (descriptions != NULL && tensors != NULL) {
    for (uint32_t i = 0; i < count; i++) {
      descriptions[i] = bundle_tensor_at(step, kind, i);
      tensors[i] = (struct safetensors_tensor){
          .name = descriptions[i].name,
          .rank = descriptions[i].rank,
          .shape = {descriptions[i].shape[0], descriptions[i].shape[1]}};
    }
    status = safetensors_create(path, tensors, count, writer);
  }
  free(descriptions);
  free(tensors);
  return status;
}

mr_status bundle_save(struct trainer *trainer, enum bundle_kind kind, const char *path,
                      uint32_t *tensor_crcs, struct file_sum *sum_out) {
  struct safetensors_writer writer;
  mr_status status = create_bundle(trainer->step, kind, path, &writer);
  if (status != MR_OK) {
    return status;
  }
  uint32_t count = bundle_count(trainer->step, kind);
  for (uint32_t i = 0; status == MR_OK && i < count; i++) {
    uint32_t crc = 0;
    status = append_tensor(trainer, kind, i, &writer, &crc);
    if (tensor_crcs != NULL) {
      tensor_crcs[i] = crc;
    }
  }
  if (status != MR_OK) {
    safetensors_abandon(&writer);
    return status;
  }
  *sum_out = (struct file_sum){.bytes = writer.offset, .crc = writer.crc};
  return safetensors_finish(&writer);
}

static mr_status load_tensor(struct trainer *trainer, enum bundle_kind kind, uint32_t index,
                             const struct safetensors_file *file,
                             const struct safetensors_entry *entry, uint32_t *crc_out) {
  uint32_t crc = 0;
  mr_status status = MR_OK;
  for (uint64_t at = 0; status == MR_OK && at < entry->count; at += TRAIN_PIECE_ELEMENTS) {
    uint64_t count = train_min_u64(TRAIN_PIECE_ELEMENTS, entry->count - at);
    status = safetensors_read(file, entry, at, count, trainer->piece);
    if (status == MR_OK) {
      crc = train_crc32c(crc, trainer->piece, count * sizeof(float));
      status = piece_to_run(trainer, kind, index, at, count);
    }
  }
  *crc_out = crc;
  return status;
}

/* The tensor's entry, with or without the prefix; NULL where it is missing. */
static const struct safetensors_entry *find_entry(const struct safetensors *header,
                                                  const char *name) {
  const struct safetensors_entry *entry = safetensors_find(header, name);
  size_t prefix = strlen(NAME_PREFIX);
  if (entry == NULL && strncmp(name, NAME_PREFIX, prefix) == 0) {
    entry = safetensors_find(header, name + prefix);
  }
  return entry;
}

mr_status bundle_find_tensor(const struct safetensors_file *file,
                             const struct bundle_tensor *tensor,
                             const struct safetensors_entry **entry_out) {
  const struct safetensors_entry *entry = find_entry(&file->header, tensor->name);
  if (entry == NULL) {
    mr_log(MR_LOG_ERROR, "%s has no tensor %s", file->path, tensor->name);
    return MR_INVALID;
  }
  bool same = entry->rank == tensor->rank && entry->shape[0] == tensor->shape[0] &&
              (tensor->rank == 1 || entry->shape[1] == tensor->shape[1]);
  if (!same) {
    mr_log(MR_LOG_ERROR,
           "%s: %s has %u dimensions (%llu, %llu); the model's has %u (%llu, %llu): set --layers, "
           "--width, --vocab and --positions as the file has them",
           file->path, entry->name, entry->rank, (unsigned long long)entry->shape[0],
           (unsigned long long)entry->shape[1], tensor->rank, (unsigned long long)tensor->shape[0],
           (unsigned long long)tensor->shape[1]);
    return MR_INVALID;
  }
  if (entry->dtype == SAFETENSORS_OTHER) {
    mr_log(MR_LOG_ERROR, "%s: %s is not of dtype F32, F16 or BF16", file->path, entry->name);
    return MR_UNSUPPORTED;
  }
  *entry_out = entry;
  return MR_OK;
}

mr_status bundle_load(struct trainer *trainer, enum bundle_kind kind, const char *path,
                      const uint32_t *tensor_crcs) {
  struct safetensors_file file;
  mr_status status = safetensors_open(path, &file);
  if (status != MR_OK) {
    return status;
  }
  uint32_t count = bundle_count(trainer->step, kind);
  for (uint32_t i = 0; status == MR_OK && i < count; i++) {
    struct bundle_tensor tensor = bundle_tensor_at(trainer->step, kind, i);
    const struct safetensors_entry *entry = NULL;
    uint32_t crc = 0;
    status = bundle_find_tensor(&file, &tensor, &entry);
    if (status == MR_OK) {
      status = load_tensor(trainer, kind, i, &file, entry, &crc);
    }
    if (status == MR_OK && tensor_crcs != NULL && crc != tensor_crcs[i]) {
      mr_log(MR_LOG_ERROR, "%s: %s has CRC32C %08x, its state.json says %08x", path, tensor.name,
             crc, tensor_crcs[i]);
      status = MR_CORRUPT;
    }
  }
  safetensors_close(&file);
  return status;
}

mr_status weights_load(struct trainer *trainer, const char *path) {
  return bundle_load(trainer, BUNDLE_MODEL, path, NULL);
}

mr_status file_create(const char *path, const void *data, uint64_t bytes,
                      struct file_sum *sum_out) {
  int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0) {
    int error = errno;
    mr_log(MR_LOG_ERROR, "cannot create %s: %s", path, strerror(error));
    return train_write_status(error);
  }
  mr_status status = train_write_at(fd, path, 0, data, bytes);
  if (status == MR_OK && fsync(fd) != 0) {
    int error = errno;
    mr_log(MR_LOG_ERROR, "cannot sync %s: %s", path, strerror(error));
    status = train_write_status(error);
  }
  if (close(fd) != 0 && status == MR_OK) {
    int error = errno;
    mr_log(MR_LOG_ERROR, "cannot close %s: %s", path, strerror(error));
    status = train_write_status(error);
  }
  *sum_out = (struct file_sum){.bytes = bytes, .crc = train_crc32c(0, data, bytes)};
  return status;
}

mr_status directory_sync(const char *path) {
  int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  int error = fd < 0 || fsync(fd) != 0 ? errno : 0;
  if (fd >= 0) {
    close(fd);
  }
  /* Some file systems (FUSE, network) do not sync directories and say so. */
  if (error != 0 && error != EINVAL) {
    mr_log(MR_LOG_ERROR, "cannot sync the directory %s: %s", path, strerror(error));
    return train_write_status(error);
  }
  return MR_OK;
}

mr_status directory_prepare(const char *path) {
  if (mkdir(path, 0777) != 0 && errno != EEXIST) {
    int error = errno;
    mr_log(MR_LOG_ERROR, "cannot make the directory %s: %s", path, strerror(error));
    return train_write_status(error);
  }
  /* A file may have the same rights, and would be found out where there is something to lose. */
  struct stat found;
  int error = stat(path, &found) != 0 ? errno : 0;
  if (error == 0) {
    error = !S_ISDIR(found.st_mode) ? ENOTDIR : access(path, W_OK | X_OK) != 0 ? errno : 0;
  }
  if (error != 0) {
    mr_log(MR_LOG_ERROR, "cannot write to the directory %s: %s", path, strerror(error));
    return MR_IO;
  }
  return MR_OK;
}
