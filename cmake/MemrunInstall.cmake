# SPDX-License-Identifier: Apache-2.0
# What `cmake --install` lays down: the library with its headers, for CMake and for pkg-config, the
# program, completion and the licence. Manual pages are installed by man/.
include(CMakePackageConfigHelpers)

set(memrun_public_headers
  include/memrun/cuda.h
  include/memrun/graph.h
  include/memrun/memrun.h
  include/memrun/run.h
  include/memrun/status.h
  include/memrun/team.h)
install(FILES ${memrun_public_headers} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/memrun)

install(TARGETS memrun EXPORT memrunTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
if(TARGET memrun_cli)
  install(TARGETS memrun_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

set(memrun_config_dir ${CMAKE_INSTALL_LIBDIR}/cmake/memrun)
install(EXPORT memrunTargets NAMESPACE memrun:: DESTINATION ${memrun_config_dir})
configure_package_config_file(cmake/memrunConfig.cmake.in
  ${PROJECT_BINARY_DIR}/memrunConfig.cmake INSTALL_DESTINATION ${memrun_config_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/memrunConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/memrunConfig.cmake
  ${PROJECT_BINARY_DIR}/memrunConfigVersion.cmake DESTINATION ${memrun_config_dir})

# The prefix is taken from where memrun.pc lies, so that an installed tree can be moved.
cmake_path(RELATIVE_PATH CMAKE_INSTALL_PREFIX
  BASE_DIRECTORY ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig OUTPUT_VARIABLE memrun_pc_prefix)
configure_file(cmake/memrun.pc.in ${PROJECT_BINARY_DIR}/memrun.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/memrun.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

install(FILES completions/memrun.bash RENAME memrun
  DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
