/* SPDX-License-Identifier: Apache-2.0 */
/* memrun layout: packs the buffers of a file into one range of memory. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/base.h"
#include "base/file.h"
#include "plan/pack/pack.h"
#include "tools/options.h"
#include "tools/output.h"

static const char *const verdict_names[] = {
    [MR_PACK_FITS] = "fits",
    [MR_PACK_IMPOSSIBLE] = "impossible",
    [MR_PACK_UNDECIDED] = "undecided",
};

struct layout {
  const char *path;
  struct mr_pack_table table;
  struct mr_pack_problem problem;
  struct mr_pack_result result;
  uint64_t *offsets;
  double seconds;
};

static bool is_over(void *context) {
  const double *end_seconds = context;
  return mr_clock_seconds() >= *end_seconds;
}

static mr_status check_options(const struct cli *cli) {
  if (cli->word_count != 2) {
    mr_log(MR_LOG_ERROR, "layout takes one file of buffers: memrun layout FILE --capacity SIZE");
    return MR_INVALID;
  }
  if (cli->capacity_bytes == 0) {
    mr_log(MR_LOG_ERROR, "how much memory is there? give --capacity SIZE");
    return MR_INVALID;
  }
  return MR_OK;
}

static mr_status read_table(struct layout *layout) {
  FILE *file = fopen(layout->path, "re");
  if (file == NULL) {
    mr_log(MR_LOG_ERROR, "cannot open %s: %m", layout->path);
    return MR_IO;
  }
  mr_status status = mr_pack_table_read(&layout->table, file, layout->path);
  fclose(file);
  return status;
}

static mr_status write_table(const struct layout *layout, const char *path) {
  struct mr_new_file file;
  bool written = mr_new_file_open(&file, path);
  if (written) {
    mr_status status = mr_pack_table_write(&layout->table, layout->offsets, file.stream);
    written = mr_new_file_close(&file, status == MR_OK);
  }
  if (!written) {
    mr_log(MR_LOG_ERROR, "cannot write %s: %m", path);
    return errno == ENOSPC ? MR_NO_SPACE : MR_IO;
  }
  return MR_OK;
}

static mr_status pack(struct layout *layout, const struct cli *cli) {
  double start_seconds = mr_clock_seconds();
  double end_seconds = start_seconds + cli->deadline_seconds;
  layout->offsets = mr_allocate(layout->table.count, sizeof *layout->offsets);
  if (layout->offsets == NULL) {
    return MR_NO_MEMORY;
  }
  layout->problem = (struct mr_pack_problem){
      .buffers = layout->table.buffers,
      .buffer_count = layout->table.count,
      .capacity_bytes = cli->capacity_bytes,
      .search_tries = UINT64_MAX,
      .stopped = is_over,
      .context = &end_seconds,
  };
  mr_status status = mr_pack_solve(&layout->problem, layout->offsets, &layout->result);
  layout->seconds = mr_clock_seconds() - start_seconds;
  return status;
}

static mr_status show_json(struct output *output, const struct layout *layout) {
  const struct mr_pack_result *result = &layout->result;
  json_t *offsets = json_array();
  for (uint32_t i = 0; i < layout->table.count; i++) {
    json_array_append_new(offsets, json_integer((json_int_t)layout->offsets[i]));
  }
  return output_json(
      output, json_pack("{s:s, s:b, s:s, s:I, s:I, s:I, s:I, s:I, s:f, s:o}", "event", "layout",
                        "fits", result->verdict == MR_PACK_FITS, "verdict",
                        verdict_names[result->verdict], "buffers", (json_int_t)layout->table.count,
                        "capacity_bytes", (json_int_t)layout->problem.capacity_bytes, "peak_bytes",
                        (json_int_t)result->peak_bytes, "bound_bytes",
                        (json_int_t)result->bound_bytes, "tries", (json_int_t)result->tries,
                        "seconds", layout->seconds, "offsets", offsets));
}

static mr_status show(struct output *output, const struct layout *layout) {
  const struct mr_pack_result *result = &layout->result;
  if (output->json) {
    return show_json(output, layout);
  }
  output_text(output,
              "verdict    %s\nbuffers    %" PRIu32 "\ncapacity   %" PRIu64 "\npeak       %" PRIu64
              "\nbound      %" PRIu64 "; no packing is lower\nsearched   %" PRIu64
              " tries, %.3f s\n",
              verdict_names[result->verdict], layout->table.count, layout->problem.capacity_bytes,
              result->peak_bytes, result->bound_bytes, result->tries, layout->seconds);
  return output_failed(output);
}

static mr_status judge(const struct layout *layout, const struct cli *cli) {
  const struct mr_pack_result *result = &layout->result;
  if (result->verdict == MR_PACK_FITS) {
    return MR_OK;
  }
  char why[96] = "it is proven that nothing fits";
  if (result->verdict == MR_PACK_UNDECIDED) {
    snprintf(why, sizeof why, "the deadline of %g s ended the search; give --deadline more",
             cli->deadline_seconds);
  }
  mr_log(MR_LOG_ERROR,
         "%s does not fit %" PRIu64 " bytes: the lowest peak found is %" PRIu64
         ", no packing is below %" PRIu64 "; %s",
         layout->path, layout->problem.capacity_bytes, result->peak_bytes, result->bound_bytes,
         why);
  return MR_DOES_NOT_FIT;
}

mr_status command_layout(struct cli *cli, struct output *output) {
  struct layout layout = {.path = cli->words[1]};
  mr_status status = check_options(cli);
  if (status == MR_OK) {
    status = output_spares("--out", cli->out_path, layout.path);
  }
  if (status == MR_OK) {
    status = read_table(&layout);
  }
  if (status == MR_OK) {
    status = pack(&layout, cli);
  }
  if (status == MR_OK && layout.result.verdict == MR_PACK_FITS && cli->out_path != NULL) {
    status = write_table(&layout, cli->out_path);
  }
  if (status == MR_OK) {
    status = show(output, &layout);
  }
  if (status == MR_OK) {
    status = judge(&layout, cli);
  }
  mr_pack_table_fini(&layout.table);
  free(layout.offsets);
  return status;
}
