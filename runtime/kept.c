/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans that are kept in files: writing one, and taking one in place of planning. A plan belongs to
 * its job (every name, size, operand and cost of the graph) and to its machine (processor, cores
 * and threads, or the name of a described one). Budgets that the options leave open are those of
 * the file, as far as they are there. How fast the plan is follows from what is known of the
 * machine now.
 */
#include <errno.h>
#include <isa-l/crc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "plan/plan_file.h"
#include "runtime/planning.h"

/* ---- Writing ---- */

static mr_status print_plan(const struct mr_plan *plan, char **text_out) {
  struct mr_plan_header header = {.footprint_bytes = plan->footprint_bytes,
                                  .deferred = plan->deferred_op_count > 0,
                                  .staying = plan->problem.program->staying_count};
  snprintf(header.machine, sizeof header.machine, "%s", mr_plan_machine(plan));
  header.described = plan->settings.machine != NULL;
  mr_graph_digest(plan->graph, &header.job);
  memcpy(header.budget_bytes, plan->settings.budget_bytes, sizeof header.budget_bytes);
  header.again = mr_allocate(plan->recomputed_op_count, sizeof *header.again);
  if (header.again == NULL) {
    return MR_NO_MEMORY;
  }
  header.again_count = mr_planning_list_again(plan->problem.program, NULL, header.again);
  mr_status status = mr_plan_file_print(&header, plan->layout, text_out);
  free(header.again);
  return status;
}

/* The last line of a plan of so many bytes of text, which it follows: their checksum. */
struct seal {
  char text[32];
};
#define SEAL_BYTES 23u

static void seal_find(struct seal *seal, char *text, size_t bytes) {
  uint32_t crc = crc32_iscsi((unsigned char *)text, (int)bytes, UINT32_MAX) ^ UINT32_MAX;
  int length = snprintf(seal->text, sizeof seal->text, ",\n\"crc32c\":\"%08x\"}\n", crc);
  MR_ASSERT(length == SEAL_BYTES);
}

/* Puts it in place of the end of the text's object. */
static mr_status seal_text(char **text) {
  static const char end[] = "}\n";
  size_t bytes = strlen(*text) - strlen(end);
  struct seal seal;
  MR_ASSERT(strcmp(*text + bytes, end) == 0);
  seal_find(&seal, *text, bytes);
  char *sealed = mr_allocate(bytes + SEAL_BYTES + 1, 1);
  if (sealed == NULL) {
    return MR_NO_MEMORY;
  }
  memcpy(sealed, *text, bytes);
  memcpy(sealed + bytes, seal.text, SEAL_BYTES + 1);
  free(*text);
  *text = sealed;
  return MR_OK;
}

static mr_status check_seal(const char *path, char *text, size_t bytes) {
  struct seal seal = {{0}};
  if (bytes > SEAL_BYTES) {
    seal_find(&seal, text, bytes - SEAL_BYTES);
  }
  if (bytes <= SEAL_BYTES || memcmp(text + bytes - SEAL_BYTES, seal.text, SEAL_BYTES) != 0) {
    mr_log(MR_LOG_ERROR,
           "plan %s: its checksum is not that of its text: it was changed after it was kept, or is "
           "damaged; 'memrun plan --out' makes it again",
           path);
    return MR_CORRUPT;
  }
  return MR_OK;
}

mr_status mr_plan_save(const struct mr_plan *plan, const char *path) {
  if (!plan->layout->fits) {
    mr_log(MR_LOG_ERROR, "plan %s: a plan that does not fit is not kept", path);
    return MR_DOES_NOT_FIT;
  }
  char *text = NULL;
  mr_status status = print_plan(plan, &text);
  if (status == MR_OK) {
    status = seal_text(&text);
  }
  if (status == MR_OK && !mr_file_write(path, text)) {
    mr_log(MR_LOG_ERROR, "plan %s: %s", path, strerror(errno));
    status = MR_IO;
  }
  free(text);
  return status;
}

/* ---- Reading ---- */

static mr_status read_file(const char *path, char **text_out, size_t *bytes_out) {
  FILE *file = fopen(path, "re");
  if (file == NULL) {
    mr_log(MR_LOG_ERROR, "plan %s: %s", path, strerror(errno));
    return MR_IO;
  }
  char *text = NULL;
  uint32_t capacity = 0;
  size_t bytes = 0;
  size_t count = 1;
  mr_status status = MR_OK;
  while (status == MR_OK && count > 0 && bytes <= MR_PLAN_FILE_MAX_BYTES) {
    status = mr_array_reserve((void **)&text, &capacity, bytes + (64u << 10), 1);
    count = status == MR_OK ? fread(text + bytes, 1, capacity - bytes, file) : 0;
    bytes += count;
  }
  if (status == MR_OK && (ferror(file) || bytes > MR_PLAN_FILE_MAX_BYTES)) {
    mr_log(MR_LOG_ERROR, "plan %s: cannot be read, or has more than %u bytes", path,
           MR_PLAN_FILE_MAX_BYTES);
    status = MR_IO;
  }
  fclose(file);
  if (status != MR_OK) {
    free(text);
    return status;
  }
  *text_out = text;
  *bytes_out = bytes;
  return MR_OK;
}

/* Names the first thing in which the jobs differ. */
static mr_status check_job(const struct mr_plan *plan, const struct mr_digest *of_file) {
  const char *path = plan->settings.plan_path;
  struct mr_digest job;
  mr_graph_digest(plan->graph, &job);
  if (of_file->op_count != job.op_count || of_file->tensor_count != job.tensor_count) {
    mr_log(MR_LOG_ERROR,
           "plan %s: of another job: it has %u ops and %u tensors, this one %u and %u", path,
           of_file->op_count, of_file->tensor_count, job.op_count, job.tensor_count);
  } else if (of_file->bytes != job.bytes) {
    struct mr_size_text texts[2];
    mr_log(MR_LOG_ERROR,
           "plan %s: of another job: its tensors have %s (%llu bytes), here %s (%llu)", path,
           mr_size_format(of_file->bytes, &texts[0]), (unsigned long long)of_file->bytes,
           mr_size_format(job.bytes, &texts[1]), (unsigned long long)job.bytes);
  } else if (of_file->flops < job.flops || of_file->flops > job.flops) {
    mr_log(MR_LOG_ERROR, "plan %s: of another job: its step has %.6g operations, here %.6g", path,
           of_file->flops, job.flops);
  } else if (of_file->hash != job.hash) {
    mr_log(MR_LOG_ERROR,
           "plan %s: of another job: as many ops, tensors, bytes and operations, but names, "
           "operands or flags differ",
           path);
  } else {
    return MR_OK;
  }
  return MR_INVALID;
}

static mr_status check_machine(const struct mr_plan *plan, const struct mr_plan_header *header) {
  const char *name = mr_plan_machine(plan);
  bool described = plan->settings.machine != NULL;
  bool same_name = strcmp(name, header->machine) == 0;
  if (same_name && described == header->described) {
    return MR_OK;
  }
  if (same_name) {
    mr_log(MR_LOG_ERROR, "plan %s: of another machine: '%s' as a file describes it%s",
           plan->settings.plan_path, name,
           described ? " now, not itself" : ", not this one itself");
  } else {
    mr_log(MR_LOG_ERROR, "plan %s: of another machine: '%s' (processor, cores, threads), here '%s'",
           plan->settings.plan_path, header->machine, name);
  }
  return MR_INVALID;
}

/* Whether the plan does what the options want never done. */
static mr_status check_asked(const struct mr_plan *plan, const struct mr_plan_header *header) {
  const struct mr_settings *settings = &plan->settings;
  if (settings->recompute == MR_RECOMPUTE_NONE && header->again_count > 0) {
    mr_log(MR_LOG_ERROR, "plan %s: it runs %u ops again, and --recompute none wants none to",
           settings->plan_path, header->again_count);
    return MR_INVALID;
  }
  if (settings->defer == MR_DEFER_NEVER && header->deferred) {
    mr_log(MR_LOG_ERROR,
           "plan %s: it runs updates in the next step, and --defer never wants none there",
           settings->plan_path);
    return MR_INVALID;
  }
  return MR_OK;
}

/* Budgets that were left open are the plan's, as far as they are there. */
static void take_budgets(struct mr_settings *settings, const uint64_t *of_file) {
  for (uint32_t tier = 0; tier < MR_TIER_COUNT; tier++) {
    if (settings->budget_open[tier]) {
      settings->budget_bytes[tier] = mr_min_u64(settings->budget_bytes[tier], of_file[tier]);
    }
  }
}

/* The program that the plan is of, and what its ops take. */
static mr_status make_program(struct mr_plan *plan, const struct mr_plan_header *header) {
  struct mr_deferral deferral = {header->deferred, header->staying};
  mr_status status =
      mr_planning_rewrite(plan, header->again, header->again_count, &deferral, &plan->rewritten);
  plan->problem.program = plan->rewritten != NULL ? plan->rewritten : plan->graph;
  if (status == MR_INVALID) {
    mr_log(MR_LOG_ERROR,
           "plan %s: again: names an op that may not run twice, or deferred: no update can be",
           plan->settings.plan_path);
    return MR_CORRUPT;
  }
  if (status == MR_OK) {
    status = mr_planning_estimate(plan, plan->problem.program, &plan->op_seconds);
    plan->problem.op_seconds = plan->op_seconds;
  }
  return status;
}

static mr_status take_file(struct mr_plan *plan, const struct mr_plan_file *file,
                           const struct mr_store_rates *nvme) {
  const struct mr_plan_header *header = mr_plan_file_header(file);
  mr_status status = check_machine(plan, header);
  if (status == MR_OK) {
    status = check_job(plan, &header->job);
  }
  if (status == MR_OK) {
    status = check_asked(plan, header);
  }
  if (status != MR_OK) {
    return status;
  }
  take_budgets(&plan->settings, header->budget_bytes);
  mr_planning_fill_problem(plan, nvme);
  status = make_program(plan, header);
  if (status == MR_OK) {
    status = mr_planning_find_bound(plan, &plan->problem, false, &plan->bound_seconds);
  }
  if (status == MR_OK) {
    status = mr_planning_find_footprint(plan);
  }
  if (status == MR_OK) {
    status = mr_plan_file_read(file, &plan->problem, &plan->layout);
  }
  if (status != MR_OK) {
    return status;
  }
  plan->problem.page_bytes = plan->layout->page_bytes;
  plan->layout->footprint_bytes = plan->footprint_bytes;
  mr_planning_sum_clones(plan);
  return MR_OK;
}

mr_status mr_plan_load(struct mr_plan *plan, const struct mr_store_rates *nvme) {
  char *text = NULL;
  size_t bytes = 0;
  mr_status status = read_file(plan->settings.plan_path, &text, &bytes);
  if (status != MR_OK) {
    return status;
  }
  struct mr_plan_file *file = NULL;
  status = mr_plan_file_open(plan->settings.plan_path, text, bytes, &file);
  if (status == MR_OK) {
    status = check_seal(plan->settings.plan_path, text, bytes);
  }
  free(text);
  if (status == MR_OK) {
    status = take_file(plan, file, nvme);
  }
  mr_plan_file_close(file);
  return status;
}
