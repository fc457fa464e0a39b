/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Host memory that streams copy from and to. Large memory is pinned piece by piece, since drivers
 * refuse 512 GiB at once; a copy may not lie in two pieces, so it is cut where they meet.
 */
#include "base/base.h"
#include "device/cuda/device.h"

static void give_back(struct mr_device *device, const struct mr_cuda_pin *pin, uint64_t end) {
  struct mr_cuda *cuda = &device->cuda;
  for (uint64_t at = 0; at < end; at += pin->piece_bytes) {
    mr_cuda_told(cuda, cuda->host_unregister(pin->data + at), "cuMemHostUnregister");
  }
}

mr_status mr_cuda_pin(struct mr_device *device, void *data, uint64_t bytes, uint64_t piece_bytes,
                      const char *what) {
  struct mr_cuda *cuda = &device->cuda;
  const struct mr_cuda_pin pin = {data, bytes, piece_bytes};
  MR_ASSERT(device->pin_count < MR_CUDA_MOST_PINS && piece_bytes > 0);
  mr_status status = mr_cuda_enter(cuda);
  for (uint64_t at = 0; status == MR_OK && at < bytes; at += piece_bytes) {
    uint64_t length = mr_min_u64(piece_bytes, bytes - at);
    mr_cu_result result = cuda->host_register(pin.data + at, length, MR_CU_HOST_PORTABLE);
    if (result != MR_CU_SUCCESS) {
      status = mr_cuda_failed(cuda, result, "cuMemHostRegister",
                              "%s, %llu bytes, %llu of them at "
                              "byte %llu",
                              what, (unsigned long long)bytes, (unsigned long long)length,
                              (unsigned long long)at);
      give_back(device, &pin, at);
    }
  }
  if (status == MR_OK) {
    device->pins[device->pin_count++] = pin;
  }
  return status;
}

void mr_cuda_unpin(struct mr_device *device, void *data) {
  struct mr_cuda *cuda = &device->cuda;
  uint32_t i = 0;
  while (i < device->pin_count && device->pins[i].data != data) {
    i++;
  }
  MR_ASSERT(i < device->pin_count);
  const struct mr_cuda_pin pin = device->pins[i];
  device->pins[i] = device->pins[--device->pin_count];
  if (!device->hangs) {
    mr_cuda_told(cuda, cuda->context_set(cuda->context), "cuCtxSetCurrent");
    give_back(device, &pin, pin.bytes);
  }
}

/* How many of the bytes from there on one call may copy. */
static uint64_t whole_bytes(const struct mr_device *device, const void *host, uint64_t bytes) {
  for (uint32_t i = 0; i < device->pin_count; i++) {
    const struct mr_cuda_pin *pin = &device->pins[i];
    uint64_t at = (uintptr_t)host - (uintptr_t)pin->data; /* huge where it lies before */
    if (at < pin->bytes) {
      return mr_min_u64(bytes, pin->piece_bytes - at % pin->piece_bytes);
    }
  }
  return bytes;
}

mr_cu_result mr_cuda_copy_out(struct mr_device *device, void *to, const void *from, uint64_t bytes,
                              mr_cu_stream stream) {
  mr_cu_address source = (mr_cu_address)(uintptr_t)from;
  mr_cu_result result = MR_CU_SUCCESS;
  uint64_t length = 0;
  for (uint64_t at = 0; result == MR_CU_SUCCESS && at < bytes; at += length) {
    char *host = (char *)to + at;
    length = whole_bytes(device, host, bytes - at);
    result = device->cuda.copy_out_async(host, source + at, length, stream);
  }
  return result;
}

mr_cu_result mr_cuda_copy_in(struct mr_device *device, void *to, const void *from, uint64_t bytes,
                             mr_cu_stream stream) {
  mr_cu_address target = (mr_cu_address)(uintptr_t)to;
  mr_cu_result result = MR_CU_SUCCESS;
  uint64_t length = 0;
  for (uint64_t at = 0; result == MR_CU_SUCCESS && at < bytes; at += length) {
    const char *host = (const char *)from + at;
    length = whole_bytes(device, host, bytes - at);
    result = device->cuda.copy_in_async(target + at, host, length, stream);
  }
  return result;
}
