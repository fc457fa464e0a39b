/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where results and log lines go. Results are whole lines on standard output, written at once, so
 * that a reader sees each when it happens. Log lines are written to standard error in one piece
 * each; where a status line is being redrawn on a terminal it is wiped before and drawn again
 * after.
 *
 * A reader who closes the pipe ends the job in order: output_failed() gives MR_INTERRUPTED and the
 * stop word is set. Any other fault of standard output is MR_IO, told once. Threads: any.
 */
#ifndef MEMRUN_TOOLS_OUTPUT_H
#define MEMRUN_TOOLS_OUTPUT_H

#include <jansson.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include <memrun/status.h>

#define OUTPUT_STATUS_BYTES 1024u /* of a status line; terminals are narrower */

struct output {
  pthread_mutex_t mutex;
  bool json;
  bool terminal; /* standard output is one */
  mr_status failed;
  volatile int *stop; /* set when standard output has failed */
  char status[OUTPUT_STATUS_BYTES];
  bool status_shown;
};

void output_init(struct output *output, volatile int *stop);

/* Sends the log through `output`, from `level` on. */
void output_take_log(struct output *output, mr_log_level level);

/* MR_OK, or what happened to standard output. */
mr_status output_failed(struct output *output);

/* One or more lines of text, each with its newline. */
void output_text(struct output *output, const char *format, ...) MR_PRINTF(2, 3);

/* One object, one line, keys in the order of insertion, 17 digits; takes over `object`. NULL (it
 * could not be made) gives MR_NO_MEMORY, logged. */
MR_CHECK_RESULT mr_status output_json(struct output *output, json_t *object);

/* Shows `line` in place of the last status line, cut to the terminal's width; "" wipes it. */
void output_status(struct output *output, const char *line);

/* Cuts `text` to `columns` bytes in its middle, where a '~' then stands: the end of a name or path
 * says more. */
void output_cut_middle(char *text, size_t columns);

/* The columns of the terminal; 80 where it does not say. */
uint32_t output_columns(void);

/* MR_INVALID, logged: the file that an option names for what is made (NULL: none) is the one that
 * is read. */
MR_CHECK_RESULT mr_status output_spares(const char *option, const char *out_path,
                                        const char *in_path);

/* A JSON number; null where it is not finite. */
json_t *json_number(double value);

#endif
