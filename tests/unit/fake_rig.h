/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What tests of the fake driver stand on: its functions as the library exports them, a context with
 * two streams and the basic kernels, and device memory in pages.
 */
#ifndef MEMRUN_TESTS_UNIT_FAKE_RIG_H
#define MEMRUN_TESTS_UNIT_FAKE_RIG_H

#include <stdbool.h>
#include <stdint.h>

#include "device/cuda/driver.h"
#include "tests/fake/fake.h"

#define RIG_PROTOTYPE(field, name, parameters) mr_cu_result name parameters;
MR_CUDA_FUNCTIONS(RIG_PROTOTYPE)
#undef RIG_PROTOTYPE

struct rig {
  mr_cu_context context;
  mr_cu_module module;
  mr_cu_function fill, add, move, hold;
  mr_cu_stream first, second; /* neither waits for the null stream */
};

/* The one of this process. */
extern struct rig rig;

/* The settings are read again first. Every call must succeed. */
void rig_init(void);
/* Lets go of the context, which takes what was made in it; nothing of the device may be left. */
void rig_fini(void);

/* A test between the two. */
#define rig_test(run) cmocka_unit_test_setup_teardown(run, rig_set_up, rig_tear_down)
int rig_set_up(void **state);
int rig_tear_down(void **state);

/* One page of physical memory, mapped and accessible; its handle is released already. */
mr_cu_address rig_page(void);
void rig_page_free(mr_cu_address page);

mr_cu_result rig_launch(mr_cu_function function, mr_cu_stream stream, const void *argument);

/* Sets or (NULL) clears a variable. */
void rig_set(const char *name, const char *value);
void rig_seed(uint64_t seed);

/* The status of a child that calls the function and exits with what it gives, as waitpid tells. */
int rig_child(int (*run)(uint64_t number), uint64_t number);
bool rig_under_thread_sanitizer(void);

#endif
