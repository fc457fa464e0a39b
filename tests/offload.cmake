# SPDX-License-Identifier: Apache-2.0
memrun_unit_test(store)
memrun_unit_test(store_faults)
memrun_unit_test(store_refused)
memrun_unit_test(store_system)
