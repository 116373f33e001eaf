"""`python -m tests.dashboards.pictures`: draw the bad night as the diagnosis dashboard shows it.

Queries, titles, words and colours are the dashboard's, and the answers come from a real Prometheus; the drawing is this
file's own and no screenshot of Grafana, as the picture says.
"""

from __future__ import annotations

import html
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from dashboards.steps import HELD_BACK, PATH, STEPS
from tests.dashboards.fleet import record_fleet
from tests.dashboards.grafana import Target, find, substitute, targets, words_of
from tests.dashboards.store import Series, Store, serving
from tests.rules.cases import load_any

NIGHT = "h100-8-bad-night"
MINUTES = 81
SEEN_AT = 79 * 60
FILE = "diagnosis.json"
FOLDER = Path(__file__).resolve().parents[2] / "docs" / "img"
WIDTH = 1240
CHARTS = (HELD_BACK.key_panel, PATH.key_panel, "Busy share of each GPU", "Disk busy time")
LINES = ("#7eb26d", "#6ed0e0", "#ef843c", "#f2495c", "#5794f2", "#b877d9", "#ffee52", "#c0d8ff")
COLOURS = {"dark-red": "#c4162a", "orange": "#ff9830", "blue": "#5794f2", "green": "#56a64b"}
"""Grafana's names of colours."""
STYLE = """
body { margin: 0; padding: 16px; background: #111217; color: #ccccdc; font: 14px sans-serif; width: %dpx }
.tiles { display: grid; grid-template-columns: repeat(7, 1fr); gap: 8px }
.charts { display: grid; grid-template-columns: 1fr 1fr; gap: 8px }
.panel { background: #181b1f; border: 1px solid #2c3235; border-radius: 3px; padding: 8px; margin-bottom: 8px }
.title { font-size: 13px; margin-bottom: 6px; white-space: nowrap; overflow: hidden }
.word { font-size: 26px; font-weight: 600; padding: 14px 4px; text-align: center; border-radius: 3px; color: #fff }
.note { color: #8e8e9c; font-size: 12px }
text { fill: #a8a8b8; font-size: 12px }
table { border-collapse: collapse; width: 100%%; font-size: 14px }
th, td { text-align: left; padding: 4px 10px; border-top: 1px solid #2c3235 }
th { color: #8e8e9c; font-weight: 400; font-size: 12px; border: 0 }
.chip { border-radius: 3px; padding: 2px 8px; font-weight: 600 }
"""


def main() -> int:
    """0, after the pictures are written."""
    programs = {name: shutil.which(name) for name in ("prometheus", "promtool", "chromium")}
    missing = [name for name, path in programs.items() if path is None]
    if missing:
        sys.stderr.write(f"make pictures: {', '.join(missing)} is not installed here\n")
        return 1
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        promtool = Path(str(programs["promtool"]))
        fleet = record_fleet(promtool, directory, {NIGHT: load_any(NIGHT)})
        with serving(fleet, Path(str(programs["prometheus"])), promtool, directory) as store:
            for name, body, height in (("bad-night-top", _top(store), 770), ("bad-night-panels", _charts(store), 620)):
                page = directory / f"{name}.html"
                page.write_text(_page(body), encoding="utf-8")
                _photograph(str(programs["chromium"]), page, FOLDER / f"{name}.png", height)
    return 0


def _photograph(chromium: str, page: Path, picture: Path, height: int) -> None:
    command = [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    command += [f"--window-size={WIDTH + 34},{height}", f"--screenshot={picture}", f"file://{page}"]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    sys.stdout.write(f"{picture}\n")


def _page(body: str) -> str:
    note = (
        "Drawn from the answers of a Prometheus to the dashboard's own queries, for the simulated host "
        f"{NIGHT}. Not a screenshot of Grafana."
    )
    return f"<!doctype html><meta charset=utf-8><style>{STYLE % WIDTH}</style>{body}<div class=note>{note}</div>"


def _top(store: Store) -> str:
    tiles = "".join(_tile(store, step.title) for step in STEPS)
    return f"<div class=tiles>{tiles}</div>{_timeline(store)}{_findings(store)}"


def _query(store: Store, expr: str) -> str:
    return substitute(expr, store.end - store.start, instance=NIGHT)


def _tile(store: Store, title: str) -> str:
    target = find(FILE, title)
    (series,) = store.at(_query(store, target.expr), SEEN_AT)
    (value,) = series.values.values()
    word, colour = words_of(target).get(f"{value:g}", (f"{value:g}", ""))
    defaults = target.panel["fieldConfig"]["defaults"]
    if not colour:
        word += defaults["unit"].removeprefix("suffix:") if defaults["unit"].startswith("suffix:") else ""
        colour = [step["color"] for step in defaults["thresholds"]["steps"] if (step["value"] or 0) <= value][-1]
    return _panel(title, f'<div class=word style="{_filled(colour)}">{word}</div>')


def _timeline(store: Store) -> str:
    target = find(FILE, "Bottleneck of each GPU")
    words = words_of(target)
    rows = sorted(store.over_time(_query(store, target.expr)), key=lambda series: series.labels["gpu"])
    drawn, seen = [], set()
    for number, series in enumerate(rows):
        y = number * 40
        drawn.append(f"<text x=0 y={y + 22}>GPU {series.labels['gpu']}</text>")
        for start, end, value in _stretches(store, series):
            word, colour = words[f"{value:g}"]
            seen.add((value, word, colour))
            x, wide = _x(start, 60), _x(end, 60) - _x(start, 60)
            drawn.append(f'<rect x={x:.1f} y={y} width={wide:.1f} height=34 fill="{colour}"/>')
            if wide > 9 * len(word):
                style = f"fill:{_ink(colour)};font-weight:600"
                drawn.append(f'<text x={x + 6:.1f} y={y + 22} style="{style}">{word}</text>')
    drawn += _minutes(len(rows) * 40 + 14, 60)
    body = f"<svg width={WIDTH - 18} height={len(rows) * 40 + 20}>{''.join(drawn)}</svg>"
    return _panel(f"{target.panel['title']} (minutes)", body + _legend([(text, c) for _, text, c in sorted(seen)]))


def _findings(store: Store) -> str:
    severity, since = (each for each in targets(FILE) if each.panel["title"] == "Findings")
    words = words_of(severity)
    began = {_key(series): value for series, value in _answers(store, since)}
    rows = [(value, began[_key(series)], series.labels) for series, value in _answers(store, severity)]
    drawn = []
    for value, begin, labels in sorted(rows, key=lambda row: row[:2]):
        word, colour = words[f"{value:g}"]
        minutes = round((store.start + SEEN_AT - begin / 1000) / 60)
        cells = (labels["code"], labels.get("gpu", "host"), labels["action"], f"{minutes} minutes ago")
        chip = f'<span class=chip style="{_filled(colour)}">{word}</span>'
        drawn.append(f"<tr><td>{chip}</td>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>")
    heads = "".join(f"<th>{head}</th>" for head in ("Severity", "Finding", "GPU", "Action", "Since"))
    return _panel(f"Findings at minute {SEEN_AT // 60}", f"<table><tr>{heads}</tr>{''.join(drawn)}</table>")


def _answers(store: Store, target: Target) -> Iterator[tuple[Series, float]]:
    for series in store.at(_query(store, target.expr), SEEN_AT):
        yield from ((series, value) for value in series.values.values())


def _key(series: Series) -> tuple[str, str]:
    return series.labels["code"], series.labels.get("gpu", "")


def _stretches(store: Store, series: Series) -> Iterator[tuple[float, float, float]]:
    """Begin and end in minutes, and the value between."""
    begin: float | None = None
    last = 0.0
    for at, value in sorted(series.values.items()):
        minute = (at - store.start) / 60
        if begin is not None and value != last:
            yield begin, minute, last
            begin = None
        if begin is None:
            begin = minute
        last = value
    if begin is not None:
        yield begin, MINUTES, last


def _charts(store: Store) -> str:
    return f"<div class=charts>{''.join(_chart(store, title) for title in CHARTS)}</div>"


def _chart(store: Store, title: str) -> str:
    target = find(FILE, title)
    found = sorted(store.over_time(_query(store, target.expr)), key=lambda series: sorted(series.labels.items()))
    wide, high = WIDTH // 2 - 30, 180
    top = max([1.0, *(value for series in found for value in series.values.values())])
    drawn = [f"<text x=0 y={high * share + 12:.0f}>{top * (1 - share):.0%}</text>" for share in (0, 0.5, 1)]
    drawn += _minutes(high + 30, 45, wide)
    names = []
    for number, series in enumerate(found):
        colour = LINES[int(series.labels.get("gpu", number)) % len(LINES)]
        points = " ".join(
            f"{_x((at - store.start) / 60, 45, wide):.1f},{6 + high * (1 - value / top):.1f}"
            for at, value in sorted(series.values.items())
        )
        drawn.append(f'<polyline points="{points}" fill=none stroke="{colour}" stroke-width=1.6 />')
        if len(found) <= len(LINES) or max(series.values.values()) > 0:
            names.append((_name(series.labels), colour))
    return _panel(title, f"<svg width={wide} height={high + 34}>{''.join(drawn)}</svg>{_legend(names)}")


def _name(labels: Mapping[str, str]) -> str:
    if "gpu" not in labels:
        return labels.get("device", "host")
    return f"GPU {labels['gpu']} {labels.get('reason', '')}".strip()


def _legend(names: Sequence[tuple[str, str]]) -> str:
    found = "".join(
        f'<span style="margin-right:12px"><b style="color:{c}">&#9632;</b> {name}</span>' for name, c in names
    )
    return f"<div class=note>{found}</div>"


def _minutes(y: float, left: float, wide: float = WIDTH - 18) -> list[str]:
    return [f"<text x={_x(minute, left, wide) - 6:.0f} y={y:.0f}>{minute}</text>" for minute in range(0, MINUTES, 10)]


def _x(minute: float, left: float, wide: float = WIDTH - 18) -> float:
    return left + minute / MINUTES * (wide - left - 8)


def _panel(title: str, body: str) -> str:
    return f"<div class=panel><div class=title>{html.escape(title)}</div>{body}</div>"


def _filled(colour: str) -> str:
    colour = COLOURS.get(colour, colour)
    return f"background:{colour};color:{_ink(colour)}"


def _ink(ground: str) -> str:
    """Black or white, whichever is easier to read on a colour, such as ``#1c7ed6``."""
    red, green, blue = (int(ground[at : at + 2], 16) for at in (1, 3, 5))
    return "#111" if 0.299 * red + 0.587 * green + 0.114 * blue > 140 else "#fff"


if __name__ == "__main__":
    sys.exit(main())
