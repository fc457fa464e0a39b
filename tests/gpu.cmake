# SPDX-License-Identifier: Apache-2.0
# Tests that run twice: over the fake driver, and, labelled gpu, on the machine's own device, one at
# a time; they skip where there is none. Programs of such tests link no driver.
set(memrun_fake_device
  "MEMRUN_CUDA_DRIVER=$<TARGET_FILE:memrun_fake_cuda>"
  "MEMRUN_CUBLASLT=$<TARGET_FILE:memrun_fake_cublaslt>"
  "MEMRUN_CUDA_KERNELS=${CMAKE_CURRENT_LIST_FILE}") # any image is one to the fake driver

# memrun_device_test(<name> <program>): unit/<name> and gpu/<name>.
function(memrun_device_test name program)
  memrun_test(unit/${name} LABEL unit COMMAND ${program})
  set_property(TEST unit/${name} APPEND PROPERTY ENVIRONMENT ${memrun_fake_device})
  memrun_test(gpu/${name} LABEL gpu ALONE COMMAND ${program})
endfunction()

add_executable(test_device_cuda unit/device_cuda.c unit/device_found.c)
add_executable(test_runtime_device unit/runtime_device.c unit/device_found.c unit/device_job.c)
foreach(program IN ITEMS test_device_cuda test_runtime_device)
  target_link_libraries(${program} PRIVATE memrun_test_parts memrun_static PkgConfig::CMOCKA m)
  target_include_directories(${program} PRIVATE ${PROJECT_SOURCE_DIR}
    ${PROJECT_SOURCE_DIR}/tests)
endforeach()
target_compile_definitions(test_runtime_device PRIVATE
  WORLD_SOURCE="${CMAKE_CURRENT_SOURCE_DIR}/gpu/world.cu")
memrun_device_test(device_cuda test_device_cuda)
memrun_device_test(runtime_device test_runtime_device)

# The kernels of the job of runtime_device for a device.
if(MEMRUN_HAVE_CUDA)
  set(image ${CMAKE_CURRENT_BINARY_DIR}/world.fatbin)
  add_custom_command(OUTPUT ${image}
    COMMAND ${MEMRUN_NVCC} -std=c++17 -O3 -I${PROJECT_SOURCE_DIR} -fatbin
      -gencode arch=compute_80,code=[sm_80,compute_80] -o ${image}
      ${CMAKE_CURRENT_SOURCE_DIR}/gpu/world.cu
    DEPENDS gpu/world.cu unit/world_ops.h
    COMMENT "Compiling the tests' kernels for a device"
    VERBATIM)
  add_custom_target(memrun_test_image ALL DEPENDS ${image})
  set_property(TEST gpu/runtime_device APPEND PROPERTY ENVIRONMENT "MEMRUN_TEST_IMAGE=${image}")
endif()

# The trainer's ops against the readable reference, through the driver and cuBLASLt. The fake driver
# runs the kernels as unit/cuda_kernels does, with more shapes.
if(TARGET memrun_cuda_on_cpu)
  add_executable(test_device_kernels unit/cuda_kernels.c unit/cuda_table.c
    unit/cuda_table_device.c unit/device_found.c unit/kernels_trial.c unit/kernels_errors.c)
  target_link_libraries(test_device_kernels PRIVATE memrun_kernels memrun_cuda_ops
    PkgConfig::CMOCKA m)
  target_include_directories(test_device_kernels PRIVATE ${PROJECT_SOURCE_DIR}
    ${PROJECT_SOURCE_DIR}/tests)
  memrun_device_test(device_kernels test_device_kernels)
  set_property(TEST unit/device_kernels APPEND PROPERTY LABELS slow)
  set_property(TEST unit/device_kernels APPEND PROPERTY ENVIRONMENT MEMRUN_DRAWS=1)

  memrun_unit_test(cuda_mixed)
  target_link_libraries(test_unit_cuda_mixed PRIVATE memrun_train memrun_kernels)
  set_property(TEST unit/cuda_mixed APPEND PROPERTY LABELS slow)
  set_property(TEST unit/cuda_mixed APPEND PROPERTY ENVIRONMENT ${memrun_fake_device}
    MEMRUN_FAKE_SEED=2)
endif()
