/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Data: windows of files against a naive reader, shuffling as a permutation, refusals, and the
 * Markov source against its own statistics.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "train/common.h"
#include "train/data.h"
#include "train/markov.h"
#include "unit/train_file.h"

#define BATCH  2u
#define SEQ    5u
#define WINDOW (BATCH * SEQ)

static void write_file(const void *data, size_t bytes) {
  FILE *file = fopen(train_file_path, "we");
  assert_non_null(file);
  assert_int_equal(fwrite(data, 1, bytes, file), bytes);
  assert_int_equal(fclose(file), 0);
}

/* A file of llm.c's format with `count` tokens by its header and `present` in fact. */
static void write_bin(uint32_t magic, uint32_t version, uint32_t count, const uint16_t *tokens,
                      uint32_t present) {
  uint32_t header[256] = {magic, version, count};
  FILE *file = fopen(train_file_path, "we");
  assert_non_null(file);
  assert_int_equal(fwrite(header, sizeof header, 1, file), 1);
  assert_int_equal(fwrite(tokens, sizeof *tokens, present, file), present);
  assert_int_equal(fclose(file), 0);
}

static struct data_options options_for(uint32_t vocab, bool shuffle) {
  return (struct data_options){.path = train_file_path,
                               .vocab = vocab,
                               .batch = BATCH,
                               .seq = SEQ,
                               .seed = 9,
                               .shuffle = shuffle,
                               .windows = 1000};
}

/* llm.c's loader: reads at a position that goes back to 0 where a window does not fit. */
static void check_windows(struct data_source *source, const int32_t *tokens, uint32_t count) {
  uint32_t position = 0;
  int32_t found[WINDOW];
  int32_t targets[WINDOW];
  for (uint64_t window = 0; window < 20; window++) {
    if (position + WINDOW + 1 > count) {
      position = 0;
    }
    assert_int_equal(data_read(source, window, found, targets), MR_OK);
    assert_memory_equal(found, tokens + position, sizeof found);
    assert_memory_equal(targets, tokens + position + 1, sizeof targets);
    position += WINDOW;
  }
}

static void bytes_are_tokens(void **state) {
  (void)state;
  static const uint32_t counts[] = {11, 12, 20, 21, 22, 57};
  for (uint32_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
    unsigned char bytes[64];
    int32_t tokens[64];
    for (uint32_t j = 0; j < counts[i]; j++) {
      bytes[j] = (unsigned char)train_random(1, i, j);
      tokens[j] = bytes[j];
    }
    write_file(bytes, counts[i]);
    struct data_options options = options_for(256, false);
    struct data_source *source = NULL;
    assert_int_equal(data_open(&options, &source), MR_OK);
    assert_int_equal(data_token_count(source), counts[i]);
    assert_true(data_loss_floor(source) < 0);
    check_windows(source, tokens, counts[i]);
    data_close(source);
  }
}

static void bin_files_are_read(void **state) {
  (void)state;
  uint16_t file_tokens[100];
  int32_t tokens[100];
  for (uint32_t i = 0; i < 100; i++) {
    file_tokens[i] = (uint16_t)(train_random(2, 0, i) % 50257);
    tokens[i] = file_tokens[i];
  }
  write_bin(20240520, 1, 100, file_tokens, 100);
  struct data_options options = options_for(50257, false);
  struct data_source *source = NULL;
  assert_int_equal(data_open(&options, &source), MR_OK);
  check_windows(source, tokens, 100);
  data_close(source);
}

static void bad_files_are_refused(void **state) {
  (void)state;
  uint16_t tokens[100] = {0};
  tokens[50] = 700;
  struct data_options options = options_for(512, false);
  struct data_source *source = NULL;
  write_bin(20240520, 1, 100, tokens, 99);
  assert_int_equal(data_open(&options, &source), MR_CORRUPT);
  write_bin(20240520, 1, 99, tokens, 100);
  assert_int_equal(data_open(&options, &source), MR_CORRUPT);
  write_bin(20240520, 2, 100, tokens, 100);
  assert_int_equal(data_open(&options, &source), MR_UNSUPPORTED);
  write_bin(20240520, 1, 100, tokens, 100);
  assert_int_equal(data_open(&options, &source), MR_INVALID); /* the word 700 */
  write_bin(20240520, 1, 10, tokens, 10);
  assert_int_equal(data_open(&options, &source), MR_INVALID); /* a window needs 11 */
  write_file("\x88\xd8\x34\x01short", 9);
  assert_int_equal(data_open(&options, &source), MR_CORRUPT); /* the magic and no header */
  write_file("", 0);
  assert_int_equal(data_open(&options, &source), MR_INVALID);
  write_file("a text of some length", 21);
  options.vocab = 255;
  assert_int_equal(data_open(&options, &source), MR_INVALID);
  unlink(train_file_path);
  assert_int_equal(data_open(&options, &source), MR_IO);
  options.path = "/tmp";
  assert_int_equal(data_open(&options, &source), MR_INVALID);
  assert_int_equal(train_file_errors, 10);
}

/* Tokens that the job will not read are nobody's business. */
static void only_wanted_tokens_are_checked(void **state) {
  (void)state;
  uint16_t tokens[100] = {0};
  tokens[50] = 700;
  write_bin(20240520, 1, 100, tokens, 100);
  struct data_options options = options_for(512, false);
  options.windows = 4;
  struct data_source *source = NULL;
  int32_t found[WINDOW];
  int32_t targets[WINDOW];
  assert_int_equal(data_open(&options, &source), MR_OK);
  assert_int_equal(data_read(source, 3, found, targets), MR_OK);
  assert_int_equal(data_read(source, 5, found, targets), MR_INVALID);
  data_close(source);
}

static void permutations_are_permutations(void **state) {
  (void)state;
  static const uint64_t counts[] = {1, 2, 3, 4, 5, 16, 17, 100, 1000};
  for (uint32_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
    bool seen[1000] = {false};
    uint64_t moved = 0;
    for (uint64_t j = 0; j < counts[i]; j++) {
      uint64_t place = data_permute(3, 1, counts[i], j);
      assert_true(place < counts[i]);
      assert_false(seen[place]);
      seen[place] = true;
      moved += place != data_permute(3, 2, counts[i], j);
    }
    assert_true(counts[i] < 100 || moved > counts[i] / 2);
  }
}

/* Every epoch has each window once, in an order of its own. */
static void shuffled_epochs_have_all_windows(void **state) {
  (void)state;
  unsigned char bytes[101];
  for (uint32_t i = 0; i < sizeof bytes; i++) {
    bytes[i] = (unsigned char)i;
  }
  write_file(bytes, sizeof bytes);
  struct data_options options = options_for(256, true);
  struct data_source *source = NULL;
  assert_int_equal(data_open(&options, &source), MR_OK);
  uint32_t order[2][10];
  for (uint32_t epoch = 0; epoch < 2; epoch++) {
    bool seen[10] = {false};
    for (uint32_t i = 0; i < 10; i++) {
      int32_t tokens[WINDOW];
      int32_t targets[WINDOW];
      assert_int_equal(data_read(source, epoch * 10 + i, tokens, targets), MR_OK);
      assert_int_equal(tokens[0] % 10, 0);
      assert_int_equal(targets[WINDOW - 1], tokens[0] + 10);
      order[epoch][i] = (uint32_t)tokens[0] / 10;
      assert_false(seen[order[epoch][i]]);
      seen[order[epoch][i]] = true;
    }
  }
  assert_true(memcmp(order[0], order[1], sizeof order[0]) != 0);
  data_close(source);
}

/* The share of each state in many rows against the stationary distribution, and the mean surprise
 * of the next token against the entropy rate. */
static void markov_source_has_its_entropy_rate(void **state) {
  (void)state;
  enum { STATES = 64, ROWS = 4000, LENGTH = 65 };
  struct markov markov;
  assert_int_equal(markov_init(&markov, STATES, 5), MR_OK);
  double shares[STATES] = {0};
  double surprise = 0;
  for (uint64_t row = 0; row < ROWS; row++) {
    int32_t tokens[LENGTH];
    markov_row(&markov, row, LENGTH, tokens);
    shares[tokens[0]] += 1.0 / ROWS;
    for (uint32_t i = 0; i + 1 < LENGTH; i++) {
      double probability = 0;
      for (uint32_t j = 0; j < MARKOV_SUCCESSORS; j++) {
        uint32_t at = (uint32_t)tokens[i] * MARKOV_SUCCESSORS + j;
        probability +=
            markov.successors[at] == (uint32_t)tokens[i + 1] ? markov.probabilities[at] : 0;
      }
      assert_true(probability > 0);
      surprise -= log(probability) / ((double)ROWS * (LENGTH - 1));
    }
  }
  double sum = 0;
  for (uint32_t i = 0; i < STATES; i++) {
    sum += markov.stationary[i];
    /* four deviations of a share that is drawn ROWS times */
    double deviation = sqrt(markov.stationary[i] / ROWS) + 1e-4;
    assert_true(fabs(shares[i] - markov.stationary[i]) < 4 * deviation);
  }
  assert_true(fabs(sum - 1) < 1e-12);
  assert_true(fabs(surprise - markov.entropy_rate) < 0.01);
  markov_fini(&markov);
}

/* One more round of the chain leaves the distribution as it is. */
static void stationary_distribution_stays(void **state) {
  (void)state;
  static const uint32_t counts[] = {1, 2, 3, 256, 2048};
  for (uint32_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
    struct markov markov;
    assert_int_equal(markov_init(&markov, counts[i], 11 + i), MR_OK);
    double *next = calloc(counts[i], sizeof *next);
    assert_non_null(next);
    for (uint32_t j = 0; j < counts[i] * MARKOV_SUCCESSORS; j++) {
      next[markov.successors[j]] +=
          markov.stationary[j / MARKOV_SUCCESSORS] * markov.probabilities[j];
    }
    for (uint32_t j = 0; j < counts[i]; j++) {
      assert_true(fabs(next[j] - markov.stationary[j]) < 1e-12);
    }
    assert_true(markov.entropy_rate >= 0 && markov.entropy_rate <= log(MARKOV_SUCCESSORS));
    free(next);
    markov_fini(&markov);
  }
}

static void markov_windows_repeat(void **state) {
  (void)state;
  struct data_options options = {.vocab = 100, .batch = BATCH, .seq = SEQ, .seed = 4};
  struct data_source *source = NULL;
  int32_t tokens[3][WINDOW];
  int32_t targets[3][WINDOW];
  assert_int_equal(data_open(&options, &source), MR_OK);
  assert_int_equal(data_read(source, 7, tokens[0], targets[0]), MR_OK);
  assert_int_equal(data_read(source, 8, tokens[1], targets[1]), MR_OK);
  assert_int_equal(data_read(source, 7, tokens[2], targets[2]), MR_OK);
  assert_memory_equal(tokens[0], tokens[2], sizeof tokens[0]);
  assert_memory_equal(targets[0], targets[2], sizeof targets[0]);
  assert_memory_not_equal(tokens[0], tokens[1], sizeof tokens[0]);
  for (uint32_t i = 0; i + 1 < SEQ; i++) {
    assert_int_equal(targets[0][i], tokens[0][i + 1]);
  }
  assert_true(data_evaluation_window(source, 0) > 1000000);
  assert_true(data_loss_floor(source) > 0);
  data_close(source);
}

#define DATA_TEST(name) cmocka_unit_test_setup_teardown(name, train_file_begin, train_file_end)

int main(void) {
  const struct CMUnitTest tests[] = {
      DATA_TEST(bytes_are_tokens),
      DATA_TEST(bin_files_are_read),
      DATA_TEST(bad_files_are_refused),
      DATA_TEST(only_wanted_tokens_are_checked),
      DATA_TEST(permutations_are_permutations),
      DATA_TEST(shuffled_epochs_have_all_windows),
      DATA_TEST(markov_source_has_its_entropy_rate),
      DATA_TEST(stationary_distribution_stays),
      DATA_TEST(markov_windows_repeat),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
