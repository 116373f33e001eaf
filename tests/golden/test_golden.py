"""The whole way from a simulated driver to /metrics over real HTTP, held against reviewed pages.

Regenerate with ``make golden`` and read the diff.
"""

from __future__ import annotations

import http.client
import os
import re
import subprocess
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.rig import rig

from gpu_triage import catalogue
from gpu_triage.catalogue import MetricSpec
from gpu_triage.cli import Front
from gpu_triage.collectors.exporter import WebConfigHealth
from gpu_triage.config import Config
from gpu_triage.simulator import START_OF_TIME, load_scenario
from gpu_triage.web.server import WebServer

if TYPE_CHECKING:
    from tests.conftest import RequiresTool
    from tests.rig import Rig

PAGES = Path(__file__).parent

CASES = {
    "dual-a10": 180,
    "a100-power-capped": 180,
    "h100-8": 120,
    "h100-mig": 120,
    "h100-8-bad-night-at-30m": 30 * 60,
    "h100-8-bad-night-at-75m": 75 * 60,
    "moved-slot-at-40m": 40 * 60,
    "idle-downshift": 120,
    "lost-before-start": 120,
    "rtx-4070-ti-super": 120,
    "v100-old-driver": 120,
    "no-driver": 120,
}
"""Page to the scenario time it shows; the scenario's name is what stands before ``-at-``."""

CONFIG = Config(
    collectors={"pcie_throughput": True, "process_memory_locality": True}, expect_gpu_count=8, expect_p2p=True
)

JOBS = {
    "bert.prom": """# HELP gpu_job_steps_total Optimiser steps.
# TYPE gpu_job_steps_total counter
gpu_job_steps_total{job_name="bert"} 1200
""",
    "broken.prom": "gpu_up 1\n",
}
"""What jobs wrote into the folder that is republished."""

OF_THIS_PROCESS = re.compile(r"^(# \w+ )?(process_\w+|python_\w+)\b.*\n", re.MULTILINE)
BUILD = re.compile(r'(python_version|revision|version)="[^"]*"')


def scraped(running: Rig, accept: str = "") -> bytes:
    """The page as a client gets it from the real server."""
    front = Front(running.sampler, running.judge, running.config, lambda: None)
    server = WebServer(front.application(), ["127.0.0.1:0"])
    (url,) = server.bind()
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        client = http.client.HTTPConnection(url.removeprefix("http://").rstrip("/"), timeout=10)
        client.request("GET", "/metrics", headers={"Accept": accept})
        response = client.getresponse()
        assert response.status == 200
        body = response.read()
        client.close()
    finally:
        server.stop()
        thread.join()
    return body


def steady(page: str) -> str:
    """A page without what differs from run to run."""
    page = OF_THIS_PROCESS.sub("", page)
    return "\n".join(
        BUILD.sub(r'\1="…"', line) if line.startswith("gpu_exporter_build_info") else line for line in page.split("\n")
    )


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A page's name and its text as served now."""
    jobs = tmp_path_factory.mktemp("jobs")
    for file, text in JOBS.items():
        (jobs / file).write_text(text)
        os.utime(jobs / file, (START_OF_TIME, START_OF_TIME))
    name: str = request.param
    seconds = CASES[name]
    # Long runs take coarser steps: the page shows a moment, not the way there.
    config = replace(CONFIG, collector_textfile_directory=jobs)
    if seconds > 300:
        config = replace(config, sample_fast_seconds=5.0)
    if name.startswith("moved-slot"):
        config = replace(config, baseline_from_host=True)
    with rig(load_scenario(name.split("-at-", maxsplit=1)[0]), config) as running:
        running.sampler.status.web_config = WebConfigHealth(success=True, loaded_at=START_OF_TIME)
        if name == "no-driver":
            # As in a container without rights.
            running.kmsg.unlink()
        running.run_to(seconds)
        return name, scraped(running).decode()


def test_page_is_as_reviewed(case: tuple[str, str], request: pytest.FixtureRequest) -> None:
    name, page = case
    path = PAGES / f"{name}.prom"
    if request.config.getoption("--regenerate"):
        path.write_text(steady(page))
    assert steady(page) == path.read_text()


def test_page_passes_promtool(case: tuple[str, str], requires_tool: RequiresTool) -> None:
    promtool = requires_tool("promtool")
    checked = subprocess.run(
        [promtool, "check", "metrics", "--extended"],
        input=case[1],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (checked.returncode, checked.stderr) == (0, ""), checked.stderr


def test_no_series_appears_twice(case: tuple[str, str]) -> None:
    lines = [line.rpartition(" ")[0] for line in case[1].splitlines() if not line.startswith("#")]
    assert len(lines) == len(set(lines))


def test_every_metric_of_the_catalogue_stands_in_a_golden() -> None:
    specs = [spec for spec in vars(catalogue).values() if isinstance(spec, MetricSpec)]
    seen = {
        sample.name
        for name in CASES
        for family in text_string_to_metric_families((PAGES / f"{name}.prom").read_text())
        for sample in family.samples
    }
    assert {spec.name for spec in specs} - seen == set()
