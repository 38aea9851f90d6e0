#pragma once
// The output of one stream of one rank, line by line.

#include <functional>
#include <string>
#include <string_view>

namespace keyseat::tool {

// Collects bytes and gives whole lines (without their line break) to a function. What is left at
// the end is a line too.
class Lines {
 public:
  explicit Lines(std::function<void(std::string_view)> on_line) : on_line_(std::move(on_line)) {}
  void add(std::string_view bytes);
  void finish();

 private:
  std::function<void(std::string_view)> on_line_;
  std::string open_;  // the line that has not ended
};

}  // namespace keyseat::tool
