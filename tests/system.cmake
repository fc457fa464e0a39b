# SPDX-License-Identifier: Apache-2.0
# The command line as users meet it. A sanitizer's memory is its own, so tests of memory belong to
# plain builds.
find_package(Python3 COMPONENTS Interpreter)
if(Python3_Interpreter_FOUND AND TARGET memrun_cli)
  # memrun_system_test(<name> [SLOW] [ALONE] [TIMEOUT <seconds>] [ARGUMENTS ...]): system/<script>.
  function(memrun_system_test name script)
    cmake_parse_arguments(PARSE_ARGV 2 arg "SLOW;ALONE" "TIMEOUT" "ARGUMENTS")
    set(flags)
    foreach(flag IN ITEMS SLOW ALONE)
      if(arg_${flag})
        list(APPEND flags ${flag})
      endif()
    endforeach()
    if(NOT arg_TIMEOUT)
      set(arg_TIMEOUT 300)
    endif()
    memrun_test(system/${name} LABEL system ${flags} TIMEOUT ${arg_TIMEOUT}
      COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/system/${script}.py
      $<TARGET_FILE:memrun_cli> ${CMAKE_CURRENT_BINARY_DIR}/system/${name} ${arg_ARGUMENTS})
  endfunction()

  memrun_system_test(cli cli)
  memrun_system_test(commands commands SLOW)
  if(TARGET memrun_cuda_on_cpu)
    memrun_system_test(cuda cuda SLOW)
  endif()
  memrun_system_test(pressure pressure SLOW)
  memrun_system_test(train train SLOW)
  memrun_system_test(problem problem ARGUMENTS $<TARGET_FILE:problem_check>
    ${CMAKE_CURRENT_SOURCE_DIR}/data/plan)
  memrun_system_test(layout layout ARGUMENTS ${CMAKE_CURRENT_SOURCE_DIR}/data/layout)
  memrun_system_test(verify_uring verify SLOW ARGUMENTS uring)
  memrun_system_test(verify_pread verify SLOW ARGUMENTS pread)
  if(NOT MEMRUN_SANITIZE)
    memrun_system_test(memory memory SLOW)
  endif()
endif()
