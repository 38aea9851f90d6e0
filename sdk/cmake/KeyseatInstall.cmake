# cmake --install build/release --prefix DIR: a tree that can be moved as a whole.
#   bin/keyseat, lib/libkeyseat*.so, plugins/, include/keyseat/, lib/cmake/Keyseat/ (find_package),
#   share/keyseat/ (configs with the digits data, the template of a plugin repository)
# LibTorch is not copied: it is found in DIR/libtorch (a folder or a link), else where it was when
# this was built.
include(CMakePackageConfigHelpers)
set(KEYSEAT_SDK_DIR lib/cmake/Keyseat)

get_property(plugin_targets GLOBAL PROPERTY KEYSEAT_PLUGIN_TARGETS)
set(core_targets keyseat keyseat_tool keyseat_command)
if(TARGET keyseat_cuda)
  list(APPEND core_targets keyseat_cuda)
endif()
install(TARGETS ${core_targets} RUNTIME DESTINATION bin LIBRARY DESTINATION lib)
if(plugin_targets)
  install(TARGETS ${plugin_targets} LIBRARY DESTINATION plugins)
endif()
install(DIRECTORY framework/include/keyseat DESTINATION include FILES_MATCHING PATTERN "*.h")
install(FILES framework/pch.h framework/pch.cpp
  sdk/cmake/KeyseatCompiler.cmake sdk/cmake/KeyseatTorch.cmake sdk/cmake/KeyseatCuda.cmake
  sdk/cmake/KeyseatHeaders.cmake sdk/cmake/KeyseatPlugin.cmake sdk/cmake/KeyseatAbiHash.cmake
  DESTINATION ${KEYSEAT_SDK_DIR})
install(PROGRAMS sdk/cmake/compile.sh DESTINATION ${KEYSEAT_SDK_DIR})
install(DIRECTORY configs DESTINATION share/keyseat)
install(DIRECTORY sdk/template DESTINATION share/keyseat USE_SOURCE_PERMISSIONS)
install(DIRECTORY sdk/docs/ DESTINATION share/doc/keyseat)
install(FILES LICENSE NOTICE DESTINATION share/doc/keyseat)

configure_package_config_file(sdk/cmake/KeyseatConfig.cmake.in KeyseatConfig.cmake
  INSTALL_DESTINATION ${KEYSEAT_SDK_DIR})
# Interfaces are C++: a plugin is built for exactly one version.
write_basic_package_version_file(KeyseatConfigVersion.cmake COMPATIBILITY ExactVersion)
install(FILES "${CMAKE_BINARY_DIR}/KeyseatConfig.cmake" "${CMAKE_BINARY_DIR}/KeyseatConfigVersion.cmake"
  DESTINATION ${KEYSEAT_SDK_DIR})
