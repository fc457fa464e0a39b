/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device/ is where ops run: one const table of functions per backend (struct mr_device_ops), chosen
 * once. cpu.c's "device memory" is a capped piece of ordinary memory, a product of its own and not
 * a mock; cuda/ is an NVIDIA device behind its driver.
 *
 * Nouns. A *page* is a piece of physical device memory, numbered from 0; there are exactly as many
 * as the plan's peak asks for. A *range* is the addresses of a list of pages, which is that of one
 * instance (one stay of a tensor on the device) or of several, one after another. Addresses never
 * change, so those that an op gets are computed once. *Binding* a range brings its pages to its
 * addresses with their contents. The *small arena* is one contiguous piece for tensors below half a
 * page, always there.
 *
 * How the cpu binds. The pages are one anonymous private mapping, filled once at creation with huge
 * pages. Smaller pages are mapped one by one as soon as they move. Where a drive reads into them
 * they are pieces of a huge one: half a MiB is read in one go (1.4 GB/s on a virtual disk where
 * scattered pages of 4 KiB gave 0.75), but moving them takes three times as long. A range of pages
 * that follow one another is where they are, at home; every other has inaccessible addresses of its
 * own. Binding moves a page that is elsewhere with mremap(MREMAP_FIXED | MREMAP_DONTUNMAP), which
 * hands page table entries over and copies nothing, and covers the place it left with inaccessible
 * addresses again: a stale access to a place that is left faults instead of growing the process by
 * a fresh zero page, in every build, and neighbouring gaps merge into one mapping. A page that is
 * already in its place costs a comparison, pages that were moved together before are moved together
 * again. A move by itself, with its cover, takes some 25 us, one of a run of pages a third of that
 * and less, so the planner gives instances pages that follow one another (plan/colour.c).
 *
 * Why not a memfd mapped at several places: an alias is counted again in the resident set (2.1 GB
 * shown for 1 GB used), shared memory gets no huge pages in the kernel's default setting, and
 * filling the page tables costs 190 ms per GiB. Measured on a two-core virtual machine, kernel
 * 6.18: moving 2 MiB pages 2.1 ms per GiB, 3.4 ms with the cover, the resident set exact to the
 * page, huge pages kept.
 *
 * Copies between tiers use stores that go past the caches: 23 GB/s against memcpy's 10.5 for pieces
 * of 2 MiB on the same machine, and ops keep their cache lines.
 *
 * Limits. A bound page can be a mapping of its own and so can the gap beside it; the kernel allows
 * vm.max_map_count (65530) to a process, so query() tells how many pages a plan may have.
 *
 * Invariants. A range is always bound with the same list of pages, as a plan's instances are; so
 * the place of a page in a range is fixed, and two ranges have an address in common only where the
 * same page is there for both. Nothing is allocated after create.
 *
 * How cuda binds. It does not: every range is mapped onto its pages when the device is created, or
 * a page is first written where it is deferred, because a physical page may have any number of
 * addresses there. All ranges lie side by side in one reservation, so access is granted once for
 * all of them. The driver maps 2 MiB at once. Pages of plans are halves of that: a range that ends
 * in a lower half and one that begins with its upper half share it, each at addresses of its own.
 * Rounding to 2 MiB adds 16 % to the parameters, gradients and moments of gpt2, to halves 3 %; 24
 * plans under pressure got 13 % shorter on average.
 *
 * Streams. Where ops and copies run on the caller's thread `streams` is NULL. Else work is enqueued
 * on a *stream* and runs later, in order; the processor cannot reach the memory. A *mark* is a pair
 * of events around a piece of work of a stream: another stream can follow its end, and a thread can
 * wait for it. One that is *timed* then tells how long the work took, for which the device stops
 * for a moment: 4 us on an H200, while a mark that is not timed takes it no time at all. A stream
 * has a fixed number of marks, which its user takes again once their work has been waited for.
 *
 * A device *hangs* when work on it does not end in time. Nothing waits for it then, nor asks the
 * driver for anything: what was taken stays until the process ends.
 *
 * Threads. bind may run on several threads at once for ranges that share no page; who binds a page
 * has waited for its last user. A stream is enqueued on by one thread at a time, and its marks are
 * waited for by one thread. A thread calls `enter` before anything else of a device that has one.
 * Everything else: one thread. A *team* (team.c, public) is the set of threads that one op runs on.
 *
 * Not here: which instance gets which pages (plan/), queues and waits (runtime/), kernels (the
 * client).
 */
#ifndef MEMRUN_DEVICE_DEVICE_H
#define MEMRUN_DEVICE_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <memrun/graph.h>
#include <memrun/status.h>

#define MR_DEVICE_HUGE_PAGE_BYTES (2ull << 20)

struct mr_device;
struct mr_stream;

struct mr_device_caps {
  const char *name;
  uint64_t max_page_count; /* that one device can bind one by one */
  uint64_t map_bytes;      /* that it maps at once: pages of plans are halves of that; 0: any from
                              4 KiB to 2 MiB */
  bool huge_pages;         /* pages of 2 MiB are backed by huge pages here */
  bool deferred;           /* it can take memory as that is first written */
};

struct mr_device_config {
  uint64_t page_bytes; /* a power of two, 4 KiB or more; of a device that maps more at once, that or
                          half of it */
  uint32_t page_count;
  uint64_t small_bytes;        /* of the small arena */
  const uint64_t *range_bytes; /* borrowed during create; 0: the range needs no addresses */
  uint32_t range_count;
  bool deferred; /* memory is taken as it is first written, all that is left by complete() */
  /* The pages that each range will be bound with, as many as its bytes need; borrowed during
   * create. NULL: only for a device without streams, which then has addresses of its own for each
   * range. Where they are halves: whole ones, two side by side, and at most one half, the lower one
   * at the end or the upper one at the start. */
  const uint32_t *const *range_pages;
  double timeout_seconds; /* of work on streams: what takes longer never ends; 0: no limit */
  bool in_pieces; /* small pages are pieces of huge ones: transfers are faster, moves slower */
};

/* What a piece of work is, for messages: "op h0.attn, 12582912 bytes". The words are borrowed for
 * as long as the work may fail. */
struct mr_work {
  const char *kind; /* "op", "tensor" */
  const char *name;
  uint64_t bytes; /* that it moves, or reads and writes */
};

/* Work that runs later, in order. A call that fails says what it was for. */
struct mr_stream_ops {
  /* The stream has `mark_count` marks. MR_NO_MEMORY; MR_IO: the driver's refusal. */
  mr_status (*create)(struct mr_device *device, uint32_t mark_count, struct mr_stream **stream_out);
  void (*destroy)(struct mr_stream *stream);
  /* What struct mr_op_call carries. */
  void *(*handle)(const struct mr_stream *stream);
  /* Opens a mark for a piece of work, and closes the one that was opened last. */
  mr_status (*begin)(struct mr_stream *stream, uint32_t mark, const struct mr_work *work,
                     bool timed);
  mr_status (*end)(struct mr_stream *stream);
  /* What comes next, which is `work`, waits until the other stream's mark is over. */
  mr_status (*follow)(struct mr_stream *stream, const struct mr_stream *other, uint32_t mark,
                      const struct mr_work *work);
  /* In an open mark: from device memory to memory that is pinned, and back. */
  mr_status (*copy_out)(struct mr_stream *stream, void *to, const void *from, uint64_t bytes);
  mr_status (*copy_in)(struct mr_stream *stream, void *to, const void *from, uint64_t bytes);
  /* In an open mark: fills device memory with zeros. */
  mr_status (*clear)(struct mr_stream *stream, void *to, uint64_t bytes);
  /* Blocks until a mark that was closed is over. `seconds_out`: from its beginning to its end;
   * below 0 where it is not timed. */
  mr_status (*wait)(struct mr_stream *stream, uint32_t mark, double *seconds_out);
  /* The same, but no longer than the device's time limit: MR_TIMEOUT, and the device hangs. */
  mr_status (*wait_in_time)(struct mr_stream *stream, uint32_t mark, double *seconds_out);
  /* Whether the work of a mark that was opened has begun. Any thread; false where that cannot be
   * told. */
  bool (*has_begun)(struct mr_stream *stream, uint32_t mark);
};

struct mr_device_ops {
  const char *name;
  mr_backend backend;
  const struct mr_stream_ops *streams; /* NULL: work is done on the thread that asks for it */
  void (*query)(struct mr_device_caps *caps_out);

  /* Reserves addresses and takes all memory, zeroed. MR_NO_MEMORY says what was asked for;
   * MR_UNSUPPORTED where more pages are asked for than the kernel can map one by one. */
  mr_status (*create)(const struct mr_device_config *config, struct mr_device **device_out);
  void (*destroy)(struct mr_device *device);
  /* As destroy, but the memory stays where it is until the process ends: something outside still
   * touches it. */
  void (*abandon)(struct mr_device *device);

  /* The first address of a range (page aligned), and of the small arena. Never change. */
  void *(*range_address)(const struct mr_device *device, uint32_t range);
  void *(*small_address)(const struct mr_device *device);

  /* Brings pages[0 .. count) to the range, in order, contents included. MR_NO_MEMORY: the kernel
   * refused, and why. */
  mr_status (*bind)(struct mr_device *device, uint32_t range, const uint32_t *pages,
                    uint32_t count);

  /* Takes what a deferred device has not taken yet. MR_NO_MEMORY. */
  mr_status (*complete)(struct mr_device *device);
  /* Gives a page's memory back and forgets what was in it; only for a device that is to be
   * destroyed. A piece of a huge page no longer counts as resident at once; the kernel has it when
   * the last piece is given back, or when memory is short. */
  void (*drop)(struct mr_device *device, uint32_t page);

  /* Copies between device memory and host memory, either way, on the calling thread; the source is
   * not expected to be used again soon. Both 64-byte aligned. NULL where there are streams. */
  void (*copy)(void *to, const void *from, uint64_t bytes);

  /* Bytes of device memory from and to anywhere on the host, when nothing else touches them; block
   * until they are there. `what` is for messages. */
  mr_status (*read)(struct mr_device *device, void *to, const void *from, uint64_t bytes,
                    const char *what);
  mr_status (*write)(struct mr_device *device, void *to, const void *from, uint64_t bytes,
                     const char *what);

  /* Only where there are streams: makes the device the calling thread's; lets copies of streams
   * reach host memory, and ends that. */
  mr_status (*enter)(struct mr_device *device);
  mr_status (*pin)(struct mr_device *device, void *data, uint64_t bytes, const char *what);
  void (*unpin)(struct mr_device *device, void *data);
  /* Bytes of the device's memory that anybody has now but this device itself: contexts, libraries,
   * other processes. */
  mr_status (*outside)(struct mr_device *device, uint64_t *bytes_out);
  /* Whether a fault of the device has ended all work on it. Any thread; it enters. */
  bool (*faulty)(struct mr_device *device);
  /* Waits for all streams; false where a fault of the device leaves unknown what still runs. */
  bool (*settle)(struct mr_device *device);

  /* How many different pages have been bound since create. Any thread. */
  uint32_t (*bound_page_count)(const struct mr_device *device);
};

extern const struct mr_device_ops mr_device_cpu;
extern const struct mr_device_ops mr_device_cuda;

/* The table of a backend; NULL where there is none of that number. */
const struct mr_device_ops *mr_device_find(mr_backend backend);

/* What an accelerator is and what is free there now, beside its context and what was loaded. */
struct mr_accelerator {
  char name[96];
  uint32_t driver_version; /* 1000 * major + 10 * minor */
  uint32_t capability;     /* 10 * major + minor */
  uint32_t processors;
  double clock_hz;
  uint64_t memory_bytes;
  uint64_t free_bytes;
};

/* Bytes per second of copies, both directions together summed. */
struct mr_accelerator_rates {
  double out_bytes_per_second;
  double in_bytes_per_second;
  double both_bytes_per_second;
};

/* The accelerator that mr_device_cuda uses. MR_UNSUPPORTED: there is none, and why (at most
 * why_bytes); nothing is logged. */
MR_CHECK_RESULT mr_status mr_cuda_describe(struct mr_accelerator *accelerator_out, char *why,
                                           size_t why_bytes);

/* Measures copies between it and pinned and pageable memory, and its own memory; about 0.2 s.
 * MR_UNSUPPORTED, MR_NO_MEMORY, MR_IO; logged. */
MR_CHECK_RESULT mr_status mr_cuda_measure(struct mr_accelerator_rates *pinned_out,
                                          struct mr_accelerator_rates *pageable_out,
                                          double *memory_bytes_per_second_out);

/* Copies between it and pinned memory both ways, over and over, while `work` runs on the calling
 * thread. *bytes_per_second_out: of both ways together, meanwhile. What `work` gives;
 * MR_UNSUPPORTED, MR_NO_MEMORY, MR_IO; logged. */
MR_CHECK_RESULT mr_status mr_cuda_measure_beside(mr_status (*work)(void *context), void *context,
                                                 double *bytes_per_second_out);

/*
 * Anonymous memory that is there from the start: aligned to `alignment_bytes` (a power of two, at
 * least 4 KiB), zeroed, every page present, huge pages where the alignment is 2 MiB. 0 bytes give
 * an empty mapping.
 */
struct mr_memory {
  void *data;
  uint64_t bytes;
  void *mapping; /* what munmap gets */
  uint64_t mapping_bytes;
};
MR_CHECK_RESULT mr_status mr_memory_map(uint64_t bytes, uint64_t alignment_bytes, const char *what,
                                        struct mr_memory *memory_out);
/* The same, but pages come when they are first written; mr_memory_populate takes a range of them,
 * keeping what is there. */
MR_CHECK_RESULT mr_status mr_memory_reserve(uint64_t bytes, uint64_t alignment_bytes,
                                            const char *what, struct mr_memory *memory_out);
MR_CHECK_RESULT mr_status mr_memory_populate(void *data, uint64_t bytes, const char *what);
void mr_memory_unmap(struct mr_memory *memory);
/* Gives whole pages of 4 KiB back; they read as zeros afterwards. */
void mr_memory_drop(void *data, uint64_t bytes);

#endif
