# SPDX-License-Identifier: Apache-2.0
memrun_unit_test(verify model/plans.c)
memrun_unit_test(verify_plans model/plans.c model/program.c)
memrun_unit_test(verify_memory model/program.c)
target_link_options(test_unit_verify_memory PRIVATE
  -Wl,--wrap=calloc -Wl,--wrap=realloc -Wl,--wrap=strdup)
