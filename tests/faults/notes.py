"""What the printed matrix says beside its tables."""

from __future__ import annotations

from collections.abc import Mapping

from tests.faults import rows_answers, rows_calls, rows_driver, rows_files, rows_gpus, rows_slow

INTRODUCTION = """\
# Fault matrix

What the exporter does when the host under it fails: which fault, at which moment, what `/metrics` says then, what it
costs, and how it is over. Every line is a test: `pytest tests/faults` stages the fault on a simulated host with two
H100, reads the page, and compares it series by series with the page of a twin that stays healthy. What a line does not
name is as on the twin: the other GPU, the other collectors, the host. No counter falls in any of them, and afterwards
the page is the twin's again; only a counter that the exporter adds up itself may lack the time in which nobody could
count.

This page is printed by the suite: `pytest tests/faults --regenerate`.

- *GPU 0* is the one the fault is on, GPU 1 the other; *in part* means some of the metric's series.
- *every reading* is every series of that GPU but `gpu_up`, `gpu_error_info` and `gpu_info`.
- `CODE` stands for the injected code's own name, `COLLECTOR` for the collector that calls.
- Seconds count from the end of the fault, with the intervals as shipped: fast 1 s, medium 5 s, slow 60 s, deadline 5 s.

"""

_EVERY_SECOND = "Here every collector runs every second, so that a fault meets all of them."

NOTES: Mapping[str, str] = {
    rows_driver.INIT: "The exporter stays up, serves the host's metrics, and tries again after 1, 2, 4 … 60 s.",
    rows_driver.COUNT: (
        "The driver is asked for GPUs that came or went every 5 s; here, while it runs, every second. It is tried "
        "again as when it cannot be initialised."
    ),
    rows_driver.HANDLE: (
        "The GPU is counted, but cannot be asked. As long as nobody knows its UUID, that label is empty. Here, while "
        "it runs, the driver is asked every second."
    ),
    rows_driver.UNDERNEATH: (
        "A library that was loaded stays mapped. Removing its file changes nothing for a process that runs; a kernel "
        "module of another version does, and only a restart helps."
    ),
    rows_gpus.GPU: "NVML is initialised again 15 s after a GPU was lost, then after 30, 60 … 900 s, without a restart.",
    rows_slow.HANG: (
        "A call that hangs holds up its own GPU's lane, and no other. Readings are withdrawn when they are three "
        "intervals old. Here the slow tier runs every 10 s."
    ),
    rows_slow.SLOW: "What was missing at any time of the last 20 s counts as cost.",
    rows_calls.ONE_CALL: _EVERY_SECOND,
    rows_calls.ONE_CODE: (
        f"For one second, of one function that each collector calls, on GPU 0. {_EVERY_SECOND} A collector that gets "
        "no answer at all shows what it read before, for three intervals."
    ),
    rows_calls.NO_SYMBOL: f"Absence is no error. {_EVERY_SECOND}",
    rows_answers.GARBAGE: (
        "Values that cannot be are left out and counted. Values that could be are published: nobody can tell. Counters "
        "may have run ahead for good, but do not fall."
    ),
    rows_files.FILES: _EVERY_SECOND,
}
