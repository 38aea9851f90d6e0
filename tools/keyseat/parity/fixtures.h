// The kinds of recorded folders, one function each. All throw Error (R6, R7) where a folder cannot
// be used at all; what merely differs is a failed check.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "keyseat/context.h"
#include "keyseat/status.h"
#include "tools/keyseat/config_arguments.h"
#include "tools/keyseat/parity/report.h"

namespace keyseat::tool::parity {

struct ParityArguments {
  std::string folder;        // or the file smart_resize.csv
  ConfigArguments config;    // `file` is not used
  std::string model_config;  // Hugging Face config, relative to the folder; empty: config.json
  std::string vocabulary;    // for the cases with the published vocabulary; may be empty
  Kernels kernels = Kernels::kFast;
};

// Finds out what the folder holds and runs it.
Report run_parity(const ParityArguments& arguments);

Report model_parity(const ParityArguments& arguments);         // config.json, *.safetensors
Report images_parity(const ParityArguments& arguments);        // processor.json
Report tokenizer_parity(const ParityArguments& arguments);     // tokenizer.json
Report smart_resize_parity(const ParityArguments& arguments);  // smart_resize.csv

// R7 where it cannot be read, R6 where it is no JSON.
nlohmann::json read_json_file(const std::string& path);
// Weight of the auxiliary loss in a Hugging Face configuration; 0 where the model has none.
double recorded_aux_weight(const std::string& config_file);
// R6: the recording is not what parity can work with.
[[noreturn]] void refuse_recording(const std::string& file, std::string what, std::string why = "");

}  // namespace keyseat::tool::parity
