// The index of shards: stored beside them, never trusted, built again where it does not fit.
#include "tests/data/data_runs.h"

using namespace keyseat;
using namespace keyseat::testing;

namespace {

namespace fs = std::filesystem;

const Values kCommon = {{"tokenizer", std::string("configs/data/tokenizer")},
                        {"micro_batch_size", int64_t{1}},
                        {"global_batch_size", int64_t{2}}};

Values source(const std::string& path, const Values& changes = {}) {
  return with(with(kCommon, {{"path", std::vector<std::string>{path}}}), changes);
}

std::string write_shard(const TempFolder& folder, const std::string& name, int samples) {
  Files files = {{"a.png", digit_png()}};
  for (int i = 0; i < samples; ++i) {
    files.push_back({fmt::format("{:02}.json", i),
                     digit_record("a.png", std::string(static_cast<size_t>(1 + i), 'y'))});
  }
  return folder.write(name, tar_of(files));
}

ShardIndex index_of(const std::string& plugin, const Values& values) {
  const auto index = open_data(plugin, values)->index();
  REQUIRE(index.size() == 1);
  return index[0];
}

}  // namespace

TEST_CASE("index: stored beside the shard, read the next time, with the same plan") {
  const TempFolder folder;
  const std::string path = write_shard(folder, "a.tar", 10);
  const auto built = open_data("webdataset", source(path));
  const ShardIndex first = built->index().at(0);
  CHECK(first.state == "no index yet");
  CHECK(first.path == path);
  CHECK(first.stored.starts_with(path + "."));
  CHECK(fs::exists(first.stored));
  CHECK(first.samples == 10);
  CHECK(first.images == 10);
  CHECK(first.patches == 160);
  CHECK(first.failed == 0);
  const auto read = open_data("webdataset", source(path));
  const ShardIndex second = read->index().at(0);
  CHECK(second.state == "read");
  CHECK(second.tokens == first.tokens);
  for (int64_t cursor = 0; cursor < 20; cursor += 2)
    CHECK(read->plan(cursor).rows == built->plan(cursor).rows);
  CHECK(rows_text(read->next_step()) == rows_text(built->next_step()));
  int64_t tokens = 0;
  for (int64_t id = 0; id < 10; ++id)
    tokens += static_cast<int64_t>(read->sample(id).value_or_throw().tokens.size());
  CHECK(tokens == first.tokens);
  CHECK(open_data("webdataset", source(path, {{"index_threads", int64_t{3}}}))->index()[0].tokens ==
        tokens);
}

TEST_CASE("index: other sizes, another index") {
  const TempFolder folder;
  const std::string path = write_shard(folder, "a.tar", 3);
  const ShardIndex plain = index_of("webdataset", source(path));
  const ShardIndex named = index_of("webdataset", source(path, {{"add_vision_id", true}}));
  CHECK(named.state == "no index yet");
  CHECK(named.stored != plain.stored);
  CHECK(named.tokens > plain.tokens);
  DataFacts facts = digit_facts();
  facts.input.min_pixels = 4096;
  const auto larger = open_data("webdataset", source(path), facts);
  CHECK(larger->index()[0].patches > plain.patches);
  CHECK(index_of("webdataset", source(path)).state == "read");
  // One that lies under the wrong name is found out.
  fs::copy_file(named.stored, plain.stored, fs::copy_options::overwrite_existing);
  const ShardIndex again = index_of("webdataset", source(path));
  CHECK(again.state.find("another tokenizer") != std::string::npos);
  CHECK(again.tokens == plain.tokens);
}

TEST_CASE("index: a damaged one is noticed and built again") {
  const TempFolder folder;
  const std::string path = write_shard(folder, "a.tar", 6);
  const ShardIndex good = index_of("webdataset", source(path));
  const std::string bytes = text_of(good.stored);
  std::vector<std::string> damaged = {"", "x", bytes.substr(0, 100),
                                      bytes.substr(0, bytes.size() - 1), bytes + "more"};
  for (size_t at = 0; at < bytes.size(); at += bytes.size() / 40 + 1) {
    damaged.push_back(bytes);
    damaged.back()[at] = static_cast<char>(damaged.back()[at] ^ 4);
  }
  int refused = 0;
  for (const std::string& content : damaged) {
    std::ofstream(good.stored, std::ios::binary) << content;
    const ShardIndex again = index_of("webdataset", source(path));
    refused += again.state == "read" ? 0 : 1;
    CHECK(again.tokens == good.tokens);
    CHECK(again.samples == good.samples);
    CHECK(index_of("webdataset", source(path)).state == "read");
  }
  // Blanks of the header, and bytes behind the last tensor, may differ without harm.
  CHECK(refused >= static_cast<int>(damaged.size()) - 3);
}

TEST_CASE("index: a shard that changed is measured again, also where its times say nothing") {
  const TempFolder folder;
  const std::string path = write_shard(folder, "a.tar", 6);
  const ShardIndex before = index_of("webdataset", source(path));
  std::string bytes = text_of(path);
  const auto times = fs::last_write_time(path);
  const size_t place = bytes.find("which digit is this?");
  bytes.replace(place, 20, "eine andere Frage...");  // as long, but other tokens
  {
    std::fstream same_file(path, std::ios::binary | std::ios::in | std::ios::out);
    same_file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }
  fs::last_write_time(path, times);
  const ShardIndex after = index_of("webdataset", source(path));
  CHECK(after.state == "the shard has changed");
  CHECK(after.tokens != before.tokens);
  CHECK(index_of("webdataset", source(path)).state == "read");
  // The same content under other times is still the same shard.
  fs::last_write_time(path, times + std::chrono::hours(1));
  CHECK(index_of("webdataset", source(path)).state == "read");
  write_shard(folder, "a.tar", 7);
  CHECK(index_of("webdataset", source(path)).samples == 7);
}

TEST_CASE("index: images beside a JSONL file belong to it") {
  const TempFolder folder;
  folder.write("a.png", png_of(32, 32));
  const std::string path =
      folder.write("a.jsonl", digit_record("a.png") + "\n" + digit_record("later.png"));
  const ShardIndex first = index_of("conversations", source(path));
  CHECK(first.failed == 1);
  CHECK(first.images == 1);
  CHECK(index_of("conversations", source(path)).state == "read");
  folder.write("a.png", png_of(64, 64));
  const ShardIndex larger = index_of("conversations", source(path));
  CHECK(larger.state == "a.png has changed");
  CHECK(larger.patches == 4 * first.patches);
  folder.write("later.png", png_of(32, 32));
  const ShardIndex found = index_of("conversations", source(path));
  CHECK(found.state == "later.png has changed");
  CHECK(found.failed == 0);
  fs::remove(folder.path() + "/a.png");
  CHECK(index_of("conversations", source(path)).failed == 1);
}

TEST_CASE("index: a file that changes under a run is a fault, and no row becomes too long") {
  const TempFolder folder;
  folder.write("a.png", png_of(32, 32));
  const std::string path = folder.write("a.jsonl", digit_record("a.png"));
  const auto data =
      open_data("conversations", source(path, {{"threads", int64_t{0}}, {"shuffle", false}}));
  CHECK(data->next_step().at(0).facts.counts.samples == 1);
  folder.write("a.png", png_of(64, 64));
  CHECK(data->next_step().at(0).facts.counts.samples == 0);
  CHECK(data->failures().at("changed").first == 2);
}

TEST_CASE("index: goes to index_dir where it cannot lie beside the shard, or is kept in memory") {
  const TempFolder folder;
  const std::string path = write_shard(folder, "a.tar", 4);
  const std::string beside = index_of("webdataset", source(path)).stored;
  fs::remove(beside);
  fs::create_directories(beside + "/in_the_way");  // no file can be renamed to it, for nobody
  const ShardIndex memory = index_of("webdataset", source(path));
  CHECK(memory.stored == "");
  CHECK(memory.samples == 4);
  const Values elsewhere = source(path, {{"index_dir", folder.path() + "/index/of/all"}});
  const ShardIndex stored = index_of("webdataset", elsewhere);
  CHECK(stored.stored.starts_with(folder.path() + "/index/of/all/"));
  CHECK(index_of("webdataset", elsewhere).state == "read");
}

TEST_CASE("index: several who open a shard at once share the work") {
  const TempFolder folder;
  const std::string path = write_shard(folder, "a.tar", 40);
  std::vector<std::shared_ptr<Data>> sources;
  for (int i = 0; i < 4; ++i) sources.push_back(make_plugin<Data>("webdataset", source(path)));
  std::vector<std::thread> threads;
  std::atomic<int> problems{0};
  for (const auto& data : sources) {
    threads.emplace_back(
        [&problems, data] { problems += static_cast<int>(data->open(digit_facts()).size()); });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(problems == 0);
  int built = 0;
  for (const auto& data : sources) {
    built += data->index().at(0).state == "read" ? 0 : 1;
    CHECK(data->index()[0].tokens == sources[0]->index()[0].tokens);
  }
  CHECK(built == 1);
}

TEST_CASE("index: `keyseat data index` builds, reads and builds again") {
  const TempFolder folder;
  write_shard(folder, "shards/a.tar", 3);
  write_shard(folder, "shards/b.tar", 5);
  const std::string config = write_config(
      folder, "webdataset", "path = [\"shards\"]\nmicro_batch_size = 1\nglobal_batch_size = 1\n");
  const auto states = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"data", "index", config, "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const CommandResult result = keyseat_command(folder, arguments);
    INFO(result.errors);
    REQUIRE(result.status == 0);
    const auto report = nlohmann::json::parse(result.output);
    REQUIRE(report.size() == 2);
    CHECK(report[0]["samples"] == 3);
    CHECK(report[1]["samples"] == 5);
    return std::vector<std::string>{report[0]["state"], report[1]["state"]};
  };
  CHECK(states({}) == std::vector<std::string>{"no index yet", "no index yet"});
  CHECK(states({}) == std::vector<std::string>{"read", "read"});
  CHECK(states({"--rebuild"}) == std::vector<std::string>{"asked for", "asked for"});
}
