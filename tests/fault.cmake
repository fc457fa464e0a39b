# SPDX-License-Identifier: Apache-2.0
# Faults of the world: transfers, disks, memory, kills. Each ends with one line and its status, and
# loses nothing, on the CPU and on the CUDA device of the fake driver.
find_package(Python3 COMPONENTS Interpreter)
if(Python3_Interpreter_FOUND AND TARGET memrun_cli)
  # memrun_fault_test(<name> <script> <cpu|cuda> [<argument>...]): fault/<script>.py on the device.
  # Those on the fake driver need its kernels.
  function(memrun_fault_test name script device)
    if(device STREQUAL cuda AND NOT TARGET memrun_cuda_on_cpu)
      return()
    endif()
    memrun_test(fault/${name} LABEL fault SLOW
      COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/fault/${script}.py
      $<TARGET_FILE:memrun_cli> ${CMAKE_CURRENT_BINARY_DIR}/fault/${name} ${device} ${ARGN})
  endfunction()

  memrun_fault_test(inject_uring inject cpu uring)
  memrun_fault_test(inject_pread inject cpu pread)
  memrun_fault_test(disk disk cpu)
  memrun_fault_test(kill kill cpu)
  memrun_fault_test(cuda_inject inject cuda uring)
  memrun_fault_test(cuda_disk disk cuda)
  memrun_fault_test(cuda_kill kill cuda)

  # Sanitizers have an allocator of their own.
  if(NOT MEMRUN_SANITIZE)
    add_library(memrun_failmalloc MODULE fault/failmalloc.c)
    target_link_libraries(memrun_failmalloc PRIVATE memrun_settings ${CMAKE_DL_LIBS})
    target_compile_options(memrun_failmalloc PRIVATE -fno-builtin)
    memrun_fault_test(allocations allocations cpu $<TARGET_FILE:memrun_failmalloc>)
    memrun_fault_test(cuda_allocations allocations cuda $<TARGET_FILE:memrun_failmalloc>)
  endif()
endif()
