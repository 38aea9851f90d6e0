#include "tools/keyseat/inspect_page.h"

#include <fmt/format.h>

#include "data/utf8.h"
#include "keyseat/data/patches.h"
#include "train/report/page_style.h"
#include "train/report/plot.h"

namespace keyseat::tool {

namespace {

using train::escape_html;

// Frames of a video that are shown; more are only counted.
constexpr int64_t kShownFrames = 8;

constexpr const char* kStyle = R"css(
.sample{margin:0 0 14px;padding:12px;background:var(--card);border:1px solid var(--rule);
border-radius:10px}
.sample h3{margin:0 0 4px;font-size:1rem;overflow-wrap:anywhere}
.sample p{margin:0 0 8px;color:var(--soft);font-size:.86rem}
.images{display:flex;flex-wrap:wrap;gap:10px;margin:0 0 10px}
.images div{max-width:100%;font-size:.8rem;color:var(--soft);overflow-wrap:anywhere}
.images img{display:block;max-width:100%;min-width:64px;border:1px solid var(--rule);
border-radius:4px;image-rendering:pixelated}
.tokens{white-space:pre-wrap;overflow-wrap:anywhere;line-height:1.7;font-size:.92rem}
.tokens i{font-style:normal;border-radius:3px;box-shadow:inset -1px 0 0 var(--rule)}
.tokens i.y{background:#2bc29a55;box-shadow:inset -1px 0 0 #2bc29a88}
.tokens i.s{color:var(--soft)}
.tokens b{padding:1px 6px;border-radius:8px;background:var(--c0);color:#fff;font-size:.8rem;
font-weight:600;white-space:nowrap}
.key i{padding:0 4px;font-style:normal;border-radius:3px;background:#2bc29a55}
)css";

std::string base64(const std::vector<uint8_t>& bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t left = std::min<size_t>(3, bytes.size() - i);
    uint32_t group = 0;
    for (size_t k = 0; k < 3; ++k) group = group << 8 | (k < left ? bytes[i + k] : 0u);
    for (size_t k = 0; k < 4; ++k) text += k <= left ? kDigits[group >> (18 - 6 * k) & 63] : '=';
  }
  return text;
}

// Line ends are shown and kept.
std::string token_html(const std::string& bytes, const char* style) {
  std::string text;
  for (const char c : escape_html(data::utf8_lossy(bytes))) {
    if (c == '\n') text += "\u23ce";
    text += c;
  }
  return fmt::format("<i class=\"{}\">{}</i>", style, text);
}

std::string range_row(const std::string& name, const nlohmann::json& range) {
  return fmt::format(
      "<tr><th scope=\"row\">{}</th><td class=\"n\">{}</td><td class=\"n\">{:.1f}"
      "</td><td class=\"n\">{}</td></tr>\n",
      name, range["least"].dump(), range["mean"].get<double>(), range["most"].dump());
}

std::string failures_html(const nlohmann::json& report) {
  if (!report.contains("reasons")) return "<p>None.</p>\n";
  std::string html = "<div class=\"card\"><table>\n";
  for (const auto& [reason, failure] : report["reasons"].items()) {
    html += fmt::format("<tr><th scope=\"row\">{}</th><td class=\"n\">{}</td><td>{}</td></tr>\n",
                        escape_html(reason), failure["count"].dump(),
                        escape_html(failure["example"].get<std::string>()));
  }
  return html + "</table></div>\n";
}

}  // namespace

// Every token with its border; what is learned is marked, a run of placeholders is one chip.
std::string InspectPage::tokens_html(const Sample& sample) const {
  std::string html;
  for (size_t i = 0; i < sample.tokens.size();) {
    size_t end = i + 1;
    if (sample.token_type[i] != 0) {
      while (end < sample.tokens.size() && sample.token_type[end] == sample.token_type[i]) ++end;
      html += fmt::format("<b>{}: {} tokens</b>", sample.token_type[i] == 1 ? "image" : "frames",
                          end - i);
    } else {
      const bool learned = i > 0 && sample.labels[i - 1] >= 0;
      std::string bytes = data_.token_text(sample.tokens[i]);
      // Tokens that are parts of one character are shown as one.
      while (data::find_invalid_utf8(bytes) != std::string::npos && end < sample.tokens.size() &&
             end < i + 4 && sample.token_type[end] == 0) {
        bytes += data_.token_text(sample.tokens[end++]);
      }
      const bool special = bytes.starts_with("<|") && bytes.ends_with("|>");
      html += token_html(bytes, learned ? "y" : special ? "s" : "");
    }
    i = end;
  }
  return html;
}

std::string InspectPage::images_html(const Sample& sample) const {
  if (!sample.patches.defined() || sample.grid_thw.empty()) return "";
  data::PatchFormat format;
  format.patch_size = input_.patch_size;
  format.temporal_patch_size = input_.temporal_patch_size;
  format.merge_size = input_.merge_size;
  std::copy_n(input_.image_mean.begin(), 3, format.mean.begin());
  std::copy_n(input_.image_std.begin(), 3, format.std.begin());
  if (sample.patches.size(1) != format.row_size()) return "";
  const data::PatchCutter cutter(format);
  const float* rows = sample.patches.const_data_ptr<float>();
  std::string html = "<div class=\"images\">\n";
  for (size_t n = 0; n + 2 < sample.grid_thw.size(); n += 3) {
    const data::PatchGrid grid{sample.grid_thw[n], sample.grid_thw[n + 1], sample.grid_thw[n + 2]};
    const std::span<const float> own(rows, static_cast<size_t>(grid.patches() * format.row_size()));
    rows += own.size();
    const bool video = grid.t > 1;
    for (int64_t t = 0; t < std::min(grid.t, kShownFrames); ++t) {
      const data::Image image = cutter.restore(own, grid, t * format.temporal_patch_size);
      html += fmt::format(
          "<div><img alt=\"\" width=\"{}\" src=\"data:image/png;base64,{}\">{} x {} px, {} x {} "
          "patches{}</div>\n",
          image.width, base64(data::encode_png(image)), image.height, image.width, grid.h, grid.w,
          video ? fmt::format(", group {} of {}", t + 1, grid.t) : std::string());
    }
  }
  return html + "</div>\n";
}

void InspectPage::add(const Sample& sample) {
  const auto supervised =
      std::count_if(sample.labels.begin(), sample.labels.end(), [](int64_t l) { return l >= 0; });
  std::string files;
  for (const std::string& file : sample.files) files += (files.empty() ? "; " : ", ") + file;
  cards_ += fmt::format(
      "<div class=\"sample\"><h3>{}</h3><p>{} tokens, {} learned, {} patches{}</p>\n{}"
      "<div class=\"tokens\">{}</div></div>\n",
      escape_html(sample.key), sample.tokens.size(), supervised,
      sample.patches.defined() ? sample.patches.size(0) : 0, escape_html(files),
      images_html(sample), tokens_html(sample));
}

std::string InspectPage::html(const std::string& title, const nlohmann::json& report) const {
  std::string html = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
      "<title>{0}</title>\n<style>{1}{2}</style></head>\n<body>\n<h1>{0}</h1>\n",
      escape_html(title), train::kPageStyle, kStyle);
  html += fmt::format("<p class=\"sub\">{} samples, {} read, {} usable</p>\n",
                      report["samples"].dump(), report["read"].dump(), report["usable"].dump());
  if (report.contains("notice")) {
    html += "<p class=\"notice\">" + escape_html(report["notice"].get<std::string>()) + "</p>\n";
  }
  html +=
      "<h2>Sizes of samples</h2>\n<div class=\"card\"><table>\n<tr><th></th><th class=\"n\">least"
      "</th><th class=\"n\">mean</th><th class=\"n\">most</th></tr>\n";
  for (const char* name : {"tokens", "patches", "images", "supervised"}) {
    if (report.contains(name)) html += range_row(name, report[name]);
  }
  html += "</table></div>\n<h2>Failures</h2>\n" + failures_html(report);
  html +=
      "<h2>Samples</h2>\n<p class=\"sub key\">Images are shown as the model gets them. Tokens on "
      "<i>this ground</i> are learned.</p>\n";
  return html + cards_ + "</body></html>\n";
}

}  // namespace keyseat::tool
