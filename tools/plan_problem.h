/* SPDX-License-Identifier: Apache-2.0 */
/* memrun plan --problem: see plan/problem/problem.h. */
#ifndef MEMRUN_TOOLS_PLAN_PROBLEM_H
#define MEMRUN_TOOLS_PLAN_PROBLEM_H

#include "tools/cli.h"
#include "tools/output.h"

/* Plans the problem that cli->problem_path names; cli->schedule_path takes the schedule. */
mr_status plan_problem(struct cli *cli, struct output *output);

#endif
