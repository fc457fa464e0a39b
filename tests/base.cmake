# SPDX-License-Identifier: Apache-2.0
memrun_unit_test(base)
memrun_unit_test(counter)
memrun_unit_test(trace)
