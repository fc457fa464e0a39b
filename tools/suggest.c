/* SPDX-License-Identifier: Apache-2.0 */
/* Edit distance with swaps of neighbours (optimal string alignment) over short words. */
#include <string.h>

#include "tools/suggest.h"

static uint32_t least(uint32_t a, uint32_t b) {
  return a < b ? a : b;
}

uint32_t suggest_distance(const char *a, const char *b) {
  size_t a_length = strlen(a);
  size_t b_length = strlen(b);
  if (a_length > SUGGEST_MAX_LENGTH || b_length > SUGGEST_MAX_LENGTH) {
    return UINT32_MAX;
  }
  uint32_t rows[3][SUGGEST_MAX_LENGTH + 1];
  for (uint32_t j = 0; j <= b_length; j++) {
    rows[0][j] = j;
  }
  for (uint32_t i = 1; i <= a_length; i++) {
    const uint32_t *above = rows[(i - 1) % 3];
    uint32_t *row = rows[i % 3];
    row[0] = i;
    for (uint32_t j = 1; j <= b_length; j++) {
      row[j] = least(above[j - 1] + (a[i - 1] != b[j - 1]), least(above[j], row[j - 1]) + 1);
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = least(row[j], rows[(i - 2) % 3][j - 2] + 1);
      }
    }
  }
  return rows[a_length % 3][b_length];
}

void suggestion_offer(struct suggestion *suggestion, const char *candidate) {
  size_t length = strlen(suggestion->word);
  uint32_t distance = suggest_distance(suggestion->word, candidate);
  /* A third of the letters may be wrong; the beginning of a word counts as one fault. */
  uint32_t limit = length < 6 ? 1 + (length > 2) : (uint32_t)length / 3;
  if (distance > limit && length >= 3 && strncmp(suggestion->word, candidate, length) == 0) {
    distance = limit;
  }
  if (distance <= limit && (suggestion->nearest == NULL || distance < suggestion->distance)) {
    suggestion->nearest = candidate;
    suggestion->distance = distance;
  }
}
