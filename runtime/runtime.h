/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runtime/ does one run: it measures the machine, plans, takes the tiers and executes the plan.
 *
 * Nouns. *Settings* are the options with every default filled in and every budget a number. The
 * *profile* is what this machine does: copy rates, NVMe rates, seconds per unit of work for each
 * kind of op; it is kept in a file and learns from every run. A *plan* (struct mr_plan) is the
 * program, perhaps rewritten for recompute, and its layout (plan/). A *run* holds the tiers, the
 * queues and the counters. A *queue* is the ordered instructions of compute or of one link.
 *
 * How a step goes. The thread that calls mr_run_step is the compute queue and the first thread of
 * the team. Each link that the plan uses has a thread. Copies are done by their thread; reads and
 * writes are handed to the store, many in flight, and their queue's counter follows the finished
 * prefix. Every instruction first waits for its (queue, count) pairs, then binds the instances it
 * is the first to touch, then does its work, then advances its counter. Counters run through all
 * steps modulo 2^32: a count c of step s of a queue of n instructions is s * n + c. The links start
 * on a step when mr_run_step is called for it, never before, so that a client may write between
 * steps; mr_run_step returns with the last op, and what is still being written back drains behind
 * it. Reads are prefetches, and writes write-back, until compute waits for them; then they are
 * promoted, unless the plan shares the drive evenly.
 *
 * On a device with streams (device/device.h) compute and the copies are enqueued: a queue's thread
 * runs ahead, `enqueued` counts what it has handed to its stream, and a collector thread follows
 * the stream's marks, takes the times of ops and copies from those that are timed, which hold the
 * device up (stream.c), and advances `done`. A queue with a stream that waits for another such
 * waits until that has been enqueued, and lets its stream follow the other; all other waits are for
 * `done`. The store cannot reach the device there, so what it reads and writes goes through a ring
 * of pinned buffers (ring.c), and the host tier is pinned as a whole.
 *
 * Ops that the plan has on the host have a thread too (MR_QUEUE_HOST), which runs their callbacks
 * for the processor with the whole team while the device computes. Compute enqueues copies of the
 * small tensors that such an op reads; its thread goes on at once.
 *
 * Evaluation steps do the same moves and leave out the ops that only train. What those would have
 * written is garbage then, which moves around and is never looked at.
 *
 * Derived tensors have no value where they are dead, so every round has the ops that it leaves out
 * restore them. Before the first step under a plan, and after the client wrote what they are made
 * from, those that go round the end of a step have none either: a *restoring* round makes them.
 *
 * Deferred updates. Where the plan's program runs updates at the start of the next step
 * (mr_graph_defer), a training step leaves them *pending*, and what they need in the homes of
 * parameters, states and carried tensors. The next training step runs them; before anybody looks at
 * what they write, or writes what they read (the client, an evaluation step, another plan,
 * mr_run_sync), a *flush* does: a round of the queues that runs these ops alone. A training step
 * with nothing pending leaves them out. Each round makes the plan's moves, save that a flush passes
 * over those of tensors that hold nothing between steps and that its ops do not use.
 *
 * Figures, two-core virtual machine, kernel 6.18: planning gpt2-xl (2,279 ops) takes 0.5 s, and 1.0
 * beside others; filling the tiers 140 ms per GiB (two threads are no faster), several times that
 * where the machine below has to find the memory first; 12 layers of 512 keep 0.87 of their
 * unconstrained speed with a quarter of the memory, and what they lose are waits of the optimizer's
 * updates, which read and write more than they compute.
 *
 * Memory. All tiers are taken, and present, before the first step. A step allocates nothing. Beside
 * the tiers a run has: one bounce buffer (2 MiB), a transfer record for each NVMe instruction, the
 * store's pool, thread stacks of 256 KiB, and the trace's rings; the promise leaves 96 MiB for
 * these, for libraries and for the client's heap (MR_OVERHEAD_BYTES).
 *
 * Another plan. The steps under a plan are measured (outlook.h). Where their median is off the
 * forecast, and others did not take the processors, the rates that they show take the place of the
 * profile's, and the present plan gets a new forecast: for the steps that follow, which alone are
 * set against it. What steps took beyond their simulation by these rates is part of it. Where it
 * was far off, a plan made for these rates takes over before the next step if it promises enough
 * (replan.c). What lasts then moves to its new homes piece by piece, memory being given back as it
 * is read, so that no budget is exceeded (migrate.c).
 * Planning is done between the steps, on the run's threads: beside them it would slow down what it
 * wants to know. What others have of an accelerator is looked at after each step; where the
 * budget does not hold that beside the present plan, one for the rest takes over before the next
 * step, or the run ends.
 *
 * Errors. The first failure wins: it is kept, `stop` is set, every wait ends, and mr_run_step
 * returns it. A wait in which nothing moves for longer than the I/O time limit and a half ends the
 * run with the instruction, the tensor and the age. The store has a deadline of its own for each
 * transfer, which is shorter. What the processor works on may take as long as it takes, but a
 * kernel or a copy of a stream that lets nothing else move for so long is taken to hang. Threads
 * that wait for it sit in the driver for good, so that such a run is left as it is when it is
 * destroyed. For the thread that watches not to sit there too, compute is never further ahead of
 * its stream than the driver takes work for without blocking.
 *
 * Not here: which tensor goes where (plan/), what is recomputed at what price (recompute/), how
 * bytes reach the disk (offload/), where pages are (device/). Choosing among recompute candidates
 * is here, because each must be planned to be judged.
 */
#ifndef MEMRUN_RUNTIME_RUNTIME_H
#define MEMRUN_RUNTIME_RUNTIME_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <memrun/run.h>

#include "base/base.h"
#include "base/counter.h"
#include "base/trace.h"
#include "device/device.h"
#include "offload/store.h"
#include "plan/plan.h"
#include "runtime/machine_file.h"
#include "runtime/outlook.h"
#include "runtime/profile.h"
#include "runtime/traffic.h"

/* What the process may use beside the device and host budgets. */
#define MR_OVERHEAD_BYTES (96ull << 20)
#define MR_BOUNCE_BYTES   (2ull << 20)
/* What an accelerator's driver and libraries may use on the host. */
#define MR_DRIVER_BYTES (512ull << 20)

/* Options, checked and complete. */
struct mr_settings {
  const struct mr_device_ops *device;
  struct mr_accelerator accelerator;    /* where the device is one; before the run takes its own */
  uint64_t budget_bytes[MR_TIER_COUNT]; /* of the run itself; 0: not used */
  uint64_t outside_bytes;    /* what others have of the accelerator, beside the device's budget */
  uint64_t most_table_bytes; /* what it takes at most to reach the run's pinned memory */
  uint64_t short_bytes;      /* by how much what was given is less than all of it */
  uint64_t nvme_asked_bytes; /* by limits of all paths; 0: one has none */
  bool budget_open[MR_TIER_COUNT]; /* not given: taken from what there is */
  struct mr_nvme_path nvme[MR_MAX_NVME_PATHS];
  uint32_t nvme_count;
  bool host;
  bool offload_nvme;
  mr_recompute recompute;
  mr_io_engine io_engine;
  double io_timeout_seconds;
  uint32_t threads;
  char *trace_path;           /* NULL: none */
  char *profile_path;         /* NULL: nowhere to keep it */
  bool profile_named;         /* by the options */
  char *plan_path;            /* NULL: a plan is made */
  struct mr_machine *machine; /* that profile_path describes; NULL: this one */
  bool reprofile;
  mr_policy policy;
  mr_replan replan;
  mr_defer defer;
};

/* Checks the options, copies what they borrow, resolves budgets: on an accelerator of what ops of
 * the graph (NULL: none) leave when libraries have taken their part. MR_INVALID, MR_IO (an NVMe
 * path that cannot be used, a device that fails), MR_NO_MEMORY. */
MR_CHECK_RESULT mr_status mr_settings_init(struct mr_settings *settings,
                                           const struct mr_options *options,
                                           const struct mr_graph *graph);
void mr_settings_fini(struct mr_settings *settings);

/* What this process may use in all, its present heap included, less MR_OVERHEAD_BYTES: the lowest
 * of the cgroup limits on the way to the root and what is available on the machine. */
uint64_t mr_budget_available_bytes(void);

/* Lets libraries take what they take of the accelerator; see rehearse.c. Statuses of the device and
 * of ops. */
MR_CHECK_RESULT mr_status mr_rehearse(const struct mr_graph *graph,
                                      const struct mr_settings *settings);
/* Teaches the profile what ops take of which it knows nothing. *learned_out: there were such.
 * Statuses of the device and of ops. */
MR_CHECK_RESULT mr_status mr_rehearse_unknown(const struct mr_graph *graph,
                                              const struct mr_settings *settings,
                                              struct mr_profile *profile, bool *learned_out);

/* What an op of the graph that plans may have on the host beside an accelerator gets through of
 * memory, alone and together with copies; unchanged where there is none, or no room. MR_NO_MEMORY;
 * what the op and the device give. */
MR_CHECK_RESULT mr_status mr_rehearse_host(const struct mr_graph *graph,
                                           const struct mr_settings *settings,
                                           struct mr_profile *profile);

/* Fills in settings->budget_bytes; offload and paths are known. The graph, or NULL, tells how much
 * may come to be pinned. MR_IO names a path. */
MR_CHECK_RESULT mr_status mr_budget_resolve(struct mr_settings *settings,
                                            const struct mr_options *options,
                                            const struct mr_graph *graph);
/* A line where NVMe has less than was asked for; a refusal names budgets as they are. */
void mr_budget_tell_cut(const struct mr_settings *settings);

/* What an accelerator takes of its memory for the page tables by which it reaches so much pinned
 * memory: 8 bytes for each 4 KiB, 2 MiB at once (measured on an H200). 0: there is none. */
uint64_t mr_budget_table_bytes(const struct mr_settings *settings, uint64_t pinned_bytes);

/* Where others now have so much of the accelerator, the run itself gets the rest of the budget. */
void mr_budget_leave_outside(struct mr_settings *settings, uint64_t outside_bytes);

/* Which ops a round of the queues runs. */
enum mr_round {
  MR_ROUND_TRAIN = 0, /* all */
  MR_ROUND_FRESH,     /* all but deferred ones: nothing is pending */
  MR_ROUND_FLUSH,     /* deferred ones alone */
  MR_ROUND_EVALUATE,  /* those without MR_OP_TRAIN_ONLY */
  MR_ROUND_RESTORE,   /* none */
};

struct mr_plan {
  const struct mr_graph *graph; /* the client's */
  struct mr_graph *rewritten;   /* NULL: the program is the graph */
  struct mr_settings settings;
  struct mr_profile *profile;
  double *op_seconds; /* of the program */
  struct mr_plan_problem problem;
  struct mr_program_plan *layout;
  uint64_t footprint_bytes; /* of the client's graph, whatever is recomputed */
  double bound_seconds;     /* no plan of the graph, with any recompute allowed, is faster */
  uint64_t recomputed_bytes;
  uint32_t recomputed_op_count;
  double recomputed_seconds;
  uint32_t deferred_op_count; /* ops that run in the next step */
  struct mr_store_rates nvme; /* that the forecast is made with */
};

/* How long a wait may see nothing move, and work on a device with streams may take. */
double mr_settings_watch_seconds(const struct mr_settings *settings);

/* Of the team of a run: beside an accelerator not all, so that the threads that launch work there
 * and see it end need not wait for a processor. */
uint32_t mr_settings_team_threads(const struct mr_settings *settings);

/* The budgets as users know them: the device's with what others have of it. */
void mr_settings_tell_budgets(const struct mr_settings *settings,
                              uint64_t bytes_out[MR_TIER_COUNT]);

/* The smallest budget of the device as a whole that would do; UINT64_MAX: none. */
uint64_t mr_plan_smallest_device_bytes(const struct mr_plan *plan);
/* The same for another smallest budget of the run's own; UINT64_MAX: none would do. */
uint64_t mr_plan_smallest_bytes(const struct mr_plan *plan, uint64_t own_bytes);
/* What others have of the device while the plan runs, its pinned memory's tables counted in. */
uint64_t mr_plan_outside_bytes(const struct mr_plan *plan);

/* The machine that the plan is for: processor, cores, threads; or the name of a described one. */
const char *mr_plan_machine(const struct mr_plan *plan);

/* Logs the one line of a plan that does not fit. */
void mr_plan_log_refusal(const struct mr_plan *plan);

/* "compute", "host" or the link with the most seconds. */
const char *mr_bound_name(double compute_seconds, double host_seconds, const double *link_seconds);
extern const char *const mr_link_names[MR_LINK_COUNT];
/* The same of the roles, by mr_role. */
extern const char *const mr_role_names[MR_DERIVED + 1];

struct mr_run;
struct mr_queue;
struct mr_ring;

/* A read or write that the store has, or had. */
struct mr_transfer {
  struct mr_store_request request;
  struct mr_queue *queue;
  uint64_t start_ns;
  bool finished;
  bool promoted; /* compute waits for it */
};

/* Everything below `lock` is read and written with it held; counters and atomics are free. */
struct mr_queue {
  struct mr_run *run;
  uint32_t index;
  uint32_t count; /* instructions of a step */
  const struct mr_instruction *instructions;
  struct mr_counter done;     /* finished prefix, over all steps */
  struct mr_stream *stream;   /* NULL: work is done on this thread or by the store */
  struct mr_counter enqueued; /* where there is a stream: the prefix that it has got */
  float *known_seconds; /* there, of each instruction: as it was timed last; 0: it never was */
  _Atomic uint64_t moved_bytes;
  _Atomic uint64_t busy_ns;
  _Atomic uint64_t op_started_ns; /* a callback or a copy that runs right now; 0: none */
  struct mr_transfer *transfers;  /* count; NULL for compute and copies */
  struct mr_ring *ring;           /* of the NVMe queues, where there are streams */

  pthread_mutex_t lock;
  uint32_t issued;         /* transfers handed out, over all steps */
  uint32_t finished;       /* as `done` */
  uint32_t finished_index; /* of the first unfinished one in its step */
  uint32_t demand_until;   /* compute waits for transfers up to here */
  uint64_t in_flight_bytes;
  uint64_t busy_since_ns;
  uint64_t traced_until_ns;
};

/* What of the tiers has been in use since this plan began; see peak.c. */
struct mr_taken {
  uint64_t small_bytes;            /* compute's thread */
  _Atomic uint8_t *host_page_seen; /* for each host page */
  uint8_t *extent_seen;            /* for each extent; the NVMe write queue's thread */
  _Atomic uint64_t host_page_count;
  _Atomic uint64_t nvme_bytes;
  uint64_t outside_bytes; /* others' of the accelerator, when it was looked at last */
};

/* What the queue of the host gets from compute for one of its ops, beside its small inputs. */
struct mr_handed {
  bool skip; /* the round leaves the op out */
  mr_step_mode mode;
};

/* A small input of an op on the host. The first of several ops that read the same value of a
 * tensor, in the order of the program, is handed it and gives it to the others. */
struct mr_handed_input {
  char *place; /* of the op's own */
  uint64_t bytes;
  uint32_t instruction; /* the op's, of the queue of the host */
  uint32_t giver;       /* the input that this one has its value from; itself */
  uint32_t next;        /* of those with the same giver; MR_NO_INPUT: this is the last */
};
#define MR_NO_INPUT UINT32_MAX

/* Where compute puts what ops on the host are handed; see handover.c. */
struct mr_handover {
  struct mr_memory memory; /* pinned */
  bool pinned;
  struct mr_handed *handed; /* for each instruction of the queue of the host */
  uint32_t *index;          /* for each op that is handed over: its instruction there */
  struct mr_handed_input *inputs;
  uint32_t *first_input; /* for each instruction: its inputs, and where those of the last end */
};

/* Of each queue one that works, and one that collects or pumps. */
#define MR_RUN_THREADS (2 * MR_QUEUE_COUNT)

struct mr_run {
  const struct mr_graph *graph;
  uint32_t tensor_count; /* of it, when the run was made */
  struct mr_plan *plan;
  const struct mr_program_plan *layout;
  const struct mr_device_ops *device_ops;
  struct mr_device *device;
  struct mr_team *team;
  struct mr_memory host;
  bool host_pinned;
  struct mr_memory bounce;
  struct mr_handover handover;
  struct mr_store *store; /* NULL: no NVMe */
  uint32_t *extents;      /* the store's numbers of the layout's extents */
  struct mr_trace *trace;

  void **operands;  /* the addresses of layout->operands; NULL: none */
  void **addresses; /* of each instance */
  uint32_t *ranges; /* the same, of the device's; MR_NO_RANGE: it has none */
  struct mr_outlook outlook;
  struct mr_traffic traffic;

  struct mr_queue queues[MR_QUEUE_COUNT];
  struct mr_counter steps; /* begun */
  uint64_t step_index;     /* of the step in progress or last */
  uint64_t round_count;    /* of the queues under the present plan: steps and flushes */
  _Atomic int round;       /* enum mr_round: in progress or last */
  _Atomic bool times_all;  /* it times all that streams do, not a part */
  bool pending;            /* the last training step left deferred ops to run */
  bool stale;              /* what derived tensors are made from was written */
  double flush_seconds;    /* of rounds between steps since the last training step */
  uint64_t plan_base;      /* steps before the present plan's first */
  double look_seconds;     /* that the last look at the present plan's forecast took */
  double planning_seconds; /* that the last look for another plan took */
  double planned_at;       /* mr_clock_seconds() after that */
  uint32_t planned_again;
  uint32_t replan_count;
  uint64_t replan_step;            /* the present plan's first; 0: the run's first plan */
  double replan_before_seconds;    /* the former plan's forecast, by the rates of then */
  double replan_after_seconds;     /* the present plan's, by the same */
  _Atomic double forecast_seconds; /* the present plan's step */
  _Atomic bool stop;
  pthread_t threads[MR_RUN_THREADS];
  uint32_t thread_count;   /* of the queues, that were started since they rested */
  struct mr_counter ended; /* of them */
  pthread_mutex_t status_lock;
  mr_status status; /* the first failure */
  _Atomic bool fault_told;

  _Atomic uint64_t observed_step;
  _Atomic uint64_t step_started_ns;
  _Atomic bool in_step;
  _Atomic bool in_round; /* ops run */
  struct mr_taken taken;
  /* Since the run began; any thread may read them. */
  _Atomic uint64_t peak_bytes[MR_TIER_COUNT]; /* measured */
  _Atomic uint64_t planned_peak_bytes[MR_TIER_COUNT];
  _Atomic uint64_t told_budget_bytes[MR_TIER_COUNT]; /* of now, as the user gave them */
  uint64_t before_moved_bytes[MR_LINK_COUNT];
  uint64_t before_busy_ns[MR_LINK_COUNT];
  uint64_t before_host_bytes;
  uint64_t before_host_ns;
};

/* Keeps the first failure and stops every queue. Any thread. */
void mr_run_fail(struct mr_run *run, mr_status status);
/* Whether a device may still touch what the run has, for good: nothing of it is given back. */
bool mr_run_is_left(struct mr_run *run);

/*
 * Takes the tiers, zeroed, and computes every address; undone by mr_tiers_fini, which may be called
 * after a failure. With the run that goes before, memory comes as it is first written, the rest of
 * it with mr_tiers_complete, and a store that serves both is left to mr_tiers_migrate.
 */
MR_CHECK_RESULT mr_status mr_tiers_init(struct mr_run *run, const struct mr_run *before);
MR_CHECK_RESULT mr_status mr_tiers_complete(struct mr_run *run);
void mr_tiers_fini(struct mr_run *run);
/* Copies of streams no longer reach the host tier, whose pages may then be given back. */
void mr_tiers_unpin(struct mr_run *run);
/* Brings the pages of an instance to its addresses. MR_NO_MEMORY: the device's refusal. */
MR_CHECK_RESULT mr_status mr_tiers_bind(const struct mr_run *run, uint32_t instance);
/* Room for an extent of the layout, which reads as zeros. */
MR_CHECK_RESULT mr_status mr_tiers_take_extent(struct mr_run *run, uint32_t extent);

/* Whether the tiers of `layout` can be there beside what lasts in the run's; and whether the run's
 * store has room for that. */
bool mr_tiers_can_migrate(const struct mr_run *run, const struct mr_program_plan *layout);
bool mr_tiers_share_store(const struct mr_run *run, const struct mr_program_plan *layout);

/*
 * Moves what lasts between steps from the homes of one run's plan to those of another's, whose
 * tiers were taken with the first as the one before; the store goes over too. Memory is given back
 * as it is read, so that both together never hold more than the larger of the two. After a failure
 * neither can go on.
 */
MR_CHECK_RESULT mr_status mr_tiers_migrate(struct mr_run *from, struct mr_run *to);

/* Bytes of a tensor in its home, when nothing moves; the range is inside. What the store gives. */
MR_CHECK_RESULT mr_status mr_home_read(struct mr_run *run, mr_tensor_id tensor,
                                       uint64_t offset_bytes, void *data, uint64_t bytes);
MR_CHECK_RESULT mr_status mr_home_write(struct mr_run *run, mr_tensor_id tensor,
                                        uint64_t offset_bytes, const void *data, uint64_t bytes);

/* The plan's peaks. */
uint64_t mr_plan_need_bytes(const struct mr_program_plan *layout, mr_tier tier);

/* Counting what is taken: homes at once, after the device is there; everything else where it is
 * taken. */
MR_CHECK_RESULT mr_status mr_taken_init(struct mr_run *run);
void mr_taken_fini(struct mr_run *run);
void mr_taken_count_op(struct mr_run *run, mr_op_id op);
void mr_taken_count_slot(struct mr_run *run, uint32_t slot);
void mr_taken_count_extent(struct mr_run *run, uint32_t extent);
/* Looks at what others have of the accelerator now. The thread that steps; the device's failure. */
MR_CHECK_RESULT mr_status mr_taken_look(struct mr_run *run);
/* By how much that and the run's own exceed the device's budget; 0: they do not. */
uint64_t mr_taken_excess_bytes(const struct mr_run *run);
/* Brings the run's peaks up to now; the thread that steps. */
void mr_taken_tell(struct mr_run *run);

/* The address of byte `at` of a host slot, and how many bytes of it lie side by side from there. */
char *mr_host_place(const struct mr_run *run, const struct mr_slot *slot, uint64_t at,
                    uint64_t *together_out);

void mr_queues_init(struct mr_run *run);
/* Takes the instructions of run->layout, with counters at 0; threads rest. */
MR_CHECK_RESULT mr_status mr_queues_load(struct mr_run *run);
MR_CHECK_RESULT mr_status mr_queues_start(struct mr_run *run);
/* Joins the threads between two steps, after mr_run_drain; load and start go on. */
void mr_queues_rest(struct mr_run *run);
/* Stops and joins; the store is still there. False where a thread is held up in the driver of a
 * device that hangs: the run, the plan and the graph must stay then. */
bool mr_queues_stop(struct mr_run *run);
void mr_queues_fini(struct mr_run *run);

/* Writes what the timeline has so far, whose names are those of the present plan's program. */
MR_CHECK_RESULT mr_status mr_run_flush_trace(struct mr_run *run);

/* Runs what is pending, between two steps; a failure is the run's. */
MR_CHECK_RESULT mr_status mr_run_flush(struct mr_run *run);

/* MR_INVALID, logged, where ops run: `call` would wait for itself. */
MR_CHECK_RESULT mr_status mr_run_check_outside(const struct mr_run *run, const char *call);

/* Copies as much of a report or summary of `bytes` bytes as the caller's has, whose first field,
 * its size_bytes, says how much that is: 0 or more mean all. */
void mr_hand_out(const void *whole, size_t bytes, void *out);
/* The client wrote the tensor: what is derived from it is stale. */
void mr_run_note_written(struct mr_run *run, mr_tensor_id tensor);
/* Whether pending ops write the tensor, or (`any`) read it. */
bool mr_run_is_pending(const struct mr_run *run, mr_tensor_id tensor, bool any);
/* Waits until the links are through with what the steps so far gave them; as mr_run_sync else. */
MR_CHECK_RESULT mr_status mr_run_drain(struct mr_run *run);

/* Whether a link moves bytes right now. */
bool mr_queues_busy(struct mr_run *run);

/* Waits until a counter of `awaited`, `done` or `enqueued`, has reached `target`; false where the
 * run stopped, or this wait stopped it because nothing moved for too long. */
bool mr_queue_await(struct mr_queue *queue, struct mr_queue *awaited, struct mr_counter *counter,
                    uint32_t target, const struct mr_instruction *instruction);
/* The tensor of a move or the op of compute; and with its size. */
const char *mr_instruction_name(const struct mr_run *run, const struct mr_instruction *instruction);
struct mr_work mr_instruction_work(const struct mr_run *run,
                                   const struct mr_instruction *instruction);
const char *mr_queue_name(uint32_t index);
/* A thread of a queue's, whose last deed is to count itself in run->ended; MR_NO_MEMORY. Joined
 * with all others of the run. */
MR_CHECK_RESULT mr_status mr_queue_thread(struct mr_queue *queue, void *(*start)(void *argument),
                                          void *argument);
/* Waits for an instruction's pairs; false where the run stopped (or this wait stopped it). */
bool mr_queue_wait(struct mr_queue *queue, const struct mr_instruction *instruction, uint64_t step);
/* Binds what the instruction is the first to touch. */
MR_CHECK_RESULT mr_status mr_queue_bind(struct mr_queue *queue,
                                        const struct mr_instruction *instruction);
/* Passes over a transfer that a flush has no use for. */
void mr_transfer_pass(struct mr_queue *queue, uint32_t index);
/* Submits one transfer of the NVMe queues; true where the run goes on. */
bool mr_transfer_issue(struct mr_queue *queue, uint32_t index, uint64_t step);
/* Compute waits until `target` transfers have finished: they go first from now on. */
void mr_transfer_promote(struct mr_queue *queue, uint32_t target);
/* With the lock held: a transfer of `bytes` is under way; it is over. */
void mr_transfer_begin(struct mr_queue *queue, struct mr_transfer *transfer, uint64_t bytes);
void mr_transfer_finish(struct mr_queue *queue, struct mr_transfer *transfer);

/* Streams and collectors of compute and the copies, where the device has streams. A started run
 * ends in mr_streams_fini, once its threads have. */
MR_CHECK_RESULT mr_status mr_streams_start(struct mr_run *run);
void mr_streams_fini(struct mr_run *run);
/* Lets the queue's stream wait for an instruction of another's, the first `count` of a step, which
 * are `target` over all steps. False where the run stopped. */
bool mr_stream_follow(struct mr_queue *queue, struct mr_queue *awaited, uint32_t count,
                      uint32_t target, const struct mr_instruction *instruction);
/* Enqueue a copy, and an op. */
bool mr_stream_copy(struct mr_queue *queue, const struct mr_instruction *instruction);
MR_CHECK_RESULT mr_status mr_stream_run_op(struct mr_run *run, mr_op_id id);
/* Waits for the end of the last op of a step. */
MR_CHECK_RESULT mr_status mr_stream_drain(struct mr_run *run);
/* The run fails by what was asked of a stream; after a fault of the device it tells, once, which op
 * that was at. Any thread that entered the device. */
void mr_stream_fail(struct mr_run *run, mr_status status);

/* What the callback of an op gets, but for the stream; whether the round leaves the op out, and it
 * has nothing to restore. */
struct mr_op_call mr_run_call(struct mr_run *run, mr_op_id id);
bool mr_run_skips(const struct mr_run *run, mr_op_id id);
/* Adds what an op took to what the steps show. */
void mr_run_record_op(struct mr_run *run, mr_op_id id, const struct mr_op_sample *sample);

/* Ops that run on the host beside the device: the memory for what they are handed, whose addresses
 * become those of their small operands; compute's part, which enqueues copies; and the op itself,
 * on the queue's thread: false where the run stopped. */
MR_CHECK_RESULT mr_status mr_handover_init(struct mr_run *run);
void mr_handover_fini(struct mr_run *run, bool device_is_settled);
MR_CHECK_RESULT mr_status mr_handover_copy(struct mr_run *run, mr_op_id op);
bool mr_handover_run(struct mr_queue *queue, uint32_t index);

/* Of a ring: four chunks of the store in a piece, and 32 in flight in each direction: enough for
 * some drives, and little beside what a process with a driver has anyway. */
#define MR_RING_PIECE_BYTES (4 * MR_STORE_CHUNK_BYTES)
#define MR_RING_PIECES      8u
#define MR_RING_BYTES       (MR_RING_PIECES * MR_RING_PIECE_BYTES)

/* The rings of the NVMe queues, where the device has streams: memory, and threads. */
MR_CHECK_RESULT mr_status mr_rings_init(struct mr_run *run);
void mr_rings_fini(struct mr_run *run, bool store_is_stuck, bool device_is_settled);
MR_CHECK_RESULT mr_status mr_rings_start(struct mr_run *run);
/* Submits a transfer piece by piece; true where the run goes on. */
bool mr_ring_issue(struct mr_queue *queue, struct mr_transfer *transfer, uint32_t index);
/* With the lock held. */
void mr_ring_promote(struct mr_ring *ring, const struct mr_transfer *transfer);

/*
 * Goes on with another plan of the same graph, between two steps: waits for write-backs, takes the
 * plan's tiers, moves everything that lasts. On success `plan` is left with what the run had. Where
 * both plans' tiers cannot be there while bytes move, MR_NO_SPACE or MR_NO_MEMORY, and the run goes
 * on as it is; after a failure once bytes move (mr_run_status) it cannot go on.
 */
MR_CHECK_RESULT mr_status mr_run_switch(struct mr_run *run, struct mr_plan *plan);

/* Between two steps: forecasts and plans again where the steps so far call for it. A failure is the
 * run's. */
MR_CHECK_RESULT mr_status mr_run_review(struct mr_run *run);

/* Between two steps: where others have taken more of the accelerator than the present plan leaves
 * them, one for what they leave takes over. MR_DOES_NOT_FIT where none can, MR_NO_MEMORY where
 * there is none to plan with, told in one line; the run cannot go on after a failure. */
MR_CHECK_RESULT mr_status mr_run_make_room(struct mr_run *run);

/* Logs, at debug level, what a typical step took beside a simulation of it by the times of its ops
 * and links. At a run's end: the layout's times of instructions are the simulation's then. */
void mr_run_replay(struct mr_run *run);

/* The peak of the process's resident set. */
uint64_t mr_resident_peak_bytes(void);

#endif
