"""The dashboards in Grafana's scenes and a real browser: variables, rows, panels and what an empty one says.

They need 600 MB of npm packages: ``python -m tests.dashboards.scenes`` fetches them.
"""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.dashboards.grafana import FILES, panels, read, rows
from tests.dashboards.jobs import FILE as JOB_FILE
from tests.dashboards.scenes import LIBRARIES, Scenes, View, scenes
from tests.dashboards.store import Store
from tests.e2e.browser import browser

pytestmark = [
    pytest.mark.timeout(1800)  # the first test waits for the fleet to be recorded, beside whatever else runs
]

NIGHT = "h100-8-bad-night"
SEEN_AT = 79 * 60
HIDDEN = {"hosts", "gpus", "of_host", "of_gpu"}
MAY_BE_EMPTY = {"cluster", "slurm_job", "namespace", "pod", "user"}


@pytest.fixture(scope="module")
def shown(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scenes]:
    """A window for dashboards, with the history of the scenarios behind it."""
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("chromium is not installed")
    if not LIBRARIES.is_dir():
        pytest.skip("Grafana's libraries are not installed: `python -m tests.dashboards.scenes` fetches them with npm")
    directory = tmp_path_factory.mktemp("scenes")
    with browser(Path(chromium), directory) as window, scenes(window, store.address, directory) as running:
        yield running


def view(store: Store, file: str) -> View:
    chosen: dict[str, str | list[str]] = {"instance": [NIGHT]}
    if file == "detail.json":
        chosen = {"instance": NIGHT, "gpu": "5"}
    if file == JOB_FILE:
        chosen = {"user": ["1000"], "instance": [NIGHT]}
    return View(file, chosen, store.start, store.start + SEEN_AT, height=2400, unfolded=True)


@pytest.mark.parametrize("file", FILES)
def test_a_dashboard_has_choices_and_every_panel_data_or_a_reason(shown: Scenes, store: Store, file: str) -> None:
    shown.show(view(store, file))
    assert shown.failures == []
    empty = {name for name, each in shown.variables.items() if not each["options"]}
    assert empty <= MAY_BE_EMPTY | HIDDEN | {"pod_label"}
    reasons = {panel["title"]: panel["fieldConfig"]["defaults"]["noValue"] for panel in panels(read(file))}
    drawn = shown.panels
    assert set(drawn) == set(reasons)
    assert {title: each["says"] for title, each in drawn.items() if not each["frames"]} == {
        title: reasons[title] for title, each in drawn.items() if not each["frames"]
    }


def test_a_chosen_host_shortens_legends_and_changes_what_panels_show(shown: Scenes, store: Store) -> None:
    shown.show(view(store, "diagnosis.json"))
    one_host = shown.panels["Bottleneck of each GPU"]["frames"]
    assert one_host == 8
    assert f"{NIGHT} GPU 3" not in shown.text
    shown.choose("instance", "$__all")
    assert shown.panels["Bottleneck of each GPU"]["frames"] > one_host
    assert f"{NIGHT} GPU 3" in shown.text


def test_verdicts_name_the_gpu_or_their_number(shown: Scenes, store: Store) -> None:
    shown.show(view(store, "diagnosis.json"))
    lines = shown.text.splitlines()
    assert lines[lines.index("1 GPU health") + 1] == f"{NIGHT} GPU 6"
    assert lines[lines.index("4 Host resources") + 1] == "6 GPUs"
    assert lines[lines.index("0 Monitoring") + 1] == "OK"
    assert "x4 of x16" in lines


def test_folded_rows_ask_nothing_until_they_are_opened(shown: Scenes, store: Store) -> None:
    shown.show(replace(view(store, "diagnosis.json"), unfolded=False))
    folded = {panel["title"] for row in rows(read("diagnosis.json")) for panel in row["panels"]}
    assert not folded & set(shown.panels)
    shown.unfold()
    assert folded <= set(shown.panels)
    assert shown.failures == []


def test_on_a_phone_panels_are_below_each_other(shown: Scenes, store: Store) -> None:
    shown.show(replace(view(store, "diagnosis.json"), width=390, unfolded=False))
    drawn = shown.panels.values()
    assert len({each["left"] for each in drawn}) == 1
    assert len({each["top"] for each in drawn}) == len(drawn)
    assert all(300 < each["width"] <= 390 for each in drawn)
    assert shown.failures == []
