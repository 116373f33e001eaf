"""The fault matrix in words: one table a group, rows that differ in the fault or the moment alone as one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tests.faults.asked import every_collector
from tests.faults.kinds import CODE_OF
from tests.faults.notes import INTRODUCTION, NOTES
from tests.faults.row import DRIVER, HOST, Row, Says, Seen

from gpu_triage.read.registry import ALL_COLLECTORS

_HEAD = "| fault | moment | what `/metrics` says | what it costs | how it recovers |\n| --- | --- | --- | --- | --- |\n"
_OF_A_GPU = "gpu_info"
"""What a GPU keeps when all its readings are gone."""

_FEW = 6


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a table."""

    faults: tuple[str, ...]  # in the order of the rows
    moments: tuple[str, ...]  # likewise
    rest: tuple[str, str, str]  # its last three cells


def printed(seen: Mapping[str, tuple[Row, Seen]]) -> str:
    """The whole document, of rows and what was seen of them, by key."""
    groups: dict[str, list[Line]] = {}
    for row, one in seen.values():
        rest = (_says(row, one.says), _cost(row, one, seen), _recovery(row, one))
        groups.setdefault(row.group, []).append(Line((row.fault, *row.alike), (row.moment,), rest))
    parts = [INTRODUCTION]
    for group, lines in groups.items():
        parts.append(f"## {group}\n\n")
        if group in NOTES:
            parts.append(f"{NOTES[group]}\n\n")
        parts.append(_HEAD)
        parts += [_line(line) for line in merged(lines)]
        parts.append("\n")
    return "".join(parts).rstrip() + "\n"


def merged(lines: Iterable[Line]) -> list[Line]:
    """Lines that say the same of several faults at one moment, then of the same faults at several moments, as one."""
    by_moment: dict[tuple[tuple[str, ...], tuple[str, str, str]], tuple[str, ...]] = {}
    for line in lines:
        key = (line.moments, line.rest)
        by_moment[key] = by_moment.get(key, ()) + line.faults
    by_fault: dict[tuple[tuple[str, ...], tuple[str, str, str]], tuple[str, ...]] = {}
    for (moments, rest), faults in by_moment.items():
        by_fault[faults, rest] = by_fault.get((faults, rest), ()) + moments
    return [Line(faults, moments, rest) for (faults, rest), moments in by_fault.items()]


def _line(line: Line) -> str:
    cells = ("; ".join(_in_order(line.faults)), "; ".join(line.moments), *line.rest)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def _in_order(faults: tuple[str, ...]) -> Iterable[str]:
    """Error codes by name, whatever kinds they were staged as; other faults in the order of their rows."""
    return [name for name in CODE_OF if name in faults] if CODE_OF.keys() >= set(faults) else faults


def _says(row: Row, says: Says) -> str:
    parts = []
    if says.driver == "unknown yet":
        parts.append("neither `gpu_driver_up` nor its error")
    elif says.driver:
        parts.append(f"`gpu_driver_up` 0, `gpu_driver_error_info` `{_word(row, says.driver)}`")
    for error in sorted(set(says.gpus.values())):
        gpus = sorted(gpu for gpu, why in says.gpus.items() if why == error)
        parts.append(f"`gpu_up` 0 and `gpu_error_info` `{_word(row, error)}` for GPU {' and '.join(gpus)}")
    counted: dict[str, list[str]] = {}
    for one in sorted(says.errors):
        collector, _, error = one.partition(": ")
        counted.setdefault(_word(row, error), []).append(_word(row, f"collector {collector}"))
    for error, collectors in counted.items():
        parts.append(f"`gpu_exporter_errors_total` counts `{error}` for {_codes(dict.fromkeys(collectors))}")
    if says.failing == every_collector():
        parts.append("`gpu_exporter_collector_success` 0 for every collector that reads GPUs")
    elif says.failing:
        parts.append(f"`gpu_exporter_collector_success` 0 for {_codes(sorted(says.failing))}")
    if says.calls:
        named = {one.partition(": ")[2] for one in says.calls}
        parts.append(
            f"`gpu_exporter_call_inflight_seconds` names {_codes(sorted(named - {'files'})) or 'the collector'}"
        )
    return "; ".join(parts) or "no error: every `gpu_up` and `gpu_driver_up` 1"


def _cost(row: Row, seen: Seen, every: Mapping[str, tuple[Row, Seen]]) -> str:
    like = every.get(row.like)
    if like is not None and seen.cost and (like[1].cost, like[1].extra) == (seen.cost, seen.extra):
        return "what UNKNOWN costs there"
    lost: dict[str, list[str]] = {}
    for subject, names in seen.cost.items():
        lost.setdefault(_lost(subject, names, seen.kept.get(subject, ())), []).append(subject)
    parts = [f"{_subjects(subjects)}: {words}" for words, subjects in lost.items()]
    if seen.extra:
        parts.append(f"other series of {_codes(seen.extra)} than on a healthy host")
    if seen.changed:
        parts.append(f"other values of {_codes(seen.changed)}")
    return "; ".join(parts) or "nothing"


def _subjects(subjects: Iterable[str]) -> str:
    named = {HOST: "the host", DRIVER: "the driver"}
    gpus = " and ".join(subject for subject in subjects if subject not in named)
    return " and ".join(([f"GPU {gpus}"] if gpus else []) + [named[one] for one in subjects if one in named])


def _lost(subject: str, names: tuple[str, ...], kept: tuple[str, ...]) -> str:
    gone = [name for name in names if not name.endswith("*")]
    left = [name for name in (*kept, *(name[:-1] for name in names if name.endswith("*"))) if name != _OF_A_GPU]
    if len(gone) > len(left) and subject not in (HOST, DRIVER):
        readings = "every reading" + (" and `gpu_info`" if _OF_A_GPU in gone else "")
        if not left:
            return readings
        if len(left) <= _FEW:
            return f"{readings} but {_codes(sorted(left))}"
        return f"{readings} but those of the slow tier, which are kept three intervals"
    words = []
    for collector in ALL_COLLECTORS:
        own = {spec.name for spec in collector.metrics}
        mine = [name for name in gone if name in own]
        if len(mine) > 1 and not own.intersection(left):
            words.append(f"all of {collector.name}")
            gone = [name for name in gone if name not in own]
    words += [f"`{name}`" for name in gone]
    words += [f"`{name[:-1]}` in part" for name in names if name.endswith("*")]
    return ", ".join(words)


def _recovery(row: Row, seen: Seen) -> str:
    if seen.says.restart:
        return "not in this process: it ends with a message, for its supervisor to start it again"
    if not row.ends:
        return "it stays, and so does this"
    when = "with the first sample after it" if not seen.recovered else f"{seen.recovered} s after it"
    return f"{when}; {_codes(sorted(row.leaves))} stay" if row.leaves else when


def _word(row: Row, name: str) -> str:
    return row.words.get(name, name.removeprefix("collector "))


def _codes(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
