/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CRC32C of chunks, with the chunk's identity as its seed: a chunk that is stale, torn or from
 * another place does not match even where its bytes are whole. Copies go in blocks that stay in
 * the first cache between the checksum and the copy. What is copied out is not read again soon, so
 * it is stored past the caches, which spares the memory a read of every line it will overwrite.
 */
#include <isa-l/crc.h>
#include <string.h>
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include "offload/private.h"

#define BLOCK_BYTES 16384u

uint32_t mr_chunk_seed(uint32_t extent, uint32_t generation, uint64_t chunk) {
  uint64_t mixed = ((uint64_t)extent << 32 | generation) + 0x9e3779b97f4a7c15ull * (chunk + 1);
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9ull;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebull;
  return (uint32_t)(mixed ^ (mixed >> 31)) | 1u;
}

uint32_t mr_chunk_crc(uint8_t *data, uint32_t bytes, uint32_t seed) {
  return crc32_iscsi(data, (int)bytes, seed);
}

void mr_chunk_move_in(uint8_t *pool, const uint8_t *data, uint32_t bytes) {
  memcpy(pool, data, bytes);
}

void mr_chunk_move_out(uint8_t *data, const uint8_t *pool, uint32_t bytes) {
#if defined(__x86_64__)
  size_t lines = bytes / 64;
  __m128i *to = (__m128i *)data;
  const __m128i *from = (const __m128i *)pool;
  for (size_t i = 0; i < lines; i++) {
    __m128i a = _mm_load_si128(from + 4 * i);
    __m128i b = _mm_load_si128(from + 4 * i + 1);
    __m128i c = _mm_load_si128(from + 4 * i + 2);
    __m128i d = _mm_load_si128(from + 4 * i + 3);
    _mm_stream_si128(to + 4 * i, a);
    _mm_stream_si128(to + 4 * i + 1, b);
    _mm_stream_si128(to + 4 * i + 2, c);
    _mm_stream_si128(to + 4 * i + 3, d);
  }
  memcpy(data + 64 * lines, pool + 64 * lines, bytes % 64);
  _mm_sfence();
#else
  memcpy(data, pool, bytes);
#endif
}

uint32_t mr_chunk_copy_in(uint8_t *pool, uint8_t *data, uint32_t bytes, uint32_t seed) {
  uint32_t crc = seed;
  for (uint32_t at = 0; at < bytes; at += BLOCK_BYTES) {
    uint32_t block = bytes - at < BLOCK_BYTES ? bytes - at : BLOCK_BYTES;
    crc = crc32_iscsi(data + at, (int)block, crc);
    mr_chunk_move_in(pool + at, data + at, block);
  }
  return crc;
}

uint32_t mr_chunk_copy_out(uint8_t *data, uint8_t *pool, uint32_t bytes, uint32_t seed) {
  uint32_t crc = seed;
  for (uint32_t at = 0; at < bytes; at += BLOCK_BYTES) {
    uint32_t block = bytes - at < BLOCK_BYTES ? bytes - at : BLOCK_BYTES;
    crc = crc32_iscsi(pool + at, (int)block, crc);
    mr_chunk_move_out(data + at, pool + at, block);
  }
  return crc;
}
