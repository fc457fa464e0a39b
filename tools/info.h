/* SPDX-License-Identifier: Apache-2.0 */
/* What is known of the machine. */
#ifndef MEMRUN_TOOLS_INFO_H
#define MEMRUN_TOOLS_INFO_H

#include "tools/cli.h"
#include "tools/output.h"

/* Tells devices, tiers and measured speeds; `event` names the JSON line. */
mr_status info_tell_machine(struct cli *cli, struct output *output, const char *event);

/* The processors that this process may use, at most 1024. */
uint32_t info_processor_count(void);

#endif
