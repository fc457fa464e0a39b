/* SPDX-License-Identifier: Apache-2.0 */
/* memrun info: shows what the runtime knows of this machine. */
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "tools/info.h"
#include "tools/job.h"

uint32_t info_processor_count(void) {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? (uint32_t)CPU_COUNT(&set) : 1;
}

static double number_at(const json_t *object, const char *key) {
  return json_number_value(json_object_get(object, key));
}

static const char *text_at(const json_t *object, const char *key) {
  const char *text = json_string_value(json_object_get(object, key));
  return text == NULL ? "" : text;
}

static void print_cpu(struct output *output, const json_t *device) {
  output_text(output, "  %-16s %.0f threads, %s pages\n", text_at(device, "name"),
              number_at(device, "threads"),
              json_is_true(json_object_get(device, "huge_pages")) ? "huge" : "small");
}

/* Speeds of an accelerator's link: each direction alone, and both together. */
static void print_link(struct output *output, const json_t *device, const char *key,
                       const char *what) {
  const json_t *rates = json_object_get(device, key);
  if (!json_is_object(rates)) {
    output_text(output, "  %-16s %s memory: not measured\n", "", what);
    return;
  }
  output_text(output, "  %-16s %s memory: out %.2f, in %.2f, both at once %.2f GB/s\n", "", what,
              number_at(rates, "device_to_host") / 1e9, number_at(rates, "host_to_device") / 1e9,
              number_at(rates, "both") / 1e9);
}

static void print_accelerator(struct output *output, const json_t *device) {
  struct mr_size_text total;
  struct mr_size_text rest;
  double version = number_at(device, "driver_version");
  output_text(output, "  %-16s %s, sm_%.0f, driver for CUDA %.0f.%.0f, %s of memory, %s free\n",
              text_at(device, "name"), text_at(device, "model"), number_at(device, "capability"),
              floor(version / 1000), floor(fmod(version, 1000) / 10),
              mr_size_format((uint64_t)number_at(device, "memory_bytes"), &total),
              mr_size_format((uint64_t)number_at(device, "free_bytes"), &rest));
  print_link(output, device, "pinned_bytes_per_second", "pinned");
  print_link(output, device, "pageable_bytes_per_second", "pageable");
}

static void print_devices(struct output *output, const json_t *machine) {
  const json_t *device = NULL;
  size_t index = 0;
  output_text(output, "machine    %s\n\ndevices\n", text_at(machine, "machine"));
  json_array_foreach(json_object_get(machine, "devices"), index, device) {
    if (!json_is_true(json_object_get(device, "available"))) {
      output_text(output, "  %-16s not available: %s\n", text_at(device, "name"),
                  text_at(device, "reason"));
    } else if (json_object_get(device, "model") != NULL) {
      print_accelerator(output, device);
    } else {
      print_cpu(output, device);
    }
  }
}

static void print_tiers(struct output *output, const json_t *machine) {
  const json_t *budgets = json_object_get(machine, "budget_bytes");
  struct mr_size_text bytes;
  output_text(output,
              "\ntiers (what a job gets that gives no budgets; nvme with --offload nvme alone)\n");
  for (int tier = 0; tier < MR_TIER_COUNT; tier++) {
    output_text(output, "  %-16s %s\n", job_tier_names[tier],
                mr_size_format((uint64_t)number_at(budgets, job_tier_names[tier]), &bytes));
  }
  const json_t *path = NULL;
  size_t index = 0;
  json_array_foreach(json_object_get(machine, "nvme"), index, path) {
    output_text(output, "  %-16s %s\n", "", text_at(path, "path"));
  }
}

static void print_speeds(struct output *output, const json_t *machine) {
  const char *link = NULL;
  json_t *rate = NULL;
  output_text(output, "\nspeeds of device %s\n", text_at(machine, "device"));
  json_object_foreach(json_object_get(machine, "links_bytes_per_second"), link, rate) {
    output_text(output, "  %-16s %8.2f GB/s\n", link, json_number_value(rate) / 1e9);
  }
  output_text(output, "  %-16s %8.2f GB/s\n", "memory",
              number_at(machine, "memory_bytes_per_second") / 1e9);
  output_text(output, "  %-16s %8.2f GFLOP/s\n", "arithmetic",
              number_at(machine, "flops_per_second") / 1e9);
}

/* Of each kind the rate of the largest ops that were run. */
static void print_ops(struct output *output, const json_t *machine) {
  const json_t *rates = json_object_get(machine, "op_rates");
  const json_t *rate = NULL;
  size_t index = 0;
  if (json_array_size(rates) > 0) {
    output_text(output, "\nops that were run here\n");
  }
  json_array_foreach(rates, index, rate) {
    const json_t *other = NULL;
    size_t at = 0;
    bool largest = true;
    json_array_foreach(rates, at, other) {
      largest = largest && !(strcmp(text_at(other, "kind"), text_at(rate, "kind")) == 0 &&
                             number_at(other, "size_class") > number_at(rate, "size_class"));
    }
    if (largest) {
      bool flops = strcmp(text_at(rate, "unit"), "flop") == 0;
      output_text(output, "  %-28s %8.2f %s\n", text_at(rate, "kind"),
                  number_at(rate, "per_second") / 1e9, flops ? "GFLOP/s" : "GB/s");
    }
  }
}

mr_status info_tell_machine(struct cli *cli, struct output *output, const char *event) {
  struct mr_options *options = &cli->train.run;
  options->offload = MR_OFFLOAD_NVME;
  job_prepare_nvme(cli);
  char *text = NULL;
  mr_status status = mr_machine_json(options, &text);
  if (status != MR_OK) {
    return status;
  }
  json_t *machine = job_read_json("the machine", text, &status);
  if (machine == NULL) {
    return status;
  }
  if (cli->json) {
    status = output_json(
        output, json_pack("{s:s, s:s, s:O, s:O}", "event", event, "case", "machine", "devices",
                          json_object_get(machine, "devices"), "machine", machine));
  } else {
    print_devices(output, machine);
    print_tiers(output, machine);
    print_speeds(output, machine);
    print_ops(output, machine);
    status = output_failed(output);
  }
  json_decref(machine);
  return status;
}

mr_status command_info(struct cli *cli, struct output *output) {
  return info_tell_machine(cli, output, "info");
}
