# SPDX-License-Identifier: Apache-2.0
# Faults of the world: transfers, disks, memory, kills. Each ends with one line and its status, and
# loses nothing.
find_package(Python3 COMPONENTS Interpreter)
if(Python3_Interpreter_FOUND AND TARGET memrun_cli)
  # memrun_fault_test(<name> <script> [<argument>...]): fault/<script>.py.
  function(memrun_fault_test name script)
    memrun_test(fault/${name} LABEL fault SLOW TIMEOUT 600
      COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/fault/${script}.py
      $<TARGET_FILE:memrun_cli> ${CMAKE_CURRENT_BINARY_DIR}/fault/${name} ${ARGN})
  endfunction()

  memrun_fault_test(inject_uring inject uring)
  memrun_fault_test(inject_pread inject pread)
  memrun_fault_test(disk disk)
  memrun_fault_test(kill kill)

  # Sanitizers have an allocator of their own.
  if(NOT MEMRUN_SANITIZE)
    add_library(memrun_failmalloc MODULE fault/failmalloc.c)
    target_link_libraries(memrun_failmalloc PRIVATE memrun_settings ${CMAKE_DL_LIBS})
    target_compile_options(memrun_failmalloc PRIVATE -fno-builtin)
    memrun_fault_test(allocations allocations $<TARGET_FILE:memrun_failmalloc>)
  endif()
endif()
