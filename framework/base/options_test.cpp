#include "keyseat/options.h"

#include <doctest/doctest.h>

#include "base/sha256.h"
#include "keyseat/suggest.h"

namespace keyseat {
namespace {

OptionSchema small_schema() {
  return {Option("hidden_size", OptionType::kInt).required().range(1, 4096).doc("Width."),
          Option("eps", OptionType::kFloat).defaults_to(1).doc("Guard."),
          Option("kernel", OptionType::kEnum).defaults_to("fast").choices({"fast", "naive"}),
          Option("limit", OptionType::kSize).optional()};
}

TEST_CASE("resolve_options converts, fills in defaults and keeps the origin") {
  Problems problems;
  const Options options =
      resolve_options(small_schema(), {{"hidden_size", 8}, {"limit", "2KiB"}}, "test", problems);
  CHECK(problems.empty());
  CHECK(options.get_int("hidden_size") == 8);
  CHECK(options.get_float("eps") == 1.0);
  CHECK(options.get_string("kernel") == "fast");
  CHECK(options.get_int("limit") == 2048);
  CHECK(options.given("hidden_size"));
  CHECK_FALSE(options.given("eps"));
}

TEST_CASE("resolve_options reports unknown, missing, mistyped and out-of-range values together") {
  Problems problems;
  resolve_options(small_schema(), {{"hiden_size", 8}, {"eps", "x"}, {"kernel", "fats"}}, "test",
                  problems);
  REQUIRE(problems.size() == 4);
  const std::string text = problems_text(problems);
  CHECK(text.find("C2 unknown option \"hiden_size\". Did you mean \"hidden_size\"?") !=
        std::string::npos);
  CHECK(text.find("C3 option \"hidden_size\" is missing") != std::string::npos);
  CHECK(text.find("C3 option \"eps\" must be") != std::string::npos);
  CHECK(text.find("C3 option \"kernel\" must be") != std::string::npos);
}

TEST_CASE("asking for an undeclared option, another type or an unset value is R4") {
  Problems problems;
  Options options = resolve_options(small_schema(), {{"hidden_size", 8}}, "test", problems);
  options.set_table("[model.blocks.options] of block/x", {"a.toml", 3, 1});
  CHECK_FALSE(options.has("limit"));
  for (const char* name : {"limit", "width", "eps"}) {
    try {
      options.get_int(name);
      FAIL("no error for ", name);
    } catch (const Error& error) {
      CHECK(error.problems().at(0).code == Code::kR4Contract);
      CHECK(std::string(error.what()).find("block/x") != std::string::npos);
    }
  }
  CHECK(options.problem(Code::kC4Combination, "eps", "too small").text() ==
        "a.toml:3:1: C4 option \"eps\" in [model.blocks.options] of block/x: too small");
}

TEST_CASE("a default of another type is refused where it is declared") {
  CHECK_THROWS_AS(Option("a", OptionType::kInt).defaults_to("x"), Error);
  CHECK_NOTHROW(Option("a", OptionType::kIntList).defaults_to(std::vector<double>{}));
}

TEST_CASE("nearest name: insertion, deletion, replacement and swap; nothing for strangers") {
  CHECK(edit_distance("ab", "ba") == 1);
  CHECK(edit_distance("kitten", "sitting") == 3);
  CHECK(edit_distance("", "abc") == 3);
  const std::vector<std::string> names{"allgather", "hybrid_ep", "local"};
  CHECK(nearest("hybridep", names) == "hybrid_ep");
  CHECK(nearest("loacl", names) == "local");
  CHECK(nearest("nccl", names).empty());
  CHECK(nearest("x", {}).empty());
}

TEST_CASE("sha256 of the standard's examples") {
  CHECK(sha256_hex("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(sha256_hex("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK_FALSE(sha256_hex_of_file("/no/such/file").ok());
}

TEST_CASE("problem text: position, code, sentences; exit status by family") {
  const SourcePosition where{"a.toml", 14, 1};
  const Problem problem{Code::kC2Unknown, where, "unknown option \"x\"", "", "Try y."};
  CHECK(problem.text() == "a.toml:14:1: C2 unknown option \"x\". Try y.");
  CHECK(exit_status(Code::kP3Incompatible) == 3);
  CHECK(exit_status(Code::kC1Syntax) == 2);
  CHECK(exit_status(Code::kR7File) == 4);
}

}  // namespace
}  // namespace keyseat
