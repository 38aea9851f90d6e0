#include "keyseat/mesh.h"

#include <doctest/doctest.h>

using namespace keyseat;

namespace {

const std::vector<Axis> kDense{Axis::kTensor, Axis::kContext, Axis::kShard, Axis::kReplicate,
                               Axis::kPipeline};
const std::vector<Axis> kExpert{Axis::kExpertTensor, Axis::kExpert, Axis::kExpertData,
                                Axis::kPipeline};

Mesh mesh_of(const MeshDegrees& degrees, int64_t world, int64_t rank) {
  Problems problems;
  Mesh mesh = Mesh::build(degrees, world, rank, 4, problems);
  REQUIRE(problems.empty());
  return mesh;
}

// Coordinates of every rank by counting, the first axis fastest.
std::vector<std::map<Axis, int64_t>> count_up(const Mesh& mesh, const std::vector<Axis>& order) {
  std::vector<std::map<Axis, int64_t>> all;
  std::map<Axis, int64_t> at;
  for (Axis axis : order) at[axis] = 0;
  for (int64_t rank = 0; rank < mesh.world(); ++rank) {
    all.push_back(at);
    for (Axis axis : order) {
      if (++at[axis] < mesh.degree(axis)) break;
      at[axis] = 0;
    }
  }
  return all;
}

// Every subset of the axes: groups by comparing the coordinates of all ranks.
void compare_with_brute_force(const MeshDegrees& degrees, int64_t world,
                              const std::vector<Axis>& order) {
  const auto coordinates = count_up(mesh_of(degrees, world, 0), order);
  for (size_t subset = 0; subset < (size_t{1} << order.size()); ++subset) {
    std::vector<Axis> axes;
    for (size_t i = 0; i < order.size(); ++i) {
      if (subset >> i & 1) axes.push_back(order[i]);
    }
    std::map<std::vector<int64_t>, std::vector<int64_t>> groups;  // by the other coordinates
    for (int64_t rank = 0; rank < world; ++rank) {
      std::vector<int64_t> others;
      for (Axis axis : order) {
        const bool inside = std::find(axes.begin(), axes.end(), axis) != axes.end();
        others.push_back(inside ? 0 : coordinates[rank].at(axis));
      }
      groups[others].push_back(rank);
    }
    bool all_equal = true;
    for (const auto& [key, ranks] : groups) {
      for (int64_t rank : ranks) {
        all_equal &= mesh_of(degrees, world, rank).group(axes) == ranks;
      }
    }
    CHECK(all_equal);
    const auto listed = mesh_of(degrees, world, world - 1).all_groups(axes);
    CHECK(listed.size() == groups.size());
    for (size_t i = 1; i < listed.size(); ++i) CHECK(listed[i - 1].front() < listed[i].front());
  }
}

}  // namespace

TEST_CASE("mesh: groups of 512 ranks equal brute force in both views") {
  const MeshDegrees degrees{.tensor = 4,
                            .context = 2,
                            .shard = 4,
                            .replicate = 2,
                            .pipeline = 8,
                            .expert = 8,
                            .expert_tensor = 2};
  compare_with_brute_force(degrees, 512, kDense);
  compare_with_brute_force(degrees, 512, kExpert);
}

TEST_CASE("mesh: coordinates and data ranks") {
  const MeshDegrees degrees{.tensor = 2, .shard = 3, .replicate = 2, .expert = 6};
  const Mesh mesh = mesh_of(degrees, 12, 7);
  CHECK(mesh.coordinate(Axis::kTensor) == 1);
  CHECK(mesh.coordinate(Axis::kShard) == 0);
  CHECK(mesh.coordinate(Axis::kReplicate) == 1);
  CHECK(mesh.degree(Axis::kExpertData) == 2);
  CHECK(mesh.coordinate(Axis::kExpert) == 1);
  CHECK(mesh.data_degree() == 6);
  CHECK(mesh.data_rank() == 3);
  CHECK(Mesh().group({Axis::kShard, Axis::kTensor}) == std::vector<int64_t>{0});
}

TEST_CASE("mesh: degrees that do not fit are told") {
  const auto text = [](const MeshDegrees& degrees, int64_t world, int64_t per_node) {
    Problems problems;
    Mesh::build(degrees, world, 0, per_node, problems);
    return problems_text(problems);
  };
  CHECK(text({.shard = 2}, 4, 8).find("make 2 ranks, but the run has 4") != std::string::npos);
  CHECK(text({.shard = 4, .expert = 3}, 4, 8).find("does not divide the 4 ranks") !=
        std::string::npos);
  CHECK(text({.shard = 0}, 1, 8).find("\"shard\" is 0") != std::string::npos);
  CHECK(text({.shard = 6}, 6, 4).find("do not fill nodes") != std::string::npos);
  CHECK_THROWS_AS(Mesh().group({Axis::kShard, Axis::kExpert}), Error);
  CHECK_THROWS_AS(Mesh().group({Axis::kShard, Axis::kShard}), Error);
}
