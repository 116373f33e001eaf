"""Checks that the parts of a scenario are consistent: every reference resolves."""

from __future__ import annotations

import re
from typing import Any, Final

from gpu_triage.documents import Place
from gpu_triage_simulator import effects, host_effects, observer_effects
from gpu_triage_simulator.nvml_library import CODES
from gpu_triage_simulator.nvml_session import MOST_MIG_DEVICES
from gpu_triage_simulator.scenario import Event, Scenario, cpu_numbers
from gpu_triage_simulator.simulated_nvml import FUNCTIONS

_MINUTE_MILLISECONDS: Final = 60_000
_LASTING: Final = (
    observer_effects.ExporterDown,
    observer_effects.ScrapeGap,
    observer_effects.Release,
    observer_effects.Reboot,
)
_MOMENTARY: Final = (observer_effects.ExporterRestart, effects.ReplaceGpu, effects.GpuReset)
_OF_PROCESSES: Final = (
    host_effects.Start,
    host_effects.Kill,
    host_effects.BlockedThreads,
    host_effects.Cgroup,
    host_effects.Writes,
)
_LABEL: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


def check_references(scenario: Scenario, where: Place) -> None:
    """Check every reference between the parts of a scenario; `where` names its file.

    Raises:
        DocumentError: one of them does not resolve.
    """
    _check_machine(scenario, where)
    _check_processes(scenario, where)
    for event in scenario.events:
        place = where.at("event", event.number)
        _check_effect(scenario, event.effect, place.at("effect"))
        _check_duration(event, place)
        if isinstance(event.effect, effects.Mig):
            for gpu in event.gpus:
                if "mig" not in scenario.card(gpu, event.at).model.features:
                    raise place.error(f"GPU {gpu} is of a model without MIG")
    _check_allocations(scenario, where)
    _check_jobs(scenario, where)
    for i, incident in enumerate(scenario.incidents):
        if incident.gpu >= len(scenario.gpus):
            raise where.at("incident", i, "gpu").error(f"there is no GPU {incident.gpu}")
    _check_labels(scenario, where)
    if scenario.exporter_view.host_pids and not scenario.exporter_view.host_procfs:
        raise where.at("exporter", "host_procfs").error("a /proc in the host's PID namespace is the host's")
    _check_expectations(scenario, where)


def _check_expectations(scenario: Scenario, where: Place) -> None:
    known = {str(gpu) for gpu in range(len(scenario.gpus))}
    fired = {alert.partition("{")[0] for expectation in scenario.expectations for alert in expectation.alerts}
    for i, expectation in enumerate(scenario.expectations):
        for key in (*expectation.bottleneck, *(key for key in expectation.findings if key != "host")):
            if key not in known:
                raise where.at("expect", i).error(f"there is no GPU {key!r}")
        if expectation.quiet == bool(expectation.alerts):
            raise where.at("expect", i).error("should either name alerts or be quiet = true")
        for name in expectation.near_misses:
            if name in fired:
                raise where.at("expect", i, "near_misses").error(f"{name} is expected to fire in this scenario")


def _check_duration(event: Event, where: Place) -> None:
    if isinstance(event.effect, _LASTING) and event.until is None:
        raise where.error("needs until, the time at which it is over")
    if isinstance(event.effect, _MOMENTARY) and event.until is not None:
        raise where.error("happens in a moment; leave until out")


def _check_labels(scenario: Scenario, where: Place) -> None:
    for name in scenario.target.labels:
        if not _LABEL.fullmatch(name) or name.startswith("__"):
            raise where.at("target", "labels").error(f"{name!r} is no name of a label")


def _cpu_count(scenario: Scenario) -> int:
    return sum(len(cpu_numbers(node.cpus)) for node in scenario.machine.node)


def _check_machine(scenario: Scenario, where: Place) -> None:
    machine = scenario.machine
    cpus = [cpu for node in machine.node for cpu in cpu_numbers(node.cpus)]
    if sorted(cpus) != list(range(len(cpus))) or not cpus:
        raise where.at("machine", "node").error("their CPUs should be 0 to n - 1, each once")
    slots = [gpu.slot for gpu in scenario.gpus]
    slots += [nic.slot for nic in machine.nic] + [disk.slot for disk in machine.disk] + list(machine.nvswitch)
    addresses = [slot.bus_id for slot in slots]
    for slot in slots:
        if slot.node >= len(machine.node):
            raise where.error(f"slot {slot.bus_id}: there is no node {slot.node}")
        if addresses.count(slot.bus_id) > 1:
            raise where.error(f"two devices at {slot.bus_id}")
    loads = [(nic.name, nic.load.device) for nic in machine.nic if nic.load]
    loads += [(disk.name, disk.load.device) for disk in machine.disk if disk.load]
    loads += [(nfs.mount, nfs.load.mount) for nfs in machine.nfs if nfs.load]
    for name, device in loads:
        if device != name:
            raise where.error(f"load.device of {name!r} is {device!r}")


def _check_processes(scenario: Scenario, where: Place) -> None:
    cpus = _cpu_count(scenario)
    pids: set[int] = set()
    for i, process in enumerate(scenario.processes):
        if process.gpu >= len(scenario.gpus):
            raise where.at("process", i, "gpu").error(f"there is no GPU {process.gpu}")
        if process.cpus and max(cpu_numbers(process.cpus)) >= cpus:
            raise where.at("process", i, "cpus").error(f"there are {cpus} CPUs, numbered from 0")
        if process.pid in pids:
            raise where.at("process", i, "pid").error(f"{process.pid} is taken")
        if process.memory_node is not None and process.memory_node >= len(scenario.machine.node):
            raise where.at("process", i, "memory_node").error(f"there is no node {process.memory_node}")
        pids.add(process.pid)


def _check_allocations(scenario: Scenario, where: Place) -> None:
    for i, allocation in enumerate(scenario.allocations):
        if allocation.gpu >= len(scenario.gpus):
            raise where.at("allocation", i, "gpu").error(f"there is no GPU {allocation.gpu}")
        if (allocation.pod is None) == (allocation.slurm is None):
            raise where.at("allocation", i).error("should be to a pod or to a job of slurm")


def _check_jobs(scenario: Scenario, where: Place) -> None:
    taken: set[tuple[str, int]] = set()
    for i, job in enumerate(scenario.jobs):
        for rank in job.ranks:
            if rank.host == scenario.name and rank.gpu >= len(scenario.gpus):
                raise where.at("job", i, "ranks").error(f"there is no GPU {rank.gpu}")
            if (rank.host, rank.gpu) in taken:
                raise where.at("job", i, "ranks").error(f"GPU {rank.gpu} of {rank.host} has a rank already")
            taken.add((rank.host, rank.gpu))
        if not job.ranks:
            raise where.at("job", i, "ranks").error("a job needs at least one GPU")


def _check_effect(scenario: Scenario, effect: Any, where: Place) -> None:
    pids = {process.pid for process in scenario.processes}
    if type(effect) in _OF_PROCESSES and not pids.issuperset(effect.pids):
        raise where.at("pids").error("not all of them are pids of [[process]]")
    _check_device(scenario, effect, where)
    if isinstance(effect, (effects.CallError, effects.Hang, host_effects.MissingFunction)):
        if effect.function not in FUNCTIONS and effect.function is not None:
            raise where.at("function").error(f"{effect.function!r} is no function that is simulated")
        if isinstance(effect, effects.CallError) and effect.code not in CODES:
            raise where.at("code").error(f"there is no NVML_ERROR_{effect.code}")
    if isinstance(effect, effects.Pulses) and effect.milliseconds * effect.per_minute > _MINUTE_MILLISECONDS:
        raise where.at("milliseconds").error("longer than the period that per_minute leaves for a pulse")
    if isinstance(effect, effects.Mig):
        _check_mig(effect, where)
    if isinstance(effect, effects.SlotChange) and (effect.node or 0) >= len(scenario.machine.node):
        raise where.at("node").error(f"there is no node {effect.node}")
    if isinstance(effect, host_effects.Cpu) and (effect.node or 0) >= len(scenario.machine.node):
        raise where.at("node").error(f"there is no node {effect.node}")


def _check_device(scenario: Scenario, effect: Any, where: Place) -> None:
    machine = scenario.machine
    if isinstance(effect, (host_effects.Disk, host_effects.Network)):
        devices = machine.disk if isinstance(effect, host_effects.Disk) else machine.nic
        known = {device.name for device in devices}
        if effect.device not in known:
            raise where.at("device").error(f"no {effect.device!r}; known are {', '.join(sorted(known)) or 'none'}")
    if isinstance(effect, host_effects.Sxid) and effect.switch >= len(machine.nvswitch):
        raise where.at("switch").error(f"there is no NVSwitch {effect.switch}")
    if isinstance(effect, host_effects.Nfs) and effect.mount not in {nfs.mount for nfs in machine.nfs}:
        raise where.at("mount").error(f"nothing of NFS is mounted on {effect.mount!r}")


def _check_mig(effect: effects.Mig, where: Place) -> None:
    instances = effect.instances
    if len({(mig.gi, mig.ci) for mig in instances}) < len(instances):
        raise where.at("instances").error("two of them have the same gi and ci")
    slots = [i if mig.slot is None else mig.slot for i, mig in enumerate(instances)]
    if len(set(slots)) < len(slots) or any(slot >= MOST_MIG_DEVICES for slot in slots):
        raise where.at("instances").error(f"each should have a slot of its own, 0 to {MOST_MIG_DEVICES - 1}")
