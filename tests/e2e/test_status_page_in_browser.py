"""The status page in a real browser, at every moment at which a shipped scenario says what must be seen."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest
from tests.e2e.browser import Browser, browser
from tests.e2e.processes import wait_for
from tests.looking import look_at
from tests.rig import scenario_with
from tests.status_server import WINDOW_SECONDS, StatusServer, status_server

from gpu_triage.diagnosis.machine_readable import render_json
from gpu_triage.simulator import list_scenarios, load_scenario

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import RequiresTool

PHONE = 390
MOMENTS = [
    (summary.name, expectation.at)
    for summary in list_scenarios()
    for expectation in load_scenario(summary.name).expectations
]
SHOWN = """
(() => {
  const of = (element, ...names) => Object.fromEntries(names.map((name) => [name, element.dataset[name]]));
  const all = (selector) => [...document.querySelectorAll(selector)];
  return {
    top: of(document.getElementById("verdict"), "state", "verdict"),
    gpus: all("tr[data-gpu]").map((row) => of(row, "gpu", "bottleneck", "verdict", "findings")),
    findings: all("li[data-code]").map((item) => ({
      ...of(item, "code", "subject", "severity"), measured: item.querySelector(".measured").textContent,
      runbook: item.querySelector("a")?.href ?? null })),
    width: document.documentElement.scrollWidth,
    windowWidth: window.innerWidth,
    clipped: all("main p, main dd, main h1, main h2").filter((each) => each.scrollWidth > each.clientWidth + 1).length,
    simulated: document.querySelector(".simulated") !== null,
    failing: all("tr[data-collector]").filter((row) => !["ok"].includes(row.dataset.state)).length,
  };
})()
"""


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


@pytest.mark.parametrize(("name", "at"), MOMENTS, ids=[f"{name}-{at // 60:.0f}m" for name, at in MOMENTS])
def test_page_api_and_check_say_the_same(window: Browser, name: str, at: float) -> None:
    scenario = load_scenario(name)
    with status_server(scenario, at) as server:
        api = verdict_of(server)
        window.open(server.url, width=PHONE, height=844)
        shown = window.evaluate(SHOWN)
        complaints = list(window.complaints)
    check = json.loads(render_json(look_at(scenario, at, watch_seconds=WINDOW_SECONDS)))

    assert shown["top"]["verdict"] == api["verdict"] == check["verdict"]
    told = [(f["code"], subject(f), f["severity"]) for f in api["findings"]]
    assert told == [(f["code"], subject(f), f["severity"]) for f in check["findings"]]
    assert told == [(f["code"], f["subject"], f["severity"]) for f in shown["findings"]]
    assert [f["measured"] for f in shown["findings"]] == [f["measured"] for f in api["findings"]]
    rows = [(g["gpu"], g["bottleneck"], g["verdict"], g["findings"]) for g in api["gpus"]]
    assert rows == [(g["gpu"], g["bottleneck"], g["verdict"], g["findings"]) for g in check["gpus"]]
    assert rows == [(g["gpu"], g["bottleneck"], g["verdict"], g["findings"].split()) for g in shown["gpus"]]
    for finding, item in zip(api["findings"], shown["findings"], strict=True):
        assert (item["runbook"] or "").endswith(finding["runbook"] or "")
    assert api.keys() == check.keys()

    assert complaints == []
    assert shown["width"] <= shown["windowWidth"] == PHONE
    assert shown["clipped"] == 0
    assert shown["simulated"]


def test_the_browser_complains_about_what_the_policy_forbids(window: Browser) -> None:
    with status_server(load_scenario("idle-downshift")) as server:
        window.open(server.url)
        window.evaluate("document.head.append(Object.assign(document.createElement('style'), {textContent: 'p {}'}))")
        window.evaluate("fetch('http://127.0.0.2:9/').catch(() => 0)")
        window.evaluate("1")
        told = "".join(window.complaints)
        assert "Applying inline style violates" in told
        assert "Connecting to 'http://127.0.0.2:9/' violates" in told


def test_the_page_keeps_itself_fresh_and_says_when_nobody_answers(window: Browser) -> None:
    state = "document.getElementById('verdict').dataset.state"
    look_again = "document.dispatchEvent(new Event('visibilitychange'))"
    with status_server(load_scenario("idle-downshift")) as server:
        window.open(server.url)
        assert window.evaluate(state) == "keep"
        server.rig.sampler.release()
        server.run(2)
        wait_for(lambda: window.evaluate(f"{look_again}, {state}") == "released")
        assert window.evaluate("document.getElementById('silent').hidden")
        assert window.complaints == []
    wait_for(lambda: not window.evaluate(f"{look_again}, document.getElementById('silent').hidden"))
    assert "has not answered" in window.evaluate("document.getElementById('silent').textContent")


def test_a_process_cannot_write_into_the_page(window: Browser, tmp_path: Path) -> None:
    scenario_with(tmp_path, "dual-a10")
    path = next(tmp_path.glob("*.toml"))
    hostile = r"<img src=x>'\u202E\""
    path.write_text(path.read_text().replace('name = "python"', f'name = "{hostile}"'))
    with status_server(load_scenario(str(path)), 3600.0) as server:
        window.open(server.url)
        shown = window.evaluate("document.querySelector('.gpus').textContent")
        assert window.evaluate("document.scripts.length") == 1
        assert window.evaluate("document.images.length") == 0
    assert """<img src=x>'" 24819""" in shown
    assert window.complaints == []


def test_a_host_that_is_starting_stale_released_or_without_driver_says_so(window: Browser) -> None:
    said = "document.getElementById('verdict').innerText"
    idle = load_scenario("idle-downshift")
    with status_server(idle, sampled=False) as server:
        window.open(server.url)
        assert "Waiting for the first answer of the driver." in window.evaluate(said)
        with pytest.raises(urllib.error.HTTPError) as refused:
            verdict_of(server)
        assert refused.value.code == 503
        assert "error" in json.load(refused.value)
        refused.value.close()
    with status_server(idle, alive=lambda: "the sampler has published nothing for 45 s") as server:
        window.open(server.url)
        assert "Stale" in window.evaluate(said)
        assert "nothing for 45 s" in window.evaluate(said)
    with status_server(load_scenario("no-driver"), 3600.0) as server:
        window.open(server.url)
        assert "Could not look" in window.evaluate(said)
        assert verdict_of(server)["blocked"] in window.evaluate(said)
