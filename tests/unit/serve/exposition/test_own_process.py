"""What the page says of the exporter's process is what prometheus_client would say of it."""

import os

import psutil
from prometheus_client import ProcessCollector

from gpu_triage.serve.exposition.process import OwnProcess


def test_names_helps_and_values_are_those_of_prometheus_client() -> None:
    theirs = {family.name: family for family in ProcessCollector(registry=None).collect()}
    ours = {sample.spec.name.removesuffix("_total"): sample for sample in OwnProcess().samples()}
    assert list(ours) == list(theirs)
    assert [each.spec.help for each in ours.values()] == [family.documentation for family in theirs.values()]
    for name in ("process_start_time_seconds", "process_max_fds", "process_open_fds"):
        assert abs(ours[name].value - theirs[name].samples[0].value) <= 1
    for name in ("process_virtual_memory_bytes", "process_resident_memory_bytes", "process_cpu_seconds"):
        assert 0.8 < ours[name].value / theirs[name].samples[0].value < 1.25


def test_a_process_that_cannot_be_read_costs_these_series_only() -> None:
    child = os.fork()
    if not child:
        os._exit(0)
    ended = psutil.Process(child)
    os.waitpid(child, 0)
    assert list(OwnProcess(ended).samples()) == []
