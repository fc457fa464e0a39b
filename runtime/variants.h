/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Variants of a finalist's plan: almost the same problem, planned side by side; where the best of
 * them is better, it takes the plan's place. What is changed is chosen by rule (runtime/amend.c) or
 * drawn at random (runtime/vary.c).
 */
#ifndef MEMRUN_RUNTIME_VARIANTS_H
#define MEMRUN_RUNTIME_VARIANTS_H

#include "plan/updates.h"
#include "runtime/finalists.h"

/* At most, however many threads there are: what is compared does not depend on them. */
#define MR_VARIANTS 4u

/* Of a step: where less is gained it is as if nothing were, and others are sought no longer. */
#define MR_VARIANTS_GAIN 2e-4

/* The program, what of it is on the host, and what may not move where. */
struct mr_variant {
  struct mr_candidate candidate; /* its program and seconds are the best plan's, but of clones */
  bool *on_host;                 /* for each of its tensors */
  struct mr_plan_ban *bans;      /* room for one of each of the client's tensors more */
  uint32_t ban_count;
  bool follows; /* the recipe, in place of a search */
  struct mr_recipe recipe;
  /* Ops of the client's graph that run again in a program which is made when it is planned; NULL:
   * the program is at hand. */
  mr_op_id *again;
  uint32_t again_count;
};

struct mr_variants {
  const struct mr_finalists *finalists;
  struct mr_candidate *best; /* the finalist */
  struct mr_plan_ban *bans;  /* that the best plan was made under */
  uint32_t ban_count;
  bool *on_host; /* in the best plan: for each tensor, and op */
  bool *runs_on_host;
  struct mr_update_group *groups; /* of its program, but of small tensors */
  uint32_t group_count;
  struct mr_variant at[MR_VARIANTS]; /* that are planned next */
  uint32_t count;
};

/* Nothing is known of the best plan before it is read. */
void mr_variants_init(struct mr_variants *variants, const struct mr_finalists *finalists,
                      struct mr_candidate *best);
void mr_variants_fini(struct mr_variants *variants);

/* Reads what the best plan decided. MR_NO_MEMORY. */
MR_CHECK_RESULT mr_status mr_variants_read(struct mr_variants *variants);

/* The client's graph; the first tensor that a group makes; whether the best plan has it on the
 * host. */
const struct mr_graph *mr_variants_graph(const struct mr_variants *variants);
mr_tensor_id mr_variants_made(const struct mr_variants *variants, uint32_t group);
bool mr_variants_runs_there(const struct mr_variants *variants, uint32_t group);

/* The best plan's program again, and one in which other ops of the client's graph run again.
 * MR_INVALID: there is none; MR_NO_MEMORY. */
struct mr_candidate mr_variants_program(const struct mr_variants *variants);
MR_CHECK_RESULT mr_status mr_variants_rewrite(const struct mr_variants *variants,
                                              const mr_op_id *again, uint32_t count,
                                              struct mr_candidate *candidate);

/* Adds a variant of the program, which it takes, like the best plan in all else; one that is added
 * may be changed, or taken back. MR_NO_MEMORY. */
MR_CHECK_RESULT mr_status mr_variants_add(struct mr_variants *variants,
                                          const struct mr_candidate *candidate,
                                          struct mr_variant **variant_out);
void mr_variants_take_back(struct mr_variants *variants);

/* Has a group of updates run on the host, or not. */
void mr_variants_set_site(const struct mr_variants *variants, uint32_t group, bool host,
                          bool *on_host);

/* Plans what was added, *made_out of them to the end, and takes the best of it where it is better
 * than the best plan. MR_NO_MEMORY, MR_INVALID. */
MR_CHECK_RESULT mr_status mr_variants_try(struct mr_variants *variants, uint32_t *made_out,
                                          bool *taken_out);

#endif
