/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The status line of a training on a terminal: a bar, step, loss, tokens a second, what each tier
 * holds and what the links move, redrawn in place a few times a second by a thread of its own while
 * steps run. Parts that do not fit the width are left out, the last first.
 */
#ifndef MEMRUN_TOOLS_PROGRESS_H
#define MEMRUN_TOOLS_PROGRESS_H

#include "tools/output.h"
#include "train/train.h"

struct progress;

/* Starts drawing; NULL where standard output is no terminal or a thread cannot be had: then nothing
 * is drawn, and the other functions take NULL. `run` is observed until progress_stop. */
struct progress *progress_start(struct output *output, const struct mr_run *run,
                                uint64_t first_step, uint64_t steps);

/* A step has finished. */
void progress_step(struct progress *progress, const struct trainer_step *step);

/* Ends the thread and wipes the line. */
void progress_stop(struct progress *progress);

/*
 * Writes the bar and the parts that fit into `columns`, two spaces between them, to `line` of
 * OUTPUT_STATUS_BYTES. The first part always stands, cut where it must be; then comes the bar, then
 * the other parts in their order; what is left widens the bar, to 30 columns at most.
 */
void progress_layout(char *line, const char *const *parts, uint32_t part_count, double done,
                     uint32_t columns);

#endif
