// The style sheet of report.html: one column on a phone, two on a desk; light and dark.
#pragma once

namespace keyseat::train {

// --c0 .. --c8 are colours that people with colour-blindness can tell apart (Okabe and Ito; Tol).
inline constexpr const char* kPageStyle = R"css(
:root{color-scheme:light dark;--page:#f6f7f9;--card:#fff;--ink:#1b2330;--soft:#5b6675;--rule:#dfe3e8;
--warn:#8a4b00;--warn-page:#fff3df;
--c0:#0072b2;--c1:#e69f00;--c2:#009e73;--c3:#d55e00;--c4:#cc79a7;--c5:#56b4e9;--c6:#8a919c;
--c7:#332288;--c8:#999933}
@media (prefers-color-scheme:dark){:root{--page:#12161c;--card:#1b2129;--ink:#e6eaf0;--soft:#9aa5b4;
--rule:#323b47;--warn:#ffcf8a;--warn-page:#3a2a10;
--c0:#4aa8e0;--c1:#f0b429;--c2:#2bc29a;--c3:#f07b3f;--c4:#dd98c0;--c5:#8fd0f5;--c6:#a3abb6;
--c7:#9a90e8;--c8:#c9c95a}}
*{box-sizing:border-box}
body{margin:0 auto;padding:16px;max-width:1120px;background:var(--page);color:var(--ink);
font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
h1{margin:8px 0 0;font-size:1.6rem;overflow-wrap:anywhere}
h2{margin:28px 0 10px;font-size:1.15rem}
.sub{margin:0 0 16px;color:var(--soft)}
.notice{margin:0 0 8px;padding:6px 10px;border-radius:6px;background:var(--warn-page);
color:var(--warn);font-weight:600}
.tiles{display:grid;grid-template-columns:repeat(auto-fill,minmax(148px,1fr));gap:10px}
.tile,figure,.card{background:var(--card);border:1px solid var(--rule);border-radius:10px}
.tile{padding:10px 12px}
.tile b{display:block;font-size:1.35rem;font-weight:600;font-variant-numeric:tabular-nums}
.tile span,.tile small{display:block;color:var(--soft);font-size:.84rem;line-height:1.3}
.plots{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,420px),1fr));gap:14px}
figure{margin:0;padding:12px}
figure.wide{grid-column:1/-1}
figcaption{margin-bottom:6px;font-weight:600}
figcaption small{color:var(--soft);font-weight:400}
svg{display:block;width:100%;height:auto}
svg text{fill:var(--soft);font-size:13px;font-variant-numeric:tabular-nums}
svg text.cell{fill:var(--ink)}
svg .grid{stroke:var(--rule);fill:none}
svg .axis{stroke:var(--soft);fill:none}
svg .line{fill:none;stroke-width:1.8;stroke-linejoin:round}
svg .band{opacity:.22}
.legend{display:flex;flex-wrap:wrap;gap:4px 14px;margin:8px 0 0;padding:0;list-style:none;
font-size:.88rem}
.legend i{display:inline-block;width:12px;height:12px;margin-right:6px;border-radius:3px}
.remark{margin:8px 0 0;color:var(--soft);font-size:.86rem}
.card{padding:4px 12px;overflow-x:auto}
table{width:100%;border-collapse:collapse;font-variant-numeric:tabular-nums}
th,td{padding:6px 10px 6px 0;border-bottom:1px solid var(--rule);text-align:left;vertical-align:top}
tr:last-child>*{border-bottom:0}
th{color:var(--soft);font-weight:400}
td{overflow-wrap:anywhere}
td.n,th.n{text-align:right;overflow-wrap:normal;white-space:nowrap}
details{margin-top:14px}
summary{cursor:pointer;padding:8px 0;font-weight:600}
pre{margin:0;padding:8px 0;overflow-x:auto;font-size:.82rem;line-height:1.45}
)css";

}  // namespace keyseat::train
