#include "tools/keyseat/parity/model_run.h"

#include "checkpoint/hf_weights.h"
#include "keyseat/data/packing.h"
#include "train/norms.h"
#include "train/step_counts.h"
#include "train/step_sums.h"
#include "train/update.h"

namespace keyseat::tool::parity {

namespace {

class Runner {
 public:
  Runner(train::Session& session, TapRecorder& taps, const Batch& batch,
         const SafetensorsReader& weights)
      : session_(session),
        taps_(taps),
        batch_(batch),
        weights_(weights),
        update_(session.chain(), session.strategy(), session.optimizer(),
                session.config().factors) {
    run_.aux_weight = session.config().loss.aux_weight;
    run_.mesh = session.mesh();
  }

  ModelRun run(int64_t updates) {
    run_.before = masters();
    for (int64_t step = 0; step < updates; ++step) {
      taps_.on = step == 0;
      forward(step, /*training=*/true);
      taps_.on = false;
      Strategy& strategy = session_.strategy();
      strategy.finish();
      if (step == 0) note_first();
      StepFigures& figures = run_.steps.back();
      figures.grad_norm =
          train::global_norms(strategy, session_.mesh(), session_.comm(), false).gradient;
      figures.clip = train::clip_coefficient(figures.grad_norm, session_.config().clip_norm);
      update_.step(session_.optimizer().base_lr(), figures.clip, counts_.total);
    }
    forward(updates, /*training=*/false);
    run_.after = masters();
    return std::move(run_);
  }

 private:
  void forward(int64_t step, bool training) {
    data::PackOptions options;
    options.input = session_.chain().input();
    options.all_logits = taps_.on;
    if (taps_.on) {
      const Row whole = data::pack(samples_of(0, 1), options);
      run_.row = whole.tensors;
      run_.facts = whole.facts;
    }
    // Sample i belongs to data rank i mod their number; a rank without any runs an empty row.
    const Mesh& mesh = session_.mesh();
    std::vector<Row> rows;
    rows.push_back(data::pack(samples_of(mesh.data_rank(), mesh.data_degree()), options));
    counts_ = train::gather_counts(rows, session_.comm(), mesh);
    const auto terms = train::loss_terms(session_.chain(), session_.config().loss, counts_.total);
    Executor& executor = session_.executor();
    executor.begin_step(step, terms);
    session_.strategy().schedule({step, std::move(rows), training, {}}, executor);
    sums_ = train::sum_over_ranks(executor, session_.comm(), mesh.world());
    StepFigures figures;
    for (const auto& [name, sum] : sums_.losses) {
      figures.terms[name] = sum / terms.at(name).normaliser;
      figures.loss += terms.at(name).weight * figures.terms[name];
    }
    run_.steps.push_back(std::move(figures));
  }

  std::vector<const Sample*> samples_of(int64_t data_rank, int64_t data_ranks) const {
    std::vector<const Sample*> samples;
    for (size_t i = 0; i < batch_.samples.size(); ++i) {
      if (static_cast<int64_t>(i) % data_ranks == data_rank) samples.push_back(&batch_.samples[i]);
    }
    return samples;
  }

  void note_first() {
    const Chain& chain = session_.chain();
    run_.loss_sums = sums_.losses;
    for (const auto& [layer, stats_2E] : sums_.router_stats) {
      const at::Tensor counts_E = stats_2E.select(0, 1).to(at::kLong).contiguous();
      run_.expert_load[layer].assign(counts_E.const_data_ptr<int64_t>(),
                                     counts_E.const_data_ptr<int64_t>() + counts_E.numel());
    }
    // The rule of train::Update: a block takes part where any of its units saw rows.
    std::set<std::string> active;
    for (const ChainUnit& unit : chain.units()) {
      if (train::rows_of(unit.unit->spec().rows, counts_.total) > 0) active.insert(unit.block);
    }
    const auto gradients = [&](bool took_part) {
      return named([&](int unit, int param) {
        return active.contains(chain.units()[unit].block) == took_part
                   ? session_.strategy().read_gradient(unit, param)
                   : at::Tensor();
      });
    };
    run_.gradients = gradients(true);
    for (const auto& [name, gradient] : gradients(false)) run_.without_gradient.insert(name);
  }

  NamedTensors masters() {
    return named([&](int unit, int param) { return session_.strategy().read_master(unit, param); });
  }

  // Copies: what a strategy gives may be a view of its memory.
  NamedTensors named(const checkpoint::ReadParam& read) const {
    NamedTensors tensors = checkpoint::to_hf_tensors(session_.chain(), read, &weights_);
    for (auto& [name, tensor] : tensors) tensor = tensor.clone();
    return tensors;
  }

  train::Session& session_;
  TapRecorder& taps_;
  const Batch& batch_;
  const SafetensorsReader& weights_;
  train::Update update_;
  train::StepCounts counts_;
  train::StepSums sums_;
  ModelRun run_;
};

}  // namespace

void TapRecorder::receive(const std::string& name, const at::Tensor& tensor) {
  tensors_.emplace(name, tensor.clone());
}

ModelRun run_model(train::Session& session, TapRecorder& taps, const Batch& batch,
                   const SafetensorsReader& weights, int64_t updates) {
  return Runner(session, taps, batch, weights).run(updates);
}

}  // namespace keyseat::tool::parity
