"""The options of a command: those of `Config`, with their help (`meanings.json`), and the switches of collectors."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Annotated, get_origin, get_type_hints

from gpu_triage.options import values
from gpu_triage.options.config import HOST_GROUP, Config
from gpu_triage.options.option import Option

CONFIG_FILE = "config.file"
SIMULATE = "simulate"
JUDGE = "judge"


@dataclass(frozen=True, slots=True)
class CollectorSwitch:
    """A collector that can be switched on and off: name, what it reads, and whether it runs by default."""

    name: str
    help: str
    default: bool


def all_options(switches: Iterable[CollectorSwitch]) -> tuple[Option, ...]:
    """All options in the order of the help: those of `Config`, and the switches in the place of its `collectors`."""
    return (*_options(tuple(switches)), Option(CONFIG_FILE, values.FILE_NAME, field=None))


def _options(switches: tuple[CollectorSwitch, ...]) -> Iterator[Option]:
    hints = get_type_hints(Config, include_extras=True)
    for each in fields(Config):
        if each.name == "collectors":
            yield from _of_collectors(switches)
        elif (hint := hints[each.name]) and get_origin(hint) is Annotated:
            words = each.name.removesuffix("_seconds").split("_", maxsplit=1)
            kind, key = (*hint.__metadata__, ".".join(words).replace("_", "-"))[:2]
            yield Option(key, kind, field=each.name, preset=each.default)


def _of_collectors(switches: tuple[CollectorSwitch, ...]) -> Iterator[Option]:
    """One switch per collector, after one for the group of host collectors."""
    rows = [(each.name, each.help, "true" if each.default else "false") for each in switches]
    if covered := [name for name, _, _ in rows if name.startswith(f"{HOST_GROUP}_")]:
        about = f"All of {', '.join(covered)} at once; a collector's own switch beats this one."
        rows.insert(0, (HOST_GROUP, about, "each collector's own"))
    for name, meaning, preset in rows:
        yield Option(f"collector.{name}", values.TRUTH, meaning, field="collectors", collector=name, preset=preset)
