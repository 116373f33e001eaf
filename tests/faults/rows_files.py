"""Rows of procfs and sysfs: each file that is read, damaged in each way."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from tests.faults import files
from tests.faults.files import Damage, Damaged
from tests.faults.hosts import EVERY_SECOND
from tests.faults.injections import damaging
from tests.faults.row import ALL_WELL, DRIVER, HOST, Row, Within

from gpu_triage.read.registry import ALL_COLLECTORS

FILES = "Kernel files"

PIPE = "a pipe in its place"
"""Mounted over the file, as may happen to one of the whole host, but not to one of a process."""

DAMAGES: dict[str, Damage] = {
    "missing": files.missing,
    "unreadable": files.unreadable,
    "a directory in its place": files.directory,
    PIPE: files.pipe,
    "empty": files.empty,
    "truncated": files.truncated,
    "binary junk": files.junk,
    "enormous": files.enormous,
}

UNREADABLE = ("missing", "unreadable", "a directory in its place", "empty", "enormous")
"""Damages after which there is nothing to read. Of a process they are one, as its unit tests say, and staged once."""

_HOST = frozenset({HOST})
_GPUS = frozenset({"0", "1"})

_NODES = ("processes", "host_cpu", "host_cpu_settings", "nic_topology", "platform")
_SPEEDS = "sys/devices/**/net/*/speed"

SUBJECTS: tuple[tuple[str, str, tuple[str, ...], frozenset[str]], ...] = (
    # By this file procfs is known to be mounted.
    ("`/proc/stat`", "proc/stat", ("host_cpu", "host_file_systems"), _HOST),
    ("`/proc/loadavg`", "proc/loadavg", ("host_cpu",), _HOST),
    ("`/proc/pressure/*`", "proc/pressure/*", ("host_pressure",), _HOST),
    ("`/proc/meminfo`", "proc/meminfo", ("host_memory",), _HOST),
    ("`/proc/vmstat`", "proc/vmstat", ("host_memory",), _HOST),
    ("`/proc/diskstats`", "proc/diskstats", ("host_disk",), _HOST),
    ("`/proc/net/dev`", "proc/net/dev", ("host_network",), _HOST),
    ("`/proc/modules`", "proc/modules", ("modules",), _HOST),
    ("`/proc/PID/stat`", "proc/[0-9]*/stat", ("processes",), _GPUS),
    ("`/proc/PID/status`", "proc/[0-9]*/status", ("processes",), _GPUS),
    ("`/proc/PID/cgroup`", "proc/[0-9]*/cgroup", ("processes",), _GPUS),
    ("`cpulist` of the NUMA nodes", "sys/devices/system/node/node*/cpulist", _NODES, _GPUS | _HOST),
    ("`numa_node` of the PCI devices", "sys/devices/**/numa_node", ("topology", "host_network"), _GPUS | _HOST),
    ("`max_link_speed` of the PCI devices", "sys/devices/**/max_link_speed", ("pcie_limits",), _GPUS | _HOST),
    ("`max_link_width` of the PCI devices", "sys/devices/**/max_link_width", ("pcie_limits",), _GPUS | _HOST),
    ("`aer_dev_*` of the PCI devices", "sys/devices/**/aer_dev_*", ("pcie_aer",), _GPUS),
    ("`/proc/1/mountstats`", "proc/1/mountstats", ("host_nfs",), _HOST),
    ("`state` of InfiniBand", "sys/devices/**/ports/*/state", ("host_infiniband",), _HOST),
    ("`rate` of InfiniBand", "sys/devices/**/ports/*/rate", ("host_infiniband",), _HOST),
    ("`port_*_data` of InfiniBand", "sys/devices/**/counters/port_*_data", ("host_infiniband",), _HOST),
    ("`vendor` of the PCI devices", "sys/devices/**/vendor", (), frozenset({DRIVER, HOST})),
    ("`speed` of the network interfaces", _SPEEDS, ("host_network_link",), _HOST),
    ("`carrier_changes` of the network interfaces", "sys/devices/**/carrier_changes", ("host_network_link",), _HOST),
    ("`distance` of the NUMA nodes", "sys/devices/system/node/node*/distance", ("processes",), _GPUS),
    ("`meminfo` of the NUMA nodes", "sys/devices/system/node/node*/meminfo", ("host_memory",), _HOST),
    ("`numastat` of the NUMA nodes", "sys/devices/system/node/node*/numastat", ("host_memory",), _HOST),
    ("`package_throttle_*` of the CPUs", "sys/devices/system/cpu/**/package_throttle_*", ("host_cpu_settings",), _HOST),
)
"""What it is, the files, the collectors that read them, and whose series they make."""

_OF_PROCESSES = "proc/[0-9]*/"

_ERRORS = frozenset({"malformed", "io_error", "too_large", "missing", "not_a_file"})
_EVERY_READER = frozenset(collector.name for collector in ALL_COLLECTORS)


_damaged = partial(Row, FILES, config=EVERY_SECOND, lasts=4, recovers_within=4, inflates=True, shared=True)


def rows() -> Iterator[Row]:
    for subject, pattern, collectors, reach in SUBJECTS:
        for words, damage in DAMAGES.items():
            says = Within(frozenset(collectors), _ERRORS) if collectors else ALL_WELL
            row = _damaged(words, subject, says, reach, damaging(Damaged(pattern, damage)))
            if pattern == _SPEEDS and words == "truncated":
                continue  # a speed of fewer digits is a speed, and believed for as long as any
            elif pattern == _SPEEDS:
                # How long no speed is believed, where the driver knew none.
                yield replace(_from_the_start(row), recovers_within=61)
            elif not pattern.startswith(_OF_PROCESSES):
                yield row
            elif words not in (*UNREADABLE[1:], PIPE):
                yield _from_the_start(row)
    for subject, pattern in (
        ("`/proc`", "proc"),
        ("`/sys`", "sys"),
        ("`/sys/class/infiniband`", "sys/class/infiniband"),
        ("`/sys/class/net`", "sys/class/net"),
        ("`/sys/devices/system/node`", "sys/devices/system/node"),
    ):
        for words in ("missing", "unreadable", "empty"):
            damaged = Damaged(pattern, files.directory if words == "empty" else DAMAGES[words])
            says, reach = Within(_EVERY_READER, _ERRORS), _GPUS | {HOST, DRIVER}
            row = _damaged(words, subject, says, reach, damaging(damaged))
            yield replace(row, group="Whole file systems")


def _from_the_start(row: Row) -> Row:
    """The row on a stage of its own: later, a short fault meets these files only when they are read."""
    return replace(row, at=0, recovers_within=30, shared=False)  # as long as what is said of a process is kept
