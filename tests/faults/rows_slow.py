"""Rows of calls that hang or are slow."""

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from tests.faults.hosts import EVERY_SECOND, SLOW_TIER_EVERY_TEN_SECONDS
from tests.faults.injections import FOREVER, OF_THE_LOOK, Begin, takes
from tests.faults.library import asked_by_collector, every_collector
from tests.faults.row import DRIVER, HOST, Row, Says, Within, call_in_flight
from tests.faults.stage import Stage

from gpu_triage.read.gpu.topology import TOPOLOGY
from gpu_triage.read.metrics.contract import runs
from gpu_triage.read.metrics.metric import Tier
from gpu_triage.read.registry import GPU_COLLECTORS, HOST_COLLECTORS
from gpu_triage_simulator import effects
from gpu_triage_simulator.scenario import Event

_INIT, _COUNT = "nvmlInitWithFlags", "nvmlDeviceGetCount_v2"
_VERSIONS = ("nvmlSystemGetDriverVersion", "nvmlSystemGetCudaDriverVersion_v2", "nvmlSystemGetNVMLVersion")
_FIRST_OF_ALL = call_in_flight("activity", "nvmlDeviceGetUtilizationRates")
_FIRST_EVENT = call_in_flight("xid", "nvmlEventSetWait")

_READ_ONE_AFTER_THE_OTHER = frozenset(c.name for c in HOST_COLLECTORS if not c.own_lane and runs(c, EVERY_SECOND))

HANG = "A call does not return"
SLOW = "Calls are slow"
THREADS = "A thread cannot be started"

_DEADLINE_AND_A_ROUND_SECONDS = 20


_while_a_gpu_is_lost = partial(
    Row,
    HANG,
    moment="while GPU 1 is lost and looked for",
    events=(Event(20, 60, (1,), effects.Lost()),),
    lasts=40,
    recovers_within=15,
    leaves=frozenset({"gpu_xid_errors_total", "gpu_xid_last_timestamp_seconds"}),
)
"""What the library does in this process alone: another one that looks for the GPU finds it lost."""

_stuck = partial(Row, HANG, reach=frozenset({HOST}), config=EVERY_SECOND, lasts=12, recovers_within=2, inflates=True)
"""Files of the host that cannot be opened in any time."""


def rows() -> Iterator[Row]:
    later, says = "a look for GPUs that came or went", Says(driver="stalled", calls=_calls(DRIVER, _COUNT))
    counts = takes(FOREVER, _COUNT, gpus={None})
    yield Row(HANG, f"`{_COUNT}`", later, says, frozenset({DRIVER}), counts)
    look = partial(Row, HANG, lasts=_DEADLINE_AND_A_ROUND_SECONDS, recovers_within=15)
    for function in OF_THE_LOOK:
        says = Says(gpus={"0": "stalled"}, calls=_calls(DRIVER, function))
        for moment, at in (("the first look at the driver", 0), (later, 20)):
            yield look(f"`{function}` on GPU 0", moment, says, begin=takes(FOREVER, function), at=at)
    says = Says(gpus={"1": "lost"}, errors=frozenset({"activity: lost"}))
    lost = partial(_while_a_gpu_is_lost, says=says, reach=frozenset({"1"}))
    yield lost(f"`{_INIT}` does not return", begin=takes(FOREVER, _INIT, gpus={None}))
    says, reach = replace(says, driver="stalled", calls=_calls(DRIVER, _COUNT)), frozenset({"1", DRIVER})
    yield lost(f"`{_COUNT}` does not return", says=says, reach=reach, begin=takes(FOREVER, _COUNT, gpus={None}))
    yield lost(f"`{_INIT}` takes 8 s", begin=takes(8.0, _INIT, gpus={None}))
    for collector, functions in asked_by_collector().items():
        beside = collector == TOPOLOGY.name
        hung = collector if beside else _first_to_ask(functions[0])
        gpus = {} if beside else {"0": "stalled"}
        yield Row(
            HANG,
            f"`{functions[0]}` on GPU 0",
            f"the first call of {collector}",
            Says(gpus=gpus, failing=frozenset({hung}), calls=_calls(hung, functions[0])),
            reach=frozenset({"0", "1"} if beside else {"0"}),
            begin=takes(FOREVER, functions[0]),
            config=SLOW_TIER_EVERY_TEN_SECONDS,
            lasts=_DEADLINE_AND_A_ROUND_SECONDS + 10,
            recovers_within=3,
        )
    calls = frozenset({call_in_flight(DRIVER, _COUNT), _FIRST_OF_ALL, _FIRST_EVENT})
    says = Says(gpus={"0": "stalled", "1": "blocked"}, driver="stalled", failing=every_collector(), calls=calls)
    row = Row(HANG, "every call", says=says, reach=frozenset({"0", "1", DRIVER}), recovers_within=3)
    yield replace(row, begin=takes(FOREVER, gpus={None, 0, 1}), lasts=_DEADLINE_AND_A_ROUND_SECONDS)
    for words, pattern, collector in (
        ("reading the counters of the InfiniBand adapters", r"/infiniband/.*/counters/", "host_infiniband"),
        ("reading `/proc/1/mountstats`", r"/proc/1/mountstats$", "host_nfs"),
    ):
        says = Says(calls=_calls(collector, ""))
        yield _stuck(words, says=says, begin=_stick(pattern), lasts=5, recovers_within=1)
    longer = "for longer than the deadline"
    begin = _stick(r"/proc/1/mountstats$")
    yield _stuck("reading `/proc/1/mountstats`", longer, _late("host_nfs"), begin=begin)
    words, begin = "reading `speed` of the network interfaces", _stick(r"/net/[^/]*/speed$")
    yield _stuck(words, f"from the start, {longer}", _late("host_network_link"), begin=begin, at=0)
    late = _late("host_memory", *_READ_ONE_AFTER_THE_OTHER)
    yield _stuck("reading `/proc/meminfo`", longer, late, begin=_stick(r"/proc/meminfo$"))
    says = Says(errors=frozenset({"exporter: no_thread"}))
    refused = partial(Row, THREADS, "no thread for GPU 0", says=says, begin=_refuse_threads, recovers_within=7)
    for moment, at in (("from the start", 0), ("while it runs", 20)):
        yield refused(moment=moment, at=at, lasts=_DEADLINE_AND_A_ROUND_SECONDS)
    yield from _slow()


def _late(hangs: str, *behind: str) -> Says:
    """A host's collector that hangs for longer than the deadline, and those that wait behind it."""
    names = {hangs, *behind}
    return Says(
        errors=frozenset(f"{name}: {'deadline' if name == hangs else 'blocked'}" for name in names),
        failing=frozenset(names),
        calls=_calls(hangs, ""),
    )


def _calls(collector: str, function: str) -> frozenset[str]:
    return frozenset({call_in_flight(collector, function)})


def _refuse_threads(stage: Stage) -> None:
    stage.threadless = ("gpu-0",)


def _first_to_ask(function: str) -> str:
    """The collector that meets a hang in this function: the fast tier runs most often."""
    tiers = tuple(Tier)
    asking = [c for c in GPU_COLLECTORS if function in asked_by_collector().get(c.name, ())]
    return min(asking, key=lambda collector: tiers.index(collector.tier)).name


def _stick(pattern: str) -> Begin:
    """Files whose paths match cannot be opened."""

    def begin(stage: Stage) -> None:
        stage.files.stuck = re.compile(pattern)

    return begin


_A_CALL_AT_MOST = Within(frozenset(), frozenset(), slow=True)
"""Every value arrives in time; which call is under way depends on how many the rounds make."""


def _slow() -> Iterator[Row]:
    slow, everyone = partial(Row, SLOW, lasts=40, recovers_within=15), {None, 0, 1}
    yield slow("each call on GPU 0 takes 200 ms", says=_A_CALL_AT_MOST, begin=takes(0.2))
    row = slow("each call takes 200 ms", says=_A_CALL_AT_MOST, begin=takes(0.2, gpus=everyone))
    yield replace(row, reach=frozenset({"0", "1"}))
    says = Says(
        gpus={"0": "stalled"},
        errors=frozenset({"activity: deadline", "clocks: deadline", "power: deadline"}),
        calls=_calls("throttle", "nvmlDeviceGetFieldValues"),
    )
    yield slow("each call on GPU 0 takes 3 s", says=says, begin=takes(3.0))
    at_start = partial(slow, moment="from the start", at=0)
    says = Says(calls=_calls(DRIVER, "nvmlSystemGetNVMLVersion"))
    row = at_start("each call for a version of the driver takes 3 s", says=says, reach=frozenset({DRIVER}))
    yield replace(row, begin=takes(3.0, *_VERSIONS, gpus={None}), lasts=9, recovers_within=2)
    says = Says(
        gpus={"0": "stalled", "1": "blocked"},
        errors=frozenset({"activity: deadline", "gpm: deadline"}),
        failing=every_collector(),
        calls=_calls("clocks", "nvmlDeviceGetClockInfo"),
    )
    reach = frozenset({"0", "1", DRIVER, HOST})
    yield at_start("each call takes 3 s", says=says, reach=reach, begin=takes(3.0, gpus=everyone))
