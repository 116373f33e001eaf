"""Scenario files: find them, read them strictly, and report what is wrong with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

from gpu_triage.documents import Parsed, Pattern, Place, raised_as, read_value
from gpu_triage.errors import ScenarioError
from gpu_triage.options.config import Setting
from gpu_triage_simulator import replacement
from gpu_triage_simulator.allocation import Allocation
from gpu_triage_simulator.effect_kinds import GPU_EFFECTS, Effect
from gpu_triage_simulator.repeats import EventTimes, check_times, occurrences
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
)
from gpu_triage_simulator.scenario_check import check_references
from gpu_triage_simulator.schema import Count, read_toml

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
