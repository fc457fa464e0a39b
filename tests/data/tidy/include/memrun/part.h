/* SPDX-License-Identifier: Apache-2.0 */
/* Good C, but no C++. */
#include "base/base.h"
typedef void (*mr_part_callback)(void);
int mr_part_create(int class);
int mr_part_known(int number);
