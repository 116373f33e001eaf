"""Contents of the simulated procfs: the host's counters, and the processes that use GPUs."""

import uuid
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Final

from gpu_triage.driver.kernel.procfs import KINDS, RESOURCES
from gpu_triage.read.host.cpu import MODES
from gpu_triage_simulator import host_effects
from gpu_triage_simulator.host import SimulatedHost
from gpu_triage_simulator.scenario import NfsMount, Nic, Process, Scenario, cpu_count, cpu_numbers

_TICKS: Final = 100
"""USER_HZ: /proc counts CPU time in hundredths of a second."""
_SECTOR: Final = 512
_MODULES: Final = {
    "nvidia_peermem": "nvidia_peermem 16384 0 - Live 0x0000000000000000 (OE)",
    "nvidia_uvm": "nvidia_uvm 1679360 4 - Live 0x0000000000000000 (OE)",
    "nvidia_drm": "nvidia_drm 126976 2 - Live 0x0000000000000000 (OE)",
    "nvidia_modeset": "nvidia_modeset 1327104 1 nvidia_drm, Live 0x0000000000000000 (OE)",
    "nvidia": "nvidia 62287872 72 nvidia_uvm,nvidia_modeset, Live 0x0000000000000000 (OE)",
}
_NET_HEADER: Final = (
    "Inter-|   Receive                                                |  Transmit\n"
    " face |bytes    packets errs drop fifo frame compressed multicast"
    "|bytes    packets errs drop fifo colls carrier compressed\n"
)
_PACKET_BYTES: Final = 4000
_OTHER_THREAD: Final = 5
"""Difference between the thread ID of a process's second thread and its PID."""
FABRIC_MANAGER_PID: Final = 2741
_EXPORTER_PID: Final = 3977
"""The exporter's PID on the host; in its own PID namespace it is process 1."""
_OWN_PID_NAMESPACE: Final = "pid:[4026532999]"


def own_files(scenario: Scenario) -> dict[str, str]:
    """Text of the exporter's own files in procfs, if it has its own PID namespace."""
    if scenario.exporter_view.host_pids:
        return {}
    pids = ["1"] if not scenario.exporter_view.host_procfs else [str(_EXPORTER_PID), "1"]
    return {"self/status": "Name:\tgpu-triage\nPid:\t{}\nNSpid:\t{}\n".format(pids[0], "\t".join(pids))}


def own_links(scenario: Scenario) -> dict[str, str]:
    """As `own_files`, targets of symbolic links; they name a namespace and are dangling."""
    return {} if scenario.exporter_view.host_pids else {"self/ns/pid": _OWN_PID_NAMESPACE}


def files(host: SimulatedHost, seconds: float) -> dict[str, str]:
    """Text of every file except the processes', by its path below procfs."""
    hosts = host.scenario.exporter_view.host_procfs
    counters, rates = host.host.counters(seconds), host.host.rates(seconds)
    load = _running_cpus(host, seconds)
    found = {
        "stat": _stat(host, seconds),
        "cpuinfo": f"flags\t\t: fpu vme de pse{' hypervisor' if host.scenario.machine.virtual else ''}\n",
        "loadavg": f"{load:.2f} {load:.2f} {load:.2f} {int(load) + 1}/4096 99999\n",
        "meminfo": _meminfo(host, seconds),
        "vmstat": _vmstat(counters),
        "diskstats": _diskstats(host.scenario, counters),
        # A container's own procfs shows the container's network and process 1.
        "net/dev": _network(host.scenario.machine.nic if hosts else (), counters),
        "net/snmp": _tcp(host.scenario.machine.nic if hosts else (), counters),
        "modules": _modules(host, seconds),
        "sys/kernel/random/boot_id": f"{_boot_id(host.scenario.name, len(host.boots(seconds)))}\n",
        "uptime": f"{host.uptime(seconds):.2f} {counters['cpu.0.idle']:.2f}\n",
    }
    if hosts:
        found["1/comm"] = "systemd\n"
        if host.scenario.machine.nvswitch:
            stopped = host.timeline.host_active(host_effects.ServiceStopped, seconds)
            found[f"{FABRIC_MANAGER_PID}/comm"] = "" if stopped else "nv-fabricmanage\n"
    # Process 1 has the host's mounts, wherever the exporter runs. A container's own procfs shows the container's.
    found["1/mountstats" if hosts else "self/mountstats"] = _mountstats(
        host.scenario.machine.nfs if hosts else (), counters
    )
    if hosts:
        found |= _file_systems(host, seconds) | _written(host, seconds)
    for resource in RESOURCES:
        lines = []
        for kind in KINDS:
            share = rates[f"psi.{resource}.{kind}"] * 100
            total = int(counters[f"psi.{resource}.{kind}"] * 1_000_000)
            lines.append(f"{kind} avg10={share:.2f} avg60={share:.2f} avg300={share:.2f} total={total}\n")
        found[f"pressure/{resource}"] = "".join(lines)
    return found


def _written(host: SimulatedHost, seconds: float) -> dict[str, str]:
    """Text of ``/proc/PID/io`` of the processes that the scenario has writing."""
    counts: dict[int, float] = {}
    for event, effect in host.timeline.host(host_effects.Writes):
        for pid in (pid for pid in effect.pids if host.timeline.running(pid, seconds)):
            lasted = max(0.0, (seconds if event.until is None else min(seconds, event.until)) - event.at)
            counts[pid] = counts.get(pid, 0.0) + lasted * effect.bytes_per_second
    return {f"{pid}/io": f"wchar: {int(count)}\nwrite_bytes: {int(count)}\n" for pid, count in counts.items()}


@cache
def _boot_id(scenario: str, boots_before: int) -> str:
    """Derived from the scenario, so that it is the same in every run."""
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, f"{scenario} {boots_before}" if boots_before else scenario))


def processes(host: SimulatedHost, seconds: float) -> dict[int, dict[str, str]]:
    if not host.scenario.exporter_view.host_procfs:
        return {}
    everywhere = f"0-{cpu_count(host.scenario) - 1}"
    last_node = len(host.scenario.machine.node) - 1
    nodes = f"0-{last_node}" if last_node else "0"
    return {
        process.pid: _process(process, process.cpus or everywhere, nodes, _began(host, process, seconds))
        | {"numa_maps": _numa_maps(process, host.scenario)}
        | _second_thread(process)
        | _blocked(host, process, seconds)
        for process in host.scenario.processes
        if host.timeline.running(process.pid, seconds)
    }


def _began(host: SimulatedHost, process: Process, seconds: float) -> float:
    """When it began, in seconds since boot."""
    return host.uptime(host.timeline.began(process.pid, seconds))


def _second_thread(process: Process) -> dict[str, str]:
    thread = process.pid + _OTHER_THREAD
    tail = f"S 1 {process.pid}" + " 0" * 47
    return {f"task/{thread}/stat": f"{thread} ({process.thread}) {tail}\n"} if process.thread else {}


def _blocked(host: SimulatedHost, process: Process, seconds: float) -> dict[str, str]:
    """Files that show a thread blocked in the kernel, if the scenario ever blocks one in this process."""
    found: dict[str, str] = {}
    for event, blocked in host.timeline.host(host_effects.BlockedThreads):
        if process.pid not in blocked.pids:
            continue
        thread = process.pid if blocked.first_thread else process.pid + _OTHER_THREAD
        holds = event.active(seconds)
        # A blocked thread does not switch context; a running one does between any two polls.
        switches = int(event.at if holds else seconds)
        stat = f"{thread} ({process.name}) {'D' if holds else 'S'} 1 {process.pid}" + " 0" * 47 + "\n"
        found |= {
            f"task/{thread}/stat": stat,
            f"task/{thread}/status": f"voluntary_ctxt_switches:\t{switches}\nnonvoluntary_ctxt_switches:\t7\n",
            f"task/{thread}/wchan": blocked.wait_channel if holds else "0",
        }
        if blocked.first_thread and holds:
            first = _process(process, process.cpus or "0", "0", _began(host, process, seconds))["stat"]
            found["stat"] = first.replace(") S ", ") D ", 1)
    return found


def _process(process: Process, cpus: str, nodes: str, started_seconds: float) -> dict[str, str]:
    uid = process.uid
    resident = process.memory_mib * 1024
    mask = sum(1 << cpu for cpu in cpu_numbers(cpus))
    words = [f"{mask >> shift & 0xFFFFFFFF:08x}" for shift in range((mask.bit_length() - 1) // 32 * 32, -1, -32)]
    started = int(started_seconds * _TICKS)
    status = {
        "Name": process.name,
        "Umask": "0022",
        "State": "R (running)" if process.sm else "S (sleeping)",
        "Tgid": process.pid,
        "Pid": process.pid,
        "PPid": 1,
        "Uid": f"{uid}\t{uid}\t{uid}\t{uid}",
        "Gid": f"{uid}\t{uid}\t{uid}\t{uid}",
        "VmRSS": f"{resident:8d} kB",
        "Threads": 32,
        "Cpus_allowed": ",".join(words),
        "Cpus_allowed_list": cpus,
        "Mems_allowed_list": nodes,
    }
    tail = f"0 0 -1 4194560 0 0 0 0 360000 36000 0 0 20 0 32 0 {started} 0 {resident // 4}" + " 0" * 28
    return {
        "comm": f"{process.name}\n",
        "status": "".join(f"{key}:\t{value}\n" for key, value in status.items()),
        "stat": f"{process.pid} ({process.name}) S 1 {process.pid} {tail}\n",
        "cgroup": f"0::{process.cgroup}\n",
    }


def _numa_maps(process: Process, scenario: Scenario) -> str:
    """Half of the memory in transparent huge pages or smaller, half in hugetlbfs, on the nodes of first touch."""
    mine = set(cpu_numbers(process.cpus)) if process.cpus else set()
    nodes = [i for i, node in enumerate(scenario.machine.node) if not mine or mine & set(cpu_numbers(node.cpus))]
    if process.memory_node is not None:
        nodes = [process.memory_node]
    mib = process.memory_mib // 2 // len(nodes)
    small, huge = (" ".join(f"N{node}={count}" for node in nodes) for count in (mib * 256, mib // 2))
    return (
        "555555554000 default file=/usr/bin/python3.11\n"
        f"7f0c2c000000 default anon={mib * 256 * len(nodes)} {small} kernelpagesize_kB=4\n"
        f"7f1000000000 default file=/anon_hugepage\\040(deleted) huge dirty={mib // 2 * len(nodes)} {huge}"
        " kernelpagesize_kB=2048\n"
        "7ffc3a1d0000 default stack\n"
    )


def _stat(host: SimulatedHost, seconds: float) -> str:
    counters, rates = host.host.counters(seconds), host.host.rates(seconds)
    lines: dict[int, list[int]] = {}
    for number, group in enumerate(host.host.cpu_groups):
        ticks = [int(counters[f"cpu.{number}.{mode}"] * _TICKS) for mode in MODES]
        lines |= dict.fromkeys(group.cpus, ticks)
    total = [sum(line[i] for line in lines.values()) for i in range(len(MODES))]
    text = [
        _cpu_line("cpu ", total),
        *(_cpu_line(f"cpu{cpu}", lines[cpu]) for cpu in sorted(lines)),
        "intr 0",
        f"ctxt {int(counters['context_switches'])}",
        f"btime {round(host.wall(seconds) - host.uptime(seconds))}",
        f"processes {int(1000 + seconds)}",
        f"procs_running {int(_running_cpus(host, seconds))}",
        f"procs_blocked {round(rates['psi.io.some'] * 12)}",
        "",
    ]
    return "\n".join(text)


def _cpu_line(name: str, ticks: list[int]) -> str:
    return f"{name} {' '.join(map(str, ticks))} 0 0"


def _running_cpus(host: SimulatedHost, seconds: float) -> float:
    rates = host.host.rates(seconds)
    groups = enumerate(host.host.cpu_groups)
    return sum(len(group.cpus) * (1.0 - rates[f"cpu.{number}.idle"]) for number, group in groups)


def _meminfo(host: SimulatedHost, seconds: float) -> str:
    machine = host.scenario.machine
    total, available = machine.memory_gib * 2**20, machine.memory_available_gib * 2**20
    swap = machine.swap_gib * 2**20
    values = {
        "MemTotal": total,
        "MemFree": available * 0.3,
        "MemAvailable": available,
        "Buffers": total * 0.001,
        "Cached": available * 0.6,
        "SwapTotal": swap,
        "SwapFree": max(0.0, swap - host.host.swap_used_bytes(seconds) / 1024),
    }
    return "".join(f"{name + ':':<16}{int(value):>12} kB\n" for name, value in values.items())


def _vmstat(counters: Mapping[str, float]) -> str:
    swapped_in, swapped_out = int(counters["swap.in"]), int(counters["swap.out"])
    values = {
        "nr_free_pages": 5_000_000,
        "pgpgin": swapped_in * 4,
        "pgpgout": swapped_out * 4,
        "pswpin": swapped_in,
        "pswpout": swapped_out,
        "pgfault": int(counters["context_switches"]),
        "pgmajfault": swapped_in + 40_000,
        "oom_kill": 0,
    }
    return "".join(f"{name} {value}\n" for name, value in values.items())


def _diskstats(scenario: Scenario, counters: Mapping[str, float]) -> str:
    lines = ["   7       0 loop0 10 0 80 2 0 0 0 0 0 2 2 0 0 0 0 0 0\n"]
    for i, disk in enumerate(scenario.machine.disk):
        line = _disk_line(counters, disk.name)
        lines.append(f" 259 {i * 16:7d} {disk.name} {line}\n")
        for part in range(1, disk.partitions + 1):
            # Only the last partition is in use, so it has the disk's activity.
            shown = line if part == disk.partitions else " ".join("0" * 17)
            lines.append(f" 259 {i * 16 + part:7d} {disk.name}p{part} {shown}\n")
    return "".join(lines)


def _disk_line(counters: Mapping[str, float], name: str) -> str:
    def count(what: str, factor: float = 1.0) -> int:
        return int(counters[f"disk.{name}.{what}"] * factor)

    reading, writing = count("read_seconds", 1000), count("write_seconds", 1000)
    numbers = [
        *(count("reads"), 0, count("read_bytes", 1 / _SECTOR), reading),
        *(count("writes"), 0, count("write_bytes", 1 / _SECTOR), writing),
        *(0, count("busy", 1000), reading + writing),
        *(0, 0, 0, 0, 0, 0),
    ]
    return " ".join(map(str, numbers))


def _network(nics: Sequence[Nic], counters: Mapping[str, float]) -> str:
    lines = [_NET_HEADER, "    lo: 1000 10 0 0 0 0 0 0 1000 10 0 0 0 0 0 0\n"]
    for nic in nics:
        received = int(counters[f"net.{nic.name}.receive_bytes"])
        sent = int(counters[f"net.{nic.name}.transmit_bytes"])
        errors, drops = int(counters[f"net.{nic.name}.errors"]), int(counters[f"net.{nic.name}.drops"])
        lines.append(
            f"{nic.name:>6}: {received} {received // _PACKET_BYTES} {errors} {drops} 0 0 0 0"
            f" {sent} {sent // _PACKET_BYTES} 0 0 0 0 0 0\n"
        )
    return "".join(lines)


def _tcp(nics: Sequence[Nic], counters: Mapping[str, float]) -> str:
    sent, resent = (sum(counters[f"net.{nic.name}.{what}"] for nic in nics) for what in ("transmit_bytes", "resent"))
    segments = int(sent) // _PACKET_BYTES
    return f"Tcp: InSegs OutSegs RetransSegs InErrs\nTcp: {segments} {segments} {int(resent)} 0\n"


def _modules(host: SimulatedHost, seconds: float) -> str:
    ours = () if host.timeline.host_active(host_effects.DriverNotLoaded, seconds) else host.scenario.driver.modules
    lines = [_MODULES.get(name, f"{name} 16384 0 - Live 0x0000000000000000") for name in ours]
    return "".join(f"{line}\n" for line in [*lines, "nvme 61440 3 - Live 0x0000000000000000"])


def _file_systems(host: SimulatedHost, seconds: float) -> dict[str, str]:
    """Statistics of the Lustre client and of nvidia-fs, if the scenario has them, by path below procfs."""
    counted: dict[str, list[float]] = {}
    for event, effect in host.timeline.host(host_effects.FileSystem):
        lasted = max(0.0, (seconds if event.until is None else min(seconds, event.until)) - event.at)
        reads = int(lasted * effect.reads_per_second)
        of = counted.setdefault(effect.lustre, [0.0, 0.0, 0.0, 0.0])
        of[0] += reads
        of[1] += int(lasted * effect.read_bytes_per_second)
        of[2] += reads * effect.read_seconds
        of[3] += effect.in_flight if event.active(seconds) else 0
    return {_statistics_path(name): (_lustre if name else _gds)(*counts) for name, counts in counted.items()}


def _statistics_path(name: str) -> str:
    return f"fs/lustre/llite/{name}-ffff9bc043537800/stats" if name else "driver/nvidia-fs/stats"


def _lustre(reads: float, read_bytes: float, seconds: float, _in_flight: float) -> str:
    return (
        "snapshot_time             1783960164.279418700 secs.nsecs\n"
        f"read_bytes                {reads:.0f} samples [bytes] 1 1048576 {read_bytes:.0f} 0\n"
        f"read                      {reads:.0f} samples [usecs] 1 999999 {seconds * 1e6:.0f} 0\n"
    )


def _gds(reads: float, read_bytes: float, _seconds: float, in_flight: float) -> str:
    mib = int(read_bytes) >> 20
    return (
        "GDS Version: 1.13.1.3 \nNVFS statistics(ver: 4.0)\nNVFS Driver(version: 2.24.3)\n"
        f"Reads\t\t\t\t: n={reads:.0f} ok={reads:.0f} err=0 readMiB={mib} io_state_err=0\n"
        "Writes\t\t\t\t: n=0 ok=0 err=0 writeMiB=0 io_state_err=0 pg-cache=0 pg-cache-fail=0 pg-cache-eio=0\n"
        f"Ops\t\t\t\t: Read={in_flight:.0f} Write=0 BatchIO=0\n"
    )


_LOCAL_MOUNTS: Final = (
    "device proc mounted on /proc with fstype proc\n"
    "device /dev/nvme0n1p2 mounted on / with fstype ext4\n"
    "device tmpfs mounted on /run with fstype tmpfs\n"
)
_MOUNT_HEAD: Final = """\
\topts:\trw,vers=4.2,rsize=1048576,wsize=1048576,namlen=255,acregmin=3,acregmax=60,hard,proto=tcp,nconnect=8,sec=sys
\tage:\t864000
\timpl_id:\tname='',domain='',date='0,0'
\tcaps:\tcaps=0xfffbc0bf,wtmult=512,dtsize=1048576,bsize=0,namlen=255
\tnfsv4:\tbm0=0xfdffbfff,bm1=0x40f9be3e,bm2=0x60803,acl=0x3,sessions,pnfs=not configured
\tsec:\tflavor=1,pseudoflavor=1
\tevents:\t9001 812345 120 450 301 77 920001 81000 4 0 0 512 3 0 88 512 0 77 0 0 81000 0 0 0 0 0 0
"""
_MOUNT_TRANSPORT: Final = """\
\tRPC iostats version: 1.1  p/v: 100003/4 (nfs)
\txprt:\ttcp 832 0 2 0 0 910233 910233 0 1820466 0 64 0 0
\tper-op statistics
"""


def _mountstats(mounts: Sequence[NfsMount], counters: Mapping[str, float]) -> str:
    """The file: local file systems, which have no statistics, and NFS mounts, which do."""
    return _LOCAL_MOUNTS + "".join(_mount_section(mount, counters) for mount in mounts)


def _mount_section(mounted: NfsMount, counters: Mapping[str, float]) -> str:
    def count(what: str, factor: float = 1.0) -> int:
        return int(counters[f"nfs.{mounted.mount}.{what}"] * factor)

    read, written = count("read_bytes"), count("write_bytes")
    pages = f"{read // 4096} {written // 4096}"
    lines = [
        _operation("NULL", 1, 44, 24, 0),
        _operation(
            "READ",
            count("reads"),
            count("reads") * 224,
            read,
            count("read_seconds", 1000),
            resent=count("retransmissions"),
            late=count("major_timeouts"),
        ),
        _operation("WRITE", count("writes"), written, count("writes") * 176, count("write_seconds", 1000)),
        _operation("COMMIT", 0, 0, 0, 0),
        _operation("OPEN", 0, 0, 0, 0),
        _operation("GETATTR", count("getattrs"), 0, count("getattrs") * 240, count("getattr_seconds", 1000)),
    ]
    return (
        f"device {_escaped(mounted.export)} mounted on {_escaped(mounted.mount)} with fstype nfs4 statvers=1.1\n"
        f"{_MOUNT_HEAD}\tbytes:\t{read} {written} 0 0 {read} {written} {pages}\n{_MOUNT_TRANSPORT}{''.join(lines)}\n"
    )


def _operation(
    name: str, requests: int, sent: int, received: int, milliseconds: int, *, resent: int = 0, late: int = 0
) -> str:
    counts = f"{requests} {requests + resent} {late} {sent} {received}"
    return f"\t{name:>12}: {counts} 0 {milliseconds} {milliseconds} 0\n"


def _escaped(path: str) -> str:
    return "".join(f"\\{ord(character):03o}" if character in " \t\n\\" else character for character in path)
