# SPDX-License-Identifier: Apache-2.0
memrun_unit_test(plan unit/plan_programs.c)
memrun_unit_test(plan_lru unit/plan_programs.c)
memrun_unit_test(plan_file unit/plan_programs.c)
memrun_unit_test(plan_host unit/plan_programs.c)
memrun_unit_test(plan_random unit/plan_programs.c)
memrun_unit_test(plan_faults unit/plan_programs.c)
target_link_options(test_unit_plan_faults PRIVATE -Wl,--wrap=calloc,--wrap=realloc)
memrun_unit_test(plan_vectors unit/plan_programs.c)
