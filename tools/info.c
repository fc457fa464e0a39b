/* SPDX-License-Identifier: Apache-2.0 */
/* memrun info: shows what the runtime knows of this machine. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "tools/info.h"
#include "tools/job.h"

uint32_t info_processor_count(void) {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? (uint32_t)CPU_COUNT(&set) : 1;
}
