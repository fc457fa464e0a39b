/* SPDX-License-Identifier: Apache-2.0 */
/* Byte counts as people write and read them. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/base.h"

const char *mr_size_format(uint64_t bytes, struct mr_size_text *buffer) {
  static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = (double)bytes;
  size_t unit = 0;
  while (value >= 1024.0 && unit + 1 < MR_COUNT_OF(units)) {
    value /= 1024.0;
    unit++;
  }
  int digits = unit == 0 || value >= 100.0 ? 0 : value >= 10.0 ? 1 : 2;
  snprintf(buffer->text, sizeof buffer->text, "%.*f %s", digits, value, units[unit]);
  return buffer->text;
}

static bool suffix_scale(const char *suffix, double *scale_out) {
  static const struct {
    const char *text;
    double scale;
  } suffixes[] = {
      {"", 1.0},         {"B", 1.0},        {"K", 1e3},        {"KB", 1e3},       {"M", 1e6},
      {"MB", 1e6},       {"G", 1e9},        {"GB", 1e9},       {"T", 1e12},       {"TB", 1e12},
      {"Ki", 0x1.0p10},  {"KiB", 0x1.0p10}, {"Mi", 0x1.0p20},  {"MiB", 0x1.0p20}, {"Gi", 0x1.0p30},
      {"GiB", 0x1.0p30}, {"Ti", 0x1.0p40},  {"TiB", 0x1.0p40},
  };
  for (size_t i = 0; i < MR_COUNT_OF(suffixes); i++) {
    if (strcasecmp(suffix, suffixes[i].text) == 0) {
      *scale_out = suffixes[i].scale;
      return true;
    }
  }
  return false;
}

mr_status mr_size_parse(const char *text, uint64_t *bytes_out) {
  size_t digits = strspn(text, "0123456789.");
  if (digits == 0 || digits > 30 || !isdigit((unsigned char)text[0])) {
    return MR_INVALID;
  }
  char number[32];
  memcpy(number, text, digits);
  number[digits] = '\0';
  char *end = NULL;
  double value = strtod(number, &end);
  double scale = 0;
  if (*end != '\0' || !suffix_scale(text + digits, &scale)) {
    return MR_INVALID;
  }
  value *= scale;
  if (!(value < 0x1.0p62)) {
    return MR_INVALID;
  }
  *bytes_out = (uint64_t)llround(value);
  return MR_OK;
}
