"""The host around the GPUs: what the kernel log reports, network ports and interfaces, and the clocks of CPUs."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from gpu_triage.documents import packaged_toml
from gpu_triage.judge.evidence import thresholds
from gpu_triage.judge.evidence.host import HostEvidence
from gpu_triage.judge.evidence.past import DAY_SECONDS, Amount
from gpu_triage.judge.evidence.remember import OWNER_LABELS, Count, lately, was_up
from gpu_triage.judge.evidence.series import Series, many, sum_of
from gpu_triage.judge.evidence.wording import first_few, length_of_time
from gpu_triage.judge.findings.finding import Finding, of_host, of_slot
from gpu_triage.read.gpu.presence import GPU_DEVICES
from gpu_triage.read.host import cpu, infiniband, kernel_log, network_interfaces
from gpu_triage.read.host.host_memory import GPU_HOST_EDAC_DIMM_ERRORS_TOTAL, GPU_HOST_EDAC_ERRORS_TOTAL
from gpu_triage.read.host.kernel_messages import Ending, ProblemKind
from gpu_triage.read.metrics.contract import known
from gpu_triage.read.metrics.metric import MetricSpec
from gpu_triage.read.processes.vitals import GPU_PROCESS_BLOCKED_SINCE_TIMESTAMP_SECONDS

_SHOWN: Final = 3


class MessageRule(NamedTuple):
    """How kernel messages become a finding."""

    code: str  # code of the finding
    kinds: dict[ProblemKind, str]  # kinds of message, with the text for each subject
    seconds: float = 600.0  # how long a momentary message counts; others count until they are over
    unnamed: str = "an unnamed part"  # what to call a subject that the message does not name
    until_reset: bool = False  # whether the finding ends once a GPU was reset


MESSAGE_RULES: Final = tuple(
    MessageRule(code, {ProblemKind(kind): words for kind, words in row.pop("kinds").items()}, **row)
    for code, row in packaged_toml(__package__, "message_rules.toml").items()
)

_ADDRESS: Final = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_OF_GPU: Final = (
    ("driver.bound_elsewhere", ProblemKind.GPU_BOUND_ELSEWHERE, "another kernel driver holds it"),
    ("driver.unsupported", ProblemKind.GPU_UNSUPPORTED, "the driver does not support it"),
    ("driver.bar", ProblemKind.GPU_BAR, "one of its address ranges is invalid"),
    ("driver.power_cables", ProblemKind.GPU_UNPOWERED, "it lacks power cables"),
    ("driver.init_failed", ProblemKind.GPU_INIT_FAILED, "RmInitAdapter failed"),
    ("driver.init_failed", ProblemKind.GPU_NOT_STARTED, "the driver gave it up"),
)
"""Reasons from the driver why a GPU that does not respond cannot be used."""


def judge_host(host: HostEvidence) -> Iterator[Finding]:
    yield from judge_kernel(host)
    yield from _network(host)
    yield from _cpu_settings(host)


def judge_kernel(host: HostEvidence) -> Iterator[Finding]:
    """Yield one finding for each kind of trouble, with the subjects that the kernel names."""
    for rule in MESSAGE_RULES:
        counted = [
            (words, each)
            for kind, words in rule.kinds.items()
            for each in host.kernel_events(kind)
            if kind.ending is not Ending.MOMENTARY or host.age_seconds(each.last) <= rule.seconds
            if not (rule.until_reset and each.last < host.reset_at)
        ]
        said = [
            f"{words.format(each.labels['subject'] or rule.unnamed)}, last {host.when(each.last)}"
            for words, each in counted
        ]
        if rule.code == "cpu.thermal":
            said += _hot_cpus(host)
        hangs = rule.code == "host.hung_task"
        # The kernel reports a task every two minutes, ten times at most, but it hangs for longer.
        since = rule.seconds + max((host.age_seconds(each.last) for _, each in counted), default=0.0)
        repeated = hangs and host.memory.over("", Count.HUNG_AGAIN, since).amount > 0
        if len(said) >= (host.limit(rule.code, "tasks") if hangs else 1) or (said and repeated):
            subjects = sorted({each.labels["subject"] for _, each in counted} - {""})
            waits = _waits(host, subjects) if hangs else ""
            yield of_host(rule.code, f"{first_of(said)}{waits}", len(said), f"{first_few(subjects, _SHOWN)}{waits}")
    yield from _driver_messages(host)
    yield from _memory_errors(host)
    yield from _oom_killed(host)
    lost = host.one(kernel_log.GPU_HOST_KERNEL_LOG_LOST_RECORDS_TOTAL)
    if lost is not None and lost.increase > 0:
        measured = f"{lost.increase:.0f} records of the kernel log were lost before they could be read"
        yield of_host("host.kernel_log_lost", measured, lost.increase)


def _waits(host: HostEvidence, tasks: Sequence[str]) -> str:
    """Return what hung tasks wait for, as far as their GPUs or other messages show: the kernel does not name it."""
    blocked = (labels for gpu in host.gpus for labels in gpu.labels_of(GPU_PROCESS_BLOCKED_SINCE_TIMESTAMP_SECONDS))
    channels = {each["wait_channel"] for each in blocked if f"{each['process']} ({each['pid']})" in tasks}
    return " in ".join(("", *sorted(filter(None, channels)))) + ", and ".join(("", *host.silent_servers()))


def _hot_cpus(host: HostEvidence) -> Iterator[str]:
    """Yield processors throttled by heat according to their counters: the kernel rate-limits its messages about it."""
    rises = host.rises(cpu.GPU_HOST_CPU_THROTTLED_SECONDS_TOTAL, thresholds.HOT_CPU_SECONDS, "numa_node")
    for node, rise in rises.items():
        if rise.mean >= thresholds.HOT_CPU_SHARE:
            yield f"CPUs of NUMA node {node} too hot for {min(rise.mean, 1.0):.0%} of the time"


def _oom_killed(host: HostEvidence) -> Iterator[Finding]:
    """Yield findings about OOM-killed processes: those of jobs with a GPU, and others."""
    killed: dict[str, list[tuple[str, str]]] = {"memory.oom_killed": [], "memory.oom_killed_other": []}
    for each in host.series(kernel_log.GPU_HOST_OOM_KILL_TIMESTAMP_SECONDS):
        if host.age_seconds(each.last) <= thresholds.OOM_KILLED_SECONDS:
            code = "memory.oom_killed" if _had_gpu(host, each) else "memory.oom_killed_other"
            process = f"{each.labels['process'] or 'process'} ({each.labels['pid']}){_of_owner(each.labels)}"
            killed[code].append((f"the kernel killed {process}, {host.when(each.last)}", process))
    for code, said in killed.items():
        if said:
            texts, processes = zip(*said[::-1], strict=True)
            yield of_host(code, first_of(texts), len(said), first_few(processes, _SHOWN))


def _had_gpu(host: HostEvidence, killed: Series) -> bool:
    """Whether an OOM-killed process or its job was on a GPU recently; assumed if it was killed before observation."""
    if host.age_seconds(killed.last) >= host.memory.seconds:
        return True
    seen = (host.memory.seen_at((name, killed.labels[name])) for name in OWNER_LABELS if killed.labels[name])
    return any(at is not None and host.at.monotonic - at <= thresholds.HELD_GPU_SECONDS for at in seen)


def _driver_messages(host: HostEvidence) -> Iterator[Finding]:
    """Yield the driver's messages about GPUs that do not respond, and about version mismatches while it is down."""
    shown, on_bus = (host.last(GPU_DEVICES, source=source) or 0 for source in ("nvml", "pci"))
    if host.released or (host.driver_error is None and shown >= on_bus > 0):
        # Every GPU available to the driver is present; any other was passed through or removed since.
        return
    answering = {gpu.pci_bus_id for gpu in host.answering}
    for code, kind, words in _OF_GPU:
        for each in host.kernel_events(kind):
            slot = each.labels["subject"]
            if _ADDRESS.fullmatch(slot) and slot not in answering:
                yield of_slot(code, slot, f"{words}, last {host.when(each.last)}")
    reasons = {"driver.module_rejected": ProblemKind.MODULE_REJECTED} if host.driver_error else {}
    if host.driver_error == "version_mismatch":
        reasons["driver.version_mismatch"] = ProblemKind.DRIVER_MISMATCH
    for code, kind in reasons.items():
        for each in host.kernel_events(kind):
            subject = each.labels["subject"]
            yield of_host(code, f"{subject}, last {host.when(each.last)}", detail=subject)


def _memory_errors(host: HostEvidence) -> Iterator[Finding]:
    """Yield errors of the host's memory, from the EDAC counters."""
    uncorrected, where = _errors(host, "uncorrected", thresholds.UNCORRECTED_SECONDS)
    if uncorrected.amount:
        count = uncorrected.amount
        yield of_host("host.hardware_error", f"{count:.0f} uncorrected memory errors lately, of {where}", count, where)
    now = [each for each in host.series(GPU_HOST_EDAC_ERRORS_TOTAL, severity="corrected") if each.increase > 0]
    if now:
        count, of = sum(each.increase for each in now), ", ".join(each.labels["controller"] for each in now)
        measured = f"{count:.0f} corrected memory errors just now, of memory controller {of}"
        yield of_host("host.memory_errors", measured, count)
    a_day, where = _errors(host, "corrected", DAY_SECONDS)
    if a_day.amount > host.limit("host.memory_errors_rising", "a_day"):
        measured = f"{a_day.amount:.0f} corrected memory errors in {length_of_time(a_day.seconds)}, of {where}"
        yield of_host("host.memory_errors_rising", measured, a_day.amount, where)


def _errors(host: HostEvidence, severity: str, seconds: float) -> tuple[Amount, str]:
    """Return errors within the last `seconds`, and the memory controllers that had them, as text."""
    rises = host.rises(GPU_HOST_EDAC_ERRORS_TOTAL, seconds, "controller", severity=severity)
    rising = [controller for controller, rise in rises.items() if rise.amount]
    modules = {
        labels["dimm_label"] or labels["dimm"]
        for labels in host.labels_of(GPU_HOST_EDAC_DIMM_ERRORS_TOTAL, severity=severity)
        if labels["controller"] in rising and host.risen(GPU_HOST_EDAC_DIMM_ERRORS_TOTAL, seconds, **labels).amount
    }
    where = f"memory controller {', '.join(rising)}" + (f", {first_few(sorted(modules), _SHOWN)}" if modules else "")
    return sum_of(rises.values()), where


def _of_owner(labels: Mapping[str, str]) -> str:
    if labels["slurm_job_id"]:
        return f" of Slurm job {labels['slurm_job_id']}"
    return f" of pod {labels['pod_uid']}" if labels["pod_uid"] else ""


def first_of(said: Sequence[str]) -> str:
    """Join the first few facts, and the number of remaining ones."""
    more = f"; {len(said) - _SHOWN} more" if len(said) > _SHOWN else ""
    return "; ".join(said[:_SHOWN]) + more


def _network(host: HostEvidence) -> Iterator[Finding]:
    """Yield one finding per kind of trouble, naming the affected ports and interfaces."""
    lost = _lost_links(host, infiniband.GPU_HOST_INFINIBAND_LINK_DOWNS_TOTAL, "network.port_flapping")
    each, words = "{port} {count:.0f}", "link lost in the last hour: {ports}"
    yield from _of_ports("network.port_flapping", lost, words, f"{each} times", value=max)
    for code, spec, words, said in (
        ("network.port_errors", infiniband.GPU_HOST_INFINIBAND_LINK_ERRORS_TOTAL, "{ports}", f"{each} link errors"),
        ("network.timeouts", infiniband.GPU_HOST_INFINIBAND_TIMEOUTS_TOTAL, "requests not acknowledged: {ports}", each),
        ("network.interface_errors", network_interfaces.GPU_HOST_NETWORK_ERRORS_TOTAL, "bad packets: {ports}", each),
    ):
        by = (name for name in spec.labels if name != "direction")
        rises = host.rises(spec, thresholds.EVENTS_REMEMBERED_SECONDS, *by)
        rose = known({port: many(rise, host.limit(code, "count")) for port, rise in rises.items()})
        yield from _of_ports(code, rose, f"{words} {lately(host)}", said, value=max)
    ratios = host.series(infiniband.GPU_HOST_INFINIBAND_RATE_EXPECTED_RATIO)
    slow, words = {each.name: each.last for each in ratios if each.high < 1}, "{ports} of the rate that it should have"
    yield from _of_ports("network.port_slow", slow, words, "{port} at {count:.0%}", value=min)
    alone = {each.name: each.last for each in host.series(infiniband.GPU_HOST_INFINIBAND_GID_MISSING) if each.low}
    yield from _of_ports("network.gid_missing", alone, "without a RoCE v2 address: {detail}")
    up = {port.name: port for port in host.series(infiniband.GPU_HOST_INFINIBAND_UP)}
    down = {name: port.last for name, port in up.items() if not port.last and was_up(host, port.values)}
    yield from _of_ports("network.port_down", down, "was up, and is down: {ports}")
    states = host.series(infiniband.GPU_HOST_INFINIBAND_PHYSICAL_STATE)
    linked = {each.name: each.last for each in states if each.low == infiniband.PORT_LINK_UP}
    waiting = {name: state for name, state in linked.items() if name in up and up[name].high == 0}
    yield from _of_ports("network.port_waiting", waiting, "link up and port not active: {ports}")
    yield from _degraded(host)


def _of_ports(
    code: str,
    ports: Mapping[str, float],
    measured: str,
    each: str = "{port}",
    *,
    value: Callable[[Collection[float]], float] = len,
) -> Iterator[Finding]:
    """Yield a finding about ports, if there are any, by name: ``mlx5_3:1``, in its detail ``mlx5_3 port 1``."""
    if ports:
        listed = ", ".join(each.format(port=port, count=count) for port, count in ports.items())
        detail = first_few([port.replace(":", " port ") for port in ports], _SHOWN)
        yield of_host(code, measured.format(ports=listed, detail=detail), value(ports.values()), detail)


def _lost_links(host: HostEvidence, spec: MetricSpec, code: str) -> dict[str, float]:
    """Return how often each port or interface lost its link in the last hour, of those above the finding's limit."""
    rises = host.rises(spec, thresholds.PORT_DOWNS_SECONDS, *spec.labels)
    return {name: rise.amount for name, rise in rises.items() if rise.amount > host.limit(code, "downs")}


def _degraded(host: HostEvidence) -> Iterator[Finding]:
    """Yield a finding about interfaces that keep losing their link, or became slower."""
    lost = _lost_links(host, network_interfaces.GPU_HOST_NETWORK_CARRIER_DOWNS_TOTAL, "network.link_degraded")
    slow = [each for each in host.series(network_interfaces.GPU_HOST_NETWORK_SPEED_EXPECTED_RATIO) if each.high < 1]
    words = [f"{name} lost its link {count:.0f} times in the last hour" for name, count in lost.items()]
    words += [f"{each.name} runs at {each.last:.0%} of the speed that it had" for each in slow]
    if words:
        detail = first_few([*lost, *(each.name for each in slow)], _SHOWN)
        yield of_host("network.link_degraded", "; ".join(words), len(words), detail)


def _cpu_settings(host: HostEvidence) -> Iterator[Finding]:
    """Yield findings about the clock of the busiest CPUs, and the kernel's clock source."""
    governors = ", ".join(each["governor"] for each in host.labels_of(cpu.GPU_HOST_CPU_GOVERNOR_POLICIES))
    for clock in host.recent.series(cpu.GPU_HOST_CPU_BUSIEST_FREQUENCY_RATIO):
        node = clock.labels["numa_node"]
        busiest = host.recent.one(cpu.GPU_HOST_CPU_BUSIEST_RATIO, numa_node=node)
        is_busy = busiest is not None and busiest.low >= host.limit("cpu.slow_clock", "busy")
        if is_busy and clock.high < host.limit("cpu.slow_clock", "ratio"):
            by = f", governor {governors}" if governors else ""
            measured = f"the busiest CPU of NUMA node {node} runs at {clock.high:.0%} of its clock{by}"
            yield of_host("cpu.slow_clock", measured, clock.high, f"NUMA node {node}{by}")
    for source in host.labels_of(cpu.GPU_HOST_CLOCK_SOURCE_INFO):
        if source["clock_source"] in cpu.SLOW_CLOCK_SOURCES:
            name = source["clock_source"]
            yield of_host("host.clock_source", f"the kernel takes the time from {name}", detail=name)
