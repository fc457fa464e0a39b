/* SPDX-License-Identifier: Apache-2.0 */
/* The description of a machine: lines of "key = value", each checked, each fault with its line. */
#include "runtime/machine_file.h"

#include <ctype.h>
#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/base.h"
#include "base/json.h"

#define MAX_FILE_BYTES (64u << 10)
#define MAX_LINE_BYTES 256u
/* Of an op and of a move, where the file leaves them out: a kernel launch, a small transfer. */
#define DEFAULT_OP_OVERHEAD_SECONDS  5e-6
#define DEFAULT_COPY_LATENCY_SECONDS 10e-6
#define DEFAULT_NVME_LATENCY_SECONDS 150e-6
/* Ends the kinds of ops in bf16 that run at another rate than in fp32. */
#define BF16_SUFFIX ".bf16"
/* No machine has more of anything; sums of such numbers stay exact enough. */
#define MOST_VALUE 1e18
/* Nothing is slower: by less a step takes so long that sums of its times lose their small parts. */
#define LEAST_RATE 1.0

enum key_kind {
  KEY_NAME,
  KEY_SIZE,    /* uint64_t bytes */
  KEY_BYTES,   /* double, bytes a second */
  KEY_FLOPS,   /* double, operations a second */
  KEY_SECONDS, /* double */
  KEY_LINK,    /* struct mr_link_rate: "bytes a second" or "bytes a second, seconds" */
};

struct key {
  const char *name;
  enum key_kind kind;
  size_t offset; /* in struct mr_machine */
  bool required;
};

#define FIELD(name) offsetof(struct mr_machine, name)

static const struct key keys[] = {
    {"name", KEY_NAME, FIELD(name), true},
    {"device_memory", KEY_SIZE, FIELD(tier_bytes[MR_TIER_DEVICE]), true},
    {"host_memory", KEY_SIZE, FIELD(tier_bytes[MR_TIER_HOST]), false},
    {"nvme", KEY_SIZE, FIELD(tier_bytes[MR_TIER_NVME]), false},
    {"compute", KEY_FLOPS, FIELD(flops_per_second), true},
    {"memory_bandwidth", KEY_BYTES, FIELD(memory_bytes_per_second), true},
    {"host_memory_bandwidth", KEY_BYTES, FIELD(host_bytes_per_second), false},
    {"host_memory_shared", KEY_BYTES, FIELD(host_memory_bytes_per_second), false},
    {"op_overhead", KEY_SECONDS, FIELD(op_overhead_seconds), false},
    {"device_to_host", KEY_LINK, FIELD(link[MR_LINK_DEVICE_TO_HOST]), true},
    {"host_to_device", KEY_LINK, FIELD(link[MR_LINK_HOST_TO_DEVICE]), true},
    {"nvme_read", KEY_LINK, FIELD(link[MR_LINK_NVME_READ]), false},
    {"nvme_write", KEY_LINK, FIELD(link[MR_LINK_NVME_WRITE]), false},
    {"nvme_mixed", KEY_BYTES, FIELD(nvme_mixed_bytes_per_second), false},
};

/* Some editors begin a text with it. */
static const char byte_order_mark[] = "\xef\xbb\xbf";

struct reader {
  const char *path;
  uint32_t line;
  struct mr_machine *machine;
  bool seen[MR_COUNT_OF(keys)];
};

static mr_status refuse(const struct reader *reader, const char *format, ...) MR_PRINTF(2, 3);

static mr_status refuse(const struct reader *reader, const char *format, ...) {
  char text[384];
  va_list arguments;
  va_start(arguments, format);
  /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): va_start is one line above */
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  mr_log(MR_LOG_ERROR, "profile %s, line %u: %s", reader->path, reader->line, text);
  return MR_INVALID;
}

/* ---- Numbers with units ---- */

struct unit {
  const char *text;
  double scale;
};

static const struct unit byte_units[] = {{"B", 1},          {"KB", 1e3},       {"MB", 1e6},
                                         {"GB", 1e9},       {"TB", 1e12},      {"PB", 1e15},
                                         {"KiB", 0x1.0p10}, {"MiB", 0x1.0p20}, {"GiB", 0x1.0p30},
                                         {"TiB", 0x1.0p40}, {"PiB", 0x1.0p50}, {NULL, 0}};
static const struct unit rate_units[] = {{"B/s", 1},          {"KB/s", 1e3},
                                         {"MB/s", 1e6},       {"GB/s", 1e9},
                                         {"TB/s", 1e12},      {"KiB/s", 0x1.0p10},
                                         {"MiB/s", 0x1.0p20}, {"GiB/s", 0x1.0p30},
                                         {"TiB/s", 0x1.0p40}, {NULL, 0}};
static const struct unit flop_units[] = {{"FLOP/s", 1},     {"MFLOP/s", 1e6},  {"GFLOP/s", 1e9},
                                         {"TFLOP/s", 1e12}, {"PFLOP/s", 1e15}, {NULL, 0}};
static const struct unit second_units[] = {
    {"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}, {NULL, 0}};

/* As strtod, with a point whatever the client's locale has there. */
static double read_double(const char *text, char **end_out) {
  locale_t point = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0);
  if (point == (locale_t)0) {
    return strtod(text, end_out);
  }
  double number = strtod_l(text, end_out, point);
  freelocale(point);
  return number;
}

/* "12.5 GB/s": digits, perhaps a point, and one of the units. */
static bool read_quantity(const char *text, const struct unit *units, double *value_out) {
  char *end = NULL;
  if (!isdigit((unsigned char)text[0]) || strcspn(text, "xX") < strspn(text, "0123456789.eExX")) {
    return false;
  }
  double number = read_double(text, &end);
  end += strspn(end, " \t");
  while (units->text != NULL && strcmp(units->text, end) != 0) {
    units++;
  }
  double value = units->text == NULL ? NAN : number * units->scale;
  if (!isfinite(value) || value > MOST_VALUE) {
    return false;
  }
  *value_out = value;
  return true;
}

static mr_status read_size(const struct reader *reader, const struct key *key, const char *value,
                           uint64_t *bytes_out) {
  double bytes = 0;
  if (!read_quantity(value, byte_units, &bytes)) {
    return refuse(reader, "%s '%s': a size such as 80 GiB or 7.68 TB is wanted", key->name, value);
  }
  *bytes_out = (uint64_t)bytes;
  return MR_OK;
}

static mr_status read_rate(const struct reader *reader, const char *name, const char *value,
                           double *rate_out) {
  if (!read_quantity(value, rate_units, rate_out) || *rate_out < LEAST_RATE) {
    return refuse(reader, "%s '%s': a rate from 1 B/s on such as 25 GB/s is wanted", name, value);
  }
  return MR_OK;
}

static mr_status read_link(const struct reader *reader, const struct key *key, char *value,
                           struct mr_link_rate *link) {
  char *comma = strchr(value, ',');
  if (comma != NULL) {
    *comma = '\0';
    for (char *end = comma; end > value && isblank((unsigned char)end[-1]); end--) {
      end[-1] = '\0';
    }
    const char *latency = comma + 1 + strspn(comma + 1, " \t");
    if (!read_quantity(latency, second_units, &link->latency_seconds) ||
        link->latency_seconds > 1) {
      return refuse(reader, "%s: latency '%s': at most 1 s is wanted, such as 10 us", key->name,
                    latency);
    }
  }
  return read_rate(reader, key->name, value, &link->bytes_per_second);
}

/* ---- Lines ---- */

/* Whether a screen and JSON can show it. */
static bool is_plain(const char *text) {
  json_t *string = json_string(text); /* NULL also where memory is short */
  bool plain = string != NULL;
  for (; *text != '\0' && plain; text++) {
    plain = !iscntrl((unsigned char)*text);
  }
  json_decref(string);
  return plain;
}

static mr_status read_name(const struct reader *reader, const char *value) {
  size_t length = strlen(value);
  if (length >= MR_MACHINE_NAME_BYTES) {
    return refuse(reader, "name: %zu bytes; at most %u", length, MR_MACHINE_NAME_BYTES - 1);
  }
  if (!is_plain(value)) {
    return refuse(reader, "name: text in UTF-8 without control characters is wanted");
  }
  memcpy(reader->machine->name, value, length + 1);
  return MR_OK;
}

static mr_status read_value(const struct reader *reader, const struct key *key, char *value) {
  void *field = (char *)reader->machine + key->offset;
  double *number = field;
  switch (key->kind) {
  case KEY_NAME:
    return read_name(reader, value);
  case KEY_SIZE:
    return read_size(reader, key, value, field);
  case KEY_BYTES:
    return read_rate(reader, key->name, value, number);
  case KEY_LINK:
    return read_link(reader, key, value, field);
  case KEY_FLOPS:
    if (!read_quantity(value, flop_units, number) || *number < LEAST_RATE) {
      return refuse(reader, "%s '%s': a rate from 1 FLOP/s on such as 400 TFLOP/s is wanted",
                    key->name, value);
    }
    return MR_OK;
  case KEY_SECONDS:
    if (!read_quantity(value, second_units, number) || *number > 1) {
      return refuse(reader, "%s '%s': at most 1 s is wanted, such as 5 us", key->name, value);
    }
    return MR_OK;
  }
  return MR_INVALID;
}

/* "rate KIND = 420 TFLOP/s" or "... GB/s". */
static mr_status read_kind_rate(const struct reader *reader, const char *kind, const char *value) {
  struct mr_machine *machine = reader->machine;
  if (machine->rate_count == MR_MACHINE_MAX_RATES) {
    return refuse(reader, "more than %u rates of kinds of ops", MR_MACHINE_MAX_RATES);
  }
  struct mr_machine_rate *rate = &machine->rates[machine->rate_count];
  if (kind[0] == '\0' || strlen(kind) >= sizeof rate->kind) {
    return refuse(reader, "rate '%s': a kind of op of 1 to %zu bytes is wanted", kind,
                  sizeof rate->kind - 1);
  }
  for (uint32_t i = 0; i < machine->rate_count; i++) {
    if (strcmp(machine->rates[i].kind, kind) == 0) {
      return refuse(reader, "rate %s is given twice", kind);
    }
  }
  rate->by_flops = read_quantity(value, flop_units, &rate->per_second);
  if ((!rate->by_flops && !read_quantity(value, rate_units, &rate->per_second)) ||
      rate->per_second < LEAST_RATE) {
    return refuse(reader, "rate %s '%s': a rate from 1 on such as 400 TFLOP/s or 2 TB/s is wanted",
                  kind, value);
  }
  memcpy(rate->kind, kind, strlen(kind) + 1);
  machine->rate_count++;
  return MR_OK;
}

/* Cuts blanks off both ends. */
static char *trim(char *text) {
  text += strspn(text, " \t");
  size_t length = strlen(text);
  while (length > 0 && isspace((unsigned char)text[length - 1])) {
    text[--length] = '\0';
  }
  return text;
}

static mr_status read_line(struct reader *reader, char *line) {
  line[strcspn(line, "#")] = '\0';
  line = trim(line);
  if (line[0] == '\0') {
    return MR_OK;
  }
  char *equals = strchr(line, '=');
  if (equals == NULL) {
    return refuse(reader, "'%s': KEY = VALUE is wanted; # begins a comment", line);
  }
  *equals = '\0';
  const char *name = trim(line);
  char *value = trim(equals + 1);
  if (value[0] == '\0') {
    return refuse(reader, "%s: a value is wanted after the equals sign", name);
  }
  if (strncmp(name, "rate", 4) == 0 && isblank((unsigned char)name[4])) {
    return read_kind_rate(reader, name + 5 + strspn(name + 5, " \t"), value);
  }
  for (size_t i = 0; i < MR_COUNT_OF(keys); i++) {
    if (strcmp(keys[i].name, name) != 0) continue;
    if (reader->seen[i]) {
      return refuse(reader, "%s is given twice", name);
    }
    reader->seen[i] = true;
    return read_value(reader, &keys[i], value);
  }
  return refuse(reader, "'%s' is no key; memrun-profile(5) lists them", name);
}

static mr_status check_whole(const struct reader *reader) {
  const struct mr_machine *machine = reader->machine;
  for (size_t i = 0; i < MR_COUNT_OF(keys); i++) {
    bool for_nvme = machine->tier_bytes[MR_TIER_NVME] > 0 && keys[i].kind == KEY_LINK;
    if (!reader->seen[i] && (keys[i].required || for_nvme)) {
      return refuse(reader, "the file ends without %s", keys[i].name);
    }
  }
  if (machine->tier_bytes[MR_TIER_DEVICE] == 0) {
    return refuse(reader, "device_memory is 0; a device needs memory");
  }
  return MR_OK;
}

mr_status mr_machine_parse(const char *path, const char *text, size_t bytes,
                           struct mr_machine *machine_out) {
  struct mr_machine machine = {.op_overhead_seconds = DEFAULT_OP_OVERHEAD_SECONDS};
  for (uint32_t link = 0; link < MR_LINK_COUNT; link++) {
    /* A machine without NVMe needs positive rates there all the same. */
    machine.link[link] = (struct mr_link_rate){
        1, mr_link_is_nvme(link) ? DEFAULT_NVME_LATENCY_SECONDS : DEFAULT_COPY_LATENCY_SECONDS};
  }
  struct reader reader = {.path = path, .machine = &machine};
  mr_status status = MR_OK;
  size_t mark = strlen(byte_order_mark);
  size_t start = bytes >= mark && memcmp(text, byte_order_mark, mark) == 0 ? mark : 0;
  for (size_t at = start; status == MR_OK && at < bytes;) {
    char line[MAX_LINE_BYTES];
    const char *newline = memchr(text + at, '\n', bytes - at);
    size_t length = newline == NULL ? bytes - at : (size_t)(newline - (text + at));
    reader.line++;
    if (length >= sizeof line || memchr(text + at, '\0', length) != NULL) {
      return refuse(&reader, "longer than %u bytes, or no text", MAX_LINE_BYTES - 1);
    }
    memcpy(line, text + at, length);
    line[length] = '\0';
    status = read_line(&reader, line);
    at += length + 1;
  }
  if (status == MR_OK) {
    status = check_whole(&reader);
  }
  if (status == MR_OK) {
    *machine_out = machine;
  }
  return status;
}

/* ---- Files ---- */

bool mr_machine_is_described(const char *path) {
  struct stat about;
  FILE *file = stat(path, &about) == 0 && S_ISREG(about.st_mode) ? fopen(path, "re") : NULL;
  if (file == NULL) {
    return false;
  }
  int letter = fgetc(file);
  while (letter != EOF && isspace(letter)) {
    letter = fgetc(file);
  }
  fclose(file);
  return letter != EOF && letter != '\0' && letter != '{';
}

mr_status mr_machine_load(const char *path, struct mr_machine **machine_out) {
  char *text = mr_allocate(MAX_FILE_BYTES + 1, 1);
  struct mr_machine *machine = mr_allocate(1, sizeof *machine);
  FILE *file = text == NULL || machine == NULL ? NULL : fopen(path, "re");
  mr_status status = text == NULL || machine == NULL ? MR_NO_MEMORY : MR_OK;
  if (status == MR_OK && file == NULL) {
    mr_log(MR_LOG_ERROR, "profile %s: %s", path, strerror(errno));
    status = MR_IO;
  }
  if (status == MR_OK) {
    size_t bytes = fread(text, 1, MAX_FILE_BYTES + 1, file);
    if (ferror(file) || bytes > MAX_FILE_BYTES) {
      mr_log(MR_LOG_ERROR, "profile %s: cannot be read, or has more than %u bytes", path,
             MAX_FILE_BYTES);
      status = MR_IO;
    } else {
      status = mr_machine_parse(path, text, bytes, machine);
    }
  }
  if (file != NULL) {
    fclose(file);
  }
  free(text);
  if (status != MR_OK) {
    free(machine);
    return status;
  }
  *machine_out = machine;
  return MR_OK;
}

/* ---- Ops ---- */

/* Whether the rate tells what the op takes: the kinds are one, and it does what is counted. */
static bool is_rate_of(const struct mr_machine_rate *rate, const struct mr_op *op) {
  return strcmp(rate->kind, op->kind) == 0 && (!rate->by_flops || op->flops > 0);
}

/* What is left of a kind without its precision: a description has the rates of others as well. */
static size_t stem_length(const char *kind) {
  size_t length = strlen(kind);
  size_t suffix = strlen(BF16_SUFFIX);
  bool bf16 = length > suffix && strcmp(kind + length - suffix, BF16_SUFFIX) == 0;
  return bf16 ? length - suffix : length;
}

static bool is_other_precision(const char *kind, const char *other) {
  size_t length = stem_length(kind);
  return strcmp(kind, other) != 0 && stem_length(other) == length &&
         strncmp(kind, other, length) == 0;
}

void mr_machine_check_rates(const struct mr_machine *machine, const char *path,
                            const struct mr_graph *graph) {
  for (uint32_t i = 0; i < machine->rate_count; i++) {
    const struct mr_machine_rate *rate = &machine->rates[i];
    bool used = false;
    bool same_kind = false;
    for (uint32_t k = 0; k < graph->op_count && !used; k++) {
      used = is_rate_of(rate, &graph->ops[k]) || is_other_precision(rate->kind, graph->ops[k].kind);
      same_kind = same_kind || strcmp(rate->kind, graph->ops[k].kind) == 0;
    }
    if (!used) {
      mr_log(MR_LOG_WARN, "profile %s: rate %s is not used: %s", path, rate->kind,
             same_kind ? "these ops have no FLOPs that are counted; give it in bytes a second"
                       : "the job has no ops of that kind");
    }
  }
}

double mr_machine_op_seconds(const struct mr_machine *machine, const struct mr_op *op) {
  double memory = (double)op->memory_bytes;
  for (uint32_t i = 0; i < machine->rate_count; i++) {
    const struct mr_machine_rate *rate = &machine->rates[i];
    if (is_rate_of(rate, op)) {
      return (rate->by_flops ? op->flops : memory) / rate->per_second +
             machine->op_overhead_seconds;
    }
  }
  return fmax(op->flops / machine->flops_per_second, memory / machine->memory_bytes_per_second) +
         machine->op_overhead_seconds;
}
