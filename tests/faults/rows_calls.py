"""Rows of single calls that fail: each function with one code, each kind of code on one function of each collector."""

from collections.abc import Iterator
from functools import partial

import pynvml
from tests.faults.hosts import GPUS_EVERY_SECOND
from tests.faults.injections import answers, lacks
from tests.faults.kinds import CODE_OF, DRIVER_GONE, DRIVER_REPLACED, EMPTY, GPU_GONE, KINDS, NOT_SUPPORTED, Kind
from tests.faults.library import asked_by_collector, callers_of, every_collector, every_function
from tests.faults.row import ALL_WELL, DRIVER, Row, Says, counts

from gpu_triage.driver.nvml.nvml_errors import name_of
from gpu_triage_simulator.simulated_nvml import FUNCTIONS

ONE_CALL = "One call to the driver fails, on GPU 0"
ONE_CODE = "Every error code"
NO_SYMBOL = "The library lacks a function, as older drivers do"

_UNTIL_STALE_SECONDS = 4
"""Until what a collector read before the fault, which it shows for three intervals, is withdrawn."""

_FIRST_BRANCH = 510
"""The simulated library knows since which driver branch it has a function, from this one on."""

_OF_PAIRS = frozenset({"nvmlDeviceGetP2PStatus", "nvmlDeviceGetTopologyCommonAncestor"})
"""They are asked about two GPUs at once."""

_every_reading = partial(
    Row, moment="every reading", config=GPUS_EVERY_SECOND, lasts=_UNTIL_STALE_SECONDS, recovers_within=1, shared=True
)


def rows() -> Iterator[Row]:
    for function in every_function():
        says = counts(*(f"{collector}: unknown" for collector in callers_of(function)))
        begin = answers(pynvml.NVML_ERROR_UNKNOWN, function)
        yield _every_reading(ONE_CALL, f"`{function}` answers UNKNOWN", says=says, begin=begin)
    for kind in KINDS:
        for collector, functions in asked_by_collector().items():
            yield _of_kind(kind, collector, functions[-1])
    no_symbol = partial(_every_reading, NO_SYMBOL, reach=frozenset({"0", "1"}))
    for function in every_function():
        yield no_symbol(f"`{function}`", begin=lacks(function))
    young = {name for name, function in FUNCTIONS.items() if function.since >= _FIRST_BRANCH}
    yield no_symbol(f"every one that r{_FIRST_BRANCH} or a later driver brought", begin=lacks(*young))


def _of_kind(kind: Kind, collector: str, function: str) -> Row:
    everything = kind in (DRIVER_GONE, DRIVER_REPLACED)
    return _every_reading(
        ONE_CODE,
        kind.staged,
        moment=f"{collector} (`{function}`)",
        says=says_of(kind, callers_of(function), pair=function in _OF_PAIRS),
        reach=frozenset({"0", "1", DRIVER}) if everything else frozenset({"0"}),
        begin=answers(CODE_OF[kind.staged], function),
        lasts=1,
        recovers_within=3 if everything or kind is GPU_GONE else 1,
    )


def says_of(kind: Kind, collectors: tuple[str, ...], *, pair: bool = False) -> Says:
    """What the page says when a call of these collectors on GPU 0 answers the staged code of a kind."""
    if kind in (NOT_SUPPORTED, EMPTY):
        return ALL_WELL
    error = name_of(CODE_OF[kind.staged])
    if kind is GPU_GONE and pair:
        # Which of the two is gone, the other questions will tell.
        return counts(f"{collectors[0]}: peer_{error}")
    if kind is GPU_GONE:
        return Says(gpus={"0": error}, errors=frozenset({f"{collectors[0]}: {error}"}))
    if kind in (DRIVER_GONE, DRIVER_REPLACED):
        return Says(
            gpus={"0": "driver_unavailable", "1": "driver_unavailable"},
            driver=error,
            errors=frozenset({f"{collectors[0]}: {error}"}),
            failing=every_collector(),
            restart=kind is DRIVER_REPLACED,
        )
    return counts(*(f"{collector}: {error}" for collector in collectors))
