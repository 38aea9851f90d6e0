#include "data/shard_opener.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/sha256.h"
#include "runtime/loggers.h"

namespace keyseat::data {

namespace {

namespace fs = std::filesystem;

// Held while a shard is indexed, so that other processes wait for the result. A lock dies with its
// process; where a file system has none, or after ten minutes, everybody does the work alone.
class ShardLock {
 public:
  explicit ShardLock(const std::string& path)
      : descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    const auto give_up = std::chrono::steady_clock::now() + std::chrono::minutes(10);
    while (descriptor_ >= 0 && ::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK && errno != EINTR) return;
      if (std::chrono::steady_clock::now() > give_up) return;
      waited_ = true;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }
  ShardLock(const ShardLock&) = delete;
  ~ShardLock() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  bool waited() const { return waited_; }

 private:
  int descriptor_;
  bool waited_ = false;
};

// Runs `work` on so many threads; an exception of any of them comes out at the end.
void run_on(int64_t threads, const std::function<void()>& work) {
  std::vector<std::future<void>> others;
  for (int64_t i = 1; i < threads; ++i) others.push_back(std::async(std::launch::async, work));
  std::exception_ptr failed;
  const auto keep = [&](const auto& part) {
    try {
      part();
    } catch (...) {
      failed = std::current_exception();
    }
  };
  keep(work);
  for (std::future<void>& other : others) keep([&] { other.get(); });
  if (failed) std::rethrow_exception(failed);
}

void add_totals(const IndexedShard& shard, ShardIndex& report) {
  report.samples = static_cast<int64_t>(shard.listing.records.size());
  for (const std::optional<SampleSize>& size : shard.sizes) {
    if (!size) ++report.failed;
    if (!size) continue;
    report.tokens += size->tokens;
    report.patches += size->patches;
    report.images += size->images;
  }
}

}  // namespace

// Beside the shard first; then in the folder for indexes, where shards of one name from different
// folders must not meet.
std::vector<std::string> ShardOpener::places(const std::string& path) const {
  const std::string suffix = "." + settings_.key.substr(0, 12) + ".keyseat-index";
  std::vector<std::string> files = {path + suffix};
  if (!settings_.index_folder.empty()) {
    const std::string folder_digest =
        sha256_hex(fs::absolute(path).lexically_normal().parent_path().string()).substr(0, 12);
    files.push_back((fs::path(settings_.index_folder) /
                     (folder_digest + "." + fs::path(path).filename().string() + suffix))
                        .string());
  }
  return files;
}

bool ShardOpener::read_stored(const std::string& path, OpenedShard& opened) const {
  for (const std::string& file : places(path)) {
    std::error_code error;
    if (!fs::is_regular_file(file, error)) continue;
    StoredIndex stored = read_index(file, settings_.key, path, folder_(path).value_or(""));
    if (!stored.shard) {
      opened.report.state = stored.refused;
      continue;
    }
    opened.shard = std::move(*stored.shard);
    opened.report.state = "read";
    opened.report.stored = file;
    if (stored.refresh && settings_.measure) store(path, opened);
    return true;
  }
  return false;
}

// Returns why it could not be done; empty where it was.
std::string ShardOpener::store(const std::string& path, OpenedShard& opened) const {
  static std::atomic<int> writers{0};  // of this process, which may open a shard twice at once
  std::string why;
  for (const std::string& file : places(path)) {
    std::error_code error;
    const std::string own = fmt::format("{}.{}.{}", file, ::getpid(), writers++);
    if (!why.empty()) fs::create_directories(settings_.index_folder, error);
    try {
      write_index(own, settings_.key, opened.shard);
    } catch (const Error& failed) {
      why = failed.problems().at(0).why;
      continue;
    }
    fs::rename(own, file, error);
    if (!error) {
      opened.report.stored = file;
      return "";
    }
    why = error.message();
    fs::remove(own, error);
  }
  return why;
}

std::optional<Problem> ShardOpener::build(const std::string& path, int64_t threads,
                                          OpenedShard& opened) const {
  const auto begin = std::chrono::steady_clock::now();
  IndexedShard& shard = opened.shard;
  FileStamp& own = shard.files[""] = take_stamp(path);
  auto listing = list_(path);
  if (!listing) return listing.problem();
  const ShardReader reader(path, std::move(listing).value(), folder_(path),
                           settings_.max_file_bytes);
  const std::vector<Extent>& records = reader.listing().records;
  shard.sizes.assign(records.size(), std::nullopt);
  std::mutex mutex;  // of shard.files
  std::atomic<size_t> next{0};
  run_on(threads, [&] {
    for (size_t i = next++; i < records.size(); i = next++) {
      const auto read = [&](const std::string& name) {
        const auto outside = reader.outside_path(name);
        FileStamp stamp = outside ? take_stamp(*outside) : FileStamp{};
        auto bytes = reader.file(records[i], name);
        if (!outside || name.empty()) return bytes;
        if (bytes) {
          stamp.hash = content_hash(bytes.value());
        } else if (stamp.size >= 0) {
          stamp.hash = content_hash_of(*outside).value_or(0);
        }
        const std::lock_guard<std::mutex> lock(mutex);
        shard.files[name] = stamp;
        return bytes;
      };
      if (const auto size = measure_(reader, records[i], read)) shard.sizes[i] = size.value();
    }
  });
  own.hash = content_hash_of(path).value_or(0);
  shard.listing = reader.listing();
  const FileStamp after = take_stamp(path);
  if (after.size != own.size || after.changed_ns != own.changed_ns) {
    return Problem{Code::kR6Data,
                   {path, 0, 0},
                   "the shard changed while it was indexed",
                   "offsets and sizes would be those of two files",
                   "Wait until the shard is complete."};
  }
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  // Small sets are indexed in no time, which is not worth a line.
  logger("data")->log(seconds >= 1 ? spdlog::level::info : spdlog::level::debug,
                      "{}: {}; {} samples measured in {:.1f} s", path, opened.report.state,
                      records.size(), seconds);
  const std::string why = store(path, opened);
  if (!why.empty()) {
    logger("data")->warn(
        "the index of {} cannot be stored ({}) and is built again by every run; "
        "data.options.index_dir names another folder for it",
        path, why);
  }
  return std::nullopt;
}

Result<OpenedShard> ShardOpener::open_one(const std::string& path, int64_t threads) const {
  OpenedShard opened;
  opened.report.path = path;
  opened.report.state = settings_.rebuild ? "asked for" : "no index yet";
  bool stored = !settings_.rebuild && read_stored(path, opened);
  if (!stored && opened.report.state.find("stored") != std::string::npos)
    logger("data")->warn("{}: {}", path, opened.report.state);
  if (!stored && !settings_.measure) {
    auto listing = list_(path);
    if (!listing) return listing.problem();
    opened.shard.listing = std::move(listing).value();
    opened.report.state = "not needed";
  } else if (!stored) {
    // Somebody else may have built it in the meantime.
    const ShardLock lock(path);
    stored = (!settings_.rebuild || lock.waited()) && read_stored(path, opened);
    if (!stored) {
      if (auto problem = build(path, threads, opened)) return *problem;
    }
  }
  add_totals(opened.shard, opened.report);
  if (!opened.shard.listing.cut.empty())
    logger("data")->warn("{}: {}", path, opened.shard.listing.cut);
  return opened;
}

std::vector<OpenedShard> ShardOpener::open(const std::vector<std::string>& paths,
                                           Problems& problems) const {
  std::vector<std::optional<Result<OpenedShard>>> results(paths.size());
  std::atomic<size_t> next{0};
  const auto count = static_cast<int64_t>(paths.size());
  const int64_t outer = std::max<int64_t>(1, std::min(settings_.threads, count));
  const int64_t inner = std::max<int64_t>(1, settings_.threads / outer);
  run_on(outer, [&] {
    for (size_t i = next++; i < paths.size(); i = next++) {
      const size_t shard = (i + static_cast<size_t>(settings_.first)) % paths.size();
      results[shard].emplace(open_one(paths[shard], inner));
    }
  });
  std::vector<OpenedShard> opened;
  for (auto& result : results) {
    if (result->ok()) {
      opened.push_back(std::move(*result).value());
    } else {
      problems.push_back(result->problem());
    }
  }
  return opened;
}

}  // namespace keyseat::data
