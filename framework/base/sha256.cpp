#include "base/sha256.h"

#include <nettle/sha2.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

namespace keyseat {
namespace {

std::string hex_digest(sha256_ctx& context) {
  uint8_t digest[SHA256_DIGEST_SIZE];
  sha256_digest(&context, sizeof(digest), digest);
  std::string text;
  for (const uint8_t byte : digest) {
    constexpr char kDigits[] = "0123456789abcdef";
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

}  // namespace

std::string sha256_hex(std::string_view bytes) {
  sha256_ctx context;
  sha256_init(&context);
  sha256_update(&context, bytes.size(), reinterpret_cast<const uint8_t*>(bytes.data()));
  return hex_digest(context);
}

Result<std::string> sha256_hex_of_file(const std::filesystem::path& file) {
  const auto failure = [&](int error) {
    return Problem{.code = Code::kR7File,
                   .where = {},
                   .what = "could not read " + file.string() + ": " + std::strerror(error),
                   .why = "",
                   .remedy = ""};
  };
  const std::unique_ptr<FILE, int (*)(FILE*)> stream(std::fopen(file.c_str(), "rb"), &std::fclose);
  if (!stream) return failure(errno);
  sha256_ctx context;
  sha256_init(&context);
  std::vector<uint8_t> buffer(1 << 20);
  while (const size_t got = std::fread(buffer.data(), 1, buffer.size(), stream.get())) {
    sha256_update(&context, got, buffer.data());
  }
  if (std::ferror(stream.get()) != 0) return failure(errno);
  return hex_digest(context);
}

}  // namespace keyseat
