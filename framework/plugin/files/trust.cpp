#include "plugin/files/trust.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/sha256.h"

namespace keyseat {
namespace {

Problem untrusted(const std::filesystem::path& file, const std::string& what,
                  const std::string& remedy) {
  return Problem{Code::kP5Untrusted,
                 {},
                 fmt::format("{} is not trusted: {}", file.string(), what),
                 "",
                 remedy};
}

std::optional<Problem> check_owner_and_mode(const std::filesystem::path& file,
                                            const std::filesystem::path& checked,
                                            const struct stat& status) {
  if ((status.st_mode & S_IWOTH) != 0) {
    return untrusted(file,
                     fmt::format("{} is writable by others (mode {:o})", checked.string(),
                                 status.st_mode & 07777U),
                     fmt::format("chmod o-w {}", checked.string()));
  }
  if (status.st_uid != 0 && status.st_uid != geteuid()) {
    return untrusted(file,
                     fmt::format("{} belongs to user {}, neither to root nor to this user ({})",
                                 checked.string(), status.st_uid, geteuid()),
                     "Copy it to a folder of your own, or have root install it.");
  }
  return std::nullopt;
}

std::optional<Problem> check_folder(const std::filesystem::path& file,
                                    const std::filesystem::path& folder) {
  struct stat status;
  if (stat(folder.c_str(), &status) != 0) {
    return untrusted(file, fmt::format("its folder cannot be read: {}", std::strerror(errno)), "");
  }
  return check_owner_and_mode(file, folder, status);
}

}  // namespace

std::optional<Problem> check_trust(const std::filesystem::path& file) {
  struct stat status;
  if (stat(file.c_str(), &status) != 0) {
    return untrusted(file, fmt::format("it cannot be read: {}", std::strerror(errno)), "");
  }
  if (!S_ISREG(status.st_mode)) return untrusted(file, "it is not a regular file", "");
  if (auto problem = check_owner_and_mode(file, file, status)) return problem;
  if (auto problem = check_folder(file, file.parent_path())) return problem;
  std::error_code error;
  const auto target = std::filesystem::canonical(file, error);
  if (error) return untrusted(file, "its link cannot be followed: " + error.message(), "");
  return check_folder(file, target.parent_path());
}

std::optional<Problem> check_pin(const std::filesystem::path& file, const std::string& id,
                                 const std::map<std::string, std::string>& pins) {
  if (pins.empty()) return std::nullopt;
  const char* const print = "`keyseat list --pins` prints the lines to paste.";
  const auto pin = pins.find(id);
  if (pin == pins.end()) {
    return untrusted(file, fmt::format("[plugins.pin] lists what may be loaded, and not {}", id),
                     print);
  }
  const Result<std::string> digest = sha256_hex_of_file(file);
  if (!digest) return digest.problem();
  std::string pinned = pin->second;
  std::transform(pinned.begin(), pinned.end(), pinned.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (digest.value() == pinned) return std::nullopt;
  return untrusted(file,
                   fmt::format("[plugins.pin] wants SHA-256 {} for {}, the file has {}", pinned, id,
                               digest.value()),
                   fmt::format("If the new file is right, {}", print));
}

}  // namespace keyseat
