/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A cut looks at any schedule at one moment at which much must lie on the device, and says how much
 * time there must be before and after it; problem.h has the proof. bound.c puts cuts together.
 */
#ifndef MEMRUN_PLAN_PROBLEM_CUT_H
#define MEMRUN_PLAN_PROBLEM_CUT_H

#include "plan/problem/draft.h"

/* Segments this short may be over before their working set counts: no cut there. */
#define MR_PROBLEM_SHORTEST_SEGMENT_SECONDS 1e-6

enum mr_problem_moment {
  MR_MOMENT_DURING, /* segment k has just started, or is about to end */
  MR_MOMENT_BEFORE, /* segment k > 0 is about to start: all that it needs is there */
};

struct mr_problem_cut {
  double work_before; /* compute seconds before the cut */
  double work_after;
  double needed_bytes; /* that must be away from the device */
  double ordinary_bytes;
  double clean_bytes;
  double gradient_bytes; /* made before the cut */
  double gradient_total_bytes;
  double weight_before_bytes; /* that must have come in before the cut */
  double weight_after_bytes;
  double first_out_seconds; /* no byte that counts here can leave earlier */
  double last_in_seconds;   /* from the latest arrival to the end of all segments */
  bool has_menu;            /* once it is asked for */
  int32_t menu_count;
  double *menu_bytes; /* prefix sums: menu_count + 1 entries */
  double *menu_seconds;
};

/* A sum, and what rounding took from it. */
struct mr_problem_sum {
  double high, low;
};

/* What lies across the present cut at one price of a byte. */
struct mr_problem_price {
  int32_t count; /* of tensors */
  struct mr_problem_sum bytes;
  struct mr_problem_sum seconds; /* to make them again */
};

/*
 * Makes cuts of a problem, one at a time. Arrays have an entry for each boundary, 0 to
 * segment_count. What lies across follows the cut from segment to segment, so a sweep over all cuts
 * touches each tensor a few times.
 */
struct mr_problem_cutter {
  const struct mr_problem *problem;
  struct mr_problem_index *index;
  int32_t *first_need;    /* by_need[first_need[g] ...] are needed by g; one entry more */
  double *clock;          /* compute seconds before each segment */
  double *gradient_bytes; /* of the gradients that are made before each segment */
  double *weight_bytes;   /* of the weights that are needed up to each segment */
  double *arrived_bytes;  /* what each segment needs and cannot make itself ... */
  double *handed_bytes;   /* ... but for these, which the one before makes */
  int32_t first_gradient; /* p of the first one; segment_count: there is none */
  int32_t last_weight;    /* g of the last one; -1: there is none */
  int32_t *last_need;   /* the last g of a tensor with a choice that is made before each segment */
  int32_t *first_birth; /* the first p of an ordinary one that is needed after each segment */
  int32_t *price_place; /* for each tensor: in prices, or -1 */
  int32_t price_count;
  struct mr_problem_price *prices;       /* cheapest byte first */
  struct mr_problem_sum across_bytes[2]; /* of ordinary and of clean tensors across the cut */
  int32_t segment;       /* of the present cut: tensors across it are needed after it ... */
  int32_t made_before;   /* ... and made before this one */
  double smallest_bytes; /* of a tensor that may go by way of NVMe; the caller's to set */
  struct mr_problem_cut cut;
};

MR_CHECK_RESULT mr_status mr_problem_cutter_init(struct mr_problem_cutter *cutter,
                                                 const struct mr_problem *problem);
void mr_problem_cutter_fini(struct mr_problem_cutter *cutter);

/* Cuts at a moment of segment k, at its start. */
void mr_problem_cut_at(struct mr_problem_cutter *cutter, int32_t k, enum mr_problem_moment moment);
/* Whether `before` seconds up to the cut and `after` seconds from it can be enough. */
bool mr_problem_cut_can_do(struct mr_problem_cutter *cutter, double before, double after);

#endif
