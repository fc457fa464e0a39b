/* SPDX-License-Identifier: Apache-2.0 */
/* The way through a packing problem: bound, portfolio, exact search, verdict. */
#include "plan/pack/pack.h"
#include "base/base.h"
#include "plan/pack/search.h"

static mr_status check_buffers(const struct mr_pack_problem *problem) {
  for (uint32_t i = 0; i < problem->buffer_count; i++) {
    const struct mr_pack_buffer *buffer = &problem->buffers[i];
    if (buffer->size_bytes == 0 || buffer->lower >= buffer->upper) {
      mr_log(MR_LOG_ERROR,
             "buffer %u has %llu bytes and lives in [%llu, %llu); both must be more "
             "than nothing",
             i, (unsigned long long)buffer->size_bytes, (unsigned long long)buffer->lower,
             (unsigned long long)buffer->upper);
      return MR_INVALID;
    }
  }
  return MR_OK;
}

static mr_status check_load(const struct mr_pack_sections *sections) {
  if (sections->overfull == MR_PACK_NONE) {
    return MR_OK;
  }
  mr_log(MR_LOG_ERROR, "with buffer %u, what lives at once is more than %llu bytes",
         sections->overfull, MR_PACK_MOST_BYTES);
  return MR_INVALID;
}

/* The highest peak that is as good as one at the bound. */
static uint64_t enough_bytes(const struct mr_pack_problem *problem, uint64_t bound_bytes) {
  uint64_t enough = bound_bytes;
  if (problem->page_bytes > 0) {
    enough =
        mr_round_up(problem->base_bytes + bound_bytes, problem->page_bytes) - problem->base_bytes;
  }
  return mr_max_u64(problem->capacity_bytes, enough);
}

static mr_status solve(const struct mr_pack_problem *problem,
                       const struct mr_pack_sections *sections, uint64_t *offsets,
                       struct mr_pack_result *result) {
  for (uint32_t s = 0; s < sections->count; s++) {
    result->bound_bytes = mr_max_u64(result->bound_bytes, sections->load_bytes[s]);
  }
  mr_status status = mr_pack_portfolio(problem, enough_bytes(problem, result->bound_bytes), offsets,
                                       &result->peak_bytes);
  if (status != MR_OK || result->peak_bytes <= problem->capacity_bytes) {
    result->verdict = MR_PACK_FITS;
    return status;
  }
  if (result->bound_bytes > problem->capacity_bytes) {
    result->verdict = MR_PACK_IMPOSSIBLE;
    return MR_OK;
  }
  status = mr_pack_search(problem, sections, offsets, result);
  if (result->verdict == MR_PACK_IMPOSSIBLE) {
    result->bound_bytes = problem->capacity_bytes + 1;
  }
  return status;
}

mr_status mr_pack_solve(const struct mr_pack_problem *problem, uint64_t *offsets,
                        struct mr_pack_result *result_out) {
  struct mr_pack_result result = {.verdict = MR_PACK_FITS};
  struct mr_pack_sections sections;
  mr_status status = check_buffers(problem);
  if (status != MR_OK) {
    return status;
  }
  if (problem->buffer_count == 0) {
    *result_out = result;
    return MR_OK;
  }
  status = mr_pack_sections_init(&sections, problem);
  if (status != MR_OK) {
    return status;
  }
  status = check_load(&sections);
  if (status == MR_OK) {
    status = solve(problem, &sections, offsets, &result);
  }
  mr_pack_sections_fini(&sections);
  if (status == MR_OK) {
    uint64_t peak = 0;
    MR_ASSERT(!MR_CHECKED || (mr_pack_valid(problem, offsets, &peak) && peak == result.peak_bytes));
    *result_out = result;
  }
  return status;
}

bool mr_pack_valid(const struct mr_pack_problem *problem, const uint64_t *offsets,
                   uint64_t *peak_out) {
  const struct mr_pack_buffer *buffers = problem->buffers;
  uint64_t peak = 0;
  for (uint32_t i = 0; i < problem->buffer_count; i++) {
    uint64_t top = offsets[i] + buffers[i].size_bytes;
    peak = mr_max_u64(peak, top);
    for (uint32_t j = 0; j < i; j++) {
      bool together = buffers[i].lower < buffers[j].upper && buffers[j].lower < buffers[i].upper;
      if (together && offsets[i] < offsets[j] + buffers[j].size_bytes && offsets[j] < top) {
        return false;
      }
    }
  }
  *peak_out = peak;
  return true;
}
