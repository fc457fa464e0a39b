# SPDX-License-Identifier: Apache-2.0
memrun_unit_test(verify model/plans.c)
memrun_unit_test(verify_plans model/plans.c model/program.c)
memrun_unit_test(verify_memory model/program.c)
memrun_failing_memory(verify_memory)
