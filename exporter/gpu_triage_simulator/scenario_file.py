"""Scenario files: find them, read them strictly, and report what is wrong with them."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Final

from gpu_triage.documents import Parsed, Pattern, Place, Range, raised_as, read_value
from gpu_triage.errors import ScenarioError
from gpu_triage.options.config import Setting
from gpu_triage_simulator import effects, host_effects, observer_effects, replacement
from gpu_triage_simulator.allocation import Allocation
from gpu_triage_simulator.effect_kinds import GPU_EFFECTS, Effect
from gpu_triage_simulator.job import FORWARD, Episode, Job, Rank, Trouble
from gpu_triage_simulator.nvml_library import CODES
from gpu_triage_simulator.nvml_session import MOST_MIG_DEVICES
from gpu_triage_simulator.scenario import (
    Driver,
    Event,
    Expectation,
    ExporterView,
    Gpu,
    Incident,
    Process,
    Scenario,
    ScenarioHost,
    Target,
    cpu_count,
    cpu_numbers,
)
from gpu_triage_simulator.schema import Count, Seconds, read_toml
from gpu_triage_simulator.simulated_nvml import FUNCTIONS

MOST_OCCURRENCES: Final = 1000
"""Maximum for one event: each occurrence adds two edges to the timeline, and the whole host is recomputed at each."""


@dataclass(frozen=True, slots=True)
class EventTimes:
    """The times of an ``[[event]]`` table, in seconds of scenario time."""

    at: Seconds  # when it starts
    until: Seconds | None = None  # when it finally ends; None for never
    every: Seconds | None = None  # from the start of one occurrence to the next; None for an event that happens once
    lasts: Seconds | None = None  # duration of one occurrence


def check_times(times: EventTimes, where: Place) -> None:
    """Check that the times of an event are consistent; `where` names the event. Raises DocumentError: they are not."""
    if times.until is not None and times.until <= times.at:
        raise where.at("until").error("is not after at")
    if (times.every is None) != (times.lasts is None):
        raise where.error("every and lasts belong together")
    if times.every is None or times.lasts is None:
        return
    if times.until is None:
        raise where.error("every needs until, the time at which it is over")
    if not 0 < times.lasts < times.every:
        raise where.at("lasts").error("should be shorter than every, and not 0")
    if (times.until - times.at) / times.every > MOST_OCCURRENCES:
        raise where.at("every").error(f"happens more than {MOST_OCCURRENCES} times")


def occurrences(times: EventTimes) -> Iterator[tuple[int, int | None]]:
    """Start and end of each occurrence; the last one ends with the event."""
    if times.every is None or times.lasts is None or times.until is None:
        yield times.at, times.until
        return
    for at in range(times.at, times.until, times.every):
        yield at, min(at + times.lasts, times.until)


SCENARIOS = Path(__file__).parent / "scenarios"


@dataclass(frozen=True, slots=True)
class ScenarioSummary:
    name: str
    description: str


def _texts(value: Any) -> tuple[str, ...]:
    """Values of an option as in a configuration file, still as text for the option's own parser."""
    values = value if isinstance(value, list) else [value]
    if not values or not all(isinstance(each, (str, int, float)) for each in values):
        raise ValueError("write a value or a list of values")
    return tuple(str(each).lower() if isinstance(each, bool) else str(each) for each in values)


def _numbers(value: Any) -> tuple[int, ...]:
    values = value if isinstance(value, list) else [value]
    if not all(isinstance(each, int) and not isinstance(each, bool) and each >= 0 for each in values):
        raise ValueError("write the number of a GPU, or a list of them")
    return tuple(values)


@dataclass(frozen=True, slots=True)
class _Exporter(ExporterView):
    """The ``[exporter]`` table: what the exporter can see, and its options."""

    options: dict[str, Annotated[tuple[str, ...], Parsed(_texts)]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Event(EventTimes):
    effect: Effect = field(kw_only=True)
    gpu: Annotated[tuple[int, ...] | None, Parsed(_numbers)] = None


def _trouble(value: Any) -> Trouble:
    if value not in (known := [trouble.value for trouble in Trouble]):
        raise ValueError(f"write one of {', '.join(known)}")
    return Trouble(value)


def _amounts(value: Any) -> tuple[float, ...]:
    values = value if isinstance(value, list) else [value]
    if not all(isinstance(each, (int, float)) and not isinstance(each, bool) and each >= 0 for each in values):
        raise ValueError("write a number that is not negative, or a list of them, one for each GPU")
    return tuple(map(float, values))


@dataclass(frozen=True, slots=True)
class _Ranks:
    """GPUs of a job on one host; their ranks go on from those of the table before."""

    gpus: Annotated[tuple[int, ...], Parsed(_numbers)]
    # compute_seconds, feed_seconds: as in Rank; one for all, or one for each
    compute_seconds: Annotated[tuple[float, ...], Parsed(_amounts)]
    feed_seconds: Annotated[tuple[float, ...], Parsed(_amounts)] = (0.0,)
    host: str | None = None  # the name of its scenario; by default this one. One that is not simulated has full speed.


@dataclass(frozen=True, slots=True)
class _Episode(EventTimes):
    trouble: Annotated[Trouble, Parsed(_trouble)] = field(kw_only=True)
    ranks: Annotated[tuple[int, ...] | None, Parsed(_numbers)] = None  # by default all
    factor: Annotated[float, Range(0.001, 1000.0)] = FORWARD


@dataclass(frozen=True, slots=True)
class _Job:
    """A synchronous job with GPUs of this host, and perhaps of others; see `job`."""

    exchange_seconds: Annotated[float, Range(0.001, 3600.0)]
    ranks: tuple[_Ranks, ...]
    episode: tuple[_Episode, ...] = ()


@dataclass(frozen=True, slots=True)
class _File:
    name: str
    description: Annotated[str, Pattern(r"\s*[^\n]*\S\s*", "one sentence on one line")]
    driver: Driver
    machine: ScenarioHost
    gpu: tuple[Gpu, ...] = ()
    process: tuple[Process, ...] = ()
    event: tuple[_Event, ...] = ()
    incident: tuple[Incident, ...] = ()
    allocation: tuple[Allocation, ...] = ()
    job: tuple[_Job, ...] = ()
    expect: tuple[Expectation, ...] = ()
    target: Target = field(default_factory=Target)
    exporter: _Exporter = field(default_factory=_Exporter)
    seed: Count = 1


def list_scenarios() -> tuple[ScenarioSummary, ...]:
    return tuple(
        ScenarioSummary(scenario.name, scenario.description)
        for scenario in (load_scenario(path) for path in sorted(SCENARIOS.glob("*.toml")))
    )


def load_scenario(name_or_path: str | Path) -> Scenario:
    """The scenario with this name, or in this file.

    Raises:
        DocumentError: there is no such scenario, or the file is invalid; names the file and the key.
    """
    path = _find(name_or_path)
    return _shipped(path) if path.parent == SCENARIOS else _in_file(path)


def _in_file(path: Path) -> Scenario:
    with raised_as(ScenarioError):
        return read_scenario(read_toml(path), path.name)


# Cached, because programs that simulate many hosts reuse a few scenarios, and reading one takes up to 30 ms.
_shipped = lru_cache(maxsize=32)(_in_file)


def read_scenario(table: Mapping[str, Any], name: str) -> Scenario:
    """The scenario described by the top-level table of a scenario file; `name` is the file's name.

    Raises:
        ScenarioError: a key or a value is invalid; names it.
    """
    where = Place(name)
    with raised_as(ScenarioError):
        scenario = _scenario(read_value(_File, table, where), where)
        check_references(scenario, where)
    return scenario


def _scenario(file: _File, where: Place) -> Scenario:
    gpus = tuple(_named(gpu, file.name) for gpu in file.gpu)
    addresses = [gpu.slot.bus_id for gpu in gpus]
    if addresses != sorted(addresses):
        raise where.at("gpu").error("write them in the order of their bus ids, as NVML numbers them")
    planned = tuple(
        each for i, event in enumerate(file.event) for each in _events(event, i, len(gpus), where.at("event", i))
    )
    cards = replacement.replacement_cards(file.name, gpus, planned)
    options = file.exporter.options.items()
    return Scenario(
        name=file.name,
        description=file.description.strip(),
        driver=file.driver,
        machine=file.machine,
        gpus=gpus,
        processes=file.process,
        events=replacement.end_with_their_cards(planned, cards),
        expectations=file.expect,
        seed=file.seed,
        replacements=cards,
        target=file.target,
        exporter_options={name: Setting(texts, str(where.at("exporter", "options", name))) for name, texts in options},
        exporter_view=file.exporter,
        incidents=file.incident,
        allocations=file.allocation,
        jobs=tuple(_job(job, file.name, where.at("job", i)) for i, job in enumerate(file.job)),
    )


def read_fleet(table: Mapping[str, Any], name: str) -> tuple[Scenario, ...]:
    """The hosts described by a scenario file with tables ``[[host]]``, which know each other's part of their jobs.

    Each host is what the file describes, with the keys of its own table in place of the file's.

    Raises:
        ScenarioError: a key or a value is invalid; names it.
    """
    own = {key: value for key, value in table.items() if key != "host"}
    return coupled([read_scenario({**own, **host}, f"{name}: host {i}") for i, host in enumerate(table["host"])])


def coupled(hosts: Sequence[Scenario]) -> tuple[Scenario, ...]:
    """The hosts with each other as peers: the ranks of a job go at the speed that all of its GPUs allow."""
    alone = {host.name: replace(host, jobs=(), peers={}) for host in hosts}
    return tuple(
        replace(host, peers={name: peer for name, peer in alone.items() if name != host.name}) for host in hosts
    )


def _find(name_or_path: str | Path) -> Path:
    if isinstance(name_or_path, Path) or "/" in name_or_path or name_or_path.endswith(".toml"):
        return Path(name_or_path)
    path = SCENARIOS / f"{name_or_path}.toml"
    if not path.is_file():
        known = ", ".join(sorted(p.stem for p in SCENARIOS.glob("*.toml")))
        raise ScenarioError(f"no scenario {name_or_path!r}; known are {known}; a path must end in .toml")
    return path


def _named(gpu: Gpu, scenario: str) -> Gpu:
    known = replacement.identity(scenario, gpu.slot.bus_id)
    return replace(gpu, uuid=gpu.uuid or known.uuid, serial=gpu.serial or known.serial)


def _events(event: _Event, number: int, gpu_count: int, where: Place) -> tuple[Event, ...]:
    check_times(event, where)
    on_gpus = type(event.effect) in GPU_EFFECTS.values()
    if event.gpu is not None and not on_gpus:
        raise where.at("gpu").error("the effect concerns the host; leave gpu out")
    gpus = (event.gpu if event.gpu is not None else tuple(range(gpu_count))) if on_gpus else ()
    for gpu in gpus:
        if gpu >= gpu_count:
            raise where.at("gpu").error(f"there is no GPU {gpu}; there are {gpu_count}, numbered from 0")
    return tuple(Event(at, until, gpus, event.effect, number) for at, until in occurrences(event))


def _job(job: _Job, host: str, where: Place) -> Job:
    ranks: list[Rank] = []
    for i, table in enumerate(job.ranks):
        for key in ("compute_seconds", "feed_seconds"):
            if len(getattr(table, key)) not in (1, len(table.gpus)):
                raise where.at("ranks", i, key).error(f"write one number, or one for each of {len(table.gpus)} GPUs")
        for place, gpu in enumerate(table.gpus):
            compute, feed = (each[place % len(each)] for each in (table.compute_seconds, table.feed_seconds))
            ranks.append(Rank(table.host or host, gpu, compute, feed))
    return Job(
        tuple(ranks),
        job.exchange_seconds,
        tuple(
            episode
            for i, table in enumerate(job.episode)
            for episode in _episodes(table, len(ranks), where.at("episode", i))
        ),
    )


def _episodes(table: _Episode, count: int, where: Place) -> tuple[Episode, ...]:
    check_times(table, where)
    numbers = frozenset(range(count) if table.ranks is None else table.ranks)
    if max(numbers, default=0) >= count:
        raise where.at("ranks").error(f"there are {count} ranks, numbered from 0")
    return tuple(
        Episode(table.trouble, at, math.inf if until is None else until, numbers, table.factor)
        for at, until in occurrences(table)
    )


_MINUTE_MILLISECONDS: Final = 60_000
_LASTING: Final = (
    observer_effects.ExporterDown,
    observer_effects.ScrapeGap,
    observer_effects.Release,
    observer_effects.Reboot,
    observer_effects.Accept,
)
_MOMENTARY: Final = (observer_effects.ExporterRestart, observer_effects.Repaired, effects.ReplaceGpu, effects.GpuReset)
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
    cpus = cpu_count(scenario)
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
    of_operators = (observer_effects.Accept, observer_effects.Repaired)
    if isinstance(effect, of_operators) and effect.gpu >= len(scenario.gpus):
        raise where.at("gpu").error(f"there is no GPU {effect.gpu}")
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
