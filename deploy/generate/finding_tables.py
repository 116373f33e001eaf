"""Tables in the docs and the handbook that are generated from the findings table and its thresholds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gpu_triage.judge.evidence import thresholds
from gpu_triage.judge.findings.check import Check, Unit, length_in_words
from gpu_triage.judge.findings.limits import LIMITS
from gpu_triage.judge.findings.settings import shown
from gpu_triage.judge.findings.table import CHECKS

_FACTS_HEAD = (
    "| severity | confirmed after | ends after | playbook step | bottleneck class | action | finding |\n"
    "|---|---|---|---|---|---|---|\n"
)
_THRESHOLDS_HEAD = "\n| threshold | default | meaning |\n|---|---|---|\n"
_WORDS_HEAD = "| word | means |\n|---|---|\n"
_AT_ONCE = "at once"


def _is_xid(check: Check) -> bool:
    return check.code.removeprefix("xid.").isdecimal()


def facts(alert: str, current: str) -> str:
    """The first tables of a runbook for an alert that relays findings: facts, and thresholds.

    Step and bottleneck class are maintained by hand in the current text, and kept. Raises ValueError if no finding has
    this alert.
    """
    own = [check for check in CHECKS if check.alert == alert]
    if not own:
        raise ValueError(f"no finding has the alert {alert}; the facts of its runbook are written by hand")
    by_hand = first_table(current)
    told = [check for check in CHECKS if check.runbook == alert]
    cells = (
        _either(check.severity.value for check in own),
        _either(_length(check.wait_seconds) for check in own),
        _either(_length(check.hold_seconds) for check in own),
        by_hand["playbook step"],
        by_hand["bottleneck class"],
        _either(check.action.value for check in own),
        ", ".join(dict.fromkeys("`xid.` and the code" if _is_xid(check) else f"`{check.code}`" for check in told)),
    )
    limits = "".join(dict.fromkeys(row for check in told for row in _thresholds(check)))
    return f"{_FACTS_HEAD}| {' | '.join(cells)} |\n{_THRESHOLDS_HEAD if limits else ''}{limits}"


def first_table(text: str) -> dict[str, str]:
    """Cells of the first table by column; the table has one row. Raises ValueError if the page has no table."""
    lines = [line for line in text.splitlines() if line.startswith("|")][:3]
    if len(lines) < 3:  # noqa: PLR2004 - head, rule and row
        raise ValueError("the table of facts is missing")
    names, _, cells = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    return dict(zip(names, cells, strict=True))


def _thresholds(check: Check) -> Iterator[str]:
    code = "xid.CODE" if _is_xid(check) else check.code
    for name, limit in LIMITS.get(check.code, {}).items():
        value = f"{shown(limit.value, limit.unit)}{' °C' if limit.unit is Unit.CELSIUS else ''}"
        yield f"| `{code}.{name}` | {value} | {limit.about} |\n"


def _either(words: Iterable[str]) -> str:
    return " or ".join(dict.fromkeys(words))


def _length(seconds: float) -> str:
    return length_in_words(seconds) if seconds else _AT_ONCE


def class_words() -> str:
    """The playbook's bottleneck classes, with their numbers."""
    t = thresholds
    memory, storage, cpu, of_job, stopped = (
        {name: shown(limit.value, limit.unit) for name, limit in LIMITS[each].items()}
        for each in ("memory.starved", "storage.starved", "cpu.starved", "memory.limited", "cpu.limited")
    )
    line_rate = LIMITS["network.starved"]["line_rate"].value
    heat, brake = (LIMITS[code]["share"].value for code in ("thermal.hw", "power.brake"))
    lowered = LIMITS["power.limit"]["ratio"].value
    held = f"{t.HELD_BYTES / 1024**3:.0f} GiB"
    rows = (
        (
            "window",
            f"the last {t.WINDOW_SECONDS:.0f} s, and for what the host is short of the last {t.RECENT_SECONDS:.0f} s",
        ),
        ("work", "kernels, encoding or decoding, whichever took more of the time"),
        ("share of time", "of the seconds counter over the window"),
        ("busy", f"busy share ≥ {t.BUSY_SHARE}"),
        ("under load", f"busy share ≥ {t.LOADED_SHARE}, and P-state ≤ {t.LOADED_P_STATE} at times"),
        (
            "a job",
            (
                f"a compute process; a process that also draws, if the GPU works or it holds ≥ {held}; where the "
                f"driver lists no processes, ≥ {held} held or work seen"
            ),
        ),
        (
            "waiting",
            (
                f"a job, busy share < {t.WAITING_BELOW_SHARE}, and some work (≥ {t.WORKING_SHARE}) within "
                f"{length_in_words(t.WORKED_SECONDS)}"
            ),
        ),
        ("sick by Xid", f"a page code seen within {length_in_words(t.XID_RECENT_SECONDS)}"),
        ("thermal", f"`hw_thermal` or `sw_thermal` share > {heat}, while under load"),
        ("power brake", f"`hw_power_brake` share, or `hw_slowdown` without either cause, > {brake}"),
        (
            "link",
            (
                f"the best of {t.RECENT_SECONDS:.0f} s is below expected; or the link above the GPU's PCIe switch is, "
                f"and the GPUs behind it move ≥ {t.FULL_UPLINK_SHARE} of what is left"
            ),
        ),
        (
            "power cap",
            (
                f"cap share ≥ {t.POWER_CAP_CLASS_SHARE} with an enforced limit < {lowered} of the "
                f"default, and power ≥ {t.NEAR_LIMIT_SHARE} of the limit or the bit seen"
            ),
        ),
        ("clock cap", "a target clock below its default, under load and not waiting"),
        (
            "hung",
            (
                f"utilization < {t.HUNG_BUSY_SHARE} and power < {t.HUNG_POWER_SHARE} of the limit for "
                f"{t.HUNG_SECONDS / 60:g} minutes, ≥ {held} held, right after a busy share ≥ {t.WORKED_SHARE}, and "
                "storage not scarce"
            ),
        ),
        (
            "memory (of the host)",
            (
                f"the job at its own memory limit and PSI memory some of its cgroup ≥ {of_job['pressure']}; or swap-in "
                f"≥ {memory['rate']}/s, or PSI memory some of the job's cgroup, where unknown of the host, ≥ "
                f"{memory['pressure']}"
            ),
        ),
        (
            "storage (of the host)",
            (
                f"≥ {storage['blocked']} of the job's threads that do not sleep wait in the kernel (D) for storage, "
                f"or PSI io some of the job's cgroup ≥ {storage['pressure']}, or reads of Lustre ≥ {storage['nfs']} "
                f"with ≥ {t.OUTSTANDING_REQUESTS:g} under way, or reads of GPUDirect Storage do not end; where the "
                f"job's own waits are unknown, iowait ≥ {storage['iowait']} of the host's CPU time, or PSI io some of "
                f"the host ≥ {storage['pressure']}, or a disk busy ≥ {storage['disk']} with requests of ≥ "
                f"{t.SLOW_REQUEST_SECONDS * 1000:g} ms, ≥ {t.LONG_QUEUE:g} of them under way, or PSI io some ≥ "
                f"{t.STALLED_BY_DISK_SHARE:.0%}, or reads, writes or lookups of NFS ≥ {storage['nfs']} with ≥ "
                f"{t.OUTSTANDING_REQUESTS:g} of them under way; or a file server (NFS, Lustre) that does not "
                "respond, by the recent kernel log"
            ),
        ),
        (
            "cpu",
            (
                f"the job's own CPU limit stops it in ≥ {stopped['share']} of the periods, or CPUs of the GPU's node ≥ "
                f"{cpu['node']} busy, or a thread of the job fills ≥ {cpu['busiest']} of one CPU; where its threads "
                "are unknown, any CPU of the node is, other than isolated, nohz_full and always busy ones"
            ),
        ),
        (
            "network",
            (
                f"≥ {line_rate:.0%} of line rate; or the link of an InfiniBand or RoCE port went down, or RDMA "
                "requests are not acknowledged"
            ),
        ),
        (
            "communication",
            (
                f"busy share ≥ {t.SPINNING_BUSY_SHARE}, power < {t.SPINNING_POWER_SHARE} of the limit, and SM activity "
                f"< {t.SPINNING_SM_ACTIVITY} where there is GPM"
            ),
        ),
        (
            "compute- and memory-bound",
            (
                f"where there is GPM, on average over the window: the tensor cores, or the FP64, FP32 or FP16 units, "
                f"active ≥ {t.ARITHMETIC_BOUND_SHARE} of the time, which the best trainings of large models reach; "
                f"≥ {t.MEMORY_BOUND_SHARE} of the memory bandwidth in use, of about 0.8 that can be reached"
            ),
        ),
    )
    return _WORDS_HEAD + "".join(f"| {word} | {means} |\n" for word, means in rows)
