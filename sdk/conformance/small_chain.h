// A small chain without plugins, for the kinds that need one to act on: regions of every name, a
// tied table, kept random numbers, units over patches and over tokens.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "train/test_units.h"

namespace keyseat::conformance {

using Gradients = std::map<std::string, at::Tensor>;

inline constexpr uint64_t kSeed = 7;

// Tower, projector and decoder of test_units.h, and behind the decoder's layers one unit per region
// of regions.h, each with a parameter and a number out of ctx.keep in a nested region.
std::vector<NamedBlock> small_blocks();

// Problems of building it become an Error.
Chain small_chain(const std::vector<std::string>& freeze = {});

// Text and patches, text only, patches only where text stands, and no token at all.
std::vector<Row> small_rows();

void expect_gradients(const Gradients& found, const Gradients& expected, double limit);
void expect_equal_gradients(const Gradients& found, const Gradients& expected);

}  // namespace keyseat::conformance
