# SPDX-License-Identifier: Apache-2.0
# A CUDA driver over host memory, for machines without one; never installed. Programs find it
# through MEMRUN_CUDA_DRIVER, tests of the driver itself link it.
add_library(memrun_fake_cuda SHARED
  fake/allocation.c
  fake/basic.c
  fake/context.c
  fake/copy.c
  fake/errors.c
  fake/event.c
  fake/gate.c
  fake/handles.c
  fake/host.c
  fake/memory.c
  fake/module.c
  fake/settings.c
  fake/stream.c
  fake/world.c
  unit/world_ops.c
  ${PROJECT_SOURCE_DIR}/base/assert.c
  ${PROJECT_SOURCE_DIR}/base/clock.c
  ${PROJECT_SOURCE_DIR}/base/log.c
  ${PROJECT_SOURCE_DIR}/base/random.c)
target_link_libraries(memrun_fake_cuda PRIVATE memrun_settings Threads::Threads)
target_include_directories(memrun_fake_cuda PUBLIC ${PROJECT_SOURCE_DIR}
  ${PROJECT_SOURCE_DIR}/tests)
set_target_properties(memrun_fake_cuda PROPERTIES C_VISIBILITY_PRESET hidden OUTPUT_NAME cuda
  LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/fake VERSION 1 SOVERSION 1)
if(NOT MEMRUN_SANITIZE)
  target_link_options(memrun_fake_cuda PRIVATE -Wl,--no-undefined)
endif()

# cuBLASLt on it, which programs find through MEMRUN_CUBLASLT.
add_library(memrun_fake_cublaslt SHARED fake/cublaslt.c ${PROJECT_SOURCE_DIR}/base/assert.c
  ${PROJECT_SOURCE_DIR}/base/log.c
  ${PROJECT_SOURCE_DIR}/base/clock.c)
target_link_libraries(memrun_fake_cublaslt PRIVATE memrun_settings memrun_fake_cuda)
set_target_properties(memrun_fake_cublaslt PROPERTIES C_VISIBILITY_PRESET hidden
  OUTPUT_NAME cublasLt LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/fake VERSION 13
  SOVERSION 13)

foreach(test IN ITEMS fake fake_cublaslt fake_memory)
  memrun_unit_test(${test})
  target_link_libraries(test_unit_${test} PRIVATE memrun_fake_cuda)
endforeach()

target_link_libraries(test_unit_fake_cublaslt PRIVATE memrun_fake_cublaslt)

# The client's interface on it.
memrun_unit_test(cuda)
target_link_libraries(test_unit_cuda PRIVATE memrun_fake_cuda)
target_compile_definitions(test_unit_cuda PRIVATE
  FAKE_DRIVER="$<TARGET_FILE:memrun_fake_cuda>")

# A job over it, again and again.
foreach(test IN ITEMS cuda_faults cuda_hang cuda_host cuda_memory cuda_migrate cuda_replan
    cuda_seeds cuda_waits)
  memrun_unit_test(${test} unit/cuda_job.c unit/cuda_lines.c)
  target_link_libraries(test_unit_${test} PRIVATE memrun_fake_cuda)
  target_compile_definitions(test_unit_${test} PRIVATE
    FAKE_DRIVER="$<TARGET_FILE:memrun_fake_cuda>")
endforeach()
