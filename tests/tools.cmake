# SPDX-License-Identifier: Apache-2.0
# The parts of the command line that are pure.
if(TARGET memrun_tools)
  memrun_unit_test(tools)
  target_link_libraries(test_unit_tools PRIVATE memrun_tools)
  memrun_unit_test(tools_pressure)
  target_link_libraries(test_unit_tools_pressure PRIVATE memrun_tools)
endif()
