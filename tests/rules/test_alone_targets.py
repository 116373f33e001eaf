"""Exporters that are down, absent, deaf or restarting: who is told, how often. Series by hand, a sample a minute."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from tests.rules.handwritten import MINUTES, Firing, Series, Told, counter, host

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


def port(values: Sequence[float]) -> Series:
    return host("gpu_host_infiniband_up", values, device="mlx5_0", port="1")


def test_a_port_that_was_up_and_is_down_is_told_for_as_long_as_it_is(firing: Firing) -> None:
    minutes = 9 * 60
    assert firing("GpuInfinibandPortDown", port([1.0] * 30 + [0.0] * (minutes - 30)), minutes=minutes) == frozenset(
        range(35, minutes)
    )


def test_a_port_without_a_cable_is_not_told_of(firing: Firing) -> None:
    assert firing("GpuInfinibandPortDown", port([0.0] * 60)) == frozenset()


def of_port(what: str, values: Sequence[float]) -> dict[str, Sequence[float]]:
    return host(f"gpu_host_infiniband_{what}", values, device="mlx5_0", port="1")


def test_a_port_that_went_down_twice_does_not_flap_and_one_that_goes_on_does(firing: Firing) -> None:
    twice = [1.0 if minute in (20, 40) else 0.0 for minute in range(MINUTES)]
    again = [1.0 if minute % 5 == 0 else 0.0 for minute in range(MINUTES)]
    assert firing("GpuInfinibandPortFlapping", of_port("link_downs_total", counter(twice))) == frozenset()
    assert 50 in firing("GpuInfinibandPortFlapping", of_port("link_downs_total", counter(again)))


def test_link_errors_that_come_again_rise_and_a_burst_of_some_minutes_does_not(firing: Firing) -> None:
    burst = [50.0 if 20 <= minute < 26 else 0.0 for minute in range(MINUTES)]
    again = [50.0 if minute % 12 == 0 else 0.0 for minute in range(MINUTES)]
    assert firing("GpuInfinibandErrorsRising", of_port("link_errors_total", counter(burst))) == frozenset()
    assert 55 in firing("GpuInfinibandErrorsRising", of_port("link_errors_total", counter(again)))


def test_a_port_that_is_slow_for_some_minutes_or_not_at_all_is_not_told_of(firing: Firing) -> None:
    for values in ([1.0] * MINUTES, [0.5 if 20 <= minute < 30 else 1.0 for minute in range(MINUTES)]):
        assert firing("GpuInfinibandRateDegraded", of_port("rate_expected_ratio", values)) == frozenset()
    assert 50 in firing("GpuInfinibandRateDegraded", of_port("rate_expected_ratio", [0.5] * MINUTES))


def test_an_interface_that_flaps_is_told_of_and_one_that_went_down_twice_is_not(firing: Firing) -> None:
    twice = [1.0 if minute in (20, 25) else 0.0 for minute in range(MINUTES)]
    again = [1.0 if minute % 5 == 0 else 0.0 for minute in range(MINUTES)]
    for downs, told in ((twice, False), (again, True)):
        series = host("gpu_host_network_carrier_downs_total", counter(downs), device="eno1")
        assert (55 in firing("GpuNetworkLinkDegraded", series)) == told


def test_links_that_were_up_and_are_all_down_are_told_for_as_long_as_they_are(firing: Firing) -> None:
    minutes = 9 * 60
    column = [1.0] * 30 + [0.0] * (minutes - 30)
    down = [math.nan] * 30 + [0.0] * (minutes - 30)
    series = {
        **host("gpu_nvlink_links_up", column, gpu="0", uuid="GPU-1"),
        **host("gpu_nvlink_up", down, gpu="0", uuid="GPU-1", link="0"),
    }
    assert firing("GpuNvlinkDown", series, minutes=minutes) == frozenset(range(35, minutes))
