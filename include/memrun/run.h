/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a graph to steps: options say what the run may use, a plan says what it will do and how
 * fast, a run does it.
 *
 *   mr_options_init -> [mr_plan_create -> mr_plan_summary, mr_plan_json] -> mr_run_create ->
 * mr_run_write ... -> mr_run_step ... -> mr_run_sync -> mr_run_read ... -> mr_run_destroy
 *
 * Nothing is allocated or written before the plan is known to fit. During a step no memory is
 * allocated and no file grows; planning again, between two steps, takes some of the heap for a
 * while. Results depend on the graph, its data and the thread count, never on the plan, the budgets
 * or timing.
 */
#ifndef MEMRUN_RUN_H
#define MEMRUN_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <memrun/graph.h>
#include <memrun/status.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MR_MAX_NVME_PATHS 16u

typedef enum mr_tier {
  MR_TIER_DEVICE = 0,
  MR_TIER_HOST = 1,
  MR_TIER_NVME = 2,
  MR_TIER_COUNT = 3
} mr_tier;

/* The links between tiers; on every backend NVMe data reaches the device directly or staged, by
 * what a probe found. */
typedef enum mr_link {
  MR_LINK_DEVICE_TO_HOST = 0,
  MR_LINK_HOST_TO_DEVICE = 1,
  MR_LINK_NVME_READ = 2,
  MR_LINK_NVME_WRITE = 3,
  MR_LINK_COUNT = 4,
} mr_link;

typedef enum mr_offload {
  MR_OFFLOAD_NONE = 0, /* the device alone */
  MR_OFFLOAD_HOST = 1, /* device and host */
  MR_OFFLOAD_NVME = 2, /* device, host and NVMe */
  MR_OFFLOAD_AUTO = 3, /* NVMe where a path was given, else host */
} mr_offload;

typedef enum mr_recompute {
  MR_RECOMPUTE_AUTO = 0, /* where the plan gets faster by it, or fits only so */
  MR_RECOMPUTE_NONE = 1,
  MR_RECOMPUTE_FULL = 2, /* every block keeps only what crosses its border */
} mr_recompute;

/* How it is decided what leaves the device, and when. */
typedef enum mr_policy {
  MR_POLICY_SEARCHED = 0, /* the fastest plan that a bounded search finds */
  /* For comparison. */
  MR_POLICY_FIRST = 1, /* the first plan that fits */
  MR_POLICY_LRU = 2,   /* least recently used first, when room is wanted; fetched when read */
} mr_policy;

/* Whether updates run at the start of the next step (MR_OP_DEFERRABLE). Results are the same to the
 * bit. */
typedef enum mr_defer {
  MR_DEFER_AUTO = 0, /* where the plan gets faster by it, or fits by it alone */
  MR_DEFER_NEVER = 1,
  MR_DEFER_ALWAYS = 2, /* where it can be, whatever it costs: for comparison and tests */
} mr_defer;

/* Whether a run goes on with another plan between two steps. Results are the same to the bit. Where
 * others take more of a CUDA device than the budget holds, a smaller plan takes over in any case.
 */
typedef enum mr_replan {
  /* Where the steps' median is more than 5 % off the forecast, others did not take the processors,
   * and a plan for the rates that were measured promises enough. The present plan's forecast is
   * made again where it is more than 1 % off; never while another plan is not to be taken. An error
   * below the standard error of the median, by the spread of the steps, counts as none. */
  MR_REPLAN_AUTO = 0,
  MR_REPLAN_NEVER = 1,
  MR_REPLAN_ALWAYS = 2, /* after every second step, whatever it gains: for tests */
} mr_replan;

typedef enum mr_io_engine { MR_IO_AUTO = 0, MR_IO_URING = 1, MR_IO_PREAD = 2 } mr_io_engine;

/* Budget value: take what the cgroup, free memory or free space allow. */
#define MR_BUDGET_AUTO UINT64_MAX

struct mr_nvme_path {
  const char *path;     /* a directory on the NVMe file system */
  uint64_t limit_bytes; /* MR_BUDGET_AUTO: what is free there, less a reserve */
};

struct mr_options {
  size_t size_bytes; /* sizeof(struct mr_options); another is refused */
  uint64_t device_bytes;
  uint64_t host_bytes;
  const struct mr_nvme_path *nvme; /* borrowed until the call that takes the options returns */
  uint32_t nvme_count;
  mr_offload offload;
  mr_recompute recompute;
  mr_io_engine io_engine;
  /* An input or output older than this ends the run; a kernel or copy of a CUDA device that lets
   * nothing else move for that long and a half, and 2 s, is taken to hang and does too. */
  double io_timeout_seconds;
  uint32_t threads;         /* 0: the processors this process may use */
  const char *trace_path;   /* NULL: no trace */
  const char *profile_path; /* NULL: $XDG_CACHE_HOME/memrun/profile-*.json, or in ~/.cache, a file
                               for each machine, number of threads and CUDA device */
  bool reprofile;           /* measure the machine again */
  mr_policy policy;
  mr_replan replan;
  const char *plan_path; /* NULL: make a plan; else take the one that mr_plan_save wrote there,
                            which may do nothing that recompute or defer rule out */
  mr_backend device;     /* where ops run */
  mr_defer defer;
};

/* Fills in the defaults and size_bytes. */
MR_API void mr_options_init(struct mr_options *options);

/* What a plan needs and promises. Bytes; seconds for one step. Strings belong to the plan. */
struct mr_plan_summary {
  size_t size_bytes; /* set by the caller, who gets so much of it; 0: all */
  bool fits;
  uint64_t footprint_bytes; /* the most device bytes that a step without any budget has in use; a
                               plan of a short one may take an eighth more, to move fewer pages */
  uint64_t budget_bytes[MR_TIER_COUNT];
  uint64_t
      need_bytes[MR_TIER_COUNT];  /* the plan's peaks; of the smallest plan where it does not fit */
  uint64_t smallest_device_bytes; /* of a plan that does not fit: the smallest device budget that
                                     would do, other budgets equal; where these are short, one that
                                     would, and a few per cent less might too; 0: it fits */
  const char *largest_op;         /* the op whose operands and scratch need most at once */
  uint64_t largest_op_bytes;
  double predicted_seconds;
  double compute_seconds;              /* what the ops alone take */
  double link_seconds[MR_LINK_COUNT];  /* what each link alone takes */
  uint64_t moved_bytes[MR_LINK_COUNT]; /* each step */
  uint64_t kept_bytes, host_bytes, nvme_bytes,
      recomputed_bytes; /* over tensor gaps, by what was chosen */
  const char *bound_by; /* "compute", "device_to_host", "host_to_device", "nvme_read", "nvme_write",
                           and "host" for the ops that run there */
  uint32_t recomputed_op_count;
  double bound_seconds; /* no plan of the graph is faster on this machine, whatever is recomputed */
  uint32_t host_op_count;     /* ops that use tensors in the host tier */
  uint32_t deferred_op_count; /* updates that run in the next step: MR_OP_DEFERRABLE */
  /* Beside a device whose memory the processor cannot read: what ops on the host take, which run
   * while the device computes, and the rate that this follows from; 0 where it is not known, so
   * that all ops run on the device. */
  double host_seconds;
  double host_bytes_per_second;
  /* Of a device with memory of its own: what its context, libraries, kernels, page tables of pinned
   * memory and others have there. It counts in the device's budget, need and smallest budget. */
  uint64_t outside_bytes;
  /* The machine that the plan is for: its name, as kept plans have it; whether that is one which
   * profile_path describes, and nothing runs on; and the description, or where the measured speeds
   * are kept (NULL: nowhere). */
  const char *machine;
  bool described;
  const char *profile_path;
};

struct mr_plan;

/*
 * Plans `graph` under `options`; allocates no tier and writes no file but the profile cache. On the
 * processor, ops of kinds and sizes that the profile does not know are timed, in at most 512 MiB of
 * the budget and for about 2 s. On a CUDA device one op of each kind and size is run once, in
 * memory for the largest of them, so that what libraries take there is known. A plan that does not
 * fit is returned with MR_OK and summary.fits false. The graph is borrowed until the plan is
 * destroyed. MR_INVALID, MR_NO_MEMORY, MR_IO (the probe of an NVMe path failed, or the device),
 * MR_TIMEOUT (the device hangs); what an op's callback gave.
 */
MR_API MR_CHECK_RESULT mr_status mr_plan_create(const struct mr_graph *graph,
                                                const struct mr_options *options,
                                                struct mr_plan **plan_out);
MR_API void mr_plan_destroy(struct mr_plan *plan);
MR_API void mr_plan_summarize(const struct mr_plan *plan, struct mr_plan_summary *summary_out);

/*
 * Why the plan is as it is, as one JSON text (documented in memrun-plan(1)), to be freed with
 * free(): what each tier holds at its peak, where the step's time goes by phase, the costliest
 * decisions and what else was possible, what more memory or faster links would gain, the smallest
 * device budget. It plans again for each of these questions, so it takes some tens of times as long
 * as planning. MR_NO_MEMORY.
 */
MR_API MR_CHECK_RESULT mr_status mr_plan_explain(const struct mr_plan *plan, char **json_out);

/*
 * Writes a plan that fits to a file, for options.plan_path of a later run of the same job on the
 * same machine; the file appears whole or not at all. MR_DOES_NOT_FIT: there is nothing to keep;
 * MR_IO, logged; MR_NO_MEMORY.
 */
MR_API MR_CHECK_RESULT mr_status mr_plan_save(const struct mr_plan *plan, const char *path);

/* Checks the plan with the verifier that shares no code with the planner. MR_CORRUPT: it found a
 * fault and logged it. */
MR_API MR_CHECK_RESULT mr_status mr_plan_verify(const struct mr_plan *plan);

/* The plan as one JSON text (documented in memrun-plan(1)); the caller frees it with free().
 * MR_NO_MEMORY. */
MR_API MR_CHECK_RESULT mr_status mr_plan_json(const struct mr_plan *plan, char **json_out);

/* What happened in a step. Peaks are since the run began. */
struct mr_step_report {
  size_t size_bytes; /* as above */
  uint64_t step; /* 1 for the first */
  double seconds;
  double predicted_seconds;
  const char *bound_by; /* as in mr_plan_summary, from what was measured */
  uint64_t moved_bytes[MR_LINK_COUNT];
  /* On an accelerator: by what each op and copy took when it was timed last, in one of 8 steps. */
  double link_busy_seconds[MR_LINK_COUNT];
  double compute_busy_seconds;
  double stall_seconds; /* the compute queue waited for data */
  /* Counted where memory is taken, never read from the plan; of a device with memory of its own
   * also what others than the run have there, measured after each step. */
  uint64_t peak_bytes[MR_TIER_COUNT];
  uint64_t budget_bytes[MR_TIER_COUNT];
  uint64_t resident_peak_bytes; /* of the whole process */
  /* What peak_bytes is to the page once a training step's write-backs are over (mr_run_sync), where
   * others than the run have what they had of the device when it was planned. */
  uint64_t planned_peak_bytes[MR_TIER_COUNT];
  /* The forecast against the steps under it, the first of a plan aside (judged_seconds). */
  double median_seconds; /* of the last 63 training steps at most; 0: none yet */
  double others_share;   /* of the processors, that others took meanwhile: 0 to 1 */
  uint32_t replan_count; /* since the run began */
  uint64_t replan_step;  /* the first step of the present plan; 0: the run's first plan */
  /* What the former plan would have taken, by the rates that steps had shown until then; what the
   * present one was to take by the same is replan_after_seconds. */
  double replan_before_seconds;
  double bind_seconds; /* the compute queue brought pages to where its ops find them */
  /* Since the last training step: updates that were to run in this one (MR_OP_DEFERRABLE), and were
   * run by themselves for somebody who wanted to see their effect, by which the step was shorter;
   * and what restored MR_DERIVED tensors before it. */
  double flush_seconds;
  uint64_t median_step_count; /* training steps under the forecast, which the median is of; 63 where
                                 there are more */
  double host_busy_seconds;   /* ops ran on the host, beside the device */
  uint64_t host_op_bytes;     /* memory that they got through */
  /* The forecast that median_seconds is set against: this step's, or the one before it while fewer
   * than 4 steps have been measured under this step's. */
  double judged_seconds;
  double replan_after_seconds;
};

struct mr_run;

/*
 * Plans, verifies the plan, allocates every tier and starts the queues. MR_DOES_NOT_FIT: refused
 * before anything was allocated or written, with one line that names the largest op and the
 * smallest budget; MR_UNSUPPORTED: the device is not there; MR_INVALID, MR_NO_MEMORY, MR_IO,
 * MR_NO_SPACE. The graph is borrowed until the run is destroyed. All tensors start as zeros.
 */
MR_API MR_CHECK_RESULT mr_status mr_run_create(const struct mr_graph *graph,
                                               const struct mr_options *options,
                                               struct mr_run **run_out);

/*
 * Ends the run, its threads and its files. Blocks until what is in flight has ended. MR_OK; or
 * MR_TIMEOUT where a CUDA device may hang for good, whether that was told before or shows at the
 * end: then the run, some threads and what they may touch stay until the process ends, and so must
 * the graph and the modules of its kernels; and as the driver may wait when a process exits, leave
 * it with _exit. `run` may be NULL.
 */
MR_API mr_status mr_run_destroy(struct mr_run *run);

/* What made the run fail first; MR_OK where nothing did. Any thread; does not block. */
MR_API MR_CHECK_RESULT mr_status mr_run_status(struct mr_run *run);

/* The plan of the run; belongs to the run. A step may put another plan in it, and the strings of a
 * summary of the former end: summarize it again. */
MR_API const struct mr_plan *mr_run_plan(const struct mr_run *run);

/*
 * Copies bytes into or out of an input, parameter or state between steps, wherever it rests;
 * blocks. Use ranges of a few MiB to stream large tensors. Reading waits until the last step has
 * finished, with the updates that it left to the next one where they concern the tensor.
 * MR_INVALID: a range outside the tensor, a tensor that does not live between steps or is
 * MR_DERIVED; MR_IO, MR_CORRUPT. One caller at a time.
 */
MR_API MR_CHECK_RESULT mr_status mr_run_write(struct mr_run *run, mr_tensor_id tensor,
                                              uint64_t offset_bytes, const void *data,
                                              uint64_t bytes);
MR_API MR_CHECK_RESULT mr_status mr_run_read(struct mr_run *run, mr_tensor_id tensor,
                                             uint64_t offset_bytes, void *data, uint64_t bytes);

/*
 * Runs one step and returns when its last op has finished; write-backs may go on behind it. Blocks.
 * After an error the run can only be destroyed. Errors: the status of the op or of the input or
 * output that failed; MR_DOES_NOT_FIT where others have taken so much of a CUDA device since it was
 * planned that the budget holds no plan any more; MR_TIMEOUT where nothing moved for longer than
 * the time limit and a half, be it for an input or output or for a kernel or copy of a CUDA device.
 * `report_out` may be NULL; its size_bytes must be set.
 */
MR_API MR_CHECK_RESULT mr_status mr_run_step(struct mr_run *run, mr_step_mode mode,
                                             struct mr_step_report *report_out);

/*
 * Runs what the last step left to the next (MR_OP_DEFERRABLE), waits until what the steps so far
 * write back has been written, and gives the status of the run: an update or a write that fails
 * behind the last step is told here, so call it before you call a job done. Blocks.
 */
MR_API MR_CHECK_RESULT mr_status mr_run_sync(struct mr_run *run);

/*
 * The figures so far, for a progress display: of tiers the most they held. Any thread. `step` is
 * the step in progress or the last one, `seconds` the time since it began (0 between steps); moved
 * bytes and busy seconds are since the run began, so that a reader takes differences.
 */
MR_API void mr_run_observe(const struct mr_run *run, struct mr_step_report *report_out);

/* Lists a measured machine as JSON: devices, tiers, link and op rates; the caller frees it with
 * free(). */
MR_API MR_CHECK_RESULT mr_status mr_machine_json(const struct mr_options *options, char **json_out);

#ifdef __cplusplus
}
#endif
#endif
