/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Preloaded into memrun: the n-th allocation (from 1, in FAILMALLOC) that memrun's own code asks
 * for fails; with FAILMALLOC_OBJECT=NAME it is that library's allocations that are counted. What
 * others ask for is theirs to survive. With FAILMALLOC_COUNT=FILE the number of allocations is
 * written there at exit.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* NOLINTBEGIN(bugprone-reserved-identifier): glibc's own names of what is interposed */
extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_realloc(void *memory, size_t bytes);
extern void *__libc_memalign(size_t alignment, size_t bytes);
/* NOLINTEND(bugprone-reserved-identifier) */

#define MAX_RANGES 8u

static struct {
  uintptr_t begin[MAX_RANGES];
  uintptr_t end[MAX_RANGES];
  unsigned count;
} watched;

static _Atomic uint64_t seen;
static uint64_t failing; /* 0: none */

/* The program itself has no name. */
static int watch(struct dl_phdr_info *object, size_t size, void *context) {
  (void)size;
  const char *name = context;
  bool wanted =
      name == NULL ? object->dlpi_name[0] == '\0' : strstr(object->dlpi_name, name) != NULL;
  for (unsigned i = 0; wanted && i < object->dlpi_phnum; i++) {
    const ElfW(Phdr) *header = &object->dlpi_phdr[i];
    if (header->p_type == PT_LOAD && (header->p_flags & PF_X) != 0 && watched.count < MAX_RANGES) {
      watched.begin[watched.count] = object->dlpi_addr + header->p_vaddr;
      watched.end[watched.count++] = object->dlpi_addr + header->p_vaddr + header->p_memsz;
    }
  }
  return 0;
}

__attribute__((constructor)) static void begin(void) {
  const char *number = getenv("FAILMALLOC");
  dl_iterate_phdr(watch, getenv("FAILMALLOC_OBJECT"));
  failing = number == NULL ? 0 : strtoull(number, NULL, 10);
}

__attribute__((destructor)) static void end(void) {
  const char *path = getenv("FAILMALLOC_COUNT");
  int file = path == NULL ? -1 : open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (file >= 0) {
    dprintf(file, "%llu\n", (unsigned long long)atomic_load(&seen));
    close(file);
  }
}

static bool fails(const void *caller) {
  uintptr_t address = (uintptr_t)caller;
  for (unsigned i = 0; i < watched.count; i++) {
    if (address >= watched.begin[i] && address < watched.end[i]) {
      if (atomic_fetch_add(&seen, 1) + 1 == failing) {
        errno = ENOMEM;
        return true;
      }
      return false;
    }
  }
  return false;
}

/* NOLINTBEGIN(readability-inconsistent-declaration-parameter-name): glibc's are reserved */
void *malloc(size_t bytes) {
  return fails(__builtin_return_address(0)) ? NULL : __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes) {
  return fails(__builtin_return_address(0)) ? NULL : __libc_calloc(count, bytes);
}

void *realloc(void *memory, size_t bytes) {
  return fails(__builtin_return_address(0)) ? NULL : __libc_realloc(memory, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes) {
  return fails(__builtin_return_address(0)) ? NULL : __libc_memalign(alignment, bytes);
}

int posix_memalign(void **memory_out, size_t alignment, size_t bytes) {
  if (fails(__builtin_return_address(0))) {
    return ENOMEM;
  }
  void *memory = __libc_memalign(alignment, bytes);
  if (memory == NULL) {
    return ENOMEM;
  }
  *memory_out = memory;
  return 0;
}
/* NOLINTEND(readability-inconsistent-declaration-parameter-name) */
