/* SPDX-License-Identifier: Apache-2.0 */
/* xoshiro256** seeded by SplitMix64 (Blackman and Vigna, 2018, prng.di.unimi.it; public domain
 * algorithms). */
#include "base/base.h"

static uint64_t rotate_left(uint64_t value, int bits) {
  return (value << bits) | (value >> (64 - bits));
}

void mr_random_init(struct mr_random *random, uint64_t seed) {
  for (int i = 0; i < 4; i++) {
    seed += 0x9e3779b97f4a7c15ull;
    uint64_t mixed = seed;
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9ull;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebull;
    random->state[i] = mixed ^ (mixed >> 31);
  }
}

uint64_t mr_random_u64(struct mr_random *random) {
  uint64_t *s = random->state;
  uint64_t result = rotate_left(s[1] * 5, 7) * 9;
  uint64_t shifted = s[1] << 17;
  s[2] ^= s[0];
  s[3] ^= s[1];
  s[1] ^= s[2];
  s[0] ^= s[3];
  s[2] ^= shifted;
  s[3] = rotate_left(s[3], 45);
  return result;
}

uint64_t mr_random_below(struct mr_random *random, uint64_t bound) {
  MR_ASSERT(bound > 0);
  uint64_t reject_below = (0 - bound) % bound;
  for (;;) {
    uint64_t value = mr_random_u64(random);
    if (value >= reject_below) {
      return value % bound;
    }
  }
}

double mr_random_unit(struct mr_random *random) {
  return (double)(mr_random_u64(random) >> 11) * 0x1.0p-53;
}
