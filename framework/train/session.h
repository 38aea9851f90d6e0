// A session: everything a run is made of, built from a resolved configuration in the order of
// 2-architecture: instances, mesh, chain, rules of the strategy, parameters, weights. Used by
// train, eval and parity alike.
#pragma once

#include <memory>
#include <string>

#include "comm/recorded_comm.h"
#include "comm/world.h"
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
#include "train/noted_events.h"

namespace keyseat::train {

struct SessionOptions {
  Kernels kernels = Kernels::kFast;
  TapSink* taps = nullptr;
  bool data = true;  // open the data plugin
};

class Session {
 public:
  // Meets the other ranks of the launch (comm/world.h), then builds. Throws Error with every
  // problem found.
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
  std::shared_ptr<Data> open_data(const PluginChoice& choice, bool training,
                                  bool rebuild_index = false);

  const RunConfig& config() const { return config_; }
  const Chain& chain() const { return chain_; }
  const Mesh& mesh() const { return mesh_; }
  Comm& comm() { return *comm_; }
  // The same, with what it counted.
  comm::RecordedComm& recorded_comm() { return *comm_; }
  comm::World& world() { return *world_; }
  // True on the one rank that writes files and prints results.
  bool leads() const { return facts_.rank == 0; }
  Dispatcher& dispatcher() { return *dispatcher_; }
  Strategy& strategy() { return *strategy_; }
  Optimizer& optimizer() { return *optimizer_; }
  Data& data() { return *data_; }
  Executor& executor() { return *executor_; }
  const StrategyFacts& facts() const { return facts_; }
  // What the executor was made with, for another one over the same parameters.
  const ExecutorServices& services() const { return services_; }

 private:
  template <typename Interface>
  std::shared_ptr<Interface> make(const PluginChoice& choice) const;
  void join_world();

  RunConfig config_;
  Registry& registry_;
  StrategyFacts facts_;
  // Destroyed in reverse order of creation.
  std::unique_ptr<comm::World> world_;
  std::shared_ptr<comm::RecordedComm> comm_;
  std::shared_ptr<Recompute> recompute_;
  std::shared_ptr<Dispatcher> dispatcher_;
  std::shared_ptr<Optimizer> optimizer_;
  std::shared_ptr<Strategy> strategy_;
  Chain chain_;
  Mesh mesh_;
  std::shared_ptr<Data> data_;
  ExecutorServices services_;
  std::unique_ptr<NotedEvents> events_;
  std::unique_ptr<Executor> executor_;
};

}  // namespace keyseat::train
