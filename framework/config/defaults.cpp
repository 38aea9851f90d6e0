// The one place where the core knows names of plugins: what a configuration that names none gets.
#include "config/defaults.h"

#include "keyseat/config.h"

namespace keyseat {

std::string default_plugin(const std::string& kind) {
  if (kind == "strategy") return "single";
  if (kind == "dispatcher") return "local";
  if (kind == "recompute") return "none";
  if (kind == "optimizer") return "adamw";
  return "";
}

// A pure function, so that every rank and every dry run comes to the same answer.
std::string default_comm(DeviceKind device, int64_t world, int64_t hosts) {
  if (world <= 1) return "self";
  if (device == DeviceKind::kCuda) return "nccl";
  return hosts <= 1 ? "shm" : "gloo";
}

}  // namespace keyseat
