"""Hosts on which one alert fires, written by hand, a sample a minute: what `tests.rules.gallery` renders."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tests.rules.handwritten import Series, counter, gpu, host

NOW: Final = 150
"""Minute at which every alert is rendered: the longest looks back for two hours."""
RECENTLY: Final = NOW - 30
"""Minute at which what has a beginning begins."""

MODEL: Final = "NVIDIA H100 80GB HBM3"


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose process holds a GPU.

    Attributes:
        labels: of gpu_process_info.
        words: what the alert calls it.
    """

    labels: Mapping[str, str]
    words: str


POD: Final = Owner({"workload_namespace": "ml", "workload_pod": "train-0", "user": "root"}, "pod ml/train-0")
SLURM: Final = Owner({"slurm_job_id": "4711", "user": "alice"}, "Slurm job 4711 of alice")
USER: Final = Owner({"user": "bob"}, "user bob")
FIVE: Final = (
    *(
        Owner({"workload_namespace": "inference", "workload_pod": f"llm-{n}", "user": "root"}, f"pod inference/llm-{n}")
        for n in range(3)
    ),
    Owner({"slurm_job_id": "4711", "user": "alice"}, "and 2 more"),
    Owner({"user": "bob"}, "and 2 more"),
)


@dataclass(frozen=True, slots=True)
class Board:
    """A GPU of a host."""

    number: int
    uuid: str
    address: str
    serial: str
    model: str = MODEL

    def series(self, metric: str, values: Sequence[float], **labels: str) -> Series:
        """A series of this GPU."""
        return gpu(metric, values, self.uuid, gpu=str(self.number), **labels)

    def identity(self) -> Series:
        """What is known of it: address, serial number, model."""
        return self.series("gpu_info", steady(1), name=self.model, pci_bus_id=self.address, serial=self.serial)

    def held_by(self, *owners: Owner) -> Series:
        """A process of each of these owners."""
        each = (
            self.series("gpu_process_info", from_minute(5 * number), pid=str(31337 + number), **owner.labels)
            for number, owner in enumerate(owners)
        )
        return merged(*each)


BOARDS: Final = (
    Board(0, "GPU-7c963d6b-0fa3-bd71-22a1-4e40dbd03047", "0000:19:00.0", "1650924017731"),
    Board(1, "GPU-5cf2f180-be81-b6eb-2ba5-343d3f7c76e5", "0000:3b:00.0", "1650924018244"),
    Board(2, "GPU-23538067-90a0-c6d4-e2ab-8ab1de26e88b", "0000:4c:00.0", "1650924016902"),
    Board(3, "GPU-f7f43461-7b25-6178-f8ca-e6d7745e22fb", "0000:5d:00.0", "1650924019158"),
)
BOARD: Final = BOARDS[3]
"""The one that is at fault, unless an exhibit says otherwise."""


@dataclass(frozen=True, slots=True)
class Exhibit:
    """A host on which an alert fires.

    Attributes:
        alert: its key (see `gpu_triage.alerting.rule_source.Alert.key`).
        what: tells exhibits of one alert apart; "" for the one that shows it.
        series: those of its host, called ``a`` as in `tests.rules.handwritten`.
        owners: what the text must call those who are hit.
        cluster: of the host; "" where there is none.
        alone: whether it fires only where nothing else is scraped.
    """

    alert: str
    what: str
    series: Series = field(repr=False)
    owners: tuple[str, ...] = ()
    cluster: str = ""
    alone: bool = False

    @property
    def name(self) -> str:
        """Of its golden file, without the ending."""
        return f"{self.alert}.{self.what}" if self.what else self.alert


def of_gpu(alert: str, *series: Series, what: str = "", owners: Sequence[Owner] = (POD,)) -> Exhibit:
    """An alert about `BOARD`, which somebody holds."""
    known = (BOARD.identity(), BOARD.held_by(*owners))
    return Exhibit(alert, what, merged(*series, *known), tuple(owner.words for owner in owners))


def of_host(alert: str, *series: Series, what: str = "", owners: Sequence[Owner] = ()) -> Exhibit:
    """An alert about a host, and those who hold its GPUs where they are hit."""
    known = (BOARD.identity(), BOARD.held_by(*owners))
    return Exhibit(alert, what, merged(*series, *known), tuple(owner.words for owner in owners))


def merged(*parts: Series) -> Series:
    """Several series as one mapping."""
    return {key: values for part in parts for key, values in part.items()}


def steady(value: float) -> list[float]:
    """The same value all the time."""
    return [float(value)] * (NOW + 1)


def from_minute(first: int) -> list[float]:
    """A series of ones that begins later: Prometheus answers with the older series first, so it is told later, too."""
    return [math.nan] * first + [1.0] * (NOW + 1 - first)


def lately(value: float, before: float = 0) -> list[float]:
    """A value that changed half an hour ago."""
    return [float(before)] * RECENTLY + [float(value)] * (NOW + 1 - RECENTLY)


def growing(a_minute: float) -> list[float]:
    """A counter."""
    return counter([a_minute] * (NOW + 1))


def of_its_host(metric: str, value: float, **labels: str) -> Series:
    """A steady series of the host."""
    return host(metric, steady(value), **labels)
