/* SPDX-License-Identifier: Apache-2.0 */
/* The store on both engines: what was written comes back, whatever the ranges, classes, modes and
 * paths; requests end in order and exactly once. */
#include "tests/unit/store_helpers.h"

static mr_io_engine engines[2];
static uint32_t engine_count;

#define EXTENTS 12u
#define LONGEST 9u /* chunks */

struct random_test {
  struct mr_store *store;
  struct mr_random random;
  uint32_t extents[EXTENTS];
  uint64_t bytes[EXTENTS];
  bool live[EXTENTS];
  uint32_t versions[EXTENTS][LONGEST]; /* of each chunk; 0: zeros */
  uint8_t *data;
  uint8_t *expected;
};

static uint64_t chunk_bytes(const struct random_test *test, uint32_t which, uint64_t chunk) {
  return mr_min_u64(CHUNK, test->bytes[which] - chunk * CHUNK);
}

static void make_expected(struct random_test *test, uint32_t which, uint64_t first,
                          uint64_t count) {
  for (uint64_t i = 0; i < count; i++) {
    uint64_t bytes = chunk_bytes(test, which, first + i);
    uint32_t version = test->versions[which][first + i];
    if (version == 0) {
      memset(test->expected + i * CHUNK, 0, bytes);
    } else {
      test_fill(test->expected + i * CHUNK, bytes, (which * LONGEST + first + i) * CHUNK, version);
    }
  }
}

static void recreate(struct random_test *test, uint32_t which) {
  if (test->live[which]) {
    mr_store_extent_destroy(test->store, test->extents[which]);
  }
  test->bytes[which] = 1 + mr_random_below(&test->random, LONGEST * CHUNK);
  if (mr_random_below(&test->random, 2) == 0) {
    test->bytes[which] = mr_round_up(test->bytes[which], CHUNK);
  }
  assert_int_equal(
      mr_store_extent_create(test->store, test->bytes[which], "some tensor", &test->extents[which]),
      MR_OK);
  mr_store_extent_zero(test->store, test->extents[which]);
  memset(test->versions[which], 0, sizeof test->versions[which]);
  test->live[which] = true;
}

static void move_some(struct random_test *test, uint32_t which, uint32_t version) {
  uint64_t chunks = mr_div_up(test->bytes[which], CHUNK);
  uint64_t first = mr_random_below(&test->random, chunks);
  uint64_t count = 1 + mr_random_below(&test->random, chunks - first);
  uint64_t offset = first * CHUNK;
  uint64_t bytes = mr_min_u64(count * CHUNK, test->bytes[which] - offset);
  /* Off the 4096-byte edge now and then, where transfers cannot be direct. */
  uint8_t *data = test->data + (mr_random_below(&test->random, 3) == 0 ? 64 : 0);
  bool write = mr_random_below(&test->random, 2) == 0;
  if (write) {
    for (uint64_t i = 0; i < count; i++) {
      test->versions[which][first + i] = version;
    }
  }
  make_expected(test, which, first, count);
  if (write) {
    memcpy(data, test->expected, bytes);
  } else {
    memset(data, 0xa5, bytes);
  }
  struct mr_store_request request = {.extent = test->extents[which],
                                     .write = write,
                                     .io_class = (mr_io_class)mr_random_below(&test->random, 3),
                                     .offset_bytes = offset,
                                     .bytes = bytes,
                                     .data = data};
  assert_int_equal(mr_store_transfer(test->store, &request), MR_OK);
  assert_memory_equal(data, test->expected, bytes);
}

static void run_random(mr_io_engine engine, mr_store_mode mode, uint32_t paths, uint64_t seed) {
  struct random_test *test = calloc(1, sizeof *test);
  assert_non_null(test);
  mr_random_init(&test->random, seed);
  test->data = test_memory(LONGEST * CHUNK + 64);
  test->expected = test_memory(LONGEST * CHUNK);
  struct mr_store_options options = test_options(paths, EXTENTS * LONGEST);
  options.engine = engine;
  options.mode = mode;
  if (paths > 1) {
    options.path_weights[0] = 1;
    options.path_weights[1] = 2.5;
    options.paths[paths - 1].limit_bytes = (EXTENTS * LONGEST / 3) * CHUNK;
    options.path_weights[paths - 1] = 1;
  }
  assert_int_equal(mr_store_create(&options, &test->store), MR_OK);
  for (uint32_t i = 0; i < EXTENTS; i++) {
    recreate(test, i);
  }
  for (uint32_t i = 1; i <= 150; i++) {
    uint32_t which = (uint32_t)mr_random_below(&test->random, EXTENTS);
    if (mr_random_below(&test->random, 10) == 0) {
      recreate(test, which);
    }
    move_some(test, which, i);
  }
  struct mr_store_stats stats;
  mr_store_get_stats(test->store, &stats);
  assert_int_equal(stats.crc_failures, 0);
  assert_int_equal(stats.uring, engine == MR_IO_URING);
  assert_int_equal(stats.reserved_bytes, EXTENTS * LONGEST * CHUNK);
  mr_store_destroy(test->store);
  free(test->data);
  free(test->expected);
  free(test);
}

static void test_random_transfers(void **state) {
  (void)state;
  uint64_t seed = mr_clock_ns();
  print_message("seed %llu\n", (unsigned long long)seed);
  test_log_reset();
  for (uint32_t i = 0; i < engine_count; i++) {
    for (uint32_t paths = 1; paths <= TEST_DIRECTORIES; paths += 2) {
      run_random(engines[i], MR_STORE_STAGED, paths, seed);
      run_random(engines[i], MR_STORE_DIRECT, paths, seed + 1);
    }
  }
  assert_int_equal(test_log.errors, 0);
}

#define FLOOD 64u

struct flood {
  _Atomic uint32_t ended[FLOOD];
  _Atomic uint32_t statuses[16];
  _Atomic uint32_t left;
};

static struct mr_store_request flood_requests[FLOOD];

static void flood_done(struct mr_store_request *request, mr_status status) {
  struct flood *flood = request->context;
  atomic_fetch_add(&flood->ended[request - flood_requests], 1);
  atomic_fetch_add(&flood->statuses[status], 1);
  atomic_fetch_sub(&flood->left, 1);
}

static void flood_wait(struct flood *flood) {
  while (atomic_load(&flood->left) > 0) {
    usleep(200);
  }
}

/* Sends many requests at once; each has its own memory and extent. */
static void flood_start(struct mr_store *store, struct flood *flood, const uint32_t *extents,
                        uint8_t *data, uint64_t bytes, bool write) {
  memset(flood, 0, sizeof *flood);
  atomic_store(&flood->left, FLOOD);
  for (uint32_t i = 0; i < FLOOD; i++) {
    flood_requests[i] = (struct mr_store_request){.extent = extents[i],
                                                  .write = write,
                                                  .io_class = (mr_io_class)(i % 3),
                                                  .bytes = bytes,
                                                  .data = data + i * bytes,
                                                  .done = flood_done,
                                                  .context = flood};
    mr_store_submit(store, &flood_requests[i]);
  }
}

static void run_flood(mr_io_engine engine, mr_store_mode mode, bool cut_short) {
  enum { CHUNKS = 3 };
  uint64_t bytes = CHUNKS * CHUNK;
  struct mr_store_options options = test_options(TEST_DIRECTORIES, FLOOD * CHUNKS);
  options.engine = engine;
  options.mode = mode;
  struct mr_store *store = NULL;
  assert_int_equal(mr_store_create(&options, &store), MR_OK);
  uint32_t extents[FLOOD];
  uint8_t *data = test_memory(FLOOD * bytes);
  uint8_t *back = test_memory(FLOOD * bytes);
  test_fill(data, FLOOD * bytes, 0, 7);
  memset(back, 0, FLOOD * bytes);
  for (uint32_t i = 0; i < FLOOD; i++) {
    assert_int_equal(mr_store_extent_create(store, bytes, "flood", &extents[i]), MR_OK);
  }
  uint32_t none = 0;
  assert_int_equal(mr_store_extent_create(store, 1, "one too many", &none), MR_NO_SPACE);
  static struct flood flood;
  flood_start(store, &flood, extents, data, bytes, true);
  if (!cut_short) {
    flood_wait(&flood);
    assert_int_equal(flood.statuses[MR_OK], FLOOD);
    flood_start(store, &flood, extents, back, bytes, false);
    for (uint32_t i = 1; i < FLOOD; i += 3) {
      mr_store_promote(store, &flood_requests[i]);
    }
    flood_wait(&flood);
    assert_int_equal(flood.statuses[MR_OK], FLOOD);
    assert_memory_equal(data, back, FLOOD * bytes);
  }
  mr_store_destroy(store);
  assert_int_equal(flood.left, 0);
  assert_int_equal(flood.statuses[MR_OK] + flood.statuses[MR_INTERRUPTED], FLOOD);
  for (uint32_t i = 0; i < FLOOD; i++) {
    assert_int_equal(flood.ended[i], 1);
  }
  free(back);
  free(data);
}

static void test_many_at_once(void **state) {
  (void)state;
  for (uint32_t i = 0; i < engine_count; i++) {
    run_flood(engines[i], MR_STORE_STAGED, false);
    run_flood(engines[i], MR_STORE_DIRECT, false);
  }
}

static void test_destroy_in_flight(void **state) {
  (void)state;
  for (uint32_t i = 0; i < engine_count; i++) {
    for (uint32_t round = 0; round < 5; round++) {
      run_flood(engines[i], round % 2 == 0 ? MR_STORE_STAGED : MR_STORE_DIRECT, true);
    }
  }
}

/* Both ways of copying in give the same bytes and checksum, and a lane changes over for a while
 * when the one through the caches has become dear. */
static void test_copies(void **state) {
  (void)state;
  uint8_t *data = test_memory(CHUNK);
  uint8_t *pool = test_memory(CHUNK);
  uint8_t *back = test_memory(CHUNK);
  test_fill(data, CHUNK, 0, 4);
  static const uint32_t lengths[] = {1, 63, 64, 1000, 16384, 16385, 100001, CHUNK};
  for (uint32_t i = 0; i < MR_COUNT_OF(lengths); i++) {
    uint32_t seed = mr_chunk_seed(i, 2, 3);
    uint32_t crc = mr_chunk_crc(data, lengths[i], seed);
    for (uint32_t past = 0; past < 2; past++) {
      struct mr_copier copier = {.past_left = past, .turn = 1};
      memset(pool, 0, CHUNK);
      memset(back, 0, CHUNK);
      assert_int_equal(mr_chunk_copy_in(&copier, pool, data, lengths[i], &seed), crc);
      assert_int_equal(copier.past_left, 0);
      assert_int_equal(mr_chunk_copy_out(back, pool, lengths[i], seed), crc);
      assert_memory_equal(pool, data, lengths[i]);
      assert_memory_equal(back, data, lengths[i]);
    }
  }
  struct mr_copier copier = {.past_ns = 1, .turn = 1};
  (void)mr_chunk_copy_in(&copier, pool, data, CHUNK, NULL);
  assert_true(copier.past_left > 0);
  assert_memory_equal(pool, data, CHUNK);
  free(back);
  free(pool);
  free(data);
}

/* Every chunk of the capacity can be used, however the free ones lie on the paths. */
static void test_last_chunk(void **state) {
  (void)state;
  enum { ALL = 30 };
  struct mr_store_options options = test_options(TEST_DIRECTORIES, ALL);
  options.path_weights[0] = 5;
  options.path_weights[1] = 2;
  options.path_weights[2] = 1;
  struct mr_store *store = NULL;
  assert_int_equal(mr_store_create(&options, &store), MR_OK);
  assert_int_equal(store->lane_count, TEST_DIRECTORIES);
  assert_true(store->lanes[0].chunk_count > store->lanes[1].chunk_count);
  uint8_t *data = test_memory(ALL * CHUNK);
  uint8_t *back = test_memory(ALL * CHUNK);
  test_fill(data, ALL * CHUNK, 0, 9);
  uint32_t small[ALL];
  uint32_t large = 0;
  for (uint32_t i = 0; i < ALL; i++) {
    assert_int_equal(mr_store_extent_create(store, CHUNK, "small", &small[i]), MR_OK);
    assert_int_equal(test_move(store, small[i], true, 0, CHUNK, data + i * CHUNK), MR_OK);
  }
  for (uint32_t i = 0; i < ALL; i += 2) {
    mr_store_extent_destroy(store, small[i]);
  }
  uint64_t bytes = ALL / 2 * CHUNK;
  assert_int_equal(mr_store_extent_create(store, bytes + 1, "too large", &large), MR_NO_SPACE);
  assert_int_equal(mr_store_extent_create(store, bytes, "large", &large), MR_OK);
  assert_int_equal(test_move(store, large, true, 0, bytes, data), MR_OK);
  for (uint32_t i = 1; i < ALL; i += 2) {
    assert_int_equal(test_move(store, small[i], false, 0, CHUNK, back), MR_OK);
    assert_memory_equal(back, data + i * CHUNK, CHUNK);
    mr_store_extent_destroy(store, small[i]);
  }
  assert_int_equal(test_move(store, large, false, 0, bytes, back), MR_OK);
  assert_memory_equal(back, data, bytes);
  mr_store_extent_destroy(store, large);
  assert_int_equal(mr_store_extent_create(store, ALL * CHUNK, "all", &large), MR_OK);
  assert_int_equal(test_move(store, large, true, 0, ALL * CHUNK, data), MR_OK);
  assert_int_equal(test_move(store, large, false, 0, ALL * CHUNK, back), MR_OK);
  assert_memory_equal(back, data, ALL * CHUNK);
  mr_store_destroy(store);
  free(back);
  free(data);
}

static void test_two_stores_on_one_path(void **state) {
  (void)state;
  struct mr_store_options options = test_options(1, 8);
  struct mr_store *stores[2];
  uint32_t extents[2];
  uint8_t *data[2];
  for (uint32_t i = 0; i < 2; i++) {
    options.engine = engines[i % engine_count];
    assert_int_equal(mr_store_create(&options, &stores[i]), MR_OK);
    assert_int_equal(mr_store_extent_create(stores[i], 4 * CHUNK, "mine", &extents[i]), MR_OK);
    data[i] = test_memory(4 * CHUNK);
    test_fill(data[i], 4 * CHUNK, 0, i + 1);
    assert_int_equal(test_move(stores[i], extents[i], true, 0, 4 * CHUNK, data[i]), MR_OK);
  }
  uint8_t *back = test_memory(4 * CHUNK);
  for (uint32_t i = 0; i < 2; i++) {
    assert_int_equal(test_move(stores[i], extents[i], false, 0, 4 * CHUNK, back), MR_OK);
    assert_memory_equal(back, data[i], 4 * CHUNK);
    mr_store_destroy(stores[i]);
    free(data[i]);
  }
  free(back);
}

static void test_bad_requests(void **state) {
  (void)state;
  struct mr_store_options options = test_options(1, 8);
  struct mr_store *store = NULL;
  assert_int_equal(mr_store_create(&options, &store), MR_OK);
  uint32_t extent = 0;
  uint64_t bytes = 2 * CHUNK + 1000;
  assert_int_equal(mr_store_extent_create(store, bytes, "odd", &extent), MR_OK);
  uint8_t *data = test_memory(4 * CHUNK);
  memset(data, 1, 4 * CHUNK);
  assert_int_equal(test_move(store, extent, false, 0, CHUNK, data), MR_INVALID); /* not written */
  assert_int_equal(test_move(store, extent, true, 0, bytes + 1, data), MR_INVALID);
  assert_int_equal(test_move(store, extent, true, 0, CHUNK + 1000, data), MR_INVALID);
  assert_int_equal(test_move(store, extent, true, 4096, CHUNK, data), MR_INVALID);
  assert_int_equal(test_move(store, extent, true, UINT64_MAX / CHUNK * CHUNK, CHUNK, data),
                   MR_INVALID);
  assert_int_equal(test_move(store, extent, true, 0, CHUNK, data + 8), MR_INVALID);
  assert_int_equal(test_move(store, extent, true, 0, CHUNK, NULL), MR_INVALID);
  assert_int_equal(test_move(store, extent + 1, true, 0, CHUNK, data), MR_INVALID);
  assert_int_equal(test_move(store, extent, true, 0, 0, data), MR_OK); /* nothing to do */
  /* Writing one chunk leaves its neighbours alone, and the tail is a chunk of its own. */
  assert_int_equal(test_move(store, extent, true, 2 * CHUNK, 1000, data), MR_OK);
  assert_int_equal(test_move(store, extent, false, 2 * CHUNK, 1000, data), MR_OK);
  assert_int_equal(test_move(store, extent, false, CHUNK, CHUNK, data), MR_INVALID);
  uint32_t none = 0;
  assert_int_equal(mr_store_extent_create(store, 0, "empty", &none), MR_INVALID);
  mr_store_extent_destroy(store, extent);
  assert_int_equal(test_move(store, extent, true, 0, CHUNK, data), MR_INVALID);
  mr_store_destroy(store);
  free(data);
}

static void test_bad_options(void **state) {
  (void)state;
  struct mr_store *store = NULL;
  struct mr_store_options options = test_options(1, 0);
  assert_int_equal(mr_store_create(&options, &store), MR_INVALID);
  options = test_options(0, 8);
  assert_int_equal(mr_store_create(&options, &store), MR_INVALID);
  options = test_options(1, 8);
  options.timeout_seconds = 0;
  assert_int_equal(mr_store_create(&options, &store), MR_INVALID);
  static const char *const injections[] = {
      "read", "read:eio", "read:eio:", "read:eio:1,x", "look:eio:1", "read:eio:-1", "read:eio:1;"};
  for (uint32_t i = 0; i < MR_COUNT_OF(injections); i++) {
    options = test_options(1, 8);
    options.inject = injections[i];
    assert_int_equal(mr_store_create(&options, &store), MR_INVALID);
  }
  options = test_options(1, 8);
  options.paths[0].path = "no/such/directory";
  assert_int_equal(mr_store_create(&options, &store), MR_IO);
  options = test_options(1, 8);
  options.paths[0].limit_bytes = 7 * CHUNK;
  assert_int_equal(mr_store_create(&options, &store), MR_NO_SPACE);
  options = test_options(1, 1ull << 30); /* 512 TiB */
  assert_int_equal(mr_store_create(&options, &store), MR_NO_SPACE);
  mr_store_destroy(NULL);
}

/* The order in which requests end. */
static struct {
  pthread_mutex_t lock;
  uint32_t order[FLOOD];
  _Atomic uint32_t count;
} ends = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void note_end(struct mr_store_request *request, mr_status status) {
  assert_int_equal(status, MR_OK);
  pthread_mutex_lock(&ends.lock);
  ends.order[ends.count] = (uint32_t)(request - flood_requests);
  atomic_fetch_add(&ends.count, 1);
  pthread_mutex_unlock(&ends.lock);
}

static uint32_t place_in_order(uint32_t which) {
  for (uint32_t i = 0; i < FLOOD; i++) {
    if (ends.order[i] == which) {
      return i;
    }
  }
  return UINT32_MAX;
}

/* Keeps the lane's thread busy until everything is queued, so that the order is the store's choice
 * alone. */
static _Atomic bool gate_open;

static void wait_at_gate(struct mr_store_request *request, mr_status status) {
  (void)request;
  assert_int_equal(status, MR_OK);
  while (!atomic_load(&gate_open)) {
    usleep(100);
  }
}

/* Queues a long line of prefetches, then a demand read, a promoted prefetch and a write. */
static void run_order(mr_io_engine engine) {
  enum { CHUNKS = 4 };
  struct mr_store_options options = test_options(1, FLOOD * CHUNKS);
  options.engine = engine;
  struct mr_store *store = NULL;
  assert_int_equal(mr_store_create(&options, &store), MR_OK);
  uint8_t *data = test_memory(CHUNKS * CHUNK);
  uint8_t *sink = test_memory(CHUNKS * CHUNK);
  test_fill(data, CHUNKS * CHUNK, 0, 3);
  uint32_t extents[FLOOD];
  for (uint32_t i = 0; i < FLOOD; i++) {
    assert_int_equal(mr_store_extent_create(store, CHUNKS * CHUNK, "queued", &extents[i]), MR_OK);
    assert_int_equal(test_move(store, extents[i], true, 0, CHUNKS * CHUNK, data), MR_OK);
  }
  atomic_store(&ends.count, 0);
  atomic_store(&gate_open, false);
  struct mr_store_request gate = {
      .extent = extents[0], .bytes = CHUNKS * CHUNK, .data = sink, .done = wait_at_gate};
  mr_store_submit(store, &gate);
  enum { DEMAND = FLOOD - 1, PROMOTED = FLOOD - 2, WRITE = FLOOD - 3 };
  for (uint32_t i = 0; i < FLOOD; i++) {
    flood_requests[i] = (struct mr_store_request){.extent = extents[i],
                                                  .write = i == WRITE,
                                                  .io_class = MR_IO_PREFETCH,
                                                  .bytes = CHUNKS * CHUNK,
                                                  .data = i == WRITE ? data : sink,
                                                  .done = note_end};
    if (i == WRITE) {
      flood_requests[i].io_class = MR_IO_WRITE_BACK;
    } else if (i == DEMAND) {
      flood_requests[i].io_class = MR_IO_DEMAND;
    }
    mr_store_submit(store, &flood_requests[i]);
  }
  mr_store_promote(store, &flood_requests[PROMOTED]);
  atomic_store(&gate_open, true);
  while (atomic_load(&ends.count) < FLOOD) {
    usleep(200);
  }
  /* What was already in flight may come first; most of the line does not. */
  assert_true(place_in_order(DEMAND) < FLOOD / 4);
  assert_true(place_in_order(PROMOTED) < FLOOD / 4);
  assert_true(place_in_order(WRITE) < FLOOD / 2); /* not starved by the prefetches */
  mr_store_destroy(store);
  free(sink);
  free(data);
}

static void test_order(void **state) {
  (void)state;
  for (uint32_t i = 0; i < engine_count; i++) {
    run_order(engines[i]);
  }
}

static void test_probe(void **state) {
  (void)state;
  struct mr_store_options options = test_options(2, 64);
  options.engine = MR_IO_AUTO;
  options.mode = MR_STORE_PROBE;
  struct mr_store_rates rates;
  assert_int_equal(mr_store_probe(&options, 128 << 20, &rates), MR_OK);
  assert_true(rates.read_bytes_per_second > 0);
  assert_true(rates.write_bytes_per_second > 0);
  assert_true(rates.mixed_bytes_per_second > 0);
  assert_true(rates.path_weights[0] > 0 && rates.path_weights[1] > 0);
  assert_int_equal(mr_store_probe(&options, 1000, &rates), MR_INVALID);
  struct mr_store *store = NULL;
  assert_int_equal(mr_store_create(&options, &store), MR_OK);
  struct mr_store_stats stats;
  mr_store_get_stats(store, &stats);
  assert_int_equal(stats.read_bytes + stats.written_bytes, 0);
  uint32_t extent = 0; /* the probe has given back all it took */
  assert_int_equal(mr_store_extent_create(store, 64 * CHUNK, "all", &extent), MR_OK);
  mr_store_destroy(store);
  uint64_t available = 0;
  assert_int_equal(mr_store_available(options.paths, 2, &available), MR_OK);
  assert_true(available >= 64 * CHUNK && available % CHUNK == 0);
  /* The same folder twice holds no more than once, and a limit below its half is kept. */
  struct mr_nvme_path twice[2] = {options.paths[0], options.paths[0]};
  uint64_t once = 0;
  twice[0].limit_bytes = twice[1].limit_bytes = MR_BUDGET_AUTO;
  assert_int_equal(mr_store_available(twice, 1, &once), MR_OK);
  assert_int_equal(mr_store_available(twice, 2, &available), MR_OK);
  assert_true(available <= once + once / 100 && available % CHUNK == 0);
  twice[0].limit_bytes = twice[1].limit_bytes = 3 * CHUNK;
  assert_int_equal(mr_store_available(twice, 2, &available), MR_OK);
  assert_int_equal(available, 6 * CHUNK);
  const struct mr_nvme_path none = {.path = "/dev/null", .limit_bytes = MR_BUDGET_AUTO};
  assert_int_equal(mr_store_available(&none, 1, &available), MR_IO);
}

/* With little room on a path, or on all of them, what there is is measured. */
static void test_probe_of_small_paths(void **state) {
  (void)state;
  static const struct {
    uint64_t limit_bytes[2];
    uint64_t bytes;
  } cases[] = {{{64 << 20, 1 << 20}, 64 << 20},
               {{1 << 20, 64 << 20}, 32 << 20},
               {{20 << 20, 20 << 20}, 64 << 20},
               {{20 << 20, 20 << 20}, 20 << 20}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    struct mr_store_options options = test_options(2, 64);
    struct mr_store_rates rates;
    options.engine = MR_IO_AUTO;
    options.mode = MR_STORE_PROBE;
    options.paths[0].limit_bytes = cases[i].limit_bytes[0];
    options.paths[1].limit_bytes = cases[i].limit_bytes[1];
    assert_int_equal(mr_store_probe(&options, cases[i].bytes, &rates), MR_OK);
    assert_true(rates.read_bytes_per_second > 0 && rates.write_bytes_per_second > 0);
    assert_true(rates.path_weights[0] == rates.path_weights[1]); /* one was measured, or none */
    assert_true((rates.path_weights[0] > 0) == (i == 0));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_random_transfers),
      cmocka_unit_test(test_many_at_once),
      cmocka_unit_test(test_destroy_in_flight),
      cmocka_unit_test(test_copies),
      cmocka_unit_test(test_last_chunk),
      cmocka_unit_test(test_two_stores_on_one_path),
      cmocka_unit_test(test_bad_requests),
      cmocka_unit_test(test_bad_options),
      cmocka_unit_test(test_order),
      cmocka_unit_test(test_probe),
      cmocka_unit_test(test_probe_of_small_paths),
  };
  test_log_start();
  if (test_directories_make(NULL) != 0) {
    return 1;
  }
  engine_count = test_engines(engines);
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  return failed + (test_directories_remove(NULL) != 0 ? 1 : 0);
}
