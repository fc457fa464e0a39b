/* SPDX-License-Identifier: Apache-2.0 */
/* Names, messages and exit statuses, all from the one list. */
#include <memrun/status.h>

const char *mr_status_name(mr_status status) {
  switch (status) {
#define MR_STATUS_CASE(name, value, message, exit_status)                                          \
  case MR_##name:                                                                                  \
    return "MR_" #name;
    MR_STATUS_LIST(MR_STATUS_CASE)
#undef MR_STATUS_CASE
  }
  return "MR_UNKNOWN";
}

const char *mr_status_message(mr_status status) {
  switch (status) {
#define MR_STATUS_CASE(name, value, message, exit_status)                                          \
  case MR_##name:                                                                                  \
    return message;
    MR_STATUS_LIST(MR_STATUS_CASE)
#undef MR_STATUS_CASE
  }
  return "unknown status";
}

int mr_status_exit(mr_status status) {
  switch (status) {
#define MR_STATUS_CASE(name, value, message, exit_status)                                          \
  case MR_##name:                                                                                  \
    return exit_status;
    MR_STATUS_LIST(MR_STATUS_CASE)
#undef MR_STATUS_CASE
  }
  return 1;
}
