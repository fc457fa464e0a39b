/* SPDX-License-Identifier: Apache-2.0 */
/* A header without a fault. */
#include <stdint.h>
