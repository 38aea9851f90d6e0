// `keyseat data inspect --html`.
#include "tests/data/data_runs.h"

using namespace keyseat;
using namespace keyseat::testing;

TEST_CASE("inspect: one page with images, labels and failures, and nothing from outside") {
  const TempFolder folder;
  folder.write("1.png", png_of(32, 48, 1));
  folder.write("2.png", png_of(32, 48, 2));
  const std::string jpeg = digit_jpeg();
  folder.write("digit.jpg", jpeg);
  folder.write("cut.jpg", jpeg.substr(0, jpeg.size() / 2));
  folder.write(
      "a.jsonl",
      digit_record("digit.jpg", "an <b>answer</b>") + "\n" + digit_record("cut.jpg") + "\n" +
          R"({"messages":[{"role":"user","content":[{"type":"video","video":["1.png","2.png","1.png"],)"
          R"("fps":2},{"type":"text","text":"\u4f60\u597d"}]},{"role":"assistant","content":"ok"}]})");
  const std::string config =
      write_config(folder, "conversations",
                   "path = [\"a.jsonl\"]\nmicro_batch_size = 1\nglobal_batch_size = 1\n");
  const std::string page_path = folder.path() + "/page.html";
  const CommandResult result =
      keyseat_command(folder, {"data", "inspect", config, "--html", page_path});
  INFO(result.errors);
  REQUIRE(result.status == 0);
  CHECK(result.output.find("1 failed: 1 truncated") != std::string::npos);
  const std::string page = text_of(page_path);
  const auto count = [&](const std::string& part) {
    size_t found = 0;
    for (size_t at = page.find(part); at != std::string::npos; at = page.find(part, at + 1))
      ++found;
    return found;
  };
  CHECK(count("data:image/png;base64,") == 3);  // one image, two frame groups
  CHECK(count("<div class=\"sample\">") == 2);
  CHECK(count("group 2 of 2") == 1);
  CHECK(page.find("a.jsonl:1") != std::string::npos);
  CHECK(page.find("truncated") != std::string::npos);
  CHECK(page.find("<b>answer</b>") == std::string::npos);  // escaped
  CHECK(page.find("\u4f60") != std::string::npos);  // tokens of parts are shown as characters
  CHECK(page.find("<i class=\"y\">") != std::string::npos);
  CHECK(page.find("name=\"viewport\"") != std::string::npos);
  for (const char* outside : {"http://", "https://", "<script", "src=\"/", "@import"})
    CHECK(page.find(outside) == std::string::npos);
  // What is marked is what is learned: the answers and their ends.
  std::string learned;
  const std::string mark = "<i class=\"y\">";
  for (size_t at = page.find(mark); at != std::string::npos; at = page.find(mark, at + 1))
    learned += page.substr(at + mark.size(), page.find("</i>", at) - at - mark.size());
  CHECK(learned == "an &lt;b&gt;answer&lt;/b&gt;&lt;|im_end|&gt;ok&lt;|im_end|&gt;");
}
