# Targets that the core, plugins in this tree and plugins built against an installed Keyseat share:
#   keyseat_headers  public headers, LibTorch and the definitions that are part of the precompiled
#                    header's identity; put new definitions here, never on a single target
#   keyseat_pch      carries the shared precompiled header
# Needs KEYSEAT_INCLUDE_DIR and KEYSEAT_PCH_DIR (where pch.h and pch.cpp lie).

add_library(keyseat_headers INTERFACE)
target_include_directories(keyseat_headers INTERFACE "${KEYSEAT_INCLUDE_DIR}")
target_compile_definitions(keyseat_headers INTERFACE
  SPDLOG_SHARED_LIB SPDLOG_COMPILED_LIB SPDLOG_FMT_EXTERNAL FMT_SHARED
  TOML_HEADER_ONLY=0 TOML_SHARED_LIB=1)
target_link_libraries(keyseat_headers INTERFACE keyseat::torch)

add_library(keyseat_pch OBJECT "${KEYSEAT_PCH_DIR}/pch.cpp")
target_link_libraries(keyseat_pch PRIVATE keyseat_headers)
target_precompile_headers(keyseat_pch PRIVATE "${KEYSEAT_PCH_DIR}/pch.h")

# Gives a target the shared precompiled header.
function(keyseat_use_pch target)
  target_link_libraries(${target} PRIVATE keyseat_headers)
  target_precompile_headers(${target} REUSE_FROM keyseat_pch)
endfunction()
