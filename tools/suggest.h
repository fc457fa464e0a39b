/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the word that someone may have meant. */
#ifndef MEMRUN_TOOLS_SUGGEST_H
#define MEMRUN_TOOLS_SUGGEST_H

#include <stdint.h>

#define SUGGEST_MAX_LENGTH 40u /* longer words are never near */

/* The number of letters to insert, remove, replace or swap to get from one word to the other. */
uint32_t suggest_distance(const char *a, const char *b);

/* Collects the best of the candidates that are offered to it. */
struct suggestion {
  const char *word;
  const char *nearest; /* NULL: none is near enough */
  uint32_t distance;
};
void suggestion_offer(struct suggestion *suggestion, const char *candidate);

#endif
