/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers as comma-separated values. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "plan/pack/search.h"

#define BYTE_ORDER_MARK "\xef\xbb\xbf" /* some editors begin a text with it */
#define HEADER          "id,lower,upper,size"
#define FIELDS          4u

/* Bytes of a field that a message repeats: more than any number has. */
#define MOST_QUOTED 40u

struct reader {
  const char *path;
  uint64_t line;
};

/* Quotes the beginning of what is refused, so that the reason is not cut off; no character of
 * several bytes is cut either. */
static mr_status refuse(const struct reader *reader, const char *field, const char *wanted) {
  size_t length = strnlen(field, MOST_QUOTED + 1);
  const char *more = length > MOST_QUOTED ? "..." : "";
  if (length > MOST_QUOTED) {
    length = MOST_QUOTED;
    while (length > 0 && ((unsigned char)field[length] & 0xc0u) == 0x80u) {
      length--;
    }
  }
  mr_log(MR_LOG_ERROR, "%s:%" PRIu64 ": \"%.*s%s\" is not %s", reader->path, reader->line,
         (int)length, field, more, wanted);
  return MR_INVALID;
}

/* A whole number of decimal digits. */
static mr_status read_number(const struct reader *reader, const char *field, uint64_t *number_out) {
  char *end = NULL;
  errno = 0;
  unsigned long long number = strtoull(field, &end, 10);
  if (field[0] < '0' || field[0] > '9' || *end != '\0' || errno != 0) {
    return refuse(reader, field, "a whole number below 2^64");
  }
  *number_out = number;
  return MR_OK;
}

/* Cuts a line at its commas. */
static mr_status cut(const struct reader *reader, char *line, char *fields[FIELDS]) {
  uint32_t count = 1;
  fields[0] = line;
  for (char *at = strchr(line, ','); at != NULL; at = strchr(at + 1, ',')) {
    if (count < FIELDS) {
      *at = '\0';
      fields[count] = at + 1;
    }
    count++;
  }
  if (count != FIELDS) {
    mr_log(MR_LOG_ERROR, "%s:%" PRIu64 ": %u fields in place of 4; wanted: " HEADER, reader->path,
           reader->line, count);
    return MR_INVALID;
  }
  return MR_OK;
}

static mr_status add_buffer(struct mr_pack_table *table, const struct mr_pack_buffer *buffer,
                            const char *name, uint64_t line) {
  mr_status status = mr_array_reserve((void **)&table->buffers, &table->buffer_capacity,
                                      table->count + 1ull, sizeof *table->buffers);
  if (status == MR_OK) {
    status = mr_array_reserve((void **)&table->names, &table->name_capacity, table->count + 1ull,
                              sizeof *table->names);
  }
  if (status != MR_OK) {
    return status;
  }
  table->names[table->count] = (struct mr_pack_name){mr_string_copy(name), line};
  if (table->names[table->count].text == NULL) {
    return MR_NO_MEMORY;
  }
  table->buffers[table->count++] = *buffer;
  return MR_OK;
}

static mr_status read_buffer(struct mr_pack_table *table, const struct reader *reader, char *line) {
  struct mr_pack_buffer buffer = {0};
  char *fields[FIELDS];
  mr_status status = cut(reader, line, fields);
  if (status == MR_OK) {
    status = read_number(reader, fields[1], &buffer.lower);
  }
  if (status == MR_OK) {
    status = read_number(reader, fields[2], &buffer.upper);
  }
  if (status == MR_OK) {
    status = read_number(reader, fields[3], &buffer.size_bytes);
  }
  if (status != MR_OK) {
    return status;
  }
  if (fields[0][0] == '\0') {
    return refuse(reader, fields[0], "a name");
  }
  if (buffer.lower >= buffer.upper) {
    return refuse(reader, fields[2], "an upper end above the lower one");
  }
  if (buffer.size_bytes == 0) {
    return refuse(reader, fields[3], "a size above 0");
  }
  return add_buffer(table, &buffer, fields[0], reader->line);
}

static int by_name(const void *left, const void *right) {
  const struct mr_pack_name *a = left;
  const struct mr_pack_name *b = right;
  int order = strcmp(a->text, b->text);
  return order != 0 ? order : (a->line > b->line) - (a->line < b->line);
}

/* Refuses the first line whose name is a line's above it. */
static mr_status check_names(const struct mr_pack_table *table, struct reader *reader) {
  struct mr_pack_name *names = mr_allocate(table->count, sizeof *names);
  const struct mr_pack_name *again = NULL;
  if (names == NULL) {
    return MR_NO_MEMORY;
  }
  memcpy(names, table->names, table->count * sizeof *names);
  qsort(names, table->count, sizeof *names, by_name);
  for (uint32_t i = 1; i < table->count; i++) {
    bool same = strcmp(names[i - 1].text, names[i].text) == 0;
    if (same && (again == NULL || names[i].line < again->line)) {
      again = &names[i];
    }
  }
  mr_status status = MR_OK;
  if (again != NULL) {
    char wanted[64];
    snprintf(wanted, sizeof wanted, "a name of its own: line %" PRIu64 " has it", again[-1].line);
    reader->line = again->line;
    status = refuse(reader, again->text, wanted);
  }
  free(names);
  return status;
}

/* What lives at once is within the limit of the packer, which knows no lines. */
static mr_status check_load(const struct mr_pack_table *table, const struct reader *reader) {
  struct mr_pack_problem problem = {.buffers = table->buffers, .buffer_count = table->count};
  struct mr_pack_sections sections;
  mr_status status = mr_pack_sections_init(&sections, &problem);
  if (status == MR_OK && sections.overfull != MR_PACK_NONE) {
    mr_log(MR_LOG_ERROR,
           "%s:%" PRIu64 ": with this buffer, what lives at once is more than %llu bytes",
           reader->path, table->names[sections.overfull].line, MR_PACK_MOST_BYTES);
    status = MR_INVALID;
  }
  mr_pack_sections_fini(&sections);
  return status;
}

/* Takes the end of a line off, as it is written on any system but those that end lines with a
 * carriage return alone: one within a line would hide the rest of it from readers of the file. */
static mr_status end_line(const struct reader *reader, char *line, size_t length) {
  if (memchr(line, '\0', length) != NULL) {
    return refuse(reader, line, "text: a zero byte follows");
  }
  length -= length > 0 && line[length - 1] == '\n';
  length -= length > 0 && line[length - 1] == '\r';
  line[length] = '\0';
  char *within = strchr(line, '\r');
  if (within != NULL) {
    *within = '\0';
    return refuse(reader, line, "a line: a carriage return follows that does not end it");
  }
  return MR_OK;
}

mr_status mr_pack_table_read(struct mr_pack_table *table, FILE *file, const char *path) {
  struct reader reader = {path, 0};
  mr_status status = MR_OK;
  char *line = NULL;
  size_t capacity = 0;
  ssize_t length = 0;
  bool headed = false;
  *table = (struct mr_pack_table){0};
  errno = 0;
  while (status == MR_OK && (length = getline(&line, &capacity, file)) >= 0) {
    reader.line++;
    status = end_line(&reader, line, (size_t)length);
    if (status != MR_OK || line[0] == '\0') continue;
    if (!headed) {
      headed = true;
      if (strncmp(line, BYTE_ORDER_MARK, strlen(BYTE_ORDER_MARK)) == 0) {
        memmove(line, line + strlen(BYTE_ORDER_MARK), strlen(line) - strlen(BYTE_ORDER_MARK) + 1);
      }
      status = strcmp(line, HEADER) == 0 ? MR_OK : refuse(&reader, line, "the header " HEADER);
    } else {
      status = read_buffer(table, &reader, line);
    }
  }
  free(line);
  if (status == MR_OK && ferror(file) == 0 && !feof(file)) {
    mr_log(MR_LOG_ERROR, "%s:%" PRIu64 ": no memory for the line", path, reader.line + 1);
    return MR_NO_MEMORY;
  }
  if (status == MR_OK && ferror(file) != 0) {
    mr_log(MR_LOG_ERROR, "%s: %s", path, strerror(errno));
    return MR_IO;
  }
  if (status == MR_OK && !headed) {
    mr_log(MR_LOG_ERROR, "%s:1: the file is empty; wanted: " HEADER, path);
    return MR_INVALID;
  }
  if (status == MR_OK && table->count > 0) {
    status = check_names(table, &reader);
  }
  if (status == MR_OK && table->count > 0) {
    status = check_load(table, &reader);
  }
  return status;
}

void mr_pack_table_fini(struct mr_pack_table *table) {
  for (uint32_t i = 0; i < table->count; i++) {
    free(table->names[i].text);
  }
  free(table->names);
  free(table->buffers);
  *table = (struct mr_pack_table){0};
}

mr_status mr_pack_table_write(const struct mr_pack_table *table, const uint64_t *offsets,
                              FILE *file) {
  bool written = fputs(HEADER ",offset\n", file) >= 0;
  for (uint32_t i = 0; i < table->count && written; i++) {
    const struct mr_pack_buffer *buffer = &table->buffers[i];
    written =
        fprintf(file, "%s,%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 "\n", table->names[i].text,
                buffer->lower, buffer->upper, buffer->size_bytes, offsets[i]) >= 0;
  }
  return written && fflush(file) == 0 ? MR_OK : MR_IO;
}
