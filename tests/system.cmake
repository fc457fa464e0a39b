# SPDX-License-Identifier: Apache-2.0
# The command line as users meet it. A sanitizer's memory is its own, so tests of memory belong to
# plain builds.
find_package(Python3 COMPONENTS Interpreter)
if(Python3_Interpreter_FOUND AND TARGET memrun_cli)
  # memrun_system_test(<name> <script> [LABEL <label>] [SLOW] [ALONE] [TIMEOUT <seconds>]
  # [ARGUMENTS ...]): <label>/<name> runs system/<script>.py; the label is "system" unless given.
  function(memrun_system_test name script)
    cmake_parse_arguments(PARSE_ARGV 2 arg "SLOW;ALONE" "LABEL;TIMEOUT" "ARGUMENTS")
    set(flags)
    foreach(flag IN ITEMS SLOW ALONE)
      if(arg_${flag})
        list(APPEND flags ${flag})
      endif()
    endforeach()
    if(arg_TIMEOUT)
      list(APPEND flags TIMEOUT ${arg_TIMEOUT})
    endif()
    if(NOT arg_LABEL)
      set(arg_LABEL system)
    endif()
    memrun_test(${arg_LABEL}/${name} LABEL ${arg_LABEL} ${flags}
      COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/system/${script}.py
      $<TARGET_FILE:memrun_cli> ${CMAKE_CURRENT_BINARY_DIR}/${arg_LABEL}/${name} ${arg_ARGUMENTS})
  endfunction()

  memrun_system_test(cli cli)
  memrun_system_test(commands commands SLOW)
  memrun_system_test(explain explain SLOW)
  if(TARGET memrun_cuda_on_cpu)
    memrun_system_test(cuda cuda SLOW ARGUMENTS fake)
    memrun_system_test(shares shares SLOW ARGUMENTS fake 40 --layers 4 --heads 4 --width 256
      --vocab 512 --batch 1 --seq 4 --threads 2 --steps 1)
    memrun_system_test(pressure_cuda pressure_cuda SLOW ARGUMENTS fake --layers 1 --heads 4
      --width 256 --vocab 512 --positions 12288 --batch 1 --seq 4 --threads 2 --host-mem 256MiB)
    memrun_system_test(bench_gpu bench_gpu ARGUMENTS fake $<TARGET_FILE_DIR:bench_cuda_copy>
      ${PROJECT_SOURCE_DIR}/bench)
  endif()
  memrun_system_test(train cuda LABEL gpu ALONE ARGUMENTS real)
  memrun_system_test(verify_gpt2 shares LABEL gpu ALONE ARGUMENTS real 100,50,25 --preset gpt2
    --batch 4 --seq 1024 --steps 3)
  memrun_system_test(verify_gpt2_bf16 shares LABEL gpu ALONE ARGUMENTS real 100,50,25 --preset gpt2
    --batch 4 --seq 1024 --steps 3 --dtype bf16)
  memrun_system_test(verify_gpt2-xl shares LABEL gpu ALONE TIMEOUT 580 ARGUMENTS real
    100,50,25 --preset gpt2-xl --batch 1 --seq 512 --steps 2)
  memrun_system_test(pressure pressure_cuda LABEL gpu ALONE ARGUMENTS real --preset gpt2 --batch 2
    --seq 1024)
  memrun_system_test(pressure pressure SLOW)
  memrun_system_test(train train SLOW)
  memrun_system_test(ends ends SLOW)
  memrun_system_test(problem problem ARGUMENTS $<TARGET_FILE:problem_check>
    ${CMAKE_CURRENT_SOURCE_DIR}/data/plan)
  memrun_system_test(layout layout ARGUMENTS ${CMAKE_CURRENT_SOURCE_DIR}/data/layout)
  memrun_system_test(verify_uring verify SLOW ARGUMENTS uring)
  memrun_system_test(verify_pread verify SLOW ARGUMENTS pread)
  if(NOT MEMRUN_SANITIZE)
    memrun_system_test(memory memory SLOW)
  endif()
endif()
