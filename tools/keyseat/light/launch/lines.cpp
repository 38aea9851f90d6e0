#include "tools/keyseat/light/launch/lines.h"

namespace keyseat::tool {

void Lines::add(std::string_view bytes) {
  for (size_t end = bytes.find('\n'); end != std::string_view::npos; end = bytes.find('\n')) {
    open_ += bytes.substr(0, end);
    on_line_(open_);
    open_.clear();
    bytes.remove_prefix(end + 1);
  }
  open_ += bytes;
}

void Lines::finish() {
  if (!open_.empty()) on_line_(open_);
  open_.clear();
}

}  // namespace keyseat::tool
