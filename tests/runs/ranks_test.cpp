// Checkpoints of several ranks: here two threads with a whole model each, so that what either wrote
// can be compared.
#include <ATen/Context.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <doctest/doctest.h>

#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/training_state.h"
#include "tests/ranks/thread_comm.h"
#include "tests/runs/run_command.h"
#include "train/model_fixture.h"

using namespace keyseat;
using namespace keyseat::checkpoint;
using keyseat_runs::Scratch;

namespace {

// A model with random optimizer states, the same ones on every rank.
struct Rank {
  explicit Rank(bool fill) {
    for (OptimizerShard& shard : model.strategy().shards(2)) {
      at::manual_seed(std::hash<std::string>()(shard.name));
      for (at::Tensor& state : shard.state) {
        if (fill) state.copy_(at::randn(state.sizes()));
      }
      if (fill) shard.master.add_(at::randn(shard.master.sizes()));
    }
  }
  testing::SmallModel model{testing::small_blocks(), {"projector"}};
  std::shared_ptr<Optimizer> adamw = testing::make_plugin<Optimizer>("adamw");
};

std::vector<CheckpointFile> save(std::vector<std::unique_ptr<Rank>>& ranks,
                                 const std::vector<std::string>& folders, int& refused) {
  const auto world = static_cast<int64_t>(ranks.size());
  std::vector<std::vector<CheckpointFile>> files(ranks.size());
  std::atomic<int> errors{0};
  test::ThreadWorld({.world = world}).run([&](int64_t r, test::ThreadComm& comm) {
    Rank& rank = *ranks[static_cast<size_t>(r)];
    try {
      files[static_cast<size_t>(r)] =
          write_state({rank.model.chain(), rank.model.strategy(), *rank.adamw, comm, r, world},
                      folders[static_cast<size_t>(r)]);
    } catch (const Error&) {
      ++errors;
    }
  });
  refused = errors;
  for (const auto& list : files) CHECK(list.size() == files[0].size());
  return files[0];
}

}  // namespace

TEST_CASE("ranks: two ranks share the writing, one rank loads it bitwise") {
  const Scratch scratch;
  const std::string folder = scratch / "step";
  std::filesystem::create_directories(folder);
  std::vector<std::unique_ptr<Rank>> ranks;
  for (int r = 0; r < 2; ++r) ranks.push_back(std::make_unique<Rank>(true));
  int refused = -1;
  CheckpointInfo info;
  info.files = save(ranks, {folder, folder}, refused);
  CHECK(refused == 0);
  REQUIRE(info.files.size() == 2);
  const double share = static_cast<double>(info.files[0].bytes) /
                       static_cast<double>(info.files[0].bytes + info.files[1].bytes);
  CHECK(share > 0.4);
  CHECK(share < 0.6);

  Rank loaded(false);
  const auto self = testing::make_plugin<Comm>("self");
  CHECK(read_state({loaded.model.chain(), loaded.model.strategy(), *loaded.adamw, *self, 0, 1},
                   folder, info)
            .empty());
  const Chain& chain = loaded.model.chain();
  Strategy &found = loaded.model.strategy(), &expected = ranks[0]->model.strategy();
  int trained = 0;
  for (int u = 0; u < chain.size(); ++u) {
    for (int p = 0; p < static_cast<int>(chain.units()[u].param_names.size()); ++p) {
      CHECK(at::equal(found.read_master(u, p), expected.read_master(u, p)));
      for (int64_t state = 0; state < 2; ++state) {
        const at::Tensor mine = found.read_state(u, p, state);
        CHECK(mine.defined() == (chain.units()[u].block != "projector"));
        if (!mine.defined()) continue;
        ++trained;
        CHECK(at::equal(mine, expected.read_state(u, p, state)));
      }
    }
  }
  CHECK(trained > 50);
}

TEST_CASE("ranks: where one rank cannot write, all of them are told") {
  const Scratch scratch;
  const std::string folder = scratch / "step";
  std::filesystem::create_directories(folder);
  std::vector<std::unique_ptr<Rank>> ranks;
  for (int r = 0; r < 2; ++r) ranks.push_back(std::make_unique<Rank>(true));
  int refused = -1;
  save(ranks, {folder, (scratch / "missing").string()}, refused);
  CHECK(refused == 2);
}

TEST_CASE("checkpoint folder: only complete ones count, and only they are deleted for new ones") {
  const Scratch scratch;
  const CheckpointFolder folder(scratch / "checkpoints");
  CHECK(folder.newest().empty());
  const auto publish = [&](int64_t step) {
    CheckpointInfo info;
    info.next_step = step;
    folder.begin(step);
    folder.publish(info);
  };
  publish(5);
  publish(10);
  CHECK(folder.newest() == folder.complete(10));
  // Cut down before `latest` was written, or after the folder it names was deleted by hand.
  std::filesystem::remove(scratch / "checkpoints/latest");
  CHECK(folder.newest() == folder.complete(10));
  std::ofstream(scratch / "checkpoints/latest") << "step-00000099\n";
  CHECK(folder.newest() == folder.complete(10));
  // Under way, and a folder that lost its description.
  folder.begin(15);
  std::filesystem::create_directories(scratch / "checkpoints/step-00000020");
  std::ofstream(scratch / "checkpoints/step-00000020/state.safetensors") << "x";
  std::filesystem::create_directories(scratch / "checkpoints/mine");
  CHECK(folder.newest() == folder.complete(10));
  CHECK(folder.all() == std::vector<std::string>{folder.complete(5), folder.complete(10)});
  publish(25);
  folder.prune(2);
  CHECK(folder.all() == std::vector<std::string>{folder.complete(10), folder.complete(25)});
  CHECK_FALSE(std::filesystem::exists(folder.partial(15)));
  CHECK_FALSE(std::filesystem::exists(scratch / "checkpoints/step-00000020"));
  CHECK(std::filesystem::exists(scratch / "checkpoints/mine"));
  publish(25);  // the same step again
  CHECK(read_info(folder.newest()).value().next_step == 25);
  folder.prune(0);
  CHECK(folder.all().size() == 2);
  folder.remove_all();
  CHECK(folder.newest().empty());
  CHECK(std::filesystem::exists(scratch / "checkpoints/mine"));
}
