/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What this machine does, measured once with loops of our own: copies between tiers, memory read
 * and written by all threads, arithmetic in registers. The last two stand in for op rates until ops
 * of that kind have run.
 */
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "runtime/profile.h"
#include "runtime/runtime.h"

/* Larger than caches that one core has for itself, small enough for the overhead allowance. */
#define BUFFER_BYTES (16ull << 20)
#define PIECE_BYTES  (2ull << 20)
#define ROUNDS       5u
/* Of x86-64. */
#define CACHE_LINE_BYTES 64u

/* Takes a buffer out of all caches, where a processor lets us. */
static void take_out_of_caches(const struct mr_memory *memory) {
#if defined(__x86_64__)
  for (uint64_t at = 0; at < BUFFER_BYTES; at += CACHE_LINE_BYTES) {
    _mm_clflush((const char *)memory->data + at);
  }
  _mm_mfence();
#else
  (void)memory;
#endif
}

/* What a step moves is in no cache: its source was not touched for long, its goal held something
 * else. */
static double copy_rate(const struct mr_memory *to, const struct mr_memory *from) {
  double best = 0;
  for (uint32_t r = 0; r < ROUNDS; r++) {
    take_out_of_caches(to);
    take_out_of_caches(from);
    double start = mr_clock_seconds();
    for (uint64_t i = 0; i < BUFFER_BYTES; i += PIECE_BYTES) {
      mr_device_cpu.copy((char *)to->data + i, (const char *)from->data + i, PIECE_BYTES);
    }
    best = fmax(best, (double)BUFFER_BYTES / fmax(mr_clock_seconds() - start, 1e-9));
  }
  return best;
}

struct sweep {
  float *to;
  const float *from;
  uint64_t piece_count; /* floats of a task */
};

static void sweep_task(void *context, uint32_t task, uint32_t thread) {
  (void)thread;
  const struct sweep *sweep = context;
  float *to = sweep->to + task * sweep->piece_count;
  const float *from = sweep->from + task * sweep->piece_count;
  for (uint64_t i = 0; i < sweep->piece_count; i++) {
    to[i] += from[i] * 0.5f;
  }
}

static double memory_rate(struct mr_team *team, const struct mr_memory *to,
                          const struct mr_memory *from) {
  struct sweep sweep = {to->data, from->data, (1ull << 20) / sizeof(float)};
  uint32_t tasks = (uint32_t)(BUFFER_BYTES >> 20);
  double best = 0;
  for (uint32_t r = 0; r < ROUNDS; r++) {
    double start = mr_clock_seconds();
    mr_team_run(team, tasks, sweep_task, &sweep);
    best = fmax(best, 3.0 * (double)BUFFER_BYTES / fmax(mr_clock_seconds() - start, 1e-9));
  }
  return best;
}

/* Independent chains, as many as hide the latency of an addition that waits for a product. */
#define CHAINS         12u
#define ARITHMETIC_OPS 20000u
/* What a good matrix product reaches of this loop, which touches no memory. */
#define KERNEL_SHARE 0.75

typedef float lanes __attribute__((vector_size(64)));

static void multiply_add_any(float *result) {
  lanes chain[CHAINS];
  lanes factor = (lanes){0} + 0.999f;
  for (uint32_t c = 0; c < CHAINS; c++) {
    chain[c] = (lanes){0} + (float)(c + 1);
  }
  for (uint32_t i = 0; i < ARITHMETIC_OPS; i++) {
#pragma GCC unroll 12
    for (uint32_t c = 0; c < CHAINS; c++) {
      chain[c] = chain[c] * factor + factor;
    }
  }
  for (uint32_t c = 1; c < CHAINS; c++) {
    chain[0] += chain[c];
  }
  *result = chain[0][0];
}

#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) static void multiply_add_avx2(float *result) {
  __m256 chain[CHAINS];
  __m256 factor = _mm256_set1_ps(0.999f);
#pragma GCC unroll 12
  for (uint32_t c = 0; c < CHAINS; c++) {
    chain[c] = _mm256_set1_ps((float)(c + 1));
  }
  /* Half the width of the others, so twice the rounds. */
  for (uint32_t i = 0; i < 2 * ARITHMETIC_OPS; i++) {
#pragma GCC unroll 12
    for (uint32_t c = 0; c < CHAINS; c++) {
      chain[c] = _mm256_fmadd_ps(chain[c], factor, factor);
    }
  }
#pragma GCC unroll 12
  for (uint32_t c = 1; c < CHAINS; c++) {
    chain[0] = _mm256_add_ps(chain[0], chain[c]);
  }
  *result = _mm256_cvtss_f32(chain[0]);
}

__attribute__((target("avx512f"))) static void multiply_add_avx512(float *result) {
  __m512 chain[CHAINS];
  __m512 factor = _mm512_set1_ps(0.999f);
#pragma GCC unroll 12
  for (uint32_t c = 0; c < CHAINS; c++) {
    chain[c] = _mm512_set1_ps((float)(c + 1));
  }
  for (uint32_t i = 0; i < ARITHMETIC_OPS; i++) {
#pragma GCC unroll 12
    for (uint32_t c = 0; c < CHAINS; c++) {
      chain[c] = _mm512_fmadd_ps(chain[c], factor, factor);
    }
  }
#pragma GCC unroll 12
  for (uint32_t c = 1; c < CHAINS; c++) {
    chain[0] = _mm512_add_ps(chain[0], chain[c]);
  }
  *result = _mm512_cvtss_f32(chain[0]);
}
#endif

typedef void (*arithmetic)(float *result);

static arithmetic choose_arithmetic(void) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) {
    return multiply_add_avx512;
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    return multiply_add_avx2;
  }
#endif
  return multiply_add_any;
}

struct drill {
  arithmetic run;
  float *results; /* one for each task */
};

static void drill_task(void *context, uint32_t task, uint32_t thread) {
  (void)thread;
  const struct drill *drill = context;
  drill->run(&drill->results[task]);
}

static double arithmetic_rate(struct mr_team *team, float *results) {
  uint32_t tasks = 4 * mr_team_thread_count(team);
  struct drill drill = {choose_arithmetic(), results};
  double flops = 2.0 * ARITHMETIC_OPS * CHAINS * (sizeof(lanes) / sizeof(float)) * tasks;
  double best = 0;
  for (uint32_t r = 0; r < ROUNDS; r++) {
    double start = mr_clock_seconds();
    mr_team_run(team, tasks, drill_task, &drill);
    best = fmax(best, flops / fmax(mr_clock_seconds() - start, 1e-9));
  }
  return KERNEL_SHARE * best;
}

/* Pages as a middling plan has them. */
#define BIND_PAGE_BYTES (64ull << 10)
#define BIND_PAGES      64u
#define BIND_ROUNDS     8u

struct bind_drill {
  struct mr_device *device;
  uint32_t pages[2][BIND_PAGES];
  uint32_t thread_count;
  _Atomic bool beside; /* another thread runs */
  _Atomic bool done;
  double seconds; /* of a move, at best */
  mr_status status;
};

static void bind_rounds(struct bind_drill *drill) {
  /* They begin side by side and come together, in one move. */
  drill->status = mr_device_cpu.bind(drill->device, 0, drill->pages[0], BIND_PAGES);
  for (uint32_t r = 1; drill->status == MR_OK && r <= BIND_ROUNDS; r++) {
    double start = mr_clock_seconds();
    drill->status = mr_device_cpu.bind(drill->device, r % 2, drill->pages[r % 2], BIND_PAGES);
    drill->seconds = fmin(drill->seconds, (mr_clock_seconds() - start) / BIND_PAGES);
  }
}

/* A move tells every processor that runs a thread of ours, which is most of its time: in a step the
 * others are at work too. */
static void bind_task(void *context, uint32_t task, uint32_t thread) {
  (void)thread;
  struct bind_drill *drill = context;
  if (task != 0) {
    atomic_store(&drill->beside, true);
    while (!atomic_load(&drill->done)) {
    }
    return;
  }
  while (drill->thread_count > 1 && !atomic_load(&drill->beside)) {
  }
  bind_rounds(drill);
  atomic_store(&drill->done, true);
}

/* Seconds for a page that is brought to its place alone: its neighbours go elsewhere. */
static mr_status bind_rate(struct mr_team *team, double *seconds_out) {
  const uint64_t range_bytes[2] = {BIND_PAGES * BIND_PAGE_BYTES, BIND_PAGES * BIND_PAGE_BYTES};
  const struct mr_device_config config = {
      .page_bytes = BIND_PAGE_BYTES,
      .page_count = BIND_PAGES,
      .range_bytes = range_bytes,
      .range_count = 2,
      .in_pieces = true,
  };
  struct bind_drill drill = {.thread_count = mr_team_thread_count(team), .seconds = INFINITY};
  for (uint32_t i = 0; i < BIND_PAGES; i++) {
    drill.pages[0][i] = i;
    drill.pages[1][i] = i * 5 % BIND_PAGES;
  }
  mr_status status = mr_device_cpu.create(&config, &drill.device);
  if (status != MR_OK) {
    return status;
  }
  mr_team_run(team, drill.thread_count, bind_task, &drill);
  mr_device_cpu.destroy(drill.device);
  *seconds_out = fmax(drill.seconds, 1e-9);
  return drill.status;
}

/* What a fair scheduler leaves each of the threads of an op and one more that copies; runs correct
 * it. */
static double fair_pace(uint32_t threads) {
  return (double)threads / (threads + 1);
}

/* Two buffers to measure with, and a team. Undone by drill_fini, also after a failure. */
struct drill_memory {
  struct mr_memory device;
  struct mr_memory host;
  struct mr_team *team;
};

static mr_status drill_init(struct drill_memory *drill, uint32_t threads) {
  *drill = (struct drill_memory){.team = NULL};
  mr_status status = mr_memory_map(BUFFER_BYTES, PIECE_BYTES, "measuring copies", &drill->device);
  if (status == MR_OK) {
    status = mr_memory_map(BUFFER_BYTES, PIECE_BYTES, "measuring copies", &drill->host);
  }
  return status == MR_OK ? mr_team_create(threads, &drill->team) : status;
}

static void drill_fini(struct drill_memory *drill) {
  mr_team_destroy(drill->team);
  mr_memory_unmap(&drill->host);
  mr_memory_unmap(&drill->device);
}

mr_status mr_profile_measure_memory(uint32_t threads, double *bytes_per_second_out) {
  struct drill_memory drill;
  mr_status status = drill_init(&drill, threads);
  if (status == MR_OK) {
    *bytes_per_second_out = memory_rate(drill.team, &drill.device, &drill.host);
  }
  drill_fini(&drill);
  return status;
}

mr_status mr_profile_measure(uint32_t threads, struct mr_profile *profile) {
  struct drill_memory drill;
  mr_status status = drill_init(&drill, threads);
  if (status == MR_OK) {
    profile->copy_bytes_per_second[0] = fair_pace(threads) * copy_rate(&drill.host, &drill.device);
    profile->copy_bytes_per_second[1] = fair_pace(threads) * copy_rate(&drill.device, &drill.host);
    profile->bytes_per_second = memory_rate(drill.team, &drill.device, &drill.host);
    profile->flops_per_second = arithmetic_rate(drill.team, drill.device.data);
    profile->pace_beside_copy = fair_pace(threads);
    status = bind_rate(drill.team, &profile->bind_seconds_per_move);
  }
  drill_fini(&drill);
  return status;
}
