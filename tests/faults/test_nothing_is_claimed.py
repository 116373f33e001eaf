"""A real daemon claims success for nothing that did not run: a driver that hangs, a mount that is missing, a pipe."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.faults.stand_in import Daemon, StandIn, up

WAIT_SECONDS = 30.0

AT_ONCE = ("--judge", "driver.unavailable.wait=1s", "--judge", "driver.unavailable.hold=1s")
"""The driver has five minutes to answer, and to stay well, before the verdict is another."""


@pytest.fixture
def host(tmp_path: Path) -> StandIn:
    return StandIn(tmp_path, gpus=2)


def failing(page: str) -> set[str]:
    lines = (line for line in page.splitlines() if line.startswith("gpu_exporter_collector_success{"))
    return {line.split('"')[1] for line in lines if line.endswith(" 0.0")}


def verdict(daemon: Daemon) -> Mapping[str, Any]:
    judged: Mapping[str, Any] = json.loads(daemon.get("/api/v1/verdict"))
    return judged


def said(judged: Mapping[str, Any], *words: str) -> bool:
    """Whether a line of what was not read has all these words."""
    return any(all(word in line for word in words) for line in judged.get("not_read", ()))


def test_a_driver_that_does_not_count_its_gpus_is_down_while_they_answer(host: StandIn) -> None:
    counting = "host hang nvmlDeviceGetCount"
    with host.daemon(*AT_ONCE) as daemon:
        daemon.wait_for(lambda page: len(up(page)) == 2, WAIT_SECONDS)
        host.set(counting)
        page = daemon.wait_for(lambda page: "\ngpu_driver_up 0" in page, WAIT_SECONDS)
        assert 'gpu_driver_error_info{error="stalled"} 1' in page
        assert 'gpu_exporter_call_inflight_seconds{collector="driver",function="nvmlDeviceGetCount",gpu=""' in page
        assert 'gpu_devices{source="nvml"}' not in page
        assert len(up(page)) == 2
        daemon.wait_for(lambda _: verdict(daemon).get("verdict") == "drain", WAIT_SECONDS)
        judged = verdict(daemon)
        assert judged["blocked"] is None
        (found,) = (found for found in judged["findings"] if found["code"] == "driver.unavailable")
        assert "nvmlDeviceGetCount has not returned" in found["measured"]
        assert "nvmlDeviceGetCount has not returned" in daemon.get("/")
        host.clear(counting)
        page = daemon.wait_for(lambda page: "\ngpu_driver_up 1" in page, WAIT_SECONDS)
        assert 'gpu_devices{source="nvml"} 2' in page
        daemon.wait_for(lambda _: verdict(daemon).get("verdict") == "keep", WAIT_SECONDS)


def test_an_empty_procfs_is_a_failure_on_the_page_in_the_verdict_in_check_and_in_the_log(host: StandIn) -> None:
    empty = host.folder / "empty"
    empty.mkdir()
    procfs = ("--path.procfs", str(empty))
    with host.daemon(*procfs) as daemon:
        page = daemon.wait_for(lambda page: len(up(page)) == 2 and "host_cpu" in failing(page), WAIT_SECONDS)
        assert {"host_memory", "host_disk", "host_network", "host_nfs", "host_pressure", "modules"} <= failing(page)
        assert 'gpu_exporter_degraded_info{feature="procfs",reason="missing"} 1' in page
        daemon.wait_for(lambda _: said(verdict(daemon), "host_cpu", "missing"), WAIT_SECONDS)
        assert said(verdict(daemon), "--path.procfs")
        assert "--path.procfs" in daemon.get("/")
    log = host.folder.joinpath("log").read_text()
    assert f"{empty}/stat" in log
    warned = [line for line in log.splitlines() if "level=warning" in line and "feature=procfs" in line]
    assert len(warned) == 1
    command = [sys.executable, "-m", "gpu_triage", "check", "--for", "4s", *host.arguments, *procfs]
    done = subprocess.run(command, env=host.environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    not_read = done.stdout.partition("not read:")[2]
    assert "--path.procfs" in not_read
    assert "host_cpu" in not_read
