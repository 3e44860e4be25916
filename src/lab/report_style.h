// The style sheet of report.cc's page.
#pragma once

namespace freeformer {

// Colours are variables: one set by day, one by night, the first one on paper. Those of series are
// Okabe and Ito's, moved until each has a contrast of 3 to 1 to its background; 6 and 7 are the
// plain decoders.
inline constexpr const char* kReportStyle = R"css(
:root {
  color-scheme: light dark;
  --paper: #fdfdfc; --ink: #1c1e21; --soft: #5a6068; --rule: #d9dbdd; --grid: #ebecee; --band: #f2f3f4;
  --shade: #0000001f;
  --c0: #0072b2; --c1: #d55e00; --c2: #00936b; --c3: #b8578f; --c4: #b07a00; --c5: #2f93cf;
  --c6: #7a7f85; --c7: #26292d;
  --heat: #0a4f8f; --letter: #0067a8; --noise: #c9500a; --blank: #b9bec4; --wrong: #b00020;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #14171a; --ink: #e6e7e8; --soft: #a3aab2; --rule: #3a4047; --grid: #24292e; --band: #1e2327;
    --shade: #000000a0;
    --c0: #4aa3e8; --c1: #ff8344; --c2: #2bc795; --c3: #ea8fc2; --c4: #ecc13d; --c5: #9bdcff;
    --c6: #8d949c; --c7: #f0f1f2;
    --heat: #63b3f5; --letter: #62b5f5; --noise: #ff8a4c; --blank: #4b525a; --wrong: #ff6b7d;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; text-size-adjust: 100%; }
body {
  margin: 0; background: var(--paper); color: var(--ink);
  font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Noto Sans",
    "Liberation Sans", Arial, sans-serif;
  counter-reset: table figure;
}
main { max-width: calc(1100px + 2.5rem); margin: 0 auto; padding: 3rem 1.25rem 4rem; }
h1 { font-size: clamp(1.55rem, 1.2rem + 1.6vw, 2.1rem); line-height: 1.2; margin: 0 0 .75rem;
  letter-spacing: -.01em; text-wrap: balance; overflow-wrap: anywhere; }
h2 { font-size: 1.3rem; line-height: 1.3; margin: 3.25rem 0 .4rem; }
h3 { font-size: 1rem; line-height: 1.4; margin: 0 0 .3rem; overflow-wrap: anywhere; }
p { max-width: 70ch; margin: 0 0 1rem; overflow-wrap: anywhere; }
.summary { font-size: 1.1rem; white-space: pre-line; }
.note { color: var(--soft); font-size: .875rem; line-height: 1.5; max-width: 84ch; margin: .7rem 0 0; }
.note b { color: var(--ink); font-weight: 600; }
figure { margin: 1.25rem 0 2rem; }
figcaption { color: var(--soft); font-size: .875rem; line-height: 1.5; max-width: 78ch;
  margin-bottom: .6rem; overflow-wrap: anywhere; }
figcaption b { color: var(--ink); }
.table > figcaption::before { counter-increment: table; content: "Table " counter(table) ". ";
  font-weight: 600; color: var(--ink); }
.drawn > figcaption::before { counter-increment: figure; content: "Figure " counter(figure) ". ";
  font-weight: 600; color: var(--ink); }
/* A shade at an edge where more is to be seen: the paper that covers it moves with the content. */
.scroll { overflow-x: auto; max-width: 100%; background:
  linear-gradient(to right, var(--paper) 40%, transparent) 0 0 / 28px calc(100% + 2px) no-repeat local,
  linear-gradient(to left, var(--paper) 40%, transparent) 100% 0 / 28px calc(100% + 2px) no-repeat local,
  linear-gradient(to right, var(--shade), transparent) 0 0 / 12px 100% no-repeat scroll,
  linear-gradient(to left, var(--shade), transparent) 100% 0 / 12px 100% no-repeat scroll; }
.scroll:focus-visible, summary:focus-visible { outline: 2px solid var(--c0); outline-offset: 2px; }

table { border-collapse: collapse; font-size: .8125rem; line-height: 1.4; min-width: 100%;
  font-variant-numeric: tabular-nums lining-nums; border-block: 1.5px solid var(--ink); }
th, td { padding: .4rem .5rem; text-align: right; white-space: nowrap; }
thead th { font-weight: 600; vertical-align: bottom; padding-bottom: .3rem; }
thead tr:last-child th { border-bottom: 1px solid var(--soft); }
thead th[colspan] { text-align: center; padding-bottom: .15rem; }
thead th[colspan] > span { display: block; border-bottom: 1px solid var(--rule); padding-bottom: .15rem; }
th .unit { display: block; font-weight: 400; color: var(--soft); font-size: .75rem; }
tbody tr + tr > * { border-top: 1px solid var(--grid); }
tbody th { font-weight: 500; }
tbody th:has(.key) { padding-left: 1.25rem; text-indent: -1.15rem; }
th:first-child, td:first-child { text-align: left; }
thead th:first-child, .facts th { padding-left: .1rem; }
tbody th:first-child { position: sticky; left: 0; background: var(--paper); padding-right: 1rem; }
.sd { color: var(--soft); font-size: .92em; }
.facts { border: 0; min-width: 0; font-size: .875rem; }
.facts th { vertical-align: top; }
.facts td { text-align: left; white-space: normal; overflow-wrap: anywhere; }
.key { display: inline-block; width: .7rem; height: .7rem; border-radius: 50%; margin-right: .5rem;
  background: var(--c); }

.series-0 { --c: var(--c0); } .series-1 { --c: var(--c1); } .series-2 { --c: var(--c2); }
.series-3 { --c: var(--c3); } .series-4 { --c: var(--c4); } .series-5 { --c: var(--c5); }
.series-6 { --c: var(--c6); } .series-7 { --c: var(--c7); }

.plot { display: block; width: 100%; max-width: 920px; min-width: 580px; height: auto;
  font-size: 13px; }
.plot text { fill: var(--ink); }
.plot .ticks text { fill: var(--soft); font-variant-numeric: tabular-nums; font-size: 12px; }
.plot .names text { fill: var(--soft); }
.plot .grid line { stroke: var(--grid); stroke-width: 1; }
.plot .axis { stroke: var(--soft); stroke-width: 1; }
.plot path { stroke: var(--c); stroke-width: 1.5; stroke-linejoin: round; stroke-linecap: round; }
.plot circle { fill: var(--c); }
.plot .faint { opacity: .38; }
.plot .faint path { stroke-width: 1; }
.plot .legend path { stroke-width: 1.25; }
.plot .reference { --c: var(--soft); stroke: var(--soft); stroke-width: 1.25; }
.plot line.reference, .plot .reference path { stroke-dasharray: 5 4; }
.plot .reference text { stroke: none; }
.plot .heat rect { fill: var(--heat); }
.plot .heat, .plot .heat-paper { shape-rendering: crispEdges; }
.plot .heat-paper { fill: var(--band); }

.maps > div + div { margin-top: 1.25rem; }
.samples { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 480px), 1fr));
  gap: 1.75rem 2.25rem; }
.samples > div { min-width: 0; }
.samples h4 { font-size: .8125rem; font-weight: 400; color: var(--soft); margin: .55rem 0 .15rem; }
pre { margin: 0; font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "Liberation Mono",
  "DejaVu Sans Mono", monospace; font-size: .8125rem; line-height: 1.5; }
.letters { font-size: clamp(8.5px, 2.3vw, 12px); line-height: 1.28; color: var(--blank); }
.letters .l { color: var(--letter); font-weight: 700; }
.letters .n { color: var(--noise); font-weight: 700; }
.letters .w { color: var(--wrong); text-decoration: underline; }
.swatch { color: var(--ink); font-family: ui-monospace, Consolas, "Liberation Mono", monospace; font-weight: 700; }
.swatch.l { color: var(--letter); } .swatch.n { color: var(--noise); } .swatch.u { color: var(--blank); }
.swatch.w { color: var(--wrong); text-decoration: underline; }

details { border-top: 1px solid var(--rule); }
details:last-of-type { border-bottom: 1px solid var(--rule); }
summary { cursor: pointer; padding: .5rem 0; overflow-wrap: anywhere; }
.code { border-left: 3px solid var(--rule); padding: .1rem 0 .1rem 1rem; width: max-content; min-width: 100%; }
details .code { margin-bottom: 1rem; }

@media (max-width: 600px) {
  main { padding: 1.75rem 1rem 3rem; }
  h2 { margin-top: 2.5rem; }
  tbody th { white-space: normal; min-width: 7.5rem; max-width: 9rem; }
}
@media print {
  :root {
    color-scheme: light;
    --paper: #fff; --ink: #000; --soft: #444; --rule: #bbb; --grid: #e4e4e4; --band: #f3f3f3; --shade: transparent;
    --c0: #0072b2; --c1: #d55e00; --c2: #00936b; --c3: #b8578f; --c4: #b07a00; --c5: #2f93cf;
    --c6: #7a7f85; --c7: #26292d;
    --heat: #0a4f8f; --letter: #0067a8; --noise: #c9500a; --blank: #a3a8ae; --wrong: #b00020;
  }
  @page { margin: 16mm 14mm; }
  html { font-size: 10pt; }
  body { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  main { padding: 0; max-width: none; }
  h2 { margin-top: 1.6rem; break-after: avoid; }
  h2 + p, figcaption { break-after: avoid; }
  .scroll { overflow: visible; }
  .plot { min-width: 0; max-width: 100%; }
  table { font-size: 6.4pt; }
  th .unit { font-size: 6pt; }
  th, td { padding: .22rem .2rem; }
  .facts, .note, figcaption { font-size: 8.5pt; }
  .key { width: .5rem; height: .5rem; margin-right: .3rem; }
  .samples { grid-template-columns: 1fr 1fr; gap: 1rem; }
  .letters { font-size: 6.2pt; }
  .drawn, .table, .samples > div { break-inside: avoid; }
  .drawn:has(.samples, .maps) { break-inside: auto; }
  .maps > div { break-inside: avoid; }
  pre.code { white-space: pre-wrap; overflow-wrap: anywhere; width: auto; }
}
)css";

}  // namespace freeformer
