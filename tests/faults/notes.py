"""What the printed matrix says beside its tables."""

from __future__ import annotations

from collections.abc import Mapping

from tests.faults import (
    rows_answers,
    rows_calls,
    rows_driver,
    rows_files,
    rows_gpus,
    rows_links,
    rows_mig,
    rows_slow,
    rows_xid,
)

INTRODUCTION = """\
# Fault matrix

What the exporter does when the host under it fails: which fault, at which moment, what `/metrics` says then, what it
costs, and how it is over. Every line is a test: `pytest tests/faults` stages the fault on a simulated host with two
H100, reads the page, and compares it series by series with the page of a twin that stays healthy. What a line does not
name is as on the twin: the other GPU, the other collectors, the host. No counter falls in any of them, and afterwards
the page is the twin's again; only a counter that the exporter adds up itself may lack the time in which nobody could
count.

`make fault-matrix` writes this page.

- *GPU 0* is the one the fault is on, GPU 1 the other; *in part* means some of the metric's series.
- *every reading* is every series of that GPU but `gpu_up`, `gpu_error_info` and `gpu_info`.
- Where a recovery ends in *stay*, the metrics named tell of what happened, and are there for good.
- `CODE` stands for the injected code's own name, `COLLECTOR` for the collector that calls.
- NVML's error codes have six meanings to the exporter: not supported, nothing to tell, GPU gone, driver gone, driver
  replaced, and failed. One code of each is staged; unit tests hold every other code to the meaning of its line.
- Seconds count from the end of the fault, with the intervals as shipped: fast 1 s, medium 5 s, slow 60 s, deadline 5 s.

"""

_EVERY_SECOND = "Here every collector runs every second, so that a fault meets all of them."

NOTES: Mapping[str, str] = {
    rows_driver.INIT: "The exporter stays up, serves the host's metrics, and tries again after 1, 2, 4 … 60 s.",
    rows_driver.COUNT: (
        "The driver is asked for GPUs that came or went every 5 s; here, while it runs, every second. It is tried "
        "again as when it cannot be initialized."
    ),
    rows_driver.HANDLE: (
        "The GPU is counted, but cannot be asked. As long as nobody knows its UUID, that label is empty. Here, while "
        "it runs, the driver is asked every second."
    ),
    rows_driver.UNDERNEATH: (
        "A library that was loaded stays mapped. Removing its file changes nothing for a process that runs; a kernel "
        "module of another version does, and only a restart helps."
    ),
    rows_gpus.GPU: (
        "Another process looks for a GPU that is gone with an NVML session of its own, after 5 s and then every 10 s, "
        "after two minutes less and less often. NVML is initialized again when that has seen it, without a restart."
    ),
    rows_slow.HANG: (
        "A call that hangs holds up its own GPU's lane, and no other; questions about two GPUs have a lane of their "
        "own. `gpu_exporter_call_inflight_seconds` names the call after a second. Readings are withdrawn when they "
        "are three intervals old. Here the slow tier runs every 10 s. InfiniBand adapters have a lane of their own, as "
        "their firmware is asked; a file of the kernel's own that hangs holds up the other collectors of the host."
    ),
    rows_slow.THREADS: (
        "As with `pids.max`. A GPU that is not asked has no `gpu_up`: nobody knows whether it would answer. After half "
        "a minute `/-/healthy` fails."
    ),
    rows_slow.SLOW: "What was missing at any time of the last 20 s counts as cost.",
    rows_calls.ONE_CALL: _EVERY_SECOND,
    rows_calls.ONE_CODE: (
        f"For one second, of one function that each collector calls, on GPU 0. {_EVERY_SECOND} A collector that gets "
        "no answer at all shows what it read before, for three intervals."
    ),
    rows_calls.NO_SYMBOL: f"Absence is no error. {_EVERY_SECOND}",
    rows_answers.ABSURD: "More than the hardware can have done since the reading before is dropped and counted.",
    rows_answers.GARBAGE: (
        "Values that cannot be are left out and counted. Values that could be are published: nobody can tell. Counters "
        "may have run ahead for good, but do not fall."
    ),
    rows_links.GPM: (
        "These calls name no GPU, so a fault of theirs meets every GPU. That a buffer cannot be given back is no "
        f"error: nothing is left to be done about it. {_EVERY_SECOND}"
    ),
    rows_links.LINKS: (
        f"The calls themselves are in the tables above; here they succeed, and what they say is odd. {_EVERY_SECOND}"
    ),
    rows_mig.MIG: f"GPU 0 is cut into seven instances, GPU 1 is whole. {_EVERY_SECOND}",
    rows_mig.SWITCHED: (
        "The driver tells no utilization of a GPU in MIG mode, nor what NVML tells of whole GPUs alone. Whether it "
        "supports them is asked again with the slow tier, so these series return with its next round."
    ),
    rows_xid.EVENTS: (
        "Xids are heard from two sources, and `gpu_exporter_xid_source_up` says of each whether it is. NVML's is up "
        "while any GPU's events are heard. An event set that fails is made anew after 1, 2, 4 … 60 s, a GPU that "
        "refuses is asked again after 60 s."
    ),
    rows_xid.KERNEL_LOG: (
        "Opened again after 60 s. That there is none, as in most containers, is no error. What stands in it before an "
        "Xid must not keep that from being counted, as it is here for GPU 0."
    ),
    rows_xid.CODES: (
        "Codes are counted as they are; of one GPU at most 64, the rest as `other`. Records that a process wrote into "
        "the kernel log are not the driver's word."
    ),
    rows_files.FILES: (
        f"{_EVERY_SECOND} Files of processes are damaged from the start: what they say of a process is kept for 30 s."
    ),
}
