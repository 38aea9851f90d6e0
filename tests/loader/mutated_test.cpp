// Mutated plugin files: reading them never crashes, and what does not fit gets a code.
#include <doctest/doctest.h>

#include <random>

#include "plugin/files/inspect.h"
#include "tests/loader/plugin_files.h"

using namespace keyseat_loader;

TEST_CASE("500 mutated plugins are read without a crash") {
  const std::string good = read_bytes(good_file());
  const std::string magic(keyseat::kManifestMagic, sizeof(keyseat::kManifestMagic));
  const size_t manifest = good.find(magic);
  REQUIRE(manifest != std::string::npos);
  // The places that are read: header, manifest, and the tables of sections and names at the end.
  const std::pair<size_t, size_t> places[] = {
      {0, 64}, {manifest, sizeof(keyseat::PluginManifest)}, {good.size() - 3000, 3000}};
  const TemporaryFolder folder;
  std::mt19937 random(20260101);
  int refused = 0;
  for (int round = 0; round < 500; ++round) {
    std::string bytes = good;
    const auto& [begin, size] = places[static_cast<size_t>(round) % 3];
    const int changes = 1 + static_cast<int>(random() % 8);
    for (int change = 0; change < changes; ++change) {
      bytes[begin + random() % size] = static_cast<char>(random());
    }
    if (round % 10 == 9) bytes.resize(random() % bytes.size());
    const auto file = folder.write("keyseat_recompute_none.so", bytes);
    const auto plugin = keyseat::inspect({{"recompute", "none"}, file}, folder.search());
    for (const keyseat::Problem& problem : plugin.refusals) {
      CHECK(keyseat::code_name(problem.code)[0] == 'P');
    }
    refused += plugin.refusals.empty() ? 0 : 1;
  }
  CHECK(refused > 100);  // the others changed texts that nothing compares, or spare bytes
}
