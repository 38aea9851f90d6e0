#include "data/pre_tokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>

namespace keyseat::data {
namespace {

// Unicode White_Space, which is what \s means to Oniguruma and to Rust's regex. PCRE2's own \s also
// takes U+180E, a format character since Unicode 6.3, so the class is spelt out.
constexpr std::string_view kWhiteSpace =
    R"(\t-\r\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";

// Escapes with one meaning in both syntaxes. Not \w \b (other Unicode classes), \h \v (other
// characters altogether).
constexpr std::string_view kSharedEscapes = "rntfpPdD";

Problem pattern_problem(std::string_view pattern, std::string what) {
  return Problem{
      .code = Code::kR6Data,
      .where = {},
      .what = "the pre-tokenizer pattern " + std::string(pattern) + ": " + std::move(what),
      .why = "the pattern decides every token id, so it is followed exactly or not at all",
      .remedy = "use the tokenizer.json of a Qwen2, Qwen3 or Qwen3.5 model"};
}

Result<std::string> to_pcre2(std::string_view pattern) {
  std::string out;
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      const char escaped = pattern[++i];
      if (escaped == 's') {
        out.append(in_class ? "" : "[").append(kWhiteSpace).append(in_class ? "" : "]");
      } else if (escaped == 'S' && !in_class) {
        out.append("[^").append(kWhiteSpace).append("]");
      } else if (const bool letter = (escaped | 0x20) >= 'a' && (escaped | 0x20) <= 'z';
                 letter && kSharedEscapes.find(escaped) == std::string_view::npos) {
        return pattern_problem(pattern,
                               std::string("the escape \\") + escaped + " is not supported here");
      } else {
        out.append({c, escaped});
      }
      continue;
    }
    if (c == '[' && in_class)
      return pattern_problem(pattern, "a class inside a class is not supported");
    if (c == '[') in_class = true;
    if (c == ']') in_class = false;
    out.push_back(c);
  }
  return out;
}

std::string pcre2_message(int code) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return std::string(reinterpret_cast<const char*>(text.data()));
}

using MatchData = std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)>;
using MatchContext = std::unique_ptr<pcre2_match_context, decltype(&pcre2_match_context_free)>;
using JitStack = std::unique_ptr<pcre2_jit_stack, decltype(&pcre2_jit_stack_free)>;

}  // namespace

Result<PreTokenizer> PreTokenizer::compile(std::string_view pattern) {
  const Result<std::string> translated = to_pcre2(pattern);
  if (!translated) return translated.problem();
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.value().data()),
                    translated.value().size(), PCRE2_UTF | PCRE2_UCP, &error, &offset, nullptr);
  if (code == nullptr) return pattern_problem(pattern, "does not compile: " + pcre2_message(error));
  const std::shared_ptr<const void> owner(code, [code](const void*) { pcre2_code_free(code); });
  // Without JIT (an unusual CPU) pcre2_match interprets the pattern: slower, same result.
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
  return PreTokenizer(owner);
}

std::optional<Problem> PreTokenizer::split(std::string_view text, std::vector<size_t>& ends) const {
  const auto* code = static_cast<const pcre2_code*>(code_.get());
  const MatchData match(pcre2_match_data_create(1, nullptr), &pcre2_match_data_free);
  MatchContext context(nullptr, &pcre2_match_context_free);
  JitStack stack(nullptr, &pcre2_jit_stack_free);
  size_t piece_start = 0;
  for (size_t at = 0; at < text.size();) {
    const int count = pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at,
                                  PCRE2_NO_UTF_CHECK, match.get(), context.get());
    if (count == PCRE2_ERROR_JIT_STACKLIMIT &&
        stack == nullptr) {  // only long runs outgrow the machine stack
      stack.reset(pcre2_jit_stack_create(64 * 1024, 64 * 1024 * 1024, nullptr));
      context.reset(pcre2_match_context_create(nullptr));
      pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
      continue;
    }
    if (count == PCRE2_ERROR_NOMATCH) break;
    if (count < 0) {
      return Problem{.code = Code::kR6Data,
                     .where = {},
                     .what = "text of " + std::to_string(text.size()) +
                             " bytes could not be split at byte " + std::to_string(at) + ": " +
                             pcre2_message(count),
                     .why = "the pre-tokenizer pattern exceeded its matching limits",
                     .remedy = "shorten the text of this sample"};
    }
    const PCRE2_SIZE* range = pcre2_get_ovector_pointer(match.get());
    if (range[1] == range[0]) {  // an empty match makes no piece; go on behind the next character
      at = range[1] + 1;
      while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) ++at;
      continue;
    }
    if (range[0] > piece_start) ends.push_back(range[0]);
    ends.push_back(range[1]);
    at = piece_start = range[1];
  }
  if (piece_start < text.size()) ends.push_back(text.size());
  return std::nullopt;
}

}  // namespace keyseat::data
