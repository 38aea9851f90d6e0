// Loading: what the linker and the entry can do wrong, and what a good plugin gives.
#include <doctest/doctest.h>

#include "keyseat/interfaces/comm.h"
#include "keyseat/interfaces/recompute.h"
#include "keyseat/registry.h"
#include "tests/loader/plugin_files.h"

using namespace keyseat_loader;

namespace {

std::string zoo_text(const std::string& name) {
  const TemporaryFolder folder;
  folder.copy(zoo_file(name));
  return load_text(folder.search(), "recompute", name);
}

#define CHECK_CONTAINS(text, part) CHECK_MESSAGE((text).find(part) != std::string::npos, text)

}  // namespace

TEST_CASE("a plugin is absent before it is loaded and stays afterwards") {
  CHECK_FALSE(is_mapped("keyseat_comm_self.so"));
  std::shared_ptr<keyseat::Comm> comm;
  {
    keyseat::Registry registry(keyseat::make_plugin_search({}));
    CHECK(registry.loaded().empty());
    comm = registry.create<keyseat::Comm>("self", keyseat::Options());
    REQUIRE(registry.loaded().size() == 1);
    const auto& plugin = *registry.loaded().front();
    CHECK(plugin.id() == "comm/self");
    CHECK(plugin.digest.size() == 64);
    CHECK(std::string(plugin.manifest.license) == "Apache-2.0");
  }
  // The instance outlives its registry: it holds the library.
  comm->connect({});
  CHECK(comm->group({0}).size() == 1);
  comm.reset();
  CHECK(is_mapped("keyseat_comm_self.so"));
}

TEST_CASE("a plugin is loaded once; its instances are independent and may come and go") {
  keyseat::Registry first(keyseat::make_plugin_search({}));
  keyseat::Registry second(keyseat::make_plugin_search({}));
  keyseat::Problems problems;
  CHECK(first.load("comm", "self", problems) == second.load("comm", "self", problems));
  auto a = first.create<keyseat::Comm>("self", keyseat::Options());
  const auto b = first.create<keyseat::Comm>("self", keyseat::Options());
  CHECK(a != b);
  a->connect({});
  CHECK_THROWS_AS(b->group({0}), keyseat::Error);
  for (int i = 0; i < 100; ++i) a = first.create<keyseat::Comm>("self", keyseat::Options());
}

TEST_CASE("P4: a missing dependency is named, with where it was looked for and who needs it") {
  const std::string text = zoo_text("missing_dependency");
  CHECK_CONTAINS(text,
                 "P4 recompute/missing_dependency could not be loaded: it needs "
                 "libkeyseat_zoo_gone.so, which was not found in: ");
  CHECK_CONTAINS(text, "(needed by keyseat_recompute_missing_dependency.so)");
}

TEST_CASE("P4: an undefined symbol is named in readable form") {
  CHECK_CONTAINS(zoo_text("undefined_symbol"), "P4 ");
  CHECK_CONTAINS(zoo_text("undefined_symbol"), "\"zoo_elsewhere::missing_function(int)\"");
}

TEST_CASE("P6: the entry is missing, fails, fails without a reason, throws, or fills in nothing") {
  CHECK_CONTAINS(zoo_text("no_entry"),
                 "P6 the entry of recompute/no_entry (keyseat_plugin_entry) "
                 "is missing");
  CHECK_CONTAINS(zoo_text("failing_entry"), "failed: no device of the right kind");
  CHECK_CONTAINS(zoo_text("silent_entry"), "failed and gave no reason");
  CHECK_CONTAINS(zoo_text("throwing_entry"), "threw: the entry of the zoo threw this");
  CHECK_CONTAINS(zoo_text("empty_table"), "left a function of its table empty");
}

TEST_CASE("P6: what the functions of a plugin throw is reworded to name it") {
  const TemporaryFolder folder;
  folder.copy(zoo_file("throwing_options"));
  folder.copy(zoo_file("good"));
  keyseat::Registry registry(folder.search());
  keyseat::Problems problems;
  const auto plugin = registry.load("recompute", "throwing_options", problems);
  REQUIRE(plugin != nullptr);
  CHECK_THROWS_WITH_AS(plugin->options(),
                       doctest::Contains("P6 recompute/throwing_options could not declare its "
                                         "options: no options today"),
                       keyseat::Error);
  CHECK_THROWS_WITH_AS(registry.create<keyseat::Recompute>("throwing_options", keyseat::Options()),
                       doctest::Contains("could not be created: no instance today"),
                       keyseat::Error);
  CHECK_THROWS_WITH_AS(registry.create<keyseat::Recompute>("good", keyseat::Options()),
                       doctest::Contains("P6 recompute/good created no instance"), keyseat::Error);
}

TEST_CASE("--allow-abi-mismatch loads a plugin of another build, with a warning") {
  const TemporaryFolder folder;
  edit_manifest(folder.copy(zoo_file("good")), [](auto& m) { m.interface_abi += 1; });
  keyseat::PluginSearch search = folder.search();
  CHECK_CONTAINS(load_text(search, "recompute", "good"), "P3 ");
  search.allow_abi_mismatch = true;
  CHECK(load_text(search, "recompute", "good").empty());
}
