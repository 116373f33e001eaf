"""Governors, the clock of busy CPUs, and the clock source."""

from __future__ import annotations

import pytest
from tests.host_tree import HostTree

from gpu_triage.errors import HostReadFailed
from gpu_triage.read.host.cpu import (
    HOST_CPU_SETTINGS,
    CpuFrequencies,
    HostCpuSettingsReader,
    HostCpuSettingsReading,
)

SOURCE = "sys/devices/system/clocksource/clocksource0/current_clocksource"
POLICY = "sys/devices/system/cpu/cpufreq/policy"


def policy(host: HostTree, number: int, cpus: str, governor: str = "performance", now: str = "800000\n") -> None:
    host.write(
        {
            f"{POLICY}{number}/related_cpus": f"{cpus}\n",
            f"{POLICY}{number}/scaling_governor": f"{governor}\n",
            f"{POLICY}{number}/scaling_cur_freq": now,
            f"{POLICY}{number}/cpuinfo_max_freq": "3800000\n",
        }
    )


def test_governors_are_counted_and_the_clock_source_is_named(host: HostTree) -> None:
    host.write({SOURCE: "tsc\n"})
    for number, governor in enumerate(("powersave", "powersave", "performance")):
        policy(host, number, str(number), governor)
    reading = HostCpuSettingsReader().read(host.round())
    assert reading == HostCpuSettingsReading({"powersave": 2, "performance": 1}, "tsc")
    assert [(sample.spec.name, sample.labels, sample.value) for sample in HOST_CPU_SETTINGS.render(reading)] == [
        ("gpu_host_cpu_governor_policies", ("powersave",), 2),
        ("gpu_host_cpu_governor_policies", ("performance",), 1),
        ("gpu_host_clock_source_info", ("tsc",), 1),
    ]


def test_a_virtual_machine_without_cpufreq_has_a_clock_source_alone(host: HostTree) -> None:
    host.write({SOURCE: "kvm-clock\n"})
    assert HostCpuSettingsReader().read(host.round()) == HostCpuSettingsReading({}, "kvm-clock")


@pytest.mark.parametrize("text", ["two words\n", "\x1b[2J\n", "x" * 99 + "\n"])
def test_junk_is_no_name(host: HostTree, text: str) -> None:
    host.write({SOURCE: text})
    policy(host, 0, "0", text.strip())
    with pytest.raises(HostReadFailed):
        HostCpuSettingsReader().read(host.round())
    host.write({SOURCE: "tsc\n"})
    assert HostCpuSettingsReader().read(host.round()) == HostCpuSettingsReading({}, "tsc")


@pytest.mark.parametrize(
    ("now", "ratio"),
    [("800000\n", 800 / 3800), ("4100000\n", 1.0), ("0\n", None), ("<unknown>\n", None), ("-1\n", None), ("", None)],
)
def test_the_clock_of_a_cpu_is_told_as_a_share_of_its_highest(host: HostTree, now: str, ratio: float | None) -> None:
    policy(host, 4, "4 5", now=now)
    assert CpuFrequencies().ratio(host.sysfs, 5) == ratio


def test_a_cpu_without_a_policy_has_no_clock(host: HostTree) -> None:
    policy(host, 4, "4 5")
    policy(host, 6, "six")
    frequencies = CpuFrequencies()
    assert [frequencies.ratio(host.sysfs, cpu) for cpu in (4, 6, 7)] == [800 / 3800, None, None]


def throttled(host: HostTree, cpu: int, count: str, milliseconds: str | None) -> None:
    """What a CPU counts: Documentation/admin-guide/thermal (Intel), arch/x86/kernel/cpu/mce/therm_throt.c."""
    folder = f"sys/devices/system/cpu/cpu{cpu}/thermal_throttle"
    host.write({f"{folder}/package_throttle_count": f"{count}\n", f"{folder}/core_throttle_count": "99\n"})
    if milliseconds is not None:
        host.write({f"{folder}/package_throttle_total_time_ms": f"{milliseconds}\n"})


def test_processors_that_were_too_hot_are_counted_by_node(host: HostTree) -> None:
    host.write({SOURCE: "tsc\n"})
    for node, cpus in enumerate(("0-31,64-95", "32-63,96-127")):
        host.write({f"sys/devices/system/node/node{node}/cpulist": f"{cpus}\n"})
        throttled(host, 32 * node, str(7 * node), str(61_500 * node))
    reader = HostCpuSettingsReader()
    reading = reader.read(host.round())
    assert (reading.throttles, reading.throttled_seconds) == ({"0": 0, "1": 7}, {"0": 0.0, "1": 61.5})
    throttled(host, 32, "junk", "500")
    round_ = host.round()
    reading = reader.read(round_)
    assert (reading.throttles, reading.throttled_seconds) == ({"0": 0}, {"0": 0.0, "1": 62.0})
    assert round_.failures == ["malformed"]


@pytest.mark.parametrize("milliseconds", [None, "0"])
def test_kernels_before_5_6_count_no_time_and_other_processors_nothing(
    host: HostTree, milliseconds: str | None
) -> None:
    host.write({SOURCE: "tsc\n"})
    assert HostCpuSettingsReader().read(host.round()) == HostCpuSettingsReading({}, "tsc")
    throttled(host, 0, "3", milliseconds)  # one node, on a kernel without NUMA
    reading = HostCpuSettingsReader().read(host.round())
    assert (reading.throttles, reading.throttled_seconds) == ({"0": 3}, {} if milliseconds is None else {"0": 0.0})
