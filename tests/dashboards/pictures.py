"""`python -m tests.dashboards.pictures`: draw the diagnosis of a bad night, and the dashboard of a job with a slow GPU.

Panels, queries and layout are the dashboard's, and the answers come from a real Prometheus. The page in `drawing/`
draws them with Grafana's own libraries; see dashboards/README.md for what these do not contain.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from dashboards.steps import HELD_BACK, PATH
from tests.dashboards.fleet import STEP_SECONDS, record_fleet
from tests.dashboards.grafana import find, read, substitute
from tests.dashboards.jobs import FILE as JOB_FILE
from tests.dashboards.jobs import record_jobs
from tests.dashboards.store import Store, serving
from tests.e2e.browser import Browser, browser
from tests.jobs.situations import BY_NAME, MINUTES
from tests.rules.cases import load_any

NIGHT = "h100-8-bad-night"
SEEN_AT = 79 * 60
SLOW_GPU = "slow-gpu"
FILE = "diagnosis.json"
FOLDER = Path(__file__).resolve().parents[2] / "docs" / "img"
DRAWING = Path(__file__).with_name("drawing")
LIBRARIES = Path(__file__).resolve().parents[2] / "build" / "pictures" / "node_modules"
"""Where the Makefile installs what `drawing/package-lock.json` pins."""
WIDTH = 1560
GAP = 8
ROW_HEIGHT = 38
"""Height of a row of the dashboard's grid in pixels, with the gap below it."""
NOTE_HEIGHT = 26
LOADERS = {"svg": "dataurl", "ttf": "empty"}
ALIAS = f"@grafana/ui={LIBRARIES}/@grafana/ui/dist/cjs/index.cjs"
"""In its .mjs files, esbuild follows Node.js and takes what CommonJS libraries export for a module, not a component."""
FONTS = {"inter-latin-400-normal.woff2": "Inter-Regular.woff2", "inter-latin-500-normal.woff2": "Inter-Medium.woff2"}
"""Files of Grafana's font: names in the npm package, and names under which Grafana's style sheet loads them."""
NOTE = (
    "Drawn with Grafana's libraries from the answers of a Prometheus to the dashboard's own queries, for {of}. Not a "
    "screenshot of Grafana."
)
PAGE = """<!doctype html>
<meta charset="utf-8">
<link rel="icon" href="data:,">
<link rel="stylesheet" href="page.css">
<body style="margin: 0">
<div id="root"></div>
<script src="picture.js"></script>
<script src="page.js"></script>
"""

Panel = Mapping[str, Any]
Place = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture.

    Attributes:
        name: of its file.
        panels: with their places in the dashboard's grid of 24 columns.
        of: what it shows.
        chosen: values of variables.
        seen_at: end of the time range, in seconds of the scenario.
    """

    name: str
    panels: Sequence[tuple[Panel, Place]]
    of: str = f"the simulated host {NIGHT}"
    chosen: Mapping[str, str] = field(default_factory=lambda: {"instance": NIGHT})
    seen_at: float = SEEN_AT

    @property
    def height(self) -> int:
        return max(place["y"] + place["h"] for _, place in self.panels) * ROW_HEIGHT + GAP + NOTE_HEIGHT


def main() -> int:
    """0, after the pictures are written."""
    programs = {name: shutil.which(name) for name in ("prometheus", "promtool", "chromium", "npm")}
    missing = [name for name, path in programs.items() if path is None]
    if missing:
        sys.stderr.write(f"make pictures: {', '.join(missing)} is not installed here\n")
        return 1
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        directory = Path(folder)
        _bundle(directory)
        promtool = Path(str(programs["promtool"]))
        night = record_fleet(promtool, directory, {NIGHT: load_any(NIGHT)})
        with browser(Path(str(programs["chromium"])), directory) as window:
            window.hide_scrollbars()
            prometheus = Path(str(programs["prometheus"]))
            for number, (fleet, drawn) in enumerate(((night, pictures()), (record_jobs(), pictures_of_jobs()))):
                here = directory / str(number)
                here.mkdir()
                with serving(fleet, prometheus, promtool, here) as store:
                    for picture in drawn:
                        _draw(picture, store, window, directory)
    return 0


def pictures() -> list[Picture]:
    """The first screen of the diagnosis, and four charts of its rows."""
    first_screen = [panel for panel in read(FILE)["panels"] if panel["type"] != "row"]
    titles = (HELD_BACK.key_panel, PATH.key_panel, "Busy share of each GPU", "Disk busy time")
    charts = [find(FILE, title).panel for title in titles]
    places = [{"x": 12 * (number % 2), "y": 8 * (number // 2), "w": 12, "h": 8} for number in range(len(charts))]
    return [
        Picture("bad-night-top", [(panel, panel["gridPos"]) for panel in first_screen]),
        Picture("bad-night-panels", list(zip(charts, places, strict=True))),
    ]


def pictures_of_jobs() -> list[Picture]:
    """The first screen of the job dashboard, for a job of which one GPU is slow."""
    every = read(JOB_FILE)["panels"]
    screen = every[: next(place for place, panel in enumerate(every) if panel["type"] == "row")]
    number, end = BY_NAME[SLOW_GPU].number, (MINUTES - 1) * 60
    panels = [(panel, panel["gridPos"]) for panel in screen]
    return [Picture("job", panels, "a simulated job of four hosts", {"slurm_job": number}, end)]


def _bundle(directory: Path) -> None:
    public = directory / "public"
    shutil.copytree(LIBRARIES / "@grafana" / "ui" / "dist" / "public", public)
    fonts = public / "fonts" / "inter"
    fonts.mkdir(parents=True)
    for packaged, expected in FONTS.items():
        shutil.copyfile(LIBRARIES / "@fontsource" / "inter" / "files" / packaged, fonts / expected)
    command = [
        str(LIBRARIES / ".bin" / "esbuild"),
        str(DRAWING / "page.jsx"),
        "--bundle",
        "--jsx=automatic",
        "--minify",
    ]
    command += [f"--loader:.{suffix}={loader}" for suffix, loader in LOADERS.items()]
    command += [f"--alias:{ALIAS}"]
    command += ['--define:process.env.NODE_ENV="production"', "--log-level=error", f"--outdir={directory}"]
    subprocess.run(command, check=True, env={**os.environ, "NODE_PATH": str(LIBRARIES)})


def _draw(picture: Picture, store: Store, window: Browser, directory: Path) -> None:
    data = {
        "from": store.start,
        "to": store.start + picture.seen_at,
        "width": WIDTH,
        "note": NOTE.format(of=picture.of),
        "panels": [
            {"panel": panel, "place": place, "answers": _answers(store, panel, picture)}
            for panel, place in picture.panels
        ],
    }
    (directory / "picture.js").write_text(f"window.PICTURE = {json.dumps(data)};", encoding="utf-8")
    (directory / "index.html").write_text(PAGE, encoding="utf-8")
    with _served(directory) as url:
        window.open(url, width=WIDTH + 2 * GAP, height=picture.height, dark=True)
        window.evaluate("window.DRAWN")
        assert not window.complaints, window.complaints
        path = FOLDER / f"{picture.name}.png"
        window.screenshot(path, whole=False)
    sys.stdout.write(f"{path}\n")


class _Handler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is that of the standard library
        """Log no requests."""


@contextmanager
def _served(directory: Path) -> Iterator[str]:
    """The address of the page; Grafana's components fetch their icons, which a browser does not do from files."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, directory=str(directory)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()


def _answers(store: Store, panel: Panel, picture: Picture) -> dict[str, Any]:
    """What Prometheus answers to each query of a panel, by its letter."""
    found = {}
    end = picture.seen_at
    for target in panel["targets"]:
        expr = substitute(target["expr"], end, **picture.chosen)
        series = store.at(expr, end) if target.get("instant") else store.over_time(expr, end)
        found[target["refId"]] = {
            "step": STEP_SECONDS,
            "series": [{"labels": each.labels, "values": sorted(each.values.items())} for each in series],
        }
    return found


if __name__ == "__main__":
    sys.exit(main())
