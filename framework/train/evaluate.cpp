#include "train/evaluate.h"

#include <ATen/ops/argmax.h>
#include <ATen/ops/zeros.h>

#include <nlohmann/json.hpp>

#include "comm/gather.h"
#include "keyseat/data/packing.h"
#include "runtime/loggers.h"
#include "train/step_counts.h"

namespace keyseat::train {

namespace {

using nlohmann::json;

constexpr int64_t kGroupTokens = 4096;  // prompts packed together, up to this many tokens

// One prompt being continued.
struct Decoding {
  Sample sample;
  size_t prompt_tokens = 0;
  EvalExample example;
};

std::string trimmed(const std::string& text) {
  const auto begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

// The next token of every prompt: one forward over the packed prompts, arg-max at each last row.
// Nothing where no rank has a prompt left. A rank without any takes part with an empty row.
std::optional<std::vector<int64_t>> next_tokens(Session& session,
                                                const std::vector<Decoding*>& open) {
  data::PackOptions options;
  options.input = session.chain().input();
  options.last_logits = true;
  std::vector<const Sample*> samples;
  for (const Decoding* decoding : open) samples.push_back(&decoding->sample);
  std::vector<Row> rows;
  rows.push_back(data::pack(samples, options));
  const RowCounts counts = gather_counts(rows, session.comm(), session.mesh()).total;
  if (counts.samples == 0) return std::nullopt;

  Executor& executor = session.executor();
  executor.begin_step(0, loss_terms(session.chain(), session.config().loss, counts));
  const at::Tensor next_R = at::zeros({static_cast<int64_t>(open.size())}, at::kLong);
  const auto choose = [&](int64_t, const Executor& done, const Store& store) {
    next_R.copy_(done.tensor(store, "logits").argmax(1));
  };
  session.strategy().schedule({0, std::move(rows), /*training=*/false, choose}, executor);
  // Ranks of one data rank continue the same prompts; those of the last stage have the logits, and
  // a tie that rounding decides must not part the others.
  const Mesh& mesh = session.mesh();
  const int64_t stage = mesh.degree(Axis::kTensor) * mesh.degree(Axis::kContext);
  session.comm()
      .group(mesh.group({Axis::kTensor, Axis::kContext, Axis::kPipeline}))
      .broadcast(next_R, stage * (mesh.degree(Axis::kPipeline) - 1))
      ->wait();
  return std::vector<int64_t>(next_R.data_ptr<int64_t>(),
                              next_R.data_ptr<int64_t>() + next_R.numel());
}

void append_token(Decoding& decoding, int64_t token) {
  decoding.sample.tokens.push_back(token);
  decoding.sample.labels.push_back(-100);
  decoding.sample.token_type.push_back(0);
}

// Continues the prompts of this rank, in step with the other ranks. False where no rank had any.
bool decode_group(Session& session, Data& data, std::vector<Decoding>& group,
                  int64_t max_new_tokens) {
  std::vector<Decoding*> open;
  for (Decoding& decoding : group) open.push_back(&decoding);
  for (int64_t round = 0; round < max_new_tokens; ++round) {
    const auto tokens = next_tokens(session, open);
    if (!tokens && round == 0) return false;
    if (!tokens) break;
    std::vector<Decoding*> still_open;
    for (size_t i = 0; i < open.size(); ++i) {
      if ((*tokens)[i] == data.end_token_id()) {
        open[i]->example.finished = true;
      } else {
        append_token(*open[i], (*tokens)[i]);
        still_open.push_back(open[i]);
      }
    }
    open = std::move(still_open);
  }
  for (Decoding& decoding : group) {
    const std::vector<int64_t> generated(
        decoding.sample.tokens.begin() + static_cast<long>(decoding.prompt_tokens),
        decoding.sample.tokens.end());
    EvalExample& example = decoding.example;
    example.text = data.decode(generated);
    example.correct = example.finished && trimmed(example.text) == trimmed(example.answer);
  }
  return true;
}

// The next prompts of this data rank, up to kGroupTokens; moves `id`.
std::vector<Decoding> next_group(Data& data, int64_t& id, int64_t stride, EvalResult& result) {
  std::vector<Decoding> group;
  int64_t tokens = 0;
  for (; id < result.samples && tokens < kGroupTokens; id += stride) {
    Result<Sample> prompt = data.prompt(id);
    if (!prompt) {
      ++result.failed;
      logger("train")->warn("sample {} cannot be evaluated: {}", id, prompt.problem().text());
      continue;
    }
    Decoding decoding;
    decoding.sample = std::move(prompt).value();
    decoding.prompt_tokens = decoding.sample.tokens.size();
    decoding.example.id = id;
    decoding.example.key = decoding.sample.key;
    decoding.example.answer = decoding.sample.answer;
    tokens += static_cast<int64_t>(decoding.prompt_tokens);
    group.push_back(std::move(decoding));
  }
  return group;
}

json example_json(const EvalExample& example) {
  return {{"key", example.key},
          {"answer", example.answer},
          {"text", example.text},
          {"finished", example.finished},
          {"correct", example.correct}};
}

EvalExample example_of(const json& fields, int64_t id) {
  return {id,
          fields.at("key"),
          fields.at("answer"),
          fields.at("text"),
          fields.at("finished"),
          fields.at("correct")};
}

// The results of all data ranks, on every rank.
void gather_results(Session& session, EvalResult& result) {
  const Mesh& mesh = session.mesh();
  if (mesh.world() == 1) return;
  json own{{"failed", result.failed}, {"examples", json::array()}};
  for (const EvalExample& example : result.examples)
    own["examples"].push_back({example.id, example_json(example)});
  const std::string text =
      own.dump(-1, ' ', /*ensure_ascii=*/false, json::error_handler_t::replace);
  const auto texts = comm::gather_texts(text, session.comm(), mesh.world());
  result.failed = 0;
  result.examples.clear();
  for (int64_t rank = 0; rank < mesh.world(); ++rank) {
    if (!speaks_for_rows(mesh, rank)) continue;
    const json part = json::parse(texts[static_cast<size_t>(rank)]);
    result.failed += part.at("failed").get<int64_t>();
    for (const json& example : part.at("examples"))
      result.examples.push_back(example_of(example.at(1), example.at(0)));
  }
  std::sort(result.examples.begin(), result.examples.end(),
            [](const EvalExample& a, const EvalExample& b) { return a.id < b.id; });
}

}  // namespace

EvalResult evaluate(Session& session, Data& data, int64_t max_new_tokens, int64_t limit) {
  EvalResult result;
  result.samples = limit > 0 ? std::min(limit, data.size()) : data.size();
  int64_t id = session.mesh().data_rank();
  for (;;) {
    std::vector<Decoding> group = next_group(data, id, session.mesh().data_degree(), result);
    if (!decode_group(session, data, group, max_new_tokens)) break;
    for (Decoding& decoding : group) result.examples.push_back(std::move(decoding.example));
  }
  gather_results(session, result);
  result.correct = std::count_if(result.examples.begin(), result.examples.end(),
                                 [](const EvalExample& example) { return example.correct; });
  return result;
}

json eval_json(const EvalResult& result, bool examples) {
  json line{{"accuracy", result.accuracy()},
            {"correct", result.correct},
            {"samples", result.samples},
            {"failed", result.failed}};
  if (examples) {
    for (const EvalExample& example : result.examples)
      line["examples"].push_back(example_json(example));
  }
  return line;
}

}  // namespace keyseat::train
