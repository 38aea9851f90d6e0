// report.html: one self-contained page about a run.
#pragma once

#include <string>

namespace keyseat::train {

// Reads metrics.jsonl and config.toml of `run_dir`; writes loss, throughput and component plots.
// Throws Error R7 where a file cannot be read or written.
void write_report(const std::string& run_dir, const std::string& path);

}  // namespace keyseat::train
