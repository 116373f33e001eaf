"""The kinds of value an option may have: how the text is read, what is refused, and how the value is shown.

Flags, environment variables and the file all bring text, so that one parser and one message serve all three.
Every parser raises ValueError with ``<what is wrong>; <what would be right>``.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600}
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)")
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_WHOLE_NUMBER = re.compile(r"[0-9]{1,9}")
_URL_PATH = re.compile(r"(?:/[A-Za-z0-9._~-]+)+")
_ADDRESS = re.compile(r"(?:\[(?P<v6>[^\]]*)\]|(?P<host>[^\[\]:/]*)):(?P<port>[0-9]{1,5})")
_HOST_NAME = re.compile(r"(?!-)[A-Za-z0-9_.-]{1,253}")
_MAX_PORT = 65535
_UNIX = "unix:"
_LONGEST_UNIX_PATH = 107
_LONGEST_SHOWN = 60


@dataclass(frozen=True, slots=True)
class ValueKind:
    """One kind of value.

    Attributes:
        metavar: what the help calls it, in capitals.
        parse: the value of a text; raises ValueError saying what would be right.
        show: the text of a value, as an operator would write it.
    """

    metavar: str
    parse: Callable[[str], object]
    show: Callable[[Any], str] = str


def quoted(text: str) -> str:
    """The text in quotes for a message: on one line, unprintable characters escaped, long text cut short."""
    return repr(text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + "…")


def parse_duration(text: str) -> float:
    """Seconds of a duration such as ``500ms``, ``5s``, ``1.5m`` or ``1h``.

    Raises:
        ValueError: no duration; a bare number is refused, for it does not say which unit was meant.
    """
    match = _DURATION.fullmatch(text)
    if match is None:
        if _NUMBER.fullmatch(text):
            raise ValueError(f"{quoted(text)} has no unit; write {text[:_LONGEST_SHOWN]}s")
        raise ValueError(f"{quoted(text)} is no duration; write a number and a unit: 500ms, 5s, 1m or 1h")
    number, unit = float(match[1]), match[2]
    # Division, because 300 * 0.001 style products differ from the nearest float of 0.3.
    return number / 1000 if unit == "ms" else number * _UNIT_SECONDS[unit]


def show_duration(seconds: float) -> str:
    """The shortest exact way to write a duration; `parse_duration` reads it back to the same float."""
    for unit in ("h", "m", "s"):
        count = seconds / _UNIT_SECONDS[unit]
        if count >= 1 and count.is_integer():
            return f"{int(count)}{unit}"
    milliseconds = round(seconds * 1000)
    if milliseconds / 1000 == seconds:
        return f"{milliseconds}ms"
    return f"{seconds}s"


def duration(minimum: str, maximum: str) -> ValueKind:
    """A duration between two others, both written as text and both included."""
    lowest, highest = parse_duration(minimum), parse_duration(maximum)

    def parse(text: str) -> float:
        seconds = parse_duration(text)
        if not lowest <= seconds <= highest:
            raise ValueError(f"{quoted(text)} is out of range; write a duration from {minimum} to {maximum}")
        return seconds

    return ValueKind("DURATION", parse, show_duration)


def whole_number(minimum: int, maximum: int) -> ValueKind:
    """A whole number between two others, both included."""

    def parse(text: str) -> int:
        if not _WHOLE_NUMBER.fullmatch(text) or not minimum <= int(text) <= maximum:
            raise ValueError(f"{quoted(text)} will not do; write a whole number from {minimum} to {maximum}")
        return int(text)

    return ValueKind("NUMBER", parse)


def number_among(*choices: int) -> ValueKind:
    """One of a few whole numbers."""
    by_text = {str(choice): choice for choice in choices}

    def parse(text: str) -> int:
        if text not in by_text:
            raise ValueError(f"{quoted(text)} will not do; write one of {', '.join(by_text)}")
        return by_text[text]

    return ValueKind("NUMBER", parse)


def word_among(*choices: str) -> ValueKind:
    """One of a few words; the help shows them all."""

    def parse(text: str) -> str:
        if text not in choices:
            raise ValueError(f"{quoted(text)} will not do; write one of {', '.join(choices)}")
        return text

    return ValueKind("|".join(choices), parse)


def _parse_truth(text: str) -> bool:
    lowered = text.lower()  # YAML files and Helm charts spell it True as well
    if lowered not in ("true", "false"):
        raise ValueError(f"{quoted(text)} will not do; write true or false")
    return lowered == "true"


def _show_truth(value: object) -> str:
    return "true" if value else "false"


TRUTH = ValueKind("true|false", _parse_truth, _show_truth)


def _parse_url_path(text: str) -> str:
    if text == "/-" or text.startswith("/-/"):
        raise ValueError(f"{quoted(text)} is kept for health and control; write another path, such as /metrics")
    if text == "/":
        raise ValueError("'/' is the status page; write a path below it, such as /metrics")
    if not _URL_PATH.fullmatch(text) or {".", ".."} & set(text.split("/")):
        raise ValueError(
            f"{quoted(text)} is no plain URL path; write one that starts with / and has only letters, digits "
            "and . _ ~ - between slashes, such as /metrics"
        )
    return text


URL_PATH = ValueKind("PATH", _parse_url_path)


def split_listen_address(text: str) -> tuple[str, int]:
    """Host and port of ``host:port``, ``:port`` (host is then empty: all interfaces) or ``[v6]:port``.

    The host comes without brackets; port 0 leaves the choice to the kernel.

    Raises:
        ValueError: no such address; the message says what would be right.
    """
    match = _ADDRESS.fullmatch(text)
    if match is None or int(match["port"]) > _MAX_PORT or not _is_host(match["v6"], match["host"]):
        raise ValueError(f"{quoted(text)} is no listen address; write host:port, :port or [v6]:port, such as :9836")
    return match["v6"] or match["host"] or "", int(match["port"])


def _is_host(v6: str | None, host: str | None) -> bool:
    try:
        if v6 is not None:
            ipaddress.IPv6Address(v6)
        elif host and not host.strip("0123456789."):
            ipaddress.IPv4Address(host)
    except ValueError:
        return False
    return v6 is not None or not host or _HOST_NAME.fullmatch(host) is not None


def unix_socket_path(text: str) -> str | None:
    """The path of a listen address ``unix:/path``; None where the address is none of that kind.

    Raises:
        ValueError: the path is not absolute, not printable, or longer than the 107 bytes a kernel takes.
    """
    if not text.startswith(_UNIX):
        return None
    path = text.removeprefix(_UNIX)
    if not path.startswith("/") or not path.isprintable() or len(path.encode()) > _LONGEST_UNIX_PATH:
        raise ValueError(
            f"{quoted(text)} names no socket; write an absolute path of at most {_LONGEST_UNIX_PATH} bytes, "
            "such as unix:/run/gpu-triage.sock"
        )
    return path


def _parse_listen_address(text: str) -> str:
    if unix_socket_path(text) is None:
        split_listen_address(text)
    return text


LISTEN_ADDRESS = ValueKind("ADDRESS", _parse_listen_address)


def _parse_directory(text: str) -> Path:
    if not _exists(text) or not Path(text).is_dir():
        raise ValueError(f"{quoted(text)} is no folder here; write the path it is mounted at")
    return Path(text)


def _parse_existing_path(text: str) -> Path:
    if not _exists(text):
        raise ValueError(f"{quoted(text)} does not exist here; write the path of a device or file that does")
    return Path(text)


def _exists(text: str) -> bool:
    try:
        return bool(text) and "\0" not in text and Path(text).exists()
    except OSError:  # a name too long, a folder above it that may not be searched
        return False


DIRECTORY = ValueKind("PATH", _parse_directory)
EXISTING_PATH = ValueKind("PATH", _parse_existing_path)


def _parse_name(text: str) -> str:
    if not text or not text.isprintable():
        raise ValueError(f"{quoted(text)} will not do; write the name of a scenario or the path of its file")
    return text


SCENARIO = ValueKind("SCENARIO", _parse_name)


def _parse_file_name(text: str) -> str:
    if not text or "\0" in text:
        raise ValueError(f"{quoted(text)} will not do; write the path of a YAML file")
    return text


FILE_NAME = ValueKind("PATH", _parse_file_name)


def _parse_baseline_name(text: str) -> Path:
    if not text or "\0" in text:
        raise ValueError(f"{quoted(text)} will not do; write the path of a file of gpu-triage baseline write")
    return Path(text)


RECORDING = ValueKind("PATH", _parse_existing_path)

BASELINE = ValueKind("PATH", _parse_baseline_name)
"""A file that may come to be later."""


def _parse_folder_name(text: str) -> Path:
    if not text or "\0" in text:
        raise ValueError(f"{quoted(text)} will not do; write the path of a folder")
    return Path(text)


FOLDER_NAME = ValueKind("PATH", _parse_folder_name)
"""A folder that may come to be later."""


def _parse_socket(text: str) -> Path:
    if not text.startswith("/") or not text.isprintable():
        raise ValueError(
            f"{quoted(text)} will not do; write the absolute path of the socket, "
            "such as /var/lib/kubelet/pod-resources/kubelet.sock"
        )
    return Path(text)


SOCKET = ValueKind("PATH", _parse_socket)
"""A Unix socket whose server may come to be later."""
