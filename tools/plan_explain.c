/* SPDX-License-Identifier: Apache-2.0 */
/* The explanation of a plan as tables; every number is one of mr_plan_explain's. */
#include "tools/plan_explain.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "tools/job.h"

#define NAME_COLUMNS 36u
#define LEAST_GAIN   5e-4 /* of a step: what one digit after the point of a percentage shows */

/* Short names of the links, as in the lines of train: out of the device and into it. */
static const char *const link_labels[MR_LINK_COUNT] = {"out", "in", "read", "write"};

struct cell {
  char text[64];
};

static double number_of(const json_t *object, const char *key) {
  return json_number_value(json_object_get(object, key));
}

static uint64_t bytes_of(const json_t *object, const char *key) {
  return (uint64_t)json_integer_value(json_object_get(object, key));
}

static const char *text_of(const json_t *object, const char *key) {
  return json_string_value(json_object_get(object, key));
}

json_t *plan_explanation(const struct mr_plan *plan, mr_status *status_out) {
  char *text = NULL;
  *status_out = mr_plan_explain(plan, &text);
  if (*status_out != MR_OK) {
    return NULL;
  }
  return job_read_json("the explanation", text, status_out);
}

/* ---- Tiers ---- */

/* What a tier holds, in MiB: the keys of "holds" and their headings. */
static const struct {
  const char *key, *label;
  int columns;
} holds[] = {
    {"parameter", "param", 6},  {"gradient", "grad", 6},   {"state", "state", 6},
    {"activation", "activ", 6}, {"scratch", "scratch", 7}, {"input", "input", 6},
    {"small", "small", 6},      {"rounding", "round", 6},  {"idle", "idle", 6},
};

static const char *format_mib(uint64_t bytes, struct cell *cell) {
  double mib = (double)bytes / (double)MR_MIB;
  int digits = bytes == 0 || mib >= 99.95 ? 0 : mib >= 9.995 ? 1 : 2;
  snprintf(cell->text, sizeof cell->text, "%.*f", digits, mib);
  return cell->text;
}

/* What is known of a host beside the device, where its memory is apart. */
static void print_host(struct output *output, const json_t *explanation) {
  const json_t *rate = json_object_get(explanation, "host_bytes_per_second");
  struct job_seconds seconds;
  if (rate == NULL) {
    return;
  }
  if (json_is_null(rate)) {
    output_text(output, "the host's speed is not known (host_memory_bandwidth in the profile): "
                        "it runs no ops\n");
  } else if (bytes_of(explanation, "host_ops") > 0) {
    const json_t *shared = json_object_get(explanation, "host_memory_bytes_per_second");
    char beside[64] = "";
    if (!json_is_null(shared)) {
      snprintf(beside, sizeof beside, " (%.1f with moves beside them)",
               json_number_value(shared) * 1e-9);
    }
    output_text(output, "they run there in %s a step, at %.1f GB/s%s\n",
                job_seconds_format(number_of(explanation, "host_seconds"), &seconds),
                json_number_value(rate) * 1e-9, beside);
  }
}

static void print_tiers(struct output *output, const struct mr_plan_summary *summary,
                        const json_t *explanation) {
  const json_t *tiers = json_object_get(explanation, "tiers");
  char line[128];
  int length = snprintf(line, sizeof line, "%-7s %9s %9s", "tier", "need", "budget");
  for (size_t i = 0; summary->fits && i < MR_COUNT_OF(holds); i++) {
    length += snprintf(line + length, sizeof line - (size_t)length, " %*s", holds[i].columns,
                       holds[i].label);
  }
  output_text(output, "\n%s%s\n", line, summary->fits ? "  MiB" : "");
  for (uint32_t t = 0; t < MR_TIER_COUNT; t++) {
    struct mr_size_text need;
    struct mr_size_text budget;
    bool limited = summary->budget_bytes[t] != UINT64_MAX;
    length = snprintf(line, sizeof line, "%-7s %9s %9s", job_tier_names[t],
                      mr_size_format(summary->need_bytes[t], &need),
                      limited ? mr_size_format(summary->budget_bytes[t], &budget) : "no limit");
    const json_t *held = json_object_get(json_object_get(tiers, job_tier_names[t]), "holds");
    for (size_t i = 0; summary->fits && i < MR_COUNT_OF(holds); i++) {
      struct cell cell;
      length += snprintf(line + length, sizeof line - (size_t)length, " %*s", holds[i].columns,
                         format_mib(bytes_of(held, holds[i].key), &cell));
    }
    output_text(output, "%s\n", line);
  }
  if (summary->fits && summary->outside_bytes > 0) {
    struct mr_size_text outside;
    output_text(output, "of the device its context, libraries and others have %s\n",
                mr_size_format(summary->outside_bytes, &outside));
  }
  if (summary->fits) {
    output_text(output, "the device is fullest at %s; %llu ops use tensors on the host\n",
                text_of(json_object_get(tiers, job_tier_names[MR_TIER_DEVICE]), "peak_op"),
                (unsigned long long)bytes_of(explanation, "host_ops"));
    print_host(output, explanation);
  }
}

/* ---- Phases ---- */

static void print_phase(struct output *output, const json_t *phase) {
  struct job_seconds seconds;
  struct job_seconds waiting;
  double whole = fmax(number_of(phase, "seconds"), 1e-12);
  const json_t *links = json_object_get(phase, "links");
  char line[128];
  int length = snprintf(line, sizeof line, "%-10s %9s %9s %8.0f%%", text_of(phase, "phase"),
                        job_seconds_format(number_of(phase, "seconds"), &seconds),
                        job_seconds_format(number_of(phase, "waiting_seconds"), &waiting),
                        100 * number_of(phase, "compute_seconds") / whole);
  for (uint32_t link = 0; link < MR_LINK_COUNT; link++) {
    length += snprintf(line + length, sizeof line - (size_t)length, " %6.0f%%",
                       100 * number_of(links, job_link_names[link]) / whole);
  }
  output_text(output, "%s  %s\n", line, text_of(phase, "bound_by"));
}

static void print_phases(struct output *output, const json_t *phases) {
  output_text(output, "\n%-10s %9s %9s %9s %7s %7s %7s %7s  %s\n", "phase", "takes", "waits",
              "computes", link_labels[0], link_labels[1], link_labels[2], link_labels[3],
              "bound by");
  for (size_t i = 0; i < json_array_size(phases); i++) {
    print_phase(output, json_array_get(phases, i));
  }
}

/* ---- Decisions ---- */

/* The name of a tensor that stands for several: each number in it is a star. */
static void format_name(const char *name, bool several, struct cell *cell) {
  size_t length = 0;
  for (const char *at = name; *at != '\0' && length + 1 < sizeof cell->text;) {
    size_t digits = several ? strspn(at, "0123456789") : 0;
    cell->text[length++] = digits > 0 ? '*' : *at;
    at += digits > 0 ? digits : 1;
  }
  cell->text[length] = '\0';
  output_cut_middle(cell->text, NAME_COLUMNS);
}

/* "1.18 s +4.2%"; "-" where it cannot be, "does not fit" where nothing does. */
static const char *format_outcome(const json_t *outcome, double now, struct cell *cell) {
  if (json_is_null(outcome)) {
    return "-";
  }
  if (!json_is_true(json_object_get(outcome, "fits"))) {
    return "does not fit";
  }
  struct job_seconds seconds;
  double then = number_of(outcome, "predicted_seconds");
  double percent = 100 * (then / now - 1);
  snprintf(cell->text, sizeof cell->text, "%s %+.1f%%", job_seconds_format(then, &seconds),
           fabs(percent) < 0.05 ? 0 : percent);
  return cell->text;
}

/* Where most of the bytes went. */
static const char *main_decision(const json_t *outcome) {
  static const char *const words[] = {"keep", "host", "nvme"};
  const json_t *bytes = json_object_get(outcome, "bytes");
  uint32_t most = 0;
  for (uint32_t i = 1; i < MR_COUNT_OF(words); i++) {
    most = bytes_of(bytes, words[i]) > bytes_of(bytes, words[most]) ? i : most;
  }
  return json_is_true(json_object_get(outcome, "fits")) ? words[most] : "";
}

static void print_decision(struct output *output, double now, const json_t *decision) {
  struct cell name;
  struct cell without_text;
  struct cell again_text;
  struct mr_size_text bytes;
  struct job_seconds seconds;
  const json_t *without = json_object_get(decision, "without");
  uint64_t tensors = bytes_of(decision, "tensors");
  format_name(text_of(decision, "tensor"), tensors > 1, &name);
  output_text(output, "%-5s %-*s %4llu %8s %7s  %-4s %-14s %s\n", text_of(decision, "decision"),
              (int)NAME_COLUMNS, name.text, (unsigned long long)tensors,
              mr_size_format(bytes_of(decision, "bytes"), &bytes),
              job_seconds_format(number_of(decision, "seconds"), &seconds), main_decision(without),
              format_outcome(without, now, &without_text),
              format_outcome(json_object_get(decision, "again"), now, &again_text));
}

static void print_decisions(struct output *output, double now, const json_t *decisions) {
  if (json_array_size(decisions) == 0) {
    output_text(output, "\nnothing leaves the device, and nothing is computed again\n");
    return;
  }
  output_text(output, "\n%-5s %-*s %4s %8s %7s  %-19s %s\n", "goes", (int)NAME_COLUMNS,
              "costliest decisions, alike as one", "x", "bytes", "takes", "instead, then a step",
              "or again");
  for (size_t i = 0; i < json_array_size(decisions); i++) {
    print_decision(output, now, json_array_get(decisions, i));
  }
}

/* ---- Gains ---- */

/* "1.02 s -9.7%", or "no gain" below what that would show; "fits, 1.02 s" where nothing fitted
 * before; "-" where it is not known. */
static const char *format_gain(const json_t *gain, double now, struct cell *cell) {
  if (json_is_null(gain)) {
    return "-";
  }
  if (!json_is_true(json_object_get(gain, "fits"))) {
    return "does not fit";
  }
  if (json_is_null(json_object_get(gain, "gain_seconds"))) {
    struct job_seconds seconds;
    snprintf(cell->text, sizeof cell->text, "fits, %s",
             job_seconds_format(number_of(gain, "predicted_seconds"), &seconds));
    return cell->text;
  }
  return number_of(gain, "gain_seconds") < LEAST_GAIN * now ? "no gain"
                                                            : format_outcome(gain, now, cell);
}

static void print_gain_row(struct output *output, const char *title, const json_t *gains,
                           double now) {
  char names[128];
  char texts[128];
  int name_length = snprintf(names, sizeof names, "%-20s", title);
  int text_length = snprintf(texts, sizeof texts, "%-20s", "");
  const char *key = NULL;
  json_t *gain = NULL;
  json_object_foreach((json_t *)(uintptr_t)gains, key, gain) {
    struct cell cell;
    name_length +=
        snprintf(names + name_length, sizeof names - (size_t)name_length, "  %-16s", key);
    text_length += snprintf(texts + text_length, sizeof texts - (size_t)text_length, "  %-16s",
                            format_gain(gain, now, &cell));
  }
  while (names[name_length - 1] == ' ') {
    names[--name_length] = '\0';
  }
  while (texts[text_length - 1] == ' ') {
    texts[--text_length] = '\0';
  }
  output_text(output, "%s\n%s\n", names, texts);
}

static void print_end(struct output *output, const struct mr_plan_summary *summary,
                      const json_t *explanation) {
  struct mr_size_text smallest;
  struct mr_size_text step;
  struct mr_size_text day;
  const json_t *least = json_object_get(explanation, "smallest_device_bytes");
  if (json_is_null(least)) {
    output_text(output, "\nsmallest device budget none: the other tiers are short\n");
  } else {
    uint64_t bytes = (uint64_t)json_integer_value(least);
    output_text(output, "\nsmallest device budget %s: --device-mem %llu\n",
                mr_size_format_enough(bytes, &smallest), (unsigned long long)bytes);
  }
  if (summary->fits) {
    output_text(output, "NVMe is written %s a step, %s a day\n",
                mr_size_format(bytes_of(explanation, "nvme_written_bytes_a_step"), &step),
                mr_size_format((uint64_t)number_of(explanation, "nvme_written_bytes_a_day"), &day));
  }
}

void plan_explain_print(struct output *output, const struct mr_plan_summary *summary,
                        const json_t *explanation) {
  double now = summary->predicted_seconds;
  if (summary->fits) {
    output_text(output, "gap        %.1f%% above that bound\n",
                100 * number_of(explanation, "gap"));
  }
  print_tiers(output, summary, explanation);
  if (summary->fits) {
    print_phases(output, json_object_get(explanation, "phases"));
    print_decisions(output, now, json_object_get(explanation, "decisions"));
  }
  output_text(output, "\n");
  print_gain_row(output, "one more GiB of", json_object_get(explanation, "one_more_gib"), now);
  print_gain_row(output, "twice the speed of", json_object_get(explanation, "twice_as_fast"), now);
  print_end(output, summary, explanation);
}
