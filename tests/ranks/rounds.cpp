// What belongs together in one operation, and its results.
#include <ATen/TensorOperators.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <numeric>

#include "tests/ranks/thread_world.h"

namespace keyseat::test {
namespace {

bool has_whole_tensor(CallKind kind) {
  return kind == CallKind::kAllReduce || kind == CallKind::kBroadcast;
}

// The tensor that says dtype and row shape: a receive has no input, a send no output.
const at::Tensor& described(const Call& call) {
  return call.input.defined() ? call.input : call.output;
}

std::vector<int64_t> row_shape(const at::Tensor& tensor) { return tensor.sizes().slice(1).vec(); }

at::Tensor rows(const at::Tensor& tensor, const std::vector<int64_t>& counts, size_t part) {
  const int64_t begin =
      std::accumulate(counts.begin(), counts.begin() + static_cast<long>(part), int64_t{0});
  return tensor.narrow(0, begin, counts[part]);
}

// bf16 is added in fp32 and rounded once, in the order of ranks.
at::Tensor reduced(const std::vector<at::Tensor>& parts, ReduceOp op) {
  const at::ScalarType type = parts[0].scalar_type();
  const at::ScalarType wide = type == at::kBFloat16 || type == at::kHalf ? at::kFloat : type;
  at::Tensor sum = parts[0].to(wide).clone();
  for (size_t i = 1; i < parts.size(); ++i) {
    const at::Tensor part = parts[i].to(wide);
    sum = op == ReduceOp::kSum   ? sum.add(part)
          : op == ReduceOp::kMax ? sum.maximum(part)
                                 : sum.minimum(part);
  }
  return sum.to(type);
}

bool kinds_fit(const Call& a, const Call& b) {
  if (a.channel != b.channel) return false;
  if (a.kind == CallKind::kSend) return b.kind == CallKind::kReceive;
  return a.kind == b.kind;
}

bool shapes_fit(const Call& a, const Call& b) {
  if (a.kind == CallKind::kBarrier) return true;
  const at::Tensor &x = described(a), &y = described(b);
  if (x.scalar_type() != y.scalar_type() || row_shape(x) != row_shape(y)) return false;
  const bool equal_rows = has_whole_tensor(a.kind) || a.kind == CallKind::kSend;
  return !equal_rows || x.size(0) == y.size(0);
}

bool counts_fit(const Round& round, size_t a, size_t b) {
  const Call &x = *round.calls[a], &y = *round.calls[b];
  if (x.kind == CallKind::kAllToAll) {
    return x.output_counts[b] == y.counts[a] && y.output_counts[a] == x.counts[b];
  }
  return x.counts == y.counts && x.root == y.root && x.op == y.op;
}

}  // namespace

std::string Call::text() const {
  const auto tensor = [](const at::Tensor& t) {
    return t.defined()
               ? fmt::format("{} [{}]", c10::toString(t.scalar_type()), fmt::join(t.sizes(), ", "))
               : std::string("nothing");
  };
  return fmt::format("{} of {} into {}, counts [{}] -> [{}], root {}{}", comm::call_name(kind),
                     tensor(input), tensor(output), fmt::join(counts, ", "),
                     fmt::join(output_counts, ", "), root,
                     channel == CommChannel::kParameters ? ", of parameters" : "");
}

bool Round::complete() const {
  return std::all_of(calls.begin(), calls.end(), [](const auto& call) { return call.has_value(); });
}

std::string mismatch(const Round& round) {
  for (size_t a = 0; a < round.calls.size(); ++a) {
    for (size_t b = a + 1; b < round.calls.size(); ++b) {
      const Call &x = *round.calls[a], &y = *round.calls[b];
      if (kinds_fit(x, y) && shapes_fit(x, y) && counts_fit(round, a, b)) continue;
      return fmt::format("ranks {} and {} disagree in the group [{}]: {} against {}",
                         round.ranks[a], round.ranks[b], fmt::join(round.ranks, ", "), x.text(),
                         y.text());
    }
  }
  return {};
}

void deliver(const Round& round, size_t member) {
  const Call& mine = *round.calls[member];
  const size_t size = round.calls.size();
  std::vector<at::Tensor> parts;
  switch (mine.kind) {
    case CallKind::kAllReduce:
      for (const auto& call : round.calls) parts.push_back(call->input);
      mine.output.copy_(reduced(parts, mine.op));
      break;
    case CallKind::kBroadcast:
      mine.output.copy_(round.calls[static_cast<size_t>(mine.root)]->input);
      break;
    case CallKind::kAllGather:
      for (size_t i = 0; i < size; ++i) {
        rows(mine.output, mine.counts, i).copy_(round.calls[i]->input);
      }
      break;
    case CallKind::kReduceScatter:
      for (const auto& call : round.calls) parts.push_back(rows(call->input, mine.counts, member));
      mine.output.copy_(reduced(parts, ReduceOp::kSum));
      break;
    case CallKind::kAllToAll:
      for (size_t i = 0; i < size; ++i) {
        const Call& sender = *round.calls[i];
        rows(mine.output, mine.output_counts, i).copy_(rows(sender.input, sender.counts, member));
      }
      break;
    case CallKind::kReceive:
      mine.output.copy_(round.calls[0]->input);
      break;
    case CallKind::kSend:
    case CallKind::kBarrier:
      break;
  }
}

}  // namespace keyseat::test
