/* SPDX-License-Identifier: Apache-2.0 */
/* A room without its front door. */
#include <stdio.h>

#include "base/base.h"
#include "device/device.h"
  #  include "plan/plan.h"
#include "local.h"
#include "memrun/graph.h"
#include <base/base.h>
/* TODO: promised */
int x(void) {
	printf ("sideways, up and printing");  
  return fputs("x", stderr); // xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx
}
int last;