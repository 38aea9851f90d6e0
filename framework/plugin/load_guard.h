// Names the file whose loading ended the process: code of a library runs inside of dlopen(), where
// nothing can be caught.
#pragma once

#include <csignal>
#include <string>

namespace keyseat {

// While it lives, a signal that ends the process first writes `text` to stderr. One at a time.
class LoadGuard {
 public:
  explicit LoadGuard(std::string text);
  ~LoadGuard();
  LoadGuard(const LoadGuard&) = delete;
  LoadGuard& operator=(const LoadGuard&) = delete;

 private:
  std::string text_;
};

}  // namespace keyseat
