#include "tests/equivalence/table.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>

namespace keyseat::test {

namespace {

std::vector<std::string> rows_of(const std::string& table, int columns) {
  std::vector<std::string> rows;
  std::istringstream lines(table);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("| ")) continue;
    size_t end = 0;
    for (int column = 0; column < columns && end != std::string::npos; ++column)
      end = line.find('|', end + 1);
    rows.push_back(line.substr(0, end));
  }
  return rows;
}

bool writes_tables() { return std::getenv("KEYSEAT_WRITE_TABLE") != nullptr; }

std::string text_of(const char* path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

constexpr const char* kOutOfDate =
    " is out of date: KEYSEAT_WRITE_TABLE=1 in the environment of this test writes it";

}  // namespace

void check_table(const char* path, const std::string& table, int columns) {
  if (writes_tables()) std::ofstream(path) << table;
  CHECK_MESSAGE(rows_of(table, columns) == rows_of(text_of(path), columns), path, kOutOfDate);
}

void check_section(const char* path, const std::string& name, const std::string& table,
                   int columns) {
  const std::string begin = fmt::format("<!-- begin {} -->\n", name),
                    end = fmt::format("<!-- end {} -->", name);
  std::string text = text_of(path);
  const size_t first = text.find(begin), last = text.find(end);
  REQUIRE(first != std::string::npos);
  REQUIRE(last != std::string::npos);
  const size_t from = first + begin.size();
  if (writes_tables()) std::ofstream(path) << text.replace(from, last - from, table);
  const std::string committed = text_of(path);
  const std::string section = committed.substr(from, committed.find(end) - from);
  CHECK_MESSAGE(rows_of(table, columns) == rows_of(section, columns), path, kOutOfDate);
}

void LayoutSummary::add(const std::string& layout, const LayoutDifference& difference) {
  const auto same = [&](const Worst& row) { return row.layout == layout; };
  auto row = std::find_if(rows_.begin(), rows_.end(), same);
  if (row == rows_.end()) row = rows_.insert(row, Worst{layout});
  ++row->runs;
  LayoutDifference& worst = row->difference;
  worst.loss = std::max(worst.loss, difference.loss);
  worst.gradient = std::max(worst.gradient, difference.gradient);
  worst.norm = std::max(worst.norm, difference.norm);
  worst.change = std::max(worst.change, difference.change);
}

std::string LayoutSummary::table() const {
  std::string text =
      "| layout | runs | loss | gradient | clip norm | change |\n|---|---|---|---|---|---|\n";
  for (const Worst& row : rows_) {
    text += fmt::format("| {} | {} | {:.0e} | {:.0e} | {:.0e} | {:.0e} |\n", row.layout, row.runs,
                        row.difference.loss, row.difference.gradient, row.difference.norm,
                        row.difference.change);
  }
  return text;
}

}  // namespace keyseat::test
