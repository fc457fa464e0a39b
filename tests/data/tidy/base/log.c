/* SPDX-License-Identifier: Apache-2.0 */
/* The one file of the library that may name stderr; printing( in comments or strings is none. */
#include <stdio.h>

#include "base/base.h"

static const char *const text = "printf(\"\\\" stderr";
static void sink(void) {
  fprintf(stderr, "%s", text); /* printf("x") */
}
