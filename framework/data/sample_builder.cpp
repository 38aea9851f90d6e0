#include "data/sample_builder.h"

#include "data/conversation_record.h"
#include "data/image_augment.h"

namespace keyseat::data {

// All of a sample but its patches.
struct SampleBuilder::Draft {
  Sample sample;
  std::vector<Visual> visuals;
};

Outcome<std::vector<Visual>> SampleBuilder::visuals_of(const std::vector<Message>& messages,
                                                       const ReadFile& read) const {
  if (visuals_) return visuals_->measure(messages, read);
  for (const Message& message : messages) {
    for (const Part& part : message.parts) {
      if (part.type != PartType::kText)
        return Fault{FaultKind::kBadRecord, "holds an image, the model takes text only"};
    }
  }
  return std::vector<Visual>();
}

Outcome<SampleBuilder::Draft> SampleBuilder::draft(const RecordSource& record,
                                                   bool is_prompt) const {
  auto messages = read_messages(record.json);
  if (!messages) return messages.fault();
  Draft draft;
  Sample& sample = draft.sample;
  sample.id = record.id;
  sample.key = record.key;
  if (is_prompt) {
    auto answer = take_answer(messages.value());
    if (!answer) return answer.fault();
    sample.answer = std::move(answer).value();
  }
  auto visuals = visuals_of(messages.value(), record.read);
  if (!visuals) return visuals.fault();
  draft.visuals = std::move(visuals).value();
  for (const Visual& visual : draft.visuals) {
    sample.files.insert(sample.files.end(), visual.names.begin(), visual.names.end());
    for (int64_t edge : {visual.grid.t, visual.grid.h, visual.grid.w})
      sample.grid_thw.push_back(edge);
  }
  const ChatOptions options{is_prompt, settings_.add_vision_id};
  auto tokens = encode_chat(tokenizer_, messages.value(), options,
                            visuals_ ? visuals_->sizes(draft.visuals) : Visuals{});
  if (!tokens) return Fault{FaultKind::kBadText, tokens.problem().what};
  sample.labels = is_prompt ? std::vector<int64_t>(tokens.value().ids.size(), kIgnoredLabel)
                            : tokens.value().shifted_labels();
  sample.tokens = std::move(tokens.value().ids);
  sample.token_type = std::move(tokens.value().token_type);
  sample.text = std::move(tokens.value().expanded);
  return draft;
}

Outcome<Sample> SampleBuilder::finish(Draft draft, int64_t pass) const {
  if (draft.visuals.empty()) return std::move(draft.sample);
  const int64_t id = draft.sample.id;
  const auto alter = [&](Image image, int64_t visual) {
    if (pass >= 0 && settings_.augment > 0) {
      image =
          shifted(image, augmentation_shift(settings_.seed, id, pass, visual, settings_.augment));
    }
    return settings_.blank_images ? blank(image) : image;
  };
  auto patches = visuals_->cut(draft.visuals, alter);
  if (!patches) return patches.fault();
  draft.sample.patches = std::move(patches).value();
  return std::move(draft.sample);
}

Outcome<Sample> SampleBuilder::training(const RecordSource& record, int64_t pass) const {
  auto drafted = draft(record, /*is_prompt=*/false);
  if (!drafted) return drafted.fault();
  return finish(std::move(drafted).value(), pass);
}

Outcome<Sample> SampleBuilder::prompt(const RecordSource& record) const {
  auto drafted = draft(record, /*is_prompt=*/true);
  if (!drafted) return drafted.fault();
  return finish(std::move(drafted).value(), /*pass=*/-1);
}

Outcome<SampleSize> SampleBuilder::measure(const RecordSource& record) const {
  const auto drafted = draft(record, /*is_prompt=*/false);
  if (!drafted) return drafted.fault();
  SampleSize size;
  size.tokens = static_cast<int64_t>(drafted.value().sample.tokens.size());
  for (const Visual& visual : drafted.value().visuals) {
    size.patches += visual.grid.patches();
    ++size.images;
  }
  return size;
}

}  // namespace keyseat::data
