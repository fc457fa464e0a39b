/* SPDX-License-Identifier: Apache-2.0 */
/* memrun verify: runs the job without and with budgets and shows what was compared. */
#include <stdlib.h>

#include "base/base.h"
#include "base/json.h"
#include "tools/job.h"
#include "tools/signals.h"

static json_t *verification_json(const struct trainer_verification *found, bool equal) {
  json_t *first =
      found->first_difference == NULL ? json_null() : mr_json_text(found->first_difference);
  return json_pack(
      "{s:s, s:b, s:I, s:I, s:I, s:I, s:I, s:o, s:I, s:I, s:o, s:I, s:i, s:i}", "event", "verify",
      "equal", equal, "steps", (json_int_t)found->steps, "tensors", (json_int_t)found->tensors,
      "bytes", (json_int_t)found->bytes, "different_losses", (json_int_t)found->different_losses,
      "different_tensors", (json_int_t)found->different_tensors, "first_difference", first,
      "first_difference_step", (json_int_t)found->first_difference_step, "footprint_bytes",
      (json_int_t)found->footprint_bytes, "budget_bytes", job_tiers_json(found->budget_bytes),
      "moved_bytes", (json_int_t)found->moved_bytes, "recomputed_ops", (int)found->recomputed_ops,
      "deferred_ops", (int)found->deferred_ops);
}

static void verification_text(struct output *output, const struct trainer_verification *found,
                              bool equal) {
  struct mr_size_text compared;
  struct mr_size_text footprint;
  struct mr_size_text moved;
  struct mr_size_text budgets[MR_TIER_COUNT];
  for (int tier = 0; tier < MR_TIER_COUNT; tier++) {
    mr_size_format(found->budget_bytes[tier], &budgets[tier]);
  }
  output_text(output, "footprint  %s; budgets: device %s, host %s, nvme %s\n",
              mr_size_format(found->footprint_bytes, &footprint), budgets[MR_TIER_DEVICE].text,
              budgets[MR_TIER_HOST].text, budgets[MR_TIER_NVME].text);
  output_text(
      output, "under them a step moves %s, runs %u ops again and %u updates in the next\n\n",
      mr_size_format(found->moved_bytes, &moved), found->recomputed_ops, found->deferred_ops);
  output_text(output, "%-24s %10s %10s\n", "compared", "count", "different");
  output_text(output, "%-24s %10llu %10llu\n", "losses and norms of steps",
              (unsigned long long)found->steps, (unsigned long long)found->different_losses);
  output_text(output, "%-24s %10llu %10llu   %s\n", "weights and states",
              (unsigned long long)found->tensors, (unsigned long long)found->different_tensors,
              mr_size_format(found->bytes, &compared));
  if (equal) {
    output_text(output, "\nequal: both runs agree to the last bit\n");
  } else {
    output_text(output, "\ndifferent: first in %s at step %llu\n",
                found->first_difference == NULL ? "?" : found->first_difference,
                (unsigned long long)found->first_difference_step);
  }
}

mr_status command_verify(struct cli *cli, struct output *output) {
  struct trainer_verification found = {0};
  job_prepare(cli);
  signals_end_in_order();
  const char *scratch = cli->scratch_dir != NULL ? cli->scratch_dir : cli_scratch_dir();
  mr_status status = job_spares(cli, "--trace", cli->train.run.trace_path);
  if (status == MR_OK) {
    status = trainer_verify(&cli->train, scratch, signals_stop_word(), &found);
  }
  if (status == MR_INTERRUPTED) {
    mr_log(MR_LOG_ERROR, "interrupted: nothing was compared");
  }
  if (status != MR_OK && status != MR_MISMATCH) {
    return status;
  }
  if (found.moved_bytes == 0 && found.recomputed_ops == 0 && found.deferred_ops == 0) {
    mr_log(MR_LOG_WARN, "under these budgets nothing moves or is made again, so that both runs did "
                        "the same; smaller ones, as --device-mem, show more");
  }
  mr_status shown = MR_OK;
  if (cli->json) {
    shown = output_json(output, verification_json(&found, status == MR_OK));
  } else {
    verification_text(output, &found, status == MR_OK);
  }
  return status != MR_OK ? status : shown;
}
