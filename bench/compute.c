/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_compute [rounds] [threads] [auto|dnnl|openblas] [wall|cpu] [all|product]: each kernel at
 * the shapes of three models, in turns with a large product by the library's own threads, whose
 * rate is the machine's. A step is the sum of its ops as often as the model runs them; its share is
 * what its products would take at the large product's rate beside each, over what it takes. With
 * `product` only that rate, in GFLOP/s, on a line alone: for those who take turns with it.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "bench/bench.h"
#include "bench/compute.h"
#include "train/kernels/gemm.h"
#include "train/kernels/kernels.h"

#define LARGE       2048u
#define LARGE_FLOPS (2.0 * LARGE * LARGE * LARGE)

static struct whole whole_open(const char *name) {
  struct whole w = {0};
  bool dnnl = strncmp(name, "dnnl", 4) == 0;
  void *handle = dlopen(dnnl ? "libdnnl.so.2" : "libopenblas.so.0", RTLD_NOW);
  if (handle == NULL && dnnl) handle = dlopen("libdnnl.so.3", RTLD_NOW);
  MR_ASSERT(handle != NULL); /* kernel_gemm_open has just opened it */
  void *gemm = dlsym(handle, dnnl ? "dnnl_sgemm" : "cblas_sgemm");
  void *threads = dlsym(handle, dnnl ? "omp_set_num_threads" : "openblas_set_num_threads");
  MR_ASSERT(gemm != NULL && threads != NULL);
  if (dnnl) {
    memcpy(&w.dnnl, &gemm, sizeof gemm);
  } else {
    memcpy(&w.cblas, &gemm, sizeof gemm);
  }
  memcpy(&w.set_threads, &threads, sizeof threads);
  return w;
}

/* Seconds of one large product by the library's own threads. */
static double time_large(const struct bench *bench) {
  int n = (int)LARGE;
  bench->whole.set_threads((int)bench->threads);
  double start = bench_seconds(bench->cpu_clock);
  if (bench->whole.dnnl != NULL) {
    bench->whole.dnnl('N', 'N', n, n, n, 1, bench->a, n, bench->b, n, 0, bench->c, n);
  } else {
    MR_ASSERT(bench->whole.cblas != NULL);
    bench->whole.cblas(101, 111, 111, n, n, n, 1, bench->a, n, bench->b, n, 0, bench->c, n);
  }
  double seconds = bench_seconds(bench->cpu_clock) - start;
  bench->whole.set_threads(1);
  return seconds;
}

struct tiles {
  struct gemm product;
  struct gemm_tiling tiling;
};

static void tile_task(void *context, uint32_t task, uint32_t thread) {
  (void)thread;
  const struct tiles *t = context;
  struct gemm tile = gemm_tile_at(&t->product, &t->tiling, task);
  bool ok = gemm_run(&tile);
  MR_ASSERT(ok);
}

static double large_rate(const struct bench *bench) {
  double rate[BENCH_MAX_ROUNDS];
  time_large(bench);
  for (uint32_t r = 0; r < bench->rounds; r++) {
    rate[r] = LARGE_FLOPS / time_large(bench) / 1e9;
  }
  return bench_median(rate, bench->rounds);
}

/* The large product in tiles of one size on our team. */
static double time_tiles(const struct bench *bench, uint64_t rows, uint64_t columns) {
  struct tiles t = {.product = {.a = bench->a,
                                .b = bench->b,
                                .c = bench->c,
                                .rows = LARGE,
                                .columns = LARGE,
                                .inner = LARGE,
                                .a_stride = LARGE,
                                .b_stride = LARGE,
                                .c_stride = LARGE}};
  uint64_t across = mr_div_up(LARGE, columns);
  t.tiling = (struct gemm_tiling){.tile_rows = rows,
                                  .tile_columns = columns,
                                  .across = across,
                                  .count = (uint32_t)(across * mr_div_up(LARGE, rows))};
  double start = bench_seconds(bench->cpu_clock);
  mr_team_run(bench->team, t.tiling.count, tile_task, &t);
  return bench_seconds(bench->cpu_clock) - start;
}

static void print_tiles(const struct bench *bench) {
  static const uint16_t sizes[][2] = {{1024, 768}, {512, 768}, {512, 384}, {256, 768}, {256, 384},
                                      {128, 768},  {128, 384}, {128, 192}, {64, 192},  {64, 96}};
  double large[BENCH_MAX_ROUNDS], rate[MR_COUNT_OF(sizes)][BENCH_MAX_ROUNDS];
  double share[MR_COUNT_OF(sizes)][BENCH_MAX_ROUNDS];
  time_large(bench);
  for (uint32_t r = 0; r < bench->rounds; r++) {
    large[r] = LARGE_FLOPS / time_large(bench) / 1e9;
    for (uint32_t i = 0; i < MR_COUNT_OF(sizes); i++) {
      rate[i][r] = LARGE_FLOPS / time_tiles(bench, sizes[i][0], sizes[i][1]) / 1e9;
      share[i][r] = rate[i][r] / large[r];
    }
  }
  printf("\n%u x %u x %u product            GFLOP/s  share of the library's own threads\n", LARGE,
         LARGE, LARGE);
  printf("%-28s %8.1f\n", "library's own threads", bench_median(large, bench->rounds));
  for (uint32_t i = 0; i < MR_COUNT_OF(sizes); i++) {
    printf("tiles of %4u x %3u           %8.1f  %.3f\n", sizes[i][0], sizes[i][1],
           bench_median(rate[i], bench->rounds), bench_median(share[i], bench->rounds));
  }
}

static const struct model models[] = {
    {"gpt2 124M, 4 x 256 tokens", 4, 256, 768, 12, 50257, 12},
    {"gpt2 124M, 4 x 64 tokens", 4, 64, 768, 12, 50257, 12},
    {"6 layers x 384 wide, 4 x 256 tokens", 4, 256, 384, 6, 50257, 6},
};

static double time_case(const struct bench *bench, const struct op_case *op,
                        const struct data *data) {
  double start = bench_seconds(bench->cpu_clock);
  op->run(bench, data);
  return bench_seconds(bench->cpu_clock) - start;
}

/* What the ops of a step add up to. */
struct step {
  double seconds, flops, other_seconds;
};

/* How often a step runs an op. */
static double case_times(const struct op_case *op, const struct model *model) {
  return op->per_step * (op->layered ? (double)model->layers : 1);
}

static void print_case(const struct op_case *op, const struct data *d, double seconds, double share,
                       struct step *step) {
  double times = case_times(op, &d->model);
  printf("%-26s %9.3f", op->name, seconds * 1e3);
  if (op->flops != NULL) {
    printf(" %8.1f  %.3f\n", op->flops(d) / seconds / 1e9, share);
    step->flops += times * op->flops(d);
  } else {
    printf("\n");
  }
  if (!op->linear) step->other_seconds += times * seconds;
  step->seconds += times * seconds;
}

/* What the rounds of a model measure: seconds and shares of each op, of the step and of the large
 * product. */
struct rounds {
  double seconds[32][BENCH_MAX_ROUNDS], share[32][BENCH_MAX_ROUNDS];
  double step_share[BENCH_MAX_ROUNDS], large_gflops[BENCH_MAX_ROUNDS];
};

static void run_round(const struct bench *bench, const struct data *data, uint32_t r,
                      struct rounds *out) {
  double step = 0, at_large_rate = 0, before = time_large(bench);
  for (uint32_t i = 0; i < compute_case_count; i++) {
    const struct op_case *op = &compute_cases[i];
    double seconds = time_case(bench, op, data), after = time_large(bench);
    double rate = LARGE_FLOPS * 2 / (before + after), times = case_times(op, &data->model);
    double at_rate = op->flops == NULL ? 0 : op->flops(data) / rate;
    if (i == 0) out->large_gflops[r] = rate / 1e9;
    out->seconds[i][r] = seconds;
    out->share[i][r] = at_rate / seconds;
    step += times * seconds;
    at_large_rate += times * at_rate;
    before = after;
  }
  out->step_share[r] = at_large_rate / step;
}

static void print_model(const struct bench *bench, const struct model *model) {
  static struct rounds rounds;
  MR_ASSERT(compute_case_count <= 32);
  struct data data = compute_data(model, bench->threads, true);
  for (uint32_t i = 0; i < compute_case_count; i++) {
    time_case(bench, &compute_cases[i], &data);
  }
  for (uint32_t r = 0; r < bench->rounds; r++) {
    run_round(bench, &data, r, &rounds);
  }
  printf("\n%-32s ms  GFLOP/s  share of the large product's %.1f\n", model->name,
         bench_median(rounds.large_gflops, bench->rounds));
  struct step step = {0};
  for (uint32_t i = 0; i < compute_case_count; i++) {
    print_case(&compute_cases[i], &data, bench_median(rounds.seconds[i], bench->rounds),
               bench_median(rounds.share[i], bench->rounds), &step);
  }
  printf("%-26s %9.3f %8.1f  %.3f; %.1f %% of the time outside linear ops\n", "step",
         step.seconds * 1e3, step.flops / step.seconds / 1e9,
         bench_median(rounds.step_share, bench->rounds), 100 * step.other_seconds / step.seconds);
  compute_data_free(&data);
}

/* The same ops in turns on data in 4 KiB pages and in huge ones. */
static void print_pages(const struct bench *bench) {
  static const char *const names[] = {"mlp up + gelu", "mlp up backward", "layernorm", "AdamW"};
  struct data small = compute_data(&models[0], bench->threads, false);
  struct data huge = compute_data(&models[0], bench->threads, true);
  printf("\n%-26s 4 KiB ms  huge ms  ratio\n", models[0].name);
  for (uint32_t i = 0; i < MR_COUNT_OF(names); i++) {
    const struct op_case *op = compute_cases;
    while (strcmp(op->name, names[i]) != 0) {
      op++;
    }
    double at_small[BENCH_MAX_ROUNDS], at_huge[BENCH_MAX_ROUNDS], ratio[BENCH_MAX_ROUNDS];
    time_case(bench, op, &small);
    for (uint32_t r = 0; r < bench->rounds; r++) {
      at_small[r] = time_case(bench, op, &small);
      at_huge[r] = time_case(bench, op, &huge);
      ratio[r] = at_small[r] / at_huge[r];
    }
    printf("%-26s %8.3f %8.3f  %.3f\n", op->name, 1e3 * bench_median(at_small, bench->rounds),
           1e3 * bench_median(at_huge, bench->rounds), bench_median(ratio, bench->rounds));
  }
  compute_data_free(&small);
  compute_data_free(&huge);
}

static bool product_alone(int argc, char **argv) {
  if (argc <= 5 || strcmp(argv[5], "all") == 0) return false;
  if (strcmp(argv[5], "product") == 0) return true;
  fprintf(stderr, "'%s' is no choice of ops: all or product\n", argv[5]);
  exit(2);
}

static void print_all(const struct bench *bench) {
  printf("%s; medians of %u rounds in turns, %u threads, %s time\n", kernel_gemm_name(),
         bench->rounds, bench->threads, bench->cpu_clock ? "processor" : "wall");
  print_tiles(bench);
  for (uint32_t i = 0; i < MR_COUNT_OF(models); i++) {
    print_model(bench, &models[i]);
  }
  print_pages(bench);
}

int main(int argc, char **argv) {
  bool product = product_alone(argc, argv);
  struct bench bench = {.kernels = kernel_fast(),
                        .rounds = bench_argument(argc, argv, 1, 9, BENCH_MAX_ROUNDS),
                        .threads = bench_argument(argc, argv, 2, 2, 1024),
                        .cpu_clock = bench_clock_argument(argc, argv, 4)};
  /* The library's own threads would spin on for milliseconds and take processors from our team. */
  MR_ASSERT(setenv("OMP_WAIT_POLICY", "passive", 0) == 0);
  if (kernel_gemm_open(argc > 3 ? argv[3] : "auto", bench.threads) != MR_OK) return 2;
  if (mr_team_create(bench.threads, &bench.team) != MR_OK) return 2;
  bench.whole = whole_open(kernel_gemm_name());
  bench.a = bench_floats((uint64_t)LARGE * LARGE, 1, true);
  bench.b = bench_floats((uint64_t)LARGE * LARGE, 1, true);
  bench.c = bench_floats((uint64_t)LARGE * LARGE, 0, true);
  if (product) {
    printf("%.1f\n", large_rate(&bench));
  } else {
    bench_print_head(argc, argv);
    print_all(&bench);
  }
  mr_team_destroy(bench.team);
  return 0;
}
