/* SPDX-License-Identifier: Apache-2.0 */
/* The chain, its stationary distribution and its entropy rate. */
#include "train/markov.h"

#include <math.h>
#include <stdlib.h>

#include "train/common.h"

/* Streams of the seed: successors, their weights, one for each row. */
enum { STREAM_SUCCESSORS = 0, STREAM_WEIGHTS = 1, STREAM_FIRST_ROW = 16 };

/* Successor states are drawn as state_count * u^MARKOV_SKEW. */
#define MARKOV_SKEW 3.0

/* A sparse random chain mixes in tens of iterations; the bound is for chains that hardly mix. */
#define MOST_ITERATIONS 10000u
#define CONVERGED       1e-14

static void draw_table(struct markov *markov) {
  for (uint32_t state = 0; state < markov->state_count; state++) {
    uint64_t at = (uint64_t)state * MARKOV_SUCCESSORS;
    double sum = 0;
    for (uint32_t i = 0; i < MARKOV_SUCCESSORS; i++) {
      double place = train_random_unit(markov->seed, STREAM_SUCCESSORS, at + i);
      markov->successors[at + i] = (uint32_t)(pow(place, MARKOV_SKEW) * markov->state_count);
      /* exponential weights, normalized: uniform over all distributions */
      double weight = -log1p(-train_random_unit(markov->seed, STREAM_WEIGHTS, at + i));
      markov->probabilities[at + i] = weight;
      sum += weight;
    }
    for (uint32_t i = 0; i < MARKOV_SUCCESSORS; i++) {
      markov->probabilities[at + i] =
          sum > 0 ? markov->probabilities[at + i] / sum : 1.0 / MARKOV_SUCCESSORS;
    }
  }
}

/* Power iteration with half a step of rest, so that it converges for a periodic chain too. `next`
 * has room for the states. */
static void find_stationary(struct markov *markov, double *next) {
  uint32_t count = markov->state_count;
  double *stationary = markov->stationary;
  for (uint32_t i = 0; i < count; i++) {
    stationary[i] = 1.0 / count;
  }
  double change = 1;
  for (uint32_t round = 0; round < MOST_ITERATIONS && change > CONVERGED; round++) {
    for (uint32_t i = 0; i < count; i++) {
      next[i] = 0.5 * stationary[i];
    }
    for (uint64_t i = 0; i < (uint64_t)count * MARKOV_SUCCESSORS; i++) {
      next[markov->successors[i]] +=
          0.5 * stationary[i / MARKOV_SUCCESSORS] * markov->probabilities[i];
    }
    change = 0;
    for (uint32_t i = 0; i < count; i++) {
      change += fabs(next[i] - stationary[i]);
      stationary[i] = next[i];
    }
  }
}

/* Entropy of the next state, given this one; successors named twice count as one. */
static double row_entropy(const struct markov *markov, uint32_t state) {
  const uint32_t *successors = markov->successors + (uint64_t)state * MARKOV_SUCCESSORS;
  const double *probabilities = markov->probabilities + (uint64_t)state * MARKOV_SUCCESSORS;
  double entropy = 0;
  for (uint32_t i = 0; i < MARKOV_SUCCESSORS; i++) {
    double all = 0;
    for (uint32_t j = 0; j < MARKOV_SUCCESSORS; j++) {
      all += successors[j] == successors[i] ? probabilities[j] : 0;
    }
    entropy -= probabilities[i] > 0 ? probabilities[i] * log(all) : 0;
  }
  return entropy;
}

static void find_entropy_rate(struct markov *markov) {
  double rate = 0;
  double sum = 0;
  for (uint32_t state = 0; state < markov->state_count; state++) {
    rate += markov->stationary[state] * row_entropy(markov, state);
    sum += markov->stationary[state];
    markov->cumulative_start[state] = sum;
  }
  markov->entropy_rate = rate;
}

mr_status markov_init(struct markov *markov, uint32_t state_count, uint64_t seed) {
  struct markov made = {.seed = seed, .state_count = state_count};
  uint64_t entries = (uint64_t)state_count * MARKOV_SUCCESSORS;
  made.successors = train_allocate(entries, sizeof *made.successors);
  made.probabilities = train_allocate(entries, sizeof *made.probabilities);
  made.stationary = train_allocate(state_count, sizeof *made.stationary);
  made.cumulative_start = train_allocate(state_count, sizeof *made.cumulative_start);
  if (made.successors == NULL || made.probabilities == NULL || made.stationary == NULL ||
      made.cumulative_start == NULL) {
    markov_fini(&made);
    return MR_NO_MEMORY;
  }
  draw_table(&made);
  find_stationary(&made, made.cumulative_start);
  find_entropy_rate(&made);
  *markov = made;
  return MR_OK;
}

void markov_fini(struct markov *markov) {
  free(markov->successors);
  free(markov->probabilities);
  free(markov->stationary);
  free(markov->cumulative_start);
  *markov = (struct markov){.seed = 0};
}

/* The first state whose cumulative probability is above `place`. */
static uint32_t draw_start(const struct markov *markov, double place) {
  place *= markov->cumulative_start[markov->state_count - 1];
  uint32_t low = 0;
  uint32_t high = markov->state_count - 1;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    if (markov->cumulative_start[middle] > place) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

static uint32_t draw_next(const struct markov *markov, uint32_t state, double place) {
  uint64_t at = (uint64_t)state * MARKOV_SUCCESSORS;
  uint32_t chosen = 0;
  while (chosen + 1 < MARKOV_SUCCESSORS && place >= markov->probabilities[at + chosen]) {
    place -= markov->probabilities[at + chosen];
    chosen++;
  }
  return markov->successors[at + chosen];
}

void markov_row(const struct markov *markov, uint64_t row, uint32_t count, int32_t *out) {
  uint32_t state = 0;
  for (uint32_t i = 0; i < count; i++) {
    double place = train_random_unit(markov->seed, STREAM_FIRST_ROW + row, i);
    state = i == 0 ? draw_start(markov, place) : draw_next(markov, state, place);
    out[i] = (int32_t)state;
  }
}
