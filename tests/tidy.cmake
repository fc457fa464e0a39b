# SPDX-License-Identifier: Apache-2.0
# The habits that a machine can check, and a tree of faults that shows that the check can fail.
find_program(MEMRUN_CXX NAMES c++ g++ clang++ DOC "C++ compiler that tests try the headers with")
mark_as_advanced(MEMRUN_CXX)
if(MEMRUN_CXX)
  add_executable(tidy tidy.c)
  target_link_libraries(tidy PRIVATE memrun_settings)
  memrun_test(tidy LABEL unit
    COMMAND tidy ${PROJECT_SOURCE_DIR} ${CMAKE_C_COMPILER} ${MEMRUN_CXX})
  memrun_test(tidy/finds_faults LABEL unit
    COMMAND tidy ${CMAKE_CURRENT_SOURCE_DIR}/data/tidy ${CMAKE_C_COMPILER} ${MEMRUN_CXX}
    ${CMAKE_CURRENT_SOURCE_DIR}/data/tidy/expected)
else()
  message(STATUS "no C++ compiler: the tests of headers and of the installed package are left out")
endif()
