"""Tables in the docs and the handbook that are generated from the findings table and its thresholds."""

import re
from collections.abc import Iterable

from gpu_triage.judge.evidence import thresholds
from gpu_triage.judge.findings.settings import LIMITS, shown
from gpu_triage.judge.findings.table import CHECKS, Check, Unit, length_in_words

_MOVE = "../playbook.md#move-a-virtual-machine"
_HELD = f"{thresholds.HELD_BYTES / 1024**3:.0f} GiB"
_FACT = re.compile(r"(?:^|; )(?P<name>[A-Za-z ]+): (?P<value>[^;]+)")


def _is_xid(check: Check) -> bool:
    return check.code.removeprefix("xid.").isdecimal()


def _is_for_all(check: Check) -> bool:
    """Whether its advice fits a virtual machine too: its user cannot reseat a card."""
    return check.advice.in_a_virtual_machine == check.advice


def facts(alert: str, current: str) -> str:
    """A runbook's line of facts for an alert that relays findings; "" for others, which are written by hand.

    Step and bottleneck class are maintained by hand in the current text, and kept.
    """
    own = [check for check in CHECKS if check.alert == alert]
    if not own:
        return ""
    by_hand = read_facts(current)
    told = [check for check in CHECKS if check.runbook == alert]
    named = {
        "Severity": _either(check.severity.value for check in own),
        "action": _either(check.action.value for check in own),
        "wait": _either(_length(check.wait_seconds) for check in own),
        "hold": _either(_length(check.hold_seconds) for check in own),
        "step": by_hand["step"],
        "class": by_hand.get("class", ""),
        "finding": ", ".join(
            dict.fromkeys("`xid.` and the code" if _is_xid(check) else f"`{check.code}`" for check in told)
        ),
        "virtual machine": "" if all(map(_is_for_all, told)) else f"[move it]({_MOVE})",
    }
    return "; ".join(f"{name}: {value}" for name, value in named.items() if value)


def read_facts(text: str) -> dict[str, str]:
    """The facts of a runbook from their line, ``Severity: critical; action: drain; wait: 5m; ...``.

    Raises:
        ValueError: there is no such line.
    """
    for line in text.splitlines():
        if line.startswith("Severity: "):
            return {fact["name"].lower(): fact["value"] for fact in _FACT.finditer(line)}
    raise ValueError("the line of facts is missing")


def _either(words: Iterable[str]) -> str:
    return " or ".join(dict.fromkeys(words))


def _length(seconds: float) -> str:
    return shown(seconds, Unit.SECONDS) if seconds else "none"


def class_words() -> str:
    """The words that tell when a bottleneck class matches."""
    t = thresholds
    words = {
        "window": (
            f"the last {t.WINDOW_SECONDS:.0f} s; for shortages of the host, full links and communication, the last "
            f"{t.RECENT_SECONDS:.0f} s; from a sudden change on, only what came after it"
        ),
        "sudden change": (
            f"the last {t.SOON_SECONDS:.0f} s show another class strongly, and had not shown it for "
            f"{t.NEWS_SECONDS:.0f} s: it is entered at once"
        ),
        "share": "of the time in the window, 0 to 1, by the seconds counter",
        "work": "kernels, encoding or decoding, whichever took more time",
        "busy": (
            f"busy share ≥ {t.BUSY_SHARE}, down to {t.STILL_BUSY_SHARE} in class `compute`; after waiting or idling, "
            f"also ≥ {t.RESUMED_SHARE} of the last {t.RECENT_SECONDS:.0f} s"
        ),
        "under load": f"busy share ≥ {t.LOADED_SHARE}, and P-state ≤ {t.LOADED_P_STATE} at times",
        "job": (
            f"a compute process; a drawing process, if the GPU works or it holds ≥ {_HELD}; if the driver lists no "
            f"processes, ≥ {_HELD} held or work seen"
        ),
        "waiting": (
            f"a job, busy share < {t.WAITING_BELOW_SHARE}, and some work (≥ {t.WORKING_SHARE}) within "
            f"{length_in_words(t.WORKED_SECONDS)}. Without that work, or up to a busy share of {t.OWN_STALL_SHARE}, "
            "only what the job itself stalls for counts: its limits, threads and cgroup's PSI"
        ),
    }
    return "".join(f"- **{word}**: {meaning}\n" for word, meaning in words.items())


def matches() -> dict[str, str]:
    """When the playbook's bottleneck classes match, with their numbers, by name."""
    t = thresholds
    memory, storage, cpu, of_job, stopped = (
        {name: shown(limit.value, limit.unit) for name, limit in LIMITS[each].items()}
        for each in ("memory.starved", "storage.starved", "cpu.starved", "memory.limited", "cpu.limited")
    )
    line_rate = LIMITS["network.starved"]["line_rate"].value
    heat, brake = (LIMITS[code]["share"].value for code in ("thermal.hw", "power.brake"))
    lowered = LIMITS["power.limit"]["ratio"].value
    return {
        "sick": (
            f"`gpu_up` is 0, a page Xid within {length_in_words(t.XID_RECENT_SECONDS)}, uncorrected ECC errors, a "
            "failed row remapping, a recovery action, or an unhealthy fabric"
        ),
        "thermal": f"under load, `hw_thermal` or `sw_thermal` share > {heat}",
        "power_brake": f"`hw_power_brake`, or `hw_slowdown` without either cause, share > {brake}",
        "pcie_link": (
            f"the GPU receives or sends ≥ {t.FULL_LINK_SHARE} of what its link can do now, narrow or not; or the link "
            f"above its PCIe switch trained down, and the GPUs behind it move ≥ {t.FULL_LINK_SHARE} of what is left. "
            "A narrow link that carries less is a finding, not the class. If the traffic is unknown, and no class up "
            "to `numa` matches: under load, width or generation below expected, by the best of "
            f"{t.RECENT_SECONDS:.0f} s, unless the board gives all such links the same lanes since boot"
        ),
        "power_cap": (
            f"cap share ≥ {t.POWER_CAP_CLASS_SHARE}, the enforced limit < {lowered} of the default, and power ≥ "
            f"{t.NEAR_LIMIT_SHARE} of the limit or the driver's bit seen: some drivers count capped time far below "
            "the limit"
        ),
        "clock_cap": (
            "under load and not waiting: a target clock below its default (never on GeForce and with drivers from 590 "
            f"on, which have no application clocks); an SM clock < {t.SLOWED_CLOCK_RATIO} of its maximum, with a "
            f"reason other than heat, power and idleness for ≥ {t.SET_CLOCK_SHARE} of the time; or one that its "
            f"setting holds more than {LIMITS['clock.straggler']['drop'].value} below the median of its busy peers"
        ),
        "hung": (
            f"utilization < {t.HUNG_BUSY_SHARE} and power < {t.HUNG_POWER_SHARE} of the limit for "
            f"{t.HUNG_SECONDS / 60:g} minutes (longer than a checkpoint), ≥ {_HELD} held, right after a busy share ≥ "
            f"{t.WORKED_SHARE}, storage not scarce, and the job does not write ≥ "
            f"{t.SAVING_BYTES_PER_SECOND / 1e6:g} MB/s"
        ),
        "memory": (
            "waiting, and the job is at its own memory limit with PSI memory some of its cgroup ≥ "
            f"{of_job['pressure']}; or swap-in ≥ {memory['rate']}/s; or PSI memory some of the job's cgroup (if "
            f"unknown, of the host) ≥ {memory['pressure']}"
        ),
        "storage": (
            f"waiting, and ≥ {storage['blocked']} of the job's threads that do not sleep wait in the kernel (D) for "
            f"storage, PSI io some of its cgroup ≥ {storage['pressure']}, Lustre reads ≥ {storage['nfs']} with ≥ "
            f"{t.OUTSTANDING_REQUESTS:g} under way, GPUDirect Storage reads do not end, or the recent kernel log "
            "reports a file server (NFS, Lustre) that does not respond. If the job's own waits are unknown: iowait ≥ "
            f"{storage['iowait']} of the host's CPU time, PSI io some of the host ≥ {storage['pressure']}, a disk busy "
            f"≥ {storage['disk']} with requests of ≥ {t.SLOW_REQUEST_SECONDS * 1000:g} ms, ≥ {t.LONG_QUEUE:g} under "
            f"way or PSI io some ≥ {t.STALLED_BY_DISK_SHARE:.0%}, or NFS reads, writes or lookups ≥ {storage['nfs']} "
            f"with ≥ {t.OUTSTANDING_REQUESTS:g} under way"
        ),
        "cpu": (
            f"waiting, and the job's own CPU limit stops it in ≥ {stopped['share']} of the periods, the CPUs of the "
            f"GPU's node are ≥ {cpu['node']} busy, or a thread of the job fills ≥ {cpu['busiest']} of a CPU (if its "
            "threads are unknown, any CPU of the node is, except isolated, nohz_full and always busy ones)"
        ),
        "network": (
            f"waiting, and an adapter ≥ {line_rate:.0%} of line rate, an InfiniBand or RoCE port lost its link, RDMA "
            f"requests are not acknowledged, or TCP sends ≥ {t.RETRANSMITTED_SHARE:.0%} of its segments again "
            f"(of ≥ {t.FEWEST_SEGMENTS:.0f} per second), or an interface drops ≥ {t.DROPPED_PER_SECOND:.0f} packets a "
            "second"
        ),
        "communication": (
            f"busy share ≥ {t.SPINNING_BUSY_SHARE}, power < {t.SPINNING_POWER_SHARE} of the limit, memory activity "
            f"(GPM's, else the driver's memory utilization) < {t.SPINNING_MEMORY_SHARE}, with GPM, SM activity < "
            f"{t.SPINNING_SM_ACTIVITY}, and a peer to wait for: another GPU of the same owner, or an RDMA adapter "
            f"that sends ≥ {t.TALKING_BYTES_PER_SECOND / 1e6:.0f} MB/s"
        ),
        "compute": (
            "busy, and nothing above. With GPM (Hopper and later) `gpu_compute_bound` and `check` show what bounds the "
            "kernels: compute, if the tensor cores, or the FP64, FP32 or FP16 units, are active ≥ "
            f"{t.ARITHMETIC_BOUND_SHARE} of the time, which the best trainings of large models reach; memory, if ≥ "
            f"{t.MEMORY_BOUND_SHARE} of the bandwidth is in use, of about 0.8 reachable"
        ),
    }
