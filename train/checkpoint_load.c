/* SPDX-License-Identifier: Apache-2.0 */
/* Finding a whole checkpoint and going on from it. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "train/common.h"
#include "train/state.h"

#define FAULT_BYTES           256u
#define STATE_MOST_FILE_BYTES (64ull << 20)
#define NAME_LEAST            13 /* characters of step-00000001 */

/* Opens a file of a checkpoint; what is missing or unreadable is a fault of the checkpoint. */
static int open_file(const char *directory, const char *name, uint64_t *bytes_out, char *fault) {
  char path[TRAIN_PATH_BYTES];
  struct stat about;
  if (train_path(path, directory, name) != MR_OK) {
    return -1;
  }
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0 || fstat(fd, &about) != 0 || !S_ISREG(about.st_mode)) {
    snprintf(fault, FAULT_BYTES, "%s cannot be opened: %s", name,
             fd < 0 ? strerror(errno) : "not a file");
    if (fd >= 0) {
      close(fd);
    }
    return -1;
  }
  *bytes_out = (uint64_t)about.st_size;
  return fd;
}

static mr_status read_state(const char *directory, struct checkpoint_state **state_out,
                            char *fault) {
  uint64_t bytes = 0;
  int fd = open_file(directory, CHECKPOINT_STATE, &bytes, fault);
  if (fd < 0) {
    return MR_CORRUPT;
  }
  char *text = NULL;
  mr_status status = MR_CORRUPT;
  const char *why = "its size makes no sense";
  if (bytes <= STATE_MOST_FILE_BYTES) {
    text = train_allocate(bytes + 1, 1);
    status = text == NULL ? MR_NO_MEMORY : train_read_at(fd, directory, 0, text, bytes);
    why = "it cannot be read";
  }
  if (status == MR_OK) {
    status = state_parse(text, bytes, state_out, &why);
  }
  if (status == MR_CORRUPT) {
    snprintf(fault, FAULT_BYTES, CHECKPOINT_STATE ": %s", why);
  }
  free(text);
  close(fd);
  return status;
}

/* The CRC32C of a whole file through `piece` (TRAIN_PIECE_BYTES). */
static mr_status sum_file(int fd, const char *name, uint64_t bytes, void *piece,
                          uint32_t *crc_out) {
  uint32_t crc = 0;
  mr_status status = MR_OK;
  for (uint64_t at = 0; status == MR_OK && at < bytes; at += TRAIN_PIECE_BYTES) {
    uint64_t count = train_min_u64(TRAIN_PIECE_BYTES, bytes - at);
    status = train_read_at(fd, name, at, piece, count);
    if (status == MR_OK) {
      crc = train_crc32c(crc, piece, count);
    }
  }
  *crc_out = crc;
  return status;
}

static mr_status check_file(const char *directory, const char *name, const struct file_sum *wanted,
                            void *piece, char *fault) {
  uint64_t bytes = 0;
  int fd = open_file(directory, name, &bytes, fault);
  if (fd < 0) {
    return MR_CORRUPT;
  }
  mr_status status = MR_OK;
  uint32_t crc = 0;
  if (bytes != wanted->bytes) {
    snprintf(fault, FAULT_BYTES, "%s has %llu bytes, not %llu", name, (unsigned long long)bytes,
             (unsigned long long)wanted->bytes);
    status = MR_CORRUPT;
  } else {
    status = sum_file(fd, name, bytes, piece, &crc);
  }
  if (status == MR_OK && crc != wanted->crc) {
    snprintf(fault, FAULT_BYTES, "%s has CRC32C %08x, not %08x", name, crc, wanted->crc);
    status = MR_CORRUPT;
  }
  close(fd);
  return status;
}

/* Checks every byte of a checkpoint. MR_CORRUPT logs nothing and writes fault[FAULT_BYTES]. */
static mr_status check_whole(const char *directory, void *piece,
                             struct checkpoint_state **state_out, char *fault) {
  struct checkpoint_state *state = NULL;
  snprintf(fault, FAULT_BYTES, "it cannot be read");
  mr_status status = read_state(directory, &state, fault);
  for (uint32_t i = 0; status == MR_OK && i < STATE_FILES; i++) {
    status = check_file(directory, state_file_names[i], &state->files[i], piece, fault);
  }
  if (status != MR_OK) {
    state_destroy(state);
    return status;
  }
  *state_out = state;
  return MR_OK;
}

/* Logs the one line about a checkpoint that is not whole, with the newest one below `step` that is.
 */
static void refuse(const char *path, const char *fault, const char *directory,
                   const uint64_t *steps, uint32_t count, void *piece) {
  char older[TRAIN_PATH_BYTES];
  char older_fault[FAULT_BYTES];
  for (uint32_t i = count; i-- > 0;) {
    struct checkpoint_state *state = NULL;
    if (checkpoint_path(older, directory, steps[i]) != MR_OK ||
        check_whole(older, piece, &state, older_fault) != MR_OK) {
      continue;
    }
    state_destroy(state);
    mr_log(MR_LOG_ERROR,
           "the checkpoint %s is corrupt: %s; the one before it is whole: --resume "
           "%s",
           path, fault, older);
    return;
  }
  mr_log(MR_LOG_ERROR, "the checkpoint %s is corrupt: %s; there is no whole one before it", path,
         fault);
}

/* Splits a checkpoint's own path into its directory and number; false where its name is none. */
static bool split_name(const char *path, char *directory_out, uint64_t *step_out) {
  size_t length = strlen(path);
  while (length > 1 && path[length - 1] == '/') {
    length--;
  }
  if (length >= TRAIN_PATH_BYTES) {
    return false;
  }
  memcpy(directory_out, path, length);
  directory_out[length] = '\0';
  char *slash = strrchr(directory_out, '/');
  const char *name = slash == NULL ? directory_out : slash + 1;
  unsigned long long step = 0;
  int used = 0;
  if (sscanf(name, "step-%19llu%n", &step, &used) != 1 || name[used] != '\0' || used < NAME_LEAST) {
    return false;
  }
  *step_out = step;
  if (slash == NULL) {
    memcpy(directory_out, ".", 2);
  } else {
    *slash = '\0';
  }
  return true;
}

/* Whether the path is a checkpoint itself, by its own name or, of a link, that of what it is. */
static bool split_path(const char *path, char *directory_out, uint64_t *step_out) {
  char state[TRAIN_PATH_BYTES];
  if (split_name(path, directory_out, step_out)) {
    return true;
  }
  if (train_path(state, path, CHECKPOINT_STATE) != MR_OK || access(state, F_OK) != 0) {
    return false;
  }
  char *real = realpath(path, NULL);
  bool is_one = real != NULL && split_name(real, directory_out, step_out);
  free(real);
  return is_one;
}

/* The checkpoint's number and the ascending numbers of it and those before it, in its directory. */
static mr_status choose(const char *named, char *directory_out, uint64_t **steps_out,
                        uint32_t *count_out) {
  uint64_t step = UINT64_MAX;
  if (!split_path(named, directory_out, &step)) {
    snprintf(directory_out, TRAIN_PATH_BYTES, "%s", named);
  }
  mr_status status = checkpoint_list(directory_out, steps_out, count_out);
  if (status != MR_OK) {
    return status;
  }
  uint32_t count = *count_out;
  while (count > 0 && (*steps_out)[count - 1] > step) {
    count--;
  }
  if (count == 0 || (step != UINT64_MAX && (*steps_out)[count - 1] != step)) {
    mr_log(MR_LOG_ERROR, "there is no checkpoint in %s", named);
    free(*steps_out);
    return MR_INVALID;
  }
  *count_out = count;
  return MR_OK;
}

mr_status checkpoint_find(const struct trainer *trainer, const char *directory,
                          struct checkpoint *checkpoint_out) {
  char parent[TRAIN_PATH_BYTES];
  uint64_t *steps = NULL;
  uint32_t count = 0;
  struct checkpoint found = {.state = NULL};
  mr_status status = choose(directory, parent, &steps, &count);
  if (status != MR_OK) {
    return status;
  }
  char fault[FAULT_BYTES];
  status = checkpoint_path(found.path, parent, steps[count - 1]);
  if (status == MR_OK) {
    status = check_whole(found.path, trainer->piece, &found.state, fault);
    if (status == MR_CORRUPT) {
      refuse(found.path, fault, parent, steps, count - 1, trainer->piece);
    }
  }
  free(steps);
  if (status == MR_OK) {
    struct state_identity wanted = state_identity_of(trainer);
    status = state_match(found.path, &found.state->identity, &wanted);
  }
  if (status == MR_OK) {
    status = state_match_data(found.path, found.state, trainer);
  }
  if (status != MR_OK) {
    checkpoint_fini(&found);
    return status;
  }
  struct state_settings settings = state_settings_of(trainer);
  state_compare_settings(found.path, &found.state->settings, &settings);
  state_compare_dtype(found.path, found.state->dtype, trainer->options.dtype);
  state_compare_gemm(found.path, found.state->gemm, trainer->info.gemm);
  *checkpoint_out = found;
  return MR_OK;
}

void checkpoint_fini(struct checkpoint *checkpoint) {
  state_destroy(checkpoint->state);
  checkpoint->state = NULL;
}

uint64_t checkpoint_step(const struct checkpoint *checkpoint) {
  return checkpoint->state->step;
}

mr_status checkpoint_load(struct trainer *trainer, const struct checkpoint *checkpoint) {
  static const char *const names[BUNDLE_KINDS] = {CHECKPOINT_MODEL, CHECKPOINT_OPTIMIZER};
  const struct checkpoint_state *state = checkpoint->state;
  for (uint32_t kind = 0; kind < BUNDLE_KINDS; kind++) {
    char path[TRAIN_PATH_BYTES];
    if (state->tensor_counts[kind] != bundle_count(trainer->step, kind)) {
      mr_log(MR_LOG_ERROR, "%s has sums of %u tensors, the model has %u", checkpoint->path,
             state->tensor_counts[kind], bundle_count(trainer->step, kind));
      return MR_CORRUPT;
    }
    mr_status status = train_path(path, checkpoint->path, names[kind]);
    if (status == MR_OK) {
      status = bundle_load(trainer, kind, path, state->tensor_crcs[kind]);
    }
    if (status != MR_OK) {
      return status;
    }
  }
  trainer->steps_done = state->step;
  trainer->next_window = state->window;
  return MR_OK;
}
