#include "train/metrics_file.h"

#include <nlohmann/json.hpp>

#include "checkpoint/atomic_file.h"
#include "keyseat/status.h"

namespace keyseat::train {

using nlohmann::json;

MetricsFile::MetricsFile(const std::string& path) : path_(path), stream_(path, std::ios::app) {
  if (!stream_)
    throw Error(
        Problem{Code::kR7File, {path, 0, 0}, "cannot write the metrics", std::strerror(errno), ""});
}

void MetricsFile::write(const json& line) {
  stream_ << line.dump() << std::endl;
  if (!stream_)
    throw Error(Problem{
        Code::kR7File, {path_, 0, 0}, "cannot write the metrics", std::strerror(errno), ""});
}

void MetricsFile::flush_to_disk() { checkpoint::flush_to_disk(path_); }

int64_t keep_steps_before(const std::string& path, int64_t next_step) {
  std::ifstream stream(path);
  std::set<int64_t> steps;
  std::string kept;
  for (std::string text; std::getline(stream, text);) {
    // The last line may be cut.
    const json line = json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!line.is_object() || !line.value("step", json()).is_number_integer()) continue;
    const auto step = line["step"].get<int64_t>();
    if (step >= next_step) continue;
    if (line.contains("loss")) steps.insert(step);
    kept += text + "\n";
  }
  checkpoint::write_text_file(path, kept);
  return next_step - static_cast<int64_t>(steps.size());
}

}  // namespace keyseat::train
