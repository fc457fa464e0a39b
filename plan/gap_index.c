/* SPDX-License-Identifier: Apache-2.0 */
/* A counting sort of gaps. */
#include "plan/gap_index.h"

#include <stdlib.h>

mr_status mr_gap_index_init(struct mr_gap_index *index, const struct mr_draft *draft,
                            mr_gap_op op_of) {
  uint32_t n = draft->op_count;
  index->gaps = mr_allocate(draft->gap_count, sizeof *index->gaps);
  index->first = mr_allocate(n + 1ull, sizeof *index->first);
  if (index->gaps == NULL || index->first == NULL) {
    mr_gap_index_fini(index);
    return MR_NO_MEMORY;
  }
  for (uint32_t i = 0; i < draft->gap_count; i++) {
    mr_op_id op = op_of(draft, i);
    if (op != MR_NO_OP) index->first[op]++;
  }
  for (uint32_t k = 0; k < n; k++) {
    index->first[k + 1] += index->first[k];
  }
  /* Each entry is where its op's gaps end, and goes down to where they start. */
  for (uint32_t i = draft->gap_count; i-- > 0;) {
    mr_op_id op = op_of(draft, i);
    if (op != MR_NO_OP) index->gaps[--index->first[op]] = i;
  }
  return MR_OK;
}

void mr_gap_index_fini(struct mr_gap_index *index) {
  free(index->gaps);
  free(index->first);
  *index = (struct mr_gap_index){0};
}
