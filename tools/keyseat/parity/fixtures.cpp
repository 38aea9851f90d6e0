#include "tools/keyseat/parity/fixtures.h"

#include <nlohmann/json.hpp>

#include "base/json_text.h"

namespace keyseat::tool::parity {

namespace fs = std::filesystem;

Report run_parity(const ParityArguments& arguments) {
  const fs::path folder = arguments.folder;
  const auto holds = [&](const char* name) { return fs::exists(folder / name); };
  if (fs::is_regular_file(folder) && folder.extension() == ".csv") {
    return smart_resize_parity(arguments);
  }
  if (!arguments.model_config.empty() || holds("config.json") || holds("config.published.json")) {
    return model_parity(arguments);
  }
  if (holds("processor.json")) return images_parity(arguments);
  if (holds("tokenizer.json")) return tokenizer_parity(arguments);
  if (holds("smart_resize.csv")) return smart_resize_parity(arguments);
  refuse_recording(arguments.folder, "there is nothing to compare with",
                   "a recorded folder holds config.json, processor.json, tokenizer.json or "
                   "smart_resize.csv");
}

nlohmann::json read_json_file(const std::string& path) {
  std::ifstream stream(path);
  if (!stream) {
    throw Error(
        Problem{Code::kR7File, {path, 0, 0}, "cannot read the file", std::strerror(errno), ""});
  }
  const std::string text((std::istreambuf_iterator<char>(stream)), {});
  return parse_json(text, path).value_or_throw();
}

double recorded_aux_weight(const std::string& config_file) {
  const nlohmann::json root = read_json_file(config_file);
  const char* key = "router_aux_loss_coef";
  for (const nlohmann::json* place :
       {root.contains("text_config") ? &root.at("text_config") : &root, &root}) {
    if (place->contains(key) && place->at(key).is_number()) return place->at(key).get<double>();
  }
  return 0;
}

void refuse_recording(const std::string& file, std::string what, std::string why) {
  throw Error(Problem{Code::kR6Data,
                      {file, 0, 0},
                      std::move(what),
                      std::move(why),
                      "Give a folder as the reference generator writes it."});
}

}  // namespace keyseat::tool::parity
