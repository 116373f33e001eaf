"""The generic rule: an alert fires while its finding is confirmed. Series by hand."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from tests.conftest import RequiresTool
from tests.rules.handwritten import Series, gpu, host
from tests.rules.promtool import Alert, Run, ask
from tests.rules.rulefile import read_rules, rule_files

NAN = math.nan
MINUTES = 60
HOT = {"code": "thermal.hw", "severity": "critical", "action": "inspect_hardware"}
STEPS = {15: 4, 30: 2, 60: 1}
"""Samples a minute by scrape interval, in seconds."""


class Server:
    """A Prometheus with the shipped rules."""

    def __init__(self, promtool: Path, directory: Path) -> None:
        self._promtool = promtool
        self._directory = directory

    def firing(
        self, alert: str, series: Series, *, step_seconds: int = 60, minutes: int = MINUTES
    ) -> Mapping[frozenset[tuple[str, str]], frozenset[int]]:
        """Minutes at which each alert of this name fires, by its labels."""
        questions = tuple((f'ALERTS{{alertname="{alert}", alertstate="firing"}}', m * 60.0) for m in range(minutes))
        run = Run(rule_files(), _groups(), step_seconds, series, questions, evaluation_seconds=30)
        found: dict[frozenset[tuple[str, str]], set[int]] = {}
        for (_, at), samples in ask(self._promtool, run, self._directory).samples.items():
            for sample in samples:
                found.setdefault(frozenset(sample.labels.items()), set()).add(round(at / 60))
        return {labels: frozenset(at) for labels, at in found.items()}

    def told(self, alert: str, series: Series, minute: int) -> tuple[Alert, ...]:
        """The alerts of this name with their texts."""
        asked = (alert, minute * 60.0)
        run = Run(rule_files(), _groups(), 60, series, alerts=(asked,), evaluation_seconds=30)
        return ask(self._promtool, run, self._directory).alerts[asked]


def _groups() -> tuple[str, ...]:
    return tuple(dict.fromkeys(rule.group for rule in read_rules(rule_files())))


@pytest.fixture
def server(requires_tool: RequiresTool, tmp_path: Path) -> Server:
    return Server(requires_tool("promtool"), tmp_path)


def over(*spans: tuple[float, int], a_minute: int = 1) -> list[float]:
    """Values, each for so many minutes; NaN where nobody could scrape."""
    return [value for value, minutes in spans for _ in range(minutes * a_minute)]


def merged(*parts: Series) -> dict[str, Sequence[float]]:
    return {key: values for part in parts for key, values in part.items()}


@pytest.mark.parametrize("step_seconds", STEPS)
def test_an_alert_fires_while_its_finding_is_confirmed_and_no_longer(server: Server, step_seconds: int) -> None:
    states = over((NAN, 5), (1, 10), (2, 20), (0, 20), (NAN, 5), a_minute=STEPS[step_seconds])
    (minutes,) = server.firing(
        "GpuHwThermalThrottling", gpu("gpu_finding", states, **HOT), step_seconds=step_seconds
    ).values()
    assert minutes in (frozenset(range(15, 35)), frozenset(range(16, 36)))


@pytest.mark.parametrize(("gap", "alerts"), [(13, 1), (14, 1), (20, 2)])
def test_a_gap_of_14_minutes_ends_no_alert(server: Server, gap: int, alerts: int) -> None:
    states = over((2, 10), (NAN, gap), (2, 20))
    (minutes,) = server.firing("GpuHwThermalThrottling", gpu("gpu_finding", states, **HOT)).values()
    spans = sum(minute - 1 not in minutes for minute in minutes)
    assert spans == alerts


@pytest.mark.parametrize("step_seconds", STEPS)
def test_scrapes_that_fail_now_and_then_change_nothing(server: Server, step_seconds: int) -> None:
    states = [NAN if n % 7 == 3 else 2.0 for n in range(MINUTES * STEPS[step_seconds])]
    found = server.firing("GpuHwThermalThrottling", gpu("gpu_finding", states, **HOT), step_seconds=step_seconds)
    assert list(found.values()) == [frozenset(range(MINUTES))]


def test_another_pod_of_the_exporter_is_the_same_incident(server: Server) -> None:
    old = gpu("gpu_finding", over((2, 30), (NAN, 30)), pod="exporter-a", **HOT)
    new = gpu("gpu_finding", over((NAN, 31), (2, 29)), pod="exporter-b", **HOT)
    assert list(server.firing("GpuHwThermalThrottling", merged(old, new)).values()) == [frozenset(range(MINUTES))]


def test_a_gpu_that_gets_another_number_at_a_boot_is_the_same_incident_and_is_called_by_the_new_one(
    server: Server,
) -> None:
    series = merged(
        gpu("gpu_finding", over((2, 20), (NAN, 40)), gpu="3", **HOT),
        gpu("gpu_finding", over((NAN, 30), (2, 30)), gpu="2", **HOT),
        gpu("gpu_info", over((1, 20), (NAN, 40)), gpu="3", pci_bus_id="0000:65:00.0", serial="1", name="X"),
        gpu("gpu_info", over((NAN, 30), (1, 30)), gpu="2", pci_bus_id="0000:65:00.0", serial="1", name="X"),
    )
    assert list(server.firing("GpuHwThermalThrottling", series).values()) == [frozenset(range(MINUTES))]
    (before,), (after,) = (server.told("GpuHwThermalThrottling", series, minute) for minute in (15, 40))
    assert before.labels == after.labels
    assert "a GPU 3:" in before.annotations["summary"]
    assert "a GPU 2:" in after.annotations["summary"]
    assert after.annotations["description"].startswith("GPU 2 of a (PCI 0000:65:00.0, serial 1): ")


def test_gpus_without_a_uuid_are_told_apart_by_their_number(server: Server) -> None:
    lost = {"code": "gpu.lost", "severity": "critical", "action": "drain"}
    series = merged(*(gpu("gpu_finding", over((2, 60)), "", gpu=number, **lost) for number in "01"))
    found = server.told("GpuLost", series, 10)
    assert [alert.labels["gpu"] for alert in found] == ["0", "1"]
    assert [alert.annotations["summary"].split(":")[0] for alert in found] == ["a GPU 0", "a GPU 1"]


def test_labels_that_route_an_alert_stay_and_two_clusters_do_not_mix(server: Server) -> None:
    series = merged(
        gpu("gpu_finding", over((2, 60)), cluster="east", drill="true", **HOT),
        gpu("gpu_finding", over((1, 60)), cluster="west", **HOT),
    )
    ((labels, _),) = server.firing("GpuHwThermalThrottling", series).items()
    assert labels >= {("cluster", "east"), ("drill", "true"), ("code", "thermal.hw"), ("uuid", "GPU-1")}
    assert not {"gpu", "pod"} & {name for name, _ in labels}


def test_the_measured_value_is_the_alerts_and_an_alert_does_without_it(server: Server) -> None:
    finding = gpu("gpu_finding", over((2, 60)), **HOT)
    value = gpu("gpu_finding_value", over((0.34, 60)), code="thermal.hw")
    (measured,) = server.told("GpuHwThermalThrottling", merged(finding, value), 10)
    assert "; throttled 34% of the time" in measured.annotations["summary"]
    assert len(server.told("GpuHwThermalThrottling", finding, 10)) == 1


def test_a_value_of_a_finding_that_is_pending_fires_nothing(server: Server) -> None:
    value = gpu("gpu_finding_value", over((0.34, 60)), code="thermal.hw")
    assert server.told("GpuHwThermalThrottling", merged(gpu("gpu_finding", over((1, 60)), **HOT), value), 10) == ()


def test_two_codes_of_one_alert_are_told_apart_but_for_xids(server: Server) -> None:
    starved = {"severity": "warning", "action": "fix_host"}
    codes = ("storage.starved", "network.starved")
    series = merged(*(host("gpu_host_finding", over((2, 60)), code=code, **starved) for code in codes))
    assert {alert.labels["code"] for alert in server.told("GpuStarved", series, 10)} == set(codes)
    sick = {"severity": "critical", "action": "drain"}
    xids = merged(*(gpu("gpu_finding", over((2, 60)), code=f"xid.{xid}", **sick) for xid in (48, 79)))
    (alert,) = server.told("GpuXidCritical", xids, 10)
    assert "Xid 48, 79, the GPU fell off the bus" in alert.annotations["summary"]


@pytest.mark.parametrize(("xid", "path"), [(74, "nvlink"), (79, None)])
def test_an_xid_about_an_nvlink_says_so_for_inhibitions(server: Server, xid: int, path: str | None) -> None:
    finding = gpu("gpu_finding", over((2, 60)), code=f"xid.{xid}", severity="critical", action="drain")
    (alert,) = server.told("GpuXidCritical", finding, 10)
    assert alert.labels.get("path") == path


def test_a_server_of_requests_may_rest(server: Server) -> None:
    hung = {"code": "work.hung", "severity": "warning", "action": "fix_job"}
    series = merged(
        gpu("gpu_finding", over((2, 60)), "GPU-1", workload="serving", **hung),
        gpu("gpu_finding", over((2, 60)), "GPU-2", workload="training", **hung),
    )
    assert [alert.labels["uuid"] for alert in server.told("GpuHungProcess", series, 10)] == ["GPU-2"]


def test_whose_job_is_hit_is_known_for_a_quarter_of_an_hour_after_it_died(server: Server) -> None:
    finding = gpu("gpu_finding", over((NAN, 20), (2, 40)), **HOT)
    process = gpu("gpu_process_info", over((1, 20), (NAN, 40)), pid="1", slurm_job_id="42", user="alice")
    known = gpu("gpu_info", over((1, 60)), pci_bus_id="0000:65:00.0", serial="", name="X")
    (alert,) = server.told("GpuHwThermalThrottling", merged(finding, process, known), 25)
    assert "GPU 0 of a (PCI 0000:65:00.0), used by Slurm job 42 of alice: " in alert.annotations["description"]


def test_the_job_of_a_scheduler_counts_more_than_its_processes_and_a_pod_without_a_name_last(server: Server) -> None:
    finding = merged(gpu("gpu_finding", over((2, 60)), **HOT), gpu("gpu_finding", over((2, 60)), "GPU-2", **HOT))
    series = merged(
        finding,
        gpu("gpu_allocated", over((1, 60)), slurm_job_id="42", user="alice", account="physics"),
        gpu("gpu_process_info", over((1, 60)), pid="1", slurm_job_id="42", user="root"),
        gpu("gpu_process_info", over((1, 60)), pid="2", pod_uid="x", user="root"),
        gpu("gpu_process_info", over((1, 60)), "GPU-2", pid="3", pod_uid="y", user="nobody"),
        *(gpu("gpu_info", over((1, 60)), uuid, pci_bus_id="1", serial="", name="X") for uuid in ("GPU-1", "GPU-2")),
    )
    found = {a.labels["uuid"]: a.annotations["description"] for a in server.told("GpuHwThermalThrottling", series, 5)}
    assert "used by Slurm job 42 of alice: " in found["GPU-1"]
    assert "used by user nobody: " in found["GPU-2"]


def test_the_page_of_a_host_that_dies_stands_until_that_of_its_exporter_is_there(server: Server) -> None:
    series = merged(
        gpu("gpu_finding", over((2, 20), (NAN, 40)), **HOT),
        host("up", over((1, 20), (0, 40))),
        host("gpu_exporter_build_info", over((1, 20), (NAN, 40))),
    )
    (page,) = server.firing("GpuHwThermalThrottling", series).values()
    (down,) = server.firing("GpuExporterDown", series).values()
    assert max(page) > min(down)


def test_a_server_that_starts_while_an_alert_fires_goes_on_with_it_at_its_first_evaluation(server: Server) -> None:
    """Nothing waits anew: no rule that relays has a ``for``."""
    started = gpu("gpu_finding", over((2, 60)), **HOT)
    (minutes,) = server.firing("GpuHwThermalThrottling", started).values()
    assert 0 in minutes
