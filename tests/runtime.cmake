# SPDX-License-Identifier: Apache-2.0
memrun_unit_test(runtime unit/runtime_world.c)
memrun_unit_test(runtime_faults unit/runtime_world.c)
memrun_unit_test(runtime_memory unit/runtime_world.c)
memrun_unit_test(runtime_profile)
memrun_unit_test(runtime_quiet unit/runtime_world.c)
