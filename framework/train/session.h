// A session: everything a run is made of, built from a resolved configuration in the order of
// 2-architecture: instances, mesh, chain, rules of the strategy, parameters, weights. Used by
// train, eval and parity alike.
#pragma once

#include <memory>
#include <string>

#include "keyseat/chain.h"
#include "keyseat/config.h"
#include "keyseat/executor.h"
#include "keyseat/interfaces/comm.h"
#include "keyseat/interfaces/data.h"
#include "keyseat/interfaces/dispatcher.h"
#include "keyseat/interfaces/optimizer.h"
#include "keyseat/interfaces/recompute.h"
#include "keyseat/interfaces/strategy.h"
#include "keyseat/registry.h"

namespace keyseat::train {

struct SessionOptions {
  Kernels kernels = Kernels::kFast;
  TapSink* taps = nullptr;
  bool data = true;  // open the data plugin
};

class Session {
 public:
  // Throws Error with every problem found.
  Session(RunConfig config, Registry& registry, SessionOptions options);
  ~Session();
  Session(const Session&) = delete;

  // Loads Hugging Face weights; problems (missing, unexpected, mis-shaped) are refused unless
  // model.init_allow says so.
  void load_weights(const std::string& path);
  // Writes all parameters under their Hugging Face names.
  void save_weights(const std::string& path);

  // What `data()` gives from now on, in place of the configured source.
  void use_data(std::shared_ptr<Data> data) { data_ = std::move(data); }
  // Another data instance with the same model inputs (evaluation).
  std::shared_ptr<Data> open_data(const PluginChoice& choice, bool training);

  const RunConfig& config() const { return config_; }
  const Chain& chain() const { return chain_; }
  const Mesh& mesh() const { return mesh_; }
  Comm& comm() { return *comm_; }
  Dispatcher& dispatcher() { return *dispatcher_; }
  Strategy& strategy() { return *strategy_; }
  Optimizer& optimizer() { return *optimizer_; }
  Data& data() { return *data_; }
  Executor& executor() { return *executor_; }
  const StrategyFacts& facts() const { return facts_; }

 private:
  template <typename Interface>
  std::shared_ptr<Interface> make(const PluginChoice& choice) const;
  void build_chain();
  Problems dispatcher_problems() const;

  RunConfig config_;
  Registry& registry_;
  StrategyFacts facts_;
  // Destroyed in reverse order of creation.
  std::shared_ptr<Comm> comm_;
  std::shared_ptr<Recompute> recompute_;
  std::shared_ptr<Dispatcher> dispatcher_;
  std::shared_ptr<Optimizer> optimizer_;
  std::shared_ptr<Strategy> strategy_;
  Chain chain_;
  Mesh mesh_;
  std::shared_ptr<Data> data_;
  std::unique_ptr<Executor> executor_;
};

}  // namespace keyseat::train
