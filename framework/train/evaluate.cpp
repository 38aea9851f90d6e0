#include "train/evaluate.h"

#include <nlohmann/json.hpp>

#include "keyseat/data/packing.h"
#include "runtime/loggers.h"
#include "train/step_counts.h"

namespace keyseat::train {

namespace {

constexpr int64_t kRowTokens = 4096;  // prompts packed together, up to this many tokens

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
std::vector<int64_t> next_tokens(Session& session, const std::vector<Decoding*>& open) {
  data::PackOptions options;
  options.input = session.chain().input();
  options.last_logits = true;
  std::vector<const Sample*> samples;
  for (const Decoding* decoding : open) samples.push_back(&decoding->sample);
  std::vector<Row> rows;
  rows.push_back(data::pack(samples, options));
  const RowCounts counts = rows[0].facts.counts;

  Executor& executor = session.executor();
  executor.begin_step(0, loss_terms(session.chain(), session.config().loss, counts));
  std::vector<int64_t> tokens;
  const auto choose = [&](int64_t, const Executor& done, const Store& store) {
    const at::Tensor best_R = done.tensor(store, "logits").argmax(1).contiguous();
    // All ranks continue the same prompts; a tie that rounding decides must not part them.
    if (session.facts().world > 1) {
      std::vector<int64_t> ranks(static_cast<size_t>(session.facts().world));
      std::iota(ranks.begin(), ranks.end(), 0);
      session.comm().group(ranks).broadcast(best_R, 0)->wait();
    }
    const at::Tensor host_R = best_R.to(at::kCPU);
    tokens.assign(host_R.data_ptr<int64_t>(), host_R.data_ptr<int64_t>() + host_R.numel());
  };
  session.strategy().schedule({0, std::move(rows), /*training=*/false, choose}, executor);
  return tokens;
}

void append_token(Decoding& decoding, int64_t token) {
  decoding.sample.tokens.push_back(token);
  decoding.sample.labels.push_back(-100);
  decoding.sample.token_type.push_back(0);
}

void decode_group(Session& session, Data& data, std::vector<Decoding>& group,
                  int64_t max_new_tokens) {
  std::vector<Decoding*> open;
  for (Decoding& decoding : group) open.push_back(&decoding);
  for (int64_t round = 0; round < max_new_tokens && !open.empty(); ++round) {
    const std::vector<int64_t> tokens = next_tokens(session, open);
    std::vector<Decoding*> still_open;
    for (size_t i = 0; i < open.size(); ++i) {
      if (tokens[i] == data.end_token_id()) {
        open[i]->example.finished = true;
      } else {
        append_token(*open[i], tokens[i]);
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
}

}  // namespace

EvalResult evaluate(Session& session, Data& data, int64_t max_new_tokens, int64_t limit) {
  EvalResult result;
  result.samples = limit > 0 ? std::min(limit, data.size()) : data.size();
  std::vector<Decoding> group;
  int64_t group_tokens = 0;
  const auto flush = [&] {
    decode_group(session, data, group, max_new_tokens);
    for (Decoding& decoding : group) {
      result.correct += decoding.example.correct ? 1 : 0;
      result.examples.push_back(std::move(decoding.example));
    }
    group.clear();
    group_tokens = 0;
  };
  for (int64_t id = 0; id < result.samples; ++id) {
    Result<Sample> prompt = data.prompt(id);
    if (!prompt) {
      ++result.failed;
      logger("train")->warn("sample {} cannot be evaluated: {}", id, prompt.problem().text());
      continue;
    }
    Decoding decoding;
    decoding.sample = std::move(prompt).value();
    decoding.prompt_tokens = decoding.sample.tokens.size();
    decoding.example.key = decoding.sample.key;
    decoding.example.answer = decoding.sample.answer;
    group_tokens += static_cast<int64_t>(decoding.prompt_tokens);
    group.push_back(std::move(decoding));
    if (group_tokens >= kRowTokens) flush();
  }
  if (!group.empty()) flush();
  return result;
}

nlohmann::json eval_json(const EvalResult& result, bool examples) {
  nlohmann::json line{{"accuracy", result.accuracy()},
                      {"correct", result.correct},
                      {"samples", result.samples},
                      {"failed", result.failed}};
  if (examples) {
    for (const EvalExample& example : result.examples) {
      line["examples"].push_back({{"key", example.key},
                                  {"answer", example.answer},
                                  {"text", example.text},
                                  {"finished", example.finished},
                                  {"correct", example.correct}});
    }
  }
  return line;
}

}  // namespace keyseat::train
