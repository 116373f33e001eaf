"""Every alert as a notification, as it would arrive: a host for each text, written by hand, rendered by promtool.

Those of alerts that relay findings are made from the table of findings.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

import yaml
from tests.promql.promtool import Alert
from tests.rules.exhibit_series import INSTANCE, NEIGHBOR, NOW, RECENTLY, lately, many, rack, scraped, steady
from tests.rules.handwritten import Series, counter, gpu, host, merged, over, play
from tests.rules.rulefile import BMC, alert_files

from gpu_triage.alerting.shipped import shipped_sources
from gpu_triage.judge.findings.table import BY_CODE, Unit

EVALUATION_SECONDS: Final = 120
NOTIFICATIONS: Final = Path(__file__).with_name("notifications.txt")

UUID, ADDRESS, SERIAL = "GPU-f7f43461-7b25-6178-f8ca-e6d7745e22fb", "0000:5d:00.0", "1650924019158"
"""Of GPU 3 of this host, the one that is at fault."""
MODEL: Final = "NVIDIA H100 80GB HBM3"

Owners = Mapping[str, Mapping[str, str]]
"""Labels of processes that hold the GPU, by what the alert calls their owners."""

POD: Final[Owners] = {"pod ml/train-0": {"workload_namespace": "ml", "workload_pod": "train-0", "user": "root"}}
SLURM: Final[Owners] = {"Slurm job 4711 of alice": {"slurm_job_id": "4711", "user": "alice"}}
USER: Final[Owners] = {"user bob": {"user": "bob"}}
FIVE: Final[Owners] = {
    "Slurm job 4711 of alice, pod inference/llm-0": {"slurm_job_id": "4711", "user": "alice"},
    **{
        text: {"workload_namespace": "inference", "workload_pod": f"llm-{number}", "user": "root"}
        for number, text in enumerate(("pod inference/llm-0", "pod inference/llm-1", " and others"))
    },
    "others": {"user": "bob"},
}


@dataclass(frozen=True, slots=True)
class Exhibit:
    """A host on which an alert fires."""

    alert: str  # its key (see `gpu_triage.alerting.rule_source.Alert.key`)
    series: Series  # what is scraped there
    what: str = ""  # tells exhibits of one alert apart; "" for the one that docs/alerts.md shows
    owners: tuple[str, ...] = ()  # what the text must call those who are hit
    alone: bool = False  # whether it is about no cluster, so that nothing else may be scraped
    code: str = ""  # the label of the alert that is shown, where hosts of several exhibits have it

    @property
    def name(self) -> str:
        return f"{self.alert}.{self.what}" if self.what else self.alert

    @property
    def case(self) -> str:
        """Of `tests.rules.handwritten.play`."""
        return "" if self.alone else self.name


def of_gpu(metric: str, values: Sequence[float], **labels: str) -> Series:
    return gpu(metric, values, UUID, gpu="3", instance=INSTANCE, **labels)


def of_host(metric: str, values: Sequence[float], **labels: str) -> Series:
    return host(metric, values, INSTANCE, **labels)


def held(alert: str, *series: Series, what: str = "", owners: Owners = MappingProxyType(POD)) -> Exhibit:
    known = of_gpu("gpu_info", steady(1), name=MODEL, pci_bus_id=ADDRESS, serial=SERIAL)
    processes = (
        # Prometheus answers with the older series first, so it stands later, too.
        of_gpu("gpu_process_owner_info", over((math.nan, 5 * number), (1, NOW + 1)), **labels)
        for number, labels in enumerate(owners.values())
    )
    return Exhibit(alert, merged(*series, known, *processes), what, tuple(owners))


def of_slot(metric: str, values: Sequence[float], **labels: str) -> Series:
    return gpu(metric, values, "", gpu="", instance=INSTANCE, pci_bus_id=ADDRESS, **labels)


def found(code: str, about: Callable[..., Series] = of_gpu, began: float | None = 12) -> Series:
    """A finding that was confirmed half an hour ago, with a value where it has one.

    Its condition began at a minute, yesterday before 0; None is of an exporter that tells neither that nor a detail.
    """
    check = BY_CODE[code]
    facts = {"code": code, "severity": check.severity.value, "action": check.action.value}
    series, name = (of_host, "gpu_host_finding") if check.of_host else (about, "gpu_finding")
    value = _VALUES.get(check.measure.unit, 3.0) if check.measure else math.nan
    since = math.nan if began is None else 60 * began
    return merged(
        series(name, lately(2, 1), **facts),
        series(f"{name}_value", steady(value), code=code),
        series(f"{name}_since_timestamp_seconds", steady(since), detail=DETAILS.get(code, ""), **facts),
    )


DETAILS: Final[Mapping[str, str]] = yaml.safe_load(Path(__file__).with_name("details.yml").read_text("utf-8"))
"""What a finding of the exhibits is about, by its code."""

_VALUES: Final[Mapping[Unit, float]] = {
    Unit.RATIO: 0.34,
    Unit.SECONDS: 420.0,
    Unit.WATTS: 300.0,
    Unit.HERTZ: 1.41e9,
    Unit.LANES: 8.0,
    Unit.BYTES: 2.0**34,
    Unit.BYTES_PER_SECOND: 2.0**22,
}


def collector(name: str, metric: str, values: Sequence[float]) -> Series:
    return of_host(f"gpu_exporter_collector_{metric}", values, collector=name)


def clock(seconds: float) -> Series:
    values = [60.0 * minute + (seconds if minute > RECENTLY else 0.0) for minute in range(NOW + 1)]
    return of_host("gpu_exporter_time_seconds", values)


def drifting(number: int, version: str) -> Series:
    instance = f"gpu-drift-{number}:9836"
    driver = host("gpu_driver_info", over((math.nan, 12), (1, NOW - 11)), instance, driver_version=version)
    return merged(driver, gpu("gpu_info", steady(1), f"GPU-drift-{number}", instance=instance, name=MODEL))


def stepping(a_minute: Sequence[float], instance: str = INSTANCE, **labels: str) -> Series:
    return host("gpu_job_steps_total", counter(a_minute), instance, job_name="bert", owner="4711", **labels)


def working(number: int, megahertz: float, *, instance: str = INSTANCE, bottleneck: int = 14) -> Series:
    """A busy GPU of Slurm job 4711."""
    uuid = UUID if number == 3 else f"GPU-{instance}-{number}"
    own = {"instance": instance, "gpu": str(number)}
    owner = {"slurm_job_id": "4711", "user": "alice", "account": "physics"}
    known = {"name": MODEL, **({"pci_bus_id": ADDRESS, "serial": SERIAL} if number == 3 else {}), **own}
    return merged(
        gpu("gpu_up", steady(1), uuid, **own),
        gpu("gpu_info", steady(1), uuid, **known),
        gpu("gpu_clock_hertz", steady(megahertz * 1e6), uuid, clock="sm", **own),
        gpu("gpu_busy_seconds_total", counter(steady(58.0)), uuid, **own),
        gpu("gpu_bottleneck", steady(bottleneck), uuid, **own),
        gpu("gpu_allocated", steady(1), uuid, **owner, **own),
    )


def clocks(*megahertz: float) -> Series:
    """GPUs 3, 4 … of the host, whose job runs on them."""
    return merged(*(working(number, each) for number, each in enumerate(megahertz, 3)))


def of_two_hosts(megahertz: float) -> Series:
    """A host whose GPUs have this clock, and another one."""
    other = (working(number, 1755, instance="gpu-08:9836") for number in (1, 2))
    return merged(*(working(number, megahertz) for number in (1, 2)), *other)


def locked(number: int) -> Series:
    own = {"reason": "applications_clocks", "instance": INSTANCE, "gpu": str(number)}
    values = [60.0 * minute for minute in range(NOW + 1)]
    return gpu("gpu_throttle_seconds_total", values, f"GPU-{INSTANCE}-{number}", **own)


_AGAIN: Final = [1.0 if minute < 20 or minute % 6 == 0 else 0.0 for minute in range(NOW + 1)]
_OVERDUE: Final = [60.0 * (minute - RECENTLY) if minute > RECENTLY else math.nan for minute in range(NOW + 1)]
_JOB, _OF_ALICE = ("Slurm job 4711",), ("Slurm job 4711 of alice",)
BY_HAND: Final = (
    held("GpuXidCritical", found("xid.79"), owners=SLURM),
    held("GpuXidCritical", found("xid.64"), found("xid.48"), what="two codes"),
    held("GpuXidCritical", found("xid.74"), what="nvlink", owners=FIVE),
    held("GpuXidCritical", found("xid.79", of_slot), what="slot", owners={}),
    held("GpuHostFilesystemReadOnly", found("storage.read_only", began=None), what="older exporter"),
    held("GpuLost", found("gpu.lost", began=-192), what="since yesterday"),
    held("GpuStarved", found("storage.starved"), found("storage.not_responding"), what="dead server"),
    held("GpuXidContained", found("xid.94")),
    held("GpuXidContained", found("xid.nonfatal"), what="nonfatal", owners=USER),
    held("GpuXidApplication", found("xid.13"), found("xid.31"), owners=USER),
    held(
        "GpuEccUncorrected",
        found("ecc.uncorrected"),
        of_gpu("gpu_flight_recording_timestamp_seconds", steady(1), file="20260314T031207Z-gpu-3-ecc.tar.gz"),
        what="recorded",
    ),
    held(
        "GpuBaselineDrift", found("baseline.drift"), of_gpu("gpu_baseline_mismatch", steady(1), field="vbios_version")
    ),
    Exhibit("GpuExportersDown", rack(20, 5)),
    Exhibit("GpuInFleetIncident.down", rack(20, 5), code="host.down"),
    Exhibit("GpuInFleetIncident", many("thermal.hw"), code="thermal.hw"),
    Exhibit("GpuFleetHwThermalThrottling", many("thermal.hw")),
    Exhibit("GpuFleetSwThermalThrottling", many("thermal.sw")),
    Exhibit("GpuFleetPowerBrake", many("power.brake")),
    Exhibit("GpuFleetDriverUnavailable", many("driver.unavailable")),
    Exhibit("GpuFleetStorageDown", many("storage.not_responding")),
    Exhibit("GpuFleetFabricUnhealthy", many("fabric.unhealthy")),
    Exhibit("GpuFleetNetworkDown", many("network.port_down")),
    Exhibit("GpuExporterDown", merged(scraped(lately(0, 1)), NEIGHBOR)),
    Exhibit("GpuExporterDown", merged(scraped(_AGAIN), NEIGHBOR), "restarting"),
    Exhibit("GpuExporterJudgeFailing", of_host("gpu_exporter_collector_success", lately(0, 1), collector="judge")),
    Exhibit("GpuExporterXidDeaf", of_host("gpu_exporter_xid_source_up", lately(0, 1), source="kmsg")),
    Exhibit(
        "GpuExporterCollectorFailing",
        merged(
            collector("host_nfs", "success", lately(0, 1)),
            of_host("gpu_exporter_errors_total", counter(lately(12)), collector="host_nfs", error="permission_denied"),
        ),
    ),
    Exhibit("GpuExporterStale", collector("ecc", "stale_seconds", _OVERDUE)),
    Exhibit("GpuHostClockWrong", clock(-4200.0)),
    Exhibit("GpuHostClockWrong", clock(7200.0), "ahead"),
    Exhibit("GpuExporterWebConfigReloadFailed", of_host("gpu_exporter_web_config_reload_success", lately(0, 1))),
    Exhibit("GpuExporterJudgeReloadFailed", of_host("gpu_exporter_judge_settings_reload_success", lately(0, 1))),
    Exhibit("GpuExporterSimulated", of_host("gpu_exporter_simulated", lately(1))),
    Exhibit("GpuDriverVersionDrift", merged(drifting(1, "570.172.08"), drifting(2, "580.95.05"))),
    Exhibit(
        "GpuStragglerAcrossHosts",
        merged(
            clocks(1300, 1755, 1755, 1755),
            of_gpu("gpu_finding", steady(1), code="pcie.width", severity="critical", action="inspect_hardware"),
        ),
        owners=_OF_ALICE,
    ),
    Exhibit("GpuStragglerAcrossHosts", of_two_hosts(1300), "host", _OF_ALICE),
    Exhibit("GpuStragglerAcrossHosts.policy", merged(of_two_hosts(1300), locked(1), locked(2)), owners=_OF_ALICE),
    Exhibit(
        "GpuStragglerAcrossHosts.pace",
        merged(*(stepping(steady(40 if rank == 2 else 60), rank=str(rank)) for rank in range(4))),
        owners=_JOB,
    ),
    Exhibit(
        "GpuJobSlow",
        merged(
            stepping(lately(84, 120)),
            working(3, 1755),
            of_gpu("gpu_bottleneck_seconds_total", counter(steady(31)), **{"class": "storage"}),
        ),
        owners=_JOB,
    ),
    Exhibit(
        "GpuJobHung",
        merged(
            working(3, 1755, bottleneck=15),
            of_gpu("gpu_finding", lately(1, math.nan), code="work.hung", severity="warning", action="fix_job"),
            of_gpu("gpu_busy_seconds_total", counter(lately(0, 58))),
            *(working(number, 1755, instance="gpu-08:9836", bottleneck=13) for number in (1, 2)),
        ),
        owners=_JOB,
    ),
    Exhibit(
        "GpuHostChassisFault",
        merged(
            scraped(steady(1)),
            host("ipmi_sensor_state", lately(2), "gpu-07:9290", name="PS2 Status", type="Power Supply"),
        ),
    ),
    Exhibit("GpuExporterAbsent", host("up", steady(1), "prometheus:9090", job="prometheus"), alone=True),
    Exhibit("GpuTriageWatchdog", scraped(steady(1)), alone=True),
)
"""Of the alerts whose rule or text is written by hand."""


def every_exhibit() -> tuple[Exhibit, ...]:
    """Of every alert that is on by default, one for each text."""
    by_hand = {exhibit.alert for exhibit in BY_HAND if not exhibit.what}
    relays = (
        held(alert.key, found(code), what="" if code == alert.codes[0] else code, owners=SLURM)
        for source in shipped_sources()
        for alert in source.alerts
        if alert.enabled and alert.key not in by_hand
        for code in alert.codes
    )
    return (*BY_HAND, *relays)


_CLUSTER: Final = re.compile(r',cluster="[^"]*"')
"""Of an exhibit, in a query for its hosts."""


def text_of(alert: Alert) -> str:
    """What Alertmanager receives: one line for each part, none of them wrapped."""
    labels = (
        f'{name}="{value}"' if " " in value else f"{name}={value}"
        for name, value in sorted(alert.labels.items())
        if name != "job"
    )
    shown = {name: _CLUSTER.sub("", text) for name, text in alert.annotations.items()}
    parts = {
        **{name: shown[name] for name in ("summary", "description")},
        "labels": " ".join(labels),
        "runbook_url": shown["runbook_url"]
        if "instance" in alert.labels
        # An alert about a fleet links to any exporter.
        else re.sub(r"(?<=^http://)[^/]+", INSTANCE, shown["runbook_url"]),
        "dashboard_uid": shown["dashboard_uid"],
    }
    return "".join(f"{name}: {value}\n" for name, value in parts.items())


def notifications(promtool: Path, directory: Path) -> Mapping[str, tuple[Alert, ...]]:
    """What is sent for each exhibit, by its name: exactly one, where all is well."""
    sources = {alert.key: alert for source in shipped_sources() for alert in source.alerts}
    every, sent = every_exhibit(), {}
    for exhibits in ([each for each in every if not each.alone], *([each] for each in every if each.alone)):
        played = play(
            promtool,
            directory,
            (BMC, *alert_files()),
            {each.case: each.series for each in exhibits},
            minutes=0,
            shown={sources[each.alert].name: NOW for each in exhibits},
            evaluation_seconds=EVALUATION_SECONDS,
        )
        for each in exhibits:
            source = sources[each.alert]
            shown = played[each.case].shown[source.name]
            # Of many hosts with the one alert, only one is shown.
            place = {"instance": INSTANCE, "code": each.code} if source.name == "GpuInFleetIncident" else {}
            own = {"severity": source.severity, "action": source.action, **place}
            sent[each.name] = tuple(alert for alert in shown if own.items() <= alert.labels.items())
    return sent


def read_notifications() -> dict[str, dict[str, str]]:
    """The reviewed notifications, by exhibit: their lines by name."""
    sections = NOTIFICATIONS.read_text(encoding="utf-8").split("## ")[1:]
    parted = (section.partition("\n") for section in sections)
    return {name: dict(line.split(": ", 1) for line in text.splitlines() if ": " in line) for name, _, text in parted}
