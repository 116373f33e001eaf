"""Scenario files: finding them, reading them strictly, and saying what is wrong with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpu_triage.errors import ScenarioError
from gpu_triage.given import Given
from gpu_triage.simulator import effect_kinds, replacement
from gpu_triage.simulator.load import Load
from gpu_triage.simulator.model import load_model
from gpu_triage.simulator.repeats import occurrences, read_event_times
from gpu_triage.simulator.scenario import (
    Driver,
    Event,
    Expectation,
    ExporterView,
    Gpu,
    Incident,
    Machine,
    Process,
    Scenario,
    Slot,
    Target,
    Uuid,
)
from gpu_triage.simulator.scenario_check import check_references
from gpu_triage.simulator.schema import Amount, Count, Seconds, read_table, read_toml, read_value

SCENARIOS = Path(__file__).parent / "scenarios"


@dataclass(frozen=True, slots=True)
class ScenarioSummary:
    """A scenario's name and what it shows, in one sentence."""

    name: str
    description: str


@dataclass(frozen=True, slots=True)
class _GpuTable:
    """A ``[[gpu]]`` table: as Gpu, with the model by name and defaults left open."""

    model: str
    slot: Slot
    load: Load
    uuid: Uuid | None = None
    serial: str | None = None
    ambient_celsius: float = 28.0
    power_limit_watts: Amount | None = None
    sm_target_mhz: Count | None = None
    boost_mhz: Count | None = None
    persistence_mode: bool = True
    corrected_errors: Count = 0
    uncorrected_errors: Count = 0
    powered_seconds: Seconds = 86_400
    other_memory_mib: Count = 0
    nvlinks_connected: Count | None = None


@dataclass(frozen=True, slots=True)
class _File:
    """The top table of a scenario file but its events, which are read once the GPUs are known."""

    name: str
    description: str
    driver: Driver
    machine: Machine
    gpu: tuple[_GpuTable, ...] = ()
    process: tuple[Process, ...] = ()
    incident: tuple[Incident, ...] = ()
    expect: tuple[Expectation, ...] = ()
    target: Target = field(default_factory=Target)
    seed: Count = 1


def list_scenarios() -> tuple[ScenarioSummary, ...]:
    """The scenarios that come with the program, by name."""
    return tuple(
        ScenarioSummary(scenario.name, scenario.description)
        for scenario in (load_scenario(path) for path in sorted(SCENARIOS.glob("*.toml")))
    )


def load_scenario(name_or_path: str | Path) -> Scenario:
    """The scenario of this name, or in this file.

    Raises:
        ScenarioError: there is no such scenario, or the file is wrong; names the file and the key.
    """
    path = _find(name_or_path)
    return read_scenario(read_toml(path), path.name)


def read_scenario(table: Mapping[str, Any], where: str) -> Scenario:
    """The scenario that the top table of a scenario file describes; `where` names the file.

    Raises:
        ScenarioError: a key or a value is wrong; names it.
    """
    raw = dict(table)
    events = raw.pop("event", [])
    exporter_options, view = _exporter(raw.pop("exporter", {}), where)
    file = read_table(_File, raw, where)
    if not file.description.strip() or "\n" in file.description.strip():
        raise ScenarioError(f"{where}.description: should be one sentence on one line")
    gpus = tuple(_gpu(table, file, f"{where}.gpu[{i}]") for i, table in enumerate(file.gpu))
    if not isinstance(events, list):
        raise ScenarioError(f"{where}.event: should be an array of tables, [[event]]")
    planned = tuple(
        each for i, event in enumerate(events) for each in _events(event, i, len(gpus), f"{where}.event[{i}]")
    )
    cards = replacement.replacement_cards(file.name, gpus, planned, where)
    scenario = Scenario(
        name=file.name,
        description=file.description.strip(),
        driver=file.driver,
        machine=file.machine,
        gpus=tuple(sorted(gpus, key=lambda gpu: gpu.slot.bus_id)),
        processes=file.process,
        events=replacement.end_with_their_cards(planned, cards),
        expectations=file.expect,
        seed=file.seed,
        replacements=cards,
        target=file.target,
        exporter_options=exporter_options,
        exporter_view=view,
        incidents=file.incident,
    )
    if gpus != scenario.gpus:
        raise ScenarioError(f"{where}.gpu: should be in the order of their bus ids, as NVML numbers them")
    check_references(scenario, where)
    return scenario


def _exporter(table: Any, where: str) -> tuple[dict[str, Given], ExporterView]:
    """Options of the exporter, and what it can see."""
    keys = [*ExporterView.__dataclass_fields__, "options"]
    if not isinstance(table, dict) or set(table) - set(keys):
        raise ScenarioError(f"{where}.exporter: should be a table of {', '.join(keys)}, and nothing else")
    view = {key: value for key, value in table.items() if key != "options"}
    return _options(table.get("options", {}), where), read_table(ExporterView, view, f"{where}.exporter")


def _options(options: Any, where: str) -> dict[str, Given]:
    """Options of the exporter as a configuration file writes them, still as text: the option's own parser reads it."""
    if not isinstance(options, dict):
        raise ScenarioError(f'{where}.exporter.options: should be a table such as {{ "expect.gpu-count" = 8 }}')
    given = {}
    for name, value in options.items():
        values = value if isinstance(value, list) else [value]
        if not values or not all(isinstance(each, (str, int, float)) for each in values):
            raise ScenarioError(f"{where}.exporter.options: {name} is {value!r}; write a value or a list of values")
        texts = tuple(str(each).lower() if isinstance(each, bool) else str(each) for each in values)
        given[name] = Given(texts, f"{where}: exporter.options: {name}")
    return given


def _find(name_or_path: str | Path) -> Path:
    if isinstance(name_or_path, Path) or "/" in name_or_path or name_or_path.endswith(".toml"):
        return Path(name_or_path)
    path = SCENARIOS / f"{name_or_path}.toml"
    if not path.is_file():
        known = ", ".join(sorted(p.stem for p in SCENARIOS.glob("*.toml")))
        raise ScenarioError(f"no scenario {name_or_path!r}; known are {known}; a path must end in .toml")
    return path


def _gpu(table: _GpuTable, file: _File, where: str) -> Gpu:
    known = replacement.identity(file.name, table.slot.bus_id)
    return Gpu(
        model=load_model(table.model, f"{where}.model"),
        slot=table.slot,
        uuid=table.uuid or known.uuid,
        serial=table.serial or known.serial,
        load=table.load,
        ambient_celsius=table.ambient_celsius,
        power_limit_watts=table.power_limit_watts,
        sm_target_mhz=table.sm_target_mhz,
        boost_mhz=table.boost_mhz,
        persistence_mode=table.persistence_mode,
        corrected_errors=table.corrected_errors,
        uncorrected_errors=table.uncorrected_errors,
        powered_seconds=table.powered_seconds,
        other_memory_mib=table.other_memory_mib,
        nvlinks_connected=table.nvlinks_connected,
    )


def _events(table: Any, number: int, gpu_count: int, where: str) -> tuple[Event, ...]:
    """The event of an ``[[event]]`` table, once for each time that it happens."""
    if not isinstance(table, dict):
        raise ScenarioError(f"{where}: is {table!r}; it should be a table")
    if not isinstance(table.get("effect"), dict) or "at" not in table:
        raise ScenarioError(f'{where}: should have at = "10m" and effect = {{ kind = … }}')
    times = read_event_times({key: value for key, value in table.items() if key not in ("gpu", "effect")}, where)
    effect = effect_kinds.read_effect(table["effect"], f"{where}.effect")
    on_gpus = type(effect) in effect_kinds.GPU_EFFECTS.values()
    if "gpu" in table and not on_gpus:
        raise ScenarioError(f"{where}.gpu: {table['effect']['kind']!r} concerns the host; leave gpu out")
    gpus = _gpus(table.get("gpu"), gpu_count, f"{where}.gpu") if on_gpus else ()
    return tuple(Event(at, until, gpus, effect, number) for at, until in occurrences(times))


def _gpus(value: Any, gpu_count: int, where: str) -> tuple[int, ...]:
    if value is None:
        return tuple(range(gpu_count))
    gpus: tuple[int, ...] = read_value(tuple[Count, ...], value if isinstance(value, list) else [value], where)
    for gpu in gpus:
        if gpu >= gpu_count:
            raise ScenarioError(f"{where}: there is no GPU {gpu}; there are {gpu_count}, numbered from 0")
    return gpus
