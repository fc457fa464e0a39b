/* SPDX-License-Identifier: Apache-2.0 */
/* Memory and medians for the benchmarks. */
#include "bench/bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "base/base.h"

float *bench_floats(uint64_t count, double deviation, bool huge) {
  /* 2 MiB more than asked for, so that the part in use can begin on a huge page. */
  uint64_t bytes = mr_round_up(count * sizeof(float), 2 * MR_MIB);
  char *raw =
      mmap(NULL, bytes + 2 * MR_MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) {
    fprintf(stderr, "no memory for %llu floats\n", (unsigned long long)count);
    exit(3);
  }
  uint64_t before = (2 * MR_MIB - (uintptr_t)raw % (2 * MR_MIB)) % (2 * MR_MIB);
  if (before > 0) munmap(raw, before);
  char *data = raw + before;
  if (before < 2 * MR_MIB) munmap(data + bytes, 2 * MR_MIB - before);
  madvise(data, bytes, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  float *floats = (float *)(void *)data;
  struct mr_random random;
  mr_random_init(&random, count);
  for (uint64_t i = 0; i < count; i++) {
    floats[i] = (float)((mr_random_unit(&random) - 0.5) * 3.4641 * deviation);
  }
  return floats;
}

void bench_free(float *floats, uint64_t count) {
  munmap(floats, mr_round_up(count * sizeof(float), 2 * MR_MIB));
}

double bench_seconds(bool of_processors) {
  if (!of_processors) return mr_clock_seconds();
  struct timespec now = {0};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

bool bench_clock_argument(int argc, char **argv, int index) {
  if (argc <= index || strcmp(argv[index], "wall") == 0) return false;
  if (strcmp(argv[index], "cpu") == 0) return true;
  fprintf(stderr, "'%s' is no clock: wall or cpu\n", argv[index]);
  exit(2);
}

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

double bench_median(double *values, uint32_t count) {
  qsort(values, count, sizeof values[0], ascending);
  return count % 2 == 1 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

uint32_t bench_argument(int argc, char **argv, int index, uint32_t otherwise, uint32_t most) {
  if (argc <= index) return otherwise;
  char *end = NULL;
  unsigned long value = strtoul(argv[index], &end, 10);
  if (*end != '\0' || value < 1 || value > most) {
    fprintf(stderr, "'%s' is not a number from 1 to %u\n", argv[index], most);
    exit(2);
  }
  return (uint32_t)value;
}

void bench_print_head(int argc, char **argv) {
  const char *name = strrchr(argv[0], '/');
  printf("# %s", name == NULL ? argv[0] : name + 1);
  for (int i = 1; i < argc; i++) {
    printf(" %s", argv[i]);
  }
  char line[256] = "";
  FILE *file = fopen("/proc/cpuinfo", "r");
  while (file != NULL && fgets(line, sizeof line, file) != NULL) {
    if (strncmp(line, "model name", 10) == 0) break;
  }
  if (file != NULL) fclose(file);
  const char *model = strchr(line, ':');
  printf("\n# processor:%s", model == NULL ? " unknown\n" : model + 1);
}
