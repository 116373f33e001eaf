"""What must hold on every page, whatever is done to a host: checked second by second."""

from __future__ import annotations

import ctypes
import math
import random
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pynvml
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text
from tests.faults.files import Damaged
from tests.faults.injections import OF_THE_LOOK, OUTPUTS
from tests.faults.page import Page, found, name_of, parsed
from tests.faults.rows_files import DAMAGES, SUBJECTS
from tests.faults.stage import Stage, staged

from gpu_triage.options.config import Config
from gpu_triage.read.gpu.nvlink import LINK_COUNT_FIELD
from gpu_triage_simulator.nvml_session import handle_address
from gpu_triage_simulator.simulated_nvml import SimulatedNvml

if TYPE_CHECKING:
    from typing import Any

    from tests.faults.library import Call
    from tests.faults.random_host import CallFault, Hostile

    Output = ctypes.Structure | ctypes.Array[Any] | ctypes._SimpleCData[Any]

CONFIG = Config(collectors={"pcie_throughput": True}, sample_slow_seconds=5.0)
OPENMETRICS = "application/openmetrics-text;version=1.0.0"

MOST: dict[str, float] = {
    "gpu_power_watts": 10_000,
    "gpu_temperature_celsius": 1_000,
    "gpu_energy_joules_total": 1e13,
    "gpu_memory_total_bytes": 1 << 50,
}
"""What no GPU can have."""

_COUNTERS = ("_total", "_bucket")
_MAY_FALL = re.compile(r"gpu_ecc_(volatile|aggregate)_errors_total")
"""What the board itself clears with a reset, or an administrator: that must show, for alerts go by the level."""

_WHOLE = (1, 3)
"""Types of a field's value: unsigned numbers of 32 and 64 bits."""

_PASSING = re.compile(
    r"gpu_(process_|mig_|finding|incident|reset|xid|bottleneck|compute_bound|verdict|host_|exporter_|error_info|nvlink)"
)
"""Series that come and go on a healthy host too, or remember what was."""


class Broken(AssertionError):
    """Something that must hold does not."""


class Pages:
    def __init__(self) -> None:
        self._parsed_before: set[str] = set()
        self._counters: dict[str, float] = {}
        self._uuids: set[str] = set()

    def check(self, text: str, openmetrics: str) -> Page:
        """The series of a page, which is given in both formats.

        Raises:
            Broken: something does not hold.
        """
        page = parsed(text)
        self._parsers(page, text, openmetrics)
        for series, value in page.items():
            self._value(series, value)
        uuids = {labels["uuid"] for labels, _ in found(page, "gpu_up")}
        self._uuids |= uuids
        most = (96 << 10) + (48 << 10) * len(self._uuids)  # for the host, and for each GPU that was ever seen
        if len(text) > most:
            raise Broken(f"the page has {len(text)} bytes, more than {most}")
        judged = [(labels["gpu"], labels["uuid"]) for labels, _ in found(page, "gpu_bottleneck")]
        if len(judged) > len(set(judged)):
            raise Broken(f"a GPU has two bottlenecks: {sorted(judged)}")
        return page

    def _parsers(self, page: Page, text: str, openmetrics: str) -> None:
        """Prometheus' own parsers, whenever there is a series that they have not read: they are slow."""
        lines = len([line for line in openmetrics.splitlines() if not line.startswith("#")])
        if lines != len(page):
            raise Broken(f"{len(page)} series in the text format, {lines} in OpenMetrics")
        if page.keys() <= self._parsed_before:
            return
        self._parsed_before |= page.keys()
        both = (parse_text(text), parse_openmetrics(openmetrics))  # type: ignore[no-untyped-call]  # as it is shipped
        numbers = [sum(len(family.samples) for family in families) for families in both]
        if any(number != len(page) for number in numbers):
            raise Broken(f"of {len(page)} series, Prometheus' parsers read {numbers}")

    def _value(self, series: str, value: float) -> None:
        name = name_of(series)
        if not math.isfinite(value):
            raise Broken(f"not a finite number: {series} {value}")
        if name.endswith("_ratio") and not 0 <= value <= 1:
            raise Broken(f"not between 0 and 1: {series} {value}")
        if value > MOST.get(name, math.inf):
            raise Broken(f"more than a GPU can have: {series} {value}")
        if name.endswith(_COUNTERS) and name.startswith(("gpu_", "process_")):
            if value < 0:
                raise Broken(f"negative: {series} {value}")
            # A GPU that moved to another index is the same GPU; while nobody knows its UUID it has nothing but that.
            known = series if 'uuid=""' in series else re.sub(r'\bgpu="[^"]*",?', "", series)
            before = self._counters.get(known, 0.0)
            self._counters[known] = value
            if value < before and not _MAY_FALL.match(name):
                raise Broken(f"fell from {before} to {value}: {series}")


def play(host: Hostile) -> None:
    """Play a host from its start to its recovery.

    Raises:
        Broken: something does not hold; says what, and when.
    """
    with staged(host.scenario, CONFIG) as stage:
        began = stage.time.now().monotonic
        stage.library.fault = lambda call: _answer(stage, host, call, stage.time.now().monotonic - began)
        try:
            _Play(stage, host).run()
        except AssertionError as broken:
            raise Broken(f"second {stage.seconds}: {broken}\n\n{host}") from None


class _Play:
    def __init__(self, stage: Stage, host: Hostile) -> None:
        self._stage = stage
        self._host = host
        self._pages = Pages()
        self._uuids = [gpu.uuid for gpu in host.scenario.gpus]
        self._healthy: frozenset[str] = frozenset()

    def run(self) -> None:
        recovered = self._host.over + self._host.recovers_within
        for second in range(recovered + 6 + 1):  # by then every tier has run
            page = self._second()
            if second == FIRST_LOOK < self._host.first_second:
                self._healthy = standing(page)
            if second >= FIRST_LOOK:
                self._untouched(page, second)
            if second >= recovered:
                self._recovered(page)
        missing = sorted(self._healthy - standing(page))
        if missing:
            raise Broken(f"gone for good: {missing[:8]}")

    def _second(self) -> Page:
        stage, now = self._stage, self._stage.seconds + 1
        stage.files.damaged = tuple(
            Damaged(SUBJECTS[fault.subject][1], DAMAGES[fault.damage])
            for fault in self._host.files
            if fault.at <= now < fault.until
        )
        stage.tick()
        stage.exposition.refresh()
        openmetrics = stage.exposition.page(OPENMETRICS, (), gzipped=False).body.decode()
        return self._pages.check(stage.page(), openmetrics)

    def _untouched(self, page: Page, second: int) -> None:
        driver = self._host.driver
        if driver is not None and driver[0] <= second <= driver[1] + self._host.recovers_within:
            return
        for place, uuid in enumerate(self._uuids):
            if place not in self._host.sick:
                check_fresh(page, uuid)

    def _recovered(self, page: Page) -> None:
        for uuid in self._uuids:
            check_fresh(page, uuid)
        for labels, _ in found(page, "gpu_error_info"):
            # Of a UUID that a GPU once gave by mistake it is not known at once that nobody has it.
            if labels["uuid"] in self._uuids:
                raise Broken(f"still in trouble: {labels}")
        if not all(value for _, value in found(page, "gpu_driver_up")):
            raise Broken("the driver is still down")


def check_fresh(page: Page, uuid: str) -> None:
    """Check that a GPU to which nothing was done, or nothing any more, is up and has been read.

    Raises:
        Broken: it is not, or has not.
    """
    up = [value for _, value in found(page, "gpu_up", uuid=uuid)]
    if up != [1.0]:
        errors = [labels["error"] for labels, _ in found(page, "gpu_error_info", uuid=uuid)]
        raise Broken(f"nothing is wrong with GPU {uuid}, and its gpu_up is {up}: {errors}")
    if not found(page, "gpu_power_watts", uuid=uuid):
        raise Broken(f"nothing is wrong with GPU {uuid}, and it has no power")


FIRST_LOOK = 11
"""By this second every tier has run."""


def standing(page: Page) -> frozenset[str]:
    standing = (series for series in page if not _PASSING.match(series))
    return frozenset(re.sub(r'\b(peer_)?gpu="[^"]*",?', "", series) for series in standing)


def _answer(stage: Stage, host: Hostile, call: Call, now: float) -> int:
    gpu = _place(stage, call)
    for fault in host.calls:
        if fault.meets(call.function, gpu, now):
            code = _faulty(stage, fault, call, now)
            if code is not None:
                return code
    return call.proceed()


def _faulty(stage: Stage, fault: CallFault, call: Call, now: float) -> int | None:
    """The code of a call; None where others may still have their say."""
    if fault.kind == "hang":
        stage.park(fault.until - now)
    elif fault.kind == "slow":
        stage.park(fault.amount)
    elif fault.kind == "error":
        return int(fault.amount)
    elif call.function not in OF_THE_LOOK:
        code = call.proceed()
        if code == pynvml.NVML_SUCCESS:
            for target in _outputs(call):
                (_multiply if fault.kind in ("fewer", "share") else _overwrite)(target, fault)
        return code
    return None


def _outputs(call: Call) -> Iterator[Output]:
    for argument in call.arguments[1:]:
        target = getattr(argument, "_obj", argument)
        if isinstance(target, OUTPUTS):
            yield target


def _multiply(target: Output, fault: CallFault) -> None:
    """Multiply the number of links in an answer of nvmlDeviceGetFieldValues, or its other whole numbers."""
    for entry in target if isinstance(target, ctypes.Array) else ():
        meant = (entry.fieldId == LINK_COUNT_FIELD) == (fault.kind == "fewer")
        if meant and entry.nvmlReturn == pynvml.NVML_SUCCESS and entry.valueType in _WHOLE:
            entry.value.ullVal = int(entry.value.ullVal * fault.amount)


def _overwrite(target: Output, fault: CallFault) -> None:
    size = ctypes.sizeof(target)
    if fault.kind == "bits":
        raw = random.Random(fault.amount).randbytes(size)
    else:
        width = min(size, 8 if size % 8 == 0 else 4)
        number = int(fault.amount) & ((1 << 8 * width) - 1)
        raw = (number.to_bytes(width, "little") * (size // width + 1))[:size]
    ctypes.memmove(ctypes.addressof(target), raw, size)


def _place(stage: Stage, call: Call) -> int | None:
    """Where on the bus the GPU is that a call is about: numbers move when one comes or goes."""
    nvml = stage.simulated.machine.nvml
    assert isinstance(nvml, SimulatedNvml)
    session = nvml.session
    if call.gpu is None:
        return None
    if call.function == "nvmlDeviceGetHandleByIndex_v2":
        return session.devices[call.gpu].state.index if call.gpu < len(session.devices) else None
    device = session.find(handle_address(call.arguments[0]))
    return None if device is None else device.state.index
