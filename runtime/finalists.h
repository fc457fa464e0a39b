/* SPDX-License-Identifier: Apache-2.0 */
/* The best recompute candidates: they are planned with search, those of small programs for budgets
 * and links near those at hand too, the best are changed in single decisions, and of these the best
 * is varied. */
#ifndef MEMRUN_RUNTIME_FINALISTS_H
#define MEMRUN_RUNTIME_FINALISTS_H

#include "runtime/runtime.h"

#define MR_FINALISTS 12u /* at most */

/* A program to plan, and its plan. */
struct mr_candidate {
  const struct mr_graph *program;
  struct mr_graph *rewritten; /* NULL: the program is the plan's graph */
  double *op_seconds;
  struct mr_program_plan *layout;
  bool stays; /* among the finalists */
  bool whole; /* its plan is for the whole budget, not for the rung of the ladder below it */
};

struct mr_finalists {
  struct mr_plan *plan; /* not changed while candidates are planned */
  uint64_t max_page_count;
  uint64_t page_bytes;                    /* that the device asks for; 0: any */
  struct mr_candidate best[MR_FINALISTS]; /* the best first */
  uint32_t count;
  uint32_t most;        /* that there may be */
  bool turned;          /* the first of them were planned with search */
  bool placing;         /* search chooses which ops run on the host */
  bool whole;           /* plans are for the whole budget: see mr_plan_problem */
  bool amended;         /* the best were changed in single decisions, and varied */
  bool halved;          /* by half as many as else: the job is planned without NVMe too */
  bool telling;         /* refusals always say what would do: else they are terse (plan/plan.h) */
  bool torn;            /* what the device has no room for takes both the host and NVMe */
  double least_seconds; /* no plan of the job is faster; 0: not known */
};

/* No finalists of a plan whose problem is known but for its program. */
void mr_finalists_init(struct mr_finalists *finalists, struct mr_plan *plan);

/* Whether ops may run on a host beside the device. */
bool mr_finalists_host_runs(const struct mr_finalists *finalists);

/* Whether the device can map the plan's pages one by one. */
bool mr_finalists_can_map(const struct mr_finalists *finalists,
                          const struct mr_program_plan *layout);

void mr_candidate_fini(struct mr_candidate *candidate);

/* Marks the tensors that ops on the host use there in the candidate's plan. */
void mr_candidate_list_on_host(const struct mr_candidate *candidate, bool *on_host);

/* Whether a plan that fits is faster, or as fast and moves less. */
bool mr_candidate_is_better(const struct mr_program_plan *layout,
                            const struct mr_program_plan *than);

/* Plans the candidate's program without search; on_host as in mr_plan_problem. MR_NO_MEMORY,
 * MR_INVALID. */
MR_CHECK_RESULT mr_status mr_finalists_plan(const struct mr_finalists *finalists,
                                            struct mr_candidate *candidate, const bool *on_host);

/* Puts a planned candidate among the finalists where it is good enough, else ends it. */
void mr_finalists_add(struct mr_finalists *finalists, struct mr_candidate *candidate);
/* Ends them all; others can be searched then. */
void mr_finalists_drop(struct mr_finalists *finalists);
/* The same, but for the best, which is the caller's. */
struct mr_candidate mr_finalists_take_best(struct mr_finalists *finalists);
/* Exchanges the best for another where that is better. */
void mr_finalists_exchange_best(struct mr_finalists *finalists, struct mr_candidate *other);

/* True where no other plan is wanted: the best one runs nothing again, and moves nothing or never
 * has the device wait; or next to nothing could be gained; or any that fits will do. */
bool mr_finalists_settled(const struct mr_finalists *finalists);

/* How many plans of the graph are as many as so many ops: half as many where a plan takes twice as
 * long to make, since ops run on a host beside the device and NVMe is below both. */
uint32_t mr_finalists_affordable(const struct mr_finalists *finalists, uint64_t ops);

/* How many of the finalists, the best first, are planned with updates in the next step too. */
uint32_t mr_finalists_deferred(const struct mr_finalists *finalists);

/* Plans the finalists with search, those of small programs for what is near too, changes them in
 * single decisions and varies the best, the latter two once; the best is the first then.
 * MR_NO_MEMORY, MR_INVALID. */
MR_CHECK_RESULT mr_status mr_finalists_search(struct mr_finalists *finalists);

#endif
