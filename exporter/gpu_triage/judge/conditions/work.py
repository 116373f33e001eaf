"""Is the GPU starved, does its job hang, or is the software at fault? Resources, processes, placement, settings."""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

from gpu_triage.judge.bottleneck.classes import STARVED, Bottleneck, Bottlenecks
from gpu_triage.judge.evidence import thresholds
from gpu_triage.judge.evidence.gpu import GpuEvidence
from gpu_triage.judge.evidence.host import HostEvidence
from gpu_triage.judge.evidence.limited_jobs import LimitedJob, killed_at_limit, limited_job
from gpu_triage.judge.evidence.owners import (
    GpuOwner,
    allocated_to,
    idle_for_a_reason,
    is_explained,
    loaded_bytes_per_second,
    owners_of,
    owners_text,
    saves,
    saving_explains_seconds,
)
from gpu_triage.judge.evidence.remember import Count, Share, is_held
from gpu_triage.judge.evidence.wording import first_few, length_of_time, ranges
from gpu_triage.judge.findings.finding import Finding, of_gpu, of_host
from gpu_triage.judge.findings.table import BY_CODE
from gpu_triage.read.baseline.differences import GPU_BASELINE_MISMATCH
from gpu_triage.read.gpu import nvlink, pcie
from gpu_triage.read.gpu.device_memory import GPU_MEMORY_TOTAL_BYTES
from gpu_triage.read.gpu.modes import GPU_PERSISTENCE_MODE, GPU_VGPU_LICENSE_STATE, LICENSED
from gpu_triage.read.host.cpu import GPU_HOST_CPUS
from gpu_triage.read.host.host_memory import GPU_HOST_SWAP_IN_BYTES_TOTAL
from gpu_triage.read.host.infiniband import GPU_HOST_INFINIBAND_TRANSMIT_BYTES_TOTAL
from gpu_triage.read.processes import on_gpu
from gpu_triage.read.processes.threads import GPU_MAIN_THREAD_CPU_SECONDS_TOTAL
from gpu_triage.read.processes.vitals import GPU_PROCESS_BLOCKED_SINCE_TIMESTAMP_SECONDS

_SHARING: Final = 2
_NAMED: Final = re.compile(
    r"(?:NFS|Lustre|disk|NUMA node|server|target|thread \S+ of process) \S+|\S+(?= (?:receives|sends|went down|had) )"
)
_PORT: Final = re.compile(r"^(\w+):(\d+)$")
"""The parts that a reason names: a mount, a disk, an adapter; its other words are measurements."""
_SPINS: Final = "busy at low power, and no data moves"
_PCIE_TRAFFIC: Final = (pcie.GPU_PCIE_TRANSMIT_BYTES_TOTAL, pcie.GPU_PCIE_RECEIVE_BYTES_TOTAL)
_NVLINK_TRAFFIC: Final = (nvlink.GPU_NVLINK_TRANSMIT_BYTES_TOTAL, nvlink.GPU_NVLINK_RECEIVE_BYTES_TOTAL)


def time_in_class(name: str, gpu: GpuEvidence, bottleneck: Bottleneck) -> str:
    """Return why a GPU is in a class, or its recent share of time in it if that is most of it; else ""."""
    if bottleneck.name == name:
        return bottleneck.because
    share = bottleneck.lately.get(name, 0.0) if gpu.up else 0.0
    return f"in class {name} for {share:.0%} of the last minutes" if share > thresholds.CLASS_SHARE else ""


def stopped(host: HostEvidence, gpu: GpuEvidence, bottleneck: Bottleneck) -> str:
    """Return how a GPU stopped directly after it worked; "" if it did not, or if its host explains it."""
    seconds = bottleneck.stopped_seconds
    if seconds < thresholds.STOPPED_SECONDS or not _stands_still(gpu, bottleneck):
        return ""
    if is_explained(host.recent, gpu, seconds):
        return ""
    unknown = "" if saves(host.recent, gpu) is not None else "; what its job writes is not known"
    return f"no work for {seconds:.0f} s, directly after it worked{unknown}"


def _hangs(host: HostEvidence, bottlenecks: Bottlenecks) -> Iterator[Finding]:
    """Yield the GPUs of this host that are stuck in a collective, waiting for a missing rank.

    GPUs of a job are stuck together if none of them works: an evaluation on one of them, or a checkpoint that the job
    saves, makes the others wait as long. Slow communication would move data; without counters, none is known to spin.
    """
    stuck = {text: gpus for gpus in _jobs(host, bottlenecks) if (text := _stuck_ranks(host, gpus, bottlenecks))}
    if not stuck:
        # Whatever else their job does: nothing that they wait for takes so long.
        spinning = (gpu for gpu, each in bottlenecks.items() if each.spinning_seconds >= thresholds.UNEXPLAINED_SECONDS)
        lasting = [gpu for gpu in spinning if _is_silent(host, gpu)]
        if len(lasting) >= thresholds.SILENT_GPUS:
            stuck = {f"GPU {_indices(lasting)}: {_SPINS}": lasting}
    if stuck:
        indices = [gpu.gpu for gpus in stuck.values() for gpu in gpus]
        yield of_host("work.collective_hang", "; ".join(stuck), len(indices), f"GPU {ranges(indices)}")


def _jobs(host: HostEvidence, bottlenecks: Bottlenecks) -> Iterator[Sequence[GpuEvidence]]:
    """Yield the GPUs of each job with several ranks on this host; all GPUs without a known owner are one job."""
    jobs: dict[tuple[GpuOwner, ...], list[GpuEvidence]] = defaultdict(list)
    for gpu in host.answering:
        if gpu in bottlenecks and not gpu.partitioned and gpu.occupied:
            jobs[owners_of(gpu)].append(gpu)
    for gpus in jobs.values():
        pids = {labels["pid"] for gpu in gpus for labels in gpu.labels_of(on_gpu.GPU_PROCESS_INFO)}
        # One process on several GPUs has no ranks: it may be a notebook.
        if len(gpus) >= thresholds.SILENT_GPUS and len(pids) != 1:
            yield gpus


def _stuck_ranks(host: HostEvidence, gpus: Sequence[GpuEvidence], bottlenecks: Bottlenecks) -> str:
    """Describe how the GPUs of one job are stuck; "" if one of them works, or not for long enough."""
    stopped_for: dict[GpuEvidence, float] = {}
    spinning_for: dict[GpuEvidence, float] = {}
    for gpu in gpus:
        bottleneck = bottlenecks[gpu]
        if bottleneck.stopped_seconds and _stands_still(gpu, bottleneck):
            stopped_for[gpu] = bottleneck.stopped_seconds
        elif bottleneck.spins_after_work and bottleneck.spinning_seconds and _is_silent(host, gpu):
            spinning_for[gpu] = bottleneck.spinning_seconds
        else:
            return ""
    seconds = min((*stopped_for.values(), *spinning_for.values()))
    least = thresholds.STOPPED_SECONDS if stopped_for else thresholds.STUCK_SECONDS
    if stopped_for and spinning_for:
        least = thresholds.WAITED_FOR_SECONDS
    if seconds < max(least, saving_explains_seconds(host.recent, gpus[0])):
        return ""
    stops, spins = f"GPU {_indices(stopped_for)} stopped", f"GPU {_indices(spinning_for)}: {_SPINS}"
    if spinning_for:
        return f"{stops}; {spins}" if stopped_for else spins
    explained = all(idle_for_a_reason(host.recent, gpu) for gpu in stopped_for)
    return "" if explained else f"{stops} together, directly after they worked"


def _indices(gpus: Iterable[GpuEvidence]) -> str:
    return ", ".join(gpu.gpu for gpu in gpus)


def _stands_still(gpu: GpuEvidence, bottleneck: Bottleneck) -> bool:
    """Whether it is idle with memory held, and does not wait for its host."""
    return gpu.held_idle and bottleneck.name not in STARVED


def _is_silent(host: HostEvidence, gpu: GpuEvidence) -> bool:
    """Whether its traffic to other GPUs is counted and does not grow.

    NVLinks that are down carry nothing, so only PCIe traffic counts then. What goes to other hosts crosses the GPU's
    own links too, except on boards with NVLink-C2C; only there the traffic of the host's adapters counts.
    """
    sent = host.rate(GPU_HOST_INFINIBAND_TRANSMIT_BYTES_TOTAL) or 0.0
    if gpu.last(nvlink.GPU_C2C_LINKS_UP) and sent > thresholds.SILENT_BYTES_PER_SECOND:
        return False
    counters = (*_PCIE_TRAFFIC, *(_NVLINK_TRAFFIC if gpu.last(nvlink.GPU_NVLINK_LINKS_UP) else ()))
    rates = [rate for spec in counters if (rate := gpu.rate(spec)) is not None]
    return bool(rates) and max(rates) <= thresholds.SILENT_BYTES_PER_SECOND


def judge_work(host: HostEvidence, bottlenecks: Bottlenecks) -> Iterator[Finding]:
    """Yield starved GPUs, hung or idle jobs, bad placement of processes and memory, and settings that drifted."""
    yield from _scarcity(host, bottlenecks)
    yield from _hangs(host, bottlenecks)
    yield from _killed(host)
    yield from _classes(host, bottlenecks)
    for gpu in host.answering:
        yield from _blocked(gpu)
        if unused := _unused(gpu):
            yield of_gpu("work.allocated_unused", gpu, unused)
        yield from _allocated_idle(gpu)
        yield from _locality(gpu)
        yield from _memory_growth(gpu)
        if gpu.last(GPU_PERSISTENCE_MODE) == 0:
            yield of_gpu("policy.persistence", gpu, "persistence mode is off")
        for state in gpu.series(GPU_VGPU_LICENSE_STATE):
            if state.last != LICENSED:
                product = state.labels["product"] or "its license"
                measured = f"{product}: {GPU_VGPU_LICENSE_STATE.states[int(state.last)]}"
                yield of_gpu("vgpu.unlicensed", gpu, measured, detail=state.labels["product"])
    yield from _placement([gpu for gpu in host.answering if not gpu.partitioned])
    yield from _baseline(host)


def _classes(host: HostEvidence, bottlenecks: Bottlenecks) -> Iterator[Finding]:
    """Yield GPUs that spun for most of the last minutes, that stopped, or that are idle with memory in use."""
    for gpu, bottleneck in bottlenecks.items():
        if spins := time_in_class("communication", gpu, bottleneck):
            yield of_gpu("work.low_power", gpu, spins, value=gpu.power_share)
        if hangs := time_in_class("hung", gpu, bottleneck) or stopped(host, gpu, bottleneck):
            yield of_gpu("work.hung", gpu, f"{hangs}; {_held(gpu)}", detail=gpu.process_names)
        elif bottleneck.name == "unattributed" and gpu.held_idle:
            yield of_gpu("work.held_idle", gpu, _idles(host, gpu, bottleneck), value=gpu.busy_share or 0.0)


def _idles(host: HostEvidence, gpu: GpuEvidence, bottleneck: Bottleneck) -> str:
    """Describe a GPU with a job that does nothing by what is known of it, which does not show a hang."""
    stopped, starting = bottleneck.stopped_seconds, bottleneck.starting_seconds
    cpus = gpu.rate(GPU_MAIN_THREAD_CPU_SECONDS_TOTAL)
    known = (
        f"{_held(gpu)}, busy {gpu.busy_share or 0.0:.0%} of the time",
        f"no work for {length_of_time(stopped)}" if stopped else "",
        f"no work since its processes began {length_of_time(starting)} ago" if starting else "",
        "" if cpus is None else f"its main threads use {cpus:.1f} CPUs",
        idle_for_a_reason(host.recent, gpu),
    )
    return "; ".join(filter(None, known))


def _loads(host: HostEvidence, gpu: GpuEvidence, bottleneck: Bottleneck) -> bool:
    """Whether its job has not begun to work and makes progress: it reads what it needs for that."""
    own = loaded_bytes_per_second(host, gpu)
    read = host.bytes_per_second("read") if own is None else own
    return bottleneck.starting_seconds > 0 and read >= thresholds.LOADING_BYTES_PER_SECOND


def _scarcity(host: HostEvidence, bottlenecks: Bottlenecks) -> Iterator[Finding]:
    swapped = host.risen(GPU_HOST_SWAP_IN_BYTES_TOTAL, thresholds.WINDOW_SECONDS).mean
    if swapped > host.limit("memory.swapping", "rate") and any(gpu.occupied for gpu in host.answering):
        yield of_host("memory.swapping", f"{swapped / 1024**2:.1f} MiB/s read back from swap", swapped)
    # Outputs of other tools, pasted without one of nvidia-smi: one full CPU may be what feeds a GPU.
    unplaced = [""] if host.has(GPU_HOST_CPUS, numa_node="") else []
    nodes = sorted({gpu.node for gpu in host.gpus}, key=str) or unplaced
    busy_nodes = (host.recent.scarce_cpu(node, single=not host.gpus) for node in nodes)
    scarce = {
        "memory": None,
        "storage": host.recent.scarce_storage(measured=True),
        "cpu": next((reason for reason in busy_nodes if reason is not None), None),
        "network": host.recent.scarce_network(),
    }
    for resource, reason in scarce.items():
        spent = {gpu: because for gpu, each in bottlenecks.items() if (because := time_in_class(resource, gpu, each))}
        if resource == "storage":
            # Of a blocked one, data does not come slowly, it does not come: work.blocked explains why.
            others = (gpu for gpu in spent if not any(_blocked(gpu)) and not _loads(host.recent, gpu, bottlenecks[gpu]))
            spent = {gpu: spent[gpu] for gpu in others}
        limited = {gpu: limit for gpu in spent if (limit := _limit(resource, gpu, bottlenecks[gpu]))}
        if limited:
            worst, code = max(limited.values()), f"{resource}.limited"
            measured = f"{_counted(limited)} waiting: {worst.because}"
            # memory.limited also covers OOM kills, which have no share.
            share = worst.share if BY_CODE[code].measure else None
            yield of_host(code, measured, share, worst.limit, loss=_lost(resource, limited, bottlenecks))
        if starved := {gpu: because for gpu, because in spent.items() if gpu not in limited}:
            # Why a GPU waits now is more useful than how long one waited.
            now = (each.because for gpu in starved if (each := bottlenecks[gpu]).name == resource)
            because = next(now, next(iter(starved.values())))
            silent = "; ".join(host.silent_servers()) if resource == "storage" else ""
            named = dict.fromkeys(_PORT.sub(r"\1 port \2", name) for name in _NAMED.findall(silent or because))
            detail = ", ".join((f"GPU {ranges(gpu.gpu for gpu in starved)}", *named))
            advice = BY_CODE["storage.not_responding"].advice if silent else None
            measured = f"{_counted(starved)} waiting: {because}"
            lost = _lost(resource, starved, bottlenecks)
            yield of_host(f"{resource}.starved", measured, len(starved), detail, cause_advice=advice, loss=lost)
        elif reason is not None:
            yield of_host(f"{resource}.saturated", reason)


def _lost(resource: str, gpus: Iterable[GpuEvidence], bottlenecks: Bottlenecks) -> float | None:
    """Return the most that a job loses of its pace on GPUs that wait now; None if unknown."""
    waiting = (bottlenecks[gpu] for gpu in gpus if bottlenecks[gpu].name == resource)
    return max((each.loss for each in waiting if each.loss is not None), default=None)


def _limit(resource: str, gpu: GpuEvidence, bottleneck: Bottleneck) -> LimitedJob | None:
    return (bottleneck.limit if bottleneck.name == resource else None) or limited_job(resource, gpu, lately=True)


def _killed(host: HostEvidence) -> Iterator[Finding]:
    """Yield jobs with processes OOM-killed at their own memory limit, from cgroup counters; each cgroup once."""
    killed = {name: count for gpu in host.answering for name, count in killed_at_limit(gpu)}
    if killed:
        counts = ", ".join(f"{count:.0f} process{'es' if count > 1 else ''} of {n}" for n, count in killed.items())
        measured = f"killed at the job's own memory limit: {counts}"
        yield of_host("memory.limited", measured, detail=first_few([*killed], 3))


def _counted(gpus: Collection[GpuEvidence]) -> str:
    return f"{len(gpus)} GPU{'s' if len(gpus) > 1 else ''} ({', '.join(gpu.gpu for gpu in gpus)})"


def _held(gpu: GpuEvidence) -> str:
    held = (gpu.held_bytes or 0.0) / 1024**3
    return f"{held:.1f} GiB held by {gpu.process_names or 'a process'}"


def _blocked(gpu: GpuEvidence) -> Iterator[Finding]:
    for since in gpu.series(GPU_PROCESS_BLOCKED_SINCE_TIMESTAMP_SECONDS):
        seconds, labels = gpu.age_seconds(since.last), since.labels
        if seconds >= gpu.limit("work.blocked", "stuck"):
            where = f" in {labels['wait_channel']}" if labels["wait_channel"] else ""
            process = f"{labels['process'] or 'process'} ({labels['pid']})"
            measured = f"{process} has waited{where} for {length_of_time(seconds)} without running"
            yield of_gpu("work.blocked", gpu, measured, value=seconds, detail=f"{process}{where}")


def _unused(gpu: GpuEvidence) -> str:
    """Describe the owner of an allocated GPU without processes; "" if it is not allocated, or is in use."""
    given = "" if gpu.partitioned else owners_text(sorted(allocated_to(gpu)))
    free = gpu.processes_known and not gpu.works and not sum(gpu.lasts(on_gpu.GPU_PROCESSES))
    return f"allocated to {given}, no process on it" if given and free else ""


def _allocated_idle(gpu: GpuEvidence) -> Iterator[Finding]:
    """Yield a job that has held the GPU for hours and hardly used it."""
    seconds = thresholds.ALLOCATED_IDLE_SECONDS
    held, busy = (gpu.memory.over(gpu.key, share, seconds) for share in (Share.HELD, Share.BUSY))
    if held.seconds >= seconds and held.amount >= seconds and busy.mean < thresholds.WORKING_SHARE and is_held(gpu):
        measured = f"held for {length_of_time(seconds)}, and busy {busy.mean:.0%} of that time"
        yield of_gpu("work.allocated_idle", gpu, measured, value=busy.mean)


def _locality(gpu: GpuEvidence) -> Iterator[Finding]:
    if gpu.last(on_gpu.GPU_NUMA_MISMATCHED_PROCESSES):
        remote = [each.labels for each in gpu.series(on_gpu.GPU_PROCESS_NUMA_LOCAL) if each.last == 0]
        names = ", ".join(f"{each['process'] or 'process'} ({each['pid']}){_distance(gpu, each)}" for each in remote)
        measured = f"GPU on node {gpu.node}, on far nodes: {names or 'a process'}"
        count = gpu.last(on_gpu.GPU_NUMA_MISMATCHED_PROCESSES)
        yield of_gpu("numa.mismatch", gpu, measured, value=count, detail=names)


def _distance(gpu: GpuEvidence, labels: Mapping[str, str]) -> str:
    distance = gpu.last(on_gpu.GPU_PROCESS_NUMA_DISTANCE, pid=labels["pid"], process=labels["process"])
    return "" if distance is None else f" at distance {distance:.0f}"


def _memory_growth(gpu: GpuEvidence) -> Iterator[Finding]:
    full, total = gpu.memory_share, gpu.last(GPU_MEMORY_TOTAL_BYTES) or 0.0
    grown = gpu.memory.over(gpu.key, Count.MEMORY_GROWTH, thresholds.MEMORY_GROWTH_SECONDS).amount
    most, growth = gpu.limit("work.memory_full", "full"), gpu.limit("work.memory_full", "growth")
    if full is None or full <= most or grown <= growth * total:
        return
    measured = f"{full:.1%} in use, {grown / 1024**2:.0f} MiB more than before"
    yield of_gpu("work.memory_full", gpu, measured, value=full)


def _placement(whole: list[GpuEvidence]) -> Iterator[Finding]:
    """Yield processes, or memory, crowded on one GPU while another is free."""
    for gpu in whole:
        siblings = [other for other in whole if other is not gpu and other.name == gpu.name]
        free = [other for other in siblings if other.processes_known and not other.occupied]
        if free and gpu.compute_processes >= _SHARING and _of_one_owner(gpu) >= _SHARING:
            idle, count = ", ".join(other.gpu for other in free), gpu.compute_processes
            measured = f"{count} compute processes, none on GPU {idle}: {gpu.process_names}"
            yield of_gpu("work.imbalance", gpu, measured, value=count, detail=f"{count} processes, none on GPU {idle}")
        least, most = (gpu.limit("work.memory_imbalance", name) for name in ("empty", "full"))
        # Where processes are unknown, as in an extract of nvidia-smi, only memory shows who is free.
        unused = [*free, *(other for other in siblings if not other.processes_known and other.memory_share is not None)]
        empty = [other for other in unused if (other.memory_share or 0.0) < least]
        if gpu.occupied and empty and (gpu.memory_share or 0.0) > most:
            measured = f"memory {gpu.memory_share:.0%} full, GPU {empty[0].gpu} {empty[0].memory_share or 0:.0%}"
            yield of_gpu("work.memory_imbalance", gpu, measured, value=gpu.memory_share)


def _of_one_owner(gpu: GpuEvidence) -> int:
    """Return the most processes with one owner (all if not listed): different owners share a GPU on purpose."""
    owners = Counter(
        tuple(labels[name] for name in ("user", "container_id", "pod_uid", "slurm_job_id"))
        for labels in gpu.labels_of(on_gpu.GPU_PROCESS_INFO)
    )
    return max(owners.values(), default=gpu.compute_processes)


def _baseline(host: HostEvidence) -> Iterator[Finding]:
    """Yield fields of the host and each GPU that differ from the recorded baseline."""
    drifted: dict[tuple[str, str], list[str]] = defaultdict(list)
    for mismatch in host.series(GPU_BASELINE_MISMATCH):
        if mismatch.last:
            drifted[mismatch.labels["gpu"], mismatch.labels["uuid"]].append(mismatch.labels["field"])
    for (gpu, uuid), fields in drifted.items():
        differs = f"differs in {', '.join(sorted(fields))}"
        detail = first_few(sorted(fields), 3)
        yield Finding(BY_CODE["baseline.drift"], differs, gpu or None, uuid, value=len(fields), detail=detail)
