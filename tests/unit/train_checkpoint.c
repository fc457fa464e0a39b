/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checkpoints and the loop: a resumed run equals the run that never stopped, to the bit; damage is
 * found and told in one line; what must not be mixed is refused; verify sees equal runs as equal.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "train/common.h"
#include "train/job.h"
#include "train/state.h"

#define MOST_STEPS 16u

static char root[64];        /* a folder for the whole test program */
static char profile[128];    /* measured once */
static char directory[128];  /* of one test */
static uint32_t lines;       /* errors logged since the test began */
static char last_line[4096]; /* the last of them */

static void keep_line(void *context, mr_log_level level, const char *line) {
  (void)context;
  if (level == MR_LOG_ERROR) {
    lines++;
    snprintf(last_line, sizeof last_line, "%s", line);
  }
}

static void run_shell(const char *format, const char *a, const char *b) {
  char command[1024];
  snprintf(command, sizeof command, format, a, b);
  assert_int_equal(system(command), 0);
}

static int begin_all(void **state) {
  (void)state;
  snprintf(root, sizeof root, "/tmp/memrun-train-%ld", (long)getpid());
  snprintf(profile, sizeof profile, "%s/profile.json", root);
  return mkdir(root, 0700);
}

static int end_all(void **state) {
  (void)state;
  run_shell("rm -rf '%s'%s", root, "");
  return 0;
}

static int begin(void **state) {
  (void)state;
  snprintf(directory, sizeof directory, "%s/ckpt", root);
  run_shell("rm -rf '%s' '%s/save'", directory, root);
  lines = 0;
  mr_log_configure(keep_line, NULL, MR_LOG_ERROR);
  return 0;
}

static int end(void **state) {
  (void)state;
  mr_log_configure(NULL, NULL, MR_LOG_INFO);
  return 0;
}

static struct trainer_options small_job(uint64_t steps) {
  struct trainer_options options;
  trainer_options_init(&options);
  options.layers = 2;
  options.heads = 2;
  options.width = 32;
  options.vocab = 64;
  options.batch = 2;
  options.seq = 16;
  options.steps = steps;
  options.grad_accum = 2;
  options.warmup = 2;
  options.decay_steps = 8;
  options.run.threads = 2;
  options.run.device_bytes = 64ull << 20;
  options.run.offload = MR_OFFLOAD_NONE;
  options.run.profile_path = profile;
  return options;
}

struct outcome {
  double losses[MOST_STEPS];
  uint64_t step_count;
  uint32_t evaluations, checkpoints;
  uint32_t crc; /* of every parameter and moment */
};

static void stepped(void *context, struct trainer *trainer, const struct trainer_step *step) {
  (void)trainer;
  struct outcome *outcome = context;
  assert_true(outcome->step_count < MOST_STEPS);
  outcome->losses[outcome->step_count++] = step->loss;
}

static void evaluated(void *context, uint64_t step, double loss) {
  struct outcome *outcome = context;
  assert_true(step > 0 && loss > 0);
  outcome->evaluations++;
}

static void checkpointed(void *context, uint64_t step, const char *path) {
  struct outcome *outcome = context;
  char state[256];
  snprintf(state, sizeof state, "%s/%s", path, CHECKPOINT_STATE);
  assert_true(step > 0 && access(state, R_OK) == 0);
  outcome->checkpoints++;
}

static uint32_t sum_of(struct trainer *trainer) {
  uint32_t crc = 0;
  const struct mr_graph *graph = trainer->step->graph;
  for (uint32_t i = 0; i < mr_graph_tensor_count(graph); i++) {
    const char *name = mr_graph_tensor_name(graph, i);
    mr_role role = mr_graph_tensor_role(graph, i);
    if (role != MR_PARAMETER && strncmp(name, "optimizer.", 10) != 0) {
      continue;
    }
    uint64_t bytes = mr_graph_tensor_bytes(graph, i);
    void *data = malloc(bytes);
    assert_non_null(data);
    assert_int_equal(mr_run_read(trainer->run, i, 0, data, bytes), MR_OK);
    crc = train_crc32c(crc, data, bytes);
    free(data);
  }
  return crc;
}

static mr_status run_job(const struct trainer_options *options, struct outcome *outcome) {
  *outcome = (struct outcome){.step_count = 0};
  struct trainer_events events = {
      .context = outcome, .stepped = stepped, .evaluated = evaluated, .checkpointed = checkpointed};
  struct trainer *trainer = NULL;
  mr_status status = trainer_train(options, &events, NULL, &trainer);
  if (status == MR_OK) {
    outcome->crc = sum_of(trainer);
  }
  assert_int_equal(trainer_destroy(trainer, MR_OK), MR_OK);
  return status;
}

static void check_resume(mr_dtype dtype) {
  struct outcome whole;
  struct outcome first;
  struct outcome second;
  struct trainer_options options = small_job(6);
  options.dtype = dtype;
  options.reference = dtype == MR_BF16; /* which runs in bf16 everywhere */
  assert_int_equal(run_job(&options, &whole), MR_OK);
  assert_int_equal(whole.step_count, 6);
  options.steps = 3;
  options.checkpoint_dir = directory;
  assert_int_equal(run_job(&options, &first), MR_OK);
  assert_int_equal(first.checkpoints, 1);
  options.steps = 6;
  options.resume_dir = directory;
  options.eval_every = 2; /* evaluating changes nothing */
  assert_int_equal(run_job(&options, &second), MR_OK);
  assert_int_equal(second.evaluations, 2);
  assert_int_equal(second.step_count, 3);
  assert_memory_equal(first.losses, whole.losses, 3 * sizeof(double));
  assert_memory_equal(second.losses, whole.losses + 3, 3 * sizeof(double));
  assert_int_equal(second.crc, whole.crc);
  assert_int_equal(lines, 0);
}

static void resumed_runs_equal_unbroken_ones(void **state) {
  (void)state;
  check_resume(MR_F32);
}

/* The copies that layers read are in no file and are compared here too. */
static void resumed_bf16_runs_equal_unbroken_ones(void **state) {
  (void)state;
  check_resume(MR_BF16);
}

/* Whether a state with `from` replaced by `to`, of the same length, is read, and with which type.
 */
static bool reads_dtype(mr_dtype written, const char *from, const char *to, mr_dtype *dtype_out) {
  uint32_t crcs[2] = {1, 2};
  struct checkpoint_state made = {
      .dtype = written, .tensor_crcs = {crcs, crcs}, .tensor_counts = {1, 2}};
  struct checkpoint_state *read = NULL;
  const char *fault = NULL;
  char *text = NULL;
  assert_int_equal(state_format(&made, &text), MR_OK);
  size_t bytes = strlen(text), line = strcspn(text, "\n") + 1;
  char *place = strstr(text, from);
  assert_non_null(place);
  for (size_t i = 0; to[i] != '\0'; i++) {
    place[i] = to[i];
  }
  char sum[9];
  snprintf(sum, sizeof sum, "%08x", train_crc32c(0, text + line, bytes - line));
  memcpy(text + strlen("{\"crc32c\":\""), sum, 8);
  bool good = state_parse(text, bytes, &read, &fault) == MR_OK;
  assert_true(good || fault != NULL);
  *dtype_out = good ? read->dtype : MR_F64;
  state_destroy(read);
  free(text);
  return good;
}

static void states_tell_the_type(void **state) {
  (void)state;
  mr_dtype dtype = MR_F64;
  assert_true(reads_dtype(MR_F32, "f32", "f32", &dtype) && dtype == MR_F32);
  assert_true(reads_dtype(MR_BF16, "bf16", "bf16", &dtype) && dtype == MR_BF16);
  /* Without the field, as files were written before there was a choice. */
  assert_true(reads_dtype(MR_BF16, "\"dtype\"", "\"other\"", &dtype) && dtype == MR_F32);
  assert_true(reads_dtype(MR_F32, "\"gemm\"", "\"note\"", &dtype));
  assert_false(reads_dtype(MR_BF16, "bf16", "fp16", &dtype));
}

static bool exists(const char *name) {
  char path[256];
  snprintf(path, sizeof path, "%s/%s", directory, name);
  return access(path, F_OK) == 0;
}

static void newest_two_are_kept(void **state) {
  (void)state;
  char path[256];
  /* what a process left that is dead, as its number is beyond what the kernel gives */
  snprintf(path, sizeof path, "%s/step-00000009.tmp-99999999", directory);
  run_shell("mkdir -p '%s' && touch '%s/model.safetensors'", path, path);
  struct trainer_options options = small_job(5);
  struct outcome outcome;
  options.checkpoint_dir = directory;
  options.checkpoint_every = 2;
  assert_int_equal(run_job(&options, &outcome), MR_OK);
  assert_int_equal(outcome.checkpoints, 3);
  assert_false(exists("step-00000002"));
  assert_true(exists("step-00000004"));
  assert_true(exists("step-00000005"));
  assert_false(exists("step-00000009.tmp-99999999"));
}

static void make_checkpoints(void) {
  struct trainer_options options = small_job(4);
  struct outcome outcome;
  options.checkpoint_dir = directory;
  options.checkpoint_every = 2;
  assert_int_equal(run_job(&options, &outcome), MR_OK);
}

/* Changes one byte of a file at `permille` of its length. */
static void flip(const char *path, uint64_t permille) {
  struct stat about;
  int fd = open(path, O_RDWR | O_CLOEXEC);
  assert_true(fd >= 0);
  assert_int_equal(fstat(fd, &about), 0);
  off_t at = (off_t)((uint64_t)(about.st_size - 1) * permille / 1000);
  unsigned char byte = 0;
  assert_int_equal(pread(fd, &byte, 1, at), 1);
  byte ^= 0x10;
  assert_int_equal(pwrite(fd, &byte, 1, at), 1);
  close(fd);
}

static void expect_refusal(const char *file) {
  struct trainer_options options = small_job(6);
  struct outcome outcome;
  options.resume_dir = directory;
  lines = 0;
  assert_int_equal(run_job(&options, &outcome), MR_CORRUPT);
  assert_int_equal(lines, 1);
  assert_non_null(strstr(last_line, file));
  assert_non_null(strstr(last_line, "step-00000004"));
  assert_non_null(strstr(last_line, "step-00000002"));
}

static void damage_is_found_and_told(void **state) {
  (void)state;
  static const char *const files[] = {CHECKPOINT_MODEL, CHECKPOINT_OPTIMIZER, CHECKPOINT_CONFIG,
                                      CHECKPOINT_STATE};
  make_checkpoints();
  for (uint32_t i = 0; i < sizeof files / sizeof files[0]; i++) {
    char path[256];
    char copy[256];
    snprintf(path, sizeof path, "%s/step-00000004/%s", directory, files[i]);
    snprintf(copy, sizeof copy, "%s/copy", root);
    run_shell("cp '%s' '%s'", path, copy);
    for (uint64_t permille = 0; permille <= 1000; permille += 125) {
      flip(path, permille);
      expect_refusal(files[i]);
      run_shell("cp '%s' '%s'", copy, path);
    }
    struct stat about;
    assert_int_equal(stat(path, &about), 0);
    assert_int_equal(truncate(path, about.st_size - 1), 0);
    expect_refusal(files[i]);
    assert_int_equal(truncate(path, 0), 0);
    expect_refusal(files[i]);
    unlink(path);
    expect_refusal(files[i]);
    run_shell("cp '%s' '%s'", copy, path);
  }
  struct trainer_options options = small_job(6);
  struct outcome outcome;
  char older[256];
  options.resume_dir = directory;
  assert_int_equal(run_job(&options, &outcome), MR_OK);
  assert_int_equal(outcome.step_count, 2);
  snprintf(older, sizeof older, "%s/step-00000002/", directory);
  options.resume_dir = older;
  assert_int_equal(run_job(&options, &outcome), MR_OK);
  assert_int_equal(outcome.step_count, 4);
}

static void expect_invalid(const struct trainer_options *options) {
  struct outcome outcome;
  lines = 0;
  assert_int_equal(run_job(options, &outcome), MR_INVALID);
  assert_int_equal(lines, 1);
}

static void what_does_not_belong_together_is_refused(void **state) {
  (void)state;
  struct trainer_options options = small_job(6);
  options.resume_dir = directory; /* is not there */
  expect_invalid(&options);
  make_checkpoints();
  options = small_job(6);
  options.checkpoint_dir = directory; /* a fresh run over another's checkpoints */
  expect_invalid(&options);
  options.checkpoint_dir = NULL;
  options.resume_dir = directory;
  options.seed++;
  expect_invalid(&options);
  options = small_job(6);
  options.resume_dir = directory;
  options.batch = 4;
  expect_invalid(&options);
  options = small_job(6);
  options.resume_dir = directory;
  options.init_path = directory;
  expect_invalid(&options);
}

/* A checkpoint of the same step is replaced: the run that goes on from an older one writes it. */
static void same_step_is_replaced(void **state) {
  (void)state;
  make_checkpoints();
  struct trainer_options options = small_job(4);
  struct outcome outcome;
  char older[256];
  char path[256];
  snprintf(older, sizeof older, "%s/step-00000002", directory);
  snprintf(path, sizeof path, "%s/step-00000004/%s", directory, CHECKPOINT_MODEL);
  flip(path, 500);
  options.resume_dir = older;
  options.checkpoint_dir = directory;
  assert_int_equal(run_job(&options, &outcome), MR_OK);
  assert_int_equal(outcome.step_count, 2);
  options.resume_dir = directory;
  options.steps = 5;
  assert_int_equal(run_job(&options, &outcome), MR_OK);
  assert_int_equal(outcome.step_count, 1);
  run_shell("test -z \"$(ls '%s' | grep tmp)\"%s", directory, "");
}

static void saved_models_are_loaded(void **state) {
  (void)state;
  char save[128];
  char model[256];
  snprintf(save, sizeof save, "%s/save", root);
  snprintf(model, sizeof model, "%s/%s", save, CHECKPOINT_MODEL);
  struct trainer_options options = small_job(2);
  struct outcome outcome;
  options.save_dir = save;
  /* what a dead process left, and what one is writing */
  run_shell("mkdir -p '%s' && touch '%s/model.safetensors.tmp-99999999'", save, save);
  run_shell("touch '%s/model.safetensors.tmp-1' '%s/config.json'", save, save);
  assert_int_equal(run_job(&options, &outcome), MR_OK);
  assert_int_equal(run_job(&options, &outcome), MR_OK); /* replaces it */
  run_shell("test ! -e '%s/model.safetensors.tmp-99999999' && rm '%s/model.safetensors.tmp-1'",
            save, save);
  double wanted = 0;
  double found = 0;
  struct trainer *trainer = NULL;
  assert_int_equal(trainer_create(&options, &trainer), MR_OK);
  struct trainer_step step;
  assert_int_equal(trainer_step(trainer, &step), MR_OK);
  assert_int_equal(trainer_step(trainer, &step), MR_OK);
  assert_int_equal(trainer_evaluate(trainer, &wanted), MR_OK);
  assert_int_equal(trainer_destroy(trainer, MR_OK), MR_OK);
  options.save_dir = NULL;
  options.init_path = model;
  assert_int_equal(trainer_create(&options, &trainer), MR_OK);
  assert_int_equal(trainer_evaluate(trainer, &found), MR_OK);
  assert_int_equal(trainer_destroy(trainer, MR_OK), MR_OK);
  assert_memory_equal(&found, &wanted, sizeof found);
  options.layers = 3;
  expect_invalid(&options);
  options.layers = 2;
  options.width = 64;
  expect_invalid(&options);
}

/* A job whose token embedding is in two slices. */
static struct trainer_options sliced_job(uint64_t steps) {
  struct trainer_options options = small_job(steps);
  options.width = 64;
  options.vocab = 50001;
  options.seq = 8;
  options.grad_accum = 1;
  options.run.device_bytes = 256ull << 20;
  return options;
}

static void sliced_embeddings_are_one_tensor_in_files(void **state) {
  (void)state;
  char save[128];
  char model[256];
  snprintf(save, sizeof save, "%s/save", root);
  snprintf(model, sizeof model, "%s/%s", save, CHECKPOINT_MODEL);
  struct trainer_options options = sliced_job(1);
  options.save_dir = save;
  struct trainer *trainer = NULL;
  assert_int_equal(trainer_create(&options, &trainer), MR_OK);
  const struct model_config *config = &trainer->step->options.config;
  assert_int_equal(model_part_count(config), model_parameter_count(config) + 1);
  assert_int_equal(trainer_save(trainer), MR_OK);

  struct safetensors_file file;
  assert_int_equal(safetensors_open(model, &file), MR_OK);
  const struct safetensors_entry *entry = safetensors_find(&file.header, "transformer.wte.weight");
  assert_non_null(entry);
  assert_int_equal(entry->shape[0], 50001);
  assert_int_equal(entry->shape[1], 64);
  static float drawn[SAFETENSORS_MOST_COUNT];
  static float found[SAFETENSORS_MOST_COUNT];
  for (uint64_t at = 0; at < entry->count; at += SAFETENSORS_MOST_COUNT) {
    uint64_t count = train_min_u64(SAFETENSORS_MOST_COUNT, entry->count - at);
    model_draw(config, options.seed, 0, at, count, drawn);
    assert_int_equal(safetensors_read(&file, entry, at, count, found), MR_OK);
    assert_memory_equal(drawn, found, count * sizeof *drawn);
  }
  safetensors_close(&file);

  uint32_t wanted = sum_of(trainer);
  assert_int_equal(trainer_destroy(trainer, MR_OK), MR_OK);
  options.save_dir = NULL;
  options.init_path = model;
  options.seed++;
  assert_int_equal(trainer_create(&options, &trainer), MR_OK);
  assert_int_equal(sum_of(trainer), wanted);
  assert_int_equal(trainer_destroy(trainer, MR_OK), MR_OK);
}

static void sliced_embeddings_are_resumed(void **state) {
  (void)state;
  struct outcome whole;
  struct outcome half;
  struct trainer_options options = sliced_job(2);
  assert_int_equal(run_job(&options, &whole), MR_OK);
  options.steps = 1;
  options.checkpoint_dir = directory;
  assert_int_equal(run_job(&options, &half), MR_OK);
  options.steps = 2;
  options.resume_dir = directory;
  assert_int_equal(run_job(&options, &half), MR_OK);
  assert_int_equal(half.crc, whole.crc);
}

static void interrupted_jobs_leave_a_checkpoint(void **state) {
  (void)state;
  struct trainer_options options = small_job(3);
  struct outcome outcome;
  options.checkpoint_dir = directory;
  assert_int_equal(run_job(&options, &outcome), MR_OK);
  options = small_job(6);
  options.checkpoint_dir = directory;
  options.resume_dir = directory;
  volatile int stop = 1;
  struct trainer *trainer = NULL;
  assert_int_equal(trainer_train(&options, NULL, &stop, &trainer), MR_INTERRUPTED);
  assert_non_null(trainer);
  assert_int_equal(trainer_destroy(trainer, MR_OK), MR_OK);
  assert_true(exists("step-00000003"));
}

/* Runs the job under `device_bytes` and `host_bytes` with NVMe beside them. */
static void expect_verified(struct trainer_options *options, uint64_t device_bytes,
                            uint64_t host_bytes) {
  struct mr_nvme_path nvme = {.path = root, .limit_bytes = 256ull << 20};
  options->run.offload = MR_OFFLOAD_NVME;
  options->run.device_bytes = device_bytes;
  options->run.host_bytes = host_bytes;
  options->run.nvme = &nvme;
  options->run.nvme_count = 1;
  struct trainer_verification found;
  assert_int_equal(trainer_verify(options, root, NULL, &found), MR_OK);
  options->run.nvme = NULL;
  options->run.nvme_count = 0;
  assert_int_equal(found.steps, options->steps);
  assert_true(found.footprint_bytes > found.budget_bytes[MR_TIER_DEVICE]);
  assert_true(found.tensors > 3 * 12ull * options->layers && found.bytes > 0);
  assert_int_equal(found.different_losses + found.different_tensors, 0);
  assert_null(found.first_difference);
}

static void constrained_runs_verify(void **state) {
  (void)state;
  struct trainer_options options = small_job(3);
  options.layers = 3;
  options.width = 64;
  options.batch = 4;
  options.seq = 128;
  options.grad_accum = 1;
  expect_verified(&options, 4ull << 20, 512ull << 10);
}

/* The device holds one slice with its logits, gradient or moments, but no two. */
static void sliced_runs_verify(void **state) {
  (void)state;
  struct trainer_options options = sliced_job(2);
  options.seq = 64;
  expect_verified(&options, 35ull << 20, 512ull << 10);
}

static void default_job_needs_offload(void **state) {
  (void)state;
  struct trainer_options options;
  struct trainer *trainer = NULL;
  struct mr_plan *plan = NULL;
  struct mr_nvme_path nvme = {.path = root, .limit_bytes = 4ull << 30};
  trainer_options_init(&options);
  options.run.profile_path = profile;
  options.run.offload = MR_OFFLOAD_NVME;
  options.run.nvme = &nvme;
  options.run.nvme_count = 1;
  options.layers = 4;
  trainer_default_budgets(&options);
  assert_true(options.run.device_bytes == MR_BUDGET_AUTO);
  options.layers = 0;
  trainer_default_budgets(&options);
  assert_int_equal(trainer_prepare(&options, &trainer), MR_OK);
  assert_int_equal(mr_plan_create(trainer_get_graph(trainer), &options.run, &plan), MR_OK);
  struct mr_plan_summary summary = {.size_bytes = sizeof summary};
  mr_plan_summarize(plan, &summary);
  assert_true(summary.fits);
  assert_true(summary.footprint_bytes >= 4 * (options.run.device_bytes + options.run.host_bytes));
  mr_plan_destroy(plan);
  assert_int_equal(trainer_destroy(trainer, MR_OK), MR_OK);
}

#define TRAIN_TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void) {
  const struct CMUnitTest tests[] = {
      TRAIN_TEST(resumed_runs_equal_unbroken_ones),
      TRAIN_TEST(resumed_bf16_runs_equal_unbroken_ones),
      TRAIN_TEST(states_tell_the_type),
      TRAIN_TEST(newest_two_are_kept),
      TRAIN_TEST(damage_is_found_and_told),
      TRAIN_TEST(what_does_not_belong_together_is_refused),
      TRAIN_TEST(same_step_is_replaced),
      TRAIN_TEST(saved_models_are_loaded),
      TRAIN_TEST(sliced_embeddings_are_one_tensor_in_files),
      TRAIN_TEST(sliced_embeddings_are_resumed),
      TRAIN_TEST(interrupted_jobs_leave_a_checkpoint),
      TRAIN_TEST(constrained_runs_verify),
      TRAIN_TEST(sliced_runs_verify),
      TRAIN_TEST(default_job_needs_offload),
  };
  return cmocka_run_group_tests(tests, begin_all, end_all);
}
