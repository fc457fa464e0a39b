/* SPDX-License-Identifier: Apache-2.0 */
/* Safetensors: what is written is read back, halves become floats, hostile headers are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "train/common.h"
#include "train/safetensors.h"
#include "unit/train_file.h"

static void files_are_read_back(void **state) {
  (void)state;
  static const struct safetensors_tensor tensors[] = {
      {"a.weight", 2, {3, 5}}, {"b \"quoted\" \n", 1, {7}}, {"scalar", 0, {0}}};
  float data[23];
  for (uint32_t i = 0; i < 23; i++) {
    data[i] = (float)i * 0.37f - 3;
  }
  struct safetensors_writer writer;
  assert_int_equal(safetensors_create(train_file_path, tensors, 3, &writer), MR_OK);
  assert_int_equal(safetensors_append(&writer, data, 10), MR_OK);
  assert_int_equal(safetensors_append(&writer, data + 10, 13), MR_OK);
  uint64_t bytes = writer.offset;
  uint32_t crc = writer.crc;
  assert_int_equal(safetensors_finish(&writer), MR_OK);

  unsigned char whole[1024];
  FILE *file = fopen(train_file_path, "re");
  assert_non_null(file);
  assert_int_equal(fread(whole, 1, sizeof whole, file), bytes);
  fclose(file);
  assert_int_equal(train_crc32c(0, whole, bytes), crc);

  struct safetensors_file read;
  assert_int_equal(safetensors_open(train_file_path, &read), MR_OK);
  assert_int_equal(read.header.entry_count, 3);
  float found[15];
  const struct safetensors_entry *entry = safetensors_find(&read.header, "a.weight");
  assert_non_null(entry);
  assert_int_equal(entry->begin % 8, 0);
  assert_int_equal(safetensors_read(&read, entry, 0, 15, found), MR_OK);
  assert_memory_equal(found, data, 15 * sizeof *data);
  assert_int_equal(safetensors_read(&read, entry, 4, 3, found), MR_OK);
  assert_memory_equal(found, data + 4, 3 * sizeof *data);
  entry = safetensors_find(&read.header, "scalar");
  assert_non_null(entry);
  assert_int_equal(entry->count, 1);
  assert_null(safetensors_find(&read.header, "a.weigh"));
  safetensors_close(&read);
  /* a file that is there is never written over */
  assert_int_equal(safetensors_create(train_file_path, tensors, 3, &writer), MR_IO);
}

static void write_raw(const char *header, uint64_t length, const void *data, size_t bytes) {
  FILE *file = fopen(train_file_path, "we");
  assert_non_null(file);
  for (uint32_t i = 0; i < 8; i++) {
    assert_true(fputc((int)(length >> (8 * i) & 0xff), file) != EOF);
  }
  assert_true(fputs(header, file) >= 0);
  assert_int_equal(fwrite(data, 1, bytes, file), bytes);
  assert_int_equal(fclose(file), 0);
}

static void halves_become_floats(void **state) {
  (void)state;
  static const uint16_t halves[] = {0x3c00, 0xc000, 0x0001, 0x8001, 0x03ff, 0x0400,
                                    0x7bff, 0x7c00, 0xfc00, 0x0000, 0x8000, 0x3555};
  static const float floats[] = {1.0f,     -2.0f,    0x1p-24f,  -0x1p-24f, 0x3ffp-24f, 0x1p-14f,
                                 65504.0f, INFINITY, -INFINITY, 0.0f,      -0.0f,      0x1.554p-2f};
  static const char header[] =
      "{\"h\":{\"dtype\":\"F16\",\"shape\":[12],\"data_offsets\":[0,24]},"
      "\"b\":{\"dtype\":\"BF16\",\"shape\":[12],\"data_offsets\":[24,48]}}";
  unsigned char data[48];
  memcpy(data, halves, 24);
  for (uint32_t i = 0; i < 12; i++) {
    uint32_t bits;
    memcpy(&bits, &floats[i], 4);
    uint16_t upper = (uint16_t)(bits >> 16);
    memcpy(data + 24 + 2 * i, &upper, 2);
  }
  write_raw(header, strlen(header), data, sizeof data);
  struct safetensors_file file;
  assert_int_equal(safetensors_open(train_file_path, &file), MR_OK);
  float found[12];
  assert_int_equal(safetensors_read(&file, safetensors_find(&file.header, "h"), 0, 12, found),
                   MR_OK);
  assert_memory_equal(found, floats, sizeof floats);
  assert_int_equal(safetensors_read(&file, safetensors_find(&file.header, "b"), 0, 12, found),
                   MR_OK);
  for (uint32_t i = 0; i < 12; i++) {
    float wanted = floats[i];
    uint32_t bits;
    memcpy(&bits, &wanted, 4);
    bits &= 0xffff0000u;
    memcpy(&wanted, &bits, 4);
    assert_memory_equal(&found[i], &wanted, 4);
  }
  safetensors_close(&file);
}

#define ENTRY(shape, offsets)                                                                      \
  "{\"a\":{\"dtype\":\"F32\",\"shape\":" shape ",\"data_offsets\":" offsets "}}"

/* Each is followed by 8 bytes of data. */
static const char *const hostile[] = {
    "",
    "[]",
    "{",
    "null",
    "{\"a\":1}",
    "{\"a\":{}}",
    "{\"a\":{\"dtype\":\"F32\"}}",
    ENTRY("[2]", "[0,9]"),
    ENTRY("[2]", "[8,0]"),
    ENTRY("[2]", "[0,4]"),
    ENTRY("[3]", "[0,8]"),
    ENTRY("[2]", "[-8,0]"),
    ENTRY("[-2]", "[0,8]"),
    ENTRY("[2]", "[0]"),
    ENTRY("[2]", "[0,8,8]"),
    ENTRY("[2.0]", "[0,8]"),
    ENTRY("2", "[0,8]"),
    ENTRY("[1]", "[0,4]"),
    ENTRY("[1]", "[4,8]"),
    ENTRY("[4294967296,4294967296,2]", "[0,8]"),
    ENTRY("[4611686018427387905,4]", "[0,8]"),
    ENTRY("[1,1,1,1,1,1,1,1,2]", "[0,8]"),
    ENTRY("[2]", "[9223372036854775800,9223372036854775808]"),
    "{\"a\":{\"dtype\":\"F33\",\"shape\":[2],\"data_offsets\":[0,8]}}",
    "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
    "\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}",
    "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
    "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
};

static void hostile_headers_are_refused(void **state) {
  (void)state;
  struct safetensors_file file;
  uint32_t count = sizeof hostile / sizeof hostile[0];
  for (uint32_t i = 0; i < count; i++) {
    write_raw(hostile[i], strlen(hostile[i]), "12345678", 8);
    mr_status status = safetensors_open(train_file_path, &file);
    if (status != MR_CORRUPT) {
      fail_msg("%s gave %s", hostile[i], mr_status_name(status));
    }
    assert_int_equal(train_file_errors, i + 1);
  }
}

static void hostile_lengths_are_refused(void **state) {
  (void)state;
  static const char header[] = ENTRY("[2]", "[0,8]");
  static const uint64_t lengths[] = {
      0, 1, sizeof header, 1000, 1ull << 24, 1ull << 32, 1ull << 63, UINT64_MAX, UINT64_MAX - 7};
  struct safetensors_file file;
  for (uint32_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
    write_raw(header, lengths[i], "12345678", 8);
    assert_int_equal(safetensors_open(train_file_path, &file), MR_CORRUPT);
  }
  write_raw(header, sizeof header - 1, "12345678", 8);
  assert_int_equal(safetensors_open(train_file_path, &file), MR_OK);
  safetensors_close(&file);
  assert_int_equal(truncate(train_file_path, 5), 0);
  assert_int_equal(safetensors_open(train_file_path, &file), MR_CORRUPT);
  assert_int_equal(truncate(train_file_path, 0), 0);
  assert_int_equal(safetensors_open(train_file_path, &file), MR_CORRUPT);
  unlink(train_file_path);
  assert_int_equal(safetensors_open(train_file_path, &file), MR_IO);
}

#define FILE_TEST(name) cmocka_unit_test_setup_teardown(name, train_file_begin, train_file_end)

int main(void) {
  const struct CMUnitTest tests[] = {
      FILE_TEST(files_are_read_back),
      FILE_TEST(halves_become_floats),
      FILE_TEST(hostile_headers_are_refused),
      FILE_TEST(hostile_lengths_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
