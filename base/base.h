/* SPDX-License-Identifier: Apache-2.0 */
/*
 * base/ is what every room stands on and knows no word of the domain: asserts, checked arithmetic,
 * the clock, random numbers, threads that sleep on counters, crews of threads for tasks that do not
 * depend on each other, growing arrays that are bounded by their caller, files that appear whole,
 * JSON and trace output.
 *
 * Nouns. A *counter* is a 32-bit futex word that only grows; whoever waits for a value sleeps in
 * the kernel after a short spin. A *crew* (base/crew.h) is a number of threads that a piece of work
 * may take up, and the tasks of its tasks with it. An *array* is a typed pointer with a count and a
 * capacity that grows through one function, so that a failing allocation is handled in one place. A
 * *random* is a seeded stream (SplitMix64 into xoshiro256**), passed in.
 *
 * Invariants. Nothing here keeps global state but the log sink. Asserts guard our own bugs and stay
 * on in release; statuses are for the world's faults. Everything is safe from any thread unless its
 * comment says otherwise.
 */
#ifndef MEMRUN_BASE_BASE_H
#define MEMRUN_BASE_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <memrun/status.h>

#define MR_KIB             (1ull << 10)
#define MR_MIB             (1ull << 20)
#define MR_GIB             (1ull << 30)

#define MR_COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* Ends the process with the place and the condition: for our bugs alone. */
_Noreturn void mr_assert_failed(const char *condition, const char *file, int line);
#define MR_ASSERT(condition)                                                                       \
  ((condition) ? (void)0 : mr_assert_failed(#condition, __FILE__, __LINE__))

/* mr_log, unless the process has logged the same line so: for what is found out again and again.
 * More than 32 different ones are logged each time. */
void mr_log_once(mr_log_level level, const char *format, ...) MR_PRINTF(2, 3);

/* An error: memory is out. Where everything that is asked for then fails, the first is told alone,
 * until something has been had (mr_log_memory_found), or 0.1 s later. */
void mr_log_no_memory(const char *format, ...) MR_PRINTF(1, 2);
void mr_log_memory_found(void);

/* Structure-wide checks that only checked builds (MEMRUN_CHECKED) run. */
#ifdef MEMRUN_CHECKED
#define MR_CHECKED 1
#else
#define MR_CHECKED 0
#endif

static inline uint64_t mr_min_u64(uint64_t a, uint64_t b) {
  return a < b ? a : b;
}

static inline uint64_t mr_max_u64(uint64_t a, uint64_t b) {
  return a > b ? a : b;
}

/* fmin() and fmax() of numbers, without the call that their rules for what is no number take. */
static inline double mr_min_double(double a, double b) {
  return a < b ? a : b;
}

static inline double mr_max_double(double a, double b) {
  return a > b ? a : b;
}

/* Sums, products and roundings of byte counts; false where the result does not fit 64 bits. */
static inline bool mr_add_u64(uint64_t a, uint64_t b, uint64_t *sum_out) {
  return !__builtin_add_overflow(a, b, sum_out);
}

static inline bool mr_mul_u64(uint64_t a, uint64_t b, uint64_t *product_out) {
  return !__builtin_mul_overflow(a, b, product_out);
}

/* value / unit rounded up; unit > 0. */
static inline uint64_t mr_div_up(uint64_t value, uint64_t unit) {
  return value / unit + (value % unit != 0);
}

/* The next multiple of `unit` (> 0) that is not below `value`; the caller knows that it fits. */
static inline uint64_t mr_round_up(uint64_t value, uint64_t unit) {
  return mr_div_up(value, unit) * unit;
}

/* Seconds and nanoseconds of the monotonic clock. */
double mr_clock_seconds(void);
uint64_t mr_clock_ns(void);

/* A seeded stream of random numbers; one thread at a time. */
struct mr_random {
  uint64_t state[4];
};
void mr_random_init(struct mr_random *random, uint64_t seed);
uint64_t mr_random_u64(struct mr_random *random);
uint64_t mr_random_below(struct mr_random *random, uint64_t bound); /* bound > 0; unbiased */
double mr_random_unit(struct mr_random *random);                    /* [0, 1) */

/*
 * Makes room for `needed` elements of `element_bytes` in the array at *data (capacity *capacity),
 * at least doubling it. MR_NO_MEMORY leaves the array as it was. Use as mr_array_reserve((void
 * **)&x, &capacity, n, sizeof *x).
 */
MR_CHECK_RESULT mr_status mr_array_reserve(void **data, uint32_t *capacity, uint64_t needed,
                                           size_t element_bytes);

/* calloc(count, bytes) that logs what was asked for; NULL only on failure (never for a count of 0).
 */
void *mr_allocate(uint64_t count, size_t bytes);
/* A copy of a string; NULL on failure, logged. */
char *mr_string_copy(const char *text);

/* "512 B", "1.5 MiB", "2.25 GiB" into `text`, which is returned. */
struct mr_size_text {
  char text[24];
};
const char *mr_size_format(uint64_t bytes, struct mr_size_text *buffer);
/* The same, rounded up: for a size that somebody types because it is enough. */
const char *mr_size_format_enough(uint64_t bytes, struct mr_size_text *buffer);

/*
 * Reads a size: digits, an optional fraction, an optional suffix K M G T (powers of 1000) or KiB
 * MiB GiB TiB, Ki Mi Gi Ti (powers of 1024), an optional B. Letters in any case. MR_INVALID
 * (nothing is logged) for anything else or an overflow.
 */
MR_CHECK_RESULT mr_status mr_size_parse(const char *text, uint64_t *bytes_out);

#endif
