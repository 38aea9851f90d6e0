// The tool's library: dispatches to the commands that need LibTorch and turns every failure into
// text and an exit status.
#include "tools/keyseat/entry.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include "keyseat/status.h"
#include "tools/keyseat/tool_commands.h"

namespace {

struct Entry {
  std::string_view name;
  keyseat::tool::CommandFunction run;
};

constexpr int kUsage = 2;
constexpr int kUnexpected = 1;

}  // namespace

int keyseat_tool_main(int argc, const char* const* argv) {
  static constexpr Entry kCommands[] = {
      {"train", keyseat::tool::command_train},     {"eval", keyseat::tool::command_eval},
      {"parity", keyseat::tool::command_parity},   {"bench", keyseat::tool::command_bench},
      {"data", keyseat::tool::command_data},       {"config", keyseat::tool::command_config},
      {"check", keyseat::tool::command_check},     {"describe", keyseat::tool::command_describe},
      {"version", keyseat::tool::command_version}, {"chain", keyseat::tool::command_chain},
  };
  try {
    for (const Entry& command : kCommands) {
      if (argc > 0 && command.name == argv[0]) return command.run(argc, argv);
    }
    fmt::print(stderr, "keyseat: no such command\n");
    return kUsage;
  } catch (const keyseat::Error& error) {
    fmt::print(stderr, "{}\n", keyseat::problems_text(error.problems()));
    return error.problems().empty() ? kUnexpected
                                    : keyseat::exit_status(error.problems().front().code);
  } catch (const c10::Error& error) {
    fmt::print(stderr, "keyseat {}: LibTorch failed: {}\n", argv[0],
               error.what_without_backtrace());
    return kUnexpected;
  } catch (const std::exception& error) {
    fmt::print(stderr, "keyseat {}: {}\n", argv[0], error.what());
    return kUnexpected;
  }
}
