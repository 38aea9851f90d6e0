#include "keyseat/sharding/check_cuts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "keyseat/sharding/cut.h"

namespace keyseat::sharding {

namespace {

using Otherwise = TensorSplit::Otherwise;

// Of the dimension that is cut: sizes of its parts.
std::vector<int64_t> parts_of(const ParamSpec& param) {
  return param.parts.empty()
             ? std::vector<int64_t>{param.shape[static_cast<size_t>(param.split.dim)]}
             : param.parts;
}

class CutRules {
 public:
  CutRules(const Options& options, const MeshDegrees& degrees, const Chain& chain)
      : options_(options), degrees_(degrees), chain_(chain) {}

  Problems check() {
    for (int unit = 0; unit < chain_.size(); ++unit) {
      for (int param = 0; param < static_cast<int>(spec(unit).params.size()); ++param)
        check_param(unit, param);
      check_losses(unit);
    }
    if (degrees_.tensor > 1 && !cuts_dense_) {
      refuse("tensor",
             fmt::format("tensor is {}, but no parameter of the model can be cut", degrees_.tensor),
             "every rank would do the same work", "leave tensor at 1");
    }
    if (degrees_.expert_tensor > 1 && !has_experts_) {
      refuse("expert_tensor",
             fmt::format("expert_tensor is {}, but the model has no routed experts",
                         degrees_.expert_tensor),
             "the degree would have no effect", "leave expert_tensor at 1");
    }
    check_ties();
    return std::move(problems_);
  }

 private:
  const UnitSpec& spec(int unit) const { return chain_.units()[unit].unit->spec(); }
  const std::string& name(ParamRef ref) const {
    return chain_.units()[ref.unit].param_names[ref.param];
  }
  void refuse(const char* option, std::string what, std::string why, std::string remedy) {
    problems_.push_back(options_.problem(Code::kC4Combination, option, std::move(what),
                                         std::move(why), std::move(remedy)));
  }

  void check_param(int unit, int index) {
    const ParamSpec& param = spec(unit).params[index];
    const bool routed = param.domain == ParamDomain::kExpert;
    has_experts_ |= routed;
    const int64_t degree = routed ? degrees_.expert_tensor : degrees_.tensor;
    const bool fresh =
        seen_.insert({param.name, param.split.dim, param.split.units, param.shape}).second;
    if (param.split.dim >= 0 && !is_sound(param)) {
      if (fresh) report_unsound(unit, param);
      return;
    }
    cuts_dense_ |= !routed && param.split.dim >= 0;
    if (degree == 1 || !fresh) return;
    if (routed) {
      check_expert({unit, index}, param);
    } else if (param.split.dim >= 0 && !divides(param.split, degree)) {
      check_dense({unit, index}, param);
    }
  }

  static bool is_sound(const ParamSpec& param) {
    const bool of_experts = param.domain == ParamDomain::kExpert && param.split.dim == 0;
    if (!has_split(param) || of_experts) return false;
    int64_t sum = 0;
    for (int64_t part : parts_of(param)) {
      if (part % param.split.units != 0) return false;
      sum += part;
    }
    return sum == param.shape[static_cast<size_t>(param.split.dim)];
  }

  void report_unsound(int unit, const ParamSpec& param) {
    const ChainUnit& facts = chain_.units()[unit];
    const auto block = std::find_if(chain_.blocks().begin(), chain_.blocks().end(),
                                    [&](const NamedBlock& one) { return one.name == facts.block; });
    problems_.push_back(
        {Code::kR4Contract, block->where,
         fmt::format("{} of {}: {} [{}] cannot be split along dimension {} into {} units of each "
                     "part",
                     facts.name, block->plugin, param.name, fmt::join(param.shape, ", "),
                     param.split.dim, param.split.units),
         "the dimension exists, is not that of experts and is the sum of `parts`, each of which "
         "the "
         "units divide",
         "this is an error of the block plugin"});
  }

  void check_expert(ParamRef ref, const ParamSpec& param) {
    const int64_t degree = degrees_.expert_tensor;
    if (!has_split(param)) {
      refuse("expert_tensor",
             fmt::format("{} cannot be cut over expert_tensor {}", name(ref), degree),
             "its block does not say how", "leave expert_tensor at 1");
    } else if (!divides(param.split, degree) && param.split.otherwise != Otherwise::kUneven) {
      refuse("expert_tensor",
             fmt::format("expert_tensor {} does not divide the {} of {}", degree, split_text(param),
                         name(ref)),
             "every rank holds an equal slice of the width of its experts",
             "choose a divisor of the width");
    }
  }

  void check_dense(ParamRef ref, const ParamSpec& param) {
    const int64_t degree = degrees_.tensor;
    // What is whole serves every rank where each uses exactly one unit of it.
    const bool one_each = degree % param.split.units == 0;
    if (param.split.otherwise == Otherwise::kRefuse) {
      refuse("tensor",
             fmt::format("tensor {} does not divide the {} of {}", degree, split_text(param),
                         name(ref)),
             "every rank holds equally many", "choose a divisor");
    } else if (param.split.otherwise == Otherwise::kReplicate && !one_each) {
      refuse("tensor",
             fmt::format("tensor {} neither divides the {} of {} nor is a multiple of them", degree,
                         split_text(param), name(ref)),
             "a rank holds equally many, or uses one that others use, too",
             "choose a divisor or a multiple");
    }
  }

  void check_losses(int unit) {
    const UnitSpec& facts = spec(unit);
    if (degrees_.tensor * degrees_.context == 1) return;
    for (const TensorSpec& write : facts.writes) {
      const bool whole = facts.layout == Layout::kWhole || write.layout == Layout::kWhole;
      if (!write.name.starts_with("loss.") || !whole) continue;
      refuse(degrees_.tensor > 1 ? "tensor" : "context",
             fmt::format("{} writes \"{}\" out of whole rows, on each of the {} ranks of tensor {} "
                         "x context {}",
                         chain_.units()[unit].name, write.name, degrees_.tensor * degrees_.context,
                         degrees_.tensor, degrees_.context),
             "losses of all ranks are added up, so that it would count several times",
             "leave tensor and context at 1, or use a block whose loss is of a rank's own rows");
    }
  }

  // The users of a tied parameter share one buffer of values and gradients.
  void check_ties() {
    // The ranks of one data rank.
    MeshDegrees degrees = degrees_;
    degrees.shard = degrees.replicate = degrees.pipeline = degrees.expert = degrees.expert_tensor =
        1;
    const int64_t world = degrees.tensor * degrees.context;
    Problems unused;
    const Mesh mesh = Mesh::build(degrees, world, 0, world, unused);
    for (int unit = 0; unit < chain_.size(); ++unit) {
      for (int param = 0; param < static_cast<int>(spec(unit).params.size()); ++param) {
        const ParamRef owner = chain_.units()[unit].owners[param];
        if (owner == ParamRef{unit, param} || world == 1) continue;
        const ParamCut own = cut_of(spec(owner.unit), owner.param, mesh);
        const ParamCut user = cut_of(spec(unit), param, mesh);
        if (own.pieces.at(0).shape() == user.pieces.at(0).shape() &&
            own.gradient_share == user.gradient_share)
          continue;
        refuse(degrees_.tensor > 1 ? "tensor" : "context",
               fmt::format("{} and {} are tied, but would lie differently over tensor {} x context "
                           "{}",
                           name(owner), name({unit, param}), degrees_.tensor, degrees_.context),
               "their units meet different rows, or are cut in different ways",
               "untie them, or leave tensor and context at 1");
      }
    }
  }

  const Options& options_;
  const MeshDegrees& degrees_;
  const Chain& chain_;
  Problems problems_;
  std::set<std::tuple<std::string, int, int64_t, std::vector<int64_t>>> seen_;
  bool cuts_dense_ = false, has_experts_ = false;
};

}  // namespace

std::string split_text(const ParamSpec& param) {
  const bool single = parts_of(param).front() == param.split.units;
  return single ? fmt::format("width {}", param.split.units)
                : fmt::format("{} heads", param.split.units);
}

Problems check_cuts(const Options& options, const MeshDegrees& degrees, const Chain& chain) {
  return CutRules(options, degrees, chain).check();
}

}  // namespace keyseat::sharding
