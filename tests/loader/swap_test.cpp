// Two configurations that differ in the data plugin, one binary: the other plugin runs, and the log
// says so.
#include <doctest/doctest.h>

#include "tests/loader/plugin_files.h"

using namespace keyseat_loader;

namespace {

CommandResult train(const TemporaryFolder& folder, const std::string& more) {
  return run_keyseat(
      "train configs/runs/mock.toml --overwrite --set run.steps=1 --set run.threads=1 --set "
      "run.dir=" +
      (folder.path() / "run").string() + more);
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("swap: a name in the configuration decides which plugin a run loads") {
  const TemporaryFolder folder;
  const CommandResult mock = train(folder, "");
  CHECK_MESSAGE(mock.status == 0, mock.err);
  CHECK(has(mock.err, "loading data/mock from "));
  CHECK_FALSE(has(mock.err, "data/webdataset"));
  CHECK(has(mock.err, "[mock data: not a performance measurement]"));

  const CommandResult real = train(
      folder,
      " --set data.plugin=webdataset --set "
      "'data.options.path=[\"configs/data/digits-heldout.tar\"]'"
      " --set data.options.tokenizer=configs/data/tokenizer --set data.options.micro_batch_size=2"
      " --set data.options.global_batch_size=2");
  CHECK_MESSAGE(real.status == 0, real.err);
  CHECK(has(real.err, "loading data/webdataset from "));
  CHECK_FALSE(has(real.err, "loading data/mock"));
  CHECK_FALSE(has(real.err, "not a performance measurement"));
}

TEST_CASE("swap: a misspelt plugin stops the run and the nearest name is shown") {
  const TemporaryFolder folder;
  const CommandResult misspelt = train(folder, " --set recompute.plugin=nome");
  CHECK(misspelt.status == 3);
  CHECK_MESSAGE(has(misspelt.err, "P1 no plugin recompute/nome. Did you mean none?"), misspelt.err);
}
