# SPDX-License-Identifier: Apache-2.0
memrun_unit_test(base)
memrun_unit_test(counter)
memrun_unit_test(crew)
target_link_options(test_unit_crew PRIVATE -Wl,--wrap=pthread_create)
memrun_unit_test(file)
memrun_unit_test(json)
target_link_libraries(test_unit_json PRIVATE PkgConfig::JANSSON)
memrun_unit_test(trace)
