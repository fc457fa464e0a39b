/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A plan as text that can be kept, compared and loaded: one JSON object, documented in
 * memrun-plan(1). The header says for which job, machine and budgets it was made and which ops run
 * again; then come the stays, slots, extents, homes and queues, one to a line.
 *
 * Nothing that is read is believed. Numbers that follow from others are not in the file but made
 * again: sizes from the program, page counts from the pages that are named, gaps from the moves,
 * times from a simulation with the rates of the problem at hand. What comes out has passed the
 * verifier. Counts are bounded by the file's own length, so a hostile file costs no more memory
 * than its size warrants.
 */
#ifndef MEMRUN_PLAN_PLAN_FILE_H
#define MEMRUN_PLAN_PLAN_FILE_H

#include "plan/plan.h"

#define MR_PLAN_FILE_VERSION   9u
#define MR_PLAN_FILE_MAX_BYTES (512u << 20)
#define MR_PLAN_MACHINE_BYTES  160u

/* What a plan belongs to. */
struct mr_plan_header {
  char machine[MR_PLAN_MACHINE_BYTES];
  bool described;       /* the machine, by a file; else it is the one that it was made on */
  struct mr_digest job; /* of the client's graph */
  uint64_t budget_bytes[MR_TIER_COUNT];
  uint64_t footprint_bytes; /* of the client's graph; told, never used */
  mr_op_id *again;          /* ops of the client's graph that run twice, in any order */
  uint32_t again_count;
  bool deferred;    /* updates run in the next step: mr_graph_defer */
  uint32_t staying; /* of the last of them so many do not */
};

/* The text of a plan that fits; the caller frees it with free(). MR_NO_MEMORY. */
MR_CHECK_RESULT mr_status mr_plan_file_print(const struct mr_plan_header *header,
                                             const struct mr_program_plan *plan, char **text_out);

struct mr_plan_file;

/*
 * Reads the text as far as the header; `name` is borrowed for messages. MR_CORRUPT: no plan file of
 * this version, one line at error level says where and why; MR_NO_MEMORY.
 */
MR_CHECK_RESULT mr_status mr_plan_file_open(const char *name, const char *text, size_t bytes,
                                            struct mr_plan_file **file_out);
void mr_plan_file_close(struct mr_plan_file *file);
const struct mr_plan_header *mr_plan_file_header(const struct mr_plan_file *file);

/*
 * The plan, for problem->program with header->again and deferred applied and under the problem's
 * budgets and rates; verified and simulated. footprint_bytes is the caller's to fill in.
 * MR_DOES_NOT_FIT: it needs more of a tier than the problem's budget; MR_CORRUPT: logged both;
 * MR_NO_MEMORY.
 */
MR_CHECK_RESULT mr_status mr_plan_file_read(const struct mr_plan_file *file,
                                            const struct mr_plan_problem *problem,
                                            struct mr_program_plan **plan_out);

/* The gaps of a plan whose queues and operands are known to be right, from its moves. MR_NO_MEMORY.
 */
MR_CHECK_RESULT mr_status mr_plan_derive_gaps(struct mr_program_plan *plan);

#endif
