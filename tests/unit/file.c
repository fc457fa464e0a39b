/* SPDX-License-Identifier: Apache-2.0 */
/* Files that appear whole or not at all. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

static char folder[64];
static char path[96];

static int set_up(void **state) {
  (void)state;
  snprintf(folder, sizeof folder, "/tmp/memrun-file-XXXXXX");
  assert_non_null(mkdtemp(folder));
  snprintf(path, sizeof path, "%s/out", folder);
  return 0;
}

static int tear_down(void **state) {
  (void)state;
  (void)unlink(path);
  return rmdir(folder); /* fails where anything else was left */
}

static void holds(const char *text) {
  char found[64] = {0};
  FILE *file = fopen(path, "re");
  assert_non_null(file);
  size_t count = fread(found, 1, sizeof found - 1, file);
  assert_int_equal(count, strlen(text));
  assert_string_equal(found, text);
  assert_int_equal(fclose(file), 0);
}

static void a_file_takes_the_place_of_another(void **state) {
  (void)state;
  assert_true(mr_file_write(path, "first"));
  holds("first");
  assert_true(mr_file_write(path, "second"));
  holds("second");
}

/* A disk that takes four bytes and no more, as the process's own limit has it. */
static void a_file_that_the_disk_does_not_take_leaves_the_one_before(void **state) {
  (void)state;
  struct rlimit before;
  assert_true(mr_file_write(path, "first"));
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
  struct rlimit little = {.rlim_cur = 4, .rlim_max = before.rlim_max};
  void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &little), 0);
  errno = 0;
  bool written = mr_file_write(path, "second");
  int error = errno;
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
  signal(SIGXFSZ, handler);
  assert_false(written);
  assert_int_equal(error, EFBIG);
  holds("first");
}

static void what_its_writer_gives_up_is_gone(void **state) {
  (void)state;
  struct mr_new_file file;
  assert_true(mr_file_write(path, "first"));
  assert_true(mr_new_file_open(&file, path));
  assert_true(fputs("half", file.stream) >= 0);
  assert_false(mr_new_file_close(&file, false));
  assert_int_equal(errno, EIO);
  holds("first");
}

/* As two threads that end a run each, or processes of two containers in one folder. */
static void two_writers_do_not_mix(void **state) {
  (void)state;
  struct mr_new_file first, second;
  assert_true(mr_new_file_open(&first, path));
  assert_true(fputs("the first and longer one", first.stream) >= 0);
  assert_true(mr_new_file_open(&second, path));
  assert_true(fputs("the second", second.stream) >= 0);
  assert_true(mr_new_file_close(&second, true));
  holds("the second");
  assert_true(mr_new_file_close(&first, true));
  holds("the first and longer one");
}

static void a_missing_folder_is_told(void **state) {
  (void)state;
  char missing[128];
  snprintf(missing, sizeof missing, "%s/none/out", folder);
  assert_false(mr_file_write(missing, "text"));
  assert_int_equal(errno, ENOENT);
}

/* As --out /dev/stdout where the shell has sent that to a file, which goes on behind it. */
static void what_is_open_goes_on_where_it_stands(void **state) {
  (void)state;
  char opened[64];
  assert_true(mr_file_write(path, ""));
  int fd = open(path, O_WRONLY | O_CLOEXEC);
  assert_true(fd >= 0);
  snprintf(opened, sizeof opened, "/dev/fd/%d", fd);
  assert_int_equal(write(fd, "begin, ", 7), 7);
  assert_true(mr_file_write(opened, "text"));
  assert_int_equal(write(fd, ", end", 5), 5);
  assert_int_equal(close(fd), 0);
  holds("begin, text, end");
  assert_false(mr_file_write(opened, "text"));
}

/* As /dev/stdout is one: what it points to is written, and it stays. */
static void a_link_is_written_through(void **state) {
  (void)state;
  char link_path[128];
  struct stat found;
  snprintf(link_path, sizeof link_path, "%s/link", folder);
  assert_int_equal(symlink(path, link_path), 0);
  assert_true(mr_file_write(link_path, "text"));
  holds("text");
  assert_int_equal(lstat(link_path, &found), 0);
  assert_true(S_ISLNK(found.st_mode));
  assert_int_equal(unlink(link_path), 0);
}

/* Nor is what a link leads to lost where the disk does not take what is new. */
static void a_link_to_a_file_leaves_the_one_before(void **state) {
  (void)state;
  char link_path[128];
  struct mr_new_file file;
  snprintf(link_path, sizeof link_path, "%s/link", folder);
  assert_true(mr_file_write(path, "first"));
  assert_int_equal(symlink("out", link_path), 0);
  assert_true(mr_new_file_open(&file, link_path));
  assert_true(fputs("half", file.stream) >= 0 && fflush(file.stream) == 0);
  holds("first");
  assert_false(mr_new_file_close(&file, false));
  holds("first");
  assert_true(mr_file_write(link_path, "second"));
  holds("second");
  assert_int_equal(unlink(link_path), 0);
}

/* A device is written to, not replaced. */
static void what_is_no_file_stays_what_it_is(void **state) {
  (void)state;
  struct stat found;
  assert_true(mr_file_write("/dev/null", "text"));
  assert_int_equal(stat("/dev/null", &found), 0);
  assert_true(S_ISCHR(found.st_mode));
  assert_false(mr_file_write("/dev/full", "text"));
  assert_int_equal(errno, ENOSPC);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(a_file_takes_the_place_of_another, set_up, tear_down),
      cmocka_unit_test_setup_teardown(a_file_that_the_disk_does_not_take_leaves_the_one_before,
                                      set_up, tear_down),
      cmocka_unit_test_setup_teardown(what_its_writer_gives_up_is_gone, set_up, tear_down),
      cmocka_unit_test_setup_teardown(two_writers_do_not_mix, set_up, tear_down),
      cmocka_unit_test_setup_teardown(a_missing_folder_is_told, set_up, tear_down),
      cmocka_unit_test_setup_teardown(what_is_open_goes_on_where_it_stands, set_up, tear_down),
      cmocka_unit_test_setup_teardown(a_link_is_written_through, set_up, tear_down),
      cmocka_unit_test_setup_teardown(a_link_to_a_file_leaves_the_one_before, set_up, tear_down),
      cmocka_unit_test_setup_teardown(what_is_no_file_stays_what_it_is, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
