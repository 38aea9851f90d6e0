#include "keyseat/status.h"

#include "errors/position.h"

namespace keyseat {
namespace {

// Joins two sentences; the first one gets a full stop where its author left it out.
void append_sentence(std::string& text, const std::string& sentence) {
  if (sentence.empty()) return;
  if (!text.empty()) {
    if (std::string_view(".?!:;").find(text.back()) == std::string_view::npos) text += '.';
    text += ' ';
  }
  text += sentence;
}

}  // namespace

std::string position_text(const SourcePosition& where) {
  std::string text = where.file;
  if (where.line > 0) {
    text += ':' + std::to_string(where.line);
    if (where.column > 0) text += ':' + std::to_string(where.column);
  }
  return text;
}

const char* code_name(Code code) {
  switch (code) {
    case Code::kP1NotFound:
      return "P1";
    case Code::kP2NotAPlugin:
      return "P2";
    case Code::kP3Incompatible:
      return "P3";
    case Code::kP4Unloadable:
      return "P4";
    case Code::kP5Untrusted:
      return "P5";
    case Code::kP6EntryFailed:
      return "P6";
    case Code::kP7Conflict:
      return "P7";
    case Code::kC1Syntax:
      return "C1";
    case Code::kC2Unknown:
      return "C2";
    case Code::kC3Value:
      return "C3";
    case Code::kC4Combination:
      return "C4";
    case Code::kC5RanksDisagree:
      return "C5";
    case Code::kR1Cuda:
      return "R1";
    case Code::kR2Communication:
      return "R2";
    case Code::kR3Memory:
      return "R3";
    case Code::kR4Contract:
      return "R4";
    case Code::kR5Numeric:
      return "R5";
    case Code::kR6Data:
      return "R6";
    case Code::kR7File:
      return "R7";
  }
  return "R0";
}

int exit_status(Code code) {
  switch (code_name(code)[0]) {
    case 'C':
      return 2;
    case 'P':
      return 3;
    default:
      return 4;
  }
}

std::string Problem::text() const {
  std::string sentences;
  append_sentence(sentences, what);
  append_sentence(sentences, why);
  append_sentence(sentences, remedy);
  const std::string position = position_text(where);
  return (position.empty() ? "" : position + ": ") + code_name(code) + ' ' + sentences;
}

std::string problems_text(const Problems& problems) {
  std::string text;
  for (const Problem& problem : problems) {
    if (!text.empty()) text += '\n';
    text += problem.text();
  }
  return text;
}

Error::Error(Problem problem) : Error(Problems{std::move(problem)}) {}
Error::Error(Problems problems)
    : std::runtime_error(problems_text(problems)), problems_(std::move(problems)) {}
Error::~Error() = default;

}  // namespace keyseat
