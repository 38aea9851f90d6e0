#include "train/step_counts.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "comm/gather.h"

namespace keyseat::train {

namespace {

constexpr int64_t kFields = 9;  // RowCounts, and whether the rank wants to stop

void store(const RowCounts& counts, int64_t* out) {
  const int64_t values[] = {counts.tokens, counts.padding,    counts.patches, counts.visual_tokens,
                            counts.images, counts.supervised, counts.samples, counts.failed};
  std::copy(std::begin(values), std::end(values), out);
}

RowCounts load(const int64_t* in) {
  RowCounts counts;
  counts.tokens = in[0];
  counts.padding = in[1];
  counts.patches = in[2];
  counts.visual_tokens = in[3];
  counts.images = in[4];
  counts.supervised = in[5];
  counts.samples = in[6];
  counts.failed = in[7];
  return counts;
}

// All ranks find it, since all know the counts of all. `all`: [world * micro_batches, kFields].
void require_same_rows(const at::Tensor& all, int64_t micro_batches, const Mesh& mesh) {
  std::map<std::pair<int64_t, int64_t>, int64_t> speakers;  // by data rank; the first one it has
  for (int64_t rank = 0; rank < mesh.world(); ++rank) {
    const std::pair data_rank{mesh.coordinate_of(rank, Axis::kReplicate),
                              mesh.coordinate_of(rank, Axis::kShard)};
    const int64_t speaker = speakers.try_emplace(data_rank, rank).first->second;
    for (int64_t m = 0; m < micro_batches; ++m) {
      const auto fields_of = [&](int64_t of) {
        return all.data_ptr<int64_t>() + (of * micro_batches + m) * kFields;
      };
      const int64_t *own = fields_of(rank), *first = fields_of(speaker);
      if (std::equal(own, own + kFields - 1, first)) continue;
      const RowCounts found = load(own), expected = load(first);
      throw Error(Problem{
          Code::kR6Data,
          {},
          fmt::format(
              "ranks {} and {} work on the same rows, but in micro-batch {} they have {} and "
              "{} tokens, {} and {} images, {} and {} samples that failed",
              speaker, rank, m, expected.tokens, found.tokens, expected.images, found.images,
              expected.failed, found.failed),
          "each of them reads and decodes its rows itself",
          "Look whether both hosts have the same files, and can read all of them."});
    }
  }
}

}  // namespace

bool speaks_for_rows(const Mesh& mesh, int64_t rank) {
  const Axis within[] = {Axis::kPipeline, Axis::kContext, Axis::kTensor};
  return std::all_of(std::begin(within), std::end(within),
                     [&](Axis axis) { return mesh.coordinate_of(rank, axis) == 0; });
}

StepCounts gather_counts(std::vector<Row>& rows, Comm& comm, const Mesh& mesh, bool stop) {
  const int64_t world = mesh.world();
  const auto micro_batches = static_cast<int64_t>(rows.size());
  const at::Tensor own = at::zeros({micro_batches, kFields}, at::kLong);
  for (int64_t m = 0; m < micro_batches; ++m) {
    int64_t* const fields = own.data_ptr<int64_t>() + m * kFields;
    store(rows[m].facts.counts, fields);
    fields[kFields - 1] = stop ? 1 : 0;
  }
  const at::Tensor all = at::empty({world * micro_batches, kFields}, at::kLong);
  comm::all_ranks(comm, world)
      .all_gather(all, own, std::vector<int64_t>(world, micro_batches))
      ->wait();
  require_same_rows(all, micro_batches, mesh);

  StepCounts counts;
  counts.micro_batches.resize(micro_batches);
  for (int64_t rank = 0; rank < world; ++rank) {
    const bool counts_rows = speaks_for_rows(mesh, rank);
    for (int64_t m = 0; m < micro_batches; ++m) {
      const int64_t* const fields = all.data_ptr<int64_t>() + (rank * micro_batches + m) * kFields;
      const RowCounts row = load(fields);
      counts.stop = counts.stop || fields[kFields - 1] != 0;
      if (!counts_rows) continue;
      counts.micro_batches[m] += row;
      counts.total += row;
    }
  }
  for (int64_t m = 0; m < micro_batches; ++m)
    rows[m].facts.shared_tokens = counts.micro_batches[m].tokens;
  return counts;
}

std::map<std::string, LossTerm> loss_terms(const Chain& chain, const LossSettings& settings,
                                           const RowCounts& total) {
  const auto normaliser = [&](const std::string& name) -> double {
    const int64_t count = name == "supervised" ? total.supervised
                          : name == "tokens"   ? total.tokens
                          : name == "images"   ? total.images
                                               : 1;
    return static_cast<double>(
        std::max<int64_t>(count, 1));  // a step without any has a loss of 0, not 0 / 0
  };
  std::map<std::string, LossTerm> terms;
  for (const Version& version : chain.versions()) {
    if (!version.name.starts_with("loss.")) continue;
    const std::string name = version.name.substr(5);
    const double weight = name == "aux" ? settings.aux_weight
                          : name == "z" ? settings.z_weight
                                        : 1.0;
    terms[name] = {weight, normaliser(version.spec.normaliser)};
  }
  return terms;
}

int64_t rows_of(DimSymbol symbol, const RowCounts& counts) {
  switch (symbol) {
    case DimSymbol::kP:
      return counts.patches;
    case DimSymbol::kV:
      return counts.visual_tokens;
    case DimSymbol::kN:
      return counts.images;
    case DimSymbol::kS:
      return counts.samples;
    default:
      return counts.tokens;
  }
}

}  // namespace keyseat::train
