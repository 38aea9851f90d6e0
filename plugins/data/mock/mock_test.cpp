#include <ATen/ops/equal.h>
#include <doctest/doctest.h>

#include "data/data_fixture.h"

using namespace keyseat;
using namespace keyseat::testing;

namespace {

const Values kCommon = {{"samples", int64_t{12}},
                        {"min_tokens", int64_t{10}},
                        {"max_sample_tokens", int64_t{30}},
                        {"micro_batch_size", int64_t{4}},
                        {"global_batch_size", int64_t{4}}};

}  // namespace

TEST_CASE("mock: says that it is synthetic") { CHECK(open_data("mock", kCommon)->synthetic()); }

TEST_CASE("mock: text of the asked lengths, every token supervised but the first") {
  const auto data = open_data("mock", kCommon);
  REQUIRE(data->size() == 12);
  std::set<size_t> lengths;
  for (int64_t id = 0; id < 12; ++id) {
    const Sample sample = data->sample(id).value_or_throw();
    CHECK(sample.tokens.size() >= 10);
    CHECK(sample.tokens.size() <= 30);
    lengths.insert(sample.tokens.size());
    CHECK_FALSE(sample.patches.defined());
    for (size_t i = 0; i < sample.tokens.size(); ++i) {
      CHECK(sample.tokens[i] >= 0);
      CHECK(sample.tokens[i] < 640);
      CHECK_FALSE((sample.tokens[i] >= 571 && sample.tokens[i] <= 574));  // placeholders
      CHECK(sample.labels[i] == (i + 1 < sample.tokens.size() ? sample.tokens[i + 1] : -100));
    }
  }
  CHECK(lengths.size() > 3);
}

TEST_CASE("mock: images bring patches, and placeholders that fit them") {
  const auto data =
      open_data("mock", with(kCommon, {{"images", int64_t{2}}, {"image_patches", int64_t{6}}}));
  const Sample sample = data->sample(0).value_or_throw();
  CHECK(sample.grid_thw == std::vector<int64_t>{1, 6, 6, 1, 6, 6});
  CHECK(sample.patches.sizes() == at::IntArrayRef({72, 384}));
  CHECK(std::count(sample.tokens.begin(), sample.tokens.end(), 573) == 18);
  CHECK(sample.patches.min().item<float>() < -0.9f);
  CHECK(sample.patches.max().item<float>() > 0.9f);
  CHECK(sample.patches.abs().max().item<float>() <= 1.0f);
  const Row row = std::move(data->next_step().at(0));
  CHECK(row.facts.counts.images == 8);
  CHECK(row.facts.counts.visual_tokens == 4 * 18);
  // Nothing before the text is supervised.
  for (size_t i = 0; i < sample.labels.size(); ++i) {
    if (sample.token_type[i] != 0) CHECK(sample.labels[i] == -100);
  }
}

TEST_CASE("mock: the same samples for the same seed, others for another") {
  const Values images = with(kCommon, {{"images", int64_t{1}}, {"image_patches", int64_t{4}}});
  const auto first = rows_text(open_data("mock", images)->next_step());
  CHECK(first ==
        rows_text(open_data("mock", with(images, {{"threads", int64_t{3}}}))->next_step()));
  DataFacts facts = digit_facts();
  facts.seed = 6;
  CHECK(first != rows_text(open_data("mock", images, facts)->next_step()));
}

TEST_CASE("mock: values that do not fit each other") {
  check_problem(problems_of("data", "mock", with(kCommon, {{"min_tokens", int64_t{31}}})),
                Code::kC4Combination, "min_tokens is above max_sample_tokens");
  const auto opened = [](const Values& changes, const DataFacts& facts) {
    return make_plugin<Data>("mock", with(kCommon, changes))->open(facts);
  };
  check_problem(opened({{"images", int64_t{1}}, {"image_patches", int64_t{5}}}, digit_facts()),
                Code::kC4Combination, "image_patches 5 is not a multiple of the merge size 2");
  DataFacts text;
  text.input.vocab_size = 640;
  check_problem(opened({{"images", int64_t{1}}}, text), Code::kC4Combination,
                "the model takes no images");
  CHECK(opened({}, text).empty());
}
