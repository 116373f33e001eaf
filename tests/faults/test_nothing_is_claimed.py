"""A real daemon claims success for nothing that it could not read: a mount that is missing."""

import json
from collections.abc import Mapping
from typing import Any

from tests.faults.stand_in import Daemon, StandIn, up

WAIT_SECONDS = 30.0


def failing(page: str) -> set[str]:
    lines = (line for line in page.splitlines() if line.startswith("gpu_exporter_collector_success{"))
    return {line.split('"')[1] for line in lines if line.endswith(" 0.0")}


def verdict(daemon: Daemon) -> Mapping[str, Any]:
    judged: Mapping[str, Any] = json.loads(daemon.get("/api/v1/verdict"))
    return judged


def said(judged: Mapping[str, Any], *words: str) -> bool:
    """Whether a line of what was not read has all these words."""
    return any(all(word in line for word in words) for line in judged.get("not_read", ()))


def test_an_empty_procfs_is_a_failure_on_the_page_in_the_verdict_in_check_and_in_the_log(host: StandIn) -> None:
    empty = host.folder / "empty"
    empty.mkdir()
    procfs = ("--path.procfs", str(empty))
    with host.daemon(*procfs) as daemon:
        page = daemon.wait_for(lambda page: len(up(page)) == 4 and "host_cpu" in failing(page), WAIT_SECONDS)
        assert {"host_memory", "host_disk", "host_network", "host_nfs", "host_pressure", "modules"} <= failing(page)
        assert 'gpu_exporter_degraded_info{feature="procfs",reason="missing"} 1' in page
        daemon.wait_for(lambda _: said(verdict(daemon), "host_cpu", "missing"), WAIT_SECONDS)
        assert said(verdict(daemon), "--path.procfs")
        assert "--path.procfs" in daemon.get("/")
    log = host.folder.joinpath("log").read_text()
    assert f"{empty}/stat" in log
    warned = [line for line in log.splitlines() if "level=warning" in line and "feature=procfs" in line]
    assert len(warned) == 1
    done = host.check("--for", "4s", *procfs)
    assert done.returncode == 0, done.stderr
    not_read = done.stdout.partition("not read:")[2]
    assert "--path.procfs" in not_read
    assert "host_cpu" in not_read
