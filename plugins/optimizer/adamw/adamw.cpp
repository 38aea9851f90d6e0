#include "adamw.h"

#include <ATen/Parallel.h>
#include <c10/util/BFloat16.h>

namespace keyseat_optimizer_adamw {

using namespace keyseat;

namespace {

constexpr int64_t kChunk = 16384;  // elements a thread updates at a time; fits the caches

const std::map<std::string, ParamRole>& roles() {
  static const std::map<std::string, ParamRole> roles{{"matrix", ParamRole::kMatrix},
                                                      {"bias", ParamRole::kBias},
                                                      {"norm", ParamRole::kNorm},
                                                      {"embedding", ParamRole::kEmbedding},
                                                      {"router", ParamRole::kRouter}};
  return roles;
}

std::vector<std::string> role_names() {
  std::vector<std::string> names;
  for (const auto& [name, role] : roles()) names.push_back(name);
  return names;
}

}  // namespace

OptionSchema AdamW::options() {
  return {
      Option("lr", OptionType::kFloat)
          .defaults_to(1e-3)
          .range(0, 100)
          .doc("Peak learning rate; the schedule scales it."),
      Option("beta1", OptionType::kFloat)
          .defaults_to(0.9)
          .range(0, 1)
          .doc("Decay of the first moment."),
      Option("beta2", OptionType::kFloat)
          .defaults_to(0.999)
          .range(0, 1)
          .doc("Decay of the second moment."),
      Option("eps", OptionType::kFloat)
          .defaults_to(1e-8)
          .range(0, 1)
          .doc("Added to the root of the second moment."),
      Option("weight_decay", OptionType::kFloat)
          .defaults_to(0.01)
          .range(0, 1000)
          .doc("Decoupled decay per step, times the learning rate."),
      Option("decay_roles", OptionType::kStringList)
          .defaults_to(std::vector<std::string>{"matrix", "embedding", "router"})
          .choices(role_names())
          .doc("Roles of the parameters that are decayed."),
      Option("kernel", OptionType::kEnum)
          .defaults_to(std::string("simd"))
          .choices({"simd", "naive"})
          .level(OptionLevel::kDeveloper)
          .doc("naive is the plain oracle of the vectorised update."),
  };
}

Problems AdamW::validate(const Options& options) {
  Problems problems;
  for (const char* beta : {"beta1", "beta2"}) {
    if (options.get_float(beta) < 1) continue;
    problems.push_back(options.problem(Code::kC3Value, beta, fmt::format("{} is 1", beta),
                                       "the moment would never change", "use a value below 1"));
  }
  return problems;
}

AdamW::AdamW(const Options& options, const PluginHost&)
    : lr_(options.get_float("lr")),
      beta1_(options.get_float("beta1")),
      beta2_(options.get_float("beta2")),
      eps_(options.get_float("eps")),
      weight_decay_(options.get_float("weight_decay")),
      update_(options.get_string("kernel") == "naive" ? update_naive : update_simd) {
  for (const std::string& role : options.get_string_list("decay_roles")) {
    decayed_.insert(roles().at(role));
  }
}

Coefficients AdamW::coefficients(const OptimizerShard& shard) const {
  const auto step = static_cast<double>(shard.step);
  const bool decays = decayed_.contains(shard.spec->role);
  const double decay = decays ? weight_decay_ * shard.weight_decay_scale : 0.0;
  Coefficients c;
  c.grad_scale = static_cast<float>(shard.grad_scale);
  c.keep = static_cast<float>(1.0 - shard.lr * decay);
  c.one_minus_beta1 = static_cast<float>(1.0 - beta1_);
  c.beta2 = static_cast<float>(beta2_);
  c.one_minus_beta2 = static_cast<float>(1.0 - beta2_);
  c.inverse_correction2 = static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(beta2_, step)));
  c.eps = static_cast<float>(eps_);
  c.step_size = static_cast<float>(shard.lr / (1.0 - std::pow(beta1_, step)));
  return c;
}

void AdamW::step_(std::vector<OptimizerShard>& shards) {
  ranges_.clear();
  int64_t chunks = 0;
  for (OptimizerShard& shard : shards) {
    Range range{coefficients(shard),
                shard.end - shard.begin,
                shard.master.data_ptr<float>(),
                shard.state[0].data_ptr<float>(),
                shard.state[1].data_ptr<float>(),
                shard.grad.const_data_ptr<float>(),
                nullptr,
                chunks};
    if (shard.compute.defined() && shard.compute.scalar_type() == at::kBFloat16) {
      range.compute = reinterpret_cast<uint16_t*>(shard.compute.data_ptr<at::BFloat16>());
    }
    chunks += (range.count + kChunk - 1) / kChunk;
    ranges_.push_back(range);
  }
  at::parallel_for(0, chunks, 16, [&](int64_t begin, int64_t end) {
    auto range = std::upper_bound(
        ranges_.begin(), ranges_.end(), begin,
        [](int64_t chunk, const Range& candidate) { return chunk < candidate.first_chunk; });
    --range;
    for (int64_t chunk = begin; chunk < end; ++chunk) {
      // Empty ranges have no chunk of their own.
      while (std::next(range) != ranges_.end() && std::next(range)->first_chunk <= chunk) ++range;
      const int64_t first = (chunk - range->first_chunk) * kChunk;
      const auto count = static_cast<size_t>(std::min(kChunk, range->count - first));
      update_(range->coefficients, count, range->master + first, range->grad + first,
              range->m + first, range->v + first,
              range->compute == nullptr ? nullptr : range->compute + first);
    }
  });
  for (OptimizerShard& shard : shards) {
    if (!shard.compute.defined() || shard.compute.scalar_type() == at::kBFloat16) continue;
    shard.compute.copy_(shard.master);
  }
}

}  // namespace keyseat_optimizer_adamw
