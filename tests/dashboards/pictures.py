"""`python -m tests.dashboards.pictures`: draw the diagnosis of a bad night, and the dashboard of a job with a slow GPU.

The answers come from a real Prometheus, and Grafana's scenes draw them; dashboards/README.md says what these do not
contain. With `--all FOLDER`, every dashboard is drawn, for a review.
"""

import argparse
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from tests.dashboards.fleet import record_fleet
from tests.dashboards.grafana import FILES
from tests.dashboards.jobs import FILE as JOB_FILE
from tests.dashboards.jobs import record_jobs
from tests.dashboards.scenes import Scenes, View, fetch_libraries, scenes
from tests.dashboards.store import Store, serving
from tests.e2e.browser import browser
from tests.jobs.situations import BY_NAME, MINUTES
from tests.rules.cases import load_any

NIGHT = "h100-8-bad-night"
SEEN_AT = 79 * 60
SLOW_GPU = "slow-gpu"
DIAGNOSIS = "diagnosis.json"
FOLDER = Path(__file__).resolve().parents[2] / "docs" / "img"
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
    folder = everything or FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as temporary:
        directory = Path(temporary)
        prometheus, promtool, chromium = (Path(str(programs[name])) for name in ("prometheus", "promtool", "chromium"))
        night = record_fleet(promtool, directory, {NIGHT: load_any(NIGHT)})
        with browser(chromium, directory) as window:
            window.hide_scrollbars()
            for number, (fleet, drawn) in enumerate(((night, _of_night), (record_jobs(), _of_jobs))):
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
