"""Readers over pynvml over a simulated driver whose single functions a test can replace."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pynvml
from tests.simulated_driver import devices_of

from gpu_triage.driver.nvml.inquiry import Inquiry
from gpu_triage.driver.nvml.session import DriverVersions, Session
from gpu_triage.machine import Machine, Moment, NvmlLibrary
from gpu_triage.read.metrics.contract import GpuRound
from gpu_triage.read.metrics.metric import Sample
from gpu_triage_simulator import VirtualClock

Answer = Callable[..., int]


class AnsweringLibrary:
    """A library below pynvml: another one's functions, but for those whose answers a test has replaced."""

    def __init__(self, base: object) -> None:
        # Replaced functions by name; they get pynvml's ctypes arguments and return NVML's code.
        self.answers: dict[str, Answer] = {}
        self.calls: Counter[str] = Counter()  # how often each function was called
        self._base = base

    def load(self) -> object:
        """As NvmlLibrary."""
        return self

    def __getattr__(self, name: str) -> Any:
        """The function of this name; AttributeError as from a CDLL where there is none."""
        if name == "nvmlErrorString":
            return getattr(self._base, name)
        original = getattr(self._base, name, None)
        if original is None and name not in self.answers:
            raise AttributeError(name)

        def call(*arguments: Any) -> int:
            self.calls[name] += 1
            code: int = self.answers.get(name, original)(*arguments)  # type: ignore[misc]  # one of both is there
            return code

        return call


class Bench:
    """NVML, initialized on a simulated machine and a virtual clock."""

    def __init__(self, machine: Machine, clock: VirtualClock) -> None:
        base: NvmlLibrary = machine.nvml
        self.machine = machine  # the seams
        self.clock = clock  # moves the machine
        self._began = clock.now().monotonic
        self.library = AnsweringLibrary(base.load())  # what pynvml calls
        self.session = Session(self.library)  # the open session
        self.session.open()
        self.session.read_versions()
        self.devices = devices_of(self.session)  # its GPUs
        self.versions: DriverVersions = self.session.versions  # what rounds are told of the driver

    def round(self, gpu: int = 0, at: Moment | None = None) -> GpuRound:
        """A new round of one GPU, now or at another moment."""
        device = self.devices[gpu]
        peers = tuple(peer for peer in self.devices if peer is not device)
        return GpuRound(Inquiry(device), self.versions, peers, self.machine, at or self.clock.now())

    def at(self, seconds: float, gpu: int = 0) -> GpuRound:
        """A new round of one GPU when the scenario has come to a time."""
        return self.after(self._began + seconds - self.clock.now().monotonic, gpu)

    def after(self, seconds: float, gpu: int = 0) -> GpuRound:
        """A new round of one GPU so much later."""
        self.clock.advance(seconds)
        return self.round(gpu)

    def answer(self, function: str, answer: Answer | int) -> None:
        """Replace a function: by a callable, or by one that returns this code."""
        self.library.answers[function] = (lambda *_: answer) if isinstance(answer, int) else answer

    def restore(self, function: str) -> None:
        """Give a function back its own answers."""
        del self.library.answers[function]

    def calls(self, function: str) -> int:
        """How often a function was called so far."""
        return self.library.calls[function]

    @property
    def live_samples(self) -> int:
        """Sample buffers of GPM that the library has given out and not got back."""
        return len(self.library._base._gate._session.samples)  # type: ignore[attr-defined]  # the simulated library's


BenchMaker = Callable[..., Bench]


def says(*values: float) -> Answer:
    """A function that succeeds and writes these numbers through its pointers, in their order."""

    def call(*arguments: Any) -> int:
        outs = [argument._obj for argument in arguments if hasattr(argument, "_obj")]
        for out, value in zip(outs, values, strict=True):
            out.value = value
        return 0

    return call


def fills(**members: float) -> Answer:
    """A function that succeeds and fills the struct behind its last pointer."""

    def call(*arguments: Any) -> int:
        for name, value in members.items():
            setattr(arguments[-1]._obj, name, value)
        return 0

    return call


def shown(samples: Iterable[Sample]) -> list[str]:
    """Samples as a page shows them: ``gpu_power_watts{gpu="0",uuid="GPU-0"} 70.5``."""
    lines = []
    for sample in samples:
        labels = ",".join(f'{name}="{value}"' for name, value in zip(sample.spec.labels, sample.labels, strict=True))
        lines.append(f"{sample.spec.name}{{{labels}}} {sample.value!r}")
    return lines


FIELDS = "nvmlDeviceGetFieldValues"


def fields_say(values: Mapping[int | tuple[int, int], tuple[int, str, float]]) -> Any:
    """nvmlDeviceGetFieldValues: code, member of the value and value by field, or by field and scope; else unknown."""
    types = {"dVal": 0, "uiVal": 1, "ullVal": 3, "sllVal": 4, "siVal": 5}

    def call(_device: Any, count: Any, out: Any) -> int:
        for entry in out._obj[: count.value]:
            told = values.get(entry.fieldId) or values.get((entry.fieldId, entry.scopeId))
            code, member, value = told or (pynvml.NVML_ERROR_NOT_SUPPORTED, "uiVal", 0)
            entry.nvmlReturn, entry.valueType = code, types[member]
            setattr(entry.value, member, value)
        return 0

    return call
