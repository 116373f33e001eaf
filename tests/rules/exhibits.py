"""Hosts on which one alert fires, written by hand, a sample a minute: what `tests.rules.gallery` renders.

Those of alerts that relay a finding are made from the table of findings.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from tests.rules.handwritten import Series, counter, gpu, host

from gpu_triage.alerting.rule_source import Alert
from gpu_triage.alerting.shipped import shipped_sources
from gpu_triage.diagnosis.findings.check import Unit
from gpu_triage.diagnosis.findings.table import BY_CODE, Check

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
    Owner(
        {"slurm_job_id": "4711", "user": "alice"}, "Slurm job 4711 of alice, pod inference/llm-0, pod inference/llm-1"
    ),
    *(
        Owner({"workload_namespace": "inference", "workload_pod": f"llm-{n}", "user": "root"}, " and others")
        for n in range(3)
    ),
    Owner({"user": "bob"}, " and others"),
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


def held(alert: str, *series: Series, what: str = "", owners: Sequence[Owner] = (POD,)) -> Exhibit:
    """An alert about `BOARD` or its host, which somebody holds."""
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


def found(code: str, *, of_slot: bool = False) -> Series:
    """A finding that was confirmed half an hour ago, with a value where it has one."""
    check = BY_CODE[code]
    labels = {"code": code}
    facts = {**labels, "severity": check.severity.value, "action": check.action.value}
    value = _VALUES.get(check.measure.unit, 3.0) if check.measure else None
    if check.of_host or of_slot:
        measured = {} if value is None else host("gpu_host_finding_value", steady(value), **labels)
        return merged(host("gpu_host_finding", lately(2, 1), **facts), measured)
    of_board = {} if value is None else BOARD.series("gpu_finding_value", steady(value), **labels)
    return merged(BOARD.series("gpu_finding", lately(2, 1), **facts), of_board)


_VALUES: Final[Mapping[Unit, float]] = {
    Unit.RATIO: 0.34,
    Unit.SECONDS: 420.0,
    Unit.WATTS: 300.0,
    Unit.HERTZ: 1.41e9,
    Unit.LANES: 8.0,
    Unit.BYTES: 2.0**34,
    Unit.BYTES_PER_SECOND: 2.0**22,
}


def scraped(values: Sequence[float], instance: str = "a", *, first: int = 90, **labels: str) -> Series:
    """Whether a target could be scraped; what our exporter says of itself goes with it, from `first` on."""
    said = [1.0 if value == 1 and minute >= first else math.nan for minute, value in enumerate(values)]
    findings = host("gpu_host_findings", [value - 1 for value in said], instance, **labels)
    return {
        **host("up", values, instance, **labels),
        **host("gpu_exporter_build_info", said, instance, **labels),
        **findings,
    }


def rack(hosts: int, down: int) -> Series:
    """A rack of which some hosts are down; links lead to the exporter that is there for longest."""
    each = (
        scraped(
            steady(1) if number <= hosts - down else lately(0, 1),
            f"gpu-rack7-{number:02}:9836",
            first=5 * number,
            job=RACK,
        )
        for number in range(1, hosts + 1)
    )
    return merged(*each)


def collector(name: str, metric: str, values: Sequence[float]) -> Series:
    return host(f"gpu_exporter_collector_{metric}", values, collector=name)


def wrong_clock(seconds: float) -> Series:
    return host("gpu_exporter_time_seconds", [60.0 * minute + seconds for minute in range(NOW + 1)])


def drifting(number: int, version: str) -> Series:
    """A host of a model that has this driver."""
    labels = {"instance": f"gpu-drift-{number}:9836", "name": MODEL}
    driver = host("gpu_driver_info", steady(1), f"gpu-drift-{number}:9836", driver_version=version)
    return merged(driver, gpu("gpu_info", steady(1), f"GPU-drift-{number}", **labels))


RACK: Final = "gpu-triage-rack-7"
"""Hosts of a job of their own: the others are down for other reasons."""
RESTARTING: Final = [1.0 if minute < RECENTLY - 30 or minute % 6 == 0 else 0.0 for minute in range(NOW + 1)]
OVERDUE: Final = [math.nan] * (RECENTLY + 2) + [60.0 * (minute - RECENTLY) for minute in range(RECENTLY + 2, NOW + 1)]
RECORDED: Final = BOARD.series(
    "gpu_flight_recording_timestamp_seconds", steady(1), file="20260314T031207Z-gpu-3-ecc.tar.gz"
)
JUDGE: Final = "gpu-triage-blind"
OLD: Final = "gpu-triage-old"

BY_HAND: Final = (
    held("GpuXidCritical", found("xid.79"), owners=(SLURM,)),
    held("GpuXidCritical", found("xid.64"), found("xid.48"), what="two codes"),
    held("GpuXidCritical", found("xid.74"), what="nvlink", owners=FIVE),
    held("GpuXidCritical", found("xid.79", of_slot=True), what="slot"),
    held("GpuXidContained", found("xid.94")),
    held("GpuXidContained", found("xid.nonfatal"), what="nonfatal", owners=(USER,)),
    held("GpuXidApplication", found("xid.13"), found("xid.31"), owners=(USER,)),
    replace(held("GpuEccUncorrected", found("ecc.uncorrected"), RECORDED, what="recorded"), cluster="east"),
    held(
        "GpuBaselineDrift",
        found("baseline.drift"),
        BOARD.series("gpu_baseline_mismatch", steady(1), field="vbios_version"),
        BOARD.series("gpu_baseline_mismatch", steady(0), field="pcie_width"),
    ),
    Exhibit("GpuExportersDown", "", rack(20, 5)),
    Exhibit("GpuExporterDown", "", scraped(lately(0, 1))),
    Exhibit("GpuExporterDown", "restarting", scraped(RESTARTING)),
    Exhibit("GpuExporterAbsent", "", host("up", steady(1), "prometheus:9090", job="prometheus"), alone=True),
    Exhibit(
        "GpuExporterJudgeFailing",
        "",
        host("gpu_exporter_collector_success", lately(0, 1), job=JUDGE, collector="judge"),
    ),
    Exhibit("GpuExporterTooOld", "", host("gpu_exporter_build_info", steady(1), job=OLD)),
    Exhibit(
        "GpuExporterXidDeaf",
        "",
        merged(*(of_its_host("gpu_exporter_xid_source_up", 0, source=source) for source in ("kmsg", "nvml"))),
    ),
    Exhibit("GpuExporterCollectorFailing", "", collector("host_nfs", "success", lately(0, 1))),
    Exhibit("GpuExporterStale", "", collector("ecc", "stale_seconds", OVERDUE)),
    Exhibit("GpuHostClockWrong", "", wrong_clock(-4200.0)),
    Exhibit("GpuHostClockWrong", "ahead", wrong_clock(7200.0)),
    Exhibit("GpuExporterWebConfigReloadFailed", "", host("gpu_exporter_web_config_reload_success", lately(0, 1))),
    Exhibit("GpuExporterSimulated", "", of_its_host("gpu_exporter_simulated", 1)),
    Exhibit("GpuTriageWatchdog", "", {}),
    Exhibit("GpuDriverVersionDrift", "", merged(drifting(1, "570.172.08"), drifting(2, "580.95.05"))),
)
"""Of the alerts whose rule or text is written by hand."""


def relayed(alert: Alert) -> tuple[Exhibit, ...]:
    """One for each text of an alert that relays findings."""
    checks: tuple[Check, ...] = tuple(BY_CODE[code] for code in alert.codes)
    return tuple(
        held(alert.key, found(check.code), what="" if check is checks[0] else check.code, owners=(SLURM,))
        for check in checks
    )


def every_exhibit() -> tuple[Exhibit, ...]:
    """Of every alert."""
    alerts = [alert for source in shipped_sources() for alert in source.alerts if alert.enabled]
    by_hand = {exhibit.alert for exhibit in BY_HAND if not exhibit.what}
    return (*BY_HAND, *(exhibit for alert in alerts if alert.key not in by_hand for exhibit in relayed(alert)))
