#include <ATen/ops/equal.h>
#include <doctest/doctest.h>

#include "data/data_fixture.h"

using namespace keyseat;
using namespace keyseat::testing;

namespace {

const Values kDigits = {{"path", std::vector<std::string>{kHeldout}},
                        {"tokenizer", std::string("configs/data/tokenizer")},
                        {"micro_batch_size", int64_t{8}},
                        {"global_batch_size", int64_t{16}}};

std::shared_ptr<Data> digits(const Values& changes = {}, const DataFacts& facts = digit_facts()) {
  return open_data("webdataset", with(kDigits, changes), facts);
}

// A shard of these files, one row of all `samples`.
Values shard(const TempFolder& folder, const Files& files, int64_t samples) {
  return with(kDigits,
              {{"path", std::vector<std::string>{folder.write("shard.tar", tar_of(files))}},
               {"micro_batch_size", samples},
               {"global_batch_size", samples},
               {"shuffle", false}});
}

std::vector<int64_t> ids_of(const StepAssignment& step) {
  std::vector<int64_t> ids;
  for (const auto& rank : step.rows)
    for (const auto& row : rank) ids.insert(ids.end(), row.begin(), row.end());
  std::sort(ids.begin(), ids.end());
  return ids;
}

}  // namespace

TEST_CASE("webdataset: a digit is 4 visual tokens, and only the answer is supervised") {
  const auto data = digits();
  CHECK(data->size() == kHeldoutSamples);
  CHECK_FALSE(data->synthetic());
  const Sample sample = data->sample(0).value_or_throw();
  CHECK(sample.key == "digits-heldout.tar:001135");
  CHECK(sample.files == std::vector<std::string>{"001135.png"});
  CHECK(sample.grid_thw == std::vector<int64_t>{1, 4, 4});
  CHECK(sample.patches.sizes() == at::IntArrayRef({16, 3 * 2 * 8 * 8}));
  CHECK(std::count(sample.token_type.begin(), sample.token_type.end(), 1) == 4);
  CHECK(std::count(sample.tokens.begin(), sample.tokens.end(), 573) == 4);
  std::vector<int64_t> supervised;
  for (size_t i = 0; i < sample.labels.size(); ++i) {
    if (sample.labels[i] < 0) continue;
    supervised.push_back(sample.labels[i]);
    CHECK(sample.labels[i] == sample.tokens.at(i + 1));  // shifted
  }
  REQUIRE(supervised.size() == 2);
  CHECK(supervised[1] == data->end_token_id());
  CHECK(data->decode(supervised) == "7");  // special tokens left out
}

TEST_CASE("webdataset: a prompt is the sample up to its answer") {
  const auto data = digits();
  const Sample whole = data->sample(3).value_or_throw(), prompt = data->prompt(3).value_or_throw();
  REQUIRE(prompt.answer.size() == 1);
  REQUIRE(prompt.tokens.size() < whole.tokens.size());
  CHECK(std::equal(prompt.tokens.begin(), prompt.tokens.end(), whole.tokens.begin()));
  CHECK(std::all_of(prompt.labels.begin(), prompt.labels.end(), [](int64_t l) { return l < 0; }));
  CHECK(at::equal(prompt.patches, whole.patches));
  CHECK(data->decode({whole.tokens[prompt.tokens.size()]}) == prompt.answer);
}

TEST_CASE("webdataset: rows do not depend on the number of loader threads") {
  std::vector<std::vector<std::string>> expected;
  for (const int64_t threads : {0, 1, 2, 4}) {
    INFO(threads);
    const auto data = digits({{"threads", threads}, {"augment", int64_t{1}}});
    std::vector<std::vector<std::string>> steps;
    for (int step = 0; step < 4; ++step) steps.push_back(rows_text(data->next_step()));
    CHECK(steps[0].size() == 2);
    if (expected.empty()) expected = steps;
    CHECK(steps == expected);
  }
}

TEST_CASE("webdataset: the cursor is the whole state") {
  const auto whole = digits();
  std::vector<std::string> third;
  for (int step = 0; step < 3; ++step) third = rows_text(whole->next_step());
  CHECK(whole->cursor() == 48);
  const auto resumed = digits();
  resumed->seek(32);
  CHECK(rows_text(resumed->next_step()) == third);
  // Also where rows were loaded ahead already.
  whole->seek(32);
  CHECK(rows_text(whole->next_step()) == third);
  CHECK(whole->cursor() == 48);
}

TEST_CASE("webdataset: a source opened for evaluation has samples and prompts, but no steps") {
  DataFacts facts = digit_facts();
  facts.training = false;
  const auto held_out = digits({}, facts);
  CHECK(held_out->prompt(0).ok());
  CHECK(problem_thrown([&] { held_out->next_step(); }).code == Code::kR4Contract);
  CHECK(problem_thrown([&] { held_out->seek(0); }).code == Code::kR4Contract);
  CHECK(problem_thrown([&] { held_out->plan(0); }).code == Code::kR4Contract);
}

TEST_CASE("webdataset: every epoch is a permutation of its own") {
  const auto data = digits({{"micro_batch_size", int64_t{60}}, {"global_batch_size", int64_t{60}}});
  std::vector<std::vector<int64_t>> epochs(2);
  for (int64_t step = 0; step < 12; ++step) {
    const StepAssignment assignment = data->plan(60 * step);
    CHECK(assignment.next_cursor == 60 * (step + 1));
    const auto& row = assignment.rows.at(0).at(0);
    epochs[static_cast<size_t>(step / 6)].insert(epochs[static_cast<size_t>(step / 6)].end(),
                                                 row.begin(), row.end());
  }
  CHECK(epochs[0] != epochs[1]);
  std::vector<int64_t> all(kHeldoutSamples);
  std::iota(all.begin(), all.end(), 0);
  for (auto& epoch : epochs) {
    std::sort(epoch.begin(), epoch.end());
    CHECK(epoch == all);
  }
  const auto ordered = digits({{"shuffle", false}});
  CHECK(ids_of(ordered->plan(16)) ==
        std::vector<int64_t>{16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31});
}

TEST_CASE("webdataset: data ranks share a step, each loads its own rows") {
  std::vector<int64_t> seen;
  for (int64_t rank = 0; rank < 2; ++rank) {
    DataFacts facts = digit_facts();
    facts.data_ranks = 2;
    facts.data_rank = rank;
    const auto data = digits({}, facts);
    CHECK(ids_of(data->plan(0)) == ids_of(digits()->plan(0)));
    const std::vector<Row> rows = data->next_step();
    REQUIRE(rows.size() == 1);
    seen.insert(seen.end(), rows[0].facts.sample_ids.begin(), rows[0].facts.sample_ids.end());
  }
  std::sort(seen.begin(), seen.end());
  CHECK(seen == ids_of(digits()->plan(0)));
  DataFacts three = digit_facts();
  three.data_ranks = 3;
  check_problem(make_plugin<Data>("webdataset", kDigits)->open(three), Code::kC4Combination,
                "3 data ranks");
}

TEST_CASE("webdataset: max_tokens fills rows with whole samples") {
  Values values = with(kDigits, {{"max_tokens", int64_t{128}}});
  values.erase("micro_batch_size");
  const auto data = open_data("webdataset", values);
  const std::vector<Row> rows = data->next_step();
  int64_t samples = 0, tokens = 0;
  for (const Row& row : rows) {
    CHECK(row.facts.counts.tokens <= 128);
    CHECK(row.facts.counts.padding == 0);
    samples += row.facts.counts.samples;
    tokens += row.facts.counts.tokens;
  }
  CHECK(samples == 16);
  CHECK(static_cast<int64_t>(rows.size()) < 16);
  CHECK(static_cast<int64_t>(rows.size()) >= (tokens + 127) / 128);
}

TEST_CASE("webdataset: broken records are named, counted, and move no other sample") {
  const TempFolder folder;
  const std::string jpeg = digit_jpeg();
  const Files files = {{"a.png", digit_png()},
                       {"a.json", digit_record("a.png")},
                       {"b.json", "{\"messages\": [cut"},
                       {"c.json", digit_record("nowhere.png")},
                       {"d.jpg", jpeg.substr(0, jpeg.size() / 2)},
                       {"d.json", digit_record("d.jpg")},
                       {"e.json", R"({"text": "no messages"})"},
                       {"f.png", ""},
                       {"f.json", digit_record("f.png")},
                       {"g.json", digit_record("a.png", "\xff\xfe")},
                       {"h.png", "this is no image"},
                       {"h.json", digit_record("h.png")},
                       {"i.json", R"({"messages":[{"role":"wizard","content":"x"}]})"},
                       {"j.jpg", jpeg},
                       {"j.json", digit_record("j.jpg", "3")}};
  const auto data = open_data("webdataset", shard(folder, files, 10));
  REQUIRE(data->size() == 10);
  const std::vector<Row> rows = data->next_step();
  REQUIRE(rows.size() == 1);
  CHECK(rows[0].facts.counts.samples == 2);
  CHECK(rows[0].facts.counts.failed == 8);
  CHECK(rows[0].facts.sample_ids == std::vector<int64_t>{0, 9});
  CHECK(rows[0].facts.counts.patches == 32);

  const auto failures = data->failures();
  const auto failed = [&](const char* reason) {
    const auto found = failures.find(reason);
    return found == failures.end() ? std::pair<int64_t, std::string>() : found->second;
  };
  CHECK(failed("bad_json").second.find("shard.tar:b") == 0);
  CHECK(failed("bad_record").second.find("shard.tar:e") == 0);
  CHECK(failed("bad_utf8").second.find("shard.tar:g") == 0);
  CHECK(failed("unknown_role").second.find("wizard") != std::string::npos);
  CHECK(failed("missing_file").second.find("shard.tar:c") == 0);
  CHECK(failed("missing_file").second.find("nowhere.png") != std::string::npos);
  CHECK(failed("truncated").second.find("d.jpg") != std::string::npos);
  CHECK(failed("empty_file").second.find("f.png") != std::string::npos);
  CHECK(failed("unknown_format").second.find("h.png") != std::string::npos);
  CHECK(failures.size() == 8);
  const Problem problem = data->sample(2).problem();
  CHECK(problem.code == Code::kR6Data);
  CHECK(problem.text().find("missing_file") != std::string::npos);
}

TEST_CASE("webdataset: failures are counted when their step is handed out") {
  const TempFolder folder;
  const Files files = {{"a.png", digit_png()},
                       {"a.json", digit_record("a.png")},
                       {"b.json", digit_record("nowhere.png")}};
  Values values = shard(folder, files, 2);
  values["max_failed_samples"] = int64_t{1};
  for (const int64_t threads : {0, 1, 4}) {
    for (const int64_t ahead : {1, 8}) {
      INFO(threads << " threads, " << ahead << " steps ahead");
      const auto data =
          open_data("webdataset", with(values, {{"threads", threads}, {"prefetch_steps", ahead}}));
      CHECK(data->max_failed_samples() == 1);
      CHECK(data->failures().empty());
      for (int64_t step = 1; step <= 3; ++step) {
        CHECK(data->next_step().at(0).facts.counts.failed == 1);
        CHECK(data->failures().at("missing_file").first == step);
      }
      data->seek(2);  // what was loaded ahead is forgotten, and was never counted
      data->next_step();
      CHECK(data->failures().at("missing_file").first == 4);
    }
  }
}

TEST_CASE("webdataset: blank_images leaves nothing of a picture") {
  const auto data = digits({{"blank_images", true}});
  const Sample blank = data->sample(0).value_or_throw();
  CHECK(blank.patches.min().item<float>() == blank.patches.max().item<float>());
  CHECK(at::equal(blank.patches, data->sample(1).value_or_throw().patches));
  CHECK(blank.tokens == digits()->sample(0).value_or_throw().tokens);
}

TEST_CASE("webdataset: augment is off by default, and never touches sample and prompt") {
  const auto patches_of_pass = [](const Values& changes, int64_t pass) {
    const auto data = digits(with(
        {{"shuffle", false}, {"threads", int64_t{0}}, {"global_batch_size", int64_t{8}}}, changes));
    data->seek(pass * kHeldoutSamples);
    return data->next_step().at(0).tensors.at("patches").clone();
  };
  const at::Tensor plain = patches_of_pass({}, 0);
  CHECK(at::equal(plain, patches_of_pass({}, 1)));
  const at::Tensor moved = patches_of_pass({{"augment", int64_t{1}}}, 0);
  CHECK_FALSE(at::equal(plain, moved));
  CHECK(at::equal(moved, patches_of_pass({{"augment", int64_t{1}}}, 0)));
  CHECK_FALSE(at::equal(moved, patches_of_pass({{"augment", int64_t{1}}}, 1)));
  const auto augmented = digits({{"augment", int64_t{1}}});
  CHECK(at::equal(augmented->sample(5).value_or_throw().patches,
                  digits()->sample(5).value_or_throw().patches));
}

TEST_CASE("webdataset: rows are sized by samples or by tokens") {
  check_problem(problems_of("data", "webdataset", with(kDigits, {{"max_tokens", int64_t{99}}})),
                Code::kC4Combination, "both micro_batch_size and max_tokens are given");
  Values neither = kDigits;
  neither.erase("micro_batch_size");
  check_problem(problems_of("data", "webdataset", neither), Code::kC4Combination,
                "neither micro_batch_size nor max_tokens is given");
  check_problem(
      problems_of("data", "webdataset", with(kDigits, {{"global_batch_size", int64_t{12}}})),
      Code::kC4Combination, "global_batch_size 12 is not a multiple of micro_batch_size 8");
}

TEST_CASE("webdataset: tokenizer and model must agree") {
  const auto refused = [](const DataFacts& facts) {
    return make_plugin<Data>("webdataset", kDigits)->open(facts);
  };
  DataFacts facts = digit_facts();
  facts.input.vocab_size = 300;
  check_problem(refused(facts), Code::kC4Combination, "the model's vocabulary has 300 rows");
  facts = digit_facts();
  facts.input.image_token_id = 12;
  check_problem(refused(facts), Code::kC4Combination, "<|image_pad|> is 573 in the tokenizer");
}

TEST_CASE("webdataset: a shard that is none is refused with the reason") {
  const TempFolder folder;
  const auto refused = [&](const std::string& path) {
    return make_plugin<Data>("webdataset",
                             with(kDigits, {{"path", std::vector<std::string>{path}}}))
        ->open(digit_facts());
  };
  check_problem(refused(folder.path() + "/missing.tar"), Code::kR7File, "no such shard");
  check_problem(refused(folder.write("text.tar", std::string(2000, 'x'))), Code::kR6Data,
                "A shard is an uncompressed tar file");
  check_problem(refused(folder.write("none.tar", "")), Code::kR6Data, "it has 0 bytes");
  check_problem(refused(folder.write("empty.tar", tar_of({}))), Code::kR6Data, "holds no member");
  check_problem(refused(folder.write("images.tar", tar_of({{"a.png", digit_png()}}))),
                Code::kR6Data, "no KEY.json");
}

TEST_CASE("webdataset: a cut shard is one counted failure, what lies before the cut is used") {
  const TempFolder folder;
  const std::string whole = tar_of({{"a.png", digit_png()},
                                    {"a.json", digit_record("a.png")},
                                    {"b.png", digit_png()},
                                    {"b.json", digit_record("b.png")}});
  const size_t end = whole.size() - 1024;  // of the last member
  const size_t b_json = end - 1024;        // header and content of b.json: one block each
  const std::pair<size_t, const char*> cuts[] = {
      {end, "behind member b.json"},  // only the end mark is gone
      {end - 500, "inside of member b.json"},
      {b_json + 100, "behind member b.png"},  // in the header of b.json
      {b_json, "behind member b.png"},
  };
  for (const auto& [size, where] : cuts) {
    INFO(where);
    Values values = shard(folder, {}, 1);
    values["path"] = std::vector<std::string>{folder.write("cut.tar", whole.substr(0, size))};
    const auto data = open_data("webdataset", values);
    const bool has_b = size == end;
    REQUIRE(data->size() == (has_b ? 3 : 2));
    CHECK(data->sample(0).ok());
    const auto cut = data->sample(data->size() - 1);
    REQUIRE_FALSE(cut.ok());
    CHECK(cut.problem().text().find("cut_shard") != std::string::npos);
    CHECK(cut.problem().text().find(where) != std::string::npos);
    for (int64_t step = 0; step < data->size(); ++step) data->next_step();
    CHECK(data->failures().at("cut_shard").first == 1);
  }
}

TEST_CASE("webdataset: sources are mixed by weight; a path may be a folder or a pattern") {
  const TempFolder folder;
  const auto write = [&](const std::string& name, const std::string& answer, int samples) {
    Files files = {{"a.png", digit_png()}};
    for (int i = 0; i < samples; ++i)
      files.push_back({std::to_string(i) + ".json", digit_record("a.png", answer)});
    return folder.write(name, tar_of(files));
  };
  write("many/1.tar", "1", 12);
  write("many/2.tar", "1", 12);
  write("few/a.tar", "7", 2);
  const Values values = {
      {"path", std::vector<std::string>{folder.path() + "/many", folder.path() + "/few/*.tar"}},
      {"weights", std::vector<double>{1, 3}},
      {"tokenizer", std::string("configs/data/tokenizer")},
      {"micro_batch_size", int64_t{8}},
      {"global_batch_size", int64_t{8}}};
  const auto data = open_data("webdataset", values);
  CHECK(data->size() == 26);
  for (int64_t step = 0; step < 4; ++step) {
    int64_t few = 0;
    for (const int64_t id : ids_of(data->plan(8 * step))) few += id >= 24 ? 1 : 0;
    CHECK(few == 6);
  }
  CHECK(data->sample(25).value_or_throw().key == "a.tar:1");
  // Without weights all samples are one source.
  Values plain = values;
  plain.erase("weights");
  const auto pooled = open_data("webdataset", with(plain, {{"micro_batch_size", int64_t{26}},
                                                           {"global_batch_size", int64_t{26}}}));
  CHECK(ids_of(pooled->plan(0)).size() == 26);
  check_problem(
      problems_of("data", "webdataset", with(values, {{"weights", std::vector<double>{1}}})),
      Code::kC4Combination, "1 weights are given for 2 entries of path");
}
