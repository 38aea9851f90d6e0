// Weights survive loading and saving bit for bit, in every layout of the experts.
#include <ATen/ops/equal.h>

#include "checkpoint/hf_weights.h"
#include "tests/parity/command.h"
#include "tools/keyseat/run_setup.h"
#include "train/session.h"

using namespace keyseat_parity;
using namespace keyseat;

namespace {

constexpr const char* kLayouts[] = {"per_expert", "packed", "packed_transposed"};

std::unique_ptr<train::Session> session_of(const fs::path& folder, const std::string& layout,
                                           ConfigPlugins& plugins) {
  RunConfig config = tool::resolve_or_throw(
      {}, plugins, ConfigUse::kModel, tool::blocks_of_hf_file(folder / "config.json", {}),
      {"run.precision=fp32", "log.level=warn",
       "model.blocks.decoder.options.checkpoint_experts=" + layout});
  train::SessionOptions options;
  options.data = false;
  return std::make_unique<train::Session>(std::move(config), plugins.registry(), options);
}

void check_same_tensors(const fs::path& a, const fs::path& b) {
  const auto left = SafetensorsReader::open(a).value_or_throw();
  const auto right = SafetensorsReader::open(b).value_or_throw();
  CHECK(left.names() == right.names());
  for (const std::string& name : left.names()) {
    CHECK_MESSAGE(at::equal(left.tensor(name), right.tensor(name)), name);
  }
}

std::string layout_of(const SafetensorsReader& file, const Chain& chain) {
  for (const ChainUnit& unit : chain.units()) {
    for (const ParamSpec& param : unit.unit->spec().params) {
      if (param.domain != ParamDomain::kExpert) continue;
      switch (checkpoint::stored_layout(file, unit.unit->spec(), param)) {
        case CheckpointLayout::kPerExpert:
          return "per_expert";
        case CheckpointLayout::kPacked:
          return "packed";
        default:
          return "packed_transposed";
      }
    }
  }
  return "";
}

}  // namespace

TEST_CASE("layouts: saved and loaded again bitwise, from every layout into every other") {
  const fs::path folder =
      fs::temp_directory_path() / ("keyseat_layouts_" + std::to_string(getpid()));
  fs::create_directories(folder);
  for (const char* name : kCases) {
    CAPTURE(name);
    const fs::path original = kReference / name / "model.safetensors";
    const std::string stored =
        json::parse(std::ifstream(kReference / name / "results.json")).at("expert_layout");
    for (const char* layout : kLayouts) {
      CAPTURE(layout);
      ConfigPlugins plugins, own_plugins;
      const auto session = session_of(kReference / name, layout, plugins);
      session->load_weights(original);
      const fs::path saved = folder / (std::string(layout) + ".safetensors");
      session->save_weights(saved);
      const auto file = SafetensorsReader::open(saved).value_or_throw();
      if (stored != "none") CHECK(layout_of(file, session->chain()) == layout);
      // Back into the recording's own layout: the same names and bits.
      const auto back =
          session_of(kReference / name, stored == "none" ? layout : stored, own_plugins);
      back->load_weights(saved);
      const fs::path again = folder / "again.safetensors";
      back->save_weights(again);
      check_same_tensors(original, again);
    }
  }
  fs::remove_all(folder);
}
