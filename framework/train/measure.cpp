#include "train/measure.h"

#include <nlohmann/json.hpp>

#include "train/usable_samples.h"

namespace keyseat::train {

using nlohmann::json;

Measured measure(Session& session, Data& data) {
  const EvalSettings& eval = session.config().eval;
  require_usable(data, eval);
  Measured measured;
  if (eval.loss) measured.loss = held_out_loss(session, data, eval.samples);
  if (eval.accuracy) measured.accuracy = evaluate(session, data, eval.max_new_tokens, eval.samples);
  return measured;
}

json measured_json(const Measured& measured, bool examples) {
  json line = json::object();
  if (measured.accuracy) line = eval_json(*measured.accuracy, examples);
  if (measured.loss) {
    line["held_out_loss"] = measured.loss->loss();
    line["held_out_tokens"] = measured.loss->supervised;
    line["held_out_samples"] = measured.loss->samples;
    line["held_out_failed"] = measured.loss->failed;
  }
  return line;
}

std::string measured_text(const Measured& measured) {
  std::string text;
  if (measured.loss)
    text += fmt::format("loss {:.4f} ({} samples)", measured.loss->loss(), measured.loss->samples);
  if (measured.accuracy) {
    if (!text.empty()) text += ", ";
    text += fmt::format("accuracy {:.2f} % ({} of {})", 100 * measured.accuracy->accuracy(),
                        measured.accuracy->correct, measured.accuracy->samples);
  }
  return "held-out " + text;
}

}  // namespace keyseat::train
