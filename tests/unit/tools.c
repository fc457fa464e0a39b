/* SPDX-License-Identifier: Apache-2.0 */
/* The command line's parts: suggestions, the table of options, the status line. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tools/job.h"
#include "tools/options.h"
#include "tools/output.h"
#include "tools/progress.h"
#include "tools/suggest.h"

static void quiet(void *context, mr_log_level level, const char *line) {
  (void)level;
  uint32_t *count = context;
  *count += *line != '\0';
}

static void test_distance(void **state) {
  (void)state;
  assert_int_equal(suggest_distance("", ""), 0);
  assert_int_equal(suggest_distance("offload", "offload"), 0);
  assert_int_equal(suggest_distance("ofload", "offload"), 1);
  assert_int_equal(suggest_distance("offlaod", "offload"), 1); /* a swap counts once */
  assert_int_equal(suggest_distance("", "abc"), 3);
  assert_int_equal(suggest_distance("kitten", "sitting"), 3);
  char longer[SUGGEST_MAX_LENGTH + 2];
  memset(longer, 'x', sizeof longer);
  longer[sizeof longer - 1] = '\0';
  assert_int_equal(suggest_distance(longer, "x"), UINT32_MAX);
}

static void test_suggestion(void **state) {
  (void)state;
  struct suggestion near = {.word = "ckpt-evry"};
  suggestion_offer(&near, "ckpt");
  suggestion_offer(&near, "ckpt-every");
  assert_string_equal(near.nearest, "ckpt-every");
  struct suggestion beginning = {.word = "weight"};
  suggestion_offer(&beginning, "width");
  suggestion_offer(&beginning, "weight-decay");
  assert_non_null(beginning.nearest);
  struct suggestion none = {.word = "zzz"};
  suggestion_offer(&none, "lr");
  suggestion_offer(&none, "seed");
  assert_null(none.nearest);
}

static void test_table(void **state) {
  (void)state;
  for (const struct option *row = options_table; row->name != NULL; row++) {
    assert_true(row->offset + sizeof(bool) <= sizeof(struct cli));
    assert_true(row->commands != 0);
    assert_int_equal(row->argument == NULL, row->kind == OPTION_FLAG || row->kind == OPTION_COUNT);
    for (const struct option *other = row + 1; other->name != NULL; other++) {
      assert_string_not_equal(row->name, other->name);
      assert_true(row->letter == 0 || row->letter != other->letter);
    }
  }
}

/* Reads words that the test owns; returns the status. */
static mr_status parse(struct cli *cli, const char *const *words, int count) {
  char text[16][64];
  char *arguments[16];
  assert_true(count <= 16);
  for (int i = 0; i < count; i++) {
    snprintf(text[i], sizeof text[i], "%s", words[i]);
    arguments[i] = text[i];
  }
  options_defaults(cli);
  return options_parse(cli, count, arguments);
}

static void test_parse(void **state) {
  (void)state;
  struct cli cli;
  const char *const words[] = {"memrun",     "--nvme",       "/mnt/a:1GiB", "plan",
                               "--nvme=b:c", "--device-mem", "1.5M",        "--betas",
                               "0.8,0.99",   "-vv",          "--seed",      "18446744073709551615",
                               "--offload",  "host"};
  assert_int_equal(parse(&cli, words, 14), MR_OK);
  assert_int_equal(cli.nvme_count, 2);
  assert_string_equal(cli.nvme[0].path, "/mnt/a");
  assert_true(cli.nvme[0].limit_bytes == 1ull << 30);
  assert_string_equal(cli.nvme[1].path, "b:c");
  assert_true(cli.nvme[1].limit_bytes == MR_BUDGET_AUTO);
  assert_int_equal(cli.verbose, 2);
  assert_true(cli.train.seed == UINT64_MAX);
  assert_true(cli.train.beta1 == 0.8 && cli.train.beta2 == 0.99);
  assert_int_equal(cli.train.run.offload, MR_OFFLOAD_HOST);
  assert_true(options_given(&cli, "seed"));
  assert_false(options_given(&cli, "steps"));
  options_free(&cli);
}

static void test_refused_budget(void **state) {
  (void)state;
  struct cli cli;
  uint32_t lines = 0;
  const char *const words[] = {"memrun", "train", "--device-mem", "1.5K"};
  mr_log_configure(quiet, &lines, MR_LOG_WARN);
  assert_int_equal(parse(&cli, words, 4), MR_INVALID);
  assert_int_equal(lines, 1);
  options_free(&cli);
  mr_log_configure(NULL, NULL, MR_LOG_WARN);
}

static void test_layout(void **state) {
  (void)state;
  static const char *const parts[] = {"step 5/20 loss 3.2100", "812 tokens/s",
                                      "device 99% host 80% nvme 1%",
                                      "out 0.10 in 0.10 read 1.20 write 0.90 GB/s"};
  char line[OUTPUT_STATUS_BYTES];
  for (uint32_t columns = 1; columns < 300; columns++) {
    progress_layout(line, parts, 4, 0.25, columns);
    assert_true(strlen(line) <= columns);
  }
  progress_layout(line, parts, 4, 0.25, 10);
  assert_string_equal(line, "step 5/20 ");
  progress_layout(line, parts, 4, 0.5, 35);
  assert_string_equal(line, "[#####.....]  step 5/20 loss 3.2100");
  progress_layout(line, parts, 4, 1, 200);
  assert_non_null(strstr(line, "[############################]"));
  assert_non_null(strstr(line, "write 0.90 GB/s"));
}

/* Large models too are told without powers of ten. */
static void test_parameters(void **state) {
  (void)state;
  struct job_count count;
  assert_string_equal(job_parameters_format(118528, &count), "0.1185 million");
  assert_string_equal(job_parameters_format(999999999, &count), "1000 million");
  assert_string_equal(job_parameters_format(64470000000, &count), "64.47 billion");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_distance),       cmocka_unit_test(test_suggestion),
      cmocka_unit_test(test_table),          cmocka_unit_test(test_parse),
      cmocka_unit_test(test_refused_budget), cmocka_unit_test(test_layout),
      cmocka_unit_test(test_parameters),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
