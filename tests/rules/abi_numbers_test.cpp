// Every change of an interface's headers raises that interface's number.
#include <doctest/doctest.h>

#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <utility>

#include "keyseat_abi.h"

TEST_CASE("rule: an interface header that was edited has a higher number than recorded") {
  std::map<std::string, std::pair<unsigned, std::string>> recorded;
  std::ifstream in("sdk/abi_numbers.txt");
  REQUIRE(in.good());
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream words(line);
    std::string kind, digest;
    unsigned number = 0;
    words >> kind >> number >> digest;
    recorded[kind] = {number, digest};
  }
  for (const keyseat::abi::Interface& current : keyseat::abi::kInterfaces) {
    const std::string kind = current.kind;
    CHECK_MESSAGE(current.number >= 1, kind, " has no kAbi number in keyseat/interfaces/", kind,
                  ".h");
    const auto old = recorded.find(kind);
    if (old == recorded.end()) continue;
    const bool same = current.text_hash == old->second.second;
    CHECK_MESSAGE(
        (same || current.number > old->second.first), kind,
        ": a header it includes was edited; raise its number, then tools/abi_numbers --record");
    CHECK_MESSAGE(same, kind, ": not recorded; run tools/abi_numbers --record");
  }
}
