"""Exporters that are down, absent, deaf or restarting: who is told, how often. Series by hand, a sample a minute."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from tests.rules.handwritten import Firing, Series, Told, host

HOSTS = 20


def up(values: Sequence[float], instance: str = "a", **labels: str) -> Series:
    """Whether a target could be scraped; what our exporter says of itself goes with it."""
    said = [1.0 if value == 1 else math.nan for value in values]
    return {**host("up", values, instance, **labels), **host("gpu_exporter_build_info", said, instance, **labels)}


def down(*, since: int, until: int, minutes: int = 60) -> list[float]:
    """A target that is down for so long."""
    return [0.0 if since <= minute < until else 1.0 for minute in range(minutes)]


def test_a_host_that_reboots_for_nine_minutes_pages_nobody(firing: Firing) -> None:
    assert firing("GpuExporterDown", up(down(since=10, until=19))) == frozenset()


def test_a_host_that_stays_down_pages_after_ten_minutes(firing: Firing) -> None:
    assert min(firing("GpuExporterDown", up(down(since=10, until=60)))) == 20


def test_an_exporter_that_crashes_after_each_start_is_one_page(firing: Firing) -> None:
    """Kubernetes waits up to five minutes between starts; the exporter is scraped once in between."""
    loop = [1.0 if minute < 10 or minute % 6 == 0 else 0.0 for minute in range(120)]
    fires = sorted(firing("GpuExporterDown", up(loop), minutes=120))
    assert fires[0] < 45
    assert fires == list(range(fires[0], 120))


def test_a_target_is_ours_whatever_its_job_is_called(firing: Firing) -> None:
    """A day and a half later still."""
    minutes = 36 * 60
    series = {
        **host("up", down(since=30, until=minutes, minutes=minutes), job="nodes"),
        **host("gpu_exporter_build_info", [1.0] * 30 + [math.nan] * (minutes - 30), job="nodes"),
    }
    assert firing("GpuExporterDown", series, minutes=minutes) == frozenset(range(40, minutes))


def test_other_exporters_that_are_down_are_not_ours(firing: Firing) -> None:
    assert firing("GpuExporterDown", host("up", [0.0] * 60, job="nodes")) == frozenset()


def fleet(fallen: int, since: int = 10, **labels: str) -> Series:
    """A job of twenty hosts, of which some fall."""
    hosts = [
        up(down(since=since, until=60) if number < fallen else [1.0] * 60, f"gpu-{number}", **labels)
        for number in range(HOSTS)
    ]
    return {key: values for each in hosts for key, values in each.items()}


def test_a_fifth_of_a_jobs_targets_down_is_one_page_before_those_of_the_hosts(firing: Firing, told: Told) -> None:
    assert min(firing("GpuExportersDown", fleet(4))) == 15
    assert min(firing("GpuExporterDown", fleet(4))) == 20
    (alert,) = told("GpuExportersDown", fleet(4), 30)
    assert "20% of the GPU hosts cannot be scraped" in alert.annotations["summary"]


def test_the_share_of_targets_down_is_that_of_each_cluster(told: Told) -> None:
    (alert,) = told("GpuExportersDown", {**fleet(4, cluster="east"), **fleet(1, cluster="west")}, 30)
    assert "east/gpu-triage: 20% of the GPU hosts" in alert.annotations["summary"]
    assert 'up{job="gpu-triage",cluster="east"} == 0' in alert.annotations["description"]


def test_few_hosts_down_are_a_page_each(firing: Firing) -> None:
    assert firing("GpuExportersDown", fleet(3)) == frozenset()


def test_one_of_two_hosts_is_no_fleet(firing: Firing) -> None:
    assert firing("GpuExportersDown", {**up([0.0] * 60), **up([1.0] * 60, "b")}) == frozenset()


def test_no_exporter_at_all_is_told(firing: Firing) -> None:
    """All targets vanish from service discovery."""
    gone = up([1.0] * 20 + [math.nan] * 40)
    assert min(firing("GpuExporterAbsent", gone)) in range(35, 42)


def test_exporters_that_are_all_down_are_told_of_as_down(firing: Firing) -> None:
    assert firing("GpuExporterAbsent", up(down(since=10, until=60))) == frozenset()


def heard(kmsg: float, nvml: float) -> Series:
    return {
        **host("gpu_exporter_xid_source_up", [kmsg] * 60, source="kmsg"),
        **host("gpu_exporter_xid_source_up", [nvml] * 60, source="nvml"),
    }


@pytest.mark.parametrize(
    ("series", "fires"),
    [
        (heard(0, 0), True),
        (heard(0, 1), False),
        ({**heard(0, 0), **host("gpu_driver_up", [0.0] * 60)}, False),
        ({**heard(0, 0), **host("gpu_exporter_gpus_released", [1.0] * 60)}, False),
    ],
    ids=["deaf", "the driver is heard", "there is no driver", "released"],
)
def test_an_exporter_that_hears_no_xid_is_told_of(firing: Firing, series: Series, *, fires: bool) -> None:
    assert bool(firing("GpuExporterXidDeaf", series)) == fires


def judge(success: Sequence[float], instance: str = "a", **labels: str) -> Series:
    """An exporter whose judge succeeds or fails; one that succeeds says how many findings there are."""
    found = [0.0 if value == 1 else math.nan for value in success]
    return {
        **up([1.0] * len(success), instance, **labels),
        **host("gpu_exporter_collector_success", success, instance, collector="judge", **labels),
        **host("gpu_host_findings", found, instance, **labels),
    }


def test_a_judge_that_fails_on_many_hosts_is_one_page_within_two_minutes(firing: Firing, told: Told) -> None:
    series: dict[str, Sequence[float]] = {}
    for number in range(HOSTS):
        series |= judge([1.0] * 10 + [0.0] * 50 if number < 5 else [1.0] * 60, f"gpu-{number}")
    fires = firing("GpuExporterJudgeFailing", series)
    assert min(fires) in (10, 11)
    (alert,) = told("GpuExporterJudgeFailing", series, 20)
    assert alert.annotations["summary"] == "gpu-triage: on 5 hosts the exporter cannot judge"
    assert firing("GpuExporterTooOld", series) == frozenset()


def test_a_judge_that_hangs_is_told_of_too(firing: Firing) -> None:
    overdue = [math.nan] * 20 + [60.0 * minute for minute in range(40)]
    series = {**judge([1.0] * 60), **host("gpu_exporter_collector_stale_seconds", overdue, collector="judge")}
    assert min(firing("GpuExporterJudgeFailing", series)) in (20, 21)


def test_exporters_of_an_earlier_release_are_counted_once_they_were_not_upgraded_for_a_quarter_of_an_hour(
    firing: Firing, told: Told
) -> None:
    series: dict[str, Sequence[float]] = {**judge([1.0] * 60, "gpu-0")}
    for number in (1, 2):
        series |= up([1.0] * 60, f"gpu-{number}")
    assert min(firing("GpuExporterTooOld", series)) == 15
    (alert,) = told("GpuExporterTooOld", series, 30)
    assert alert.annotations["summary"] == "gpu-triage: 2 exporters too old for these rules"


def test_an_exporter_that_is_down_is_not_too_old(firing: Firing) -> None:
    series = {**judge([1.0] * 20 + [math.nan] * 40), **host("up", [1.0] * 20 + [0.0] * 40)}
    series |= host("gpu_exporter_build_info", [1.0] * 20 + [math.nan] * 40)
    assert firing("GpuExporterTooOld", series) == frozenset()
