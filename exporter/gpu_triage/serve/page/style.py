"""The page's style sheet, script and icons, and the Content-Security-Policy that allows only these."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from gpu_triage.judge.findings.verdicts import CLASS_COLORS, TONE_COLORS

_MIDDLE_LUMINANCE: Final = 0.179
"""Luminance with equal contrast to black and white (https://www.w3.org/TR/WCAG22/#dfn-contrast-ratio)."""


def ink_on(color: str) -> str:
    """Black or white, whichever has the higher contrast to this color, ``#rrggbb``; at least 4.5:1 for any color."""
    red, green, blue = ((int(color[place : place + 2], 16) / 255) ** 2.2 for place in (1, 3, 5))
    return "#000000" if 0.2126 * red + 0.7152 * green + 0.0722 * blue > _MIDDLE_LUMINANCE else "#ffffff"


_SHEET: Final = """
:root { color-scheme: light dark; --ground: #ffffff; --ink: #1b2027; --line: #d9dde3; --soft: #566070; --link: #0b57a4;
  --sick: #8f1220; --sick-g: #fde3e4; --held: #7a4100; --held-g: #ffeccf; --path: #7b1d78; --path-g: #f9e3f8;
  --starved: #0d4a8f; --starved-g: #e0edfd; --well: #14592f; --well-g: #dcf3e3; --idle: #4a5361;
  --idle-g: #e9ecf0; }
@media (prefers-color-scheme: dark) { :root { --ground: #14181d; --ink: #e4e8ed; --line: #343b45; --soft: #a5afbc;
  --link: #8ec2ff; --sick: #ffb3b5; --sick-g: #5a1820; --held: #ffcf8a; --held-g: #4d3309; --path: #f5b5f2;
  --path-g: #4d1f4b; --starved: #a9d0ff; --starved-g: #16395f; --well: #9fe3b6; --well-g: #123f23;
  --idle: #c3cad4; --idle-g: #2c333c; } }
* { box-sizing: border-box; }
body { font: 1rem/1.5 system-ui, sans-serif; color: var(--ink); background: var(--ground); max-width: 104rem;
  margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.5rem; line-height: 1.3; margin: 0 0 .5rem; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 1.75rem 0 .5rem; }
h3 { font-size: 1rem; margin: 1rem 0 .25rem; }
a { color: var(--link); }
p, dd, li { overflow-wrap: anywhere; }
code { font: .875em ui-monospace, monospace; }
small { font-size: .8125rem; line-height: 1.35; display: inline-block; }
.soft { color: var(--soft); }
.sick { --tone: var(--sick); --tone-g: var(--sick-g); }
.held { --tone: var(--held); --tone-g: var(--held-g); }
.path { --tone: var(--path); --tone-g: var(--path-g); }
.starved { --tone: var(--starved); --tone-g: var(--starved-g); }
.well { --tone: var(--well); --tone-g: var(--well-g); }
.idle { --tone: var(--idle); --tone-g: var(--idle-g); }
.chip { display: inline-block; color: var(--tone); background: var(--tone-g); border-radius: .35rem; padding: 0 .45rem;
  font-weight: 600; white-space: nowrap; }
.class { color: var(--on); background: var(--fill); }
.banner { border-radius: .4rem; padding: .6rem .9rem; margin: 0 0 1rem; color: var(--tone); background: var(--tone-g); }
.banner[hidden] { display: none; }
.simulated, .recording { --tone: var(--held); --tone-g: var(--held-g); border: 2px dashed var(--tone); }
header { border-left: .4rem solid var(--tone); padding: .25rem 0 .25rem .9rem; }
header p { margin: .25rem 0; }
.first { list-style: none; margin: .4rem 0; padding: 0; font-weight: 600; }
.findings li:target { outline: 2px solid var(--link); outline-offset: 2px; }
.findings { list-style: none; margin: 0; padding: 0; display: grid; gap: .6rem;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 26rem), 1fr)); }
.findings li { border: 1px solid var(--line); border-left: .3rem solid var(--tone); border-radius: .4rem;
  padding: .5rem .8rem; }
.findings p { margin: .2rem 0; }
.ended { list-style: none; margin: 0; padding: 0; font-size: .9375rem; }
.wide { overflow-x: auto; border: 1px solid var(--line); border-radius: .4rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; vertical-align: top; padding: .4rem .65rem; white-space: nowrap; }
thead th { color: var(--soft); font-weight: 600; font-size: .875rem; }
tbody th { font-weight: 400; }
tbody tr { border-top: 1px solid var(--line); }
.gpus th, .gpus td { padding: .4rem .5rem; }
.gpus td:nth-child(2) { white-space: normal; min-width: 11rem; }
.gpus td:last-child { white-space: normal; overflow-wrap: anywhere; min-width: 16rem; }
.gpus td:last-child bdi { display: inline-block; }
.bar { display: block; width: 100%; min-width: 4.5rem; height: .25rem; background: var(--line); border-radius: .125rem;
  margin-top: .2rem; }
.bar rect { fill: var(--link); }
summary { cursor: pointer; margin-bottom: .5rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .35rem 1rem; margin: 0; }
dt { display: grid; grid-template-columns: 6rem auto; align-items: start; }
dt .chip { justify-self: start; }
dd { margin: 0; }
#links ul { padding-left: 1.2rem; }
.overview { list-style: none; margin: 0; padding: 0; }
.overview li, .below { display: grid; grid-template-columns: 4rem 5.5rem 9rem 6rem 1fr; column-gap: .5rem;
  align-items: center; }
.overview li { padding: .3rem 0; }
.overview li + li { border-top: 1px solid var(--line); }
.overview .chip { justify-self: start; }
.overview a, .overview time { white-space: nowrap; }
.below > * { grid-column: 5; }
.below p { margin: .25rem 0 0; }
.below .chip { font-size: .8125rem; }
.strip { display: block; width: 100%; height: 1.25rem; border-radius: .2rem; overflow: hidden;
  background: repeating-linear-gradient(135deg, var(--line) 0 1px, transparent 1px 6px); }
.strip rect { shape-rendering: crispEdges; }
.strip line { stroke: var(--ground); stroke-opacity: .6; }
.axis { display: block; width: 100%; height: 1.1rem; font-size: .8125rem; fill: var(--soft); overflow: visible; }
@media (max-width: 40rem) {
  body { padding: .75rem; }
  dl { grid-template-columns: 1fr; gap: 0; }
  dd { margin-bottom: .6rem; }
  h1 { font-size: 1.25rem; margin-bottom: .25rem; }
  h2 { margin-top: 1rem; }
  .banner { font-size: .875rem; line-height: 1.35; padding: .4rem .7rem; margin-bottom: .6rem; }
  header { padding-left: .7rem; font-size: .9375rem; }
  header .soft { font-size: .8125rem; }
  .first li + li { display: none; }
  .overview li { grid-template-columns: 3.5rem 5.5rem auto 1fr; gap: .2rem .4rem; padding: .3rem 0 .4rem;
    font-size: .9375rem; }
  .overview li > span:nth-last-of-type(1) { justify-self: end; }
  .overview time { font-size: .8125rem; }
  .overview .strip { grid-column: 1 / -1; height: .7rem; }
  .below { display: block; }
}
"""

STYLE: Final = _SHEET + "".join(
    f".c-{name} {{ --fill: {color}; --on: {ink_on(color)}; fill: {color}; }}\n" for name, color in CLASS_COLORS.items()
)
"""With a rule for each bottleneck class, because the policy forbids style attributes."""

SCRIPT: Final = """
"use strict";
(() => {
  const every = 5000;
  const stops = () => [...document.querySelectorAll("main a, main summary, main .wide")];
  const boxes = () => [...document.querySelectorAll("main .wide")];
  const folds = () => [...document.querySelectorAll("main details")];
  let answered = Date.now();
  async function refresh() {
    if (document.hidden || !getSelection().isCollapsed) return;
    const silent = document.getElementById("silent");
    try {
      const answer = await fetch(location.href, { cache: "no-store", signal: AbortSignal.timeout(every) });
      if (!answer.ok) throw new Error("status " + answer.status);
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      const id = document.activeElement.id;
      const place = stops().indexOf(document.activeElement);
      const opened = folds().map((fold) => fold.open);
      const scrolled = boxes().map((box) => box.scrollLeft);
      document.querySelector("main").replaceWith(fresh.querySelector("main"));
      boxes().forEach((box, nth) => { box.scrollLeft = scrolled[nth] || 0; });
      folds().forEach((fold, nth) => { fold.open ||= opened[nth]; });
      if (place >= 0) (document.getElementById(id) || stops()[place])?.focus({ preventScroll: true });
      document.title = fresh.title;
      document.querySelector("link[rel=icon]").href = fresh.querySelector("link[rel=icon]").href;
      answered = Date.now();
      silent.hidden = true;
    } catch (error) {
      const age = Math.round((Date.now() - answered) / 1000);
      silent.textContent = "No answer from the exporter for " + age + " s (" + error.message + "): out of date.";
      silent.hidden = false;
    }
  }
  setInterval(refresh, every);
  document.addEventListener("visibilitychange", refresh);
})();
"""


def _icon(color: str) -> str:
    return (
        "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 8 8'%3E"
        f"%3Ccircle cx='4' cy='4' r='4' fill='%23{color.removeprefix('#')}'/%3E%3C/svg%3E"
    )


ICONS: Final[Mapping[str, str]] = MappingProxyType({tone: _icon(color) for tone, color in TONE_COLORS.items()})
"""Favicon, a dot, by the tone of a verdict."""


def source_hash(text: str) -> str:
    """The CSP hash of an embedded style sheet or script."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def policy(sheet: str, script: str = "") -> bytes:
    """The Content-Security-Policy of a page: its own style sheet and script, by hash, its icon, and its own server."""
    scripts = f"script-src '{source_hash(script)}'; connect-src 'self'; " if script else ""
    return (
        f"default-src 'none'; style-src '{source_hash(sheet)}'; {scripts}img-src data:; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    ).encode()


POLICY: Final = policy(STYLE, SCRIPT)
"""Of the status page; only it has a script, which queries its server."""
