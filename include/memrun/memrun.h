/* SPDX-License-Identifier: Apache-2.0 */
/* All of memrun's public interface. */
#ifndef MEMRUN_MEMRUN_H
#define MEMRUN_MEMRUN_H

#include <memrun/cuda.h>
#include <memrun/graph.h>
#include <memrun/run.h>
#include <memrun/status.h>
#include <memrun/team.h>

#endif
