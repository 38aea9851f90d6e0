#include "train/find_not_finite.h"

#include <ATen/ops/isfinite.h>

#include "train/step_counts.h"

namespace keyseat::train {

namespace {

constexpr size_t kShownSamples = 8;

struct Finding {
  std::string text;
  int64_t first_row = -1;  // of dim 0, where the tensor has one row per token
};

// Looks at everything that passes the borders of units. Only the first finding is kept; the
// schedule runs to its end, since other ranks take part in it.
class Watcher final : public UnitEvents, public TapSink {
 public:
  Watcher(UnitEvents& inner, const Chain& chain) : inner_(inner), chain_(chain) {}

  const std::optional<Finding>& found() const { return found_; }
  // Where several ranks share a row, a row of a tensor does not tell the sample.
  void begin_row(const RowFacts& facts, const Mesh& mesh) {
    const bool shared = mesh.degree(Axis::kContext) * mesh.degree(Axis::kTensor) > 1;
    tokens_ = shared ? -1 : facts.row_tokens();
  }

  const Params& before_forward(int unit, bool training) override {
    params_ = &inner_.before_forward(unit, training);
    phase_ = "forward";
    for (size_t i = 0; i < params_->size(); ++i)
      look("parameter " + chain_.units()[unit].param_names[i], params_->at(i).value().detach());
    return *params_;
  }
  void after_forward(int unit) override { inner_.after_forward(unit); }
  const Params& before_backward(int unit) override {
    params_ = &inner_.before_backward(unit);
    phase_ = "backward";
    return *params_;
  }
  void after_backward(int unit) override {
    for (size_t i = 0; i < params_->size(); ++i) {
      const ParamHandle& handle = params_->at(i);
      const at::Tensor& gradient = handle.sink().defined() ? handle.sink() : handle.value().grad();
      look("gradient of parameter " + chain_.units()[unit].param_names[i], gradient);
    }
    inner_.after_backward(unit);
  }

  bool wants(const std::string&) const override { return !found_; }
  void receive(const std::string& name, const at::Tensor& tensor) override {
    const bool forward = std::string_view(phase_) == "forward";
    look(forward ? "tensor " + name : "gradient " + name, tensor);
  }

  void look(const std::string& name, const at::Tensor& tensor) {
    if (found_ || !tensor.defined() || !tensor.is_floating_point() || tensor.numel() == 0) return;
    const at::Tensor bad = at::isfinite(tensor).logical_not().to(at::kCPU);
    const auto count = bad.sum().item<int64_t>();
    if (count == 0) return;
    const auto first = bad.reshape({-1}).to(at::kByte).argmax().item<int64_t>();
    Finding finding;
    finding.text = fmt::format("{} [{}] in {}: {} of {} elements are not finite, the first is {}",
                               name, fmt::join(tensor.sizes(), ", "), phase_, count, tensor.numel(),
                               tensor.reshape({-1}).select(0, first).item<double>());
    if (tensor.dim() > 0 && tensor.size(0) == tokens_)
      finding.first_row = first / (tensor.numel() / tensor.size(0));
    found_ = std::move(finding);
  }

 private:
  UnitEvents& inner_;
  const Chain& chain_;
  const Params* params_ = nullptr;
  const char* phase_ = "forward";
  int64_t tokens_ = 0;  // of the row; -1: unknown
  std::optional<Finding> found_;
};

std::string sample_text(Data& data, int64_t id) {
  const Result<Sample> sample = data.sample(id);
  return sample ? fmt::format("{} ({})", id, sample.value().key) : fmt::format("{}", id);
}

// The sample that a packed row index belongs to, or all samples of the row.
std::string samples_text(Data& data, const RowFacts& facts, const Finding& finding) {
  for (size_t s = 0; finding.first_row >= 0 && s < facts.sample_ids.size(); ++s) {
    if (facts.cu_seqlens[s] <= finding.first_row && finding.first_row < facts.cu_seqlens[s + 1])
      return fmt::format(", at row {} of sample {}", finding.first_row,
                         sample_text(data, facts.sample_ids[s]));
  }
  std::string text = "; samples of the row:";
  const size_t shown = std::min(kShownSamples, facts.sample_ids.size());
  for (size_t s = 0; s < shown; ++s)
    text += (s > 0 ? ", " : " ") + sample_text(data, facts.sample_ids[s]);
  if (shown < facts.sample_ids.size())
    text += fmt::format(" and {} more", facts.sample_ids.size() - shown);
  return text;
}

}  // namespace

std::string first_not_finite(Session& session, int64_t step, int64_t cursor,
                             const std::map<std::string, LossTerm>& terms) {
  session.data().seek(cursor);
  std::vector<Row> rows = session.data().next_step();
  gather_counts(rows, session.comm(), session.mesh());
  Watcher watcher(session.strategy(), session.chain());
  ExecutorServices services = session.services();
  services.events = &watcher;
  services.taps = &watcher;
  Executor executor(session.chain(), services);
  std::string text;
  for (size_t m = 0; m < rows.size(); ++m) {
    const RowFacts facts = rows[m].facts;
    watcher.begin_row(facts, session.mesh());
    for (const auto& [name, tensor] : rows[m].tensors) watcher.look("batch tensor " + name, tensor);
    std::vector<Row> one;
    one.push_back(std::move(rows[m]));
    executor.begin_step(step, terms);
    session.strategy().schedule({step, std::move(one), /*training=*/true, {}}, executor);
    session.strategy().finish();
    if (text.empty() && watcher.found()) {
      text =
          fmt::format("the first in a replay is, in micro-batch {}, {}{}", m, watcher.found()->text,
                      samples_text(session.data(), facts, *watcher.found()));
    }
  }
  if (!text.empty()) return text;
  return "a replay of the step on this rank found every tensor finite: look at other ranks, or at "
         "the hardware";
}

}  // namespace keyseat::train
