/* SPDX-License-Identifier: Apache-2.0 */
/* What happens when one of our own assumptions does not hold. */
#include "base/base.h"

#include <stdlib.h>

_Noreturn void mr_assert_failed(const char *condition, const char *file, int line) {
  mr_log(MR_LOG_ERROR, "internal fault, please report it: %s at %s:%d", condition, file, line);
  abort();
}
