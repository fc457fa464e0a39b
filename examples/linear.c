/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A complete trainer on memrun: 48 linear maps are fitted by gradient descent with momentum.
 * Weights and momentum are 48 MiB; the device gets 6 MiB, the host 2 MiB, and NVMe the rest.
 *
 *   cc linear.c $(pkg-config --cflags --libs memrun) -o linear && ./linear [FOLDER ON NVME]
 *
 * What it shows: describe tensors and ops once, in program order; say what the run may use; write
 * the inputs; step. Where each tensor is at each moment is memrun's business, and the results are
 * the same with a budget of 6 MiB as with one of 6 GiB.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <memrun/memrun.h>

enum { ROWS = 32, WIDTH = 256, OUTPUTS = 512, MAPS = 48, STEPS = 20 };

#define LEARNING_RATE 0.2f
#define MOMENTUM      0.9f
#define DEVICE_BYTES  (6ull << 20)
#define HOST_BYTES    (2ull << 20)

/* The tensors of one map: y = x * weight, which should be `target`. */
struct map {
  mr_tensor_id target;   /* (ROWS, OUTPUTS), an input */
  mr_tensor_id weight;   /* (WIDTH, OUTPUTS), a parameter: lives from step to step */
  mr_tensor_id momentum; /* the same, a state of the optimizer */
  mr_tensor_id residual; /* (ROWS, OUTPUTS), lives inside a step */
};

struct model {
  struct mr_graph *graph;
  mr_tensor_id x;      /* (ROWS, WIDTH) */
  mr_tensor_id losses; /* (MAPS) */
  struct map maps[MAPS];
};

/* What a task of an op works on. */
struct work {
  const float *x;
  const float *target;
  const float *residual_in;
  float *residual;
  float *weight;
  float *momentum;
};

/* residual = x * weight - target, one row for each task. */
static void forward_row(void *context, uint32_t row, uint32_t thread) {
  (void)thread;
  const struct work *work = context;
  float *residual = work->residual + (size_t)row * OUTPUTS;
  for (int o = 0; o < OUTPUTS; o++) {
    residual[o] = -work->target[(size_t)row * OUTPUTS + (size_t)o];
  }
  for (int i = 0; i < WIDTH; i++) {
    float x = work->x[row * WIDTH + (uint32_t)i];
    const float *weight = work->weight + (size_t)i * OUTPUTS;
    for (int o = 0; o < OUTPUTS; o++) {
      residual[o] += x * weight[o];
    }
  }
}

/* Inputs: x, target, weight, losses. Outputs: residual, losses (in place). */
static mr_status forward(const struct mr_op_call *call) {
  struct work work = {.x = call->inputs[0],
                      .target = call->inputs[1],
                      .weight = call->inputs[2],
                      .residual = call->outputs[0]};
  float *losses = call->outputs[1];
  const uint32_t *map = call->attributes;
  mr_team_run(call->team, ROWS, forward_row, &work);
  double sum = 0; /* in one order, so that it does not depend on the threads */
  for (size_t i = 0; i < (size_t)ROWS * OUTPUTS; i++) {
    sum += (double)work.residual[i] * (double)work.residual[i];
  }
  losses[*map] = (float)(sum / ((double)ROWS * OUTPUTS));
  return MR_OK;
}

/* weight -= rate * (momentum = MOMENTUM * momentum + gradient), one row of the weight a task. */
static void update_row(void *context, uint32_t i, uint32_t thread) {
  (void)thread;
  const struct work *work = context;
  float *weight = work->weight + (size_t)i * OUTPUTS;
  float *momentum = work->momentum + (size_t)i * OUTPUTS;
  float gradient[OUTPUTS] = {0};
  for (uint32_t row = 0; row < ROWS; row++) {
    float x = work->x[row * WIDTH + i] / ROWS;
    const float *residual = work->residual_in + (size_t)row * OUTPUTS;
    for (int o = 0; o < OUTPUTS; o++) {
      gradient[o] += x * residual[o];
    }
  }
  for (int o = 0; o < OUTPUTS; o++) {
    momentum[o] = MOMENTUM * momentum[o] + gradient[o];
    weight[o] -= LEARNING_RATE * momentum[o];
  }
}

/* Inputs: x, residual, weight, momentum. Outputs: weight, momentum (in place). */
static mr_status update(const struct mr_op_call *call) {
  struct work work = {.x = call->inputs[0],
                      .residual_in = call->inputs[1],
                      .weight = call->outputs[0],
                      .momentum = call->outputs[1]};
  mr_team_run(call->team, WIDTH, update_row, &work);
  return MR_OK;
}

static mr_status add_tensor(struct mr_graph *graph, const char *name, uint32_t map, mr_role role,
                            const uint64_t shape[2], mr_tensor_id *tensor_out) {
  char full_name[32];
  snprintf(full_name, sizeof full_name, "%s.%u", name, map);
  struct mr_tensor_desc desc = {.size_bytes = sizeof desc,
                                .name = full_name,
                                .role = role,
                                .dtype = MR_F32,
                                .rank = 2,
                                .shape = {shape[0], shape[1]}};
  return mr_graph_add_tensor(graph, &desc, tensor_out);
}

static mr_status add_tensors(struct model *model) {
  const uint64_t x_shape[2] = {ROWS, WIDTH};
  const uint64_t loss_shape[2] = {1, MAPS};
  const uint64_t weight_shape[2] = {WIDTH, OUTPUTS};
  const uint64_t row_shape[2] = {ROWS, OUTPUTS};
  mr_status status = add_tensor(model->graph, "x", 0, MR_INPUT, x_shape, &model->x);
  if (status == MR_OK) {
    status = add_tensor(model->graph, "losses", 0, MR_STATE, loss_shape, &model->losses);
  }
  for (uint32_t i = 0; i < MAPS && status == MR_OK; i++) {
    struct map *map = &model->maps[i];
    const struct {
      const char *name;
      mr_role role;
      const uint64_t *shape;
      mr_tensor_id *id_out;
    } tensors[] = {{"target", MR_STATE, row_shape, &map->target},
                   {"weight", MR_PARAMETER, weight_shape, &map->weight},
                   {"momentum", MR_STATE, weight_shape, &map->momentum},
                   {"residual", MR_ACTIVATION, row_shape, &map->residual}};
    for (size_t j = 0; j < sizeof tensors / sizeof tensors[0] && status == MR_OK; j++) {
      status = add_tensor(model->graph, tensors[j].name, i, tensors[j].role, tensors[j].shape,
                          tensors[j].id_out);
    }
  }
  return status;
}

/* Ops of one kind share a measured rate, from which memrun predicts and plans. */
static mr_status add_op(struct model *model, uint32_t i, const char *kind, mr_op_run run,
                        const mr_tensor_id inputs[4], const mr_tensor_id outputs[2]) {
  char name[32];
  snprintf(name, sizeof name, "%s.%u", kind, i);
  struct mr_op_desc desc = {.size_bytes = sizeof desc,
                            .name = name,
                            .kind = kind,
                            .run = {[MR_BACKEND_CPU] = run},
                            .attributes = &i,
                            .attributes_bytes = sizeof i,
                            .inputs = inputs,
                            .input_count = 4,
                            .outputs = outputs,
                            .output_count = 2,
                            .flops = 2.0 * ROWS * WIDTH * OUTPUTS,
                            .block = MR_NO_BLOCK};
  mr_op_id op = 0;
  return mr_graph_add_op(model->graph, &desc, &op);
}

/* One step: all maps forward, then all updates, last map first. */
static mr_status build(struct model *model) {
  mr_status status = mr_graph_create(&model->graph);
  if (status == MR_OK) {
    status = add_tensors(model);
  }
  for (uint32_t i = 0; i < MAPS && status == MR_OK; i++) {
    const struct map *map = &model->maps[i];
    const mr_tensor_id inputs[4] = {model->x, map->target, map->weight, model->losses};
    const mr_tensor_id outputs[2] = {map->residual, model->losses};
    status = add_op(model, i, "forward", forward, inputs, outputs);
  }
  for (uint32_t i = MAPS; i-- > 0 && status == MR_OK;) {
    const struct map *map = &model->maps[i];
    const mr_tensor_id inputs[4] = {model->x, map->residual, map->weight, map->momentum};
    const mr_tensor_id outputs[2] = {map->weight, map->momentum};
    status = add_op(model, i, "update", update, inputs, outputs);
  }
  return status;
}

/* Numbers in [-1, 1) that are the same everywhere. */
static void fill(float *numbers, size_t count, uint64_t seed) {
  for (size_t i = 0; i < count; i++) {
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    numbers[i] = (float)((double)(seed >> 40) / (double)(1 << 23) - 1.0);
  }
}

static mr_status write_data(struct mr_run *run, const struct model *model) {
  static float x[ROWS * WIDTH];
  static float target[ROWS * OUTPUTS];
  fill(x, sizeof x / sizeof x[0], 1);
  mr_status status = mr_run_write(run, model->x, 0, x, sizeof x);
  for (uint32_t i = 0; i < MAPS && status == MR_OK; i++) {
    fill(target, sizeof target / sizeof target[0], 2 + i);
    status = mr_run_write(run, model->maps[i].target, 0, target, sizeof target);
  }
  return status;
}

static mr_status train(struct mr_run *run, const struct model *model) {
  mr_status status = write_data(run, model);
  float first = 0;
  float loss = 0;
  for (int i = 0; i < STEPS && status == MR_OK; i++) {
    struct mr_step_report report = {.size_bytes = sizeof report};
    float losses[MAPS];
    status = mr_run_step(run, MR_STEP_TRAIN, &report);
    if (status == MR_OK) {
      status = mr_run_read(run, model->losses, 0, losses, sizeof losses);
    }
    if (status == MR_OK) {
      loss = 0;
      for (int map = 0; map < MAPS; map++) {
        loss += losses[map] / MAPS;
      }
      first = i == 0 ? loss : first;
      printf("step %2d  loss %.6f  %.3f s, forecast %.3f s, bound by %s, %.1f MiB from NVMe\n",
             i + 1, (double)loss, report.seconds, report.predicted_seconds, report.bound_by,
             (double)report.moved_bytes[MR_LINK_NVME_READ] / 1048576.0);
    }
  }
  if (status == MR_OK) {
    status = mr_run_sync(run); /* a write behind the last step may still have failed */
  }
  return status == MR_OK && loss > first / 2 ? MR_MISMATCH : status;
}

int main(int argc, char **argv) {
  struct model model = {0};
  struct mr_run *run = NULL;
  struct mr_nvme_path nvme = {.path = argc > 1 ? argv[1] : "/var/tmp",
                              .limit_bytes = MR_BUDGET_AUTO};
  struct mr_options options;
  mr_options_init(&options);
  options.device_bytes = DEVICE_BYTES;
  options.host_bytes = HOST_BYTES;
  options.offload = MR_OFFLOAD_NVME;
  options.nvme = &nvme;
  options.nvme_count = 1;
  mr_status status = build(&model);
  if (status == MR_OK) {
    status = mr_run_create(model.graph, &options, &run);
  }
  if (status == MR_OK) {
    status = train(run, &model);
  }
  mr_run_destroy(run);
  mr_graph_destroy(model.graph);
  /* Whatever failed was logged where it was seen. */
  printf("%s\n", mr_status_message(status));
  return mr_status_exit(status);
}
