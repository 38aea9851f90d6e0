// Two configurations that differ in the data plugin, one binary: the other plugin runs, and the log
// says so.
#include <doctest/doctest.h>

#include <csignal>

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
  CHECK(has(mock.err, "data/mock 1.0.0 (sha256 "));
  CHECK_FALSE(has(mock.err, "data/webdataset"));
  CHECK(has(mock.err, "[mock data: not a performance measurement]"));

  const CommandResult real = train(
      folder,
      " --set data.plugin=webdataset --set "
      "'data.options.path=[\"configs/data/digits-heldout.tar\"]'"
      " --set data.options.tokenizer=configs/data/tokenizer --set data.options.micro_batch_size=2"
      " --set data.options.global_batch_size=2");
  CHECK_MESSAGE(real.status == 0, real.err);
  CHECK(has(real.err, "data/webdataset 1.0.0 (sha256 "));
  CHECK_FALSE(has(real.err, "data/mock"));
  CHECK_FALSE(has(real.err, "not a performance measurement"));
}

TEST_CASE("swap: a misspelt plugin stops the run and the nearest name is shown") {
  const TemporaryFolder folder;
  const CommandResult misspelt = train(folder, " --set recompute.plugin=nome");
  CHECK(misspelt.status == 3);
  CHECK_MESSAGE(has(misspelt.err, "P1 no plugin recompute/nome. Did you mean none?"), misspelt.err);
}

TEST_CASE("log: log.level applies from the start, and a failure is the last thing that is said") {
  const TemporaryFolder folder;
  const CommandResult quiet = train(folder, " --set log.level=error");
  CHECK(quiet.status == 0);
  CHECK(quiet.err == "");
  const CommandResult loud = train(folder, " --set log.level=debug");
  CHECK(has(loud.err, "loading data/mock from "));
  // At the usual level the plugins are one line, and a mistake is told in front of nothing.
  const CommandResult usual = train(folder, "");
  CHECK_FALSE(has(usual.err, "loading "));
  CHECK(usual.err.find("[loader]") == usual.err.rfind("[loader]"));
  const CommandResult wrong = train(folder, " --set run.seed=-1");
  CHECK(wrong.status == 2);
  CHECK(wrong.err.starts_with("--set run.seed=-1: C3 "));
  CHECK(wrong.err.find('\n') == wrong.err.size() - 1);
}

TEST_CASE("log: a plugin folder that does not exist is told once") {
  const TemporaryFolder folder;
  const CommandResult missing = train(folder, " --plugin-dir /no/such/folder");
  CHECK(missing.status == 3);
  const std::string text = "P1 the plugin folder /no/such/folder (--plugin-dir) does not exist";
  CHECK_MESSAGE(has(missing.err, text), missing.err);
  CHECK(missing.err.find("/no/such/folder") == missing.err.rfind("/no/such/folder"));
}

TEST_CASE("log: a plugin that ends the process while it is loaded is named, whatever the level") {
  const TemporaryFolder folder;
  const std::string zoo = zoo_file("throwing_static").parent_path().string();
  const auto load = [&](const std::string& name) {
    return train(folder,
                 " --plugin-dir " + zoo + " --set log.level=error --set recompute.plugin=" + name);
  };
  const CommandResult aborted = load("aborting_static");
  CHECK(aborted.status == 128 + SIGABRT);
  CHECK_MESSAGE(
      has(aborted.err, "the process ended while loading recompute/aborting_static from " + zoo),
      aborted.err);
  const CommandResult thrown = load("throwing_static");
#if defined(KEYSEAT_ASAN)
  // No exception comes through the sanitizer's dlopen.
  CHECK(thrown.status == 128 + SIGABRT);
#else
  CHECK(thrown.status == 3);
  CHECK_MESSAGE(has(thrown.err,
                    "P4 recompute/throwing_static ended the process that loaded it: an "
                    "initialiser threw: a static initialiser of the zoo threw this"),
                thrown.err);
  CHECK(has(thrown.err, "File: " + zoo));
#endif
}
