#include "config/cpu_precision.h"

#include <fstream>
#include <iterator>
#include <sstream>

namespace keyseat {
namespace {

bool this_cpu_has_native_bf16() {
  std::ifstream stream("/proc/cpuinfo");
  return has_native_bf16(std::string(std::istreambuf_iterator<char>(stream), {}));
}

}  // namespace

bool has_native_bf16(const std::string& cpuinfo) {
  std::istringstream lines(cpuinfo);
  std::string line;
  while (std::getline(lines, line)) {
    if (!line.starts_with("flags")) continue;
    std::istringstream words(line);
    std::string word;
    while (words >> word) {
      if (word == "amx_bf16" || word == "avx512_bf16") return true;
    }
    return false;  // all processors of a machine are alike
  }
  return false;
}

Precision automatic_precision(DeviceKind device, std::string& reason) {
  if (device == DeviceKind::kCuda) {
    reason = "bf16, as on every GPU";
    return Precision::kBf16;
  }
  // Reading the file takes the kernel milliseconds.
  static const bool native = this_cpu_has_native_bf16();
  reason =
      native ? "bf16: this CPU has native bf16 GEMM" : "fp32: this CPU has no native bf16 GEMM";
  return native ? Precision::kBf16 : Precision::kFp32;
}

}  // namespace keyseat
