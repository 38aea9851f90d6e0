#include "runtime/device.h"

#include <dlfcn.h>

#include "runtime/loggers.h"

namespace keyseat {

namespace {

[[noreturn]] void refuse(const std::string& what, const std::string& why) {
  throw Error(Problem{Code::kR1Cuda,
                      {},
                      what,
                      why,
                      "Build with KEYSEAT_CUDA=ON on a machine with the CUDA toolkit, or use "
                      "run.device = \"cpu\"."});
}

// The folder of this library; libkeyseat_cuda.so lies beside it.
std::filesystem::path library_folder() {
  Dl_info info{};
  dladdr(reinterpret_cast<const void*>(&open_device), &info);
  return std::filesystem::path(info.dli_fname).parent_path();
}

}  // namespace

c10::Device open_device(DeviceKind kind, int64_t local_rank) {
  if (kind == DeviceKind::kCpu) return {c10::kCPU};
  const std::filesystem::path file = library_folder() / "libkeyseat_cuda.so";
  if (!std::filesystem::exists(file))
    refuse("device \"cuda\" is not usable: this build has no CUDA libraries",
           file.string() + " does not exist");
  logger("device")->info("loading {}", file.string());
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);  // for the life of the process
  if (library == nullptr)
    refuse("device \"cuda\" is not usable: its libraries cannot be loaded", dlerror());
  const auto open = reinterpret_cast<OpenCudaDevice>(dlsym(library, kOpenCudaDevice));
  if (open == nullptr)
    refuse("device \"cuda\" is not usable: " + file.string() + " belongs to another version",
           dlerror());
  if (const char* why = open(local_rank)) refuse("device \"cuda\" is not usable", why);
  return {c10::kCUDA, static_cast<c10::DeviceIndex>(local_rank)};
}

}  // namespace keyseat
