/* SPDX-License-Identifier: Apache-2.0 */
/*
 * allocator/ decides which integers are in use: pages, chunks, offsets.
 *
 * Nouns. An *arena* is a set of integers [0, size) with ranges handed out and given back; a *span*
 * is such a range. What an integer stands for (a page of memory, a chunk of a file) is its owner's
 * affair, so one arena serves every tier.
 *
 * Invariants. Free spans are sorted, never empty and never touch; used and free integers add up to
 * the size. Nothing is allocated after init. A release cannot fail.
 *
 * Threads. An arena belongs to one thread at a time.
 *
 * Not here: who is moved out to make room, and the memory or file behind the integers.
 */
#ifndef MEMRUN_ALLOCATOR_ALLOCATOR_H
#define MEMRUN_ALLOCATOR_ALLOCATOR_H

#include "allocator/arena.h"

#endif
