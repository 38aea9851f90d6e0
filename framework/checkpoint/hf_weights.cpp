// Legend: E experts, O rows out (gate and up, or hidden), I in features.
#include "checkpoint/hf_weights.h"

#include <ATen/ops/empty.h>

namespace keyseat::checkpoint {

namespace {

std::string shape_text(at::IntArrayRef shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

std::string expert_name(const std::string& pattern, int64_t expert) {
  std::string name = pattern;
  const size_t place = name.find("{e}");
  name.replace(place, 3, std::to_string(expert));
  return name;
}

std::vector<int64_t> file_shape(const ParamSpec& param) {
  return param.checkpoint_shape.empty() ? param.shape : param.checkpoint_shape;
}

// Loads one parameter after the other, and keeps book of what the file had.
class Loader {
 public:
  Loader(const SafetensorsReader& file, WeightReport& report) : file_(file), report_(report) {
    for (const std::string& name : file.names()) left_.insert(name);
  }

  at::Tensor take(const std::string& name, const std::vector<int64_t>& shape) {
    if (!file_.has(name)) {
      report_.missing.push_back(name);
      return {};
    }
    left_.erase(name);
    const auto stored = file_.shape(name);
    if (stored != shape) {
      report_.mis_shaped.push_back(name + ": file " + shape_text(stored) + ", model " +
                                   shape_text(shape));
      return {};
    }
    return file_.tensor(name);
  }

  at::Tensor expert_param(const UnitSpec& unit, const ParamSpec& param) {
    const int64_t experts = param.shape[0], rows = param.shape[1], columns = param.shape[2];
    switch (stored_layout(file_, unit, param)) {
      case CheckpointLayout::kPackedTransposed: {
        const at::Tensor packed_EIO = take(param.checkpoint_name, {experts, columns, rows});
        return packed_EIO.defined() ? packed_EIO.transpose(1, 2) : packed_EIO;
      }
      case CheckpointLayout::kPerExpert: {
        const auto parts = static_cast<int64_t>(param.expert_parts.size());
        at::Tensor packed_EOI;
        bool complete = true;
        for (int64_t e = 0; e < experts; ++e) {
          for (int64_t part = 0; part < parts; ++part) {
            const at::Tensor piece =
                take(expert_name(param.expert_parts[part], e), {rows / parts, columns});
            complete = complete && piece.defined();
            if (!piece.defined()) continue;
            if (!packed_EOI.defined()) packed_EOI = at::empty(param.shape, piece.options());
            packed_EOI.select(0, e).narrow(0, part * (rows / parts), rows / parts).copy_(piece);
          }
        }
        return complete ? packed_EOI : at::Tensor();
      }
      default:
        return take(param.checkpoint_name, param.shape);
    }
  }

  // A tied head may stand in the file beside its owner; it says nothing new.
  void forgive(const std::string& name) { left_.erase(name); }

  void finish() { report_.unexpected.assign(left_.begin(), left_.end()); }

 private:
  const SafetensorsReader& file_;
  WeightReport& report_;
  std::set<std::string> left_;
};

void list(std::string& text, const char* title, const std::vector<std::string>& names) {
  constexpr size_t kShown = 20;
  if (names.empty()) return;
  text += std::to_string(names.size()) + " " + title + ":";
  for (size_t i = 0; i < std::min(kShown, names.size()); ++i) text += "\n  " + names[i];
  if (names.size() > kShown) text += "\n  and " + std::to_string(names.size() - kShown) + " more";
  text += "\n";
}

}  // namespace

std::string WeightReport::text() const {
  std::string text;
  list(text, "missing", missing);
  list(text, "unexpected", unexpected);
  list(text, "mis-shaped", mis_shaped);
  return text;
}

CheckpointLayout stored_layout(const SafetensorsReader& file, const UnitSpec& unit,
                               const ParamSpec& param) {
  if (param.domain != ParamDomain::kExpert) return CheckpointLayout::kPlain;
  if (!file.has(param.checkpoint_name)) {
    const bool per_expert =
        !param.expert_parts.empty() && file.has(expert_name(param.expert_parts[0], 0));
    return per_expert ? CheckpointLayout::kPerExpert : param.checkpoint_layout;
  }
  // Both packed spellings share their names. A square matrix fits both, so every expert matrix of
  // the unit is asked.
  for (const ParamSpec& other : unit.params) {
    if (other.domain != ParamDomain::kExpert || !file.has(other.checkpoint_name)) continue;
    if (other.shape[1] == other.shape[2]) continue;
    const auto stored = file.shape(other.checkpoint_name);
    if (stored == other.shape) return CheckpointLayout::kPacked;
    if (stored == std::vector<int64_t>{other.shape[0], other.shape[2], other.shape[1]}) {
      return CheckpointLayout::kPackedTransposed;
    }
  }
  return param.checkpoint_layout == CheckpointLayout::kPerExpert ? CheckpointLayout::kPacked
                                                                 : param.checkpoint_layout;
}

WeightReport load_hf_weights(const Chain& chain, const SafetensorsReader& file,
                             const WriteParam& write) {
  WeightReport report;
  Loader loader(file, report);
  for (int u = 0; u < chain.size(); ++u) {
    const UnitSpec& unit = chain.units()[u].unit->spec();
    for (int p = 0; p < static_cast<int>(unit.params.size()); ++p) {
      const ParamSpec& param = unit.params[p];
      if (param.checkpoint_name.empty()) {
        if (!param.tie.empty()) loader.forgive(param.name);
        continue;
      }
      at::Tensor value = param.domain == ParamDomain::kExpert
                             ? loader.expert_param(unit, param)
                             : loader.take(param.checkpoint_name, file_shape(param));
      if (!value.defined()) continue;
      write(u, p, value.reshape(param.shape).to(at::kFloat));
      ++report.loaded;
    }
  }
  loader.finish();
  return report;
}

std::vector<std::pair<std::string, at::Tensor>> to_hf_tensors(const Chain& chain,
                                                              const ReadParam& read,
                                                              const SafetensorsReader* like) {
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  for (int u = 0; u < chain.size(); ++u) {
    const UnitSpec& unit = chain.units()[u].unit->spec();
    for (int p = 0; p < static_cast<int>(unit.params.size()); ++p) {
      const ParamSpec& param = unit.params[p];
      if (param.checkpoint_name.empty()) continue;
      const at::Tensor value = read(u, p);
      if (!value.defined()) continue;
      const CheckpointLayout layout =
          like != nullptr ? stored_layout(*like, unit, param) : param.checkpoint_layout;
      if (layout == CheckpointLayout::kPerExpert) {
        const auto parts = static_cast<int64_t>(param.expert_parts.size());
        for (int64_t e = 0; e < param.shape[0]; ++e) {
          for (int64_t part = 0; part < parts; ++part) {
            const int64_t rows = param.shape[1] / parts;
            tensors.push_back({expert_name(param.expert_parts[part], e),
                               value.select(0, e).narrow(0, part * rows, rows)});
          }
        }
      } else if (layout == CheckpointLayout::kPackedTransposed) {
        tensors.push_back({param.checkpoint_name, value.transpose(1, 2)});
      } else {
        tensors.push_back({param.checkpoint_name, value.reshape(file_shape(param))});
      }
    }
  }
  return tensors;
}

}  // namespace keyseat::checkpoint
