# SPDX-License-Identifier: Apache-2.0
memrun_unit_test(problem unit/problem_families.c unit/problem_replay.c)
target_compile_definitions(test_unit_problem PRIVATE
  PROBLEM_DATA="${CMAKE_CURRENT_SOURCE_DIR}/data/plan")
