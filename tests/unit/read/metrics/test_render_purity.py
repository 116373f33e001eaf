"""Rendering is pure: what becomes of a reading depends on the reading alone."""

import builtins
import io
import os
import time
from typing import NoReturn

import pynvml
import pytest
from tests.rig import rig

from gpu_triage.options.config import Config
from gpu_triage.read.baseline import differences as baseline
from gpu_triage.read.exporter import exporter_health as exporter
from gpu_triage.read.gpu import presence
from gpu_triage.read.incidents import incident_metrics as incidents
from gpu_triage.read.metrics import rendering
from gpu_triage.read.metrics.contract import GpuLabels
from gpu_triage.read.metrics.metric import Sample
from gpu_triage.read.registry import GPU_COLLECTORS, HOST_COLLECTORS
from gpu_triage.read.xid import xid_metrics as xid
from gpu_triage.sampler.outcomes import Outcome
from gpu_triage_simulator import load_scenario

pytestmark = pytest.mark.slow

SECONDS = 65
OF_GPUS = {collector.name: collector for collector in GPU_COLLECTORS}
OF_HOST = {collector.name: collector.render for collector in HOST_COLLECTORS} | {
    subject.NAME: subject.render for subject in (baseline, exporter, incidents, presence, xid)
}
CALLS = (
    (pynvml, "_nvmlGetFunctionPointer"),
    (builtins, "open"),
    (io, "open"),
    *((os, name) for name in ("open", "stat", "listdir", "scandir", "readlink")),
    *((time, name) for name in ("time", "monotonic")),
)


@pytest.fixture(scope="module", params=["h100-mig", "dual-a10"])
def outcomes(request: pytest.FixtureRequest) -> list[tuple[Outcome, GpuLabels]]:
    """What every collector has read on a host, with the labels of its GPU."""
    config = Config(sample_fast_seconds=5.0, collectors={"pcie_throughput": True, "process_memory_locality": True})
    with rig(load_scenario(request.param), config) as running:
        running.run(SECONDS)
        store = running.sampler.store
        labels = {record.key: record.labels for record in running.sampler.view.host_gpus}
        read = [outcome for name in store.collectors for outcome in store.of(name) if outcome.reading is not None]
    return [(outcome, labels.get(outcome.subject, GpuLabels("", ""))) for outcome in read]


def rendered(outcome: Outcome, gpu: GpuLabels) -> tuple[Sample, ...]:
    of_gpu = OF_GPUS.get(outcome.collector)
    if of_gpu is not None:
        return tuple(of_gpu.render(outcome.reading, gpu))
    return tuple(OF_HOST[outcome.collector](outcome.reading))


def test_rendering_asks_nothing(outcomes: list[tuple[Outcome, GpuLabels]], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: object, **_options: object) -> NoReturn:
        raise AssertionError("a render asks the machine")

    # Nothing is remembered of how it was rendered before.
    rendering._series_of.cache_clear()
    with monkeypatch.context() as patch:
        for module, name in CALLS:
            patch.setattr(module, name, refuse)
        again = [(outcome, rendered(outcome, gpu)) for outcome, gpu in outcomes]
    assert len(again) > len(OF_GPUS)
    assert [outcome.collector for outcome, samples in again if samples != outcome.samples] == []
