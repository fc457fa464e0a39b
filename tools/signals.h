/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SIGINT, SIGTERM and SIGHUP. A job that can end in order is told through the stop word, and a
 * second signal ends the process at once; everything else ends at the first. Either way the exit
 * status is 130. A signal that is ignored when memrun starts (nohup) stays so.
 *
 * A thread of its own waits for signals, and every other thread has them blocked: no handler ever
 * runs on the stack of a thread that computes. The code that oneDNN 2.6 generates for GEMM keeps
 * data further below the stack pointer than the 128 bytes that the system leaves alone, so a
 * handler there would damage it.
 */
#ifndef MEMRUN_TOOLS_SIGNALS_H
#define MEMRUN_TOOLS_SIGNALS_H

/* Begins to wait for signals and ignores SIGPIPE; called before there are other threads. Where no
 * thread can be had, signals keep their default effect. */
void signals_catch(void);

/* The word that becomes 1 when the job shall end. */
volatile int *signals_stop_word(void);

/* From now on the first signal sets the stop word alone. */
void signals_end_in_order(void);

#endif
