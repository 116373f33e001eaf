"""Dashboards in Grafana's own scenes, in a real browser, over a real Prometheus: what `drawing/` draws."""

import json
import shutil
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.dashboards.grafana import FOLDER
from tests.e2e.browser import Browser

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
    """A dashboard on the screen.

    Attributes:
        file: of the dashboard.
        chosen: values of variables; all and the first, without.
        since: start of the time range, in Unix seconds.
        until: its end, which is also the present of the page.
        width: of the window in pixels.
        height: of the window; what is below is drawn only in pictures of the whole page.
        unfolded: whether all rows are unfolded.
        note: text below the dashboard.
    """

    file: str
    chosen: Chosen
    since: float
    until: float
    width: int = 1560
    height: int = 1000
    unfolded: bool = False
    note: str = ""


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
        self.settle()

    def settle(self) -> None:
        """Wait until no query runs any more."""
        self._window.evaluate("window.waits = true; window.settled().then(() => { window.waits = false }); 0")
        limit = time.monotonic() + SETTLED_SECONDS
        while self._window.evaluate("window.waits"):
            assert time.monotonic() < limit, "panels do not get their data"
            time.sleep(0.2)

    def choose(self, variable: str, value: str | Sequence[str]) -> None:
        """Choose a value, as its picker does."""
        self._window.evaluate(f"window.choose({json.dumps(variable)}, {json.dumps(value)}); 0")
        self.settle()

    def unfold(self) -> None:
        """Unfold each folded row, as a click on its title does."""
        self._window.evaluate("window.unfold(); 0")
        self.settle()

    @property
    def failures(self) -> list[str]:
        """What failed: queries, panels, and what the page complains about."""
        found: list[str] = self._window.evaluate("window.failures()")
        return [*found, *self._window.complaints]

    @property
    def variables(self) -> dict[str, dict[str, Any]]:
        """Value and options of each variable."""
        found: dict[str, dict[str, Any]] = self._window.evaluate("window.variables()")
        return found

    @property
    def panels(self) -> dict[str, dict[str, Any]]:
        """Each panel by title: how many frames have data, where it is, and what it says without data."""
        found: dict[str, dict[str, Any]] = self._window.evaluate("window.panels()")
        return found

    @property
    def text(self) -> str:
        found: str = self._window.evaluate("document.body.innerText")
        return found

    def save(self, path: Path, *, whole: bool = False) -> None:
        self._window.screenshot(path, whole=whole)


@contextmanager
def scenes(window: Browser, prometheus: str, directory: Path) -> Iterator[Scenes]:
    """Dashboards in this window, with the data of the Prometheus at an address, for the length of a ``with`` block."""
    site = directory / "site"
    _bundle(site)
    handler = partial(_Handler, prometheus=prometheus, directory=str(site))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield Scenes(window, f"http://127.0.0.1:{server.server_port}/")
    finally:
        server.shutdown()
        server.server_close()


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


if __name__ == "__main__":
    fetch_libraries()
