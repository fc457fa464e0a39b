# SPDX-License-Identifier: Apache-2.0
# Sanitizers reach every target through memrun_settings, so that no target is built half with them.
if(MEMRUN_SANITIZE STREQUAL "address")
  set(memrun_sanitize_flags -fsanitize=address,undefined -fno-sanitize-recover=undefined
    -fno-omit-frame-pointer)
elseif(MEMRUN_SANITIZE STREQUAL "thread")
  set(memrun_sanitize_flags -fsanitize=thread -fno-omit-frame-pointer)
elseif(NOT MEMRUN_SANITIZE STREQUAL "")
  message(FATAL_ERROR "MEMRUN_SANITIZE=${MEMRUN_SANITIZE}: address, thread or empty")
endif()
if(MEMRUN_SANITIZE)
  target_compile_options(memrun_settings INTERFACE ${memrun_sanitize_flags})
  target_link_options(memrun_settings INTERFACE ${memrun_sanitize_flags})
endif()
