/* SPDX-License-Identifier: Apache-2.0 */
/* A test with one file of its own, which counts the errors that are logged. */
#ifndef MEMRUN_TESTS_TRAIN_FILE_H
#define MEMRUN_TESTS_TRAIN_FILE_H

extern char train_file_path[64]; /* of a file that does not exist when a test begins */
extern int train_file_errors;    /* lines logged since then */

/* cmocka's setup and teardown. */
int train_file_begin(void **state);
int train_file_end(void **state);

#endif
