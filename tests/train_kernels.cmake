# SPDX-License-Identifier: Apache-2.0
memrun_unit_test(kernels unit/kernels_trial.c)
target_link_libraries(test_unit_kernels PRIVATE memrun_kernels)
