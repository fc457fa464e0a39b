# SPDX-License-Identifier: Apache-2.0
# What is written for arm64 in particular, on machines that are not: NEON, and threads without
# denormal numbers. On an arm64 machine the unit tests themselves are these tests.
if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$" AND NOT MEMRUN_SANITIZE)
  get_target_property(flags memrun_settings INTERFACE_COMPILE_OPTIONS)
  get_target_property(vector_flags memrun_vector_settings INTERFACE_COMPILE_OPTIONS)
  list(JOIN flags " " flags)
  list(JOIN vector_flags " " vector_flags)
  foreach(test IN ITEMS vectors team)
    memrun_test(unit/${test}_arm64 LABEL unit COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/arm64/arm64.sh
      ${test} ${PROJECT_SOURCE_DIR} ${CMAKE_CURRENT_BINARY_DIR}/arm64/${test} ${flags}
      ${vector_flags})
  endforeach()
endif()
