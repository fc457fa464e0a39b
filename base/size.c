/* SPDX-License-Identifier: Apache-2.0 */
/* Byte counts as people write and read them: whole numbers throughout, so that no locale and no
 * rounding comes between. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <strings.h>

#include "base/base.h"

/* More digits after the point than anyone means; ten to this power times a TiB fits 128 bits. */
#define MAX_FRACTION_DIGITS 12

/* Sizes from here on are taken for mistakes; below it sums of a few still fit 64 bits. */
#define SIZE_LIMIT_BYTES (1ull << 62)

static const char *format(uint64_t bytes, bool up, struct mr_size_text *buffer) {
  static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = (double)bytes;
  size_t unit = 0;
  /* 1023.5 and more would print as 1024 of the smaller unit. */
  while (value >= 1023.5 && unit + 1 < MR_COUNT_OF(units)) {
    value /= 1024.0;
    unit++;
  }
  int digits = unit == 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  unsigned shown = digits == 0 ? 1 : digits == 1 ? 10 : 100;
  double parts = value * shown;
  unsigned number = (unsigned)(up ? ceil(parts) : nearbyint(parts));
  if (digits == 0) {
    snprintf(buffer->text, sizeof buffer->text, "%u %s", number, units[unit]);
  } else {
    snprintf(buffer->text, sizeof buffer->text, "%u.%0*u %s", number / shown, digits,
             number % shown, units[unit]);
  }
  return buffer->text;
}

const char *mr_size_format(uint64_t bytes, struct mr_size_text *buffer) {
  return format(bytes, false, buffer);
}

const char *mr_size_format_enough(uint64_t bytes, struct mr_size_text *buffer) {
  return format(bytes, true, buffer);
}

static bool suffix_scale(const char *suffix, uint64_t *scale_out) {
  static const struct {
    const char *text;
    uint64_t scale;
  } suffixes[] = {
      {"", 1},
      {"B", 1},
      {"K", 1000},
      {"KB", 1000},
      {"M", 1000000},
      {"MB", 1000000},
      {"G", 1000000000},
      {"GB", 1000000000},
      {"T", 1000000000000},
      {"TB", 1000000000000},
      {"Ki", 1ull << 10},
      {"KiB", 1ull << 10},
      {"Mi", 1ull << 20},
      {"MiB", 1ull << 20},
      {"Gi", 1ull << 30},
      {"GiB", 1ull << 30},
      {"Ti", 1ull << 40},
      {"TiB", 1ull << 40},
  };
  for (size_t i = 0; i < MR_COUNT_OF(suffixes); i++) {
    if (strcasecmp(suffix, suffixes[i].text) == 0) {
      *scale_out = suffixes[i].scale;
      return true;
    }
  }
  return false;
}

/* Reads the digits at *at into *value_out and moves *at behind them; false for none or an
 * overflow. */
static bool read_digits(const char **at, uint64_t *value_out) {
  uint64_t value = 0;
  const char *c = *at;
  for (; isdigit((unsigned char)*c) != 0; c++) {
    if (!mr_mul_u64(value, 10, &value) || !mr_add_u64(value, (uint64_t)(*c - '0'), &value)) {
      return false;
    }
  }
  bool any = c != *at;
  *at = c;
  *value_out = value;
  return any;
}

mr_status mr_size_parse(const char *text, uint64_t *bytes_out) {
  uint64_t whole = 0;
  uint64_t fraction = 0;
  uint64_t fraction_unit = 1;
  const char *at = text;
  if (!read_digits(&at, &whole)) {
    return MR_INVALID;
  }
  if (*at == '.') {
    const char *first = ++at;
    if (!read_digits(&at, &fraction) || at - first > MAX_FRACTION_DIGITS) {
      return MR_INVALID;
    }
    for (; first < at; first++) {
      fraction_unit *= 10;
    }
  }
  uint64_t scale = 0;
  uint64_t bytes = 0;
  if (!suffix_scale(at, &scale) || !mr_mul_u64(whole, scale, &bytes)) {
    return MR_INVALID;
  }
  unsigned __int128 part = (unsigned __int128)fraction * scale + fraction_unit / 2;
  if (!mr_add_u64(bytes, (uint64_t)(part / fraction_unit), &bytes) || bytes >= SIZE_LIMIT_BYTES) {
    return MR_INVALID;
  }
  *bytes_out = bytes;
  return MR_OK;
}
