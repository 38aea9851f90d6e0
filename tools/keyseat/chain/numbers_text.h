// Large numbers for people.
#pragma once

#include <string>

namespace keyseat::tool::chain {

std::string bytes_text(double bytes);  // 1.5 GiB
std::string count_text(double count);  // 31.07 B, 539.1 M
std::string flops_text(double flops);  // 12.30 TFLOP

}  // namespace keyseat::tool::chain
