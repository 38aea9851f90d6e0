// A data source: the assignment is a pure function of (seed, cursor), the cursor is all the state,
// and rows are what batch.h says, whatever the number of ranks.
#include "keyseat/interfaces/data.h"

#include "keyseat/chain.h"
#include "sdk/conformance/subject.h"

namespace keyseat::conformance {
namespace {

constexpr int kSteps = 3;

// What the model of --config asks of the data.
InputSpec input_of(const Subject& subject) {
  if (subject.config == nullptr) skip("give --config with a model that this source can feed");
  std::vector<NamedBlock> blocks;
  for (const PluginChoice& choice : subject.config->model.blocks) {
    PluginHost host;
    host.instance = choice.instance;
    blocks.push_back({choice.instance, "block/" + choice.name,
                      subject.registry->create<Block>(choice.name, choice.options, host),
                      choice.where});
  }
  Problems problems;
  const Chain chain = Chain::build(std::move(blocks), {}, problems);
  if (!problems.empty()) throw Error(std::move(problems));
  return chain.input();
}

std::shared_ptr<Data> open(const Subject& subject, const InputSpec& input, int64_t ranks = 1,
                           int64_t rank = 0) {
  auto data = subject.make<Data>();
  DataFacts facts;
  facts.input = input;
  facts.seed = 11;
  facts.data_ranks = ranks;
  facts.data_rank = rank;
  Problems problems = data->open(facts);
  if (!problems.empty()) throw Error(std::move(problems));
  return data;
}

void expect_equal_rows(const std::vector<Row>& found, const std::vector<Row>& expected) {
  expect(found.size() == expected.size(), "there is another number of rows");
  for (size_t i = 0; i < found.size(); ++i) {
    expect(found[i].facts.sample_ids == expected[i].facts.sample_ids, "a row has other samples");
    for (const auto& [name, tensor] : expected[i].tensors) {
      expect_equal(name, found[i].tensors.at(name), tensor);
    }
  }
}

void check_row(const Row& row, const InputSpec& input) {
  const RowFacts& facts = row.facts;
  const int64_t tokens = facts.row_tokens();
  for (const BatchTensor& standard : batch_tensors()) {
    const at::Tensor tensor = row.tensors.at(standard.name);
    expect(tensor.scalar_type() == standard.dtype && tensor.dim() == standard.dims,
           std::string(standard.name) + " has another dtype or number of dimensions");
  }
  const at::Tensor ids_T = row.tensors.at("tokens"), labels_T = row.tensors.at("labels");
  expect(ids_T.size(0) == tokens && labels_T.size(0) == tokens, "tokens or labels are not [T]");
  expect(row.tensors.at("position_ids").size(1) == tokens, "position_ids are not [3, T]");
  expect(row.tensors.at("patches").size(0) == facts.counts.patches, "patches are not [P, D]");
  expect(row.tensors.at("visual_dst").size(0) == facts.counts.visual_tokens,
         "visual_dst is not [V]");
  expect(!facts.cu_seqlens.empty() && facts.cu_seqlens.front() == 0 &&
             facts.cu_seqlens.back() == tokens,
         "cu_seqlens do not go from 0 to T");
  expect(std::is_sorted(facts.cu_seqlens.begin(), facts.cu_seqlens.end()),
         "cu_seqlens do not ascend");
  expect(labels_T.ge(0).sum().item<int64_t>() == facts.counts.supervised,
         "the count of supervised tokens is not that of the labels");
  if (tokens == 0) return;
  expect(ids_T.min().item<int64_t>() >= 0 && ids_T.max().item<int64_t>() < input.vocab_size,
         "a token is outside of the vocabulary");
  expect(labels_T.max().item<int64_t>() < input.vocab_size, "a label is outside of the vocabulary");
}

std::vector<std::vector<Row>> some_steps(Data& data) {
  std::vector<std::vector<Row>> steps;
  for (int i = 0; i < kSteps; ++i) steps.push_back(data.next_step());
  return steps;
}

void check_plan(const Subject& subject) {
  const InputSpec input = input_of(subject);
  const auto data = open(subject, input), other = open(subject, input);
  const int64_t before = data->cursor();
  for (int64_t cursor : {before, data->plan(before).next_cursor}) {
    const StepAssignment first = data->plan(cursor), again = data->plan(cursor);
    expect(first.rows == again.rows && first.next_cursor == again.next_cursor,
           "the same cursor gives another plan the second time");
    expect(first.rows == other->plan(cursor).rows, "another instance plans otherwise");
    expect(first.cursor == cursor && first.next_cursor > cursor,
           "a plan does not go from its cursor to a later one");
  }
  expect(data->cursor() == before, "plan() moves the cursor");
}

void check_cursor(const Subject& subject) {
  const InputSpec input = input_of(subject);
  const auto data = open(subject, input);
  const int64_t start = data->cursor();
  const StepAssignment plan = data->plan(start);
  const std::vector<Row> first = data->next_step();
  expect(data->cursor() == plan.next_cursor, "next_step() does not move the cursor as planned");
  expect(first.size() == plan.rows.at(0).size(), "a step has another number of rows than planned");
  const auto rest = some_steps(*data);
  data->seek(plan.next_cursor);
  const auto again = some_steps(*data);
  for (size_t i = 0; i < rest.size(); ++i) expect_equal_rows(again[i], rest[i]);
  // A fresh instance at that cursor is a resumed run.
  const auto resumed = open(subject, input);
  resumed->seek(plan.next_cursor);
  expect_equal_rows(resumed->next_step(), rest[0]);
}

void check_ranks(const Subject& subject) {
  const InputSpec input = input_of(subject);
  const auto whole = open(subject, input)->plan(0);
  std::multiset<int64_t> one, two;
  for (const auto& row : whole.rows.at(0)) one.insert(row.begin(), row.end());
  std::shared_ptr<Data> ranks[2];
  try {
    for (int64_t rank : {0, 1}) ranks[rank] = open(subject, input, 2, rank);
  } catch (const Error& error) {
    skip("these options do not divide over two ranks: " + problems_text(error.problems()));
  }
  const StepAssignment plan = ranks[0]->plan(0);
  expect(plan.rows == ranks[1]->plan(0).rows, "two ranks plan otherwise");
  expect(plan.rows.size() == 2, "a plan for two data ranks does not have two lists of rows");
  expect(plan.rows[0].size() == plan.rows[1].size(), "two ranks have different numbers of rows");
  expect(plan.next_cursor == whole.next_cursor, "two ranks consume other samples than one");
  for (const auto& rank : plan.rows) {
    for (const auto& row : rank) two.insert(row.begin(), row.end());
  }
  expect(one == two, "two ranks together have other samples than one rank");
  for (int rank : {0, 1}) {
    const std::vector<Row> rows = ranks[rank]->next_step();
    expect(rows.size() == plan.rows[static_cast<size_t>(rank)].size(),
           "a rank gives another number of rows than planned");
  }
}

}  // namespace

void data_cases(const Subject& subject, Cases& cases) {
  cases.run("plan: a pure function of seed and cursor", [&] { check_plan(subject); });
  cases.run("rows: dtypes, shapes, counts and ids as batch.h says", [&] {
    const InputSpec input = input_of(subject);
    const auto data = open(subject, input);
    for (const std::vector<Row>& step : some_steps(*data)) {
      for (const Row& row : step) check_row(row, input);
    }
  });
  cases.run("cursor: it is all the state; going back gives the same rows",
            [&] { check_cursor(subject); });
  cases.run("ranks: two share out the samples of one", [&] { check_ranks(subject); });
  cases.run("samples: the first and the last can be loaded, and prompts of them", [&] {
    const auto data = open(subject, input_of(subject));
    expect(data->size() > 0, "the source is empty");
    for (const int64_t id : {int64_t{0}, data->size() - 1}) {
      const Sample sample = data->sample(id).value_or_throw();
      expect(sample.labels.size() == sample.tokens.size(), "labels are not as long as tokens");
      data->decode(data->prompt(id).value_or_throw().tokens);
    }
  });
  cases.run("end: an instance may go while it loads ahead", [&] {
    const InputSpec input = input_of(subject);
    for (int i = 0; i < 3; ++i) open(subject, input)->next_step();
  });
}

}  // namespace keyseat::conformance
