// The JSON of a record as messages.
#pragma once

#include <string>
#include <vector>

#include "keyseat/data/chat.h"
#include "keyseat/data/fault.h"

namespace keyseat::data {

// {"messages": [...]}. Faults: bad_utf8, bad_json, bad_record, unknown_role, placeholder_mismatch.
Outcome<std::vector<Message>> read_messages(const std::string& text);

// Takes the last assistant turn off; its text is the answer. Fault: bad_record where it is not
// last.
Outcome<std::string> take_answer(std::vector<Message>& messages);

}  // namespace keyseat::data
