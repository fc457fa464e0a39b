/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every fallible function of memrun returns an mr_status, and the caller must look at it. The first
 * place that detects a fault logs one line at error level (names, numbers, the limit, what to do);
 * callers pass the status up.
 */
#ifndef MEMRUN_STATUS_H
#define MEMRUN_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define MR_API                 __attribute__((visibility("default")))
#define MR_CHECK_RESULT        __attribute__((warn_unused_result))
#define MR_PRINTF(text, first) __attribute__((__format__(__printf__, text, first)))
#else
#define MR_API
#define MR_CHECK_RESULT
#define MR_PRINTF(text, first)
#endif

/* X(name, value, message, exit status of the command line) */
#define MR_STATUS_LIST(X)                                                                          \
  X(OK, 0, "ok", 0)                                                                                \
  X(INVALID, 1, "invalid argument", 2)                                                             \
  X(DOES_NOT_FIT, 2, "does not fit the budgets", 3)                                                \
  X(NO_MEMORY, 3, "out of host memory", 3)                                                         \
  X(IO, 4, "input or output failed", 4)                                                            \
  X(NO_SPACE, 5, "no space left", 4)                                                               \
  X(TIMEOUT, 6, "an operation did not finish before its deadline", 4)                              \
  X(CORRUPT, 7, "data is corrupt", 5)                                                              \
  X(MISMATCH, 8, "results differ", 1)                                                              \
  X(INTERRUPTED, 9, "interrupted", 130)                                                            \
  X(UNSUPPORTED, 10, "not supported here", 2)

typedef enum mr_status {
#define MR_STATUS_ENUM(name, value, message, exit_status) MR_##name = value,
  MR_STATUS_LIST(MR_STATUS_ENUM)
#undef MR_STATUS_ENUM
} mr_status;

/* The name ("MR_IO") and the message of a status; static strings. Unknown values give "MR_UNKNOWN".
 * Any thread. */
MR_API const char *mr_status_name(mr_status status);
MR_API const char *mr_status_message(mr_status status);

/* The documented exit status of a program that ends because of `status`. Any thread. */
MR_API int mr_status_exit(mr_status status);

/* Levels of the log, most severe first. */
typedef enum mr_log_level {
  MR_LOG_ERROR = 0,
  MR_LOG_WARN = 1,
  MR_LOG_INFO = 2,
  MR_LOG_DEBUG = 3,
  MR_LOG_TRACE = 4,
} mr_log_level;

/* Receives one finished line without its newline. May be called from any thread; must not call
 * memrun. */
typedef void (*mr_log_sink)(void *context, mr_log_level level, const char *line);

/*
 * Sets where log lines go and the least severe level that is shown. A NULL sink restores the
 * default: one line "memrun: <line>" on standard error. Process wide; call it before threads exist.
 */
MR_API void mr_log_configure(mr_log_sink sink, void *context, mr_log_level level);

/* Logs one line; lower case, the observed cause, no guesses. Any thread. Does not change errno. */
MR_API void mr_log(mr_log_level level, const char *format, ...) MR_PRINTF(2, 3);

#ifdef __cplusplus
}
#endif
#endif
