/* SPDX-License-Identifier: Apache-2.0 */
/* How much is tried for a plan, by how large the program is and where its ops run. */
#ifndef MEMRUN_RUNTIME_EFFORT_H
#define MEMRUN_RUNTIME_EFFORT_H

#include <stdint.h>

/* What ends with _ops is for as many plans as have so many ops together. */
struct mr_effort {
  uint32_t finalists;    /* candidates that stay, by plans without search */
  uint32_t searched;     /* of them, at most */
  uint32_t searched_ops; /* and, but for one or two, no more than have so many ops together */
  uint32_t aimed;        /* of them, planned for other aims too */
  uint32_t placed_ops;   /* so many of them choose anew which ops run on the host */
  uint32_t amend_ops;    /* plans in which single decisions are changed (runtime/amend.c) */
  uint32_t vary_ops;     /* variants of the best that are swept (runtime/vary.c) */
  uint32_t budget_ops;   /* plans for lower budgets, where no program competes with this one */
};

/* By ops of the client's graph: small ones are planned for many machines (plan/machines.c). */
enum mr_program_size { MR_PROGRAM_SMALL, MR_PROGRAM_USUAL, MR_PROGRAM_LARGE, MR_PROGRAM_SIZES };
enum mr_program_size mr_program_size_of(uint32_t op_count);

enum mr_program_site {
  MR_PROGRAM_PROCESSOR,         /* computes; there is no device apart */
  MR_PROGRAM_ALONE,             /* a device apart runs all ops, */
  MR_PROGRAM_ABOVE_BOTH,        /* and what it has no room for takes both the host and NVMe */
  MR_PROGRAM_BESIDE_HOST,       /* a host runs ops beside it, */
  MR_PROGRAM_BESIDE_ABOVE_NVME, /* and that takes both */
  MR_PROGRAM_SITES
};

const struct mr_effort *mr_effort_of(enum mr_program_size size, enum mr_program_site site);

#endif
