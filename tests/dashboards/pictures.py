"""`python -m tests.dashboards.pictures`: draw the diagnosis of a bad night, and the dashboard of a job with a slow GPU.

The answers come from a real Prometheus, and Grafana's scenes draw them; dashboards/README.md says what these do not
contain. With `--all FOLDER`, every dashboard is drawn in each situation, for a review, or in those named.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import product
from pathlib import Path

from tests.dashboards.fleet import Fleet, joined, record_fleet
from tests.dashboards.grafana import FILES, FOLDER
from tests.dashboards.jobs import record_jobs
from tests.dashboards.store import Store, serving
from tests.e2e.browser import Browser, browser
from tests.jobs.histories import relabeled
from tests.rules.cases import load_any

from gpu_triage_simulator.history import History
from gpu_triage_simulator.scenario import Scenario
from gpu_triage_simulator.scenario_file import SCENARIOS, read_scenario
from gpu_triage_simulator.schema import read_toml

DRAWING = Path(__file__).with_name("drawing")
LIBRARIES = Path(__file__).resolve().parents[2] / "build" / "pictures" / "node_modules"
"""Where `fetch_libraries` puts what `drawing/package-lock.json` pins."""
SETTLED_SECONDS = 240

Chosen = Mapping[str, str | Sequence[str]]
"""Values by name of variable."""


def fetch_libraries() -> bool:
    """Whether Grafana's libraries are there: if not, npm fetches them, about 600 MB on disk, or says why it cannot."""
    project = LIBRARIES.parent
    pinned = project / "package-lock.json"
    wanted = DRAWING / pinned.name
    # npm writes its own list when everything else is there.
    if (LIBRARIES / ".package-lock.json").exists() and pinned.read_bytes() == wanted.read_bytes():
        return True
    project.mkdir(parents=True, exist_ok=True)
    for file in (DRAWING / "package.json", wanted):
        shutil.copy(file, project)
    command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error", "--fetch-retries=5"]
    return subprocess.run(command, cwd=project, stdout=subprocess.DEVNULL, check=False).returncode == 0


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
    dark: bool = True


def _show(window: Browser, address: str, view: View) -> list[str]:
    """Show a dashboard until all its panels have their data; what failed: queries, panels, texts, the page."""
    window.open(address, width=view.width, height=view.height, dark=view.dark)
    window.evaluate(f"window.draw({json.dumps(asdict(view))})")
    window.evaluate("window.waits = true; window.settled().then(() => { window.waits = false }); 0")
    limit = time.monotonic() + SETTLED_SECONDS
    while window.evaluate("window.waits"):
        assert time.monotonic() < limit, "panels do not get their data"
        time.sleep(0.2)
    return [*window.evaluate("window.failures()"), *window.complaints]


IMAGES = Path(__file__).resolve().parents[2] / "docs" / "img"
PHONE, DESK = (390, 844), (1440, 900)
NOTE = (
    "Drawn by Grafana's scenes from the answers of a Prometheus to the dashboard's own queries, for {of}. Not a "
    "screenshot of Grafana."
)


PRICES = {"price": "2.5", "kwh_price": "0.5", "pue": "1.5"}


@dataclass(frozen=True, slots=True)
class Situation:
    """What a picture is of."""

    of: str  # in words
    minute: int  # at which it is seen
    hosts: Sequence[str] = ()  # scenarios and cases; none: the jobs of tests.jobs.situations
    name: str = ""  # under which its only host is there, with {} for a number
    copies: int = 1  # of it
    gpu: str = "0"  # on the dashboard of one
    owner: Chosen = field(default_factory=dict)  # of the job's dashboard
    sixteen: bool = False  # whether its host has its GPUs twice

    def record(self, promtool: Path, directory: Path) -> Fleet:
        if not self.hosts:
            return record_jobs(promtool, directory)
        hosts = {name: _with_sixteen(name) if self.sixteen else load_any(name) for name in self.hosts}
        fleet = record_fleet(promtool, directory, hosts)
        histories = [_named(fleet.history, self.name.format(number)) for number in range(self.copies)]
        return Fleet(joined(histories), hosts) if self.name else fleet

    def views(self, store: Store) -> Iterator[tuple[str, View]]:
        """Every dashboard as the situation has it, by name."""
        host = next(dict(labels)["instance"] for name, labels in store.fleet.history.series if name == "up")
        one = {"instance": host, "gpu": self.gpu}
        note, end = NOTE.format(of=self.of), store.start + self.minute * 60
        for file in FILES:
            chosen = {"job.json": self.owner, "detail.json": one, "host.json": {"instance": host}}.get(file, PRICES)
            yield file.removesuffix(".json"), View(file, chosen, store.start, end, note=note)


SITUATIONS = {name: Situation(**each) for name, each in read_toml(DRAWING.with_name("situations.toml")).items()}


def _with_sixteen(name: str) -> Scenario:
    table = read_toml(SCENARIOS / f"{name}.toml")
    others = json.loads(json.dumps(table["gpu"]).replace("0000:", "0001:"))
    return read_scenario({**table, "gpu": [*table["gpu"], *others], "name": "sixteen"}, name)


def _named(history: History, name: str) -> History:
    """The history of a host under another name, with GPUs of its own."""

    def renamed(_metric: str, labels: dict[str, str]) -> dict[str, str]:
        return {key: {"instance": name, "uuid": f"{each}{name}"}.get(key, each) for key, each in labels.items()}

    return relabeled(history, renamed)


@contextmanager
def drawn(
    situation: Situation, window: Browser, directory: Path, prometheus: Path, promtool: Path
) -> Iterator[tuple[Store, Callable[[View], list[str]]]]:
    """The situation in a Prometheus, and what shows a dashboard of it and answers what failed."""
    directory.mkdir()
    with serving(situation.record(promtool, directory), prometheus, promtool, directory) as store:
        command: list[str | Path] = [
            "node",
            DRAWING / "serve.mjs",
            LIBRARIES,
            directory / "site",
            FOLDER,
            store.address,
        ]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdin
            assert server.stdout
            with server.stdin:
                yield store, partial(_show, window, server.stdout.readline().strip())


def main() -> int:
    """0 after the pictures are written, 1 if something on them fails, is cut or misleads."""
    parser = argparse.ArgumentParser(prog="python -m tests.dashboards.pictures", description=__doc__)
    parser.add_argument(
        "--all", type=Path, metavar="FOLDER", help="draw every dashboard, wide and on a phone, into FOLDER"
    )
    parser.add_argument("situations", nargs="*", choices=[[], *SITUATIONS], help="by default all")
    chosen = parser.parse_args()
    programs = {name: shutil.which(name) for name in ("prometheus", "promtool", "chromium", "node", "npm")}
    missing = [name for name, path in programs.items() if path is None]
    if missing:
        sys.stderr.write(f"pictures: {', '.join(missing)} is not installed here\n")
        return 1
    if not fetch_libraries():
        return 1
    folder = chosen.all or IMAGES
    folder.mkdir(parents=True, exist_ok=True)
    failed = False
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as temporary:
        directory = Path(temporary)
        prometheus, promtool, chromium = (Path(str(programs[name])) for name in ("prometheus", "promtool", "chromium"))
        with browser(chromium, directory) as window:
            window.hide_scrollbars()
            for name in chosen.situations or (SITUATIONS if chosen.all else ("bad-night", "jobs")):
                with drawn(SITUATIONS[name], window, directory / name, prometheus, promtool) as (store, show):
                    views = dict(SITUATIONS[name].views(store))
                    for picture, view in _for_review(name, views) if chosen.all else _for_the_docs(name, views):
                        failures = show(view)
                        window.screenshot(path := folder / f"{picture}.png", whole=False)
                        sys.stdout.write("\n  ".join((str(path), *failures)) + "\n")
                        failed = failed or bool(failures)
    return int(failed)


def _for_the_docs(situation: str, views: Mapping[str, View]) -> Iterator[tuple[str, View]]:
    if situation == "jobs":
        yield "job", replace(views["job"], height=1160)
        return
    yield "bad-night-top", replace(views["diagnosis"], height=1010)
    yield "bad-night-panels", replace(views["diagnosis"], unfolded=True, height=3600)


def _for_review(situation: str, views: Mapping[str, View]) -> Iterator[tuple[str, View]]:
    for (name, view), (width, height), dark in product(views.items(), (DESK, PHONE), (True, False)):
        picture = f"{situation}-{name}-{width}-{'dark' if dark else 'light'}"
        yield picture, replace(view, width=width, height=height, dark=dark)


if __name__ == "__main__":
    sys.exit(main())
