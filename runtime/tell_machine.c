/* SPDX-License-Identifier: Apache-2.0 */
/* The machine as JSON: its devices, tiers, and what was measured. */
#include <jansson.h>
#include <stdlib.h>

#include "base/json.h"
#include "runtime/runtime.h"

static json_t *op_rates(const struct mr_profile *profile) {
  json_t *list = json_array();
  for (uint32_t i = 0; i < profile->rate_count; i++) {
    const struct mr_op_rate *rate = &profile->rates[i];
    (void)json_array_append_new(list, json_pack("{s:s, s:s, s:I, s:f}", "kind", rate->kind, "unit",
                                                rate->by_flops ? "flop" : "byte", "size_class",
                                                (json_int_t)rate->size_class, "per_second",
                                                1 / rate->seconds_per_unit));
  }
  return list;
}

static json_t *paths_of(const struct mr_settings *settings) {
  json_t *list = json_array();
  for (uint32_t i = 0; i < settings->nvme_count; i++) {
    (void)json_array_append_new(list,
                                json_pack("{s:o}", "path", mr_json_text(settings->nvme[i].path)));
  }
  return list;
}

static json_t *links_of(const struct mr_settings *settings, const struct mr_profile *profile,
                        const struct mr_store_rates *nvme) {
  json_t *links = json_pack("{s:f, s:f}", mr_link_names[0], profile->copy_bytes_per_second[0],
                            mr_link_names[1], profile->copy_bytes_per_second[1]);
  if (settings->offload_nvme) {
    (void)json_object_set_new(links, mr_link_names[2], json_real(nvme->read_bytes_per_second));
    (void)json_object_set_new(links, mr_link_names[3], json_real(nvme->write_bytes_per_second));
    (void)json_object_set_new(links, "nvme_mixed", json_real(nvme->mixed_bytes_per_second));
  }
  return links;
}

static json_t *cpu_of(const struct mr_settings *settings) {
  struct mr_device_caps caps;
  mr_device_cpu.query(&caps);
  return json_pack("{s:s, s:b, s:n, s:I, s:b}", "name", caps.name, "available", true, "reason",
                   "threads", (json_int_t)settings->threads, "huge_pages", caps.huge_pages);
}

static json_t *rates_of(const struct mr_accelerator_rates *rates) {
  return json_pack("{s:f, s:f, s:f}", mr_link_names[0], rates->out_bytes_per_second,
                   mr_link_names[1], rates->in_bytes_per_second, "both",
                   rates->both_bytes_per_second);
}

/* The accelerator with the speeds of its link, which are null where they could not be measured (one
 * line says why: its memory may be others'); or why there is none. */
static json_t *cuda_of(void) {
  struct mr_accelerator accelerator;
  struct mr_accelerator_rates pinned = {0};
  struct mr_accelerator_rates pageable = {0};
  double memory_rate = 0;
  char why[256];
  if (mr_cuda_describe(&accelerator, why, sizeof why) != MR_OK) {
    return json_pack("{s:s, s:b, s:s}", "name", mr_device_cuda.name, "available", false, "reason",
                     why);
  }
  bool measured = mr_cuda_measure(&pinned, &pageable, &memory_rate) == MR_OK;
  return json_pack(
      "{s:s, s:b, s:n, s:s, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:o}", "name", mr_device_cuda.name,
      "available", true, "reason", "model", accelerator.name, "driver_version",
      (json_int_t)accelerator.driver_version, "capability", (json_int_t)accelerator.capability,
      "processors", (json_int_t)accelerator.processors, "memory_bytes",
      (json_int_t)accelerator.memory_bytes, "free_bytes", (json_int_t)accelerator.free_bytes,
      "memory_bytes_per_second", measured ? json_real(memory_rate) : json_null(),
      "pinned_bytes_per_second", measured ? rates_of(&pinned) : json_null(),
      "pageable_bytes_per_second", measured ? rates_of(&pageable) : json_null());
}

static mr_status print_machine(const struct mr_settings *settings, const struct mr_profile *profile,
                               const struct mr_store_rates *nvme, char **json_out) {
  json_t *cuda = cuda_of();
  uint64_t budget_bytes[MR_TIER_COUNT];
  mr_settings_tell_budgets(settings, budget_bytes);
  json_t *root = json_pack(
      "{s:s, s:s, s:[o, o], s:{s:I, s:I, s:I}, s:o, s:o, s:f, s:f, s:o}", "machine",
      profile->machine, "device", settings->device->name, "devices", cpu_of(settings), cuda,
      "budget_bytes", "device", (json_int_t)budget_bytes[MR_TIER_DEVICE], "host",
      (json_int_t)budget_bytes[MR_TIER_HOST], "nvme", (json_int_t)budget_bytes[MR_TIER_NVME],
      "nvme", paths_of(settings), "links_bytes_per_second", links_of(settings, profile, nvme),
      "flops_per_second", profile->flops_per_second, "memory_bytes_per_second",
      profile->bytes_per_second, "op_rates", op_rates(profile));
  return mr_json_print(root, JSON_COMPACT | MR_JSON_DIGITS, "the machine", json_out);
}

mr_status mr_machine_json(const struct mr_options *options, char **json_out) {
  struct mr_settings settings;
  mr_status status = mr_settings_init(&settings, options, NULL);
  if (status != MR_OK) {
    return status;
  }
  struct mr_profile *profile = NULL;
  struct mr_store_rates nvme = {0};
  if (settings.machine != NULL) {
    mr_log(MR_LOG_ERROR,
           "profile %s: describes '%s'; memrun plan takes it, this is another machine",
           settings.profile_path, settings.machine->name);
    status = MR_INVALID;
  } else {
    status = mr_profile_get(&settings, NULL, &profile, &nvme);
  }
  if (status == MR_OK) {
    status = print_machine(&settings, profile, &nvme, json_out);
  }
  free(profile);
  mr_settings_fini(&settings);
  return status;
}
