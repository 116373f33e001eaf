"""A host recorded and played again: the same page, without the names of boards, hosts and people."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.rig import Rig, scenario_with

from gpu_triage.cli import group
from gpu_triage.config import Config
from gpu_triage.errors import RecordingError
from gpu_triage.options import run_cli
from gpu_triage.recording import Recorder, replayed_machine
from gpu_triage.recording.bundle import Recording, read_recording, write_recording
from gpu_triage.recording.masking import Masker
from gpu_triage.recording.replay import ReplayedTree
from gpu_triage.simulator import Scenario, VirtualClock, load_scenario, simulated_machine

KEY = b"k" * 32
SECONDS = 12
OF_THE_PROCESS = ("gpu_exporter_collector_duration_seconds", "process_")


def _record(scenario: Scenario, masker: Masker | None = None) -> tuple[Recording, str, set[str]]:
    """The recording of a simulated host, the page that was published at its end, and the serials to look for."""
    clock = VirtualClock()
    with simulated_machine(scenario, clock=clock) as simulated:
        # Whose pods they are is the kubelet's word, which is not recorded.
        recorder = Recorder(replace(simulated.machine, pods=None), masker or Masker(KEY))
        host = Rig(simulated, clock, Config(), machine=recorder.machine)
        for _ in range(SECONDS):
            host.run(1)
            recorder.snapshot()
        recording = recorder.finish()
        return recording, host.page(), {gpu.serial for gpu in scenario.gpus} | {gpu.uuid for gpu in scenario.gpus}


@contextmanager
def _replayed(path: Path) -> Iterator[Rig]:
    clock = VirtualClock()
    with replayed_machine(path, clock=clock) as machine, simulated_machine(load_scenario("no-driver")) as other:
        yield Rig(other, clock, Config(), machine=machine)


def _samples(page: str) -> list[str]:
    return [line for line in page.splitlines() if line and line[0] != "#" and not line.startswith(OF_THE_PROCESS)]


def _masked(page: str, masker: Masker, serials: set[str]) -> str:
    for serial in serials:
        masked = masker.data(serial.encode()) if "-" in serial else masker.digits(serial.encode())
        page = page.replace(serial, masked.decode())
    return page


ROUND_TRIPS = ["dual-a10", "h100-8", "v100-old-driver", "rtx-4070-ti-super", "no-driver", "lost-before-start"]


@pytest.mark.parametrize("name", ROUND_TRIPS)
@pytest.mark.parametrize("target", ["recording", "recording.tar.gz"])
def test_a_replayed_host_publishes_what_the_recorded_one_did(tmp_path: Path, name: str, target: str) -> None:
    recording, page, serials = _record(load_scenario(name))
    write_recording(recording, tmp_path / target)
    with _replayed(tmp_path / target) as host:
        for _ in range(SECONDS):
            host.run(1)
        expected, found = _samples(_masked(page, Masker(KEY), serials)), _samples(host.page())
        assert [line for line in found if line not in expected] == []
        assert [line for line in expected if line not in found] == []
