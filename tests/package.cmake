# SPDX-License-Identifier: Apache-2.0
# The package as others meet it. A library built with a sanitizer loads only into programs that are
# built with it too, so these tests belong to the plain builds.
if(MEMRUN_CXX AND NOT MEMRUN_SANITIZE)
  # Programs of the README and of examples/; each is compiled and run against the installed tree.
  set(memrun_examples
    linear.c)
  list(TRANSFORM memrun_examples PREPEND ${PROJECT_SOURCE_DIR}/examples/)
  set(script ${CMAKE_CURRENT_SOURCE_DIR}/package/package.sh)
  set(scratch ${CMAKE_CURRENT_BINARY_DIR}/package)
  memrun_test(package/install LABEL package
    COMMAND ${script} install ${PROJECT_BINARY_DIR} ${scratch} ${CMAKE_COMMAND})
  set_tests_properties(package/install PROPERTIES FIXTURES_SETUP installed)
  memrun_test(package/cmake LABEL package
    COMMAND ${script} cmake ${scratch} ${CMAKE_COMMAND} ${memrun_examples})
  memrun_test(package/pkg_config LABEL package
    COMMAND ${script} pkg_config ${scratch} ${CMAKE_C_COMPILER} ${MEMRUN_CXX})
  set_tests_properties(package/cmake package/pkg_config PROPERTIES FIXTURES_REQUIRED installed)
  memrun_test(package/bare LABEL package
    COMMAND ${script} bare ${PROJECT_SOURCE_DIR} ${scratch} ${CMAKE_COMMAND})
endif()
