// Two notations of Slurm's environment variables.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace keyseat {

// "2(x3),1" -> {2, 2, 2, 1}: one count per node. Empty where the text is something else.
std::vector<int64_t> slurm_counts(const std::string& text);

// "gpu[03-05,09],login" -> "gpu03".
std::string slurm_first_host(const std::string& list);

}  // namespace keyseat
