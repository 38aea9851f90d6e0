#include "train/report.h"

#include <cerrno>
#include <cstring>
#include <fstream>

#include "keyseat/status.h"
#include "train/report/page.h"
#include "train/report/run_record.h"

namespace keyseat::train {

void write_report(const std::string& run_dir, const std::string& path) {
  const RunRecord run = read_run(run_dir);
  std::ofstream stream(path, std::ios::binary);
  stream << Page(run).html();
  stream.close();
  if (!stream)
    throw Error(
        Problem{Code::kR7File, {path, 0, 0}, "cannot write the report", std::strerror(errno), ""});
}

}  // namespace keyseat::train
