# Decides whether the CUDA libraries are built. Result: KEYSEAT_CUDA_ENABLED.
# What links CUDA lives in shared libraries of its own (libkeyseat_cuda.so and some plugins), loaded
# only for device = "cuda"; the same tree without them runs on a machine without CUDA.

find_program(KEYSEAT_NVCC nvcc HINTS /usr/local/cuda/bin ENV CUDA_HOME PATH_SUFFIXES bin)
set(cuda_missing "")
if(NOT KEYSEAT_NVCC)
  list(APPEND cuda_missing "nvcc")
endif()
if(NOT EXISTS "${torch_lib_dir}/libtorch_cuda.so")
  list(APPEND cuda_missing "${torch_lib_dir}/libtorch_cuda.so (tools/setup --cuda fetches it)")
endif()

if(KEYSEAT_CUDA STREQUAL "ON" AND cuda_missing)
  list(JOIN cuda_missing ", " cuda_missing)
  message(FATAL_ERROR "KEYSEAT_CUDA=ON, but this was not found: ${cuda_missing}")
elseif(KEYSEAT_CUDA STREQUAL "OFF" OR cuda_missing)
  set(KEYSEAT_CUDA_ENABLED OFF)
else()
  set(KEYSEAT_CUDA_ENABLED ON)
endif()
message(STATUS "CUDA libraries: ${KEYSEAT_CUDA_ENABLED} (KEYSEAT_CUDA=${KEYSEAT_CUDA})")

if(KEYSEAT_CUDA_ENABLED)
  set(CMAKE_CUDA_COMPILER "${KEYSEAT_NVCC}")
  set(CMAKE_CUDA_ARCHITECTURES 90 100)
  set(CMAKE_CUDA_FLAGS "--expt-relaxed-constexpr -Xcompiler=-fPIC,-Wall,-Wno-unknown-pragmas")
  enable_language(CUDA)
  # CMake 3.25 does not know nvcc's name for C++20.
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
  find_package(CUDAToolkit REQUIRED)
  add_library(keyseat_torch_cuda INTERFACE)
  add_library(keyseat::torch_cuda ALIAS keyseat_torch_cuda)
  target_include_directories(keyseat_torch_cuda SYSTEM INTERFACE ${CUDAToolkit_INCLUDE_DIRS})
  target_link_libraries(keyseat_torch_cuda INTERFACE
    keyseat::torch "${torch_lib_dir}/libtorch_cuda.so" "${torch_lib_dir}/libc10_cuda.so" CUDA::cudart)
  foreach(library cudnn nvshmem nccl cusparselt)
    target_link_options(keyseat_torch_cuda INTERFACE "LINKER:-rpath-link,${KEYSEAT_LIBTORCH}/nvidia/${library}/lib")
  endforeach()
endif()
