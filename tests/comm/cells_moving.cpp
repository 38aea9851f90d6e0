// Collectives that only move data: bitwise, any dtype, zero-length parts.
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <fmt/format.h>

#include "tests/comm/cells.h"

namespace keyseat::comm_test {
namespace {

std::string label(const CellGroup& cell, const char* what, at::ScalarType type, int64_t scale) {
  return fmt::format("{}: {} of {}, scale {}", cell.name, what, c10::toString(type), scale);
}

at::Tensor unset(int64_t rows, int64_t width, at::ScalarType type) {
  return at::full({rows, width}, 99, type);
}

int64_t sum(const std::vector<int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

void all_gather(const CellGroup& cell, at::ScalarType type, const std::vector<int64_t>& counts,
                int64_t width, Checks& checks) {
  std::vector<at::Tensor> parts;
  for (int64_t peer = 0; peer < cell.size(); ++peer)
    parts.push_back(values(peer, counts[peer], width, type));
  const at::Tensor expected = at::cat(parts);
  at::Tensor output = unset(sum(counts), width, type);
  cell.group.all_gather(output, parts[cell.own()], counts)->wait();
  checks.expect(output.equal(expected), label(cell, "all_gather", type, counts.back()));
  // In place: the input is this rank's part of the output.
  at::Tensor place = unset(sum(counts), width, type);
  const int64_t first = sum({counts.begin(), counts.begin() + cell.own()});
  const at::Tensor part = place.narrow(0, first, counts[cell.own()]);
  part.copy_(parts[cell.own()]);
  cell.group.all_gather(place, part, counts)->wait();
  checks.expect(place.equal(expected), label(cell, "all_gather in place", type, counts.back()));
}

void all_to_all(const CellGroup& cell, at::ScalarType type, int64_t scale, int64_t width,
                Checks& checks) {
  // Rank i sends (i + j) % 3 * scale rows to rank j.
  const auto rows = [&](int64_t from, int64_t to) { return (from + to) % 3 * scale; };
  const auto piece = [&](int64_t from, int64_t to) {
    return values(from, rows(from, to), width, type, /*seed=*/to);
  };
  std::vector<int64_t> go, come;
  std::vector<at::Tensor> out, expected;
  for (int64_t peer = 0; peer < cell.size(); ++peer) {
    go.push_back(rows(cell.own(), peer));
    come.push_back(rows(peer, cell.own()));
    out.push_back(piece(cell.own(), peer));
    expected.push_back(piece(peer, cell.own()));
  }
  at::Tensor output = unset(sum(come), width, type);
  cell.group.all_to_all(output, at::cat(out), come, go)->wait();
  checks.expect(output.equal(at::cat(expected)), label(cell, "all_to_all", type, scale));
}

void broadcast(const CellGroup& cell, at::ScalarType type, int64_t rows, Checks& checks) {
  for (int64_t root = 0; root < cell.size(); ++root) {
    at::Tensor tensor = values(cell.own(), rows, 3, type);
    cell.group.broadcast(tensor, root)->wait();
    checks.expect(tensor.equal(values(root, rows, 3, type)), label(cell, "broadcast", type, rows));
  }
}

// Everybody to everybody at once, twice, sends posted before receives.
void messages(const CellGroup& cell, at::ScalarType type, int64_t rows, Checks& checks) {
  if (cell.size() == 1) return;
  std::vector<std::unique_ptr<Work>> works;
  std::vector<at::Tensor> held;
  struct Expected {
    at::Tensor got, wanted;
  };
  std::vector<Expected> received;
  for (int64_t round = 0; round < 2; ++round) {
    for (int64_t peer = 0; peer < cell.size(); ++peer) {
      if (peer == cell.own()) continue;
      held.push_back(values(cell.own(), rows, 2, type, 3 * peer + round));
      works.push_back(cell.group.send(held.back(), peer));
    }
    for (int64_t peer = 0; peer < cell.size(); ++peer) {
      if (peer == cell.own()) continue;
      received.push_back(
          {unset(rows, 2, type), values(peer, rows, 2, type, 3 * cell.own() + round)});
      works.push_back(cell.group.receive(received.back().got, peer));
    }
  }
  for (auto& work : works) work->wait();
  for (const Expected& message : received) {
    checks.expect(message.got.equal(message.wanted), label(cell, "messages", type, rows));
  }
}

}  // namespace

void check_moving(const CellGroup& cell, Checks& checks) {
  const auto ranks = static_cast<size_t>(cell.size());
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kLong, at::kByte}) {
    for (const int64_t scale : {0, 1, 301}) {
      all_gather(cell, type, std::vector<int64_t>(ranks, scale), 3, checks);
      all_gather(cell, type, uneven_counts(cell.size(), scale), 5, checks);
      all_to_all(cell, type, scale, 3, checks);
      broadcast(cell, type, scale, checks);
      messages(cell, type, scale, checks);
    }
  }
  // More than passes at once.
  all_to_all(cell, at::kBFloat16, 100000, 16, checks);
  all_gather(cell, at::kByte, uneven_counts(cell.size(), 1000003), 1, checks);
  messages(cell, at::kFloat, 200001, checks);
}

}  // namespace keyseat::comm_test
