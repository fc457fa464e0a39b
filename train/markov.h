/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A Markov chain of order 1 with a seeded sparse table: each state has MARKOV_SUCCESSORS successors
 * with seeded probabilities, low states being successors more often than high ones, as words of a
 * language are. Draws are by counter: row r of a stream is the same whenever it is asked for.
 */
#ifndef MEMRUN_TRAIN_MARKOV_H
#define MEMRUN_TRAIN_MARKOV_H

#include <stdint.h>

#include <memrun/status.h>

#define MARKOV_SUCCESSORS 4u

struct markov {
  uint64_t seed;
  uint32_t state_count;
  uint32_t *successors;     /* (state_count, MARKOV_SUCCESSORS) */
  double *probabilities;    /* the same shape */
  double *stationary;       /* probability of each state */
  double *cumulative_start; /* sums of the stationary distribution up to and with each state */
  double entropy_rate;      /* nats for each token */
};

/* MR_NO_MEMORY. */
MR_CHECK_RESULT mr_status markov_init(struct markov *markov, uint32_t state_count, uint64_t seed);
void markov_fini(struct markov *markov);

/* out[0..count) = row `row`: a state of the stationary distribution and what follows it. */
void markov_row(const struct markov *markov, uint64_t row, uint32_t count, int32_t *out);

#endif
