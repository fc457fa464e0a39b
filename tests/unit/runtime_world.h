/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small training job for tests of runtime/: layers of integer arithmetic with parameters,
 * moments, activations and gradients, built through the public interface; updates may be deferred.
 * Everything is exact, so a run under any budget must give the same bits as a plain computation
 * (world_reference).
 */
#ifndef MEMRUN_TESTS_RUNTIME_WORLD_H
#define MEMRUN_TESTS_RUNTIME_WORLD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <memrun/memrun.h>

#define WORLD_MAX_LAYERS 32u

struct world_shape {
  uint32_t layers;
  uint64_t elements; /* of each large tensor, 32-bit words */
};

/* What the callbacks of a world share; a test may make the nth op call fail. */
struct world_faults {
  _Atomic uint64_t calls;
  uint64_t fail_call; /* 0: none */
  uint64_t late_ns;   /* that ops on the host are late beside a CUDA device */
  mr_status status;
  void (*meddle)(void);             /* every op on the processor calls it; NULL: none */
  struct mr_cuda_function *instead; /* what that call launches on a CUDA device; NULL: it fails */
};

struct world {
  struct world_shape shape;
  bool host_updates; /* updates may run on the host, and read a scalar of the step; so may a lookup
                        in the first layer's weight */
  struct mr_graph *graph;
  mr_tensor_id input;
  mr_tensor_id loss;
  mr_tensor_id weights[WORLD_MAX_LAYERS];
  mr_tensor_id moments[WORLD_MAX_LAYERS];
};

extern struct world_faults world_faults;

void world_init(struct world *world, struct world_shape shape);
void world_init_host_updates(struct world *world, struct world_shape shape);
void world_fini(struct world *world);

/* The kernels of the world on a CUDA device; to be stopped when the last run is gone. The image is
 * a file of at most 1 MiB, or NULL for the fake driver. */
mr_status world_cuda_start(const char *image_path);
void world_cuda_stop(void);
/* The nth op from now on breaks the device; only in images that are files. */
mr_status world_cuda_break_at(uint64_t call);

/* Options with explicit budgets, a profile of its own and two threads. */
void world_options(struct mr_options *options, uint64_t device_bytes, uint64_t host_bytes,
                   mr_offload offload);

/* The values a test starts from. */
uint32_t world_weight(uint32_t layer, uint64_t element);
uint32_t world_input(uint64_t step, uint64_t element);

/* Plain memory in which the same job is computed. */
struct world_state {
  bool rated; /* of a world with host_updates; set after init */
  uint32_t *weights[WORLD_MAX_LAYERS];
  uint32_t *moments[WORLD_MAX_LAYERS];
  uint32_t loss;
};
void world_state_init(struct world_state *state, struct world_shape shape);
void world_state_step(struct world_state *state, struct world_shape shape, uint64_t step,
                      mr_step_mode mode);
void world_state_fini(struct world_state *state, struct world_shape shape);

/* Writes the starting values; runs a step; compares everything persistent. */
mr_status world_load(const struct world *world, struct mr_run *run);
mr_status world_step(const struct world *world, struct mr_run *run, uint64_t step,
                     mr_step_mode mode, struct mr_step_report *report);
void world_compare(const struct world *world, struct mr_run *run, const struct world_state *state);

#endif
