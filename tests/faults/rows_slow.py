"""Rows of calls that hang or are slow."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

from tests.faults.asked import asked_by_collector, every_collector
from tests.faults.hosts import EVERY_SECOND, SLOW_TIER_EVERY_TEN_SECONDS
from tests.faults.injections import FOREVER, takes
from tests.faults.row import DRIVER, HOST, Row, Says
from tests.faults.stage import Stage

HANG = "A call does not return"
SLOW = "Calls are slow"

_DEADLINE_AND_A_ROUND_SECONDS = 20


def rows() -> Iterator[Row]:
    """All of them."""
    for function in ("nvmlDeviceGetCount_v2", "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetUUID"):
        yield Row(
            group=HANG,
            fault=f"`{function}`",
            moment="a look for GPUs that came or went",
            begin=takes(FOREVER, function, gpus={None, 0}),
            recovers_within=0,
        )
    for collector, functions in asked_by_collector().items():
        yield Row(
            group=HANG,
            fault=f"`{functions[0]}` on GPU 0",
            moment=f"the first call of {collector}",
            says=Says(gpus={"0": "stalled"}),
            reach=frozenset({"0"}),
            begin=takes(FOREVER, functions[0]),
            config=SLOW_TIER_EVERY_TEN_SECONDS,
            lasts=_DEADLINE_AND_A_ROUND_SECONDS + 10,
            recovers_within=3,
        )
    yield Row(
        group=HANG,
        fault="every call",
        moment="while it runs",
        says=Says(gpus={"0": "stalled", "1": "stalled"}, driver="stalled", failing=every_collector()),
        reach=frozenset({"0", "1", DRIVER}),
        begin=takes(FOREVER, gpus={None, 0, 1}),
        lasts=_DEADLINE_AND_A_ROUND_SECONDS,
        recovers_within=3,
    )
    for words, pattern, reach in (
        ("reading the counters of the InfiniBand adapters", r"/infiniband/.*/counters/", frozenset({HOST})),
        ("reading `/proc/1/mountstats`", r"/proc/1/mountstats$", frozenset({HOST})),
    ):
        yield Row(
            group=HANG,
            fault=words,
            moment="while it runs",
            reach=reach,
            begin=partial(_stick, pattern=re.compile(pattern)),
            config=EVERY_SECOND,
            lasts=5,
            recovers_within=1,
            inflates=True,
        )
    yield from _slow()


def _stick(stage: Stage, pattern: re.Pattern[str]) -> None:
    stage.files.stuck = pattern


def _slow() -> Iterator[Row]:
    yield Row(
        group=SLOW,
        fault="each call on GPU 0 takes 200 ms",
        moment="while it runs",
        reach=frozenset({"0"}),
        begin=takes(0.2),
        lasts=40,
        over=20,
        recovers_within=15,
    )
    yield Row(
        group=SLOW,
        fault="each call takes 200 ms",
        moment="while it runs",
        reach=frozenset({"0", "1"}),
        begin=takes(0.2, gpus={None, 0, 1}),
        lasts=40,
        over=20,
        recovers_within=15,
    )
    yield Row(
        group=SLOW,
        fault="each call on GPU 0 takes 3 s",
        moment="while it runs",
        says=Says(
            gpus={"0": "stalled"}, errors=frozenset({"activity: deadline", "clocks: deadline", "power: deadline"})
        ),
        reach=frozenset({"0"}),
        begin=takes(3.0),
        lasts=40,
        over=20,
        recovers_within=15,
    )
    yield Row(
        group=SLOW,
        fault="each call takes 3 s",
        moment="from the start",
        says=Says(gpus={"0": "stalled", "1": "stalled"}, driver="stalled", failing=every_collector()),
        reach=frozenset({"0", "1", DRIVER, HOST}),
        begin=takes(3.0, gpus={None, 0, 1}),
        at=0,
        lasts=40,
        over=20,
        recovers_within=15,
    )
