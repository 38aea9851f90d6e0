# keyseat_add_plugin([KIND kind] [NAME name])
#
# Builds keyseat_KIND_NAME.so from every *.cpp of the current folder except *_test.cpp. In this tree
# no argument is needed: the path plugins/KIND/NAME is the identity. All plugins are compiled with
# the same flags and no definitions of their own, so that one precompiled header serves them all;
# what differs per plugin (kind, name, interface number, ABI hash) is in the generated header
# keyseat_plugin_identity.h, which only keyseat/plugin.h includes.

set(KEYSEAT_ABI_SCRIPT "${CMAKE_CURRENT_LIST_DIR}/KeyseatAbiHash.cmake")
set(KEYSEAT_KINDS block strategy dispatcher recompute comm data optimizer)

# Everything apart from header text that decides whether two objects can share C++ types.
# (The wheel is built with the new C++11 ABI; libstdc++'s debug mode comes by a compiler flag.)
set(KEYSEAT_ABI_FLAGS "cxx11_abi=1 debug_library=0 sanitize=${KEYSEAT_SANITIZE}")
if("${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_DEBUG}" MATCHES "_GLIBCXX_DEBUG")
  string(REPLACE "debug_library=0" "debug_library=1" KEYSEAT_ABI_FLAGS "${KEYSEAT_ABI_FLAGS}")
endif()
set(KEYSEAT_COMMIT "" CACHE STRING "Commit written into manifests; set by packagers, empty in a developer's build")

# keyseat_generate_identity(OUTPUT KIND NAME): writes OUTPUT (of one plugin; KIND all: the core's table) at build time, again whenever a public
# header changed (but only touches it if its text changed).
function(keyseat_generate_identity output kind name)
  file(GLOB_RECURSE public_headers CONFIGURE_DEPENDS "${KEYSEAT_INCLUDE_DIR}/keyseat/*.h")
  add_custom_command(
    OUTPUT "${output}.stamp"
    BYPRODUCTS "${output}"
    COMMAND ${CMAKE_COMMAND} -D KIND=${kind} -D NAME=${name} -D "INCLUDE_DIR=${KEYSEAT_INCLUDE_DIR}"
            -D "FLAGS=${KEYSEAT_ABI_FLAGS}" -D TORCH=${KEYSEAT_LIBTORCH_VERSION}
            -D CUDA_MAJOR=${KEYSEAT_LIBTORCH_CUDA_MAJOR} -D BUILD_TYPE=${CMAKE_BUILD_TYPE}
            -D "COMMIT=${KEYSEAT_COMMIT}" -D "OUTPUT=${output}" -P "${KEYSEAT_ABI_SCRIPT}"
    COMMAND ${CMAKE_COMMAND} -E touch "${output}.stamp"
    DEPENDS ${public_headers} "${KEYSEAT_ABI_SCRIPT}"
    COMMENT "ABI hash of ${kind}/${name}"
    VERBATIM)
endfunction()

function(keyseat_add_plugin)
  cmake_parse_arguments(arg "" "KIND;NAME" "" ${ARGN})
  get_filename_component(dir_name "${CMAKE_CURRENT_SOURCE_DIR}" NAME)
  get_filename_component(parent "${CMAKE_CURRENT_SOURCE_DIR}" DIRECTORY)
  get_filename_component(dir_kind "${parent}" NAME)
  set(kind "${dir_kind}")
  set(name "${dir_name}")
  if(arg_KIND)
    set(kind "${arg_KIND}")
  endif()
  if(arg_NAME)
    set(name "${arg_NAME}")
  endif()
  if(NOT kind IN_LIST KEYSEAT_KINDS)
    list(JOIN KEYSEAT_KINDS ", " kinds)
    message(FATAL_ERROR "keyseat_add_plugin in ${CMAKE_CURRENT_SOURCE_DIR}: \"${kind}\" is no kind (${kinds}).\n"
      "Put the plugin into plugins/KIND/NAME, or pass KIND and NAME.")
  endif()
  if(NOT name MATCHES "^[a-z][a-z0-9_]*$")
    message(FATAL_ERROR "keyseat_add_plugin: the name \"${name}\" must be lower case letters, digits and _")
  endif()

  set(target "keyseat_${kind}_${name}")
  file(GLOB sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/*.cpp")
  list(FILTER sources EXCLUDE REGEX "_test\\.cpp$")
  set(generated "${CMAKE_CURRENT_BINARY_DIR}/generated")
  file(MAKE_DIRECTORY "${generated}")
  keyseat_generate_identity("${generated}/keyseat_plugin_identity.h" ${kind} ${name})

  add_library(${target} MODULE ${sources} "${generated}/keyseat_plugin_identity.h.stamp")
  set_target_properties(${target} PROPERTIES
    PREFIX "" DEFINE_SYMBOL ""
    LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/plugins")
  target_include_directories(${target} PRIVATE "${generated}")
  target_compile_options(${target} PRIVATE -fvisibility=hidden)
  target_link_libraries(${target} PRIVATE keyseat)
  # defs: every plugin names what it needs. nodelete: a live autograd graph may run plugin code.
  target_link_options(${target} PRIVATE LINKER:-z,defs LINKER:-z,nodelete)
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    # Clang refuses a precompiled header of another visibility; GCC does not.
    target_link_libraries(${target} PRIVATE keyseat_headers)
    target_precompile_headers(${target} PRIVATE "${KEYSEAT_PCH_DIR}/pch.h")
  else()
    keyseat_use_pch(${target})
  endif()
  set_property(GLOBAL APPEND PROPERTY KEYSEAT_PLUGIN_TARGETS ${target})
endfunction()

# keyseat_add_plugin_test(): *_test.cpp of the current folder, behind keyseat_add_plugin() of the same
# folder, as one doctest executable build/bin/keyseat_KIND_NAME_test, registered with CTest. It loads
# the plugin through the registry, from build/plugins. (In the core's own tree the tests of all
# plugins are one executable.)
function(keyseat_add_plugin_test)
  get_property(plugins GLOBAL PROPERTY KEYSEAT_PLUGIN_TARGETS)
  list(GET plugins -1 plugin)
  find_package(doctest REQUIRED)
  file(GLOB sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/*_test.cpp")
  add_executable(${plugin}_test ${sources})
  target_link_libraries(${plugin}_test PRIVATE keyseat doctest::doctest)
  add_dependencies(${plugin}_test ${plugin})
  keyseat_use_pch(${plugin}_test)
  add_test(NAME ${plugin}_test COMMAND ${plugin}_test)
endfunction()
