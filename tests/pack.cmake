# SPDX-License-Identifier: Apache-2.0
# Contiguous packing.
memrun_unit_test(pack)
target_compile_definitions(test_unit_pack PRIVATE
  PACK_DATA="${CMAKE_CURRENT_SOURCE_DIR}/data/layout")
memrun_unit_test(pack_faults)
memrun_failing_memory(pack_faults)
