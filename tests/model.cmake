# SPDX-License-Identifier: Apache-2.0
# Random programs against a naive oracle, through the public interface.
add_executable(test_model_plan model/plan_model.c)
target_link_libraries(test_model_plan PRIVATE memrun_test_parts memrun_static PkgConfig::CMOCKA m)
target_include_directories(test_model_plan PRIVATE ${PROJECT_SOURCE_DIR}
  ${PROJECT_SOURCE_DIR}/tests)
file(MAKE_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/model)
memrun_test(model/plan LABEL model COMMAND test_model_plan ${CMAKE_CURRENT_BINARY_DIR}/model)
