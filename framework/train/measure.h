// What an evaluation measures, as [eval] asks for it, and how it is told.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "train/evaluate.h"
#include "train/held_out_loss.h"

namespace keyseat::train {

struct Measured {
  std::optional<HeldOutLoss> loss;
  std::optional<EvalResult> accuracy;
};

Measured measure(Session& session, Data& data);

// held_out_loss, held_out_tokens; accuracy, correct, samples, failed.
nlohmann::json measured_json(const Measured& measured, bool examples);
// "held-out loss 0.1234 (360 samples), accuracy 97.50 % (351 of 360)"
std::string measured_text(const Measured& measured);

}  // namespace keyseat::train
