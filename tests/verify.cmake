# SPDX-License-Identifier: Apache-2.0
memrun_unit_test(verify model/plans.c)
memrun_unit_test(verify_plans model/plans.c model/program.c)
memrun_test(unit/verify_mutants LABEL unit COMMAND test_unit_verify_plans mutants_are_refused)
memrun_unit_test(verify_memory model/program.c)
memrun_failing_memory(verify_memory)
