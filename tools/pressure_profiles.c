/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The profiles of a sweep. A run teaches its profile how fast ops are; beside moves they are slower
 * than alone, and a bound from such rates would be too high. So the runs without budgets teach one
 * profile, and bounds come from a copy of it, the last, by which ops have the pace that they had in
 * the round: what is taught is a mean over rounds, and a machine gets a tenth slower or faster
 * meanwhile. Each other row has its own, which starts as a copy of the first too and is taught by
 * the row's turns: it forecasts as a job does that has run before. A drive may
 * be a third faster or slower some minutes later, so NVMe is measured behind each turn for its
 * bound.
 * All profiles lie in a folder that goes when the sweep is over; the user's is only read.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "runtime/machine_file.h"
#include "runtime/profile.h"
#include "tools/pressure.h"

#define COPY_BYTES 4096u

void pressure_profile_path(const struct pressure *pressure, uint32_t row,
                           struct pressure_path *path_out) {
  snprintf(path_out->text, sizeof path_out->text, "%s/%u.json", pressure->profiles, row);
}

static mr_status refuse(const char *path) {
  mr_log(MR_LOG_ERROR, "%s cannot be written: %s", path, strerrordesc_np(errno));
  return MR_IO;
}

static bool copy(FILE *from, FILE *to) {
  char piece[COPY_BYTES];
  size_t bytes = fread(piece, 1, sizeof piece, from);
  while (bytes > 0 && fwrite(piece, 1, bytes, to) == bytes) {
    bytes = fread(piece, 1, sizeof piece, from);
  }
  return bytes == 0 && ferror(from) == 0;
}

mr_status pressure_profile_copy(const char *from, const char *to) {
  FILE *source = fopen(from, "re");
  if (source == NULL) {
    return MR_OK; /* a profile that is not there yet is measured */
  }
  FILE *target = fopen(to, "we");
  bool written = target != NULL && copy(source, target);
  if (target != NULL && fclose(target) != 0) {
    written = false;
  }
  mr_status status = written ? MR_OK : refuse(to);
  (void)fclose(source); /* it was read alone */
  return status;
}

mr_status pressure_profile_pace(const struct pressure *pressure, double times) {
  struct pressure_path alone;
  struct pressure_path bounds;
  pressure_profile_path(pressure, 0, &alone);
  pressure_profile_path(pressure, pressure->row_count, &bounds);
  mr_status status = pressure_profile_copy(alone.text, bounds.text);
  return status == MR_OK ? mr_profile_slow_ops(bounds.text, times) : status;
}

mr_status pressure_profile_check(const char *path) {
  struct mr_machine *machine = NULL;
  if (path == NULL || !mr_machine_is_described(path)) {
    return path == NULL ? MR_OK : mr_profile_check(path);
  }
  mr_status status = mr_machine_load(path, &machine);
  if (status == MR_OK) {
    mr_log(MR_LOG_ERROR,
           "profile %s: describes '%s'; memrun plan takes it, a sweep is on this machine", path,
           machine->name);
    status = MR_INVALID;
  }
  free(machine);
  return status;
}

mr_status pressure_profiles_init(struct pressure *pressure) {
  char *folder = pressure->profiles;
  size_t size = sizeof pressure->profiles;
  int length = snprintf(folder, size, "%s/memrun-pressure-XXXXXX", cli_scratch_dir());
  if (length < 0 || (size_t)length >= size || mkdtemp(folder) == NULL) {
    mr_status status = refuse(cli_scratch_dir());
    folder[0] = '\0';
    return status;
  }
  struct pressure_path alone;
  const char *given = pressure->cli->train.run.profile_path;
  pressure_profile_path(pressure, 0, &alone);
  return given == NULL ? MR_OK : pressure_profile_copy(given, alone.text);
}

void pressure_profiles_fini(struct pressure *pressure) {
  struct pressure_path path;
  if (pressure->profiles[0] == '\0') {
    return;
  }
  for (uint32_t i = 0; i <= pressure->row_count; i++) {
    pressure_profile_path(pressure, i, &path);
    (void)unlink(path.text); /* that of a row that never ran is not there */
  }
  if (rmdir(pressure->profiles) != 0) {
    mr_log(MR_LOG_WARN, "%s stays: %s", pressure->profiles, strerrordesc_np(errno));
  }
}
