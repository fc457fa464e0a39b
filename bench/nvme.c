/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store against fio on the same blocks: 1 GiB each in turns. fio runs io_uring at a depth of 16
 * with 512 KiB transfers, fixed buffers in huge pages and registered files. It works on the store's
 * own file, because the places of a virtual disk differ (fio alone wrote 3.8 GB/s to one file and
 * 5.2 to another beside it): the first half is read, the second written, and read by fio's mixed
 * rounds. Such a disk also changes its rate by a third from second to second, so each run of the
 * store is set beside the fio just before it and the one just after: the ratio is to their
 * geometric mean, and fio is set beside itself in the same way to show what that leaves of noise.
 * Tensors are staged, direct, or split: read directly and written through the pool. Then the
 * latency of demand reads with and without write-back going on. bench/nvme.sh prepares the machine
 * and keeps the output.
 *
 *   bench_nvme DIRECTORY FIO_MEMORY ROUNDS
 *
 * FIO_MEMORY is what fio's --iomem takes: shmhuge where huge pages are reserved, else malloc.
 */
#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "offload/offload.h"

#define ROUND_BYTES      (1ull << 30)
#define REQUEST_BYTES    (16ull << 20)
#define MEMORY_BYTES     (256ull << 20)
#define REQUESTS         (ROUND_BYTES / REQUEST_BYTES)
#define ROUNDS_MOST      101u
#define HUGE_PAGE        (2ull << 20)
#define MIXED_HALVES     2u
#define DESCRIPTORS_MOST 64

enum kind { READ, WRITE, MIXED, KINDS };
static const char *const kind_names[KINDS] = {"read", "write", "mixed"};

enum contender { FIO, POOL, STAGED, DIRECT, SPLIT, CONTENDERS };
static const char *const contender_names[CONTENDERS] = {"fio", "pool to pool", "tensors, staged",
                                                        "tensors, direct", "tensors, split"};

struct result {
  double bytes_per_second;
  double cpu_seconds; /* for ROUND_BYTES */
  double of_fio;      /* the rate over that of the fio runs around it */
};

struct bench {
  const char *directory;
  const char *fio_memory;
  uint32_t rounds;
  uint8_t *memory;
  struct mr_store *store;
  char store_file[64];            /* where another process finds its file */
  uint32_t extents[2 * REQUESTS]; /* the second half is never read with checksums */
  struct result results[CONTENDERS][KINDS][ROUNDS_MOST];
};

static void stop(const char *what, mr_status status) {
  fprintf(stderr, "bench_nvme: %s: %s\n", what, mr_status_message(status));
  exit(mr_status_exit(status));
}

static int compare_doubles(const void *a, const void *b) {
  double x = *(const double *)a;
  double y = *(const double *)b;
  return (x > y) - (x < y);
}

/* The value below which `share` of the values lie; sorts them. */
static double quantile(double *values, uint32_t count, double share) {
  qsort(values, count, sizeof *values, compare_doubles);
  uint32_t index = (uint32_t)(share * (count - 1) + 0.5);
  return values[index];
}

static double cpu_seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* A job's figures in fio's JSON: bytes and milliseconds of both directions, share of a processor.
 */
static struct result read_fio_json(const char *text) {
  json_error_t error;
  json_t *root = json_loads(text, 0, &error);
  json_t *job = json_array_get(json_object_get(root, "jobs"), 0);
  double bytes = 0;
  double milliseconds = 0;
  static const char *const directions[] = {"read", "write"};
  for (uint32_t i = 0; i < MR_COUNT_OF(directions); i++) {
    json_t *direction = json_object_get(job, directions[i]);
    double runtime = (double)json_integer_value(json_object_get(direction, "runtime"));
    bytes += (double)json_integer_value(json_object_get(direction, "io_bytes"));
    milliseconds = runtime > milliseconds ? runtime : milliseconds;
  }
  double cpu = json_number_value(json_object_get(job, "usr_cpu")) +
               json_number_value(json_object_get(job, "sys_cpu"));
  json_decref(root);
  if (bytes < (double)ROUND_BYTES || !(milliseconds > 0)) {
    fprintf(stderr, "bench_nvme: fio gave no result: %s\n", error.text);
    exit(1);
  }
  return (struct result){.bytes_per_second = bytes / milliseconds * 1e3,
                         .cpu_seconds = cpu / 100 * milliseconds * 1e-3};
}

static struct result run_fio(const struct bench *bench, enum kind kind) {
  static const char *const modes[KINDS] = {"read", "write", "rw"};
  char command[2048];
  snprintf(command, sizeof command,
           "fio --name=peer --filename=%s --size=1g --offset=%ug --rw=%s --bs=512k "
           "--ioengine=io_uring --allow_file_create=0 "
           "--iodepth=16 --fixedbufs --registerfiles --direct=1 --iomem=%s --thread "
           "--scramble_buffers=0 --group_reporting --output-format=json",
           bench->store_file, kind == READ ? 0u : 1u, modes[kind], bench->fio_memory);
  static char text[1 << 18];
  FILE *pipe = popen(command, "r");
  if (pipe == NULL) {
    fprintf(stderr, "bench_nvme: fio: %s\n", strerror(errno));
    exit(1);
  }
  size_t length = fread(text, 1, sizeof text - 1, pipe);
  text[length] = '\0';
  if (pclose(pipe) != 0) {
    fprintf(stderr, "bench_nvme: fio failed: %s\n", command);
    exit(1);
  }
  char *json = strchr(text, '{');
  return read_fio_json(json != NULL ? json : "");
}

struct tally {
  pthread_mutex_t lock;
  pthread_cond_t ended;
  uint32_t left;
};
static struct tally tally = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0};

static void count_end(struct mr_store_request *request, mr_status status) {
  (void)request;
  if (status != MR_OK) {
    stop("a transfer", status);
  }
  pthread_mutex_lock(&tally.lock);
  if (--tally.left == 0) {
    pthread_cond_signal(&tally.ended);
  }
  pthread_mutex_unlock(&tally.lock);
}

static void wait_for_all(void) {
  pthread_mutex_lock(&tally.lock);
  while (tally.left > 0) {
    pthread_cond_wait(&tally.ended, &tally.lock);
  }
  pthread_mutex_unlock(&tally.lock);
}

static struct mr_store_request requests[REQUESTS];

/* The first half of the extents is read, the second written. */
static struct result run_store(struct bench *bench, enum contender contender, enum kind kind) {
  static const mr_store_mode modes[CONTENDERS] = {
      [POOL] = MR_STORE_STAGED,
      [STAGED] = MR_STORE_STAGED,
      [DIRECT] = MR_STORE_DIRECT,
      [SPLIT] = MR_STORE_READ_DIRECT,
  };
  struct mr_store *store = bench->store;
  mr_store_set_mode(store, modes[contender]);
  tally.left = REQUESTS;
  double cpu_start = cpu_seconds();
  double start = mr_clock_seconds();
  for (uint32_t i = 0; i < REQUESTS; i++) {
    bool write = kind == WRITE || (kind == MIXED && i % MIXED_HALVES == 1);
    uint8_t *data = bench->memory + i * REQUEST_BYTES % MEMORY_BYTES;
    requests[i] = (struct mr_store_request){.extent = bench->extents[(write ? REQUESTS : 0) + i],
                                            .write = write,
                                            .io_class = write ? MR_IO_WRITE_BACK : MR_IO_PREFETCH,
                                            .bytes = REQUEST_BYTES,
                                            .data = data,
                                            .done = count_end};
    if (contender == POOL) {
      mr_store_submit_pool(store, &requests[i]);
    } else {
      mr_store_submit(store, &requests[i]);
    }
  }
  wait_for_all();
  double seconds = mr_clock_seconds() - start;
  return (struct result){.bytes_per_second = (double)ROUND_BYTES / seconds,
                         .cpu_seconds = cpu_seconds() - cpu_start};
}

/* The path under which another process can open the store's unlinked file. */
static void find_store_file(struct bench *bench) {
  char place[PATH_MAX];
  if (realpath(bench->directory, place) == NULL) {
    stop(bench->directory, MR_IO);
  }
  size_t length = strlen(place);
  for (int fd = 3; fd < DESCRIPTORS_MOST; fd++) {
    char target[PATH_MAX];
    snprintf(bench->store_file, sizeof bench->store_file, "/proc/%ld/fd/%d", (long)getpid(), fd);
    ssize_t got = readlink(bench->store_file, target, sizeof target - 1);
    if (got > (ssize_t)length && strncmp(target, place, length) == 0) {
      return;
    }
  }
  stop("the store's file", MR_IO);
}

static void open_store(struct bench *bench) {
  struct mr_store_options options = {.path_count = 1,
                                     .paths = {{bench->directory, MR_BUDGET_AUTO}},
                                     .capacity_bytes = 2 * ROUND_BYTES,
                                     .mode = MR_STORE_STAGED,
                                     .checksums = true,
                                     .timeout_seconds = 30};
  mr_status status = mr_store_create(&options, &bench->store);
  for (uint32_t i = 0; status == MR_OK && i < 2 * REQUESTS; i++) {
    status = mr_store_extent_create(bench->store, REQUEST_BYTES, "bench", &bench->extents[i]);
    struct mr_store_request request = {.extent = bench->extents[i],
                                       .write = true,
                                       .io_class = MR_IO_WRITE_BACK,
                                       .bytes = REQUEST_BYTES,
                                       .data = bench->memory + i * REQUEST_BYTES % MEMORY_BYTES};
    if (status == MR_OK) {
      status = mr_store_transfer(bench->store, &request);
    }
  }
  if (status != MR_OK) {
    stop("the store", status);
  }
  find_store_file(bench);
}

/* Fills the memory with numbers as tensors hold, not with what a disk could compress. */
static void make_memory(struct bench *bench) {
  uint8_t *memory = mmap(NULL, MEMORY_BYTES + HUGE_PAGE, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    stop("memory", MR_NO_MEMORY);
  }
  memory = memory + (mr_round_up((uintptr_t)memory, HUGE_PAGE) - (uintptr_t)memory);
  madvise(memory, MEMORY_BYTES, MADV_HUGEPAGE);
  struct mr_random random;
  mr_random_init(&random, 1);
  for (uint64_t i = 0; i < MEMORY_BYTES; i += 8) {
    uint64_t value = mr_random_u64(&random);
    memcpy(memory + i, &value, 8);
  }
  bench->memory = memory;
}

static double rate_over(const struct result *result, const struct result *before,
                        const struct result *after) {
  return result->bytes_per_second / sqrt(before->bytes_per_second * after->bytes_per_second);
}

/* fio, a contender, fio, the next and so on, ending with fio. */
static void run_round(struct bench *bench, enum kind kind, uint32_t round) {
  struct result fio[CONTENDERS];
  fio[0] = run_fio(bench, kind);
  for (uint32_t turn = 1; turn < CONTENDERS; turn++) {
    enum contender contender = (enum contender)(1 + (turn + round) % (CONTENDERS - 1));
    struct result result = run_store(bench, contender, kind);
    fio[turn] = run_fio(bench, kind);
    result.of_fio = rate_over(&result, &fio[turn - 1], &fio[turn]);
    bench->results[contender][kind][round] = result;
  }
  uint32_t middle = CONTENDERS / 2;
  fio[middle].of_fio = rate_over(&fio[middle], &fio[middle - 1], &fio[middle + 1]);
  bench->results[FIO][kind][round] = fio[middle];
}

static void compare(struct bench *bench) {
  for (uint32_t round = 0; round < bench->rounds; round++) {
    for (int kind = READ; kind < KINDS; kind++) {
      run_round(bench, (enum kind)kind, round);
    }
    fprintf(stderr, "\rround %u of %u", round + 1, bench->rounds);
  }
  fputc('\n', stderr);
}

static void print_comparison(const struct bench *bench) {
  printf("%-16s %-6s %8s %8s %8s %8s %10s\n", "", "", "GB/s", "of fio", "10 %", "90 %", "CPU s/GB");
  for (int contender = FIO; contender < CONTENDERS; contender++) {
    for (int kind = READ; kind < KINDS; kind++) {
      double rates[ROUNDS_MOST] = {0};
      double ratios[ROUNDS_MOST] = {0};
      double cpus[ROUNDS_MOST] = {0};
      for (uint32_t i = 0; i < bench->rounds; i++) {
        const struct result *result = &bench->results[contender][kind][i];
        rates[i] = result->bytes_per_second * 1e-9;
        ratios[i] = result->of_fio;
        cpus[i] = result->cpu_seconds * 1e9 / (double)ROUND_BYTES;
      }
      printf("%-16s %-6s %8.2f %8.3f %8.3f %8.3f %10.3f\n", contender_names[contender],
             kind_names[kind], quantile(rates, bench->rounds, 0.5),
             quantile(ratios, bench->rounds, 0.5), quantile(ratios, bench->rounds, 0.1),
             quantile(ratios, bench->rounds, 0.9), quantile(cpus, bench->rounds, 0.5));
    }
  }
}

/* A stream of write-back that keeps a few requests queued until told to stop. */
#define STREAMS 4u
struct writer {
  struct bench *bench;
  struct mr_store *store;
  struct mr_store_request requests[STREAMS];
  _Atomic bool stopping;
  _Atomic uint32_t running;
  _Atomic uint64_t written_bytes;
  _Atomic uint32_t next;
};

static void write_on(struct mr_store_request *request, mr_status status) {
  struct writer *writer = request->context;
  if (status != MR_OK) {
    stop("a write", status);
  }
  atomic_fetch_add(&writer->written_bytes, REQUEST_BYTES);
  if (atomic_load(&writer->stopping)) {
    atomic_fetch_sub(&writer->running, 1);
    return;
  }
  uint32_t next = atomic_fetch_add(&writer->next, 1) % REQUESTS;
  request->extent = writer->bench->extents[REQUESTS + next];
  mr_store_submit(writer->store, request);
}

static void start_writer(struct writer *writer, struct bench *bench) {
  writer->bench = bench;
  writer->store = bench->store;
  atomic_store(&writer->stopping, false);
  atomic_store(&writer->written_bytes, 0);
  atomic_store(&writer->running, STREAMS);
  atomic_store(&writer->next, STREAMS);
  for (uint32_t i = 0; i < STREAMS; i++) {
    writer->requests[i] = (struct mr_store_request){.extent = bench->extents[REQUESTS + i],
                                                    .write = true,
                                                    .io_class = MR_IO_WRITE_BACK,
                                                    .bytes = REQUEST_BYTES,
                                                    .data = bench->memory + (8 + i) * REQUEST_BYTES,
                                                    .done = write_on,
                                                    .context = writer};
    mr_store_submit(writer->store, &writer->requests[i]);
  }
}

static void stop_writer(struct writer *writer) {
  atomic_store(&writer->stopping, true);
  while (atomic_load(&writer->running) > 0) {
    usleep(100);
  }
}

#define DEMANDS       100u
#define DEMAND_BYTES  (1ull << 20)
#define DEMAND_GAP_US 10000u
#define LATENCY_TURNS 8u

/* Demand reads of 1 MiB at random places, one every 10 ms; their times. */
static void run_demands(struct bench *bench, struct mr_random *random, double *seconds_out) {
  for (uint32_t i = 0; i < DEMANDS; i++) {
    uint64_t pieces = REQUEST_BYTES / DEMAND_BYTES;
    struct mr_store_request request = {.extent = bench->extents[mr_random_below(random, REQUESTS)],
                                       .io_class = MR_IO_DEMAND,
                                       .offset_bytes =
                                           mr_random_below(random, pieces) * DEMAND_BYTES,
                                       .bytes = DEMAND_BYTES,
                                       .data = bench->memory};
    double start = mr_clock_seconds();
    mr_status status = mr_store_transfer(bench->store, &request);
    seconds_out[i] = mr_clock_seconds() - start;
    if (status != MR_OK) {
      stop("a demand read", status);
    }
    usleep(DEMAND_GAP_US);
  }
}

static void measure_latency(struct bench *bench) {
  mr_store_set_mode(bench->store, MR_STORE_READ_DIRECT);
  static double idle[LATENCY_TURNS * DEMANDS];
  static double busy[LATENCY_TURNS * DEMANDS];
  double rate_ratios[LATENCY_TURNS];
  static struct writer writer;
  struct mr_random random;
  mr_random_init(&random, 2);
  for (size_t turn = 0; turn < LATENCY_TURNS; turn++) {
    run_demands(bench, &random, idle + turn * DEMANDS);
    start_writer(&writer, bench);
    double start = mr_clock_seconds();
    usleep(1000000);
    uint64_t alone_bytes = atomic_load(&writer.written_bytes);
    double alone = (double)alone_bytes / (mr_clock_seconds() - start);
    start = mr_clock_seconds();
    run_demands(bench, &random, busy + turn * DEMANDS);
    double together =
        (double)(atomic_load(&writer.written_bytes) - alone_bytes) / (mr_clock_seconds() - start);
    stop_writer(&writer);
    rate_ratios[turn] = together / alone;
  }
  uint32_t count = LATENCY_TURNS * DEMANDS;
  printf("\n1 MiB demand read every %u ms    p50 %8.0f us   p99 %8.0f us\n", DEMAND_GAP_US / 1000,
         quantile(idle, count, 0.5) * 1e6, quantile(idle, count, 0.99) * 1e6);
  printf("the same under full write-back   p50 %8.0f us   p99 %8.0f us\n",
         quantile(busy, count, 0.5) * 1e6, quantile(busy, count, 0.99) * 1e6);
  printf("p99 under write-back over p99 without: %.2f; writes keep %.3f of their rate\n",
         quantile(busy, count, 0.99) / quantile(idle, count, 0.99),
         quantile(rate_ratios, LATENCY_TURNS, 0.5));
}

static void print_probe(const struct bench *bench) {
  struct mr_store_options options = {.path_count = 1,
                                     .paths = {{bench->directory, MR_BUDGET_AUTO}},
                                     .capacity_bytes = MR_GIB,
                                     .checksums = true,
                                     .timeout_seconds = 30};
  struct mr_store_rates rates;
  mr_status status = mr_store_probe(&options, MR_GIB, &rates);
  if (status != MR_OK) {
    stop("the probe", status);
  }
  static const char *const names[] = {"", "staged", "direct", "split (reads direct)",
                                      "split (writes direct)"};
  printf("\nthe store's own probe: %s; read %.2f, write %.2f, both %.2f GB/s\n", names[rates.mode],
         rates.read_bytes_per_second * 1e-9, rates.write_bytes_per_second * 1e-9,
         rates.mixed_bytes_per_second * 1e-9);
}

int main(int argc, char **argv) {
  static struct bench bench;
  long rounds = argc == 4 ? strtol(argv[3], NULL, 10) : 0;
  if (rounds < 1 || rounds > (long)ROUNDS_MOST) {
    fprintf(stderr, "usage: bench_nvme DIRECTORY FIO_MEMORY ROUNDS (1 to %u)\n", ROUNDS_MOST);
    return 2;
  }
  bench.directory = argv[1];
  bench.fio_memory = argv[2];
  bench.rounds = (uint32_t)rounds;
  make_memory(&bench);
  open_store(&bench);
  printf("%u rounds of 1 GiB of each, in turns; medians; tensors of 16 MiB\n", bench.rounds);
  compare(&bench);
  print_comparison(&bench);
  measure_latency(&bench);
  print_probe(&bench);
  mr_store_destroy(bench.store);
  return 0;
}
