/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_adamw [rounds] [threads] [million parameters] [wall|cpu]: AdamW beside an in-place vector
 * add over the same arrays, in turns. AdamW moves 28 bytes a parameter (four reads, three writes),
 * the add 12 an element; both are bound by memory, so their bytes per second are comparable. Then
 * AdamW by every instruction set that this processor has, in turns.
 */
#include <stdio.h>

#include "base/base.h"
#include "bench/bench.h"
#include "train/kernels/fast.h"

#define RANGE 65536u

struct add {
  float *y;
  const float *x;
  uint64_t count;
};

static void add_task(void *context, uint32_t task, uint32_t thread) {
  (void)thread;
  const struct add *add = context;
  uint64_t first = (uint64_t)task * RANGE;
  vector_best(MR_F32)->add(add->y + first, add->y + first, add->x + first,
                           mr_min_u64(RANGE, add->count - first));
}

static double time_add(struct mr_team *team, bool cpu, float *y, const float *x, uint64_t count) {
  struct add add = {.y = y, .x = x, .count = count};
  double start = bench_seconds(cpu);
  mr_team_run(team, (uint32_t)mr_div_up(count, RANGE), add_task, &add);
  return bench_seconds(cpu) - start;
}

static double time_adamw(struct mr_team *team, bool cpu, const struct kernel_adamw *op) {
  double start = bench_seconds(cpu);
  mr_status status = kernel_fast()->adamw(team, op);
  MR_ASSERT(status == MR_OK);
  return bench_seconds(cpu) - start;
}

/* By another set than the widest too. */
static void time_sets(struct mr_team *team, uint32_t rounds, bool cpu,
                      const struct kernel_adamw *op) {
  enum { MOST_SETS = 4 };
  static double rates[MOST_SETS][BENCH_MAX_ROUNDS];
  for (uint32_t i = 0; i < rounds; i++) {
    for (unsigned set = 0; set < MOST_SETS && vector_at(MR_F32, set) != NULL; set++) {
      double start = bench_seconds(cpu);
      mr_status status = fast_adamw_by(team, op, vector_at(MR_F32, set));
      MR_ASSERT(status == MR_OK);
      rates[set][i] = 28.0 * (double)op->count / (bench_seconds(cpu) - start) / 1e9;
    }
  }
  for (unsigned set = 0; set < MOST_SETS && vector_at(MR_F32, set) != NULL; set++) {
    printf("AdamW by %-7s %6.2f GB/s\n", vector_at(MR_F32, set)->name,
           bench_median(rates[set], rounds));
  }
}

int main(int argc, char **argv) {
  uint32_t rounds = bench_argument(argc, argv, 1, 21, BENCH_MAX_ROUNDS);
  uint32_t threads = bench_argument(argc, argv, 2, 2, 1024);
  uint64_t count = 1000000ull * bench_argument(argc, argv, 3, 64, 1000);
  bool cpu = bench_clock_argument(argc, argv, 4);
  struct mr_team *team = NULL;
  if (mr_team_create(threads, &team) != MR_OK) return 2;
  float *p = bench_floats(count, 1, true), *m = bench_floats(count, 1e-3, true);
  float *v = bench_floats(count, 0, true), *g = bench_floats(count, 1e-3, true);
  struct kernel_adamw op = {.p = p,
                            .g = g,
                            .m = m,
                            .v = v,
                            .count = count,
                            .lr = 1e-6f,
                            .beta1 = 0.9f,
                            .beta2 = 0.999f,
                            .eps = 1e-8f,
                            .weight_decay = 0.1f,
                            .correction1 = 0.1f,
                            .correction2 = 0.001f};
  double adamw[BENCH_MAX_ROUNDS], add[BENCH_MAX_ROUNDS], ratio[BENCH_MAX_ROUNDS];
  time_adamw(team, cpu, &op);
  for (uint32_t i = 0; i < rounds; i++) {
    double before = 12.0 * (double)count / time_add(team, cpu, p, g, count) / 1e9;
    adamw[i] = 28.0 * (double)count / time_adamw(team, cpu, &op) / 1e9;
    double after = 12.0 * (double)count / time_add(team, cpu, m, g, count) / 1e9;
    add[i] = (before + after) / 2;
    ratio[i] = adamw[i] / add[i];
  }
  bench_print_head(argc, argv);
  double rate = bench_median(adamw, rounds);
  printf("%u rounds in turns, %u threads, %llu million parameters, %s, %s time\n", rounds, threads,
         (unsigned long long)count / 1000000, vector_best(MR_F32)->name,
         cpu ? "processor" : "wall");
  printf("in-place add   %6.2f GB/s\n", bench_median(add, rounds));
  printf("AdamW          %6.2f GB/s, %.0f million parameters/s\n", rate, rate / 28 * 1e3);
  printf("ratio (median) %6.3f\n", bench_median(ratio, rounds));
  time_sets(team, rounds, cpu, &op);
  bench_free(p, count);
  bench_free(m, count);
  bench_free(v, count);
  bench_free(g, count);
  mr_team_destroy(team);
  return 0;
}
