"""The status page in a real browser, at every moment at which a shipped scenario says what must be seen."""

import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import RequiresTool
from tests.e2e.browser import Browser, browser
from tests.e2e.processes import wait_for
from tests.status_server import StatusServer, status_server

from gpu_triage.judge.findings.verdicts import CLASS_COLORS, DESK, Verdict
from gpu_triage.options.config import Config
from gpu_triage_simulator import list_scenarios, load_scenario

PHONE = 390
NIGHT = "h100-8-bad-night"
MOMENTS = [
    (summary.name, expectation.at)
    for summary in list_scenarios()
    for expectation in load_scenario(summary.name).expectations
]
HERE = Path(__file__).parent
SHOWN, PLACED, WIDEST, STRIPS = (
    (HERE / f"{name}.js").read_text(encoding="utf-8") for name in ("shown", "placed", "widest", "strips")
)


@pytest.fixture(scope="module")
def window(requires_tool: RequiresTool, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(requires_tool("chromium"), tmp_path_factory.mktemp("chromium")) as running:
        yield running


def verdict_of(server: StatusServer) -> dict[str, Any]:
    with urllib.request.urlopen(f"{server.url}api/v1/verdict", timeout=10) as answer:
        verdict: dict[str, Any] = json.load(answer)
        return verdict


def subject(finding: dict[str, Any]) -> str:
    if finding["gpu"] is not None:
        return f"GPU {finding['gpu']}"
    return f"GPU at {finding['pci_bus_id']}" if finding["pci_bus_id"] else "host"


def subjects(shown: str) -> list[str]:
    """Of an entry: ``GPU 0-1, 4`` are three GPUs."""
    if re.fullmatch(r"GPU [0-9, -]+", shown) is None:
        return [shown]
    ends = (part.partition("-") for part in shown.removeprefix("GPU ").split(", "))
    return [f"GPU {gpu}" for first, _, last in ends for gpu in range(int(first), int(last or first) + 1)]


@pytest.mark.parametrize(("name", "at"), MOMENTS, ids=[f"{name}-{at // 60:.0f}m" for name, at in MOMENTS])
def test_page_and_api_say_the_same(window: Browser, name: str, at: float) -> None:
    scenario = load_scenario(name)
    with status_server(scenario, at) as server:
        api = verdict_of(server)
        window.open(server.url, width=PHONE, height=844)
        shown = window.evaluate(SHOWN)
        complaints = list(window.complaints)

    assert shown["top"]["verdict"] == api["verdict"]
    told = [(f["code"], subject(f), f["severity"]) for f in api["findings"]]
    items = shown["findings"]
    entries = [[(item["code"], one, item["severity"]) for one in subjects(item["subject"])] for item in items]
    of_each = {one: item for gpus, item in zip(entries, items, strict=True) for one in gpus}
    assert sorted(told) == sorted(of_each)
    assert [gpus[0] for gpus in entries] == [each for each in told if any(each == gpus[0] for gpus in entries)]
    for finding, each in zip(api["findings"], told, strict=True):
        assert (of_each[each]["runbook"] or "").endswith(finding["runbook"] or "")
        if [each] in entries:
            assert of_each[each]["measured"] == finding["measured"]
    rows = [(g["gpu"], g["bottleneck"], g["verdict"], g["findings"]) for g in api["gpus"]]
    listed = [(g["gpu"], g["bottleneck"], g["verdict"], g["findings"].split()) for g in shown["gpus"]]
    assert rows == sorted(listed, key=lambda row: int(row[0]))
    assert [row[:3] for row in listed] == [(g["gpu"], g["bottleneck"], g["verdict"]) for g in shown["overview"]]

    assert complaints == []
    assert shown["width"] <= shown["windowWidth"] == PHONE
    assert shown["clipped"] == 0
    assert shown["simulated"]


def overlap(one: dict[str, float], other: dict[str, float]) -> bool:
    apart = one["right"] <= other["left"] or other["right"] <= one["left"]
    return not apart and one["top"] < other["bottom"] and other["top"] < one["bottom"]


@pytest.mark.parametrize("size", [(1400, 1000), (PHONE, 844)])
@pytest.mark.parametrize(
    ("name", "minute", "gpus", "longest"),
    [(NIGHT, 33, 8, "not read"), (NIGHT, 79, 8, "not read"), ("desk", 5, 2, DESK.verdicts[Verdict.DRAIN])],
)
def test_the_first_screen_has_verdict_class_and_strip(
    window: Browser, name: str, minute: int, gpus: int, longest: str, *, size: tuple[int, int]
) -> None:
    width, height = size
    with status_server(load_scenario(name), 60.0 * minute, sampled_seconds=10.0) as server:
        window.open(server.url, width=width, height=height)
        for change in ("0", WIDEST.replace("VERDICT", longest)):
            window.evaluate(change)
            placed = window.evaluate(PLACED)
            assert placed["page"] <= placed["width"]
            assert len(placed["rows"]) == gpus
            for row in placed["rows"]:
                assert len(row["parts"]) == 5
                for part in (row["row"], *row["parts"]):
                    assert 0 <= part["left"] < part["right"] <= placed["width"]
                    assert 0 <= part["top"] < part["bottom"] <= placed["height"]
                assert not [pair for pair in combinations(row["parts"], 2) if overlap(*pair)]
        if width > PHONE:
            assert placed["beyond"] == []
        assert window.complaints == []


@pytest.mark.parametrize("name", [NIGHT, "desk"])
def test_paper_has_every_column(window: Browser, name: str) -> None:
    """A4 with margins of a centimeter."""
    with status_server(load_scenario(name), 1980.0, sampled_seconds=10.0) as server:
        window.open(server.url, width=718, height=1047, media="print")
        placed = window.evaluate(PLACED)
    assert placed["page"] <= placed["width"] == 718
    assert placed["beyond"] == []


def test_a_strip_shows_when_a_gpu_changed_its_class(window: Browser) -> None:
    """GPU 3 overheats from the tenth minute on."""
    config = Config(simulate=NIGHT, sample_fast_seconds=5.0)
    with status_server(load_scenario(NIGHT), 900.0, config=config, sampled_seconds=600.0) as server:
        window.open(server.url, width=1400, height=1000)
        strips = {strip["gpu"]: strip for strip in window.evaluate(STRIPS)}
        (worst,) = (gpu for gpu in verdict_of(server)["gpus"] if gpu["gpu"] == "3")
    fills = [fill for fill, _, _ in strips["3"]["drawn"]][-2:]
    assert fills == [rgb(CLASS_COLORS["compute"]), rgb(CLASS_COLORS["thermal"])]
    _, left, share = strips["3"]["drawn"][-1]
    assert left + share == pytest.approx(1.0, abs=0.002)
    ended = server.rig.clock.now().wall
    assert share * 1800.0 == pytest.approx(ended - worst["since"], abs=5.0)
    assert sum(share for _, _, share in strips["0"]["drawn"]) == pytest.approx(600.0 / 1800.0, abs=0.01)
    assert "then thermal for " in strips["3"]["label"]
    assert next(iter(strips)) == "3"


def rgb(color: str) -> str:
    return f"rgb({', '.join(str(int(color[place : place + 2], 16)) for place in (1, 3, 5))})"


def test_the_page_keeps_itself_fresh_and_says_when_nobody_answers(window: Browser) -> None:
    state = "document.getElementById('verdict').dataset.state"
    look_again = "document.dispatchEvent(new Event('visibilitychange'))"
    with status_server(load_scenario("idle-downshift")) as server:
        window.open(server.url)
        assert window.evaluate(state) == "keep"
        window.evaluate("document.querySelector('.overview a').focus()")
        server.run(1)  # on this clock, the next judgment would be of the same instant as the last
        server.rig.sampler.driver.release()
        server.run(2)
        wait_for(lambda: window.evaluate(f"{look_again}, {state}") == "released")
        assert window.evaluate("document.getElementById('silent').hidden")
        assert window.evaluate("document.activeElement.id") == "row-0"
        assert window.complaints == []
    wait_for(lambda: not window.evaluate(f"{look_again}, document.getElementById('silent').hidden"))
    assert "No answer from the exporter for" in window.evaluate("document.getElementById('silent').textContent")
