/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file of one path: without a name, so that whatever ends the process frees its space; with
 * direct I/O where the file system takes our alignment; reserved whole, so that a write inside it
 * does not meet a full disk. A reservation that fails is released at once: the kernel leaves what
 * it got allocated.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "offload/private.h"

/* The C library's struct statx may be older than the fields about direct I/O, and its header cannot
 * be mixed with the kernel's; the layout is the kernel's interface. */
#define STATX_DIOALIGN_MASK  0x2000u
#define STATX_RECORD_BYTES   256u
#define STATX_DIO_MEM_OFFSET 152u
#define STATX_DIO_OFF_OFFSET 156u
#define NAME_TRIES           16u

/* What file systems count free blocks in; some leave it out where it is what they like to write. */
static uint64_t block_bytes(const struct statfs *status) {
  return status->f_frsize > 0 ? (uint64_t)status->f_frsize : (uint64_t)status->f_bsize;
}

static uint64_t free_bytes_of(const struct statfs *status) {
  return (uint64_t)status->f_bavail * block_bytes(status);
}

static uint64_t in_chunks(uint64_t bytes) {
  return bytes / MR_STORE_CHUNK_BYTES * MR_STORE_CHUNK_BYTES;
}

/* What may be used of the file system of a path, and which that is. */
static mr_status look_at(const char *path, uint64_t *usable_out, dev_t *system_out) {
  struct statfs status;
  struct stat folder;
  if (statfs(path, &status) != 0 || stat(path, &folder) != 0) {
    mr_log(MR_LOG_ERROR, "nvme %s: %s", path, strerror(errno));
    return MR_IO;
  }
  uint64_t free_bytes = free_bytes_of(&status);
  *usable_out = in_chunks(free_bytes - mr_min_u64(free_bytes / 20, MR_GIB));
  *system_out = folder.st_dev;
  return MR_OK;
}

/* Paths on one file system share what may be used of it: evenly, but for those that want less.
 * Returns whether they want more than that. */
static bool share_system(const bool *there, uint32_t count, uint64_t usable, uint64_t *room_bytes) {
  uint64_t given[MR_MAX_NVME_PATHS] = {0};
  uint64_t wanted = 0;
  for (uint32_t i = 0; i < count; i++) {
    wanted = there[i] && !mr_add_u64(wanted, room_bytes[i], &wanted) ? UINT64_MAX : wanted;
  }
  if (wanted <= usable) {
    return false;
  }
  uint64_t left = usable;
  while (left > 0) {
    uint32_t open = 0;
    for (uint32_t i = 0; i < count; i++) {
      open += there[i] && given[i] < room_bytes[i];
    }
    uint64_t part = mr_max_u64(in_chunks(left / open), MR_STORE_CHUNK_BYTES);
    for (uint32_t i = 0; i < count && left > 0; i++) {
      uint64_t more = there[i] ? mr_min_u64(part, room_bytes[i] - given[i]) : 0;
      more = mr_min_u64(more, left);
      given[i] += more;
      left -= more;
    }
  }
  for (uint32_t i = 0; i < count; i++) {
    room_bytes[i] = there[i] ? given[i] : room_bytes[i];
  }
  return true;
}

mr_status mr_file_rooms(const struct mr_nvme_path *paths, uint32_t count, bool tells,
                        uint64_t *room_bytes) {
  dev_t systems[MR_MAX_NVME_PATHS];
  uint64_t usable[MR_MAX_NVME_PATHS];
  for (uint32_t i = 0; i < count; i++) {
    mr_status status = look_at(paths[i].path, &usable[i], &systems[i]);
    if (status != MR_OK) {
      return status;
    }
    room_bytes[i] = in_chunks(mr_min_u64(usable[i], paths[i].limit_bytes));
  }
  for (uint32_t i = 0; i < count; i++) {
    bool there[MR_MAX_NVME_PATHS] = {false};
    uint32_t before = 0;
    uint32_t behind = 0;
    for (uint32_t k = 0; k < count; k++) {
      there[k] = systems[k] == systems[i];
      before += there[k] && k < i;
      behind += there[k] && k > i;
    }
    bool first = before == 0 && behind > 0;
    if (first && share_system(there, count, usable[i], room_bytes) && tells) {
      struct mr_size_text text;
      mr_log_once(MR_LOG_WARN, "nvme %s and others are on one file system: they share %s",
                  paths[i].path, mr_size_format(usable[i], &text));
    }
  }
  return MR_OK;
}

/* Creates a file with a name that no one has, and takes the name away. */
static int open_named(const char *directory, int flags) {
  for (uint32_t i = 0; i < NAME_TRIES; i++) {
    char name[4096];
    int length = snprintf(name, sizeof name, "%s/.memrun-%ld-%llx", directory, (long)getpid(),
                          (unsigned long long)mr_clock_ns());
    if (length < 0 || (size_t)length >= sizeof name) {
      errno = ENAMETOOLONG;
      return -1;
    }
    int fd = open(name, flags | O_CREAT | O_EXCL, 0600);
    if (fd >= 0) {
      unlink(name);
      return fd;
    }
    if (errno != EEXIST) {
      return -1;
    }
  }
  return -1;
}

/* No standard stream, which the process may have closed, and still print to. */
static int beside_streams(int fd) {
  if (fd < 0 || fd > STDERR_FILENO) {
    return fd;
  }
  int moved = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  int reason = errno;
  close(fd);
  errno = reason;
  return moved;
}

static int open_unlinked(const char *directory, int extra_flags) {
  int flags = O_RDWR | O_CLOEXEC | extra_flags;
  int fd = open(directory, flags | O_TMPFILE, 0600);
  /* What file systems and kernels without nameless files say. */
  if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == ENOENT)) {
    fd = open_named(directory, flags);
  }
  return beside_streams(fd);
}

static mr_status refuse_file(const char *directory) {
  int error = errno;
  mr_log(MR_LOG_ERROR, "nvme %s: no file can be made there: %s", directory, strerror(error));
  return error == ENOSPC || error == EDQUOT ? MR_NO_SPACE : MR_IO;
}

static bool is_in_memory(const struct statfs *system) {
  return system->f_type == TMPFS_MAGIC || system->f_type == RAMFS_MAGIC;
}

/* A folder that is none, or that may not be written, has as much free as any. */
static mr_status try_file(const char *directory) {
  int fd = open_unlinked(directory, 0);
  if (fd < 0) {
    return refuse_file(directory);
  }
  struct statfs system;
  if (fstatfs(fd, &system) == 0 && is_in_memory(&system)) {
    mr_log_once(MR_LOG_WARN,
                "nvme %s: a file system in host memory; what goes there takes that up, beside the "
                "budgets of device and host",
                directory);
  }
  close(fd);
  return MR_OK;
}

mr_status mr_store_available(const struct mr_nvme_path *paths, uint32_t path_count,
                             uint64_t *bytes_out) {
  uint64_t room_bytes[MR_MAX_NVME_PATHS];
  uint64_t total = 0;
  mr_status status = mr_file_rooms(paths, path_count, true, room_bytes);
  for (uint32_t i = 0; i < path_count && status == MR_OK; i++) {
    status = try_file(paths[i].path);
    total = mr_add_u64(total, room_bytes[i], &total) ? total : in_chunks(UINT64_MAX);
  }
  if (status == MR_OK) {
    *bytes_out = total;
  }
  return status;
}

/* Whether the file takes direct I/O in multiples of MR_STORE_ALIGN. */
static bool takes_direct_io(int fd) {
  struct statfs system;
  if (fstatfs(fd, &system) == 0 && is_in_memory(&system)) {
    return false; /* opens with O_DIRECT and ignores it */
  }
  _Alignas(8) uint8_t record[STATX_RECORD_BYTES] = {0};
  if (syscall(SYS_statx, fd, "", AT_EMPTY_PATH, STATX_DIOALIGN_MASK, record) != 0) {
    return true; /* an old kernel: the open said yes */
  }
  uint32_t mask = 0;
  uint32_t memory_align = 0;
  uint32_t offset_align = 0;
  memcpy(&mask, record, sizeof mask);
  memcpy(&memory_align, record + STATX_DIO_MEM_OFFSET, sizeof memory_align);
  memcpy(&offset_align, record + STATX_DIO_OFF_OFFSET, sizeof offset_align);
  if ((mask & STATX_DIOALIGN_MASK) == 0) {
    return true;
  }
  return offset_align != 0 && MR_STORE_ALIGN % offset_align == 0 && memory_align != 0 &&
         MR_STORE_ALIGN % memory_align == 0;
}

/* btrfs writes what is changed to another place, so that a file may meet a full disk though all of
 * it was reserved; an empty one can be told to stay where it is. */
static void write_in_place(const struct mr_lane *lane) {
  struct statfs status;
  int flags = 0;
  if (fstatfs(lane->fd, &status) != 0 || status.f_type != BTRFS_SUPER_MAGIC) {
    return;
  }
  if (ioctl(lane->fd, FS_IOC_GETFLAGS, &flags) == 0) {
    flags |= FS_NOCOW_FL;
    if (ioctl(lane->fd, FS_IOC_SETFLAGS, &flags) == 0) {
      return;
    }
  }
  mr_log_once(MR_LOG_WARN,
              "nvme %s: btrfs does not let the file be written in place (%s); what is reserved may "
              "not be enough",
              lane->path, strerror(errno));
}

static mr_status open_file(struct mr_lane *lane) {
  lane->direct_io = true;
  lane->fd = open_unlinked(lane->path, O_DIRECT);
  if (lane->fd >= 0 && !takes_direct_io(lane->fd)) {
    close(lane->fd);
    lane->fd = -1;
    errno = EINVAL;
  }
  if (lane->fd < 0 && errno == EINVAL) {
    lane->direct_io = false;
    lane->fd = open_unlinked(lane->path, 0);
    if (lane->fd >= 0) {
      mr_log_once(MR_LOG_WARN,
                  "nvme %s: no direct I/O on this file system; going through its cache",
                  lane->path);
    }
  }
  if (lane->fd < 0) {
    return refuse_file(lane->path);
  }
  write_in_place(lane);
  return MR_OK;
}

static mr_status no_space(const struct mr_lane *lane, uint64_t asked, int reason) {
  struct statfs status = {0};
  uint64_t free_bytes = 0;
  if (fstatfs(lane->fd, &status) == 0) {
    free_bytes = free_bytes_of(&status);
  }
  struct mr_size_text asked_text;
  struct mr_size_text free_text;
  mr_log(MR_LOG_ERROR, "nvme %s: cannot reserve %s (%s); %s are free: free space or give less",
         lane->path, mr_size_format(asked, &asked_text), strerror(reason),
         mr_size_format(free_bytes, &free_text));
  return MR_NO_SPACE;
}

/* For file systems without fallocate: space is reserved by writing. The lane's pool is not there
 * yet, and direct I/O wants an aligned buffer. */
static int reserve_by_writing(int fd, uint64_t bytes) {
  static _Alignas(MR_STORE_ALIGN) const uint8_t zeros[1 << 16];
  uint64_t at = 0;
  while (at < bytes) {
    ssize_t written = pwrite(fd, zeros, (size_t)mr_min_u64(sizeof zeros, bytes - at), (off_t)at);
    if (written < 0 && errno != EINTR) {
      return errno;
    }
    if (written == 0) {
      return EIO;
    }
    at += written > 0 ? (uint64_t)written : 0;
  }
  return 0;
}

static mr_status reserve(struct mr_lane *lane) {
  uint64_t bytes = lane->chunk_count * MR_STORE_CHUNK_BYTES;
  struct statfs status;
  if (fstatfs(lane->fd, &status) == 0 && bytes / block_bytes(&status) > (uint64_t)status.f_bavail) {
    return no_space(lane, bytes, ENOSPC);
  }
  int reason = 0;
  do {
    reason = fallocate(lane->fd, 0, 0, (off_t)bytes) == 0 ? 0 : errno;
  } while (reason == EINTR);
  if (reason == EOPNOTSUPP || reason == ENOSYS) {
    mr_log(MR_LOG_INFO, "nvme %s: no fallocate on this file system; reserving by writing",
           lane->path);
    reason = reserve_by_writing(lane->fd, bytes);
  }
  if (reason == 0) {
    return MR_OK;
  }
  if (ftruncate(lane->fd, 0) != 0) {
    mr_log(MR_LOG_INFO, "nvme %s: ftruncate: %s", lane->path, strerror(errno));
  }
  if (reason == ENOSPC || reason == EDQUOT || reason == EFBIG) {
    return no_space(lane, bytes, reason);
  }
  mr_log(MR_LOG_ERROR, "nvme %s: cannot reserve %llu bytes: %s", lane->path,
         (unsigned long long)bytes, strerror(reason));
  return MR_IO;
}

mr_status mr_file_open(struct mr_lane *lane) {
  mr_status status = open_file(lane);
  if (status != MR_OK) {
    return status;
  }
  status = reserve(lane);
  if (status != MR_OK) {
    close(lane->fd);
    lane->fd = -1;
  }
  return status;
}
