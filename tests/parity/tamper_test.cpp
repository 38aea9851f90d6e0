// One changed value anywhere in a recording is found and named.
#include <ATen/TensorOperators.h>

#include "tests/parity/command.h"

using namespace keyseat_parity;

namespace {

// Changes one element of a real token: another integer, or the sign of a value.
class Flipper {
 public:
  explicit Flipper(const fs::path& folder) {
    const auto inputs =
        keyseat::SafetensorsReader::open((folder / "inputs.safetensors").string()).value_or_throw();
    mask_BS_ = inputs.tensor("attention_mask").clone();
  }

  void flip(const std::string& name, at::Tensor& tensor) const {
    at::Tensor flat = real_part(name, tensor).flatten();  // copies where it is not contiguous
    const at::Tensor size_N = flat.to(at::kDouble).abs();
    // Not the largest one, which would be the easiest to see: the middle of the upper half.
    const int64_t place = size_N.argsort()[size_N.numel() * 3 / 4].item<int64_t>();
    const double value = size_N[place].item<double>(), largest = size_N.max().item<double>();
    // A change that rounding cannot explain; tensors that are zero nearly everywhere get a one.
    const bool flips = name.starts_with("grad.") ? value > 1e-3 * largest : value > 1e-4;
    if (tensor.scalar_type() != at::kLong && flips) {
      flat[place] *= -1;
    } else {
      flat[place] += 1;
    }
    write_back(name, tensor, flat);
  }

 private:
  bool per_row(const std::string& name) const {
    return !name.starts_with("grad.") && !name.starts_with("vision") && !name.ends_with("loss") &&
           name != "rope_deltas";
  }
  // Index of the last real token of the first row: real whatever the padding.
  int64_t token() const { return mask_BS_[0].nonzero().max().item<int64_t>(); }

  at::Tensor view(const std::string& name, at::Tensor& tensor) const {
    if (name == "per_token_loss") return tensor[0].narrow(0, 0, token() + 1);
    if (!per_row(name)) return tensor;
    if (name == "position_ids")
      return tensor.dim() == 3 ? tensor[0][0].narrow(0, token(), 1)
                               : tensor[0].narrow(0, token(), 1);
    return name.find(".router_") != std::string::npos ? tensor[token()] : tensor[0][token()];
  }
  at::Tensor real_part(const std::string& name, at::Tensor& tensor) const {
    return view(name, tensor).clone();
  }
  void write_back(const std::string& name, at::Tensor& tensor, const at::Tensor& flat) const {
    at::Tensor target = view(name, tensor);
    target.copy_(flat.view(target.sizes()));
  }

  at::Tensor mask_BS_;
};

// What parity says on stderr of a folder that it refuses.
std::string refusal(const fs::path& folder) {
  const auto bin = fs::canonical("/proc/self/exe").parent_path() / "keyseat";
  const std::string command =
      quoted(bin) + " parity " + quoted(folder) + " --json 2>&1 >/dev/null; echo \" status $?\"";
  FILE* pipe = popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::string text;
  char buffer[1 << 12];
  for (size_t n = 0; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;) text.append(buffer, n);
  pclose(pipe);
  return text;
}

}  // namespace

TEST_CASE("tamper: one changed value of every output tensor fails its check by name") {
  for (const char* name : kCases) {
    CAPTURE(name);
    const Copy copy(kReference / name);
    const Flipper flipper(copy.path());
    std::vector<std::string> changed;
    copy.rewrite("outputs.safetensors", [&](const std::string& output, at::Tensor& tensor) {
      flipper.flip(output, tensor);
      changed.push_back(output);
    });
    const Outcome outcome = run_parity(copy.path());
    CHECK(outcome.status == 1);
    CHECK(changed.size() > 80);
    for (const std::string& output : changed) CHECK_MESSAGE(!outcome.passed(output), output);
  }
}

TEST_CASE("tamper: one changed weight is named and changes what is computed") {
  for (const char* name : {"qwen3_vl_moe", "qwen3_moe", "qwen3_vl_dense"}) {
    CAPTURE(name);
    const Copy copy(kReference / name);
    std::vector<std::string> changed;
    copy.rewrite("model.safetensors", [&](const std::string& weight, at::Tensor& tensor) {
      tensor.flatten()[tensor.numel() / 2] *= -1;
      changed.push_back(weight);
    });
    const Outcome all = run_parity(copy.path());
    CHECK(all.status == 1);
    for (const std::string& weight : changed) {
      CHECK_MESSAGE(!all.passed("model.safetensors: sum of " + weight), weight);
    }
  }
  const Copy copy(kReference / "qwen3_vl_moe");
  const std::string one = "model.visual.blocks.1.attn.qkv.weight";
  copy.rewrite("model.safetensors", [&](const std::string& weight, at::Tensor& tensor) {
    if (weight == one) tensor.flatten()[5] *= -1;
  });
  const Outcome outcome = run_parity(copy.path());
  CHECK(outcome.status == 1);
  CHECK_FALSE(outcome.passed("model.safetensors: sum of " + one));
  CHECK(outcome.passed("vision.block.0"));
  CHECK_FALSE(outcome.passed("vision.block.1"));
  CHECK_FALSE(outcome.passed("grad." + one));
}

TEST_CASE("tamper: a missing, an unknown and a NaN tensor fail") {
  const Copy copy(kReference / "qwen3_moe_sparse_step");
  copy.rewrite("outputs.safetensors", [](const std::string& name, at::Tensor& tensor) {
    if (name == "layer.1.mlp" || name == "grad.model.norm.weight") tensor = at::Tensor();
    if (name == "final_norm") tensor[0][3][7] = std::nan("");
  });
  const Outcome outcome = run_parity(copy.path());
  CHECK(outcome.status == 1);
  CHECK(outcome.failed() ==
        std::vector<std::string>{"final_norm", "grad.model.norm.weight", "layer.1.mlp"});

  const Copy second(kReference / "qwen3_moe_sparse_step");
  std::vector<std::pair<std::string, at::Tensor>> more;
  const std::string file = second.path() / "outputs.safetensors";
  {
    const auto reader = keyseat::SafetensorsReader::open(file).value_or_throw();
    for (const std::string& name : reader.names())
      more.emplace_back(name, reader.tensor(name).clone());
  }
  more.emplace_back("layer.9.mlp", more.front().second);
  keyseat::write_safetensors(file, more);
  const Outcome unknown = run_parity(second.path());
  CHECK(unknown.status == 1);
  CHECK(unknown.failed().empty());
  CHECK(unknown.report.at("not_compared").at(0).at("name") == "layer.9.mlp");
}

TEST_CASE("tamper: a batch that cannot be is refused with the place") {
  const std::tuple<const char*, std::function<void(at::Tensor&)>, const char*> changes[] = {
      {"input_ids", [](at::Tensor& t) { t[0][3].fill_(1 << 30); },
       "input_ids [0, 3] is 1073741824"},
      {"input_ids", [](at::Tensor& t) { t[0][3].fill_(-1); }, "input_ids [0, 3] is -1"},
      {"labels", [](at::Tensor& t) { t[1][4].fill_(100000); }, "labels [1, 4] is 100000"},
      {"labels", [](at::Tensor& t) { t[1][4].fill_(-7); }, "labels [1, 4] is -7"},
      {"mm_token_type_ids", [](at::Tensor& t) { t[0][0].fill_(257); },
       "mm_token_type_ids [0, 0] is 257"},
      // The sum of the patches stays the same.
      {"image_grid_thw",
       [](at::Tensor& t) {
         t[0][0] += 1000 * t[1][1] * t[1][2];
         t[1][0] -= 1000 * t[0][1] * t[0][2];
       },
       "image_grid_thw: a grid of "},
  };
  for (const auto& [tensor, change, text] : changes) {
    CAPTURE(text);
    const Copy copy(kReference / "qwen3_vl_moe");
    copy.rewrite("inputs.safetensors", [&, name = tensor](const std::string& input, at::Tensor& t) {
      if (input == name) change(t);
    });
    const std::string said = refusal(copy.path());
    CAPTURE(said);
    CHECK(said.find(text) != std::string::npos);
    CHECK(said.find("inputs.safetensors: R6 ") != std::string::npos);
    CHECK(said.find(" status 4") != std::string::npos);
  }
}

TEST_CASE("tamper: a changed figure of results.json and another config fail") {
  const Copy copy(kReference / "qwen3_moe_sparse_step");
  const fs::path file = copy.path() / "results.json";
  json results = json::parse(std::ifstream(file));
  results["steps"][2]["grad_norm"] = results["steps"][2]["grad_norm"].get<double>() * 1.001;
  auto& sums = results["parameters_after_steps"]["model.norm.weight"];
  sums["delta_abs_sum"] = sums["delta_abs_sum"].get<double>() * 1.01;
  results["tokens_per_expert_by_layer"]["3"][0] = 9;
  std::ofstream(file) << results;
  CHECK(run_parity(copy.path()).failed() ==
        std::vector<std::string>{"results.parameters_after_steps.model.norm.weight.delta_abs_sum",
                                 "results.steps.2.grad_norm",
                                 "results.tokens_per_expert_by_layer.3"});

  const Copy second(kReference / "qwen3_vl_moe");
  const fs::path published = second.path() / "config.published.json";
  json config = json::parse(std::ifstream(published));
  config["text_config"]["num_experts_per_tok"] = 3;
  std::ofstream(published) << config;
  const Outcome outcome = run_parity(second.path());
  CHECK(outcome.failed() == std::vector<std::string>{"config.published.json against config.json"});
}

TEST_CASE("tamper: images and texts") {
  const Copy copy("tests/fixtures/images");
  copy.rewrite("rgba.safetensors", [](const std::string& name, at::Tensor& tensor) {
    if (name == "resized_rgb" || name == "pixel_values") tensor[3][4] += 1;
  });
  CHECK(run_parity(copy.path()).failed() ==
        std::vector<std::string>{"rgba.png (small) pixel_values", "rgba.png (small) resized_rgb"});

  const Copy text("tests/fixtures/tokenizer");
  const fs::path file = text.path() / "text_cases.jsonl";
  std::vector<std::string> lines;
  std::ifstream stream(file);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  json third = json::parse(lines.at(2));
  third["ids"].push_back(0);
  lines.at(2) = third.dump();
  std::ofstream out(file);
  for (const std::string& line : lines) out << line << "\n";
  out.close();
  const Outcome outcome = run_parity(text.path());
  CHECK(outcome.status == 1);
  CHECK_FALSE(outcome.passed("text_cases.jsonl 3 ids"));
  CHECK(outcome.passed("text_cases.jsonl 2 ids"));
}
