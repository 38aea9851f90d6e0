// The half of `keyseat check` that runs plugin code, and the file in which it reports to the other.
#pragma once

#include <string>
#include <vector>

#include "plugin/files/inspect.h"
#include "sdk/conformance/cases.h"
#include "tools/keyseat/config_arguments.h"

namespace keyseat::tool {

struct CheckRequest {
  std::string file;
  ConfigArguments config;  // `config.file` is empty without --config
  std::string report;      // in the child
};

struct CheckReport {
  bool loaded = false;    // the library was loaded and its entry ran
  bool complete = false;  // the child came to its end
  std::string running;    // the case that began last
  Problems problems;
  std::vector<conformance::CaseResult> cases;
  int count(conformance::Outcome outcome) const;
};

const char* outcome_name(conformance::Outcome outcome);  // "passed", "FAILED", "skipped"

// Loads the plugin and runs its cases; everything it learns goes to `request.report` at once, so
// that a crash loses nothing.
int check_in_child(const InspectedPlugin& plugin, const CheckRequest& request);

// A file of this process alone, removed at the end.
class ReportFile {
 public:
  ReportFile();
  ~ReportFile();
  ReportFile(const ReportFile&) = delete;
  const std::string& path() const { return path_; }
  CheckReport read() const;

 private:
  std::string path_;
};

}  // namespace keyseat::tool
