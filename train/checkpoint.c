/* SPDX-License-Identifier: Apache-2.0 */
/* Writing checkpoints: beside the older ones, synced, renamed, the oldest removed. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "train/common.h"
#include "train/state.h"

#define CHECKPOINTS_KEPT 2u
#define STEP_DIGITS_MOST 19

mr_status checkpoint_path(char *path, const char *directory, uint64_t step) {
  char name[40];
  snprintf(name, sizeof name, "step-%08llu", (unsigned long long)step);
  return train_path(path, directory, name);
}

/* Reads "step-<digits>" and points *rest_out behind the digits. */
static bool parse_name(const char *name, uint64_t *step_out, const char **rest_out) {
  static const char prefix[] = "step-";
  if (strncmp(name, prefix, sizeof prefix - 1) != 0) {
    return false;
  }
  const char *digits = name + sizeof prefix - 1;
  size_t count = strspn(digits, "0123456789");
  if (count < 8 || count > STEP_DIGITS_MOST) {
    return false;
  }
  *step_out = strtoull(digits, NULL, 10);
  *rest_out = digits + count;
  return true;
}

static int by_number(const void *a, const void *b) {
  uint64_t left = *(const uint64_t *)a;
  uint64_t right = *(const uint64_t *)b;
  return left < right ? -1 : left > right;
}

static mr_status list_open(DIR *stream, uint64_t **steps_out, uint32_t *count_out) {
  uint64_t *steps = NULL;
  uint32_t count = 0;
  uint32_t capacity = 0;
  for (struct dirent *entry = readdir(stream); entry != NULL; entry = readdir(stream)) {
    uint64_t step = 0;
    const char *rest = NULL;
    if (!parse_name(entry->d_name, &step, &rest) || *rest != '\0') {
      continue;
    }
    if (count == capacity) {
      capacity = capacity == 0 ? 8 : 2 * capacity;
      uint64_t *grown = realloc(steps, capacity * sizeof *steps);
      if (grown == NULL) {
        mr_log(MR_LOG_ERROR, "out of host memory: a list of %u checkpoints", capacity);
        free(steps);
        return MR_NO_MEMORY;
      }
      steps = grown;
    }
    steps[count++] = step;
  }
  if (count > 0) {
    qsort(steps, count, sizeof *steps, by_number);
  }
  *steps_out = steps;
  *count_out = count;
  return MR_OK;
}

mr_status checkpoint_list(const char *directory, uint64_t **steps_out, uint32_t *count_out) {
  DIR *stream = opendir(directory);
  if (stream == NULL && (errno == ENOENT || errno == ENOTDIR)) {
    *steps_out = NULL;
    *count_out = 0;
    return MR_OK;
  }
  if (stream == NULL) {
    mr_log(MR_LOG_ERROR, "cannot read the directory %s: %s", directory, strerror(errno));
    return MR_IO;
  }
  mr_status status = list_open(stream, steps_out, count_out);
  closedir(stream);
  return status;
}

void checkpoint_remove(const char *path) {
  static const char *const names[] = {CHECKPOINT_STATE, CHECKPOINT_MODEL, CHECKPOINT_OPTIMIZER,
                                      CHECKPOINT_CONFIG};
  int directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  for (size_t i = 0; directory >= 0 && i < sizeof names / sizeof names[0]; i++) {
    unlinkat(directory, names[i], 0);
  }
  if (directory >= 0) {
    close(directory);
  }
  if (rmdir(path) != 0 && errno != ENOENT) {
    mr_log(MR_LOG_WARN, "cannot remove %s: %s", path, strerror(errno));
  }
}

/* Removes what processes left that died while they wrote a checkpoint. */
static void remove_leftovers(const char *directory) {
  DIR *stream = opendir(directory);
  if (stream == NULL) {
    return;
  }
  for (struct dirent *entry = readdir(stream); entry != NULL; entry = readdir(stream)) {
    uint64_t step = 0;
    const char *rest = NULL;
    char path[TRAIN_PATH_BYTES];
    bool left = parse_name(entry->d_name, &step, &rest) && train_is_left_behind(rest);
    if (left && train_path(path, directory, entry->d_name) == MR_OK) {
      checkpoint_remove(path);
    }
  }
  closedir(stream);
}

/* Keeps the newest CHECKPOINTS_KEPT up to `step`. Those with higher numbers are of a run that went
 * further; they are replaced when this run gets there. Where the loss is no number, those from
 * before that are what the run can go on from, and stay. */
static void remove_old(const char *directory, uint64_t step, uint64_t lost_step) {
  uint64_t *steps = NULL;
  uint32_t count = 0;
  if (checkpoint_list(directory, &steps, &count) != MR_OK) {
    return;
  }
  uint32_t kept = 0;
  for (uint32_t i = count; i-- > 0;) {
    char path[TRAIN_PATH_BYTES];
    if (steps[i] > step || kept++ < CHECKPOINTS_KEPT || steps[i] < lost_step) {
      continue;
    }
    if (checkpoint_path(path, directory, steps[i]) == MR_OK) {
      checkpoint_remove(path);
    }
  }
  free(steps);
}

static mr_status write_bundles(struct trainer *trainer, const char *temporary,
                               struct checkpoint_state *state) {
  static const char *const names[BUNDLE_KINDS] = {CHECKPOINT_MODEL, CHECKPOINT_OPTIMIZER};
  for (uint32_t kind = 0; kind < BUNDLE_KINDS; kind++) {
    char path[TRAIN_PATH_BYTES];
    uint32_t count = bundle_count(trainer->step, kind);
    state->tensor_counts[kind] = count;
    state->tensor_crcs[kind] = train_allocate(count, sizeof *state->tensor_crcs[kind]);
    if (state->tensor_crcs[kind] == NULL) {
      return MR_NO_MEMORY;
    }
    mr_status status = train_path(path, temporary, names[kind]);
    if (status == MR_OK) {
      status = bundle_save(trainer, kind, path, state->tensor_crcs[kind], &state->files[kind]);
    }
    if (status != MR_OK) {
      return status;
    }
  }
  return MR_OK;
}

static mr_status write_config(const struct trainer *trainer, const char *temporary,
                              struct file_sum *sum_out) {
  char path[TRAIN_PATH_BYTES];
  mr_status status = train_path(path, temporary, CHECKPOINT_CONFIG);
  if (status != MR_OK) {
    return status;
  }
  char *config = model_config_json(&trainer->step->options.config);
  if (config == NULL) {
    return MR_NO_MEMORY;
  }
  status = file_create(path, config, strlen(config), sum_out);
  free(config);
  return status;
}

static mr_status write_state(const struct checkpoint_state *state, const char *temporary) {
  char path[TRAIN_PATH_BYTES];
  char *text = NULL;
  struct file_sum sum;
  mr_status status = train_path(path, temporary, CHECKPOINT_STATE);
  if (status == MR_OK) {
    status = state_format(state, &text);
  }
  if (status == MR_OK) {
    status = file_create(path, text, strlen(text), &sum);
  }
  free(text);
  return status;
}

static mr_status write_files(struct trainer *trainer, const char *temporary) {
  struct checkpoint_state *state = train_allocate(1, sizeof *state);
  if (state == NULL) {
    return MR_NO_MEMORY;
  }
  state->step = trainer->steps_done;
  state->window = trainer->next_window;
  state->identity = state_identity_of(trainer);
  state->settings = state_settings_of(trainer);
  state->dtype = trainer->options.dtype;
  snprintf(state->gemm, sizeof state->gemm, "%s", trainer->info.gemm);
  state->data_crc = data_crc(trainer->data);
  mr_status status = write_bundles(trainer, temporary, state);
  if (status == MR_OK) {
    status = write_config(trainer, temporary, &state->files[STATE_CONFIG]);
  }
  if (status == MR_OK) {
    status = write_state(state, temporary);
  }
  state_destroy(state);
  return status == MR_OK ? directory_sync(temporary) : status;
}

/*
 * Gives the finished directory its name. Where a checkpoint of that step is there already, the two
 * change names in one move, so that there is a whole one at every moment; file systems that cannot
 * do that get two moves.
 */
static mr_status publish(const char *temporary, const char *path) {
  if (renameat2(AT_FDCWD, temporary, AT_FDCWD, path, RENAME_NOREPLACE) == 0) {
    return MR_OK;
  }
  if (errno == EINVAL || errno == ENOSYS || errno == EEXIST) {
    if (renameat2(AT_FDCWD, temporary, AT_FDCWD, path, RENAME_EXCHANGE) == 0) {
      checkpoint_remove(temporary);
      return MR_OK;
    }
    checkpoint_remove(path);
    if (rename(temporary, path) == 0) {
      return MR_OK;
    }
  }
  int error = errno;
  mr_log(MR_LOG_ERROR, "cannot rename %s to %s: %s", temporary, path, strerror(error));
  return train_write_status(error);
}

mr_status checkpoint_write(struct trainer *trainer, const char *directory, char *path_out) {
  char temporary[TRAIN_PATH_BYTES];
  char name[64];
  snprintf(name, sizeof name, "step-%08llu" TRAIN_UNFINISHED "%ld",
           (unsigned long long)trainer->steps_done, (long)getpid());
  mr_status status = train_path(temporary, directory, name);
  if (status == MR_OK) {
    status = checkpoint_path(path_out, directory, trainer->steps_done);
  }
  if (status == MR_OK) {
    status = directory_prepare(directory);
  }
  if (status != MR_OK) {
    return status;
  }
  remove_leftovers(directory);
  if (mkdir(temporary, 0777) != 0) {
    int error = errno;
    mr_log(MR_LOG_ERROR, "cannot make the directory %s: %s", temporary, strerror(error));
    return train_write_status(error);
  }
  status = write_files(trainer, temporary);
  if (status == MR_OK) {
    status = publish(temporary, path_out);
  }
  if (status != MR_OK) {
    checkpoint_remove(temporary);
    return status;
  }
  status = directory_sync(directory);
  if (status == MR_OK) {
    remove_old(directory, trainer->steps_done, trainer->lost_step);
  }
  return status;
}
