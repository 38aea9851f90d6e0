#include "train/loop.h"

#include <nlohmann/json.hpp>

#include "keyseat/memory.h"
#include "runtime/loggers.h"
#include "train/dispatch_report.h"
#include "train/lr_schedule.h"
#include "train/step_counts.h"

namespace keyseat::train {

namespace {

constexpr size_t kRecentSteps = 20;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double median(std::deque<double> values) {
  if (values.empty()) return 0;
  std::nth_element(values.begin(), values.begin() + static_cast<long>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

}  // namespace

Loop::Loop(Session& session, std::string run_dir)
    : session_(session),
      run_dir_(std::move(run_dir)),
      update_(session.chain(), session.strategy(), session.optimizer()),
      labels_(workload_labels(session)) {
  if (!run_dir_.empty()) file_.emplace(run_dir_ + "/metrics.jsonl");
  if (session.config().eval.every > 0)
    eval_data_ = session.open_data(session.config().eval.data, /*training=*/false);
}

StepMetrics Loop::step(int64_t index) {
  const RunConfig& config = session_.config();
  Strategy& strategy = session_.strategy();
  Executor& executor = session_.executor();
  StepMetrics metrics;
  metrics.step = index;
  const double begin = now();

  // 1. Batch: this rank's rows of the step, decoded and packed ahead of time.
  std::vector<Row> rows = session_.data().next_step();
  const double batch_ready = now();

  // 2. Counts: every size of the step on every rank; all loss terms get their global normalisers.
  const StepCounts counts = gather_counts(rows, session_.comm(), session_.facts().world);
  const auto terms = loss_terms(session_.chain(), config.loss, counts.total);
  executor.begin_step(index, terms);

  // 3. Chain: forward and backward of every row.
  strategy.schedule({index, std::move(rows), /*training=*/true}, executor);

  // 4. Finish: open reductions, norm and clip, optimizer.
  strategy.finish();
  const double finish = now();
  metrics.grad_norm = global_norm(strategy, session_.mesh(), session_.comm());
  metrics.clip = clip_coefficient(metrics.grad_norm, config.clip_norm);
  metrics.lr = session_.optimizer().base_lr() * schedule_factor(config.schedule, index);
  metrics.counts = counts.total;
  for (const auto& [name, sum] : executor.losses()) {
    metrics.terms[name] = sum / terms.at(name).normaliser;
    metrics.loss += terms.at(name).weight * metrics.terms[name];
  }
  finite_or_throw(metrics);
  update_.step(metrics.lr, metrics.clip, counts.total);

  metrics.seconds = now() - begin;
  metrics.components = component_seconds(session_.chain(), executor.seconds(), now() - finish,
                                         batch_ready - begin, metrics.seconds);
  for (const auto& [layer, stats] : executor.router_stats()) {
    const at::Tensor counts_E = stats.select(0, 1).to(at::kLong).contiguous();
    metrics.expert_load[layer].assign(counts_E.data_ptr<int64_t>(),
                                      counts_E.data_ptr<int64_t>() + counts_E.numel());
  }
  metrics.dispatched =
      gather_report(session_.dispatcher(), session_.comm(), session_.facts().world);
  metrics.failures = session_.data().failures();
  metrics.peak_memory_bytes = static_cast<double>(memory_statistics().peak);
  return metrics;
}

LoopResult Loop::run() {
  const RunConfig& config = session_.config();
  LoopResult result;
  const double begin = now();
  for (int64_t index = 0; index < config.run.steps; ++index) {
    result.last = step(index);
    report(result.last);
    evaluate_when_due(index);
  }
  result.steps = config.run.steps;
  result.seconds = now() - begin;
  result.metrics = run_dir_ + "/metrics.jsonl";
  result.weights = run_dir_ + "/final.safetensors";
  session_.save_weights(result.weights);
  return result;
}

void Loop::finite_or_throw(const StepMetrics& metrics) const {
  if (std::isfinite(metrics.loss) && std::isfinite(metrics.grad_norm)) return;
  std::string terms;
  for (const auto& [name, value] : metrics.terms) terms += fmt::format(" {} {}", name, value);
  throw Error(Problem{Code::kR5Numeric,
                      {},
                      fmt::format("step {} gave loss {} (terms:{}) and gradient norm {}",
                                  metrics.step, metrics.loss, terms, metrics.grad_norm),
                      "a loss or gradient is not finite; no parameter was changed by this step",
                      "Lower the learning rate, raise warm-up, or look at the data of this step."});
}

void Loop::report(const StepMetrics& metrics) {
  file_->write(metrics_json(metrics, labels_));
  recent_seconds_.push_back(metrics.seconds);
  if (recent_seconds_.size() > kRecentSteps) recent_seconds_.pop_front();
  const RunConfig& config = session_.config();
  const bool last = metrics.step + 1 == config.run.steps;
  if (last || metrics.step == 0 || (metrics.step + 1) % config.log.every == 0) {
    logger("train")->info(
        "{}", progress_line(metrics, labels_, config.run.steps, median(recent_seconds_)));
  }
}

void Loop::evaluate_when_due(int64_t index) {
  const EvalSettings& eval = session_.config().eval;
  if (eval.every == 0 || (index + 1) % eval.every != 0) return;
  const EvalResult result = evaluate(session_, *eval_data_, eval.max_new_tokens, eval.samples);
  nlohmann::json line = eval_json(result, /*examples=*/false);
  line["step"] = index;
  if (labels_.synthetic) line["notice"] = kSyntheticNotice;
  file_->write(line);
  logger("train")->info("step {}: held-out accuracy {:.4f} ({} of {})", index + 1,
                        result.accuracy(), result.correct, result.samples);
}

WorkloadLabels workload_labels(Session& session) {
  const RunConfig& config = session.config();
  WorkloadLabels labels;
  labels.freeze = config.model.freeze;
  labels.precision = config.run.precision == Precision::kBf16 ? "bf16" : "fp32";
  labels.recompute = config.recompute.name;
  labels.routing = routing_of(session.chain());
  labels.synthetic = session.data().synthetic();
  return labels;
}

}  // namespace keyseat::train
