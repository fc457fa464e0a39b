# SPDX-License-Identifier: Apache-2.0
memrun_unit_test(kernels unit/kernels_trial.c unit/kernels_errors.c)
target_link_libraries(test_unit_kernels PRIVATE memrun_kernels)
memrun_test(unit/kernels_openblas LABEL unit COMMAND test_unit_kernels)
set_property(TEST unit/kernels_openblas APPEND PROPERTY ENVIRONMENT MEMRUN_GEMM=openblas)
memrun_unit_test(kernels_bf16 unit/kernels_trial.c unit/kernels_errors.c)
target_link_libraries(test_unit_kernels_bf16 PRIVATE memrun_kernels)
memrun_unit_test(vectors)
target_link_libraries(test_unit_vectors PRIVATE memrun_kernels)
# The reference once more, in double precision, instead of the library of kernels.
memrun_unit_test(kernels_gradient ${PROJECT_SOURCE_DIR}/train/kernels/reference.c)
target_compile_definitions(test_unit_kernels_gradient PRIVATE KERNEL_REAL=double)

# The kernels of the CUDA device on the processor: the sources that nvcc compiles, by the machine's
# C++ compiler, where there is one.
include(CheckLanguage)
check_language(CXX)
if(CMAKE_CXX_COMPILER)
  enable_language(CXX)
  include(CheckCXXSourceRuns)
  add_library(memrun_cuda_on_cpu OBJECT cuda_on_cpu.cc)
  target_include_directories(memrun_cuda_on_cpu PRIVATE ${PROJECT_SOURCE_DIR}
    ${CMAKE_CURRENT_SOURCE_DIR}/cuda_on_cpu)
  target_compile_features(memrun_cuda_on_cpu PRIVATE cxx_std_17)
  # Kernels read packs of elements where single ones were written. Their sums of products are one
  # instruction where the machine has it, and else calls, by which runs take twice as long.
  target_compile_options(memrun_cuda_on_cpu PRIVATE -Wall -Wextra -Wno-unknown-pragmas -O2
    -fno-strict-aliasing -ffp-contract=off -fno-math-errno)
  set(CMAKE_REQUIRED_FLAGS "-mavx2 -mfma")
  check_cxx_source_runs("#include <cmath>
    int main(int argc, char **) { return std::fma(float(argc), 2.0f, 1.0f) != 3.0f; }"
    MEMRUN_TESTS_FMA)
  unset(CMAKE_REQUIRED_FLAGS)
  if(MEMRUN_TESTS_FMA)
    target_compile_options(memrun_cuda_on_cpu PRIVATE -mavx2 -mfma)
  endif()
  # The fake driver runs them too.
  set_target_properties(memrun_cuda_on_cpu PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_sources(memrun_fake_cuda PRIVATE fake/kernels.c)
  target_compile_definitions(memrun_fake_cuda PRIVATE FAKE_TRAIN_KERNELS)
  target_link_libraries(memrun_fake_cuda PRIVATE memrun_cuda_on_cpu)
  foreach(test IN ITEMS cuda_kernels cuda_barriers)
    memrun_unit_test(${test} unit/cuda_table.c unit/cuda_table_processor.c unit/kernels_trial.c
      unit/kernels_errors.c)
    target_link_libraries(test_unit_${test} PRIVATE memrun_kernels memrun_cuda_ops
      memrun_cuda_on_cpu)
    set_property(TEST unit/${test} APPEND PROPERTY LABELS slow)
  endforeach()
endif()
