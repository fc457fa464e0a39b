/* SPDX-License-Identifier: Apache-2.0 */
/* Files that appear whole: a temporary one beside the path, renamed over it. */
#include "base/file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST_SUFFIX 48u
/* Names that are tried: killed processes leave some behind. */
#define MOST_NAMES 1000u

/* Links too: /dev/stdout is one, to what the shell has opened. */
static bool is_special(const char *path) {
  struct stat found;
  return lstat(path, &found) == 0 && !S_ISREG(found.st_mode);
}

/* Opens a file beside the path that nobody else has: another thread may write to the same path, or
 * a process of the same number, which those of two containers often have. */
static void open_beside(struct mr_new_file *file, size_t capacity) {
  for (uint32_t i = 0; i < MOST_NAMES && file->stream == NULL; i++) {
    snprintf(file->temporary, capacity, "%s.%ld.%u.tmp", file->path, (long)getpid(), i);
    file->stream = fopen(file->temporary, "wxe");
    if (file->stream == NULL && errno != EEXIST) {
      return;
    }
  }
}

bool mr_new_file_open(struct mr_new_file *file, const char *path) {
  *file = (struct mr_new_file){.path = path};
  if (is_special(path)) {
    file->stream = fopen(path, "we");
    return file->stream != NULL;
  }
  size_t capacity = strlen(path) + MOST_SUFFIX;
  file->temporary = mr_allocate(1, capacity);
  if (file->temporary == NULL) {
    errno = ENOMEM;
    return false;
  }
  open_beside(file, capacity);
  if (file->stream == NULL) {
    free(file->temporary);
    file->temporary = NULL;
  }
  if (file->stream == NULL && errno == EACCES) {
    file->stream = fopen(path, "we");
  }
  return file->stream != NULL;
}

bool mr_new_file_close(struct mr_new_file *file, bool written) {
  int error = written ? 0 : ferror(file->stream) && errno != 0 ? errno : EIO;
  if (error == 0 && fflush(file->stream) != 0) {
    error = errno;
  }
  if (error == 0 && file->temporary != NULL && fsync(fileno(file->stream)) != 0) {
    error = errno;
  }
  if (fclose(file->stream) != 0 && error == 0) {
    error = errno;
  }
  if (file->temporary != NULL) {
    if (error == 0 && rename(file->temporary, file->path) != 0) {
      error = errno;
    }
    if (error != 0) {
      (void)unlink(file->temporary);
    }
  }
  free(file->temporary);
  *file = (struct mr_new_file){0};
  errno = error;
  return error == 0;
}

bool mr_file_write(const char *path, const char *text) {
  struct mr_new_file file;
  return mr_new_file_open(&file, path) && mr_new_file_close(&file, fputs(text, file.stream) != EOF);
}
