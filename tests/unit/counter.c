/* SPDX-License-Identifier: Apache-2.0 */
/* base/counter: no wake is lost, what was written before an advance is seen after the wait, time
 * limits and stop words end a wait, and all of it holds across the wrap of 32 bits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <pthread.h>
#include <unistd.h>

#include "base/base.h"
#include "base/counter.h"

#define ROUNDS  20000u
#define WAITERS 4u

/* Two threads hand one plain word to and fro; every hand-over is a wait on the other's counter. */
struct ping_pong {
  struct mr_counter there;
  struct mr_counter back;
  uint32_t start;
  uint64_t word;
  uint32_t wrong;
};

static void *answer(void *context) {
  struct ping_pong *game = context;
  for (uint32_t i = 1; i <= ROUNDS; i++) {
    if (!mr_counter_wait(&game->there, game->start + i, NULL, UINT64_MAX) ||
        game->word != 2ull * i - 1) {
      game->wrong++;
    }
    game->word = 2ull * i;
    mr_counter_set(&game->back, game->start + i);
  }
  return NULL;
}

static void hand_overs_are_ordered(void **state) {
  (void)state;
  struct ping_pong game = {.start = UINT32_MAX - ROUNDS / 2};
  mr_counter_init(&game.there, game.start);
  mr_counter_init(&game.back, game.start);
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, answer, &game), 0);
  for (uint32_t i = 1; i <= ROUNDS; i++) {
    game.word = 2ull * i - 1;
    mr_counter_set(&game.there, game.start + i);
    assert_true(mr_counter_wait(&game.back, game.start + i, NULL, UINT64_MAX));
    assert_int_equal(game.word, 2ull * i);
  }
  assert_int_equal(pthread_join(thread, NULL), 0);
  assert_int_equal(game.wrong, 0);
}

/* Several threads add to one counter and all wait for the sum. */
static void *add_and_wait(void *context) {
  struct mr_counter *counter = context;
  for (uint32_t i = 0; i < ROUNDS; i++) {
    mr_counter_add(counter, 1);
  }
  bool reached = mr_counter_wait(counter, WAITERS * ROUNDS, NULL, UINT64_MAX);
  return reached ? counter : NULL;
}

static void many_add_and_all_wake(void **state) {
  (void)state;
  struct mr_counter counter;
  mr_counter_init(&counter, 0);
  pthread_t threads[WAITERS];
  for (uint32_t i = 0; i < WAITERS; i++) {
    assert_int_equal(pthread_create(&threads[i], NULL, add_and_wait, &counter), 0);
  }
  for (uint32_t i = 0; i < WAITERS; i++) {
    void *result = NULL;
    assert_int_equal(pthread_join(threads[i], &result), 0);
    assert_ptr_equal(result, &counter);
  }
  assert_int_equal(mr_counter_load(&counter), WAITERS * ROUNDS);
  assert_int_equal(atomic_load(&counter.sleepers), 0);
}

struct stopped_wait {
  struct mr_counter counter;
  _Atomic bool stop;
  bool reached;
};

static void *wait_for_stop(void *context) {
  struct stopped_wait *wait = context;
  wait->reached = mr_counter_wait(&wait->counter, 1, &wait->stop, UINT64_MAX);
  return NULL;
}

static void stop_ends_a_sleep(void **state) {
  (void)state;
  for (int wake = 0; wake < 2; wake++) {
    struct stopped_wait wait = {.reached = true};
    mr_counter_init(&wait.counter, 0);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, wait_for_stop, &wait), 0);
    usleep(2000);
    atomic_store(&wait.stop, true);
    if (wake != 0) {
      mr_counter_wake(&wait.counter);
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_false(wait.reached);
  }
}

static void time_limits_end_a_wait(void **state) {
  (void)state;
  struct mr_counter counter;
  mr_counter_init(&counter, 5);
  uint64_t start_ns = mr_clock_ns();
  assert_false(mr_counter_wait(&counter, 6, NULL, 20000000));
  assert_true(mr_clock_ns() - start_ns >= 20000000);
  assert_false(mr_counter_wait(&counter, 6, NULL, 0));
  assert_true(mr_counter_wait(&counter, 5, NULL, 0));
  assert_true(mr_counter_wait(&counter, 4, NULL, 0));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(hand_overs_are_ordered),
      cmocka_unit_test(many_add_and_all_wake),
      cmocka_unit_test(stop_ends_a_sleep),
      cmocka_unit_test(time_limits_end_a_wait),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
