# Imported targets for LibTorch from the PyPI wheel. find_package(Torch) of the wheel insists on an
# installed CUDA toolkit; these targets need only the files themselves.
#   keyseat::torch       libtorch_cpu, libc10 and their headers
#   keyseat::torch_cuda  adds libtorch_cuda and libc10_cuda; only where the wheel's CUDA half was fetched

set(torch_root "${KEYSEAT_LIBTORCH}/torch")
set(torch_lib_dir "${torch_root}/lib")
set(torch_cuda_lib_dir "${KEYSEAT_LIBTORCH}/nvidia/cu13/lib")

if(NOT EXISTS "${torch_lib_dir}/libtorch_cpu.so")
  message(FATAL_ERROR
    "LibTorch was not found: ${torch_lib_dir}/libtorch_cpu.so does not exist.\n"
    "Run tools/setup, or configure with -DKEYSEAT_LIBTORCH=DIR where DIR/torch/lib/libtorch_cpu.so exists.")
endif()
file(STRINGS "${torch_root}/include/torch/headeronly/version.h" version_lines REGEX "^ *\"[0-9.]+\"")
string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+" torch_version "${version_lines}")
if(NOT torch_version VERSION_EQUAL KEYSEAT_LIBTORCH_VERSION)
  message(FATAL_ERROR
    "LibTorch ${KEYSEAT_LIBTORCH_VERSION} is needed, ${torch_root} is \"${torch_version}\".\n"
    "LibTorch keeps no C++ ABI between versions; fetch the pinned one with tools/setup.")
endif()

# The headers are searched after the system's (-idirafter): the wheel ships its own fmt, which would
# otherwise hide the one that the installed spdlog was compiled with.
add_library(keyseat_torch INTERFACE)
add_library(keyseat::torch ALIAS keyseat_torch)
foreach(include_dir "${torch_root}/include" "${torch_root}/include/torch/csrc/api/include")
  target_compile_options(keyseat_torch INTERFACE
    "$<$<COMPILE_LANGUAGE:CXX>:SHELL:-idirafter \"${include_dir}\">"
    "$<$<COMPILE_LANGUAGE:CUDA>:SHELL:-isystem \"${include_dir}\">")
endforeach()
target_compile_definitions(keyseat_torch INTERFACE AT_PER_OPERATOR_HEADERS)
target_link_libraries(keyseat_torch INTERFACE "${torch_lib_dir}/libtorch_cpu.so" "${torch_lib_dir}/libc10.so")
# libtorch_cpu itself needs libcudart and libcupti (nothing else of CUDA).
target_link_options(keyseat_torch INTERFACE
  "LINKER:-rpath-link,${torch_lib_dir}:${torch_cuda_lib_dir}" "LINKER:--disable-new-dtags")

# DT_RPATH (not RUNPATH) is inherited by the libraries LibTorch itself needs. In an installed tree,
# libtorch beside bin and lib comes first, then the place where LibTorch was at build time.
set(CMAKE_BUILD_RPATH "${torch_lib_dir}" "${torch_cuda_lib_dir}")
set(CMAKE_INSTALL_RPATH "$ORIGIN/../lib"
    "$ORIGIN/../libtorch/torch/lib" "$ORIGIN/../libtorch/nvidia/cu13/lib"
    "${torch_lib_dir}" "${torch_cuda_lib_dir}")
