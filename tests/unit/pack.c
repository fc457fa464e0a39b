/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Contiguous packing: verdicts against all fillings of tiny memories, planted packings without
 * waste, and two published cases.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka.h needs the four above. */
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "plan/pack/join.h"
#include "plan/pack/search.h"

#define SEED          20260711u
#define TINY_CASES    2000u
#define TINY_MOST     40u
#define TINY_SPAN     12u /* moments */
#define TINY_KNOTTED  7u  /* the load of knotted instances */
#define TINY_CAPACITY 24u /* more than any tiny instance needs */
#define PLANTED_CASES 6u
#define PLANTED_MOST  128u
#define TRIES         1000000u
#define LARGE_CASES   8u
#define LARGE_MOST    500u
#define LARGE_TRIES   100000u
#define MANY          4000u
#define LATE_BUFFERS  8u

/* The oracle: all ways to fill the cells of memory, moment after moment. */
struct filling {
  uint8_t owner[TINY_CAPACITY]; /* of each cell: a buffer + 1, or 0 */
};

struct fillings {
  struct filling *list;
  uint32_t count;
  uint32_t capacity;
};

static int by_owners(const void *left, const void *right) {
  return memcmp(left, right, sizeof(struct filling));
}

static void unite(struct fillings *fillings) {
  uint32_t kept = 0;
  if (fillings->list == NULL) {
    return;
  }
  qsort(fillings->list, fillings->count, sizeof *fillings->list, by_owners);
  for (uint32_t i = 0; i < fillings->count; i++) {
    if (kept == 0 || by_owners(&fillings->list[kept - 1], &fillings->list[i]) != 0) {
      fillings->list[kept++] = fillings->list[i];
    }
  }
  fillings->count = kept;
}

static void clear_owner(struct fillings *fillings, uint32_t buffer) {
  for (uint32_t i = 0; i < fillings->count; i++) {
    for (uint32_t c = 0; c < TINY_CAPACITY; c++) {
      uint8_t *owner = &fillings->list[i].owner[c];
      *owner = *owner == buffer + 1 ? 0 : *owner;
    }
  }
}

/* Puts a buffer at every offset where it fits. */
static void put(struct fillings *fillings, uint32_t buffer, uint64_t size, uint64_t capacity) {
  static const uint8_t free_cells[TINY_CAPACITY];
  struct fillings next = {0};
  for (uint32_t i = 0; i < fillings->count; i++) {
    for (uint64_t offset = 0; offset + size <= capacity; offset++) {
      if (memcmp(&fillings->list[i].owner[offset], free_cells, size) != 0) continue;
      assert_int_equal(mr_array_reserve((void **)&next.list, &next.capacity, next.count + 1ull,
                                        sizeof *next.list),
                       MR_OK);
      next.list[next.count] = fillings->list[i];
      memset(&next.list[next.count++].owner[offset], (int)buffer + 1, size);
    }
  }
  free(fillings->list);
  *fillings = next;
}

static bool fits(const struct mr_pack_buffer *buffers, uint32_t count, uint64_t capacity) {
  struct fillings fillings = {.list = calloc(1, sizeof *fillings.list), .count = 1, .capacity = 1};
  assert_non_null(fillings.list);
  for (uint64_t time = 0; time < TINY_SPAN; time++) {
    for (uint32_t i = 0; i < count; i++) {
      if (buffers[i].upper == time) {
        clear_owner(&fillings, i);
      }
    }
    unite(&fillings);
    for (uint32_t i = 0; i < count; i++) {
      if (buffers[i].lower == time) {
        put(&fillings, i, buffers[i].size_bytes, capacity);
      }
    }
  }
  free(fillings.list);
  return fillings.count > 0;
}

/* The most that lives at once. */
static uint64_t load_of(const struct mr_pack_buffer *buffers, uint32_t count) {
  uint64_t most = 0;
  for (uint64_t time = 0; time < TINY_SPAN; time++) {
    uint64_t load = 0;
    for (uint32_t i = 0; i < count; i++) {
      load += buffers[i].lower <= time && time < buffers[i].upper ? buffers[i].size_bytes : 0;
    }
    most = mr_max_u64(most, load);
  }
  return most;
}

/* The least capacity that is enough; not below `load`. */
static uint64_t least_peak(const struct mr_pack_buffer *buffers, uint32_t count, uint64_t load) {
  while (!fits(buffers, count, load)) {
    load++;
  }
  return load;
}

static void fill_random(struct mr_random *random, struct mr_pack_buffer *buffers, uint32_t count) {
  for (uint32_t i = 0; i < count; i++) {
    buffers[i].lower = mr_random_below(random, TINY_SPAN - 1);
    buffers[i].upper = buffers[i].lower + 1 + mr_random_below(random, TINY_SPAN - buffers[i].lower);
    buffers[i].size_bytes = 1 + mr_random_below(random, 3);
  }
}

/* Cuts a rectangle into buffers, so that they fit it without waste. */
static uint32_t plant(struct mr_random *random, struct mr_pack_buffer *buffers, uint32_t wanted,
                      uint64_t width, uint64_t height) {
  uint64_t least_life = width < 100 ? 1 : 3;
  uint32_t count = 1;
  buffers[0] = (struct mr_pack_buffer){0, width, height};
  for (uint32_t n = 0; n < 100 * wanted && count < wanted; n++) {
    struct mr_pack_buffer *cut = &buffers[mr_random_below(random, count)];
    struct mr_pack_buffer *rest = &buffers[count];
    uint64_t life = cut->upper - cut->lower;
    *rest = *cut;
    if (mr_random_below(random, 2) == 0 && life >= 2 * least_life) {
      uint64_t at = cut->lower + least_life + mr_random_below(random, life - 2 * least_life + 1);
      cut->upper = at;
      rest->lower = at;
      count++;
    } else if (cut->size_bytes >= 2) {
      rest->size_bytes = 1 + mr_random_below(random, cut->size_bytes - 1);
      cut->size_bytes -= rest->size_bytes;
      count++;
    }
  }
  return count;
}

/*
 * Joins buffers of one size where one ends and the other starts: the load stays full at every
 * moment, but the two may have lain at different offsets, so that a packing may be gone.
 */
static uint32_t knot(struct mr_pack_buffer *buffers, uint32_t count) {
  for (uint32_t i = 0; i < count; i++) {
    for (uint32_t j = 0; j < count; j++) {
      if (buffers[i].upper == buffers[j].lower && buffers[i].size_bytes == buffers[j].size_bytes) {
        buffers[i].upper = buffers[j].upper;
        buffers[j] = buffers[--count];
        i = UINT32_MAX; /* once more from the start */
        break;
      }
    }
  }
  return count;
}

/* A random instance of at most TINY_MOST buffers; every other one is knotted. */
static uint32_t fill_tiny(struct mr_random *random, struct mr_pack_buffer *buffers, uint32_t n) {
  if (n % 2 == 0) {
    uint32_t count = 1 + (uint32_t)mr_random_below(random, 7);
    fill_random(random, buffers, count);
    return count;
  }
  return knot(buffers, plant(random, buffers, TINY_MOST, TINY_SPAN, TINY_KNOTTED));
}

static struct mr_pack_result solve_checked(const struct mr_pack_problem *problem,
                                           uint64_t *offsets) {
  struct mr_pack_result result;
  uint64_t peak = 0;
  assert_int_equal(mr_pack_solve(problem, offsets, &result), MR_OK);
  assert_true(mr_pack_valid(problem, offsets, &peak));
  assert_int_equal(peak, result.peak_bytes);
  assert_true(result.bound_bytes <= result.peak_bytes);
  assert_int_equal(result.verdict == MR_PACK_FITS, peak <= problem->capacity_bytes);
  return result;
}

static void verdicts_are_those_of_all_fillings(void **state) {
  (void)state;
  struct mr_random random;
  uint32_t searched = 0;
  printf("seed %u\n", SEED);
  mr_random_init(&random, SEED);
  for (uint32_t n = 0; n < TINY_CASES; n++) {
    struct mr_pack_buffer buffers[TINY_MOST];
    uint64_t offsets[TINY_MOST];
    uint32_t count = fill_tiny(&random, buffers, n);
    uint64_t least = least_peak(buffers, count, load_of(buffers, count));
    struct mr_pack_problem problem = {
        .buffers = buffers, .buffer_count = count, .capacity_bytes = least, .search_tries = TRIES};
    assert_int_equal(solve_checked(&problem, offsets).verdict, MR_PACK_FITS);
    problem.capacity_bytes = least - 1;
    struct mr_pack_result result = solve_checked(&problem, offsets);
    assert_int_equal(result.verdict, MR_PACK_IMPOSSIBLE);
    assert_true(result.bound_bytes <= least);
    assert_true(result.bound_bytes >= load_of(buffers, count));
    searched += result.tries > 0;
  }
  printf("%u of %u refusals took a search\n", searched, TINY_CASES);
  assert_true(searched > 0);
}

/* The exact search alone, without the portfolio before it. */
static void search_alone_is_exact(void **state) {
  (void)state;
  struct mr_random random;
  mr_random_init(&random, SEED + 1);
  for (uint32_t n = 0; n < TINY_CASES; n++) {
    struct mr_pack_buffer buffers[TINY_MOST];
    uint64_t offsets[TINY_MOST];
    uint64_t peak = 0;
    uint32_t count = fill_tiny(&random, buffers, n);
    uint64_t least = least_peak(buffers, count, load_of(buffers, count));
    struct mr_pack_problem problem = {.buffers = buffers,
                                      .buffer_count = count,
                                      .capacity_bytes = least - mr_random_below(&random, 2),
                                      .search_tries = TRIES};
    struct mr_pack_sections sections;
    struct mr_pack_result result = {.verdict = MR_PACK_UNDECIDED};
    assert_int_equal(mr_pack_sections_init(&sections, &problem), MR_OK);
    problem.capacity_bytes = mr_max_u64(problem.capacity_bytes, load_of(buffers, count));
    assert_int_equal(mr_pack_search(&problem, &sections, offsets, &result), MR_OK);
    mr_pack_sections_fini(&sections);
    bool enough = problem.capacity_bytes >= least;
    assert_int_equal(result.verdict, enough ? MR_PACK_FITS : MR_PACK_IMPOSSIBLE);
    if (enough) {
      assert_true(mr_pack_valid(&problem, offsets, &peak));
      assert_int_equal(peak, result.peak_bytes);
    }
  }
}

static void planted_packings_are_found(void **state) {
  (void)state;
  for (uint32_t n = 0; n < PLANTED_CASES; n++) {
    struct mr_random random;
    struct mr_pack_buffer buffers[PLANTED_MOST];
    uint64_t offsets[PLANTED_MOST];
    uint64_t again[PLANTED_MOST];
    mr_random_init(&random, SEED + n);
    struct mr_pack_problem problem = {.buffers = buffers,
                                      .buffer_count =
                                          plant(&random, buffers, 48 + 16 * n, 400, 900),
                                      .capacity_bytes = 900,
                                      .search_tries = TRIES};
    struct mr_pack_result result = solve_checked(&problem, offsets);
    printf("%u buffers: %llu tries\n", problem.buffer_count, (unsigned long long)result.tries);
    assert_int_equal(result.verdict, MR_PACK_FITS);
    assert_int_equal(result.bound_bytes, 900);
    solve_checked(&problem, again);
    assert_memory_equal(offsets, again, problem.buffer_count * sizeof *offsets);
  }
}

/* Several hundred buffers without waste, and with more room than they need: a packing for less is
 * one for more. */
static void large_packings_are_found_at_any_capacity(void **state) {
  (void)state;
  struct mr_pack_buffer buffers[LARGE_MOST];
  uint64_t offsets[LARGE_MOST];
  uint32_t solved = 0;
  for (uint32_t n = 0; n < LARGE_CASES; n++) {
    struct mr_random random;
    mr_random_init(&random, SEED + n);
    uint32_t count = plant(&random, buffers, 150 + 50 * n, 1000, 1u << 30);
    for (uint32_t percent = 0; percent <= 10; percent += 2) {
      struct mr_pack_problem problem = {.buffers = buffers,
                                        .buffer_count = count,
                                        .capacity_bytes =
                                            (1u << 30) / 100 * (100ull + percent) + 100,
                                        .search_tries = LARGE_TRIES};
      struct mr_pack_result result = solve_checked(&problem, offsets);
      printf("%u buffers, %u %% more: %llu tries, %s\n", count, percent,
             (unsigned long long)result.tries, result.verdict == MR_PACK_FITS ? "fits" : "?");
      solved += result.verdict == MR_PACK_FITS;
    }
  }
  assert_int_equal(solved, 6 * LARGE_CASES);
}

/* Any packing of the joined buffers, as here one above another, is a packing of all of them, and
 * what lives at each moment is as much as before. */
static void joined_buffers_are_whole(void **state) {
  (void)state;
  struct mr_random random;
  uint32_t parts = 0;
  mr_random_init(&random, SEED + 2);
  for (uint32_t n = 0; n < TINY_CASES; n++) {
    struct mr_pack_buffer buffers[TINY_MOST];
    uint64_t offsets[TINY_MOST];
    uint64_t tops[TINY_MOST + 1] = {0};
    uint64_t peak = 0;
    struct mr_pack_joined joined;
    uint32_t count = fill_tiny(&random, buffers, n);
    struct mr_pack_problem problem = {.buffers = buffers, .buffer_count = count};
    assert_int_equal(mr_pack_join(&joined, &problem, (enum mr_pack_guess)(n / 2 % 2)), MR_OK);
    for (uint32_t i = 0; i < joined.count; i++) {
      tops[i + 1] = tops[i] + joined.buffers[i].size_bytes;
    }
    for (uint32_t i = 0; i < count; i++) {
      offsets[i] = tops[joined.whole[i]] + joined.within[i];
      assert_true(offsets[i] + buffers[i].size_bytes <= tops[joined.whole[i] + 1]);
    }
    assert_true(mr_pack_valid(&problem, offsets, &peak));
    assert_int_equal(load_of(joined.buffers, joined.count), load_of(buffers, count));
    parts += count - joined.count;
    mr_pack_joined_fini(&joined);
  }
  printf("%u buffers fewer\n", parts);
  assert_true(parts > TINY_CASES);
}

static void solve_case(const char *name, uint64_t capacity_bytes) {
  char path[512];
  struct mr_pack_table table;
  struct mr_pack_result result;
  uint64_t peak = 0;
  snprintf(path, sizeof path, "%s/%s", PACK_DATA, name);
  FILE *file = fopen(path, "re");
  assert_non_null(file);
  assert_int_equal(mr_pack_table_read(&table, file, path), MR_OK);
  fclose(file);
  uint64_t *offsets = calloc(table.count, sizeof *offsets);
  assert_non_null(offsets);
  struct mr_pack_problem problem = {.buffers = table.buffers,
                                    .buffer_count = table.count,
                                    .capacity_bytes = capacity_bytes,
                                    .search_tries = TRIES};
  assert_int_equal(mr_pack_solve(&problem, offsets, &result), MR_OK);
  assert_int_equal(result.verdict, MR_PACK_FITS);
  assert_true(mr_pack_valid(&problem, offsets, &peak) && peak <= capacity_bytes);
  printf("%s: %u buffers, %llu tries\n", name, table.count, (unsigned long long)result.tries);
  free(offsets);
  mr_pack_table_fini(&table);
}

static void published_cases_are_solved(void **state) {
  (void)state;
  solve_case("B.1048576.csv", 1048576);
  solve_case("K.1048576.csv", 1048576);
}

static bool count_down(void *context) {
  uint32_t *left = context;
  return (*left)-- == 0;
}

/* A zero-waste packing that the portfolio misses: neither a limit nor a caller is overrun. */
static void limits_end_the_search(void **state) {
  (void)state;
  struct mr_random random;
  struct mr_pack_buffer buffers[PLANTED_MOST];
  uint64_t offsets[PLANTED_MOST];
  uint32_t questions = 0;
  mr_random_init(&random, SEED);
  struct mr_pack_problem problem = {.buffers = buffers,
                                    .buffer_count = plant(&random, buffers, 64, 400, 900),
                                    .capacity_bytes = 900};
  assert_int_equal(solve_checked(&problem, offsets).verdict, MR_PACK_UNDECIDED);
  problem.search_tries = TRIES;
  problem.stopped = count_down;
  problem.context = &questions;
  struct mr_pack_result result = solve_checked(&problem, offsets);
  assert_int_equal(result.verdict, MR_PACK_UNDECIDED);
  assert_int_equal(result.tries, 0);
}

static bool stop_at_once(void *context) {
  uint32_t *questions = context;
  (*questions)++;
  return true;
}

/* With thousands of buffers the portfolio takes long itself. */
static void deadlines_end_the_portfolio(void **state) {
  (void)state;
  struct mr_random random;
  uint32_t questions = 0;
  struct mr_pack_buffer *buffers = calloc(MANY, sizeof *buffers);
  uint64_t *offsets = calloc(MANY, sizeof *offsets);
  assert_true(buffers != NULL && offsets != NULL);
  mr_random_init(&random, SEED);
  for (uint32_t i = 0; i < MANY; i++) {
    uint64_t lower = mr_random_below(&random, MANY);
    buffers[i] = (struct mr_pack_buffer){lower, lower + 1 + mr_random_below(&random, MANY / 20),
                                         1 + mr_random_below(&random, 1000000)};
  }
  struct mr_pack_problem problem = {.buffers = buffers,
                                    .buffer_count = MANY,
                                    .search_tries = TRIES,
                                    .stopped = stop_at_once,
                                    .context = &questions};
  problem.capacity_bytes = solve_checked(&problem, offsets).bound_bytes;
  assert_int_equal(questions, 1);
  struct mr_pack_result result = solve_checked(&problem, offsets);
  assert_int_equal(result.verdict, MR_PACK_UNDECIDED);
  assert_int_equal(result.tries, 0);
  assert_int_equal(questions, 3);
  free(buffers);
  free(offsets);
}

static void quiet(void *context, mr_log_level level, const char *line) {
  uint32_t *lines = context;
  assert_int_equal(level, MR_LOG_ERROR);
  assert_non_null(strstr(line, "buffer 1"));
  (*lines)++;
}

/* Nanoseconds since 1970 and later ones: moments that a double does not tell apart. */
static void late_moments_are_told_apart(void **state) {
  (void)state;
  struct mr_random random;
  mr_random_init(&random, SEED);
  for (uint32_t round = 0; round < TINY_CASES; round++) {
    struct mr_pack_buffer buffers[LATE_BUFFERS];
    uint64_t offsets[LATE_BUFFERS];
    struct mr_pack_result result;
    for (uint32_t i = 0; i < LATE_BUFFERS; i++) {
      uint64_t lower = (round % 2 == 0 ? 1764547200000000000u : UINT64_MAX - 2000u) +
                       mr_random_below(&random, 1000);
      buffers[i] = (struct mr_pack_buffer){.lower = lower,
                                           .upper = lower + 1 + mr_random_below(&random, 300),
                                           .size_bytes = 1 + mr_random_below(&random, 10)};
    }
    struct mr_pack_problem problem = {
        .buffers = buffers, .buffer_count = LATE_BUFFERS, .capacity_bytes = 1000};
    assert_int_equal(mr_pack_solve(&problem, offsets, &result), MR_OK);
    assert_int_equal(result.verdict, MR_PACK_FITS);
    for (uint32_t i = 0; i < LATE_BUFFERS; i++) {
      for (uint32_t j = 0; j < i; j++) {
        bool together = buffers[i].lower < buffers[j].upper && buffers[j].lower < buffers[i].upper;
        assert_true(!together || offsets[i] + buffers[i].size_bytes <= offsets[j] ||
                    offsets[j] + buffers[j].size_bytes <= offsets[i]);
      }
    }
  }
}

static void what_is_no_buffer_is_refused(void **state) {
  (void)state;
  struct mr_pack_result result = {.tries = 77};
  uint64_t offsets[2];
  uint32_t lines = 0;
  const struct mr_pack_buffer wrong[] = {
      {0, 4, 0}, {4, 4, 8}, {5, 4, 8}, {0, 4, UINT64_MAX}, {0, 4, (1ull << 62) - 7}};
  mr_log_configure(quiet, &lines, MR_LOG_ERROR);
  for (uint32_t i = 0; i < MR_COUNT_OF(wrong); i++) {
    struct mr_pack_buffer buffers[2] = {{0, 4, 8}, wrong[i]};
    struct mr_pack_problem problem = {.buffers = buffers, .buffer_count = 2, .capacity_bytes = 8};
    assert_int_equal(mr_pack_solve(&problem, offsets, &result), MR_INVALID);
  }
  mr_log_configure(NULL, NULL, MR_LOG_WARN);
  assert_int_equal(lines, MR_COUNT_OF(wrong));
  assert_int_equal(result.tries, 77);
  struct mr_pack_problem empty = {.capacity_bytes = 8};
  assert_int_equal(mr_pack_solve(&empty, offsets, &result), MR_OK);
  assert_int_equal(result.verdict, MR_PACK_FITS);
  assert_int_equal(result.peak_bytes, 0);
}

/* Buffers that have more than 2^64 bytes together, but at most 2^62 at once: packings that are
 * right, up to the limit of what is searched. */
static void sizes_may_sum_to_more_than_fits_a_number(void **state) {
  (void)state;
  struct mr_random random;
  uint32_t solved = 0;
  printf("seed %u\n", SEED);
  mr_random_init(&random, SEED);
  for (uint32_t n = 0; n < 200; n++) {
    struct mr_pack_buffer buffers[TINY_MOST];
    uint64_t offsets[TINY_MOST];
    uint32_t count = fill_tiny(&random, buffers, 1);
    for (uint32_t i = 0; i < count; i++) {
      buffers[i].size_bytes *= MR_PACK_MOST_BYTES / TINY_KNOTTED;
    }
    struct mr_pack_problem problem = {
        .buffers = buffers, .buffer_count = count, .search_tries = 1000};
    problem.capacity_bytes = solve_checked(&problem, offsets).bound_bytes;
    assert_true(problem.capacity_bytes > MR_PACK_MOST_BYTES - TINY_KNOTTED);
    solved += solve_checked(&problem, offsets).verdict == MR_PACK_FITS;
    problem.capacity_bytes += MR_PACK_MOST_BYTES / TINY_KNOTTED;
    solved += solve_checked(&problem, offsets).verdict == MR_PACK_FITS;
  }
  printf("%u of 400 fit\n", solved);
  assert_true(solved > 200);
}

static void overlaps_are_seen(void **state) {
  (void)state;
  const struct mr_pack_buffer buffers[] = {{0, 4, 8}, {3, 6, 8}, {4, 6, 8}};
  struct mr_pack_problem problem = {.buffers = buffers, .buffer_count = 3};
  uint64_t peak = 0;
  assert_true(mr_pack_valid(&problem, (const uint64_t[]){0, 8, 0}, &peak));
  assert_int_equal(peak, 16);
  assert_false(mr_pack_valid(&problem, (const uint64_t[]){0, 7, 15}, &peak));
  assert_false(mr_pack_valid(&problem, (const uint64_t[]){0, 8, 1}, &peak));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(verdicts_are_those_of_all_fillings),
      cmocka_unit_test(search_alone_is_exact),
      cmocka_unit_test(planted_packings_are_found),
      cmocka_unit_test(large_packings_are_found_at_any_capacity),
      cmocka_unit_test(joined_buffers_are_whole),
      cmocka_unit_test(published_cases_are_solved),
      cmocka_unit_test(limits_end_the_search),
      cmocka_unit_test(deadlines_end_the_portfolio),
      cmocka_unit_test(late_moments_are_told_apart),
      cmocka_unit_test(what_is_no_buffer_is_refused),
      cmocka_unit_test(sizes_may_sum_to_more_than_fits_a_number),
      cmocka_unit_test(overlaps_are_seen),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
