/* SPDX-License-Identifier: Apache-2.0 */
/* How much of the machine's processors others take: other processes, and other guests of the host
 * that this machine is a guest of. */
#ifndef MEMRUN_RUNTIME_LOAD_H
#define MEMRUN_RUNTIME_LOAD_H

#include <stdint.h>

/* A moment, as counters of the kernel show it. */
struct mr_load_mark {
  double wall_seconds;
  double busy_seconds;  /* of all processors, steal included; 0: the kernel does not say */
  double own_seconds;   /* of this process's threads */
  double delay_seconds; /* that the calling thread could have run and did not */
  uint32_t processors;
};

void mr_load_take(struct mr_load_mark *mark_out);

/*
 * The part of all processors that others took from `from` to `to`, 0 to 1. Where the calling thread
 * never had to wait for a processor, others took nothing from it, however busy they were: 0.
 */
double mr_load_others_share(const struct mr_load_mark *from, const struct mr_load_mark *to);

#endif
