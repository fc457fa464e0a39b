# SPDX-License-Identifier: Apache-2.0
memrun_unit_test(kernels unit/kernels_trial.c)
target_link_libraries(test_unit_kernels PRIVATE memrun_kernels)
memrun_test(unit/kernels_openblas LABEL unit COMMAND test_unit_kernels)
set_property(TEST unit/kernels_openblas APPEND PROPERTY ENVIRONMENT MEMRUN_GEMM=openblas)
# The reference once more, in double precision, instead of the library of kernels.
memrun_unit_test(kernels_gradient ${PROJECT_SOURCE_DIR}/train/kernels/reference.c)
target_compile_definitions(test_unit_kernels_gradient PRIVATE KERNEL_REAL=double)
