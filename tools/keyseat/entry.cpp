// The tool's library: dispatches to the commands that need LibTorch and turns every failure into
// text and an exit status.
#include "tools/keyseat/entry.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include "comm/last_words.h"
#include "keyseat/status.h"
#include "runtime/loggers.h"
#include "tools/keyseat/commands.h"
#include "tools/keyseat/run_setup.h"
#include "tools/keyseat/tool_commands.h"

namespace {

struct Entry {
  std::string_view name;
  keyseat::tool::CommandFunction run;
};

constexpr int kUnexpected = 1;

}  // namespace

int keyseat_tool_main(int argc, const char* const* argv) {
  using keyseat::comm::say_last_words;
  static constexpr Entry kCommands[] = {
      {"train", keyseat::tool::command_train},     {"eval", keyseat::tool::command_eval},
      {"parity", keyseat::tool::command_parity},   {"bench", keyseat::tool::command_bench},
      {"data", keyseat::tool::command_data},       {"config", keyseat::tool::command_config},
      {"check", keyseat::tool::command_check},     {"describe", keyseat::tool::command_describe},
      {"version", keyseat::tool::command_version}, {"chain", keyseat::tool::command_chain},
  };
  try {
    // What all ranks would say alike, the first one says.
    if (!keyseat::tool::is_first_rank()) (void)keyseat::set_log_level("warn");
    for (const Entry& command : kCommands) {
      if (argc > 0 && command.name == argv[0]) return command.run(argc, argv);
    }
    fmt::print(stderr, "keyseat: no such command\n");
    return keyseat::tool::kUsageStatus;
  } catch (const keyseat::Error& error) {
    return say_last_words(error.problems());
  } catch (const c10::Error& error) {
    return say_last_words(
        {fmt::format("keyseat {}: LibTorch failed: {}", argv[0], error.what_without_backtrace())},
        kUnexpected);
  } catch (const std::exception& error) {
    return say_last_words({fmt::format("keyseat {}: {}", argv[0], error.what())}, kUnexpected);
  }
}
