# SPDX-License-Identifier: Apache-2.0
memrun_unit_test(device)
memrun_unit_test(team)
