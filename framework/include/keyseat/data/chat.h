// Conversations: from messages to token ids, modality types and the loss mask.
//
// One ChatML renderer is built in. A checkpoint whose own chat template is another text is refused
// by its digest, never approximated.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "keyseat/data/patch_grid.h"
#include "keyseat/data/tokenizer.h"
#include "keyseat/export.h"
#include "keyseat/status.h"

namespace keyseat::data {

enum class Role { kSystem, kUser, kAssistant };
enum class PartType { kText, kImage, kVideo };

struct Part {
  PartType type = PartType::kText;
  std::string text = {};    // text parts
  std::string source = {};  // image and video parts: the file named under "image" or "video"
  // Video parts that list frames: their files, and the time of each.
  std::vector<std::string> frames = {};
  std::vector<double> seconds = {};
};

struct Message {
  Role role = Role::kUser;
  std::vector<Part> parts;
};

// Reads a JSON array of {"role": ..., "content": string | [{"type": "text" | "image" | "video",
// ...}, ...]}. A video is {"type": "video", "video": [frame files], "fps": f} or, in place of fps,
// "timestamps": [seconds], one per frame, not falling. `where` names the record in problems.
// Errors: R6 for any other shape, naming message and part.
KEYSEAT_API Result<std::vector<Message>> parse_messages(const nlohmann::json& messages,
                                                        const SourcePosition& where);

struct ChatOptions {
  bool add_generation_prompt =
      false;  // ends with the header of an assistant message, for the model to continue
  bool add_vision_id =
      false;  // "Picture 1: ", "Video 1: " before images and videos, counted over all messages
};

// The text of the built-in template, byte for byte. Visuals appear as one placeholder each.
KEYSEAT_API std::string render(const std::vector<Message>& messages, const ChatOptions& options);

// Refuses a chat template other than the built-in one. Errors: R6.
KEYSEAT_API std::optional<Problem> check_chat_template(std::string_view template_text,
                                                       const SourcePosition& where);
// The same for the template that a checkpoint folder carries: chat_template.jinja,
// chat_template.json, or the key chat_template of tokenizer_config.json. A folder with none passes.
// Errors: R6, R7.
KEYSEAT_API std::optional<Problem> check_chat_template_of(const std::filesystem::path& folder);

struct VideoSize {
  PatchGrid grid;
  std::vector<double>
      frame_seconds;  // time of each sampled frame; the last repeats to fill its group
};

// All visuals of a conversation, images and videos each in order of appearance.
struct Visuals {
  std::vector<PatchGrid> images;
  std::vector<VideoSize> videos;
  int64_t merge_size = 2;           // m: m x m patches are one token
  int64_t temporal_patch_size = 2;  // frames per frame group
};

// Replaces each image placeholder by its h*w/m^2 copies, and each video placeholder by, per frame
// group,
// "<T seconds>" + vision start + h*w/m^2 copies + vision end, where T is the mean time of the
// group's first and last frame with one decimal. The start and end around a video's placeholder
// stay around all of it. Errors: R6 if the counts of placeholders and visuals differ, or a grid
// does not fit merge size or frames.
KEYSEAT_API Result<std::string> expand(std::string_view rendered, const Visuals& visuals);

inline constexpr int64_t kIgnoredLabel = -100;

// A conversation as tokens; the vectors are equally long, T.
struct ChatTokens {
  std::string expanded;            // the text that was tokenised
  std::vector<int64_t> ids;        // [T]
  std::vector<int8_t> token_type;  // [T] 0 text, 1 image placeholder, 2 video placeholder
  std::vector<uint8_t> loss_mask;  // [T] 1 where the token itself is to be learned

  // [T] the label of row i is token i + 1 where the mask has that one, else -100; the last row is
  // -100.
  std::vector<int64_t> shifted_labels() const;
};

// Renders, expands and encodes. Supervised are the tokens that lie wholly within the text of an
// assistant message or are the <|im_end|> that closes it: not the role header, not visuals, not a
// token that the vocabulary merges out of the header's line end and the text's beginning (a model
// that generates never gets to choose it). Errors: R6 as in expand and Tokenizer::encode, or if the
// vocabulary lacks a token of the template.
KEYSEAT_API Result<ChatTokens> encode_chat(const Tokenizer& tokenizer,
                                           const std::vector<Message>& messages,
                                           const ChatOptions& options, const Visuals& visuals);

}  // namespace keyseat::data
