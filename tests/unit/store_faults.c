/* SPDX-License-Identifier: Apache-2.0 */
/* Every injected fault at every n of a short run, and what others may do to the file behind the
 * store's back: mended where it can be, one line and the right status where not, never silence. */
#include <fcntl.h>

#include "tests/unit/store_helpers.h"

#define CHUNKS 5u
#define TAIL   1000u
#define BYTES  ((CHUNKS - 1) * CHUNK + TAIL)

static mr_io_engine engines[2];
static uint32_t engine_count;

struct setup {
  struct mr_store *store;
  uint32_t extent;
  uint8_t *data; /* what was or will be written */
  uint8_t *back;
};

static struct setup start(mr_io_engine engine, mr_store_mode mode, const char *inject) {
  struct setup setup = {.data = test_memory(BYTES), .back = test_memory(BYTES)};
  struct mr_store_options options = test_options(1, 2 * CHUNKS);
  options.engine = engine;
  options.mode = mode;
  options.inject = inject;
  options.timeout_seconds = strstr(inject, "hang") != NULL ? 0.2 : 30;
  assert_int_equal(mr_store_create(&options, &setup.store), MR_OK);
  assert_int_equal(mr_store_extent_create(setup.store, BYTES, "h.3.weight", &setup.extent), MR_OK);
  test_fill(setup.data, BYTES, 0, 11);
  test_log_reset();
  return setup;
}

static void finish(struct setup *setup) {
  assert_true(mr_store_destroy(setup->store));
  free(setup->data);
  free(setup->back);
}

static mr_status write_all(struct setup *setup) {
  mr_status status = test_move(setup->store, setup->extent, true, 0, BYTES, setup->data);
  uint8_t *same = setup->back;
  test_fill(same, BYTES, 0, 11);
  assert_memory_equal(setup->data, same, BYTES); /* a write never changes its source */
  return status;
}

static mr_status read_all(struct setup *setup) {
  memset(setup->back, 0x5a, BYTES);
  mr_status status = test_move(setup->store, setup->extent, false, 0, BYTES, setup->back);
  if (status == MR_OK) {
    assert_memory_equal(setup->data, setup->back, BYTES);
  }
  return status;
}

static struct mr_store_stats stats_of(const struct setup *setup) {
  struct mr_store_stats stats;
  mr_store_get_stats(setup->store, &stats);
  return stats;
}

/* What a run with one fault must give. */
struct expectation {
  const char *fault;
  mr_status write;
  mr_status read;       /* after a write that succeeded */
  mr_status read_after; /* the same again, after the fault */
  bool retried;
};

static void run_one(mr_io_engine engine, mr_store_mode mode, const struct expectation *expected,
                    uint32_t nth) {
  char inject[64];
  snprintf(inject, sizeof inject, "%s:%u", expected->fault, nth);
  struct setup setup = start(engine, mode, inject);
  bool reached = nth <= CHUNKS;
  mr_status write_expected = reached ? expected->write : MR_OK;
  assert_int_equal(write_all(&setup), write_expected);
  if (write_expected != MR_OK) {
    assert_int_equal(test_log.errors, 1);
    assert_non_null(strstr(test_log.last_error, "h.3.weight"));
    assert_int_equal(read_all(&setup), MR_INVALID); /* the chunk that failed holds nothing */
    assert_int_equal(write_all(&setup), MR_OK);
    assert_int_equal(read_all(&setup), MR_OK);
    finish(&setup);
    return;
  }
  assert_int_equal(read_all(&setup), reached ? expected->read : MR_OK);
  assert_int_equal(test_log.errors, reached && expected->read != MR_OK ? 1 : 0);
  assert_int_equal(read_all(&setup), reached ? expected->read_after : MR_OK);
  assert_true(stats_of(&setup).retries > 0 || !expected->retried || !reached);
  finish(&setup);
}

static void test_every_fault_at_every_n(void **state) {
  (void)state;
  static const struct expectation expectations[] = {
      {"read:eio", MR_OK, MR_OK, MR_OK, true},
      {"read:enospc", MR_OK, MR_OK, MR_OK, true},
      {"read:short", MR_OK, MR_OK, MR_OK, false}, /* the tail is too short to shorten */
      {"read:flip", MR_OK, MR_OK, MR_OK, true},
      {"write:eio", MR_IO, MR_OK, MR_OK, false},
      {"write:enospc", MR_NO_SPACE, MR_OK, MR_OK, false},
      {"write:short", MR_OK, MR_OK, MR_OK, false},
      {"write:flip", MR_OK, MR_CORRUPT, MR_CORRUPT, true},
  };
  for (uint32_t i = 0; i < engine_count; i++) {
    for (uint32_t j = 0; j < MR_COUNT_OF(expectations); j++) {
      for (uint32_t nth = 1; nth <= CHUNKS + 1; nth++) {
        run_one(engines[i], MR_STORE_STAGED, &expectations[j], nth);
        run_one(engines[i], MR_STORE_DIRECT, &expectations[j], nth);
      }
    }
  }
}

/* A fault that comes back on the second try lasts. */
static void test_lasting_faults(void **state) {
  (void)state;
  static const struct {
    const char *inject;
    mr_status write;
    mr_status read;
  } cases[] = {
      {"read:eio:0", MR_OK, MR_IO},
      {"read:flip:0", MR_OK, MR_CORRUPT},
      {"write:eio:0", MR_IO, MR_INVALID},
      {"write:enospc:0", MR_NO_SPACE, MR_INVALID},
      {"read:short:0", MR_OK, MR_OK},
      {"write:short:0", MR_OK, MR_OK},
      {"write:short:0,read:short:0", MR_OK, MR_OK},
  };
  for (uint32_t i = 0; i < engine_count; i++) {
    for (uint32_t j = 0; j < MR_COUNT_OF(cases); j++) {
      for (mr_store_mode mode = MR_STORE_STAGED; mode <= MR_STORE_DIRECT; mode++) {
        struct setup setup = start(engines[i], mode, cases[j].inject);
        assert_int_equal(write_all(&setup), cases[j].write);
        assert_int_equal(read_all(&setup), cases[j].read);
        assert_true(test_log.errors <= 1);
        if (strstr(cases[j].inject, "short") != NULL) {
          assert_true(stats_of(&setup).retries > CHUNKS);
        }
        finish(&setup);
      }
    }
  }
}

/* What a stuck transfer may still write to stays; see store.h. */
static struct setup stuck_setups[4];
static struct setup half_stuck_setups[2];

/* A transfer that never comes back ends at the limit, and so does everything after it. */
static void test_hang(void **state) {
  (void)state;
  static const char *const injections[] = {"read:hang:2", "write:hang:3"};
  for (uint32_t i = 0; i < engine_count; i++) {
    for (uint32_t j = 0; j < MR_COUNT_OF(injections); j++) {
      struct setup setup = start(engines[i], MR_STORE_STAGED, injections[j]);
      double before = mr_clock_seconds();
      mr_status status = write_all(&setup);
      status = status != MR_OK ? status : read_all(&setup);
      double waited = mr_clock_seconds() - before;
      assert_int_equal(status, MR_TIMEOUT);
      assert_true(waited >= 0.2 && waited < 5);
      assert_int_equal(test_log.errors, 1);
      assert_non_null(strstr(test_log.last_error, "h.3.weight"));
      assert_non_null(strstr(test_log.last_error, test_directories[0]));
      before = mr_clock_seconds();
      assert_int_equal(read_all(&setup), MR_TIMEOUT);
      assert_true(mr_clock_seconds() - before < 0.15); /* not another limit */
      before = mr_clock_seconds();
      assert_false(mr_store_destroy(setup.store));
      assert_true(mr_clock_seconds() - before < 5);
      stuck_setups[2 * i + j] = setup;
    }
  }
}

/* A request that is stuck in part is told as that, though another part has failed before: its
 * memory may still be written to. */
static void test_hang_beside_an_error(void **state) {
  (void)state;
  for (uint32_t i = 0; i < engine_count; i++) {
    struct setup *setup = &half_stuck_setups[i];
    *setup = start(engines[i], MR_STORE_STAGED, "read:hang:1,read:eio:2,read:eio:0");
    assert_int_equal(write_all(setup), MR_OK);
    assert_int_equal(read_all(setup), MR_TIMEOUT);
    assert_false(mr_store_destroy(setup->store));
  }
}

/* More writes than the disk may have, none of which comes back: what was prepared and what was
 * queued ends too, and only once. */
static void test_hang_of_many(void **state) {
  (void)state;
  enum { MANY = 2 * MR_STORE_SLOTS };
  static uint8_t *data; /* stays: see store.h */
  data = test_memory(MANY * CHUNK);
  test_fill(data, MANY * CHUNK, 0, 5);
  for (uint32_t i = 0; i < engine_count; i++) {
    for (mr_store_mode mode = MR_STORE_STAGED; mode <= MR_STORE_DIRECT; mode++) {
      struct mr_store_options options = test_options(1, MANY);
      options.engine = engines[i];
      options.mode = mode;
      options.inject = "write:hang:0";
      options.timeout_seconds = 0.2;
      struct mr_store *store = NULL;
      uint32_t extent = 0;
      assert_int_equal(mr_store_create(&options, &store), MR_OK);
      assert_int_equal(mr_store_extent_create(store, MANY * CHUNK, "h.4.weight", &extent), MR_OK);
      test_log_reset();
      assert_int_equal(test_move(store, extent, true, 0, MANY * CHUNK, data), MR_TIMEOUT);
      assert_int_equal(test_log.errors, 1);
      assert_false(mr_store_destroy(store));
    }
  }
}

/* Opens the unlinked file as anyone could who may look into the process. */
static int open_behind(const struct setup *setup) {
  char name[64];
  snprintf(name, sizeof name, "/proc/self/fd/%d", setup->store->lanes[0].fd);
  int fd = open(name, O_RDWR);
  assert_true(fd >= 0);
  return fd;
}

static off_t place_of(const struct setup *setup, uint64_t chunk) {
  return (off_t)(mr_extent_place(setup->store, setup->extent, chunk) * CHUNK);
}

static void expect_corrupt(struct setup *setup, int fd) {
  assert_int_equal(fsync(fd), 0);
  test_log_reset();
  assert_int_equal(read_all(setup), MR_CORRUPT);
  assert_int_equal(test_log.errors, 1);
  assert_non_null(strstr(test_log.last_error, "h.3.weight"));
  assert_true(stats_of(setup).crc_failures >= 2);
  close(fd);
  finish(setup);
}

static void run_flipped_bit(mr_io_engine engine, mr_store_mode mode, off_t at) {
  struct setup setup = start(engine, mode, "");
  assert_int_equal(write_all(&setup), MR_OK);
  int fd = open_behind(&setup);
  uint8_t byte = 0;
  assert_int_equal(pread(fd, &byte, 1, at), 1);
  byte ^= 1;
  assert_int_equal(pwrite(fd, &byte, 1, at), 1);
  expect_corrupt(&setup, fd);
}

/* The chunk as it was before its last write: a lost write. */
static void run_stale(mr_io_engine engine, mr_store_mode mode) {
  struct setup setup = start(engine, mode, "");
  uint8_t *old = test_memory(CHUNK);
  assert_int_equal(write_all(&setup), MR_OK);
  int fd = open_behind(&setup);
  assert_int_equal(pread(fd, old, CHUNK, place_of(&setup, 1)), CHUNK);
  test_fill(setup.data, BYTES, 0, 12);
  assert_int_equal(test_move(setup.store, setup.extent, true, 0, BYTES, setup.data), MR_OK);
  assert_int_equal(pwrite(fd, old, CHUNK, place_of(&setup, 1)), CHUNK);
  free(old);
  expect_corrupt(&setup, fd);
}

/* A chunk with another's whole bytes: a write that went to the wrong place. */
static void run_misdirected(mr_io_engine engine, mr_store_mode mode) {
  struct setup setup = start(engine, mode, "");
  uint8_t *other = test_memory(CHUNK);
  assert_int_equal(write_all(&setup), MR_OK);
  int fd = open_behind(&setup);
  assert_int_equal(pread(fd, other, CHUNK, place_of(&setup, 2)), CHUNK);
  assert_int_equal(pwrite(fd, other, CHUNK, place_of(&setup, 1)), CHUNK);
  free(other);
  expect_corrupt(&setup, fd);
}

static void test_changed_behind_its_back(void **state) {
  (void)state;
  for (uint32_t i = 0; i < engine_count; i++) {
    for (mr_store_mode mode = MR_STORE_STAGED; mode <= MR_STORE_DIRECT; mode++) {
      run_flipped_bit(engines[i], mode, 0);
      run_flipped_bit(engines[i], mode, (off_t)(3 * CHUNK - 1));
      run_flipped_bit(engines[i], mode, (off_t)(BYTES - 1));
      run_stale(engines[i], mode);
      run_misdirected(engines[i], mode);
    }
  }
}

static void test_file_cut_off(void **state) {
  (void)state;
  for (uint32_t i = 0; i < engine_count; i++) {
    struct setup setup = start(engines[i], MR_STORE_STAGED, "");
    assert_int_equal(write_all(&setup), MR_OK);
    assert_int_equal(ftruncate(setup.store->lanes[0].fd, CHUNK + 8192), 0);
    assert_int_equal(read_all(&setup), MR_CORRUPT);
    assert_int_equal(test_log.errors, 1);
    finish(&setup);
  }
}

/* The same place and bytes under a new extent: the old tenant's chunk is no valid one. */
static void test_reused_place(void **state) {
  (void)state;
  struct setup setup = start(engines[0], MR_STORE_STAGED, "");
  assert_int_equal(write_all(&setup), MR_OK);
  mr_store_extent_destroy(setup.store, setup.extent);
  assert_int_equal(mr_store_extent_create(setup.store, BYTES, "new", &setup.extent), MR_OK);
  assert_int_equal(read_all(&setup), MR_INVALID);
  mr_store_extent_zero(setup.store, setup.extent);
  memset(setup.data, 0, BYTES);
  assert_int_equal(read_all(&setup), MR_OK);
  finish(&setup);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_every_fault_at_every_n),
      cmocka_unit_test(test_lasting_faults),
      cmocka_unit_test(test_hang),
      cmocka_unit_test(test_hang_beside_an_error),
      cmocka_unit_test(test_hang_of_many),
      cmocka_unit_test(test_changed_behind_its_back),
      cmocka_unit_test(test_file_cut_off),
      cmocka_unit_test(test_reused_place),
  };
  test_log_start();
  if (test_directories_make(NULL) != 0) {
    return 1;
  }
  engine_count = test_engines(engines);
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  return failed + (test_directories_remove(NULL) != 0 ? 1 : 0);
}
