/* SPDX-License-Identifier: Apache-2.0 */
/* What train, plan, verify and bench have in common: the job's defaults and how it is described. */
#ifndef MEMRUN_TOOLS_JOB_H
#define MEMRUN_TOOLS_JOB_H

#include <jansson.h>

#include "tools/cli.h"
#include "tools/output.h"

/* "12.3 s", "1.23 ms": seconds as people read them. */
struct job_seconds {
  char text[24];
};
const char *job_seconds_format(double seconds, struct job_seconds *buffer);

/* "124.4 million", "64.47 billion": parameters as people count them. */
struct job_count {
  char text[24];
};
const char *job_parameters_format(uint64_t count, struct job_count *buffer);

/* Settles what the command line left open: where NVMe is, and the budgets of the default job. */
void job_prepare(struct cli *cli);

/* MR_INVALID, with a line: what the option would write is a file that the job reads; out_path may
 * be NULL. */
MR_CHECK_RESULT mr_status job_spares(const struct cli *cli, const char *option,
                                     const char *out_path);

/* The first half of it: NVMe alone. */
void job_prepare_nvme(struct cli *cli);

/* The object of a text that memrun wrote, which is freed; `what` names it where memory runs out.
 * NULL: it did, and the status says so. */
json_t *job_read_json(const char *what, char *text, mr_status *status_out);

/* What the library tells of a plan, as an object; NULL: out of memory. */
json_t *job_plan_details(const struct mr_plan *plan);

/* Device and host budgets, summed; UINT64_MAX where one has no limit. */
uint64_t job_memory_budget(const struct mr_plan_summary *summary);

void job_print_model(struct output *output, const struct trainer_info *info);
void job_print_footprint(struct output *output, const struct mr_plan_summary *summary);
void job_print_forecast(struct output *output, const struct mr_plan *plan);

/* Objects with a number for each tier ("device", "host", "nvme") or link. NULL: out of memory. */
json_t *job_tiers_json(const uint64_t bytes[MR_TIER_COUNT]);
json_t *job_links_json(const uint64_t bytes[MR_LINK_COUNT]);
json_t *job_link_seconds_json(const double seconds[MR_LINK_COUNT]);
json_t *job_model_json(const struct trainer_info *info);

extern const char *const job_tier_names[MR_TIER_COUNT];
extern const char *const job_link_names[MR_LINK_COUNT];

#endif
