"""What hosts publish for the notifications to review: one host, a rack, and many hosts with one fault."""

import math
from collections.abc import Mapping, Sequence
from typing import Final

from tests.rules.handwritten import Series, host, merged, over

from gpu_triage.judge.findings.table import BY_CODE

NOW: Final = 84
"""Minute at which every alert is rendered: the longest waits for an hour."""
RECENTLY: Final = NOW - 30
"""Minute at which what has a beginning begins."""
INSTANCE: Final = "gpu-07:9836"


def steady(value: float) -> list[float]:
    return over((value, NOW + 1))


def lately(value: float, before: float = 0) -> list[float]:
    return over((before, RECENTLY), (value, NOW + 1 - RECENTLY))


def scraped(values: Sequence[float], instance: str = INSTANCE) -> Series:
    """Whether a target could be scraped; what our exporter says of itself goes with it."""
    said = [1.0 if value == 1 else math.nan for value in values]
    return merged(host("up", values, instance), host("gpu_exporter_build_info", said, instance))


NEIGHBOR: Final = scraped(steady(1), "gpu-08:9836")
"""A host that is up: it serves the runbook when the other is down."""


def rack(hosts: int, down: int) -> Series:
    values = (steady(1) if number <= hosts - down else lately(0, 1) for number in range(1, hosts + 1))
    names = (INSTANCE if number == hosts else f"gpu-rack7-{number:02}:9836" for number in range(1, hosts + 1))
    return merged(*(scraped(each, name) for name, each in zip(names, values, strict=True)))


def many(code: str, hosts: int = 12, *, of: int = 16, state: float = 2, began: int = RECENTLY) -> Series:
    """The first hosts of a fleet, in racks of fourteen, with a finding that is shown since half an hour.

    Args:
        state: of the finding; 1 is pending.
        began: the minute at which its condition began.
    """
    check = BY_CODE[code]
    facts = {"code": code, "severity": check.severity.value, "action": check.action.value}
    about = "gpu_host_finding" if check.of_host else "gpu_finding"
    subject = {} if check.of_host else {"gpu": "0"}
    every = []
    for number in range(1, of + 1):
        instance = INSTANCE if number == 7 else f"10.4.0.{number}:9836"
        every.append(host("up", steady(1), instance, rack=f"r{1 + (number - 1) // 14}"))
        every.append(host("gpu_exporter_build_info", steady(1), instance))
        if number <= hosts:
            since = lately(60.0 * began, math.nan)
            uuid = {"uuid": f"GPU-{number}"} if subject else {}
            every.append(host(about, lately(state, math.nan), instance, **subject, **uuid, **facts))
            every.append(host(f"{about}_since_timestamp_seconds", since, instance, **subject, **uuid, **facts))
            for metric, values, more in _SHARED.get(code, ()):
                every.append(host(metric, values, instance, **more))
    return merged(*every)


_SHARED: Final[Mapping[str, tuple[tuple[str, Sequence[float], Mapping[str, str]], ...]]] = {
    "storage.not_responding": (
        (
            "gpu_host_kernel_event_last_timestamp_seconds",
            lately(60.0 * RECENTLY, math.nan),
            {"kind": "nfs_not_responding", "subject": "nas01"},
        ),
    ),
    "network.port_down": (
        ("gpu_host_infiniband_up", lately(0, 1), {"device": "mlx5_3", "port": "1"}),
        ("gpu_host_infiniband_up", steady(1), {"device": "mlx5_4", "port": "1"}),
    ),
}
"""What else the hosts of an incident publish, by the code of its findings."""
