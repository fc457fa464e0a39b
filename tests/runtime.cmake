# SPDX-License-Identifier: Apache-2.0
memrun_unit_test(runtime unit/runtime_world.c unit/world_ops.c)
memrun_unit_test(derived)
memrun_unit_test(runtime_defer unit/runtime_world.c unit/world_ops.c)
memrun_unit_test(runtime_faults unit/runtime_world.c unit/world_ops.c)
memrun_unit_test(runtime_memory unit/runtime_world.c unit/world_ops.c)
memrun_unit_test(runtime_profile)
memrun_unit_test(runtime_names)
memrun_unit_test(rehearse)
memrun_unit_test(candidates model/program.c)
memrun_unit_test(outlook)
memrun_unit_test(runtime_quiet unit/runtime_world.c unit/world_ops.c)
memrun_unit_test(runtime_replan unit/runtime_world.c unit/world_ops.c)
memrun_unit_test(runtime_random unit/random_graph.c unit/plan_programs.c model/program.c)
memrun_unit_test(runtime_kept unit/runtime_world.c unit/world_ops.c)
memrun_unit_test(machine_file)
foreach(test IN ITEMS runtime_kept machine_file)
  target_compile_definitions(test_unit_${test} PRIVATE
    H100_PROFILE="${PROJECT_SOURCE_DIR}/examples/h100-node.profile")
endforeach()
memrun_unit_test(runtime_explain unit/runtime_world.c unit/world_ops.c)
target_link_libraries(test_unit_runtime_explain PRIVATE PkgConfig::JANSSON)
target_compile_definitions(test_unit_runtime_explain PRIVATE
  SHED_PROFILE="${CMAKE_CURRENT_SOURCE_DIR}/data/profiles/shed.profile")
foreach(test IN ITEMS planning amend vary)
  memrun_unit_test(${test} unit/plan_programs.c)
  target_compile_definitions(test_unit_${test} PRIVATE
    SHED_PROFILE="${CMAKE_CURRENT_SOURCE_DIR}/data/profiles/shed.profile")
endforeach()
memrun_unit_test(runtime_cuda unit/device_found.c unit/device_job.c unit/fake_rig.c
  unit/runtime_world.c unit/world_ops.c)
target_link_libraries(test_unit_runtime_cuda PRIVATE memrun_fake_cuda)
target_compile_definitions(test_unit_runtime_cuda PRIVATE
  FAKE_DRIVER="$<TARGET_FILE:memrun_fake_cuda>")
