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

typedef uint32_t ransom_key(const struct mr_ransom *ransom);

static uint32_t cut_of(const struct mr_ransom *ransom) {
  return ransom->cut;
}

static uint32_t op_of(const struct mr_ransom *ransom) {
  return ransom->op;
}

static uint32_t till_of(const struct mr_ransom *ransom) {
  return ransom->till;
}

/* Sorts by a key, and keeps the order of those with the same. They are some ten thousand with some
 * hundred keys, so counting them takes a tenth of the time of comparing them. */
static mr_status sort_by(struct mr_ransoms *ransoms, ransom_key *key) {
  uint32_t most = 0;
  for (uint32_t i = 0; i < ransoms->count; i++) {
    most = (uint32_t)mr_max_u64(most, key(&ransoms->items[i]));
  }
  struct mr_ransom *sorted = mr_allocate(ransoms->count, sizeof *sorted);
  uint32_t *place = mr_allocate(most + 2ull, sizeof *place);
  if (sorted == NULL || place == NULL) {
    free(sorted);
    free(place);
    return MR_NO_MEMORY;
  }
  for (uint32_t i = 0; i < ransoms->count; i++) {
    place[key(&ransoms->items[i]) + 1]++;
  }
  for (uint32_t k = 0; k < most; k++) {
    place[k + 1] += place[k];
  }
  for (uint32_t i = 0; i < ransoms->count; i++) {
    sorted[place[key(&ransoms->items[i])]++] = ransoms->items[i];
  }
  free(place);
  free(ransoms->items);
  ransoms->items = sorted;
  ransoms->capacity = ransoms->count;
  return MR_OK;
}

/* The last key comes first: the others order what it does not. */
static mr_status sort_by_both(struct mr_ransoms *ransoms, ransom_key *last, ransom_key *first) {
  mr_status status = sort_by(ransoms, last);
  return status == MR_OK ? sort_by(ransoms, first) : status;
}

/* One item for each op at each cut, of those sorted by both: it runs again once, before the uses of
 * all its outputs are over. */
static void merge(struct mr_ransoms *ransoms) {
  uint32_t count = 0;
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
  ransoms->cut_count = cut_count;
  ransoms->first = mr_allocate(cut_count + 1ull, sizeof *ransoms->first);
  ransoms->bytes = mr_allocate(cut_count * (cut_count + 1ull), sizeof *ransoms->bytes);
  bool failed = ransoms->first == NULL || ransoms->bytes == NULL;
  mr_status status = failed ? MR_NO_MEMORY : sort_by_both(ransoms, op_of, cut_of);
  if (status == MR_OK) {
    merge(ransoms);
    status = sort_by_both(ransoms, till_of, cut_of);
  }
  if (status != MR_OK) {
    return status;
  }
  for (uint32_t i = 0; i < ransoms->count; i++) {
    const struct mr_ransom *item = &ransoms->items[i];
    MR_ASSERT(item->cut < cut_count && item->since <= cut_count);
    ransoms->first[item->cut + 1]++;
    ransoms->bytes[(size_t)item->cut * (cut_count + 1) + item->since] += item->bytes;
  }
  for (uint32_t cut = 0; cut < cut_count; cut++) {
    double *bytes = ransoms->bytes + (size_t)cut * (cut_count + 1);
    ransoms->first[cut + 1] += ransoms->first[cut];
    for (uint32_t since = 0; since < cut_count; since++) {
      bytes[since + 1] += bytes[since];
    }
  }
  return MR_OK;
}

void mr_ransoms_fini(struct mr_ransoms *ransoms) {
  free(ransoms->items);
  free(ransoms->first);
  free(ransoms->bytes);
  *ransoms = (struct mr_ransoms){0};
}

double mr_ransoms_bytes(const struct mr_ransoms *ransoms, uint32_t cut, uint32_t since) {
  return ransoms->bytes[(size_t)cut * (ransoms->cut_count + 1) + since];
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
