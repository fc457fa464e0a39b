/* SPDX-License-Identifier: Apache-2.0 */
/* Files that appear whole: a temporary one beside the path, renamed over it. */
#include "base/file.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST_SUFFIX 48u
/* Names that are tried: killed processes leave some behind. */
#define MOST_NAMES 1000u

static bool is_of_system(const char *path) {
  return strncmp(path, "/dev/", 5) == 0 || strncmp(path, "/proc/", 6) == 0;
}

/* Whether the path is a link to what the shell has opened, as /dev/stdout is. */
static bool leads_to_opened(const char *path) {
  char target[8] = {0};
  return is_of_system(path) ||
         (readlink(path, target, sizeof target - 1) > 0 && is_of_system(target));
}

/* Where a link to a regular file leads; NULL of others, and where that is not known. */
static char *target_of(const char *path) {
  struct stat found;
  bool is_link = lstat(path, &found) == 0 && S_ISLNK(found.st_mode);
  bool is_regular = is_link && stat(path, &found) == 0 && S_ISREG(found.st_mode);
  return is_regular && !leads_to_opened(path) ? realpath(path, NULL) : NULL;
}

static bool is_special(const char *path) {
  struct stat found;
  return lstat(path, &found) == 0 && !S_ISREG(found.st_mode);
}

/* What the shell has opened, by such a name of it: a copy that goes on where it stands, for a file
 * that is opened anew begins at its beginning. -1: it is no such name. */
static int copy_of_opened(const char *path) {
  static const char *const names[] = {"/dev/stdout", "/dev/stderr"};
  static const char *const folders[] = {"/dev/fd/", "/proc/self/fd/"};
  long number = -1;
  for (int i = 0; i < 2; i++) {
    size_t length = strlen(folders[i]);
    char *end = NULL;
    number = strcmp(path, names[i]) == 0 ? STDOUT_FILENO + i : number;
    if (strncmp(path, folders[i], length) == 0 && isdigit((unsigned char)path[length]) != 0) {
      number = strtol(path + length, &end, 10);
      number = *end == '\0' && number <= INT_MAX ? number : -1;
    }
  }
  return number < 0 ? -1 : fcntl((int)number, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
}

/* As it is: a device, a pipe, what the shell has opened. */
static FILE *open_special(const char *path) {
  int fd = copy_of_opened(path);
  FILE *stream = fd < 0 ? fopen(path, "we") : fdopen(fd, "w");
  if (stream == NULL && fd >= 0) {
    int error = errno;
    close(fd);
    errno = error;
  }
  return stream;
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

static void forget(struct mr_new_file *file) {
  free(file->temporary);
  free(file->target);
  file->temporary = NULL;
  file->target = NULL;
}

bool mr_new_file_open(struct mr_new_file *file, const char *path) {
  *file = (struct mr_new_file){.path = path, .target = target_of(path)};
  if (file->target != NULL) {
    file->path = path = file->target;
  }
  if (is_special(path)) {
    file->stream = open_special(path);
    return file->stream != NULL;
  }
  size_t capacity = strlen(path) + MOST_SUFFIX;
  file->temporary = mr_allocate(1, capacity);
  if (file->temporary == NULL) {
    forget(file);
    errno = ENOMEM;
    return false;
  }
  open_beside(file, capacity);
  if (file->stream == NULL && errno == EACCES) {
    free(file->temporary);
    file->temporary = NULL;
    file->stream = fopen(path, "we");
  }
  if (file->stream == NULL) {
    int error = errno;
    forget(file);
    errno = error;
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
  forget(file);
  *file = (struct mr_new_file){0};
  errno = error;
  return error == 0;
}

bool mr_file_write(const char *path, const char *text) {
  struct mr_new_file file;
  return mr_new_file_open(&file, path) && mr_new_file_close(&file, fputs(text, file.stream) != EOF);
}
