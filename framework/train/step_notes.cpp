#include "train/step_notes.h"

#include <nlohmann/json.hpp>

#include "comm/gather.h"
#include "train/step_counts.h"

namespace keyseat::train {

namespace {

using nlohmann::json;

// The histograms of a step, in the order in which they are sent.
constexpr Histogram RowStatistics::*kHistograms[] = {
    &RowStatistics::sample_tokens, &RowStatistics::images_per_sample, &RowStatistics::image_tokens,
    &RowStatistics::aspect_sixteenths};

std::string notes_text(const StepNotes& notes) {
  json histograms = json::array();
  for (const auto histogram : kHistograms) histograms.push_back(notes.statistics.*histogram);
  return json{histograms, notes.sample_ids, notes.failures}.dump(-1, ' ', /*ensure_ascii=*/false,
                                                                 json::error_handler_t::replace);
}

StepNotes notes_of_text(const std::string& text) {
  const json parts = json::parse(text);
  StepNotes notes;
  for (size_t i = 0; i < std::size(kHistograms); ++i)
    notes.statistics.*kHistograms[i] = parts.at(0).at(i).get<Histogram>();
  notes.sample_ids = parts.at(1).get<std::vector<std::vector<int64_t>>>();
  notes.failures = parts.at(2).get<Failures>();
  return notes;
}

}  // namespace

void add_failures(const Failures& more, Failures& failures) {
  for (const auto& [reason, failure] : more) {
    auto& [count, example] = failures[reason];
    count += failure.first;
    if (example.empty()) example = failure.second;
  }
}

StepNotes gather_notes(const StepNotes& own, Comm& comm, const Mesh& mesh) {
  if (mesh.world() == 1) return own;
  const std::vector<std::string> texts = comm::gather_texts(notes_text(own), comm, mesh.world());
  if (mesh.rank() != 0) return own;
  StepNotes all;
  for (int64_t rank = 0; rank < mesh.world(); ++rank) {
    if (!speaks_for_rows(mesh, rank)) continue;
    StepNotes notes = notes_of_text(texts[static_cast<size_t>(rank)]);
    for (const auto histogram : kHistograms) {
      for (const auto& [bucket, count] : notes.statistics.*histogram)
        (all.statistics.*histogram)[bucket] += count;
    }
    for (auto& ids : notes.sample_ids) all.sample_ids.push_back(std::move(ids));
    add_failures(notes.failures, all.failures);
  }
  return all;
}

}  // namespace keyseat::train
