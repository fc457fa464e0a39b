/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a fuzz target over mutated seeds:
 *
 *   fuzz_NAME [SECONDS [SEED]]
 *
 * The seed is printed; a crash prints the round, and the same seed finds it again.
 */
#include "fuzz/fuzz.h"

#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"

#define MOST_BYTES    8192u
#define MOST_SEEDS    64u
#define MOST_CHANGES  8u
#define CRASH_SECONDS 20u /* an input that takes longer hangs */

static volatile uint64_t rounds;
static char seed_text[32];

/* Signal handlers may not print: the number is written digit by digit. */
static void tell_crash(int number) {
  char digits[24];
  size_t at = sizeof digits;
  digits[--at] = '\0';
  uint64_t rest = rounds;
  do {
    digits[--at] = (char)('0' + rest % 10);
    rest /= 10;
  } while (rest != 0);
  const char *const words_told[] = {"a crash in round ", digits + at, " of seed ", seed_text};
  for (size_t i = 0; i < MR_COUNT_OF(words_told); i++) {
    ssize_t written = write(STDERR_FILENO, words_told[i], strlen(words_told[i]));
    (void)written;
  }
  signal(number, SIG_DFL);
  raise(number);
}

static void no_log(void *context, mr_log_level level, const char *line) {
  (void)context;
  (void)level;
  (void)line;
}

/* Numbers at which lengths and offsets go wrong. */
static const uint64_t interesting[] = {0,
                                       1,
                                       7,
                                       8,
                                       0x7f,
                                       0x80,
                                       0xff,
                                       0xffff,
                                       0x7fffffff,
                                       0x80000000,
                                       0xffffffff,
                                       0x7fffffffffffffff,
                                       0xffffffffffffffff};
static const char *const words[] = {
    "-1", "0", "1e308",  "9223372036854775807", "18446744073709551616", "null", "\"", "{", "}",
    "[",  "]", "\\u0000"};

static size_t insert(uint8_t *data, size_t bytes, size_t at, const void *what, size_t count) {
  if (bytes + count > MOST_BYTES) {
    return bytes;
  }
  memmove(data + at + count, data + at, bytes - at);
  memcpy(data + at, what, count);
  return bytes + count;
}

/* One random change of data[0..bytes); the new length. */
static size_t change(struct mr_random *random, uint8_t *data, size_t bytes) {
  uint8_t chunk[64];
  size_t at = mr_random_below(random, bytes + 1);
  size_t count = mr_random_below(random, sizeof chunk) + 1;
  switch (mr_random_below(random, 8)) {
  case 0:
    if (at < bytes) {
      data[at] ^= (uint8_t)(1u << mr_random_below(random, 8));
    }
    return bytes;
  case 1:
    if (at < bytes) {
      data[at] = (uint8_t)mr_random_u64(random);
    }
    return bytes;
  case 2: { /* a number of 4 or 8 bytes */
    uint64_t number = interesting[mr_random_below(random, MR_COUNT_OF(interesting))];
    count = mr_random_below(random, 2) == 0 ? 4 : 8;
    if (at + count <= bytes) {
      memcpy(data + at, &number, count);
    }
    return bytes;
  }
  case 3: /* cut the end off */
    return mr_random_below(random, 4) == 0 ? at : bytes;
  case 4: /* cut a piece out */
    count = mr_min_u64(count, bytes - at);
    memmove(data + at, data + at + count, bytes - at - count);
    return bytes - count;
  case 5: { /* repeat a piece somewhere else */
    size_t from = mr_random_below(random, bytes + 1);
    count = mr_min_u64(count, bytes - from);
    memcpy(chunk, data + from, count);
    return insert(data, bytes, at, chunk, count);
  }
  case 6: {
    const char *word = words[mr_random_below(random, MR_COUNT_OF(words))];
    return insert(data, bytes, at, word, strlen(word));
  }
  default:
    if (at < bytes && data[at] >= '0' && data[at] <= '9') {
      data[at] = (uint8_t)('0' + mr_random_below(random, 10));
    }
    return bytes;
  }
}

static size_t make_input(struct mr_random *random, const struct fuzz_seed *seeds, uint32_t count,
                         uint8_t *data) {
  const struct fuzz_seed *chosen = &seeds[mr_random_below(random, count)];
  size_t bytes = mr_min_u64(chosen->bytes, MOST_BYTES);
  memcpy(data, chosen->data, bytes);
  uint64_t changes = mr_random_below(random, MOST_CHANGES);
  for (uint64_t i = 0; i < changes; i++) {
    bytes = change(random, data, bytes);
  }
  return bytes;
}

/* The end of a mapping of MOST_BYTES that a page without access follows. */
static uint8_t *guarded_end(void) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  uint8_t *map =
      mmap(NULL, MOST_BYTES + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (map == MAP_FAILED || mprotect(map + MOST_BYTES, page, PROT_NONE) != 0) {
    perror("mmap");
    exit(1);
  }
  return map + MOST_BYTES;
}

int main(int argc, char **argv) {
  double seconds = argc > 1 ? strtod(argv[1], NULL) : 3;
  uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : (uint64_t)time(NULL);
  snprintf(seed_text, sizeof seed_text, "%llu\n", (unsigned long long)seed);
  printf("seed %s", seed_text);
  fflush(stdout);
  signal(SIGSEGV, tell_crash);
  signal(SIGABRT, tell_crash);
  signal(SIGALRM, tell_crash);
  mr_log_configure(no_log, NULL, MR_LOG_TRACE);
  struct fuzz_seed seeds[MOST_SEEDS];
  uint32_t count = 0;
  while (count < MOST_SEEDS && fuzz_seed_at(count, &seeds[count])) {
    count++;
  }
  static uint8_t data[MOST_BYTES];
  uint8_t *end = guarded_end();
  struct mr_random random;
  mr_random_init(&random, seed);
  double until = mr_clock_seconds() + seconds;
  while (mr_clock_seconds() < until) {
    size_t bytes = make_input(&random, seeds, count, data);
    memcpy(end - bytes, data, bytes);
    alarm(CRASH_SECONDS);
    LLVMFuzzerTestOneInput(end - bytes, bytes);
    rounds++;
  }
  alarm(0);
  printf("%llu inputs\n", (unsigned long long)rounds);
  return rounds > 0 ? 0 : 1;
}
