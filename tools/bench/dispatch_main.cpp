// keyseat_bench_dispatch: dispatchers side by side on the ranks of a launched world. tools/bench/
// dispatch starts it. Legend: T tokens, K choices, H hidden, E experts.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>
#include <CLI/CLI.hpp>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "comm/recorded_comm.h"
#include "comm/world.h"
#include "keyseat/interfaces/dispatcher.h"
#include "keyseat/registry.h"

namespace {

using namespace keyseat;
using Clock = std::chrono::steady_clock;

struct Arguments {
  std::vector<std::string> dispatchers = {"alltoall", "hybrid_ep"};
  std::string comm = "gloo", interface, json;
  int64_t tokens = 512, hidden = 1024, experts = 32, top_k = 8, ranks_per_node = 2;
  int64_t warmup = 3, iterations = 20;
};

struct Sample {
  double plan = 0, exchange = 0;  // seconds; of the slowest rank
};

double since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Every rank can make the choices of all.
at::Tensor choices(const Arguments& arguments, int64_t rank) {
  auto generator = at::detail::createCPUGenerator(static_cast<uint64_t>(1000 + rank));
  return at::rand({arguments.tokens, arguments.experts}, generator, at::kFloat)
      .argsort(1, /*descending=*/false)
      .narrow(1, 0, arguments.top_k)
      .contiguous();
}

// Against the first dispatcher, and the bytes against what they should be.
void print_table(const nlohmann::json& lines) {
  std::printf("%-12s %26s %9s %9s %12s %12s %12s\n", "dispatcher", "exchange ms (min - max)",
              "plan ms", "speed-up", "MiB crossed", "predicted", "definition");
  const double first = lines[0]["exchange_ms"]["median"];
  for (const nlohmann::json& line : lines) {
    const auto number = [&](const char* key) { return line[key].get<double>(); };
    const nlohmann::json& ms = line["exchange_ms"];
    const auto against = [&](const char* key) {
      return number(key) > 0
                 ? fmt::format("{:+.2f} %", 100 * (number("inter_bytes") / number(key) - 1))
                 : std::string("-");
    };
    std::printf("%-12s %10.1f (%.1f - %.1f) %9.1f %8.2fx %12.2f %12s %12s\n",
                line["dispatcher"].get<std::string>().c_str(), ms["median"].get<double>(),
                ms["min"].get<double>(), ms["max"].get<double>(),
                line["plan_ms"]["median"].get<double>(), first / ms["median"].get<double>(),
                number("inter_bytes") / (1 << 20), against("predicted_inter_bytes").c_str(),
                against("formula_inter_bytes").c_str());
  }
}

class Bench {
 public:
  explicit Bench(const Arguments& arguments)
      : arguments_(arguments),
        world_(launch_environment(), /*timeout_seconds=*/120),
        registry_(make_plugin_search({})) {
    Problems problems;
    MeshDegrees degrees;
    degrees.shard = degrees.expert = world_.size();
    mesh_ = Mesh::build(degrees, world_.size(), world_.rank(), arguments.ranks_per_node, problems);
    if (!problems.empty()) throw Error(std::move(problems));
    std::map<std::string, OptionValue> options;
    if (!arguments.interface.empty()) options["interface"] = arguments.interface;
    auto inner =
        registry_.create<Comm>(arguments.comm, options_of("comm", arguments.comm, options));
    comm_ = std::make_unique<comm::RecordedComm>(
        inner, comm::RecordedComm::Settings{.ranks_per_node = arguments.ranks_per_node,
                                            .compare = false,
                                            .monitor = world_.monitor(),
                                            .activity = &world_.activity()});
    comm_->connect(world_.rendezvous(at::kCPU));
    std::vector<int64_t> ranks(static_cast<size_t>(world_.size()));
    std::iota(ranks.begin(), ranks.end(), 0);
    all_ = &comm_->group(ranks, CommChannel::kCompute);
    for (const std::string& name : arguments.dispatchers) {
      dispatchers_.push_back(
          registry_.create<Dispatcher>(name, options_of("dispatcher", name, {})));
      const Problems refused = dispatchers_.back()->check_layout(facts(), mesh_);
      if (!refused.empty()) throw Error(refused);
    }
    index_TK_ = choices(arguments, world_.rank());
    x_TH_ = at::full({arguments.tokens, arguments.hidden}, 0.5);
    weight_TK_ = at::full({arguments.tokens, arguments.top_k}, 0.125);
  }

  // Rounds of all dispatchers, one after the other, so that what else the machine does meets all.
  void run() {
    std::vector<std::vector<Sample>> samples(dispatchers_.size());
    std::vector<comm::LinkBytes> bytes(dispatchers_.size());
    for (int64_t i = 0; i < arguments_.warmup + arguments_.iterations; ++i) {
      for (size_t d = 0; d < dispatchers_.size(); ++d) {
        const Sample sample = once(*dispatchers_[d], bytes[d]);
        if (i >= arguments_.warmup) samples[d].push_back(sample);
      }
    }
    nlohmann::json lines = nlohmann::json::array();
    for (size_t d = 0; d < dispatchers_.size(); ++d) lines.push_back(line(d, samples[d], bytes[d]));
    if (!world_.leads()) return;
    print_table(lines);
    if (!arguments_.json.empty()) std::ofstream(arguments_.json) << lines.dump(2) << "\n";
  }

 private:
  DispatcherFacts facts() const {
    return {arguments_.experts, arguments_.top_k, arguments_.hidden, false};
  }

  Options options_of(const std::string& kind, const std::string& name,
                     const std::map<std::string, OptionValue>& values) {
    Problems problems;
    const auto plugin = registry_.load(kind, name, problems);
    if (plugin == nullptr) throw Error(std::move(problems));
    Options options = resolve_options(plugin->options(), values, "command line", problems);
    if (!problems.empty()) throw Error(std::move(problems));
    return options;
  }

  // Seconds since `begin`, of the slowest rank.
  double slowest_since(Clock::time_point begin) {
    at::Tensor seconds = at::full({1}, since(begin), at::kDouble);
    all_->all_reduce(seconds, ReduceOp::kMax)->wait();
    return seconds.item<double>();
  }

  Sample once(Dispatcher& dispatcher, comm::LinkBytes& bytes) {
    RowFacts row;
    row.counts.tokens = arguments_.tokens;
    std::vector<StepContext::Kept> kept;
    StepContext::State state;
    state.unit = "bench";
    state.row = &row;
    state.mesh = &mesh_;
    state.comm = comm_.get();
    state.dispatcher = &dispatcher;
    state.kept = &kept;
    StepContext context(state);
    const at::Tensor x_TH = x_TH_.detach().requires_grad_();
    const at::Tensor weight_TK = weight_TK_.detach().requires_grad_();
    const at::Tensor dy_TH = at::full(x_TH.sizes(), 1.0);

    Sample sample;
    all_->barrier();
    const comm::LinkBytes before = comm_->traffic().sent_in_all();
    auto begin = Clock::now();
    const auto plan = dispatcher.plan(index_TK_, arguments_.experts, context);
    const comm::LinkBytes planned = comm_->traffic().sent_in_all();
    sample.plan = slowest_since(begin);
    all_->barrier();
    const comm::LinkBytes resumed = comm_->traffic().sent_in_all();
    begin = Clock::now();
    const Dispatched sent = dispatcher.dispatch(plan, x_TH, weight_TK, context);
    // Identity experts that leave the weights in the graph.
    const at::Tensor y_TH = dispatcher.combine(plan, sent.rows_MH, context);
    torch::autograd::grad({y_TH}, {x_TH}, {dy_TH});
    const comm::LinkBytes after = comm_->traffic().sent_in_all();
    sample.exchange = slowest_since(begin);
    bytes = {planned.intra - before.intra + after.intra - resumed.intra,
             planned.inter - before.inter + after.inter - resumed.inter};
    return sample;
  }

  // Payload of all ranks that crossed nodes, per iteration.
  double sum_over_ranks(double value) {
    at::Tensor sum = at::full({1}, value, at::kDouble);
    all_->all_reduce(sum, ReduceOp::kSum)->wait();
    return sum.item<double>();
  }

  nlohmann::json line(size_t d, std::vector<Sample> samples, const comm::LinkBytes& bytes) {
    DispatcherWork work;
    work.facts = facts();
    work.tokens = arguments_.tokens;
    for (int64_t rank = 0; rank < world_.size(); ++rank) {
      work.topk_index.push_back(choices(arguments_, rank));
    }
    const double predicted = dispatchers_[d]->traffic(work, mesh_).total().inter;
    const auto spread = [&](auto seconds) {
      std::vector<double> ms;
      for (const Sample& sample : samples) ms.push_back(1e3 * seconds(sample));
      std::sort(ms.begin(), ms.end());
      return nlohmann::json{{"median", ms[ms.size() / 2]}, {"min", ms.front()}, {"max", ms.back()}};
    };
    return {{"dispatcher", arguments_.dispatchers[d]},
            {"exchange_ms", spread([](const Sample& s) { return s.exchange; })},
            {"plan_ms", spread([](const Sample& s) { return s.plan; })},
            {"inter_bytes", sum_over_ranks(static_cast<double>(bytes.inter))},
            {"intra_bytes", sum_over_ranks(static_cast<double>(bytes.intra))},
            {"predicted_inter_bytes", sum_over_ranks(predicted)},
            {"formula_inter_bytes", sum_over_ranks(formula(arguments_.dispatchers[d]))}};
  }

  // The definition, by hand and independent of traffic(): remote rows * (h b + 4 E/N) in dispatch
  // and its backward, rows * h b in combine and its backward, and the map. 0 where there is none.
  double formula(const std::string& name) const {
    const int64_t nodes = world_.size() / arguments_.ranks_per_node;
    const int64_t of_node = arguments_.experts / nodes,
                  own = world_.rank() / arguments_.ranks_per_node;
    const auto row = static_cast<double>(arguments_.hidden * 4);
    const at::Tensor node_TK = index_TK_.div(of_node, "floor");
    double rows = 0;
    for (int64_t node = 0; node < nodes; ++node) {
      if (node == own) continue;
      const at::Tensor there_TK = node_TK.eq(node);
      rows += name == "hybrid_ep" ? there_TK.any(1).sum().item<double>()
                                  : there_TK.sum().item<double>();
    }
    if (name == "hybrid_ep") {
      const double weights = 4.0 * static_cast<double>(of_node);
      return 2 * rows * (row + weights) + 2 * rows * row +
             static_cast<double>((nodes - 1) * arguments_.tokens * arguments_.experts);
    }
    return name == "alltoall" ? 2 * rows * (row + 4) + 2 * rows * row : 0;
  }

  Arguments arguments_;
  comm::World world_;
  Registry registry_;
  Mesh mesh_;
  std::unique_ptr<comm::RecordedComm> comm_;
  CommGroup* all_ = nullptr;
  std::vector<std::shared_ptr<Dispatcher>> dispatchers_;
  at::Tensor index_TK_, x_TH_, weight_TK_;
};

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  CLI::App app("Dispatchers side by side on the ranks of a launched world",
               "keyseat_bench_dispatch");
  app.add_option("--dispatchers", arguments.dispatchers, "names, comma separated")->delimiter(',');
  app.add_option("--comm", arguments.comm, "comm plugin");
  app.add_option("--interface", arguments.interface, "network interface of comm/gloo");
  app.add_option("--tokens", arguments.tokens, "tokens per rank");
  app.add_option("--hidden", arguments.hidden, "width of a row");
  app.add_option("--experts", arguments.experts, "experts of the layer");
  app.add_option("--top-k", arguments.top_k, "choices per token");
  app.add_option("--ranks-per-node", arguments.ranks_per_node, "ranks that count as one node");
  app.add_option("--json", arguments.json, "file for the figures (of rank 0)");
  app.add_option("--warmup", arguments.warmup, "rounds before the timed ones");
  app.add_option("--iterations", arguments.iterations, "timed rounds")->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  at::set_num_threads(1);
  try {
    Bench(arguments).run();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "keyseat_bench_dispatch: %s\n", error.what());
    return 1;
  }
}
