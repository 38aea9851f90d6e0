#include "train/build_chain.h"

#include "train/block_text.h"

namespace keyseat::train {

namespace {

// What a unit writes for nobody tells of blocks that disagree, such as a tower with more taps than
// the projector has mergers. Losses and logits are read from outside.
void refuse_unread(const Chain& chain, Problems& problems) {
  for (const Version& version : chain.versions()) {
    const bool result = version.name.starts_with("loss.") || version.name == "logits";
    if (version.writer < 0 || result || !version.readers.empty()) continue;
    const ChainUnit& writer = chain.units()[static_cast<size_t>(version.writer)];
    const auto block = std::find_if(chain.blocks().begin(), chain.blocks().end(),
                                    [&](const NamedBlock& b) { return b.name == writer.block; });
    problems.push_back({Code::kC4Combination, block->where,
                        fmt::format("unit {} of {} writes \"{}\", which nothing behind it reads",
                                    writer.name, block_text(*block), version.name),
                        "Its work would be lost, and parameters before it might never be trained",
                        "Make the options of the blocks agree, or add the block that reads it"});
  }
}

}  // namespace

Problems recompute_problems(const Recompute& recompute, const Chain& chain) {
  std::vector<UnitName> units;
  for (const ChainUnit& unit : chain.units()) units.push_back({unit.block, unit.unit->spec().name});
  return recompute.check_names(units);
}

Chain build_chain(const RunConfig& config, Registry& registry, const Mesh& mesh) {
  std::vector<NamedBlock> blocks;
  for (const PluginChoice& choice : config.model.blocks) {
    PluginHost host;
    host.instance = choice.instance;
    host.seed = config.run.seed;
    blocks.push_back({choice.instance, choice.kind + "/" + choice.name,
                      registry.create<Block>(choice.name, choice.options, host), choice.where});
  }
  Problems problems;
  Chain chain = Chain::build(std::move(blocks), config.model.freeze, problems, mesh);
  if (problems.empty()) refuse_unread(chain, problems);
  if (!problems.empty()) throw Error(std::move(problems));
  return chain;
}

}  // namespace keyseat::train
