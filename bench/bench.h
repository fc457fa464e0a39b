/* SPDX-License-Identifier: Apache-2.0 */
/* What the benchmarks share: memory in pages of a chosen size, and medians. */
#ifndef MEMRUN_BENCH_BENCH_H
#define MEMRUN_BENCH_BENCH_H

#include <stdbool.h>
#include <stdint.h>

#define BENCH_MAX_ROUNDS 101u

/* Anonymous memory filled with numbers of about `deviation`, in huge pages where asked and the
 * system has them, else in the smallest pages. Ends the program where there is none. */
float *bench_floats(uint64_t count, double deviation, bool huge);
void bench_free(float *floats, uint64_t count);

/* Seconds of the monotonic clock, or of the processors' time that this process has used, which
 * other programs on the machine disturb less. */
double bench_seconds(bool of_processors);

/* Whether argv[index] is "cpu" (else "wall" or absent); ends the program on another word. */
bool bench_clock_argument(int argc, char **argv, int index);

/* The middle of the first `count` values, which are sorted. */
double bench_median(double *values, uint32_t count);

/* The number at argv[index], or `otherwise`; ends the program where it is not in [1, most]. */
uint32_t bench_argument(int argc, char **argv, int index, uint32_t otherwise, uint32_t most);

/* "# command" and the processor's name: the head of a results file. */
void bench_print_head(int argc, char **argv);

#endif
