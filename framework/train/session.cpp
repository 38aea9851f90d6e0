#include "train/session.h"

#include <ATen/Parallel.h>

#include "base/launch_environment.h"
#include "checkpoint/hf_weights.h"
#include "keyseat/safetensors.h"
#include "runtime/device.h"
#include "runtime/loggers.h"
#include "train/agreement.h"
#include "train/build_chain.h"
#include "train/check_dispatcher.h"

namespace keyseat::train {

namespace {

void throw_if_any(Problems problems) {
  if (!problems.empty()) throw Error(std::move(problems));
}

void append(Problems& all, Problems more) {
  all.insert(all.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
}

}  // namespace

Session::Session(RunConfig config, Registry& registry, SessionOptions options)
    : config_(std::move(config)), registry_(registry) {
  const RunSettings& run = config_.run;
  facts_.compute_dtype = run.precision == Precision::kBf16 ? at::kBFloat16 : at::kFloat;
  facts_.device = run.device == DeviceKind::kCuda ? at::kCUDA : at::kCPU;  // its number comes later
  facts_.seed = run.seed;
  join_world();
  Rendezvous rendezvous = world_->rendezvous(facts_.device);
  recompute_ = make<Recompute>(config_.recompute);
  dispatcher_ = make<Dispatcher>(config_.dispatcher);
  optimizer_ = make<Optimizer>(config_.optimizer);
  strategy_ = make<Strategy>(config_.strategy);

  // Everything that can be refused is refused before anything is allocated.
  Problems problems;
  mesh_ = Mesh::build(strategy_->degrees(facts_.world), facts_.world, facts_.rank,
                      facts_.ranks_per_node, problems);
  chain_ = build_chain(config_, registry_, mesh_);
  append(problems, comm_->validate(rendezvous));
  append(problems, strategy_->validate(facts_, chain_));
  append(problems, check_dispatcher(chain_, *dispatcher_, mesh_, config_.dispatcher.where));
  append(problems, recompute_problems(*recompute_, chain_));
  throw_if_any(std::move(problems));

  facts_.device = open_device(run.device, rendezvous.local_rank);
  rendezvous.device = facts_.device;
  comm_->connect(rendezvous);
  strategy_->place(facts_, chain_, mesh_, *comm_);
  if (!config_.model.init.empty()) load_weights(config_.model.init);
  if (options.data) data_ = open_data(config_.data, /*training=*/true);

  services_.comm = comm_.get();
  services_.mesh = &mesh_;
  services_.dispatcher = dispatcher_.get();
  services_.recompute = recompute_.get();
  events_ = std::make_unique<NotedEvents>(*strategy_, chain_, world_->activity());
  services_.events = events_.get();
  services_.taps = options.taps;
  services_.kernels = options.kernels;
  services_.compute_dtype = facts_.compute_dtype;
  services_.device = facts_.device;
  services_.seed = facts_.seed;
  services_.aux_pooled = config_.loss.aux_scope == AuxScope::kPooled;
  executor_ = std::make_unique<Executor>(chain_, services_);
}

Session::~Session() = default;

// Which rank this is, and that all ranks run the same.
void Session::join_world() {
  const RunSettings& run = config_.run;
  const LaunchEnvironment environment = launch_environment();
  if (!environment.note.empty()) logger("comm")->warn("{}", environment.note);
  facts_.world = environment.world;
  facts_.rank = environment.rank;
  facts_.ranks_per_node = run.ranks_per_node > 0 ? run.ranks_per_node : environment.local_world;
  if (const int threads = threads_of_rank(run.threads, environment.local_world); threads > 0) {
    at::set_num_threads(threads);
  }
  world_ = std::make_unique<comm::World>(environment, run.timeout_seconds);
  world_->agree("configuration", agreement_lines(config_, registry_));
  comm::RecordedComm::Settings settings;
  settings.ranks_per_node = facts_.ranks_per_node;
  settings.compare = config_.check_collectives;
  settings.monitor = world_->monitor();
  settings.activity = &world_->activity();
  comm_ = std::make_shared<comm::RecordedComm>(make<Comm>(config_.comm), settings);
}

template <typename Interface>
std::shared_ptr<Interface> Session::make(const PluginChoice& choice) const {
  PluginHost host;
  host.instance = choice.instance;
  host.seed = facts_.seed;
  return registry_.create<Interface>(choice.name, choice.options, host);
}

std::shared_ptr<Data> Session::open_data(const PluginChoice& choice, bool training,
                                         bool rebuild_index) {
  auto data = make<Data>(choice);
  DataFacts facts;
  facts.input = chain_.input();
  facts.seed = facts_.seed;
  facts.data_ranks = mesh_.data_degree();
  facts.data_rank = mesh_.data_rank();
  facts.training = training;
  facts.rebuild_index = rebuild_index;
  throw_if_any(data->open(facts));
  return data;
}

void Session::load_weights(const std::string& path) {
  const SafetensorsReader file = SafetensorsReader::open(path).value_or_throw();
  const checkpoint::WeightReport report =
      checkpoint::load_hf_weights(chain_, file, [&](int unit, int param, const at::Tensor& value) {
        strategy_->write_master(unit, param, value);
      });
  strategy_->after_update();  // compute copies follow the masters
  const ModelSettings& model = config_.model;
  checkpoint::WeightReport refused = report;
  if (model.allow_missing) refused.missing.clear();
  if (model.allow_unexpected) refused.unexpected.clear();
  if (model.allow_shape) refused.mis_shaped.clear();
  if (!refused.clean()) {
    throw Error(Problem{Code::kR6Data,
                        {path, 0, 0},
                        "the weights do not fit the model:\n" + refused.text(),
                        "every parameter needs one tensor of its shape",
                        "Check the model's options, or allow it with model.init_allow."});
  }
  if (!report.clean())
    logger("train")->warn("{}: allowed by model.init_allow:\n{}", path, report.text());
  logger("train")->info("{} parameters loaded from {}", report.loaded, path);
}

void Session::save_weights(const std::string& path) {
  const auto tensors = checkpoint::to_hf_tensors(
      chain_, [&](int unit, int param) { return strategy_->read_master(unit, param); });
  if (leads()) write_safetensors(path, tensors, {{"format", "pt"}});
}

}  // namespace keyseat::train
