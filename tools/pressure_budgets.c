/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the list of budgets of bench pressure. */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "tools/pressure.h"

#define DEFAULT_LIST "75%,50%,37.5%,25%,18.75%,12.5%,min"
#define MAX_WORD     32u

/* A finite number above 0 with nothing but a percent sign behind it. */
static bool read_percent(const char *word, double *percent_out) {
  char *end = NULL;
  if (strspn(word, "0123456789.") + 1 != strlen(word)) {
    return false;
  }
  *percent_out = strtod(word, &end);
  return end != word && strcmp(end, "%") == 0 && *percent_out > 0 && *percent_out <= 100;
}

static bool read_point(const char *word, struct pressure_point *point_out) {
  *point_out = (struct pressure_point){0};
  if (strcmp(word, "min") == 0 || read_percent(word, &point_out->percent)) {
    return true;
  }
  return mr_size_parse(word, &point_out->size_bytes) == MR_OK &&
         point_out->size_bytes >= PRESSURE_LEAST_BYTES;
}

mr_status pressure_points_parse(const char *text, struct pressure_point *points,
                                uint32_t *count_out) {
  const char *list = text == NULL ? DEFAULT_LIST : text;
  const char *at = list;
  uint32_t count = 0;
  for (bool more = true; more; count++) {
    size_t length = strcspn(at, ",");
    char word[MAX_WORD] = "";
    if (count == PRESSURE_MAX_BUDGETS) {
      mr_log(MR_LOG_ERROR, "--budgets '%s': at most %u budgets", list, PRESSURE_MAX_BUDGETS);
      return MR_INVALID;
    }
    if (length < sizeof word) {
      memcpy(word, at, length);
    }
    if (!read_point(word, &points[count])) {
      mr_log(MR_LOG_ERROR,
             "--budgets '%s': '%.*s' is no share up to 100%%, no size from 64 KiB on and not 'min'",
             list, (int)length, at);
      return MR_INVALID;
    }
    more = at[length] == ',';
    at += length + more;
  }
  *count_out = count;
  return MR_OK;
}
