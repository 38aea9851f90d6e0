// Test support: meshes of the ranks that share one packed row.
#pragma once

#include <doctest/doctest.h>

#include "keyseat/mesh.h"

namespace keyseat::testing {

struct RowGroup {
  int64_t context, tensor;
  bool sequence_parallel;
};

// The mesh of a rank of a world that is one such group.
inline Mesh mesh_of(const RowGroup& group, int64_t rank) {
  MeshDegrees degrees;
  degrees.context = group.context;
  degrees.tensor = group.tensor;
  degrees.sequence_parallel = group.sequence_parallel;
  const int64_t world = group.context * group.tensor;
  Problems problems;
  Mesh mesh = Mesh::build(degrees, world, rank, world, problems);
  REQUIRE(problems_text(problems) == "");
  return mesh;
}

}  // namespace keyseat::testing
