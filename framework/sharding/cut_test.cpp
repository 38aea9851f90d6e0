// Pieces of parameters, and who holds them: plain arithmetic, for layouts of up to 32 ranks.
#include "keyseat/sharding/cut.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <doctest/doctest.h>

#include "keyseat/sharding/bucket.h"
#include "train/test_units.h"

using namespace keyseat;
using namespace keyseat::sharding;

namespace {

using Otherwise = TensorSplit::Otherwise;

ParamSpec cut_param(const char* name, std::vector<int64_t> shape, TensorSplit split,
                    std::vector<int64_t> parts = {}) {
  ParamSpec spec = testing::param(name, std::move(shape));
  spec.split = split;
  spec.parts = std::move(parts);
  return spec;
}

ParamSpec expert_param(const char* name, std::vector<int64_t> shape, TensorSplit split,
                       std::vector<int64_t> parts = {}) {
  ParamSpec spec = cut_param(name, std::move(shape), split, std::move(parts));
  spec.domain = ParamDomain::kExpert;
  return spec;
}

UnitSpec layer_spec() {
  UnitSpec spec;
  spec.name = "layer";
  spec.layout = Layout::kRows;
  spec.params = {testing::param("norm", {6}),
                 cut_param("q", {24, 6}, {0, 8}),
                 cut_param("kv", {6, 6}, {0, 2, Otherwise::kReplicate}),
                 testing::param("head_norm", {3}),
                 cut_param("qkv", {72, 6}, {0, 8}, {24, 24, 24}),
                 cut_param("o", {6, 24}, {1, 8}),
                 testing::param("router", {4, 6}),
                 expert_param("gate_up", {4, 16, 6}, {1, 8}, {8, 8}),
                 expert_param("down", {4, 6, 8}, {2, 8})};
  spec.params[3].tensor_shares = true;
  spec.top_k = 2;
  return spec;
}

UnitSpec tower_spec() {
  UnitSpec spec;
  spec.name = "tower";
  spec.layout = Layout::kImages;
  spec.params = {cut_param("proj", {8, 6}, {0, 2, Otherwise::kReplicateUnit}),
                 cut_param("wide", {12, 6}, {0, 12, Otherwise::kReplicateUnit}),
                 testing::param("bias", {8})};
  return spec;
}

UnitSpec embedding_spec() {
  UnitSpec spec;
  spec.name = "embed";
  spec.layout = Layout::kRows;
  spec.params = {cut_param("table", {10, 6}, {0, 10, Otherwise::kUneven})};
  return spec;
}

// Units that are placed, and never run.
Chain placed_chain() {
  std::vector<UnitSpec> specs{tower_spec(), embedding_spec(), layer_spec()};
  for (UnitSpec& spec : specs) {
    if (spec.name != "tower") spec.reads = {testing::spec("tokens", {DimSymbol::kT}, at::kLong)};
    if (spec.name == "tower")
      spec.reads = {testing::spec("patches", {DimSymbol::kP, Dim(4)}, at::kFloat)};
    spec.writes = {testing::spec("loss." + spec.name, {Dim(1)}, at::kFloat, "one")};
  }
  std::vector<testing::FunctionBlock::Part> parts;
  for (const UnitSpec& spec : specs) parts.push_back({spec, {}});
  Problems problems;
  Chain chain = Chain::build({testing::block("b", std::move(parts))}, {}, problems);
  REQUIRE(problems_text(problems) == "");
  return chain;
}

Mesh mesh_of(const MeshDegrees& degrees, int64_t rank) {
  const int64_t world =
      degrees.tensor * degrees.context * degrees.shard * degrees.replicate * degrees.pipeline;
  Problems problems;
  Mesh mesh = Mesh::build(degrees, world, rank, world, problems);
  REQUIRE(problems_text(problems) == "");
  return mesh;
}

// Every layout of these degrees; `data` over the axis shard, or replicate.
std::vector<MeshDegrees> layouts(bool sharded) {
  std::vector<MeshDegrees> all;
  for (const int64_t tensor : {1, 2, 3, 4})
    for (const int64_t context : {1, 2})
      for (const int64_t data : {1, 2, 3})
        for (const int64_t expert : {1, 2, 4})
          for (const int64_t expert_tensor : {1, 2, 4}) {
            if (tensor * context * data % (expert * expert_tensor) != 0) continue;
            MeshDegrees degrees;
            degrees.tensor = tensor;
            degrees.context = context;
            (sharded ? degrees.shard : degrees.replicate) = data;
            degrees.expert = expert;
            degrees.expert_tensor = expert_tensor;
            all.push_back(degrees);
          }
  return all;
}

std::string text_of(const MeshDegrees& degrees) {
  return fmt::format("tensor {}, context {}, data {}, expert {}, expert_tensor {}", degrees.tensor,
                     degrees.context, degrees.shard * degrees.replicate, degrees.expert,
                     degrees.expert_tensor);
}

// By parameter and element of the whole: how many ranks have it in their shard.
std::map<std::string, std::vector<int64_t>> shard_counts(const Chain& chain,
                                                         const MeshDegrees& degrees,
                                                         const LayoutRules& rules) {
  std::map<std::string, std::vector<int64_t>> counts;
  const int64_t world = mesh_of(degrees, 0).world();
  for (int64_t rank = 0; rank < world; ++rank) {
    const ModelLayout layout = ModelLayout::build(chain, rules, mesh_of(degrees, rank));
    for (const BucketLayout& bucket_layout : layout.buckets) {
      const Bucket bucket(bucket_layout, at::kCPU, at::kCPU);
      for (int slice = 0; slice < static_cast<int>(bucket_layout.slices.size()); ++slice) {
        const Slice& facts = bucket_layout.slices[slice];
        const ChainUnit& unit = chain.units()[facts.ref.unit];
        std::vector<int64_t>& of_param = counts[unit.param_names[facts.ref.param]];
        of_param.resize(static_cast<size_t>(unit.unit->spec().params[facts.ref.param].numel()));
        const OwnRange own = bucket.own_range(slice);
        for (const Piece::Run& run : facts.piece().runs(own.in_slice, own.count)) {
          for (int64_t i = 0; i < run.count; ++i) ++of_param[static_cast<size_t>(run.in_whole + i)];
        }
      }
    }
  }
  return counts;
}

double share_of(const UnitSpec& unit, int param, const MeshDegrees& degrees) {
  return cut_of(unit, param, mesh_of(degrees, 0)).gradient_share;
}

}  // namespace

TEST_CASE("cut: the pieces of a parameter have each element once, by runs and by values") {
  const Pieces::Cut experts{0, 2, 4, {4}}, width{1, 3, 6, {6, 6}}, columns{2, 2, 2, {4}};
  const Pieces::Cut uneven{1, 5, 12, {12}}, more_places_than_units{1, 4, 3, {9, 3}};
  for (const auto& cuts : {std::vector<Pieces::Cut>{},
                           {experts},
                           {width},
                           {columns},
                           {width, experts},
                           {columns, experts},
                           {columns, width, experts},
                           {uneven},
                           {uneven, columns},
                           {more_places_than_units}}) {
    const Pieces pieces{{4, 12, 4}, cuts};
    const at::Tensor numbers = at::arange(4 * 12 * 4, at::kFloat).view(pieces.shape);
    at::Tensor put_together = at::full(pieces.shape, -1, numbers.options());
    std::vector<int> found(static_cast<size_t>(numbers.numel()));
    for (int64_t place = 0; place < pieces.count(); ++place) {
      const Piece piece = pieces.at(place);
      const at::Tensor values = piece.take(numbers);
      REQUIRE(values.numel() == piece.numel());
      piece.put(values, put_together);
      // In two shards, as a bucket may cut it.
      const int64_t cut = piece.numel() / 3;
      int64_t next = 0;
      for (const auto& [begin, count] :
           {std::pair<int64_t, int64_t>{0, cut}, {cut, piece.numel() - cut}}) {
        for (const Piece::Run& run : piece.runs(begin, count)) {
          CHECK(run.in_piece == next);
          next += run.count;
          for (int64_t i = 0; i < run.count; ++i) {
            CHECK(values[run.in_piece + i].item<int64_t>() == run.in_whole + i);
            ++found[static_cast<size_t>(run.in_whole + i)];
          }
        }
      }
      CHECK(next == piece.numel());
    }
    CHECK(at::equal(put_together, numbers));
    CHECK(std::all_of(found.begin(), found.end(), [](int count) { return count == 1; }));
  }
}

TEST_CASE("cut: neighbouring units of every part go to a rank, the last ranks may have fewer") {
  const Pieces gate_up{{8, 2}, {{0, 2, 4, {4, 4}}}};
  const std::vector<int64_t> expected{4, 5, 6, 7, 12, 13, 14, 15};
  CHECK(at::equal(gate_up.at(1).take(at::arange(16)), at::tensor(expected, at::kLong)));
  CHECK_FALSE(gate_up.at(1).is_one_run());
  CHECK(Pieces{{8, 2}, {{0, 2, 4, {8}}}}.at(1).is_one_run());
  std::vector<int64_t> rows;
  const Pieces vocabulary{{5, 2}, {{0, 4, 5, {5}}}};
  for (int64_t place = 0; place < 4; ++place) rows.push_back(vocabulary.at(place).shape()[0]);
  CHECK(rows == std::vector<int64_t>{2, 2, 1, 0});
}

TEST_CASE("cut: in every layout the shards have each element of every parameter once") {
  const Chain chain = placed_chain();
  for (const int64_t min_bytes : {0, 1 << 20}) {
    for (const MeshDegrees& degrees : layouts(/*sharded=*/true)) {
      CAPTURE(text_of(degrees));
      const auto counts = shard_counts(chain, degrees, {.min_bytes = min_bytes});
      REQUIRE(counts.size() == 13);
      for (const auto& [name, of_param] : counts) {
        CAPTURE(name);
        CHECK(std::all_of(of_param.begin(), of_param.end(), [](int64_t n) { return n == 1; }));
      }
    }
  }
}

TEST_CASE("cut: without shards every holder has all of its piece") {
  const Chain chain = placed_chain();
  for (const MeshDegrees& degrees : layouts(/*sharded=*/false)) {
    CAPTURE(text_of(degrees));
    const Mesh mesh = mesh_of(degrees, 0);
    const auto counts = shard_counts(chain, degrees, {.sharded = false});
    for (const ChainUnit& unit : chain.units()) {
      for (int param = 0; param < static_cast<int>(unit.param_names.size()); ++param) {
        CAPTURE(unit.param_names[param]);
        const int64_t holders =
            mesh.world() / cut_of(unit.unit->spec(), param, mesh).pieces.count();
        const std::vector<int64_t>& of_param = counts.at(unit.param_names[param]);
        CHECK(
            std::all_of(of_param.begin(), of_param.end(), [&](int64_t n) { return n == holders; }));
      }
    }
  }
}

TEST_CASE("cut: what a rank holds, for each kind of split") {
  const UnitSpec layer = layer_spec(), tower = tower_spec();
  const auto shape = [](const UnitSpec& unit, int param, const MeshDegrees& degrees) {
    const ParamCut cut = cut_of(unit, param, mesh_of(degrees, 0));
    return cut.pieces.at(cut.place).shape();
  };
  using Shape = std::vector<int64_t>;
  const MeshDegrees two{.tensor = 2}, four{.tensor = 4};
  CHECK(shape(layer, 0, four) == Shape{6});
  CHECK(shape(layer, 1, four) == Shape{6, 6});
  CHECK(shape(layer, 2, two) == Shape{3, 6});
  CHECK(shape(layer, 2, four) == Shape{6, 6});  // fewer heads than ranks
  CHECK(shape(layer, 4, four) == Shape{18, 6});
  CHECK(shape(layer, 5, four) == Shape{6, 6});
  const MeshDegrees experts{.tensor = 4, .expert = 2, .expert_tensor = 2};
  CHECK(shape(layer, 7, experts) == Shape{2, 8, 6});
  CHECK(shape(layer, 8, experts) == Shape{2, 6, 4});
  CHECK(shape(tower, 1, two) == Shape{6, 6});
  CHECK(replicating_param(tower, 2) == nullptr);
  // One parameter that cannot be cut makes the whole unit whole.
  CHECK(shape(tower, 1, four) == Shape{12, 6});
  CHECK(replicating_param(tower, 4)->name == "proj");
}

TEST_CASE("cut: a gradient counts once where ranks have the same rows, else they add up") {
  const UnitSpec layer = layer_spec(), tower = tower_spec();
  MeshDegrees apart{.tensor = 4, .context = 2};
  MeshDegrees sliced = apart;
  sliced.sequence_parallel = true;
  // Rows are equal over tensor without sequence parallel.
  CHECK(share_of(layer, 0, apart) == 0.25);
  CHECK(share_of(layer, 0, sliced) == 1);
  for (const MeshDegrees& degrees : {apart, sliced}) {
    CHECK(share_of(layer, 1, degrees) == 1);  // cut
    CHECK(share_of(layer, 2, degrees) == 1);  // whole, but of use in parts
    CHECK(share_of(layer, 3, degrees) == 1);  // a norm of each rank's own heads
    CHECK(share_of(layer, 7, degrees) == (degrees.sequence_parallel ? 1 : 0.25));
    // Images are dealt out over context; the tower is whole, its ranks do the same work.
    for (int param = 0; param < 3; ++param) CHECK(share_of(tower, param, degrees) == 0.25);
  }
  const MeshDegrees two{.tensor = 2};
  CHECK(share_of(tower, 0, two) == 1);
  CHECK(share_of(tower, 2, two) == 0.5);
  UnitSpec whole = layer;
  whole.layout = Layout::kWhole;
  CHECK(share_of(whole, 0, sliced) == 0.125);
  CHECK(share_of(whole, 1, sliced) == 0.5);  // over context
}

TEST_CASE("cut: of a row's work a rank has its share") {
  const UnitSpec layer = layer_spec(), tower = tower_spec();
  const MeshDegrees apart{.tensor = 4, .context = 2};
  const Mesh mesh = mesh_of(apart, 0);
  CHECK(work_share(layer, mesh) == 0.125);
  CHECK(kept_share(layer, mesh) == 0.5);
  CHECK(work_share(tower, mesh) == 0.5);  // whole on all tensor ranks
  CHECK(work_share(tower, mesh_of({.tensor = 2, .context = 2}, 0)) == 0.25);
  MeshDegrees sliced = apart;
  sliced.sequence_parallel = true;
  CHECK(kept_share(layer, mesh_of(sliced, 0)) == 0.125);
}
