#include "train/loop.h"

#include <nlohmann/json.hpp>

#include "comm/gather.h"
#include "runtime/loggers.h"
#include "train/describe_step.h"
#include "train/dispatch_report.h"
#include "train/find_not_finite.h"
#include "train/lr_schedule.h"
#include "train/step_counts.h"
#include "train/step_sums.h"
#include "train/stop_signal.h"
#include "train/usable_samples.h"

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
      update_(session.chain(), session.strategy(), session.optimizer(), session.config().factors),
      saver_(session, update_),
      labels_(workload_labels(session)) {
  if (session.config().eval.every > 0) {
    eval_data_ = session.open_data(session.config().eval.data, /*training=*/false);
    require_usable(*eval_data_, session.config().eval);  // not only at the first evaluation
  }
}

std::optional<StepMetrics> Loop::step(int64_t index) {
  const RunConfig& config = session_.config();
  Strategy& strategy = session_.strategy();
  Executor& executor = session_.executor();
  StepMetrics metrics;
  metrics.step = index;
  StepSeconds seconds;
  double mark = now();
  const double begin = mark - report_seconds_;
  const auto lap = [&] {
    const double before = std::exchange(mark, now());
    return mark - before;
  };

  // 1. Batch: this rank's rows of the step, decoded and packed ahead of time.
  metrics.cursor = session_.data().cursor();
  std::vector<Row> rows = session_.data().next_step();
  strategy.pad(rows);
  seconds.data = lap();

  // 2. Counts: every size of the step on every rank; all loss terms get their global normalisers.
  const StepCounts counts = gather_counts(rows, session_.comm(), session_.mesh(), stop_requested());
  if (counts.stop) return std::nullopt;
  failure_limit_.add(counts.total, session_.data());
  const auto terms = loss_terms(session_.chain(), config.loss, counts.total);
  executor.begin_step(index, terms);
  StepNotes notes =
      gather_notes(own_notes(rows, session_.chain().input(), session_.data(), config.log.samples),
                   session_.comm(), session_.mesh());
  lap();

  // 3. Chain: forward and backward of every row.
  strategy.schedule({index, std::move(rows), /*training=*/true}, executor);

  // 4. Finish: open reductions, norm and clip, optimizer.
  strategy.finish();
  seconds.chain = lap();
  metrics.norms = global_norms(strategy, session_.mesh(), session_.comm(), logs_step(index));
  metrics.grad_norm = metrics.norms.gradient;
  metrics.clip = clip_coefficient(metrics.grad_norm, config.clip_norm);
  seconds.norm = lap();
  metrics.lr = session_.optimizer().base_lr() * schedule_factor(config.schedule, index);
  metrics.counts = counts.total;
  const StepSums sums = sum_over_ranks(executor, session_.comm(), session_.facts().world);
  for (const auto& [name, sum] : sums.losses) {
    metrics.terms[name] = sum / terms.at(name).normaliser;
    metrics.loss += terms.at(name).weight * metrics.terms[name];
  }
  finite_or_throw(metrics, terms);
  lap();
  update_.step(metrics.lr, metrics.clip, counts.total);
  seconds.optimizer = lap();
  describe_outcome(session_.chain(), sums, std::move(notes), start_.failures, metrics);
  metrics.dispatched =
      gather_report(session_.dispatcher(), session_.comm(), session_.facts().world);
  seconds.total = now() - begin;
  set_seconds(session_.chain(), executor.seconds(), seconds, metrics);
  return metrics;
}

void Loop::resume() {
  start_ = saver_.restore();
  int64_t failed = 0;
  for (const auto& [reason, failure] : start_.failures) failed += failure.first;
  failure_limit_.restore(session_.data().cursor(), failed);
  if (session_.facts().rank != 0 || run_dir_.empty()) return;
  const std::string path = run_dir_ + "/metrics.jsonl";
  const int64_t missing = keep_steps_before(path, start_.next_step);
  if (missing > 0) logger("train")->warn("{} lacks {} of the steps done", path, missing);
}

LoopResult Loop::run() {
  const RunConfig& config = session_.config();
  LoopResult result;
  result.metrics = run_dir_ + "/metrics.jsonl";
  if (session_.facts().rank == 0) file_.emplace(result.metrics);
  const double begin = now();
  for (result.steps = start_.next_step; result.steps < config.run.steps; ++result.steps) {
    const int64_t cursor = session_.data().cursor();
    const std::optional<StepMetrics> metrics = step(result.steps);
    if (!metrics) {
      save(result.steps, cursor);
      result.stopped = true;
      break;
    }
    result.last = *metrics;
    report(*metrics);
    evaluate_when_due(result.steps);
    if (saver_.due(result.steps)) save(result.steps + 1, session_.data().cursor());
  }
  result.seconds = now() - begin;
  if (result.stopped) return result;
  failure_limit_.finish(session_.data());
  result.weights = run_dir_ + "/final.safetensors";
  session_.save_weights(result.weights);
  return result;
}

void Loop::save(int64_t next_step, int64_t cursor) {
  if (file_) file_->flush_to_disk();
  saver_.save(next_step, cursor, failures_);
}

void Loop::finite_or_throw(const StepMetrics& metrics,
                           const std::map<std::string, LossTerm>& terms) {
  const bool finite = std::isfinite(metrics.loss) && std::isfinite(metrics.grad_norm);
  if (!comm::any_rank(!finite, session_.comm(), session_.facts().world)) return;
  std::string text;
  for (const auto& [name, value] : metrics.terms) text += fmt::format(" {} {}", name, value);
  throw Error(Problem{
      Code::kR5Numeric,
      {},
      fmt::format("step {} gave loss {} (terms:{}) and gradient norm {}", metrics.step,
                  metrics.loss, text, metrics.grad_norm),
      "a loss or gradient is not finite; " +
          first_not_finite(session_, metrics.step, metrics.cursor, terms),
      "No parameter was changed by this step. Lower the learning rate, raise warm-up, or look at "
      "these samples; --resume goes on from the last checkpoint."});
}

bool Loop::logs_step(int64_t index) const {
  const RunConfig& config = session_.config();
  return index == 0 || index + 1 == config.run.steps || (index + 1) % config.log.every == 0;
}

void Loop::report(const StepMetrics& metrics) {
  const double begin = now();
  failures_ = metrics.failures;
  recent_seconds_.push_back(metrics.seconds);
  if (recent_seconds_.size() > kRecentSteps) recent_seconds_.pop_front();
  if (file_) file_->write(metrics_json(metrics, labels_));
  if (file_ && logs_step(metrics.step)) {
    logger("train")->info("{}", progress_line(metrics, labels_, session_.config().run.steps,
                                              median(recent_seconds_)));
  }
  report_seconds_ = now() - begin;
}

void Loop::evaluate_when_due(int64_t index) {
  const EvalSettings& eval = session_.config().eval;
  if (eval.every == 0 || (index + 1) % eval.every != 0) return;
  const Measured measured = measure(session_, *eval_data_);
  if (!file_) return;
  nlohmann::json line = measured_json(measured, /*examples=*/false);
  line["step"] = index;
  if (labels_.synthetic) line["notice"] = kSyntheticNotice;
  file_->write(line);
  logger("train")->info("step {}: {}", index + 1, measured_text(measured));
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
