# SPDX-License-Identifier: Apache-2.0
# memrun_fuzz_test(<name> <library>...): fuzz/<name>.c with its own main; a few seconds each.
function(memrun_fuzz_test name)
  add_executable(fuzz_${name} fuzz/${name}.c fuzz/fuzz.c)
  target_link_libraries(fuzz_${name} PRIVATE ${ARGN} memrun_static)
  target_include_directories(fuzz_${name} PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/tests)
  memrun_test(fuzz/${name} LABEL unit SLOW TIMEOUT 60 COMMAND fuzz_${name} 3)
endfunction()

memrun_fuzz_test(safetensors memrun_train)
memrun_fuzz_test(data_header memrun_train)
memrun_fuzz_test(state memrun_train)
memrun_fuzz_test(options memrun_tools)
memrun_fuzz_test(profile)
memrun_fuzz_test(plan_file memrun_test_parts)
memrun_fuzz_test(machine_file)
memrun_fuzz_test(problem)
memrun_fuzz_test(pack_table)
