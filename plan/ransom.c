/* SPDX-License-Identifier: Apache-2.0 */
/* A list of what could be made again behind each cut. */
#include "plan/ransom.h"

#include <stdlib.h>

#include "base/base.h"

mr_status mr_ransoms_add(struct mr_ransoms *ransoms, const struct mr_ransom *ransom) {
  mr_status status = mr_array_reserve((void **)&ransoms->items, &ransoms->capacity,
                                      ransoms->count + 1ull, sizeof *ransoms->items);
  if (status == MR_OK) {
    ransoms->items[ransoms->count++] = *ransom;
  }
  return status;
}

static int compare_numbers(uint32_t a, uint32_t b) {
  return (a > b) - (a < b);
}

static int compare_ops(const void *left, const void *right) {
  const struct mr_ransom *a = left;
  const struct mr_ransom *b = right;
  return a->cut != b->cut ? compare_numbers(a->cut, b->cut) : compare_numbers(a->op, b->op);
}

static int compare_tills(const void *left, const void *right) {
  const struct mr_ransom *a = left;
  const struct mr_ransom *b = right;
  if (a->cut == b->cut && a->till != b->till) {
    return compare_numbers(a->till, b->till);
  }
  return compare_ops(left, right);
}

/* One item for each op at each cut: it runs again once, before the uses of all its outputs are
 * over.
 */
static void merge(struct mr_ransoms *ransoms) {
  uint32_t count = 0;
  qsort(ransoms->items, ransoms->count, sizeof *ransoms->items, compare_ops);
  for (uint32_t i = 0; i < ransoms->count; i++) {
    const struct mr_ransom *item = &ransoms->items[i];
    struct mr_ransom *last = count > 0 ? &ransoms->items[count - 1] : NULL;
    if (last == NULL || last->cut != item->cut || last->op != item->op) {
      ransoms->items[count++] = *item;
      continue;
    }
    last->bytes += item->bytes;
    last->till = item->till > last->till ? item->till : last->till;
  }
  ransoms->count = count;
}

mr_status mr_ransoms_index(struct mr_ransoms *ransoms, uint32_t cut_count) {
  ransoms->first = mr_allocate(cut_count + 1ull, sizeof *ransoms->first);
  if (ransoms->first == NULL) {
    return MR_NO_MEMORY;
  }
  if (ransoms->count > 0) {
    merge(ransoms);
    qsort(ransoms->items, ransoms->count, sizeof *ransoms->items, compare_tills);
  }
  for (uint32_t i = 0; i < ransoms->count; i++) {
    ransoms->first[ransoms->items[i].cut + 1]++;
  }
  for (uint32_t cut = 0; cut < cut_count; cut++) {
    ransoms->first[cut + 1] += ransoms->first[cut];
  }
  return MR_OK;
}

void mr_ransoms_fini(struct mr_ransoms *ransoms) {
  free(ransoms->items);
  free(ransoms->first);
  *ransoms = (struct mr_ransoms){0};
}

double mr_ransoms_bytes(const struct mr_ransoms *ransoms, uint32_t cut, uint32_t since) {
  double bytes = 0;
  for (uint32_t i = ransoms->first[cut]; i < ransoms->first[cut + 1]; i++) {
    bytes += ransoms->items[i].since <= since ? ransoms->items[i].bytes : 0;
  }
  return bytes;
}

void mr_ransoms_least(const struct mr_ransoms *ransoms, uint32_t cut, uint32_t since,
                      double seconds_per_byte, uint32_t most, double *seconds_out) {
  double seconds = 0;
  uint32_t i = ransoms->first[cut];
  for (uint32_t d = 0; d <= most; d++) {
    for (; i < ransoms->first[cut + 1] && ransoms->items[i].till <= d; i++) {
      const struct mr_ransom *item = &ransoms->items[i];
      if (item->since <= since) {
        seconds += mr_min_double(item->seconds, seconds_per_byte * item->bytes);
      }
    }
    seconds_out[d] = seconds;
  }
}
