/* SPDX-License-Identifier: Apache-2.0 */
/* The job that tests of runtime/ run: a stack of layers in wrapping integer arithmetic. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "unit/runtime_world.h"
#include "unit/world_ops.h"

#define PIECE 16384u

struct world_faults world_faults;

static struct mr_cuda_module *cuda_module;
static struct mr_cuda_function *cuda_functions[WORLD_KIND_COUNT];

uint32_t world_weight(uint32_t layer, uint64_t element) {
  return (uint32_t)(element * 2654435761u + layer * 40503u + 1);
}

uint32_t world_input(uint64_t step, uint64_t element) {
  return (uint32_t)(element * 97u + step * 1000003u);
}

struct op_attributes {
  enum world_kind kind;
  uint64_t elements;
};

static struct world_args args_of(const struct mr_op_call *call) {
  const struct op_attributes *attributes = call->attributes;
  const struct world_kernel *kernel = &world_kernels[attributes->kind];
  struct world_args args = {.scratch = call->scratch,
                            .elements = attributes->elements,
                            .train = call->mode == MR_STEP_TRAIN};
  for (uint32_t i = 0; i < kernel->input_count; i++) {
    args.inputs[i] = call->inputs[i];
  }
  for (uint32_t i = 0; i < kernel->output_count; i++) {
    args.outputs[i] = call->outputs[i];
  }
  return args;
}

static bool call_fails(void) {
  return ++world_faults.calls == world_faults.fail_call;
}

struct piece_job {
  struct world_args args;
  void (*run)(const struct world_args *args, uint64_t first, uint64_t end);
};

static void piece_task(void *context, uint32_t task, uint32_t thread) {
  (void)thread;
  const struct piece_job *job = context;
  uint64_t first = task * (uint64_t)PIECE;
  job->run(&job->args, first, mr_min_u64(first + PIECE, job->args.elements));
}

static mr_status run_on_cpu(const struct mr_op_call *call) {
  const struct op_attributes *attributes = call->attributes;
  const struct world_kernel *kernel = &world_kernels[attributes->kind];
  if (call_fails()) {
    return world_faults.status;
  }
  if (world_faults.meddle != NULL) {
    world_faults.meddle();
  }
  if (world_faults.late_ns > 0) {
    (void)nanosleep(&(struct timespec){.tv_nsec = (long)world_faults.late_ns}, NULL);
  }
  struct piece_job job = {args_of(call), kernel->run};
  if (kernel->whole) {
    kernel->run(&job.args, 0, attributes->elements);
  } else {
    mr_team_run(call->team, (uint32_t)mr_div_up(attributes->elements, PIECE), piece_task, &job);
  }
  return MR_OK;
}

static mr_status run_on_cuda(const struct mr_op_call *call) {
  static const struct mr_cuda_launch together = {.grid = {64, 1, 1}, .block = {256, 1, 1}};
  static const struct mr_cuda_launch alone = {.grid = {1, 1, 1}, .block = {1, 1, 1}};
  const struct op_attributes *attributes = call->attributes;
  bool fails = call_fails();
  if (fails && world_faults.instead == NULL) {
    return world_faults.status;
  }
  struct world_args args = args_of(call);
  return mr_cuda_function_launch(fails ? world_faults.instead : cuda_functions[attributes->kind],
                                 call, world_kernels[attributes->kind].whole ? &alone : &together,
                                 &args);
}

/* The bytes in `image`, with a 0 behind them. */
static size_t read_image(const char *path, char *image, size_t most_bytes) {
  FILE *file = fopen(path, "re");
  assert_non_null(file);
  size_t bytes = fread(image, 1, most_bytes - 1, file);
  assert_int_not_equal(feof(file), 0);
  (void)fclose(file);
  image[bytes] = '\0';
  return bytes;
}

mr_status world_cuda_start(const char *image_path) {
  static char image[1 << 20] = "any image is one to the fake driver";
  size_t bytes = image_path == NULL ? strlen(image) : read_image(image_path, image, sizeof image);
  mr_status status = mr_cuda_module_load(image, bytes, "world", &cuda_module);
  for (uint32_t k = 0; status == MR_OK && k < WORLD_KIND_COUNT; k++) {
    status = mr_cuda_module_function(cuda_module, world_kernels[k].cuda_name, &cuda_functions[k]);
  }
  return status;
}

mr_status world_cuda_break_at(uint64_t call) {
  struct mr_cuda_function *function = NULL;
  mr_status status = mr_cuda_module_function(cuda_module, "world_break", &function);
  world_faults.fail_call = world_faults.calls + call;
  world_faults.instead = function;
  return status;
}

void world_cuda_stop(void) {
  mr_cuda_module_unload(cuda_module);
  cuda_module = NULL;
}

static mr_tensor_id add_tensor(struct world *world, const char *name, mr_role role,
                               uint64_t elements) {
  struct mr_tensor_desc desc = {.size_bytes = sizeof desc,
                                .name = name,
                                .role = role,
                                .dtype = MR_I32,
                                .rank = 1,
                                .shape = {elements}};
  mr_tensor_id id = 0;
  assert_int_equal(mr_graph_add_tensor(world->graph, &desc, &id), MR_OK);
  return id;
}

struct op_plan {
  enum world_kind kind;
  mr_tensor_id inputs[4];
  mr_tensor_id outputs[2];
  uint64_t scratch_bytes;
  uint32_t flags;
};

static void add_op(struct world *world, uint32_t layer, const struct op_plan *plan) {
  const struct world_kernel *kernel = &world_kernels[plan->kind];
  char name[32];
  snprintf(name, sizeof name, "l%u.%s", layer, kernel->name);
  struct op_attributes attributes = {plan->kind, world->shape.elements};
  struct mr_op_desc desc = {
      .size_bytes = sizeof desc,
      .name = name,
      .kind = kernel->name,
      .run = {[MR_BACKEND_CPU] = run_on_cpu, [MR_BACKEND_CUDA] = run_on_cuda},
      .attributes = &attributes,
      .attributes_bytes = sizeof attributes,
      .inputs = plan->inputs,
      .input_count = kernel->input_count,
      .outputs = plan->outputs,
      .output_count = kernel->output_count,
      .scratch_bytes = plan->scratch_bytes,
      .flags = plan->flags,
      .block = layer,
  };
  mr_op_id id = 0;
  assert_int_equal(mr_graph_add_op(world->graph, &desc, &id), MR_OK);
}

static mr_tensor_id add_named(struct world *world, const char *what, uint32_t layer, mr_role role) {
  char name[32];
  snprintf(name, sizeof name, "%s%u", what, layer);
  return add_tensor(world, name, role, world->shape.elements);
}

static void add_update(struct world *world, uint32_t layer, mr_tensor_id gradient,
                       mr_tensor_id rate) {
  bool host = world->host_updates;
  mr_tensor_id w = world->weights[layer], m = world->moments[layer];
  add_op(world, layer,
         &(struct op_plan){.kind = host ? WORLD_RATED_UPDATE : WORLD_UPDATE,
                           .inputs = {gradient, w, m, rate},
                           .outputs = {w, m},
                           .flags = MR_OP_TRAIN_ONLY | MR_OP_DEFERRABLE |
                                    (host ? MR_OP_HOST_CAPABLE : 0u)});
}

/* What the first layer reads in place of its weight, so that the host, which may have made it,
 * sends it to the device. */
static mr_tensor_id add_lookup(struct world *world) {
  mr_tensor_id looked_up = add_named(world, "looked.up", 0, MR_ACTIVATION);
  add_op(world, 0,
         &(struct op_plan){.kind = WORLD_SQUASH,
                           .inputs = {world->weights[0]},
                           .outputs = {looked_up},
                           .flags = MR_OP_REPEATABLE | MR_OP_HOST_CAPABLE});
  return looked_up;
}

static void init(struct world *world, struct world_shape shape, bool host_updates) {
  assert_true(shape.layers <= WORLD_MAX_LAYERS);
  *world = (struct world){.shape = shape, .host_updates = host_updates};
  world_faults = (struct world_faults){0};
  assert_int_equal(mr_graph_create(&world->graph), MR_OK);
  world->input = add_tensor(world, "input", MR_INPUT, shape.elements);
  world->loss = add_tensor(world, "loss", MR_STATE, 1);
  mr_tensor_id x[WORLD_MAX_LAYERS + 1] = {world->input};
  mr_tensor_id h[WORLD_MAX_LAYERS];
  for (uint32_t l = 0; l < shape.layers; l++) {
    world->weights[l] = add_named(world, "w", l, MR_PARAMETER);
    h[l] = add_named(world, "h", l, MR_ACTIVATION);
    world->moments[l] = add_named(world, "m", l, MR_STATE);
    x[l + 1] = add_named(world, "x", l + 1, MR_ACTIVATION);
    mr_tensor_id w = host_updates && l == 0 ? add_lookup(world) : world->weights[l];
    add_op(world, l,
           &(struct op_plan){.kind = WORLD_FORWARD,
                             .inputs = {x[l], w},
                             .outputs = {h[l]},
                             .scratch_bytes = shape.elements * sizeof(uint32_t),
                             .flags = MR_OP_REPEATABLE});
    add_op(world, l,
           &(struct op_plan){.kind = WORLD_SQUASH,
                             .inputs = {h[l]},
                             .outputs = {x[l + 1]},
                             .flags = MR_OP_REPEATABLE});
  }
  mr_tensor_id rate = 0;
  if (host_updates) {
    rate = add_tensor(world, "rate", MR_ACTIVATION, 1);
    add_op(world, shape.layers,
           &(struct op_plan){.kind = WORLD_RATE,
                             .inputs = {world->input},
                             .outputs = {rate},
                             .flags = MR_OP_REPEATABLE});
  }
  mr_tensor_id dy = add_named(world, "dx", shape.layers, MR_GRADIENT);
  add_op(world, shape.layers,
         &(struct op_plan){.kind = WORLD_LOSS,
                           .inputs = {x[shape.layers]},
                           .outputs = {world->loss, dy},
                           .flags = MR_OP_REPEATABLE});
  for (uint32_t l = shape.layers; l-- > 0;) {
    mr_tensor_id dx = add_named(world, "dx", l, MR_GRADIENT);
    mr_tensor_id dw = add_named(world, "dw", l, MR_GRADIENT);
    add_op(world, l,
           &(struct op_plan){.kind = WORLD_BACKWARD,
                             .inputs = {dy, x[l], world->weights[l], h[l]},
                             .outputs = {dx, dw},
                             .flags = MR_OP_TRAIN_ONLY | MR_OP_REPEATABLE});
    add_update(world, l, dw, rate);
    dy = dx;
  }
}

void world_init(struct world *world, struct world_shape shape) {
  init(world, shape, false);
}

void world_init_host_updates(struct world *world, struct world_shape shape) {
  init(world, shape, true);
}

void world_fini(struct world *world) {
  mr_graph_destroy(world->graph);
}

static char profile[64];
static pid_t profile_owner;

/* At exit; children that were forked have none unless they asked for options. */
static void remove_profile(void) {
  if (profile_owner == getpid()) {
    (void)unlink(profile);
  }
}

void world_options(struct mr_options *options, uint64_t device_bytes, uint64_t host_bytes,
                   mr_offload offload) {
  if (profile_owner == 0) {
    (void)atexit(remove_profile);
  }
  if (profile_owner != getpid()) {
    profile_owner = getpid();
    snprintf(profile, sizeof profile, "/tmp/memrun-test-profile-%ld.json.tmp", (long)profile_owner);
    (void)unlink(profile); /* of a process of that number that was killed */
  }
  mr_options_init(options);
  options->device_bytes = device_bytes;
  options->host_bytes = host_bytes;
  options->offload = offload;
  options->threads = 2;
  options->profile_path = profile;
}

void world_state_init(struct world_state *state, struct world_shape shape) {
  *state = (struct world_state){0};
  for (uint32_t l = 0; l < shape.layers; l++) {
    state->weights[l] = calloc(shape.elements, sizeof(uint32_t));
    state->moments[l] = calloc(shape.elements, sizeof(uint32_t));
    assert_non_null(state->weights[l]);
    assert_non_null(state->moments[l]);
    for (uint64_t i = 0; i < shape.elements; i++) {
      state->weights[l][i] = world_weight(l, i);
    }
  }
}

void world_state_step(struct world_state *state, struct world_shape shape, uint64_t step,
                      mr_step_mode mode) {
  uint32_t loss = 0;
  uint32_t rate = state->rated ? world_rate_of(world_input(step, 0)) : 0;
  for (uint64_t i = 0; i < shape.elements; i++) {
    uint32_t x[WORLD_MAX_LAYERS + 1] = {world_input(step, i)};
    uint32_t h[WORLD_MAX_LAYERS];
    for (uint32_t l = 0; l < shape.layers; l++) {
      uint32_t w = state->weights[l][i];
      h[l] = world_forward_of(x[l], state->rated && l == 0 ? world_squash_of(w) : w);
      x[l + 1] = world_squash_of(h[l]);
    }
    loss = loss * 31u + x[shape.layers];
    uint32_t dy = x[shape.layers];
    for (uint32_t l = shape.layers; mode == MR_STEP_TRAIN && l-- > 0;) {
      uint32_t dh = world_inner_gradient_of(h[l], dy);
      uint32_t dw = world_weight_gradient_of(x[l], dh);
      dy = world_input_gradient_of(dh, state->weights[l][i]);
      state->moments[l][i] = state->moments[l][i] * 9u + dw + rate;
      state->weights[l][i] -= state->moments[l][i];
    }
  }
  state->loss = loss;
}

void world_state_fini(struct world_state *state, struct world_shape shape) {
  for (uint32_t l = 0; l < shape.layers; l++) {
    free(state->weights[l]);
    free(state->moments[l]);
  }
}

/* Odd pieces, so that every edge case of ranges is met. */
static const uint64_t piece_bytes = 700 * 1000 + 12;

mr_status world_load(const struct world *world, struct mr_run *run) {
  uint64_t bytes = world->shape.elements * sizeof(uint32_t);
  uint32_t *values = malloc(bytes);
  assert_non_null(values);
  mr_status status = MR_OK;
  for (uint32_t l = 0; status == MR_OK && l < world->shape.layers; l++) {
    for (uint64_t i = 0; i < world->shape.elements; i++) {
      values[i] = world_weight(l, i);
    }
    for (uint64_t at = 0; status == MR_OK && at < bytes; at += piece_bytes) {
      status = mr_run_write(run, world->weights[l], at, (const char *)values + at,
                            mr_min_u64(piece_bytes, bytes - at));
    }
  }
  free(values);
  return status;
}

mr_status world_step(const struct world *world, struct mr_run *run, uint64_t step,
                     mr_step_mode mode, struct mr_step_report *report) {
  uint32_t values[4096];
  mr_status status = MR_OK;
  for (uint64_t first = 0; status == MR_OK && first < world->shape.elements; first += 4096) {
    uint64_t count = mr_min_u64(4096, world->shape.elements - first);
    for (uint64_t i = 0; i < count; i++) {
      values[i] = world_input(step, first + i);
    }
    status =
        mr_run_write(run, world->input, first * sizeof *values, values, count * sizeof *values);
  }
  return status == MR_OK ? mr_run_step(run, mode, report) : status;
}

static void compare_tensor(struct mr_run *run, mr_tensor_id tensor, const uint32_t *expected,
                           uint64_t bytes) {
  char *values = malloc(bytes);
  assert_non_null(values);
  for (uint64_t at = 0; at < bytes; at += piece_bytes) {
    assert_int_equal(mr_run_read(run, tensor, at, values + at, mr_min_u64(piece_bytes, bytes - at)),
                     MR_OK);
  }
  assert_memory_equal(values, expected, bytes);
  free(values);
}

void world_compare(const struct world *world, struct mr_run *run, const struct world_state *state) {
  uint32_t loss = 0;
  assert_int_equal(mr_run_read(run, world->loss, 0, &loss, sizeof loss), MR_OK);
  assert_int_equal(loss, state->loss);
  uint64_t bytes = world->shape.elements * sizeof(uint32_t);
  for (uint32_t l = 0; l < world->shape.layers; l++) {
    compare_tensor(run, world->weights[l], state->weights[l], bytes);
    compare_tensor(run, world->moments[l], state->moments[l], bytes);
  }
}
