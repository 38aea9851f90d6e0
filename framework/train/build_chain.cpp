#include "train/build_chain.h"

namespace keyseat::train {

Chain build_chain(const RunConfig& config, Registry& registry) {
  std::vector<NamedBlock> blocks;
  for (const PluginChoice& choice : config.model.blocks) {
    PluginHost host;
    host.instance = choice.instance;
    host.seed = config.run.seed;
    blocks.push_back({choice.instance, choice.kind + "/" + choice.name,
                      registry.create<Block>(choice.name, choice.options, host), choice.where});
  }
  Problems problems;
  Chain chain = Chain::build(std::move(blocks), config.model.freeze, problems);
  if (!problems.empty()) throw Error(std::move(problems));
  return chain;
}

}  // namespace keyseat::train
