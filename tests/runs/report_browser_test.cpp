// report.html as a browser lays it out, on a phone and on a desk. Skipped where there is no
// Chromium.
#include <doctest/doctest.h>
#include <unistd.h>

#include "tests/runs/run_command.h"
#include "tests/skip.h"

using namespace keyseat_runs;

namespace {

std::string output_of(const std::string& command) {
  FILE* pipe = popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::string text;
  char buffer[1 << 14];
  for (size_t n = 0; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;) text.append(buffer, n);
  pclose(pipe);
  return text;
}

std::string browser() {
  std::string path = output_of("command -v chromium || command -v google-chrome || true");
  while (!path.empty() && path.back() == '\n') path.pop_back();
  return path;
}

// Tells the page around it how it was laid out: whether anything is wider than the window, how
// small text is, and what is there.
constexpr const char* kProbe = R"html(<script>
addEventListener("load", () => {
  const width = document.documentElement.clientWidth;
  const boxes = [...document.querySelectorAll("figure, .tile, .card, svg, h1, h2, p")];
  const texts = [...document.querySelectorAll("svg text")].filter(text => text.textContent);
  const scale = svg => svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
  parent.postMessage(JSON.stringify({
    width: width,
    scroll_width: document.documentElement.scrollWidth,
    too_wide: boxes.filter(box => box.getBoundingClientRect().right > width + 0.5).length,
    smallest_text: Math.min(...texts.map(text =>
      parseFloat(getComputedStyle(text).fontSize) * scale(text.ownerSVGElement))),
    figures: document.querySelectorAll("figure svg").length,
    columns: new Set([...document.querySelectorAll("figure")].map(
      figure => Math.round(figure.getBoundingClientRect().left))).size,
    empty_figures: [...document.querySelectorAll("figure svg")].filter(
      svg => svg.getBoundingClientRect().height < 40).length
  }), "*");
});
</script>)html";

json laid_out(const std::string& chromium, const Scratch& scratch, const std::string& html,
              int width) {
  const fs::path page = scratch / "page.html", frame = scratch / "frame.html";
  std::ofstream(page) << html << kProbe;
  std::ofstream(frame) << fmt::format(
      "<!doctype html><body style=\"margin:0\"><iframe src=\"page.html\" "
      "style=\"border:0;width:{}px;"
      "height:900px\"></iframe><script>addEventListener(\"message\", event => {{"
      "document.body.append(\"PROBE\" + event.data + \"END\");}});</script>",
      width);
  const std::string command = fmt::format(
      "timeout 60 '{}' --headless --no-sandbox --disable-gpu --hide-scrollbars "
      "--user-data-dir='{}' "
      "--window-size=1400,1000 --virtual-time-budget=4000 --dump-dom 'file://{}' 2>/dev/null",
      chromium, (scratch / "profile").string(), frame.string());
  const std::string dom = output_of(command);
  const size_t begin = dom.rfind("PROBE{"), end = dom.rfind("}END");
  REQUIRE_MESSAGE((begin != std::string::npos && end != std::string::npos), dom);
  return json::parse(dom.substr(begin + 5, end + 1 - begin - 5));
}

}  // namespace

TEST_CASE("report in a browser: nothing is cut off or too small at 390 and at 1280 pixels") {
  const std::string chromium = browser();
  if (chromium.empty()) KEYSEAT_SKIP("Chromium is not installed");
  const Scratch scratch;
  const Ending ending =
      train(scratch / "run", {"--set", "run.steps=6", "--set", "eval.every=2", "--set",
                              "eval.samples=4", "--set", "eval.max_new_tokens=1"});
  REQUIRE_MESSAGE(ending.status == 0, ending.err);
  const std::string html = bytes_of(scratch / "run/report.html");
  for (const int width : {390, 1280}) {
    const json page = laid_out(chromium, scratch, html, width);
    INFO(page.dump());
    CHECK(page.at("width") == width);
    CHECK(page.at("scroll_width") == width);
    CHECK(page.at("too_wide") == 0);
    CHECK(page.at("empty_figures") == 0);
    CHECK(page.at("figures") == 18);
    CHECK(page.at("smallest_text").get<double>() >= 9);
    CHECK(page.at("columns") == (width == 390 ? 1 : 2));
  }
}
