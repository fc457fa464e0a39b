/* SPDX-License-Identifier: Apache-2.0 */
/*
 * offload/ keeps tensors on NVMe and brings them back unchanged, or says why not.
 *
 * Nouns. The *store* (store.h) is what other rooms see. A *path* is a directory with one unlinked
 * file of the store in it. A *place* is one chunk of a file; all places of all paths are numbered
 * through, and a table in memory holds the state and the CRC32C of each. An *extent* is a tensor's
 * room: places, found by a pattern over the paths and a short chain of spans in each. A *request*
 * moves a range of an extent. A *lane* is the thread that serves one path: it owns an *engine*
 * (uring, pread), the *pool* of hugepages and the *slots*, one for each chunk on its way. The
 * *monitor* is one thread that watches the deadlines and ends requests that no lane can serve.
 *
 * How a chunk moves. A request joins the queue of its class in each lane that holds chunks of it.
 * The lane picks by class and budget, gives the chunk a slot and hands the slot to the engine,
 * writes a few chunks after they were copied and summed, so that the disk never waits for that:
 * with the pool's buffer of the slot (staged; bytes and checksum are taken in one pass over them)
 * or with the caller's memory (direct; the checksum is a pass of its own). What comes back is
 * looked at: shorter than asked goes on, EAGAIN waits, a failed or mismatching read is read once
 * more, anything else ends the request. Whoever ends a request's last chunk calls its `done`.
 *
 * Classes. Demand reads may use every slot, four of which nobody else gets. While demand reads
 * come, prefetches hold half of the others and write-back six; else the two share. A write-back
 * that has seen eight others pass it goes next.
 *
 * Invariants. A slot's request is taken over by one thread alone, under the lane's lock: by the
 * lane when the input or output has come back, or by the monitor when it is late; after that
 * nobody touches the caller's memory. A request in no lane's queue and in no slot has ended.
 * Nothing is allocated after creation. A chunk whose write failed reads as MR_INVALID.
 *
 * Threads. Each ring is created, used and destroyed by its lane, because completions run in the
 * thread that owns the ring and registered rings are per thread. Others talk to a lane by its
 * queue, under its lock, and a wake.
 *
 * Faults. Injected ones are applied between lane and engine, so both engines meet the same.
 * Only the first lasting failure of a store is logged as an error, the rest at info level.
 *
 * Not here: what to move and when; checkpoints, which are files with names.
 */
#ifndef MEMRUN_OFFLOAD_OFFLOAD_H
#define MEMRUN_OFFLOAD_OFFLOAD_H

#include "offload/store.h"

#endif
