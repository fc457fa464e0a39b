# SPDX-License-Identifier: Apache-2.0
memrun_unit_test(plan unit/plan_programs.c)
memrun_unit_test(plan_random unit/plan_programs.c)
