/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How scarce links are in each part of the step, by the last sweep: a link is where it is at work
 * while ops stand still. Reads and writes that share a drive, in a step of which links bind a good
 * part, are scarce where it is at work with either; and what a second of them makes the part longer
 * by depends on which of the two are at work longer there. More of these lasts as long as it does
 * alone. The others run beside them, and only slow them down, by what both are short of. Where both
 * end together, a byte takes its part of what the drive does of both at once.
 */
#include <math.h>

#include "plan/draft.h"

/* What a link that is at work all through a part of the step costs there beside its price, and how
 * much of the way there a round goes: steps whose halves are bound by one link each get up to a
 * quarter faster. With a scarcity of 4 that gain is lost, with 30 it is no larger. */
#define MOST_SCARCITY 16.0
#define PRICE_STEP    0.5
/* A step of so many times its compute is bound by links to a good part. */
#define LINKS_WEIGH 1.15
/* From so much difference in load on, reads or writes bind a drive alone. */
#define CLEAR_LOAD 0.2

/* Compute that a part of the step has. */
static double part_compute_seconds(const struct mr_draft *draft, uint32_t part) {
  return draft->clock[mr_draft_part_start(draft, part + 1)] -
         draft->clock[mr_draft_part_start(draft, part)];
}

static double load_of(const struct mr_draft *draft, mr_link link, uint32_t part) {
  return fmin(draft->times.busy[link][part] / draft->times.part[part], 1);
}

/* The load of what a link shares, and how much longer a second of its moves makes the part. */
struct share {
  double load, cost;
};

static struct share share_of(const struct mr_draft *draft, mr_link link, uint32_t part) {
  const struct mr_link_rate *rates = draft->problem->link;
  double both =
      rates[MR_LINK_NVME_READ].bytes_per_second + rates[MR_LINK_NVME_WRITE].bytes_per_second;
  double mixed = draft->problem->nvme_mixed_bytes_per_second;
  double own = load_of(draft, link, part);
  bool weighs = draft->times.seconds >= LINKS_WEIGH * draft->clock[draft->op_count];
  if (!mr_link_is_nvme(link) || !weighs || !(mixed > 0) || mixed >= both) {
    return (struct share){own, 1};
  }
  mr_link other = link == MR_LINK_NVME_READ ? MR_LINK_NVME_WRITE : MR_LINK_NVME_READ;
  double beside = load_of(draft, other, part);
  double least = both / mixed - 1;
  double even = fmin(rates[link].bytes_per_second / mixed, 1);
  double more = fmax(fmin((own - beside) / CLEAR_LOAD, 1), -1);
  double cost = more > 0 ? even + (1 - even) * more : even + (even - least) * more;
  return (struct share){fmax(own, beside), cost};
}

void mr_draft_price_parts(struct mr_draft *draft) {
  for (uint32_t part = 0; part < MR_STEP_PARTS; part++) {
    double seconds = draft->times.part[part];
    if (!(seconds > 0)) continue;
    double standing = fmax(1 - part_compute_seconds(draft, part) / seconds, 0);
    for (mr_link l = 0; l < MR_LINK_COUNT; l++) {
      struct share share = share_of(draft, l, part);
      double load = share.load;
      double wanted = MOST_SCARCITY * standing * share.cost * load * load * load * load;
      draft->scarcity[l][part] += PRICE_STEP * (wanted - draft->scarcity[l][part]);
    }
  }
}
