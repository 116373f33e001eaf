"""What the page says of the exporter's process is what prometheus_client would say of it."""

from __future__ import annotations

import resource
from pathlib import Path

from prometheus_client import ProcessCollector
from tests.host_tree import HostTree

from gpu_triage.serve.exposition.process import OwnProcess

TAIL = "S 1 77 77 0 -1 4194560 5118 0 12 0 950 310 0 0 20 0 9 0 8812345 11796480 1203" + " 0" * 28 + "\n"


def test_the_names_and_helps_are_those_of_prometheus_client() -> None:
    theirs = {family.name: family for family in ProcessCollector(registry=None).collect()}
    ours = {sample.spec.name.removesuffix("_total"): sample for sample in OwnProcess().samples()}
    assert list(ours) == list(theirs)
    assert [each.spec.help for each in ours.values()] == [family.documentation for family in theirs.values()]
    for name in ("process_start_time_seconds", "process_max_fds"):
        assert ours[name].value == theirs[name].samples[0].value


def test_what_the_kernel_says_is_in_base_units(host: HostTree) -> None:
    host.write({"proc/self/stat": f"77 (gpu) (x) {TAIL}", "proc/stat": "cpu 1 2\nbtime 1700000000\n"})
    host.write({"proc/self/fd/0": "", "proc/self/fd/1": ""})
    said = {sample.spec.name: sample.value for sample in OwnProcess(host.procfs).samples()}
    assert said["process_cpu_seconds_total"] == 9.5 + 3.1
    assert said["process_resident_memory_bytes"] == 1203 * resource.getpagesize()
    assert said["process_virtual_memory_bytes"] == 11796480
    assert said["process_start_time_seconds"] == 1700000000 + 88123.45
    assert said["process_open_fds"] == 2


def test_a_procfs_that_says_nothing_costs_these_series_only(tmp_path: Path, host: HostTree) -> None:
    assert list(OwnProcess(tmp_path).samples()) == []
    host.write({"proc/self/stat": "77 (gpu) S\n", "proc/stat": "btime soon\n"})
    assert list(OwnProcess(host.procfs).samples()) == []
