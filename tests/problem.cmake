# SPDX-License-Identifier: Apache-2.0
# Abstract planning problems. Whatever is planned is replayed by code that the planner does not
# share.
memrun_unit_test(problem)
target_compile_definitions(test_unit_problem PRIVATE
  PROBLEM_DATA="${CMAKE_CURRENT_SOURCE_DIR}/data/plan")

memrun_unit_test(problem_bounds)
memrun_unit_test(problem_faults)
memrun_failing_memory(problem_faults)

add_executable(test_model_problem model/problem_model.c model/problem_optimum.c)
target_link_libraries(test_model_problem PRIVATE memrun_test_parts memrun_static m)
target_include_directories(test_model_problem PRIVATE ${PROJECT_SOURCE_DIR}
  ${PROJECT_SOURCE_DIR}/tests)
memrun_test(model/problem LABEL model SLOW COMMAND test_model_problem)

memrun_unit_test(problem_lp)
target_compile_definitions(test_unit_problem_lp PRIVATE
  PROBLEM_DATA="${CMAKE_CURRENT_SOURCE_DIR}/data/plan")

add_executable(test_model_problem_lp model/problem_lp_model.c model/problem_optimum.c)
target_link_libraries(test_model_problem_lp PRIVATE memrun_test_parts memrun_static m)
target_include_directories(test_model_problem_lp PRIVATE ${PROJECT_SOURCE_DIR}
  ${PROJECT_SOURCE_DIR}/tests)
memrun_test(model/problem_lp LABEL model SLOW COMMAND test_model_problem_lp)

# For the system test.
add_executable(problem_check system/problem_check.c)
target_link_libraries(problem_check PRIVATE memrun_test_parts memrun_settings m)
target_include_directories(problem_check PRIVATE ${PROJECT_SOURCE_DIR}/tests)
