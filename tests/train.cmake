# SPDX-License-Identifier: Apache-2.0
# memrun_train_test(<name> [<extra sources>]): a unit test of the trainer.
function(memrun_train_test name)
  memrun_unit_test(${name} ${ARGN})
  target_link_libraries(test_unit_${name} PRIVATE memrun_train memrun_kernels PkgConfig::JANSSON)
  target_compile_definitions(test_unit_${name} PRIVATE
    MEMRUN_TEST_DATA="${CMAKE_CURRENT_SOURCE_DIR}/data")
endfunction()

memrun_train_test(train unit/train_naive.c)
memrun_train_test(train_data unit/train_file.c)
memrun_train_test(train_safetensors unit/train_file.c)
memrun_train_test(train_checkpoint)
