"""The whole way from a simulated driver to /metrics over real HTTP, held against reviewed pages.

``make regenerate`` writes them anew; read the diff.
"""

import os
import re
import subprocess
import urllib.request
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.conftest import RequiresTool
from tests.guarded_server import run
from tests.rig import Rig, rig, scenario_with
from tests.status_server import StatusServer

from gpu_triage.options.config import Config
from gpu_triage.read.exporter.exporter_health import JudgeSettingsHealth, WebConfigHealth
from gpu_triage.read.registry import METRICS
from gpu_triage_simulator import START_OF_TIME, Scenario, load_scenario

pytestmark = pytest.mark.timeout(600)  # the first look at the bad night plays all of it

PAGES = Path(__file__).parent

CASES = {
    "dual-a10": 180,
    "dual-a10-hangs": 120,
    "a100-power-capped": 180,
    "h100-8": 120,
    "h100-mig": 120,
    "h100-fabric": 120,
    "gb200-fabric": 120,
    "h100-8-bad-night-at-30m": 30 * 60,
    "h100-8-bad-night-at-75m": 75 * 60,
    "moved-slot-at-40m": 40 * 60,
    "idle-downshift": 120,
    "lost-before-start": 120,
    "rtx-4070-ti-super": 120,
    "sick-host-at-16m": 16 * 60,
    "v100-old-driver": 120,
    "no-driver": 120,
}
"""Page to the scenario time it shows; the scenario's name is what stands before ``-at-``."""
QUICK = {"dual-a10-hangs", "h100-mig", "idle-downshift", "lost-before-start", "no-driver", "rtx-4070-ti-super"}
"""What `make quick` looks at."""
LONGEST = {"h100-8-bad-night", "h100-8", "moved-slot", "sick-host"}
"""Take longer than all others together: `make full` plays them."""

KEPT: Mapping[str, re.Pattern[str]] = {
    # The six between are like these two, one on either NUMA node.
    "h100-8": re.compile(r'(?!.*\bgpu="[1-6]")'),
    # The healthy h100-8 has all other metrics.
    "h100-8-bad-night": re.compile(
        r"gpu_(bottleneck|driver_up|error_info|exporter_errors_total|finding\w*|host_findings|host_verdict|incident\w*|"
        r"throttle_active|up|verdict|xid_last_timestamp_seconds)\b"
    ),
    # GPU 2 has a page to retire, the others are alike.
    "v100-old-driver": re.compile(r'(?!.*\bgpu="[13]")'),
}
"""Lines of a page that its golden keeps, by scenario; of all others it keeps every line."""

HANGS = "-hangs"
HANG = 'at = 90\ngpu = 1\neffect = { kind = "hang", function = "nvmlDeviceGetUtilizationRates" }'

CONFIG = Config(
    collectors={"pcie_throughput": True, "process_memory_locality": True}, expect_gpu_count=8, expect_p2p=True
)

JOBS = {
    "4242/bert.prom": """# HELP gpu_job_steps_total Optimiser steps.
# TYPE gpu_job_steps_total counter
gpu_job_steps_total{job_name="bert"} 1200
""",
    "4243/broken.prom": "gpu_up 1\n",
}
"""What jobs wrote into the folder that is republished, each below its own."""

OF_THIS_PROCESS = re.compile(r"^(# \w+ )?(process_\w+|python_\w+)\b.*\n", re.MULTILINE)
BUILD = re.compile(r'(python_version|revision|version)="[^"]*"')


def scraped(running: Rig) -> str:
    served = StatusServer(running)
    with run(served.server), urllib.request.urlopen(f"{served.url}metrics", timeout=10) as response:
        page: bytes = response.read()
    return page.decode()


def steady(page: str) -> str:
    """A page without what differs from run to run."""
    page = OF_THIS_PROCESS.sub("", page)
    return "\n".join(
        BUILD.sub(r'\1="…"', line) if line.startswith("gpu_exporter_build_info") else line for line in page.split("\n")
    )


def reviewed(name: str, page: str) -> str:
    """What the golden holds of a page."""
    kept = KEPT.get(scenario_of(name), re.compile(""))
    return "".join(line for line in steady(page).splitlines(keepends=True) if kept.match(line))


def scenario_of(name: str) -> str:
    return name.split("-at-", maxsplit=1)[0]


def loaded(scenario: str, folder: Path) -> Scenario:
    """A shipped scenario or one from here; under a name that says so, with a call of GPU 1 that does not return."""
    if scenario.endswith(HANGS):
        return scenario_with(folder, scenario.removesuffix(HANGS), HANG)
    of_this_folder = PAGES / f"{scenario}.toml"
    return load_scenario(of_this_folder if of_this_folder.exists() else scenario)


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("jobs")
    for file, text in JOBS.items():
        (folder / file).parent.mkdir()
        (folder / file).write_text(text)
        os.utime(folder / file, (START_OF_TIME, START_OF_TIME))
    return folder


@cache
def played(scenario: str, jobs: Path) -> Mapping[str, str]:
    """The pages of a scenario as served now, by name: it is played once, up to the last of them."""
    moments = {name: seconds for name, seconds in CASES.items() if scenario_of(name) == scenario}
    # Long runs take coarser steps: the page shows a moment, not the way there.
    config = replace(CONFIG, collector_textfile_directory=jobs)
    if max(moments.values()) > 300:
        config = replace(config, sample_fast_seconds=15.0)
    # These show every series, those about single links, pairs and collectors too.
    if scenario in {"v100-old-driver", "h100-fabric", "gb200-fabric"}:
        config = replace(config, metrics_profile="full")
    if scenario == "moved-slot":
        config = replace(config, baseline_from_host=True)
    pages = {}
    with rig(loaded(scenario, jobs.parent), config) as running:
        running.sampler.status.web_config = WebConfigHealth(success=True, loaded_at=START_OF_TIME)
        running.sampler.status.judge_settings = JudgeSettingsHealth(success=True, loaded_at=START_OF_TIME)
        if scenario == "no-driver":
            # As in a container without rights.
            running.kmsg.unlink()
        for name, seconds in moments.items():
            running.run_to(seconds)
            pages[name] = scraped(running)
            # The next page, too, is that of a first scrape.
            running.sampler.status.scrapes = 0
    return pages


EACH = [
    pytest.param(
        name,
        id=name,
        marks=[pytest.mark.full] if scenario_of(name) in LONGEST else [pytest.mark.slow] * (name not in QUICK),
    )
    for name in CASES
]


@pytest.fixture(scope="module", params=EACH)
def case(request: pytest.FixtureRequest, jobs: Path) -> tuple[str, str]:
    name: str = request.param
    return name, played(scenario_of(name), jobs)[name]


def test_page_is_as_reviewed(case: tuple[str, str], regenerate: bool) -> None:  # noqa: FBT001 - a fixture
    name, page = case
    path = PAGES / f"{name}.prom"
    if regenerate:
        path.write_text(reviewed(name, page))
    assert reviewed(name, page) == path.read_text(), f"{path.name}: if it is meant, run `make regenerate`"


def test_page_passes_promtool(case: tuple[str, str], requires_tool: RequiresTool) -> None:
    promtool = requires_tool("promtool")
    checked = subprocess.run(
        [promtool, "check", "metrics", "--extended"], input=case[1], capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stderr) == (0, ""), checked.stderr


def test_every_metric_stands_in_a_golden() -> None:
    seen = {
        sample.name
        for name in CASES
        for family in text_string_to_metric_families((PAGES / f"{name}.prom").read_text())
        for sample in family.samples
    }
    # No collector fails for so long here, no flight recorder runs, no counter of the driver is wrong, no GPU is a
    # vGPU or has a job of long steps, no NCCL answers, and nothing is kept on disk:
    # tests/unit/read/exporter/test_exporter.py, tests/unit/record/flight, tests/unit/read/gpu,
    # tests/unit/read/host, tests/unit/read/processes and tests/unit/read/incidents have them.
    elsewhere = {
        *("gpu_exporter_collector_stale_seconds", "gpu_exporter_state_directory_in_use"),
        *("gpu_finding_accepted_until_timestamp_seconds", "gpu_repaired_timestamp_seconds"),
        *("gpu_flight_recording_timestamp_seconds", "gpu_nccl_awaited_rank_info", "gpu_nccl_communicators"),
        *("gpu_host_maintenance_until_timestamp_seconds", "gpu_nccl_operations_total", "gpu_nccl_ranks"),
        *("gpu_power_period_seconds", "gpu_power_period_strength_ratio", "gpu_throttle_counter_rejected_info"),
        "gpu_vgpu_license_state",
    }
    assert {spec.name for spec in METRICS} - seen == elsewhere
