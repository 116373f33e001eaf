"""pynvml whose functions somebody has replaced: there is no library below it, and answers are plain Python objects."""

from ctypes import c_uint
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest
from tests.simulated_driver import devices_of

from gpu_triage.driver.nvml.events import XidEvents
from gpu_triage.driver.nvml.inquiry import Inquiry
from gpu_triage.driver.nvml.lists import read_list
from gpu_triage.driver.nvml.session import Session
from gpu_triage.machine import RealClock, SystemNvml, real_machine
from gpu_triage.read.gpu.identity import read_identity
from gpu_triage.read.metrics.rounds import GpuRound
from gpu_triage.read.processes.listing import ProcessLister


class Handle:
    """What the replaced functions know a GPU by: no pointer."""


ANSWERS: dict[str, Any] = {
    "nvmlInit": lambda: None,
    "nvmlShutdown": lambda: None,
    "nvmlSystemGetDriverVersion": lambda: b"550.54.14",
    "nvmlDeviceGetCount": lambda: 1,
    "nvmlDeviceGetHandleByIndex": lambda _index: Handle(),
    "nvmlDeviceGetUUID": lambda _handle: b"GPU-1",
    "nvmlDeviceGetName": lambda _handle: b"NVIDIA \xff",
    "nvmlDeviceGetPciInfo": lambda _handle: SimpleNamespace(busId=b"00000000:3D:00.0"),
    "nvmlDeviceGetComputeRunningProcesses": lambda _handle: [SimpleNamespace(pid=12, usedGpuMemory=4096)],
    "nvmlDeviceGetGraphicsRunningProcesses": lambda _handle: [],
    "nvmlDeviceGetSamples": lambda _handle, _kind, _since: (1, [SimpleNamespace(timeStamp=5)]),
    "nvmlDeviceGetRetiredPages": lambda _handle, _cause: [0x1000],
}


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Session:
    def refuse(*_arguments: object) -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    monkeypatch.setattr(pynvml, "nvmlLib", None)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    for name in (n for n in dir(pynvml) if n.startswith(("nvmlDeviceGet", "nvmlSystemGet", "nvmlEvent"))):
        if callable(getattr(pynvml, name)) and not isinstance(getattr(pynvml, name), type):
            monkeypatch.setattr(pynvml, name, refuse)
    for name, answer in ANSWERS.items():
        monkeypatch.setattr(pynvml, name, answer)
    session = Session(SystemNvml())
    session.open()
    session.read_versions()
    return session


def test_processes_are_those_of_the_function_in_its_place(session: Session) -> None:
    inquiry = Inquiry(devices_of(session)[0])
    listed = ProcessLister().read(inquiry)
    assert listed.counts == {"compute": 1, "graphics": 0, "compute_graphics": 0}
    assert [(process.pid, process.memory_bytes, process.instances) for process in listed.processes] == [
        (12, 4096, frozenset())
    ]
    assert inquiry.failures == []


def test_other_lists_are_too(session: Session) -> None:
    handle, value_type = devices_of(session)[0].handle, c_uint(0)
    (sample,) = read_list("nvmlDeviceGetSamples", handle, 1, 0, value_type)
    assert (sample.timeStamp, value_type.value) == (5, 1)
    assert read_list("nvmlDeviceGetRetiredPages", handle, 0) == [0x1000]


def test_bytes_are_text_even_where_they_are_no_text(session: Session, tmp_path: Path) -> None:
    machine = real_machine(tmp_path, tmp_path, None)
    (device,) = devices_of(session)
    reading = read_identity(GpuRound(Inquiry(device), session.versions, (), machine, machine.clock.now()))
    assert (device.uuid, reading.name, reading.pci_bus_id) == ("GPU-1", "NVIDIA �", "0000:3d:00.0")
    assert session.versions.driver == "550.54.14"


def test_a_handle_that_is_no_pointer_is_no_failure_of_the_events(session: Session) -> None:
    events = XidEvents(RealClock())
    events.listen(devices_of(session))
    assert not events.listening
    assert events.take_failures() == ()
