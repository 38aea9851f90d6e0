// A strategy on one rank against one ordinary autograd graph over the whole chain, and its start
// values against those of strategy/single.
#include "keyseat/interfaces/strategy.h"

#include "keyseat/mesh.h"
#include "sdk/conformance/small_chain.h"
#include "sdk/conformance/subject.h"

namespace keyseat::conformance {
namespace {

constexpr double kLayoutLimit = 1e-5;  // several layouts against one process, fp32 (6-measuring)
constexpr int64_t kStates = 2;

// A strategy that is ready to run the chain on one rank.
class Placed {
 public:
  Placed(std::shared_ptr<Strategy> strategy, const Chain& chain)
      : strategy_(std::move(strategy)), chain_(chain), comm_(stock<Comm>("self")) {
    comm_->connect({});
    facts_.seed = 5;
    Problems problems;
    mesh_ = Mesh::build(strategy_->degrees(1), 1, 0, 1, problems);
    const Problems own = strategy_->validate(facts_, chain_);
    problems.insert(problems.end(), own.begin(), own.end());
    if (!problems.empty()) throw Error(std::move(problems));
    strategy_->place(facts_, chain_, mesh_, *comm_);
    ExecutorServices services;
    services.comm = comm_.get();
    services.mesh = &mesh_;
    services.events = strategy_.get();
    executor_ = std::make_unique<Executor>(chain_, services);
  }

  Strategy& strategy() { return *strategy_; }
  const StrategyFacts& facts() const { return facts_; }

  // The start values of the oracle's parameters.
  void write(const testing::TestParams& values) {
    for_owned([&](int unit, int param) {
      strategy_->write_master(unit, param, values.of(unit).at(static_cast<size_t>(param)).value());
    });
    strategy_->after_update();
  }

  std::map<std::string, double> run(std::vector<Row> rows, bool training = true) {
    executor_->begin_step(0, testing::loss_terms());
    StepPlan plan;
    plan.rows = std::move(rows);
    plan.training = training;
    strategy_->schedule(std::move(plan), *executor_);
    strategy_->finish();
    return executor_->losses();
  }

  Gradients gradients() {
    Gradients found;
    for_each([&](int unit, int param) {
      const at::Tensor gradient = strategy_->read_gradient(unit, param);
      if (gradient.defined()) found[name(unit, param)] = gradient.clone();
    });
    return found;
  }

  Gradients masters() {
    Gradients found;
    for_each([&](int unit, int param) {
      found[name(unit, param)] = strategy_->read_master(unit, param).clone();
    });
    return found;
  }

 private:
  const std::string& name(int unit, int param) const {
    return chain_.units()[static_cast<size_t>(unit)].param_names[static_cast<size_t>(param)];
  }
  template <typename Function>
  void for_each(const Function& function) {
    for (int unit = 0; unit < chain_.size(); ++unit) {
      const auto count = chain_.units()[static_cast<size_t>(unit)].param_names.size();
      for (int param = 0; param < static_cast<int>(count); ++param) function(unit, param);
    }
  }
  template <typename Function>
  void for_owned(const Function& function) {
    for_each([&](int unit, int param) {
      const auto& owners = chain_.units()[static_cast<size_t>(unit)].owners;
      if (owners[static_cast<size_t>(param)] == ParamRef{unit, param}) function(unit, param);
    });
  }

  std::shared_ptr<Strategy> strategy_;
  const Chain& chain_;
  std::shared_ptr<Comm> comm_;
  StrategyFacts facts_;
  Mesh mesh_;
  std::unique_ptr<Executor> executor_;
};

void check_gradients(const Subject& subject, const std::vector<std::string>& freeze) {
  const Chain chain = small_chain(freeze);
  Placed placed(subject.make<Strategy>(), chain);
  placed.write(testing::TestParams(chain, /*with_sinks=*/false, kSeed));
  const Gradients expected = testing::plain_gradients(chain, kSeed, small_rows());
  placed.run(small_rows());
  expect_gradients(placed.gradients(), expected, kLayoutLimit);
  // A second window begins at zero and comes to the same.
  placed.run(small_rows());
  expect_gradients(placed.gradients(), expected, kLayoutLimit);
}

double squares(const Gradients& gradients) {
  double sum = 0;
  for (const auto& [name, gradient] : gradients) {
    sum += gradient.to(at::kDouble).square().sum().item<double>();
  }
  return sum;
}

// Of tied parameters the first name only.
Gradients owned(const Chain& chain, Gradients all) {
  for (int unit = 0; unit < chain.size(); ++unit) {
    const ChainUnit& one = chain.units()[static_cast<size_t>(unit)];
    for (size_t param = 0; param < one.owners.size(); ++param) {
      if (!(one.owners[param] == ParamRef{unit, static_cast<int>(param)})) {
        all.erase(one.param_names[param]);
      }
    }
  }
  return all;
}

void check_norm_groups(const Subject& subject) {
  const Chain chain = small_chain();
  Placed placed(subject.make<Strategy>(), chain);
  placed.run(small_rows());
  double sum = 0;
  for (const NormGroup& group : placed.strategy().norm_groups()) {
    for (const at::Tensor& gradient : group.gradients) {
      sum += gradient.to(at::kDouble).square().sum().item<double>();
    }
  }
  const double expected = squares(owned(chain, placed.gradients()));
  expect(std::abs(sum - expected) <= kLayoutLimit * expected,
         fmt::format("the squares of the norm groups sum to {}, those of the gradients to {}: each "
                     "logical element counts once, tied ones too",
                     sum, expected));
}

void check_shards(const Subject& subject) {
  const Chain chain = small_chain({"vision"});
  Placed placed(subject.make<Strategy>(), chain);
  placed.run(small_rows());
  const Gradients before = placed.masters(), gradients = placed.gradients();
  std::map<std::string, int64_t> elements;
  for (OptimizerShard& shard : placed.strategy().shards(kStates)) {
    const at::Tensor& whole = gradients.at(shard.name);
    expect(static_cast<int64_t>(shard.state.size()) == kStates,
           "a shard has another number of state tensors than was asked for");
    expect_equal("the gradient in the shard of " + shard.name, shard.grad,
                 whole.reshape({-1}).slice(0, shard.begin, shard.end));
    elements[shard.name] += shard.end - shard.begin;
    shard.master.sub_(shard.grad);
    for (const at::Tensor& state : shard.state) {
      expect(state.count_nonzero().item<int64_t>() == 0, "a fresh state is not zero");
    }
  }
  placed.strategy().after_update();
  const Gradients trained = owned(chain, gradients);
  expect(elements.size() == trained.size(), "the shards are not those of the trained parameters");
  for (const auto& [name, gradient] : trained) {
    expect(elements.at(name) == gradient.numel(),
           fmt::format("the shards of {} hold {} of its {} elements", name, elements.at(name),
                       gradient.numel()));
  }
  const Gradients after = placed.masters();
  for (const auto& [name, value] : after) {
    const auto gradient = gradients.find(name);
    expect_equal(
        "the master of " + name + " behind an update", value,
        gradient == gradients.end() ? before.at(name) : before.at(name) - gradient->second);
  }
}

}  // namespace

void strategy_cases(const Subject& subject, Cases& cases) {
  cases.run("degrees: they fit a world of one rank", [&] {
    Problems problems;
    Mesh::build(subject.make<Strategy>()->degrees(1), 1, 0, 1, problems);
    expect(problems.empty(), problems_text(problems));
  });
  cases.run("place: parameters start as under strategy/single", [&] {
    const Chain chain = small_chain();
    const Gradients expected = Placed(stock<Strategy>("single"), chain).masters();
    for (const auto& [name, value] : Placed(subject.make<Strategy>(), chain).masters()) {
      expect_equal(name, value, expected.at(name));
    }
  });
  cases.run("masters: what is written can be read, for every parameter", [&] {
    const Chain chain = small_chain();
    Placed placed(subject.make<Strategy>(), chain);
    const testing::TestParams values(chain, false, kSeed);
    placed.write(values);
    const Gradients found = placed.masters();
    for (int unit = 0; unit < chain.size(); ++unit) {
      const auto& names = chain.units()[static_cast<size_t>(unit)].param_names;
      for (size_t i = 0; i < names.size(); ++i) {
        expect_equal(names[i], found.at(names[i]), values.of(unit).at(i).value().detach());
      }
    }
  });
  cases.run("schedule: gradients equal those of one autograd graph, over several rows",
            [&] { check_gradients(subject, {}); });
  cases.run("schedule: a frozen block has no gradient and changes no other",
            [&] { check_gradients(subject, {"vision"}); });
  cases.run("schedule: evaluation gives the losses and leaves no gradient behind", [&] {
    const Chain chain = small_chain();
    Placed placed(subject.make<Strategy>(), chain);
    const auto trained = placed.run(small_rows());
    const auto evaluated = placed.run(small_rows(), /*training=*/false);
    for (const auto& [name, value] : trained) {
      expect(evaluated.contains(name) && evaluated.at(name) == value,
             "the loss " + name + " of an evaluation is not that of training");
    }
  });
  cases.run("norm_groups: each logical element once", [&] { check_norm_groups(subject); });
  cases.run("shards: every trained element once; an update reaches the masters",
            [&] { check_shards(subject); });
  cases.run("estimate: sizes that are finite and not negative", [&] {
    const Chain chain = small_chain();
    const auto strategy = subject.make<Strategy>();
    WorkloadShape shape;
    shape.tokens = 128;
    const MemoryEstimate estimate = strategy->estimate({}, chain, shape, kStates);
    for (const double bytes : {estimate.parameters, estimate.gradients, estimate.optimizer,
                               estimate.activations, estimate.transient}) {
      expect(std::isfinite(bytes) && bytes >= 0, "a size is negative or not finite");
    }
    expect(estimate.parameters >= 4.0 * static_cast<double>(chain.parameter_count()),
           "the parameters need at least their fp32 masters");
  });
}

}  // namespace keyseat::conformance
