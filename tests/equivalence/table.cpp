#include "tests/equivalence/table.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>
#include <vector>

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

}  // namespace

void check_table(const char* path, const std::string& table, int columns) {
  if (std::getenv("KEYSEAT_WRITE_TABLE") != nullptr) std::ofstream(path) << table;
  std::ifstream file(path);
  const std::string committed{std::istreambuf_iterator<char>(file), {}};
  CHECK_MESSAGE(rows_of(table, columns) == rows_of(committed, columns), path,
                " is out of date; its first line says how it is written");
}

}  // namespace keyseat::test
