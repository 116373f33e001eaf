"""The baseline file: versioned JSON that can be read, edited and diffed (``docs/baseline.schema.json``).

Unreported values are omitted. Each list or object of plain values takes one line, so that a line is one fact.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, Any, Final

from gpu_triage.documents import AtMost, Key, Parsed, Place, Range, parse_json, read_value
from gpu_triage.documents.files import read_file, reason_of, write_file
from gpu_triage.errors import BaselineError, DocumentError
from gpu_triage.read.baseline.host_facts import GpuFacts, HostFacts, Name

MOST_BYTES: Final = 4 << 20  # a host of 64 GPUs that are all peers takes half of it
_FORMAT: Final = "gpu-triage-baseline"
_VERSION: Final = 1
_MOST_GPUS: Final = 256
_TIME: Final = "%Y-%m-%dT%H:%M:%SZ"
_STEPS: Final = {"missing": "make its folder first", "no_permission": "check the path and its permissions"}


def _parse_time(text: str) -> float:
    try:
        return datetime.strptime(text, _TIME).replace(tzinfo=timezone.utc).timestamp()
    except ValueError as error:
        raise ValueError("write it as 2026-01-15T00:00:00Z") from error


@dataclass(frozen=True, slots=True)
class _Host:
    gpu_count: Annotated[int, Range(0, _MOST_GPUS)]
    driver_version: Name | None = None
    iommu_active: bool | None = None


@dataclass(frozen=True, slots=True)
class _Content:
    format: str
    version: int
    recorded: Annotated[float, Parsed(_parse_time)]
    host: _Host
    gpus: Annotated[tuple[GpuFacts, ...], AtMost(_MOST_GPUS)]
    schema: Annotated[str | None, Key("$schema")] = None


@dataclass(frozen=True, slots=True)
class Baseline:
    """The facts in a file, and its SHA-256 in hexadecimal, as printed by sha256sum."""

    facts: HostFacts
    sha256: str


def read_baseline(path: Path) -> Baseline:
    """Read a baseline file.

    Raises:
        BaselineError: ``missing``, ``no_permission``, ``io_error``, ``not_a_file``, ``too_large``, ``malformed`` or
            ``unknown_version``; the message has the file and the next step.
    """
    try:
        return _baseline(read_file(path, MOST_BYTES), str(path))
    except DocumentError as error:
        raise BaselineError(error.reason, str(error)) from error


def baseline_of(facts: HostFacts) -> Baseline:
    """The baseline that a file with these facts would contain."""
    return _baseline(encode(facts).encode(), "the baseline")


def _baseline(content: bytes, file: str) -> Baseline:
    # Imported only when there is a baseline: hashlib loads OpenSSL, which takes 4 MiB.
    import hashlib  # noqa: PLC0415

    return Baseline(decode(content, file), hashlib.sha256(content).hexdigest())


def write_baseline(path: Path, facts: HostFacts) -> None:
    """Write a file atomically, replacing an existing one.

    Raises:
        BaselineError: ``missing`` (the folder), ``no_permission`` or ``io_error``.
    """
    try:
        write_file(path, encode(facts).encode())
    except OSError as error:
        reason = reason_of(error) if reason_of(error) in _STEPS else "io_error"
        what = (
            f"{path}: cannot be written: {error.strerror or error}; {_STEPS.get(reason, 'check the path and the disk')}"
        )
        raise BaselineError(reason, what) from error


def encode(facts: HostFacts) -> str:
    """The file's text; ends with a newline."""
    host = {name: getattr(facts, name) for name in ("gpu_count", "driver_version", "iommu_active")}
    document = {
        "format": _FORMAT,
        "version": _VERSION,
        "recorded": timestamp(facts.at),
        "host": {name: value for name, value in host.items() if value is not None},
        "gpus": [_plain(replace(gpu, peers=gpu.peers and dict(sorted(gpu.peers.items())))) for gpu in facts.gpus],
    }
    return f"{_pretty(document, '')}\n"


def decode(content: bytes, file: str) -> HostFacts:
    """Parse a file's content; `file` is the name for error messages.

    Raises:
        DocumentError: ``malformed`` or ``unknown_version``; the message names the invalid key.
    """
    where = Place(file)
    document = parse_json(content, file)
    if not isinstance(document, dict) or document.get("format") != _FORMAT:
        what = "is not a baseline" if not isinstance(document, dict) else f"format: is not {_FORMAT!r}"
        raise where.error(f"{what}; write the file with gpu-triage baseline write")
    version = read_value(Annotated[int, Range(1, 1 << 30)], document.get("version"), where.at("version"))
    if version != _VERSION:
        message = f"{where.at('version')}: is {version}, and this program reads {_VERSION}; record it again"
        raise DocumentError(message, reason="unknown_version")
    found = read_value(_Content, document, where)
    if len({gpu.uuid for gpu in found.gpus}) < len(found.gpus):
        raise where.at("gpus").error("two of them have one uuid; keep one of them")
    host = found.host
    return HostFacts(found.recorded, host.gpu_count, host.driver_version, host.iommu_active, found.gpus)


def timestamp(seconds: float) -> str:
    """A time in the file's format: ``2026-01-15T00:00:00Z``."""
    return datetime.fromtimestamp(seconds, timezone.utc).strftime(_TIME)


def _plain(facts: Any) -> Any:
    if isinstance(facts, Mapping):
        return {key: _plain(each) for key, each in facts.items()}
    if not is_dataclass(facts):
        return list(facts) if isinstance(facts, tuple) else facts
    found = {"pcie" if each.name == "link" else each.name: getattr(facts, each.name) for each in fields(facts)}
    return {key: _plain(each) for key, each in found.items() if each is not None and each != ""}


def _pretty(value: Any, indent: str) -> str:
    """JSON indented by two spaces, with each list or object of plain values on one line."""
    inner = f"{indent}  "
    if isinstance(value, dict) and any(isinstance(each, (dict, list)) for each in value.values()):
        lines = [f"{inner}{json.dumps(key)}: {_pretty(each, inner)}" for key, each in value.items()]
    elif isinstance(value, list) and any(isinstance(each, (dict, list)) for each in value):
        lines = [f"{inner}{_pretty(each, inner)}" for each in value]
    else:
        return json.dumps(value)
    first, last = "{}" if isinstance(value, dict) else "[]"
    return f"{first}\n" + ",\n".join(lines) + f"\n{indent}{last}"
