# SPDX-License-Identifier: Apache-2.0
memrun_unit_test(recompute)
