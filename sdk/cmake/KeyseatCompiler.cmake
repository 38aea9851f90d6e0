# Compiler settings that the core, every plugin and every test share. One precompiled header serves
# all of them, and GCC refuses it when flags differ: so nothing here may vary by target.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CXX_SCAN_FOR_MODULES OFF)

set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/lib")
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/lib")

# No -march here: machines differ, so SIMD code dispatches at run time.
set(CMAKE_CXX_FLAGS_RELEASE "-O3 -DNDEBUG")
set(CMAKE_CXX_FLAGS_DEBUG "-O0 -g")
set(CMAKE_CXX_FLAGS_SANITIZE "-O1 -g1 -fno-omit-frame-pointer")
foreach(kind EXE SHARED MODULE)
  set(CMAKE_${kind}_LINKER_FLAGS_SANITIZE "")
endforeach()
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()

# Executables too are compiled with -fPIC (not -fPIE), for the shared precompiled header.
set(CMAKE_POSITION_INDEPENDENT_CODE OFF)

# Options of every C++ file; CUDA files take nvcc's own (KeyseatCuda.cmake).
# The core exports all its functions; none of them is meant to be replaced, so they may be inlined.
set(cxx_options -fPIC -fvisibility-inlines-hidden -fno-semantic-interposition
    -Wall -Wextra -Wno-unknown-pragmas -Wno-psabi)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # False alarms of GCC 12 about std::string temporaries.
  list(APPEND cxx_options -Wno-maybe-uninitialized -Wno-restrict)
endif()
# at::parallel_for is a header template that is serial unless its user is compiled with OpenMP.
list(APPEND cxx_options -fopenmp)
add_link_options(-fopenmp -Wl,--as-needed)
if(KEYSEAT_WARNINGS_AS_ERRORS)
  # GCC 12 takes the assignment of a literal to a std::string for an overflow, here and there.
  list(APPEND cxx_options -Werror -Wno-error=stringop-overflow)
endif()
add_compile_definitions(BOOST_DLL_USE_STD_FS)

if(KEYSEAT_SANITIZE)
  list(APPEND cxx_options "-fsanitize=${KEYSEAT_SANITIZE}" -fno-sanitize-recover=all)
  add_link_options("-fsanitize=${KEYSEAT_SANITIZE}")
  # vptr checks need the typeinfo of LibTorch classes that the wheel hides.
  if(KEYSEAT_SANITIZE MATCHES "undefined")
    list(APPEND cxx_options -fno-sanitize=vptr)
  endif()
  # KEYSEAT_ASAN: tensors come straight from malloc, so that the sanitizer sees each of them.
  if(KEYSEAT_SANITIZE MATCHES "address")
    add_compile_definitions(KEYSEAT_ASAN=1)
  elseif(KEYSEAT_SANITIZE MATCHES "thread")
    add_compile_definitions(KEYSEAT_TSAN=1)
  endif()
endif()

# compile.sh sets ccache up so that checkouts share results and precompiled headers are cached.
find_program(CCACHE_PROGRAM ccache)
set(cache_program none)
if(CCACHE_PROGRAM)
  set(cache_program "${CCACHE_PROGRAM}")
endif()
set(launcher "${CMAKE_CURRENT_LIST_DIR}/compile.sh" "${CMAKE_SOURCE_DIR}" "${cache_program}")
set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
set(CMAKE_CUDA_COMPILER_LAUNCHER ${launcher})
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  list(APPEND cxx_options -fpch-preprocess)
elseif(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  list(APPEND cxx_options -Xclang -fno-pch-timestamp)
endif()
foreach(option ${cxx_options})
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:${option}>")
endforeach()
