// What a rank gathered, computed and reduced when, as a Chrome trace (chrome://tracing, Perfetto).
#pragma once

#include <fstream>
#include <string>
#include <vector>

namespace keyseat_strategy_fsdp {

class Trace {
 public:
  Trace() = default;  // records nothing
  // Writes PATH.RANK.json, a JSON array with one event per line that is never closed, as the format
  // allows. Throws Error R7.
  Trace(const std::string& path, int64_t rank);

  bool on() const { return !path_.empty(); }
  enum class Lane { kCompute, kGather, kReduce };
  // `begin` and `end` of one thing on one lane have the same name.
  void begin(Lane lane, const std::string& name) { note(lane, name, /*begins=*/true); }
  void end(Lane lane, const std::string& name) { note(lane, name, /*begins=*/false); }
  // Appends what was noted since the last call. Throws Error R7.
  void flush();

 private:
  struct Event {
    Lane lane;
    std::string name;
    bool begins;
    double microseconds;
  };
  void note(Lane lane, const std::string& name, bool begins);
  void check() const;
  std::string path_;
  int64_t rank_ = 0;
  std::ofstream file_;
  std::vector<Event> events_;
};

}  // namespace keyseat_strategy_fsdp
