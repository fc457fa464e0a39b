/* SPDX-License-Identifier: Apache-2.0 */
/* Files that appear whole: a temporary one beside the path, renamed over it. */
#include "base/file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST_SUFFIX 32u

/* Links too: /dev/stdout is one, to what the shell has opened. */
static bool is_special(const char *path) {
  struct stat found;
  return lstat(path, &found) == 0 && !S_ISREG(found.st_mode);
}

bool mr_new_file_open(struct mr_new_file *file, const char *path) {
  *file = (struct mr_new_file){.path = path};
  if (!is_special(path)) {
    size_t capacity = strlen(path) + MOST_SUFFIX;
    file->temporary = mr_allocate(1, capacity);
    if (file->temporary == NULL) {
      errno = ENOMEM;
      return false;
    }
    snprintf(file->temporary, capacity, "%s.%ld.tmp", path, (long)getpid());
  }
  file->stream = fopen(file->temporary != NULL ? file->temporary : path, "we");
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
