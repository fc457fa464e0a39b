/* SPDX-License-Identifier: Apache-2.0 */
/* bench pressure without its children: lists of budgets, rows, command lines, figures, the plot. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>

#include "base/base.h"
#include "tools/options.h"
#include "tools/pressure.h"

#define ROUNDS    3u
#define FOOTPRINT (1000 * MR_MIB)
#define SMALLEST  (150 * MR_MIB)

static void count_lines(void *context, mr_log_level level, const char *line) {
  (void)level;
  uint32_t *count = context;
  *count += *line != '\0';
}

static void test_list(void **state) {
  (void)state;
  struct pressure_point points[PRESSURE_MAX_BUDGETS];
  uint32_t count = 0;
  assert_int_equal(pressure_points_parse("50%,37.5%,512MiB,min,100%", points, &count), MR_OK);
  assert_int_equal(count, 5);
  assert_true(points[0].percent == 50 && points[1].percent == 37.5 && points[4].percent == 100);
  assert_true(points[2].percent == 0 && points[2].size_bytes == 512 * MR_MIB);
  assert_true(points[3].percent == 0 && points[3].size_bytes == 0);
  assert_int_equal(pressure_points_parse(NULL, points, &count), MR_OK);
  assert_true(count > 4);
}

static void test_bad_lists(void **state) {
  (void)state;
  static const char *const lists[] = {
      "",     ",",       "50%,",  ",50%", "50",      "0%",    "101%", "-5%", "50%%", "5e1%",
      "50 %", "min,max", "63KiB", "nan%", "50%;25%", "1..5%", "%",    ".%",  "MIN",  "8EiB",
  };
  struct pressure_point points[PRESSURE_MAX_BUDGETS];
  char many[3 * (PRESSURE_MAX_BUDGETS + 1)];
  uint32_t lines = 0;
  mr_log_configure(count_lines, &lines, MR_LOG_WARN);
  for (uint32_t i = 0; i < MR_COUNT_OF(lists); i++) {
    uint32_t count = 77;
    if (pressure_points_parse(lists[i], points, &count) != MR_INVALID) {
      fail_msg("'%s' was taken", lists[i]);
    }
    assert_int_equal(count, 77);
    assert_int_equal(lines, i + 1);
  }
  uint32_t count = 0;
  for (uint32_t i = 0; i <= PRESSURE_MAX_BUDGETS; i++) {
    memcpy(many + 3 * i, "1%,", 3);
  }
  many[3 * PRESSURE_MAX_BUDGETS - 1] = '\0';
  assert_int_equal(pressure_points_parse(many, points, &count), MR_OK);
  many[3 * PRESSURE_MAX_BUDGETS - 1] = ',';
  many[3 * PRESSURE_MAX_BUDGETS + 2] = '\0';
  assert_int_equal(pressure_points_parse(many, points, &count), MR_INVALID);
  mr_log_configure(NULL, NULL, MR_LOG_WARN);
}

struct sweep {
  struct cli cli;
  struct pressure pressure;
};

/* A sweep over the list, as `words` ask for it. */
static void sweep_init(struct sweep *sweep, const char *const *words, int count, const char *list) {
  static char text[20][40];
  char *arguments[20];
  struct pressure_point points[PRESSURE_MAX_BUDGETS];
  uint32_t point_count = 0;
  for (int i = 0; i < count; i++) {
    snprintf(text[i], sizeof text[i], "%s", words[i]);
    arguments[i] = text[i];
  }
  options_defaults(&sweep->cli);
  assert_int_equal(options_parse(&sweep->cli, count, arguments), MR_OK);
  sweep->pressure = (struct pressure){
      .cli = &sweep->cli,
      .kind_count = sweep->cli.ablations ? PRESSURE_KIND_COUNT : 1,
      .footprint_bytes = FOOTPRINT,
      .steps = 2,
  };
  for (uint32_t kind = 0; kind < PRESSURE_KIND_COUNT; kind++) {
    sweep->pressure.smallest_bytes[kind] = kind == PRESSURE_NO_OFFLOAD ? 900 * MR_MIB : SMALLEST;
  }
  assert_int_equal(pressure_points_parse(list, points, &point_count), MR_OK);
  assert_int_equal(pressure_rows_init(&sweep->pressure, points, point_count, ROUNDS), MR_OK);
}

static void sweep_fini(struct sweep *sweep) {
  pressure_rows_fini(&sweep->pressure);
  options_free(&sweep->cli);
}

/* What a turn of the row would have measured. */
static void measure(struct pressure_row *row, double seconds, double bound_seconds) {
  row->state = PRESSURE_MEASURED;
  row->seconds[row->turns] = seconds;
  row->last.predicted_seconds = 0.9 * seconds;
  row->bounds[row->bound_count++] = bound_seconds;
  row->turns++;
  row->last.kept_bytes = 600 * MR_MIB;
  row->last.nvme_bytes = 300 * MR_MIB;
  row->last.recomputed_bytes = 100 * MR_MIB;
}

static void test_rows(void **state) {
  (void)state;
  static const char *const words[] = {"memrun", "bench", "pressure", "--ablations"};
  struct sweep sweep;
  sweep_init(&sweep, words, 4, "12.5%,min,50%,100%,500MiB,2GiB,15%");
  const struct pressure_row *rows = sweep.pressure.rows;
  assert_int_equal(sweep.pressure.row_count, 1 + 3 * PRESSURE_KIND_COUNT);
  assert_true(rows[0].device_bytes == UINT64_MAX && rows[0].state == PRESSURE_WAITING);
  static const uint64_t budgets[] = {500 * MR_MIB, SMALLEST, 125 * MR_MIB};
  for (uint32_t i = 0; i < 3 * PRESSURE_KIND_COUNT; i++) {
    const struct pressure_row *row = &rows[1 + i];
    assert_true(row->device_bytes == budgets[i / PRESSURE_KIND_COUNT]);
    assert_int_equal(row->kind, i % PRESSURE_KIND_COUNT);
    bool fits = i < 2 * PRESSURE_KIND_COUNT && row->kind != PRESSURE_NO_OFFLOAD;
    assert_int_equal(row->state, fits ? PRESSURE_WAITING : PRESSURE_DOES_NOT_FIT);
  }
  struct pressure_share share;
  assert_string_equal(pressure_row_share(&sweep.pressure, &rows[0], &share), "100 %");
  assert_string_equal(pressure_row_share(&sweep.pressure, &rows[11], &share), "12.5 %");
  sweep_fini(&sweep);
}

static void check_words(const struct sweep *sweep, uint32_t row, const char *profile,
                        const char *const *wanted, uint32_t count) {
  struct pressure_words words;
  assert_int_equal(
      pressure_words_init(&words, &sweep->pressure, &sweep->pressure.rows[row], profile), MR_OK);
  assert_int_equal(words.count, count);
  for (uint32_t i = 0; i < count; i++) {
    assert_string_equal(words.list[i], wanted[i]);
  }
  assert_null(words.list[count]);
  pressure_words_fini(&words);
}

/* A turn is a train command that anybody can type. */
static void test_words(void **state) {
  (void)state;
  static const char *const words[] = {
      "memrun",      "-v",         "bench",       "pressure", "--preset", "gpt2",
      "--nvme=/a:b", "--host-mem", "64KiB",       "--json",   "--steps",  "2",
      "--offload",   "nvme",       "--ablations", "--clip",   "0"};
  struct sweep sweep;
  sweep_init(&sweep, words, 17, "50%");
  static const char *const whole[] = {"memrun",
                                      "train",
                                      "--preset=gpt2",
                                      "--nvme=/a:b",
                                      "--clip=0",
                                      "--offload=none",
                                      "--recompute=none",
                                      "--policy=searched",
                                      "--replan=never",
                                      "--steps=3",
                                      "--json"};
  check_words(&sweep, 0, NULL, whole, MR_COUNT_OF(whole));
  static const char *const lru[] = {"memrun",
                                    "train",
                                    "--preset=gpt2",
                                    "--nvme=/a:b",
                                    "--clip=0",
                                    "--offload=nvme",
                                    "--recompute=none",
                                    "--policy=lru",
                                    "--replan=never",
                                    "--device-mem=524288000",
                                    "--host-mem=65536",
                                    "--steps=3",
                                    "--profile=/p.json",
                                    "--json"};
  check_words(&sweep, 1 + PRESSURE_LRU, "/p.json", lru, MR_COUNT_OF(lru));
  sweep_fini(&sweep);
}

static void test_figures(void **state) {
  (void)state;
  static const char *const words[] = {"memrun", "bench", "pressure", "--ablations"};
  struct sweep sweep;
  struct pressure_figures figures;
  sweep_init(&sweep, words, 4, "50%");
  struct pressure_row *rows = sweep.pressure.rows;
  assert_false(pressure_row_figures(&sweep.pressure, &rows[1], &figures));
  sweep.pressure.rounds = 3; /* begun, but nothing ended */
  assert_int_equal(pressure_rounds(&sweep.pressure), 0);
  measure(&rows[1], 3.0, 1.5);
  assert_int_equal(pressure_rounds(&sweep.pressure), 1);
  assert_true(pressure_row_figures(&sweep.pressure, &rows[1], &figures));
  assert_true(isnan(figures.speed)); /* there is nothing to compare with yet */
  measure(&rows[1], 2.0, 1.6);
  measure(&rows[1], 3.6, 3.2); /* the machine ran at half its pace in this round */
  measure(&rows[0], 1.0, 1.0);
  measure(&rows[0], 1.0, 1.0);
  measure(&rows[0], 2.0, 2.0);
  measure(&rows[1 + PRESSURE_LRU], 4.5, 3.9);
  assert_true(pressure_row_figures(&sweep.pressure, &rows[1], &figures));
  assert_true(figures.seconds == 3.0 && figures.bound_seconds == 1.6);
  assert_float_equal(figures.error, 0.08, 1e-12);      /* of the last turn's forecast */
  assert_float_equal(figures.over_bound, 1.25, 1e-12); /* of 2, 1.25 and 1.125 */
  assert_float_equal(figures.speed, 0.5, 1e-12);       /* of 1/3, 1/2 and 5/9 */
  assert_float_equal(figures.most_speed, 0.625, 1e-12);
  assert_true(rows[1].seconds[0] == 3.0); /* rounds stay in their order */
  /* Nothing may be left out of the bound of a kind that leaves something out. */
  assert_true(pressure_row_figures(&sweep.pressure, &rows[1 + PRESSURE_LRU], &figures));
  assert_true(figures.bound_seconds == 1.6);
  assert_float_equal(figures.over_bound, 3, 1e-12); /* of the one round that it has */
  assert_true(pressure_least_over_bound(&sweep.pressure) == 1);
  rows[0].bounds[1] = 1 + 1e-14; /* a run's own pace, but for rounding */
  assert_true(pressure_least_over_bound(&sweep.pressure) == 1);
  measure(&rows[1 + PRESSURE_NO_SEARCH], 1.2, 3.9);
  assert_float_equal(pressure_least_over_bound(&sweep.pressure), 0.8, 1e-12);
  sweep_fini(&sweep);
}

/* Elements are closed and no coordinate is without a number. */
static void check_svg(const struct pressure *pressure) {
  char *svg = NULL;
  assert_int_equal(pressure_plot(pressure, &svg), MR_OK);
  assert_int_equal(strncmp(svg, "<svg ", 5), 0);
  assert_string_equal(svg + strlen(svg) - 7, "</svg>\n");
  assert_null(strstr(svg, "nan"));
  assert_null(strstr(svg, "inf"));
  int depth = 0;
  for (const char *at = strchr(svg, '<'); at != NULL; at = strchr(at + 1, '<')) {
    const char *end = strchr(at, '>');
    assert_non_null(end);
    depth += at[1] == '/' ? -1 : end[-1] == '/' ? 0 : 1;
    assert_true(depth >= 0);
  }
  assert_int_equal(depth, 0);
  free(svg);
}

static void test_plot(void **state) {
  (void)state;
  static const char *const words[] = {"memrun", "bench", "pressure", "--ablations"};
  struct sweep sweep;
  sweep_init(&sweep, words, 4, "50%,25%,min,10%");
  struct pressure_row *rows = sweep.pressure.rows;
  check_svg(&sweep.pressure); /* nothing was measured */
  measure(&rows[1], 2.0, 1.0);
  check_svg(&sweep.pressure); /* interrupted before there was anything to compare with */
  measure(&rows[0], 1.0, 1.0);
  rows[6].state = PRESSURE_FAILED;
  rows[6].bounds[rows[6].bound_count++] = 1.0;
  for (uint32_t i = 2; i < sweep.pressure.row_count; i++) {
    if (rows[i].state == PRESSURE_WAITING) {
      measure(&rows[i], 1.0 + i, 1.0);
    }
  }
  check_svg(&sweep.pressure);
  sweep_fini(&sweep);
  sweep_init(&sweep, words, 3, "100%"); /* one budget alone: an axis without a length */
  measure(&sweep.pressure.rows[0], 1e-6, 1e-6);
  check_svg(&sweep.pressure);
  sweep_fini(&sweep);
}

/* Where texts of a class are, each in a line of its own; false behind the last. */
static bool next_text(const char **at, const char *format, double *x_out, double *y_out) {
  for (; **at != '\0'; (*at)++) {
    if (**at == '<' && sscanf(*at, format, x_out, y_out) == 2) {
      (*at)++;
      return true;
    }
  }
  return false;
}

/* Texts of a class that are on one height are at least `room` apart. */
static void check_apart(const char *svg, const char *format, double room) {
  double x = 0;
  double y = 0;
  for (const char *at = svg; next_text(&at, format, &x, &y);) {
    double other_x = 0;
    double other_y = 0;
    for (const char *other = at; next_text(&other, format, &other_x, &other_y);) {
      if (fabs(y - other_y) < 0.05 && fabs(x - other_x) < room) {
        fail_msg("texts at %g and %g, %g", x, other_x, y);
      }
    }
  }
}

/* As many budgets as there may be, and times that need many digits. */
static void test_crowded_plot(void **state) {
  (void)state;
  static const char *const words[] = {"memrun", "bench", "pressure", "--ablations"};
  struct sweep sweep;
  char list[PRESSURE_MAX_BUDGETS * 5] = "";
  char *svg = NULL;
  for (uint32_t i = 0; i < PRESSURE_MAX_BUDGETS; i++) {
    snprintf(list + strlen(list), sizeof list - strlen(list), "%s%u%%", i == 0 ? "" : ",", 20 + i);
  }
  sweep_init(&sweep, words, 4, list);
  for (uint32_t i = 0; i < sweep.pressure.row_count; i++) {
    if (sweep.pressure.rows[i].state == PRESSURE_WAITING) {
      measure(&sweep.pressure.rows[i], 0.001, 0.001);
    }
  }
  assert_int_equal(pressure_plot(&sweep.pressure, &svg), MR_OK);
  check_apart(svg, "<text class=\"middle\" x=\"%lf\" y=\"%lf\"", 47.8);
  check_apart(svg, "<text class=\"upwards\" transform=\"translate(%lf %lf)", 10);
  check_apart(svg, "<text class=\"upwards faint\" transform=\"translate(%lf %lf)", 10);
  double x = 0;
  double y = 0;
  const char *at = svg; /* digits are 7.6 wide at most */
  assert_true(next_text(&at, "<text class=\"end faint\" x=\"%lf\" y=\"%lf\"", &x, &y));
  assert_non_null(strstr(svg, ">0.0002</text>"));
  assert_true(x - 6 * 7.6 >= 20); /* right of the letters of the unit */
  free(svg);
  sweep_fini(&sweep);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_list),         cmocka_unit_test(test_bad_lists),
      cmocka_unit_test(test_rows),         cmocka_unit_test(test_words),
      cmocka_unit_test(test_figures),      cmocka_unit_test(test_plot),
      cmocka_unit_test(test_crowded_plot),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
