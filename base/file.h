/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A *new file* appears whole under its path or not at all: it is written beside the path, synced
 * and renamed, so that a full disk or a killed process leaves what was there before. A link to a
 * file stays, and the file that it leads to is the one that appears. What is no regular file, as a
 * pipe, a terminal or /dev/stdout, is written to as it is, and so is a file in a folder that takes
 * no other: there a failure leaves what was written till then.
 */
#ifndef MEMRUN_BASE_FILE_H
#define MEMRUN_BASE_FILE_H

#include <stdio.h>

#include "base/base.h"

struct mr_new_file {
  FILE *stream;     /* to write to */
  const char *path; /* or the target */
  char *target;     /* of a link to a regular file; NULL of others */
  char *temporary;  /* NULL: the path itself is written to */
};

/* The path must outlive the file. False: errno says why, and nothing is to be closed. */
MR_CHECK_RESULT bool mr_new_file_open(struct mr_new_file *file, const char *path);

/* Ends the file, under its path where `written` and where the disk took all of it. False: errno
 * says why, and what was to appear whole is as it was. */
MR_CHECK_RESULT bool mr_new_file_close(struct mr_new_file *file, bool written);

/* Both around one text. */
MR_CHECK_RESULT bool mr_file_write(const char *path, const char *text);

#endif
