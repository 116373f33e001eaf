"""`python -m tests.dashboards.pictures`: draw the diagnosis of a bad night, and the dashboard of a job with a slow GPU.

The answers come from a real Prometheus, and Grafana's scenes draw them; dashboards/README.md says what these do not
contain. With `--all FOLDER`, every dashboard is drawn, for a review.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.dashboards.fleet import record_fleet
from tests.dashboards.grafana import FILES, FOLDER
from tests.dashboards.job_board import FILE as JOB_FILE
from tests.dashboards.jobs import record_jobs
from tests.dashboards.store import Store, serving
from tests.e2e.browser import Browser, browser
from tests.jobs.situations import BY_NAME, MINUTES
from tests.listening import listening
from tests.rules.cases import load_any

DRAWING = Path(__file__).with_name("drawing")
LIBRARIES = Path(__file__).resolve().parents[2] / "build" / "pictures" / "node_modules"
"""Where `fetch_libraries` puts what `drawing/package-lock.json` pins."""
FONTS = {"inter-latin-400-normal.woff2": "Inter-Regular.woff2", "inter-latin-500-normal.woff2": "Inter-Medium.woff2"}
"""Files of Grafana's font: names in the npm package, and names under which Grafana's style sheet loads them."""
SETTLED_SECONDS = 240
NO_ICON = b'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24"></svg>'
PAGE = """<!doctype html>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<link rel="icon" href="data:,">
<link rel="stylesheet" href="page.css">
<body style="margin: 0">
<div id="root"></div>
<script src="page.js"></script>
"""

Chosen = Mapping[str, str | Sequence[str]]
"""Values by name of variable."""


@dataclass(frozen=True, slots=True)
class View:
    """A dashboard on the screen."""

    file: str  # of the dashboard
    chosen: Chosen  # values of variables; all and the first, without
    since: float  # start of the time range, in Unix seconds
    until: float  # its end, which is also the present of the page
    width: int = 1560  # of the window in pixels
    height: int = 1000  # of the window; what is below is drawn only in pictures of the whole page
    unfolded: bool = False  # whether all rows are unfolded
    note: str = ""  # text below the dashboard


class Scenes:
    """A window with one dashboard at a time."""

    def __init__(self, window: Browser, address: str) -> None:
        self._window = window
        self._address = address

    def show(self, view: View) -> None:
        """Show a dashboard, and wait until all its panels have their data."""
        self._window.open(self._address, width=view.width, height=view.height, dark=True)
        settings = {
            "file": view.file,
            "chosen": view.chosen,
            "from": _in_words(view.since),
            "to": _in_words(view.until),
            "unfolded": view.unfolded,
            "note": view.note,
        }
        self._window.evaluate(f"window.draw({json.dumps(settings)})")
        self._window.evaluate("window.waits = true; window.settled().then(() => { window.waits = false }); 0")
        limit = time.monotonic() + SETTLED_SECONDS
        while self._window.evaluate("window.waits"):
            assert time.monotonic() < limit, "panels do not get their data"
            time.sleep(0.2)

    @property
    def failures(self) -> list[str]:
        """What failed: queries, panels, and what the page complains about."""
        found: list[str] = self._window.evaluate("window.failures()")
        return [*found, *self._window.complaints]

    def save(self, path: Path) -> None:
        self._window.screenshot(path, whole=False)


@contextmanager
def scenes(window: Browser, prometheus: str, directory: Path) -> Iterator[Scenes]:
    """Dashboards in this window, with the data of the Prometheus at an address, for the length of a ``with`` block."""
    site = directory / "site"
    _bundle(site)
    handler = partial(_Handler, prometheus=prometheus, directory=str(site))
    with listening(ThreadingHTTPServer(("127.0.0.1", 0), handler)) as address:
        yield Scenes(window, f"http://{address}/")


def fetch_libraries() -> None:
    """Install what `drawing/package-lock.json` pins with npm, unless it is there: about 600 MB."""
    lock = DRAWING / "package-lock.json"
    if (LIBRARIES / ".package-lock.json").exists() and (LIBRARIES.parent / lock.name).read_bytes() == lock.read_bytes():
        return
    LIBRARIES.parent.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", lock.name):
        shutil.copy(DRAWING / name, LIBRARIES.parent)
    quietly = ("--ignore-scripts", "--no-audit", "--no-fund", "--silent")
    subprocess.run(["npm", "ci", *quietly], cwd=LIBRARIES.parent, check=True)


def _bundle(site: Path) -> None:
    public = site / "public"
    shutil.copytree(LIBRARIES / "@grafana" / "ui" / "dist" / "public", public)
    fonts = public / "fonts" / "inter"
    fonts.mkdir(parents=True)
    for packaged, expected in FONTS.items():
        shutil.copyfile(LIBRARIES / "@fontsource" / "inter" / "files" / packaged, fonts / expected)
    shutil.copytree(
        FOLDER, site / "dashboards", ignore=lambda _, names: [each for each in names if ".json" not in each]
    )
    (site / "index.html").write_text(PAGE, encoding="utf-8")
    subprocess.run(["node", str(DRAWING / "bundle.mjs"), str(LIBRARIES), str(site)], check=True)


def _in_words(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(seconds))


class _Handler(SimpleHTTPRequestHandler):
    """Serves the page, and Prometheus below ``/api/``."""

    def __init__(self, *args: Any, prometheus: str, **options: Any) -> None:
        self._prometheus = prometheus
        super().__init__(*args, **options)

    def do_GET(self) -> None:
        if self.path.startswith("/api/"):
            self._ask(None)
        elif self.path.endswith(".svg") and not Path(self.translate_path(self.path)).is_file():
            self._answer(200, "image/svg+xml", NO_ICON)  # the application has more icons than the library
        else:
            super().do_GET()

    def do_POST(self) -> None:
        self._ask(self.rfile.read(int(self.headers["Content-Length"])))

    def _ask(self, body: bytes | None) -> None:
        try:
            with urllib.request.urlopen(f"http://{self._prometheus}{self.path}", body) as answer:
                status, said = answer.status, answer.read()
        except urllib.error.HTTPError as error:
            status, said = error.code, error.read()
        self._answer(status, "application/json", said)

    def _answer(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is that of the standard library
        """Log no requests."""


NIGHT = "h100-8-bad-night"
SEEN_AT = 79 * 60
SLOW_GPU = "slow-gpu"
DIAGNOSIS = "diagnosis.json"
IMAGES = Path(__file__).resolve().parents[2] / "docs" / "img"
PHONE, DESK, WALL = (390, 1400), (1440, 900), (1560, 1000)
NOTE = (
    "Drawn by Grafana's scenes from the answers of a Prometheus to the dashboard's own queries, for {of}. Not a "
    "screenshot of Grafana."
)


def main() -> int:
    """0, after the pictures are written."""
    parser = argparse.ArgumentParser(prog="python -m tests.dashboards.pictures", description=__doc__)
    parser.add_argument("--all", type=Path, metavar="FOLDER", help="draw every dashboard at three widths into FOLDER")
    everything: Path | None = parser.parse_args().all
    programs = {name: shutil.which(name) for name in ("prometheus", "promtool", "chromium", "node", "npm")}
    missing = [name for name, path in programs.items() if path is None]
    if missing:
        sys.stderr.write(f"pictures: {', '.join(missing)} is not installed here\n")
        return 1
    fetch_libraries()
    folder = everything or IMAGES
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as temporary:
        directory = Path(temporary)
        prometheus, promtool, chromium = (Path(str(programs[name])) for name in ("prometheus", "promtool", "chromium"))
        night = record_fleet(promtool, directory, {NIGHT: load_any(NIGHT)})
        with browser(chromium, directory) as window:
            window.hide_scrollbars()
            for number, (fleet, drawn) in enumerate(((night, _of_night), (record_jobs(promtool, directory), _of_jobs))):
                here = directory / str(number)
                here.mkdir()
                with serving(fleet, prometheus, promtool, here) as store, scenes(window, store.address, here) as shown:
                    for name, view in drawn(store, whole=everything is not None):
                        _draw(shown, view, folder / f"{name}.png")
    return 0


def _of_night(store: Store, *, whole: bool) -> Iterator[tuple[str, View]]:
    view = View(
        DIAGNOSIS,
        {"instance": [NIGHT]},
        store.start,
        store.start + SEEN_AT,
        note=NOTE.format(of=f"the simulated host {NIGHT}"),
    )
    if not whole:
        yield "bad-night-top", replace(view, height=1010)
        yield "bad-night-panels", replace(view, unfolded=True, height=3600)
        return
    for file in (each for each in FILES if each != JOB_FILE):
        yield from _at_all_widths(replace(view, file=file, chosen=_one_gpu() if file == "detail.json" else view.chosen))


def _of_jobs(store: Store, *, whole: bool) -> Iterator[tuple[str, View]]:
    number = BY_NAME[SLOW_GPU].number
    view = View(
        JOB_FILE,
        {"slurm_job": [number]},
        store.start,
        store.start + (MINUTES - 1) * 60,
        height=1160,
        note=NOTE.format(of="a simulated job of four hosts"),
    )
    if whole:
        yield from _at_all_widths(view)
    else:
        yield "job", view


def _one_gpu() -> dict[str, str]:
    return {"instance": NIGHT, "gpu": "5"}


def _at_all_widths(view: View) -> Iterator[tuple[str, View]]:
    for width, height in (PHONE, DESK, WALL):
        yield f"{view.file.removesuffix('.json')}-{width}", replace(view, width=width, height=height)


def _draw(shown: Scenes, view: View, path: Path) -> None:
    shown.show(view)
    assert not shown.failures, shown.failures
    shown.save(path)
    sys.stdout.write(f"{path}\n")


if __name__ == "__main__":
    sys.exit(main())
