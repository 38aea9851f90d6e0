#include "tools/keyseat/chain/numbers_text.h"

#include <fmt/format.h>

namespace keyseat::tool::chain {

std::string bytes_text(double bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  int unit = 0;
  while (bytes >= 1024 && unit < 4) {
    bytes /= 1024;
    ++unit;
  }
  return fmt::format("{:.{}f} {}", bytes, unit == 0 ? 0 : 1, kUnits[unit]);
}

std::string count_text(double count) {
  if (count >= 1e9) return fmt::format("{:.2f} B", count / 1e9);
  if (count >= 1e6) return fmt::format("{:.1f} M", count / 1e6);
  return fmt::format("{:.0f}", count);
}

std::string flops_text(double flops) {
  return flops >= 1e12 ? fmt::format("{:.2f} TFLOP", flops / 1e12)
                       : fmt::format("{:.2f} GFLOP", flops / 1e9);
}

}  // namespace keyseat::tool::chain
