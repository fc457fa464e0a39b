/* SPDX-License-Identifier: Apache-2.0 */
/* The proof that budgets do not change results: the same job twice, compared bit for bit. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "train/common.h"
#include "train/job.h"

struct result {
  double loss, grad_norm;
};

/* What the first run leaves for the second. */
struct record {
  struct result *results; /* of each step */
  int fd;                 /* every persistent tensor, one after another */
  const volatile int *stop;
  struct trainer_verification *verification;
};

static int open_unlinked(const char *directory) {
  int fd = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd < 0) { /* a file system without unnamed files */
    char path[TRAIN_PATH_BYTES];
    if (train_path(path, directory, "memrun-verify-XXXXXX") != MR_OK) {
      return -1;
    }
    fd = mkostemp(path, O_CLOEXEC);
    if (fd >= 0) {
      unlink(path);
    }
  }
  if (fd < 0) {
    mr_log(MR_LOG_ERROR, "cannot make a file in %s: %s", directory, strerror(errno));
  }
  return fd;
}

static bool persistent(const struct mr_graph *graph, mr_tensor_id tensor) {
  mr_role role = mr_graph_tensor_role(graph, tensor);
  return role == MR_PARAMETER || role == MR_STATE;
}

static void note_difference(struct record *record, const char *what, uint64_t step) {
  struct trainer_verification *verification = record->verification;
  if (verification->first_difference != NULL) {
    return;
  }
  snprintf(verification->name, sizeof verification->name, "%s", what);
  verification->first_difference = verification->name;
  verification->first_difference_step = step;
}

/* Runs the steps and hands each result to `each`. */
typedef void (*result_visitor)(struct record *record, uint64_t index, uint64_t step,
                               struct result result);

static mr_status run_steps(struct trainer *trainer, struct record *record, result_visitor each) {
  uint64_t first = trainer->info.first_step;
  while (trainer->steps_done < trainer->options.steps) {
    if (record->stop != NULL && *record->stop != 0) {
      mr_log(MR_LOG_WARN, "interrupted after step %llu", (unsigned long long)trainer->steps_done);
      return MR_INTERRUPTED;
    }
    struct trainer_step step;
    mr_status status = trainer_step(trainer, &step);
    if (status != MR_OK) {
      return status;
    }
    each(record, step.step - first, step.step,
         (struct result){.loss = step.loss, .grad_norm = step.grad_norm});
  }
  return MR_OK;
}

/* Called with each piece of each persistent tensor; `at` is its place in the record's file. */
typedef mr_status (*piece_visitor)(struct record *record, uint64_t at, const void *data,
                                   uint64_t bytes, bool *same_out);

static mr_status visit_tensor(struct trainer *trainer, mr_tensor_id tensor, uint64_t at,
                              struct record *record, piece_visitor each) {
  const struct mr_graph *graph = trainer->step->graph;
  uint64_t total = mr_graph_tensor_bytes(graph, tensor);
  bool same = true;
  for (uint64_t done = 0; done < total; done += TRAIN_PIECE_BYTES) {
    uint64_t bytes = train_min_u64(TRAIN_PIECE_BYTES, total - done);
    mr_status status = mr_run_read(trainer->run, tensor, done, trainer->piece, bytes);
    if (status == MR_OK) {
      status = each(record, at + done, trainer->piece, bytes, &same);
    }
    if (status != MR_OK) {
      return status;
    }
  }
  if (!same) {
    record->verification->different_tensors++;
    note_difference(record, mr_graph_tensor_name(graph, tensor), trainer->steps_done);
  }
  record->verification->tensors++;
  record->verification->bytes += total;
  return MR_OK;
}

static mr_status visit_tensors(struct trainer *trainer, struct record *record, piece_visitor each) {
  const struct mr_graph *graph = trainer->step->graph;
  mr_status status = MR_OK;
  uint64_t at = 0;
  record->verification->tensors = 0;
  record->verification->bytes = 0;
  for (uint32_t i = 0; status == MR_OK && i < mr_graph_tensor_count(graph); i++) {
    if (persistent(graph, i)) {
      status = visit_tensor(trainer, i, at, record, each);
      at += mr_graph_tensor_bytes(graph, i);
    }
  }
  return status;
}

static void keep_result(struct record *record, uint64_t index, uint64_t step,
                        struct result result) {
  (void)step;
  record->results[index] = result;
}

static void compare_result(struct record *record, uint64_t index, uint64_t step,
                           struct result result) {
  const struct result *kept = &record->results[index];
  if (memcmp(&kept->loss, &result.loss, sizeof result.loss) != 0) {
    record->verification->different_losses++;
    note_difference(record, "loss", step);
  }
  if (memcmp(&kept->grad_norm, &result.grad_norm, sizeof result.grad_norm) != 0) {
    record->verification->different_losses++;
    note_difference(record, "gradient.norm", step);
  }
  record->verification->steps++;
}

static mr_status keep_piece(struct record *record, uint64_t at, const void *data, uint64_t bytes,
                            bool *same_out) {
  (void)same_out;
  return train_write_at(record->fd, "the results of the first run", at, data, bytes);
}

static mr_status compare_piece(struct record *record, uint64_t at, const void *data, uint64_t bytes,
                               bool *same_out) {
  char kept[1u << 14];
  const char *have = data;
  for (uint64_t done = 0; done < bytes; done += sizeof kept) {
    uint64_t count = train_min_u64(sizeof kept, bytes - done);
    mr_status status =
        train_read_at(record->fd, "the results of the first run", at + done, kept, count);
    if (status != MR_OK) {
      return status;
    }
    if (memcmp(kept, have + done, count) != 0) {
      *same_out = false;
    }
  }
  return MR_OK;
}

static struct mr_plan_summary summary_of(struct trainer *trainer) {
  struct mr_plan_summary summary = {.size_bytes = sizeof summary};
  mr_plan_summarize(mr_run_plan(trainer->run), &summary);
  return summary;
}

/* The job with all the memory there is: nothing moves and nothing is recomputed. */
static mr_status run_unconstrained(const struct trainer_options *options, struct record *record) {
  struct trainer_options free_options = *options;
  free_options.run.device_bytes = MR_BUDGET_AUTO;
  free_options.run.host_bytes = MR_BUDGET_AUTO;
  free_options.run.offload = MR_OFFLOAD_NONE;
  free_options.run.recompute = MR_RECOMPUTE_NONE;
  free_options.run.defer = MR_DEFER_NEVER;
  free_options.run.plan_path = NULL;
  free_options.run.nvme = NULL;
  free_options.run.nvme_count = 0;
  free_options.run.trace_path = NULL;
  struct trainer *trainer = NULL;
  mr_status status = trainer_create(&free_options, &trainer);
  if (status != MR_OK) {
    return status;
  }
  record->verification->footprint_bytes = summary_of(trainer).footprint_bytes;
  status = run_steps(trainer, record, keep_result);
  if (status == MR_OK) {
    status = visit_tensors(trainer, record, keep_piece);
  }
  return trainer_destroy(trainer, status);
}

static mr_status run_constrained(const struct trainer_options *options, struct record *record) {
  struct trainer *trainer = NULL;
  mr_status status = trainer_create(options, &trainer);
  if (status != MR_OK) {
    return status;
  }
  struct mr_plan_summary summary = summary_of(trainer);
  memcpy(record->verification->budget_bytes, summary.budget_bytes, sizeof summary.budget_bytes);
  for (int link = 0; link < MR_LINK_COUNT; link++) {
    record->verification->moved_bytes += summary.moved_bytes[link];
  }
  record->verification->recomputed_ops = summary.recomputed_op_count;
  record->verification->deferred_ops = summary.deferred_op_count;
  status = run_steps(trainer, record, compare_result);
  if (status == MR_OK) {
    status = visit_tensors(trainer, record, compare_piece);
  }
  return trainer_destroy(trainer, status);
}

static mr_status verify_with(const struct trainer_options *options, struct record *record) {
  mr_status status = run_unconstrained(options, record);
  if (status == MR_OK) {
    status = run_constrained(options, record);
  }
  const struct trainer_verification *verification = record->verification;
  if (status == MR_OK && verification->first_difference != NULL) {
    mr_log(MR_LOG_ERROR, "the runs differ: %llu losses and %llu tensors, first %s at step %llu",
           (unsigned long long)verification->different_losses,
           (unsigned long long)verification->different_tensors, verification->first_difference,
           (unsigned long long)verification->first_difference_step);
    status = MR_MISMATCH;
  }
  return status;
}

mr_status trainer_verify(const struct trainer_options *options, const char *scratch_dir,
                         const volatile int *stop, struct trainer_verification *verification_out) {
  struct trainer_options job = *options;
  job.run.threads = options_threads(options);
  job.save_dir = NULL;
  job.checkpoint_dir = NULL;
  *verification_out = (struct trainer_verification){.steps = 0};
  struct record record = {
      .fd = open_unlinked(scratch_dir), .stop = stop, .verification = verification_out};
  if (record.fd < 0) {
    return MR_IO;
  }
  mr_status status = MR_NO_MEMORY;
  record.results = train_allocate(options->steps, sizeof *record.results);
  if (record.results != NULL) {
    status = verify_with(&job, &record);
  }
  free(record.results);
  close(record.fd);
  return status;
}
