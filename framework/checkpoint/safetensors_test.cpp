#include <ATen/ops/arange.h>
#include <ATen/ops/randn.h>
#include <doctest/doctest.h>

#include "keyseat/safetensors.h"

namespace {

using keyseat::SafetensorsReader;

std::string temporary(const char* name) {
  const auto folder = std::filesystem::temp_directory_path() /
                      ("keyseat-safetensors-" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  return (folder / name).string();
}

void write_raw(const std::string& path, const std::string& header, const std::string& data) {
  std::ofstream out(path, std::ios::binary);
  const uint64_t length = header.size();
  out.write(reinterpret_cast<const char*>(&length), sizeof length);
  out << header << data;
}

}  // namespace

TEST_CASE("safetensors: what is written is read back bitwise, for every dtype") {
  const std::string path = temporary("round.safetensors");
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  for (at::ScalarType dtype : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16, at::kLong,
                               at::kInt, at::kShort, at::kChar, at::kByte, at::kBool}) {
    tensors.push_back({c10::toString(dtype), at::arange(7, at::kFloat).to(dtype)});
  }
  tensors.push_back({"transposed", at::randn({3, 5}).t()});
  tensors.push_back({"empty", at::randn({0, 4})});
  tensors.push_back({"scalar", at::randn({})});
  keyseat::write_safetensors(path, tensors, {{"format", "pt"}});
  const auto reader = SafetensorsReader::open(path).value_or_throw();
  CHECK(reader.metadata().at("format") == "pt");
  CHECK(reader.names().size() == tensors.size());
  for (const auto& [name, tensor] : tensors) {
    CHECK(reader.tensor(name).equal(tensor));
    CHECK((reader.dtype(name) == tensor.scalar_type()));
    CHECK(reader.shape(name) == tensor.sizes().vec());
  }
  CHECK(!std::filesystem::exists(path + ".partial"));
}

TEST_CASE("safetensors: a tensor outlives its reader") {
  const std::string path = temporary("keep.safetensors");
  keyseat::write_safetensors(path, {{"x", at::arange(5)}});
  const at::Tensor x = SafetensorsReader::open(path).value_or_throw().tensor("x");
  CHECK(x.sum().item<int64_t>() == 10);
}

TEST_CASE("safetensors: every broken header is refused and named") {
  const std::string path = temporary("broken.safetensors");
  const auto why = [&](const std::string& header, const std::string& data = std::string(16, '\0')) {
    write_raw(path, header, data);
    const auto reader = SafetensorsReader::open(path);
    REQUIRE(!reader.ok());
    return reader.problem().text();
  };
  const auto contains = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  CHECK(contains(why("{"), "not a JSON object"));
  CHECK(contains(why("[]"), "not a JSON object"));
  CHECK(contains(why(R"({"a":{"dtype":"F32","shape":[4]}})"), "data_offsets"));
  CHECK(contains(why(R"({"a":{"dtype":"F99","shape":[4],"data_offsets":[0,16]}})"), "F99"));
  CHECK(contains(why(R"({"a":{"dtype":"F32","shape":[5],"data_offsets":[0,16]}})"), "need 20"));
  CHECK(contains(why(R"({"a":{"dtype":"F32","shape":[-4],"data_offsets":[0,16]}})"), "sizes"));
  CHECK(contains(why(R"({"a":{"dtype":"F32","shape":[8],"data_offsets":[0,32]}})"), "of 16"));
  CHECK(
      contains(why(R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[16,0]}})"), "bytes 16 to 0"));
  CHECK(contains(
      why(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296,4],"data_offsets":[0,16]}})"),
      "too large"));
  CHECK(contains(why(R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]},)"
                     R"("b":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}})"),
                 "overlap"));
  CHECK(contains(why(R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]},)"
                     R"("a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}})"),
                 "twice"));
  CHECK(contains(why(R"({"__metadata__":{"x":1}})"), "not a string"));
  std::ofstream(path, std::ios::binary) << "abc";
  CHECK(contains(SafetensorsReader::open(path).problem().text(), "3 bytes"));
  CHECK(SafetensorsReader::open(temporary("missing")).problem().code == keyseat::Code::kR7File);
}

TEST_CASE("safetensors: 500 mutated files crash nothing and each bad one has a code") {
  const std::string good = temporary("good.safetensors"), bad = temporary("mutated.safetensors");
  keyseat::write_safetensors(good, {{"weight", at::randn({4, 4})}, {"bias", at::randn({4})}},
                             {{"format", "pt"}});
  std::ifstream in(good, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(in)), {});
  std::mt19937 random(20260417);
  int refused = 0;
  for (int round = 0; round < 500; ++round) {
    std::string changed = bytes;
    for (uint32_t edits = 1 + random() % 4; edits > 0; --edits)
      changed[random() % 160] = static_cast<char>(random());
    if (random() % 4 == 0) changed.resize(random() % changed.size());
    std::ofstream(bad, std::ios::binary) << changed;
    const auto reader = SafetensorsReader::open(bad);
    if (!reader.ok()) {
      ++refused;
      CHECK(!reader.problem().what.empty());
    } else {
      for (const auto& name : reader.value().names()) reader.value().tensor(name).sum();
    }
  }
  CHECK(refused > 100);
}
