/* SPDX-License-Identifier: Apache-2.0 */
/* Injected faults: "read:eio:7,write:flip:2" says what the n-th transfer of a direction meets. */
#include <stdlib.h>
#include <string.h>

#include "offload/private.h"

static const struct {
  const char *name;
  mr_fault fault;
} fault_names[] = {
    {"eio", MR_FAULT_EIO},   {"enospc", MR_FAULT_ENOSPC}, {"short", MR_FAULT_SHORT},
    {"flip", MR_FAULT_FLIP}, {"hang", MR_FAULT_HANG},
};

/* Advances *text past `word` and the colon behind it. */
static bool take_word(const char **text, const char *word) {
  size_t length = strlen(word);
  if (strncmp(*text, word, length) != 0 || (*text)[length] != ':') {
    return false;
  }
  *text += length + 1;
  return true;
}

static bool take_rule(const char **text, struct mr_fault_rule *rule_out) {
  struct mr_fault_rule rule = {.write = take_word(text, "write")};
  if (!rule.write && !take_word(text, "read")) {
    return false;
  }
  for (uint32_t i = 0; i < MR_COUNT_OF(fault_names) && rule.fault == MR_FAULT_NONE; i++) {
    if (take_word(text, fault_names[i].name)) {
      rule.fault = fault_names[i].fault;
    }
  }
  if (rule.fault == MR_FAULT_NONE || **text < '0' || **text > '9') {
    return false;
  }
  char *end = NULL;
  rule.nth = strtoull(*text, &end, 10);
  if (*end != ',' && *end != '\0') {
    return false;
  }
  *text = *end == ',' ? end + 1 : end;
  *rule_out = rule;
  return true;
}

mr_status mr_fault_parse(const char *text, struct mr_fault_plan *plan_out) {
  const char *rest = text == NULL ? "" : text;
  uint32_t count = 0;
  while (*rest != '\0') {
    if (count == MR_STORE_FAULTS || !take_rule(&rest, &plan_out->rules[count])) {
      mr_log(MR_LOG_ERROR,
             "fault injection \"%s\": expected at most %u of read|write:eio|enospc|short|flip|hang:"
             "NUMBER, separated by commas",
             text, MR_STORE_FAULTS);
      return MR_INVALID;
    }
    count++;
  }
  plan_out->rule_count = count;
  return MR_OK;
}

mr_fault mr_fault_next(struct mr_fault_plan *plan, bool write) {
  if (plan->rule_count == 0) {
    return MR_FAULT_NONE;
  }
  uint64_t nth = atomic_fetch_add(&plan->transfers[write ? 1 : 0], 1) + 1;
  for (uint32_t i = 0; i < plan->rule_count; i++) {
    const struct mr_fault_rule *rule = &plan->rules[i];
    if (rule->write == write && (rule->nth == 0 || rule->nth == nth)) {
      return rule->fault;
    }
  }
  return MR_FAULT_NONE;
}
