"""Types of option values, with one syntax and message for flags, environment variables and the file."""

import ipaddress
import re
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NoReturn

import click

from gpu_triage.documents import quoted

_UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600}
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)")
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_WHOLE_NUMBER = re.compile(r"[0-9]{1,9}")
_URL_PATH = re.compile(r"(?:/[A-Za-z0-9._~-]+)+")
_ADDRESS = re.compile(r"(?:\[(?P<v6>[^\]]*)\]|(?P<host>[^\[\]:/]*)):(?P<port>[0-9]{1,5})")
_METRIC_PATTERN = re.compile(r"[a-z0-9_*?\[\]]+")
_DEVICE_PATTERN = re.compile(r"[A-Za-z0-9_.:@*?\[\]-]{1,64}")
_HOST_NAME = re.compile(r"(?!-)[A-Za-z0-9_.-]{1,253}")
_ALLOWED_HOST = re.compile(r"(?=.{1,254}\Z)\.?[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*")
_MAX_PORT = 65535
_UNIX = "unix:"
_LONGEST_UNIX_PATH = 107
_LONGEST_SHOWN = 60

LATEST_SECONDS: Final = 253_402_300_799.0
"""End of the year 9999 in Unix seconds: the latest time that datetime supports."""


def parse_datetime(text: str) -> datetime:
    """Parse an ISO 8601 time, also with the Z that fromisoformat rejects before Python 3.11. Raises ValueError."""
    return datetime.fromisoformat(re.sub("[Zz]$", "+00:00", text))


class TextType(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.4, and not before
    """Values called `name` in the help. `parse` reads what `show` prints, or raises ValueError with the syntax.

    `in_file` converts a value with a special syntax in the file to such texts, and raises ValueError, too.
    """

    def __init__(
        self,
        name: str,
        parse: Callable[[str], object],
        show: Callable[[Any], str] = str,
        in_file: Callable[[Any], tuple[str, ...]] | None = None,
    ) -> None:
        self.name = name
        self.parse = parse
        self.show = show
        self.in_file = in_file

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self.parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def _text(name: str, accepts: Callable[[str], object], wrong: str, make: Callable[[str], object] = str) -> TextType:
    """Text that a function accepts; `wrong` explains what is invalid, and what to write."""

    def parse(text: str) -> object:
        if not accepts(text):
            raise ValueError(f"{quoted(text)} {wrong}")
        return make(text)

    return TextType(name, parse)


TRUTH = _text(
    "true|false",
    lambda text: text.lower() in ("true", "false"),
    "is invalid; write true or false",
    lambda text: text.lower() == "true",
)
"""No synonyms: ``yes`` and ``off`` are easily misunderstood. YAML files and Helm charts may spell it True as well."""


class OneOf(click.Choice):  # type: ignore[type-arg]  # generic since click 8.2, and not before
    """One of these words."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value not in self.choices:
            self.fail(f"{quoted(str(value))} is invalid; write {one_of(self.choices)}", param, ctx)
        return super().convert(value, param, ctx)


def one_of(words: Sequence[str]) -> str:
    """Alternatives in a sentence: ``text, json or lines``."""
    return " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))


class PathType(click.Path):
    """A nonempty path without NUL bytes. Permissions aren't checked: missing ones show in the metrics."""

    def __init__(self, *, exists: bool = False, file_okay: bool = True, path_type: type[Path] | None = None) -> None:
        super().__init__(exists=exists, file_okay=file_okay, readable=False, path_type=path_type)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not value or "\0" in str(value):
            self.fail(f"{quoted(str(value))} is not a path", param, ctx)
        found = super().convert(value, param, ctx)
        # Click accepts a device as a directory.
        if not self.file_okay and not Path(str(value)).is_dir():
            self.fail(f"{quoted(str(value))} is not a folder", param, ctx)
        return found

    def fail(self, message: str, param: click.Parameter | None = None, ctx: click.Context | None = None) -> NoReturn:
        super().fail(f"{message.rstrip('.')}; name another one", param, ctx)


DIRECTORY = PathType(exists=True, file_okay=False, path_type=Path)
EXISTING_PATH = PathType(exists=True, path_type=Path)
NEW_PATH = PathType(path_type=Path)
"""A file or folder that need not exist yet."""
FILE_NAME = PathType()


def parse_duration(text: str) -> float:
    """Parse ``500ms``, ``5s``, ``1.5m`` or ``1h`` to seconds. Raises ValueError; a bare number is ambiguous."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError(f"{quoted(text)} is no duration; write a number and a unit: 500ms, 5s, 1m or 1h")
    number, unit = float(match[1]), match[2]
    # Division, because 300 * 0.001 is not the float nearest to 0.3.
    return number / 1000 if unit == "ms" else number * _UNIT_SECONDS[unit]


def show_duration(seconds: float) -> str:
    """The shortest exact notation of a duration; `parse_duration` converts it back to the same float."""
    for unit in ("h", "m", "s"):
        count = seconds / _UNIT_SECONDS[unit]
        if count >= 1 and count.is_integer():
            return f"{int(count)}{unit}"
    milliseconds = round(seconds * 1000)
    if milliseconds / 1000 == seconds:
        return f"{milliseconds}ms"
    return f"{seconds}s"


def duration(minimum: str, maximum: str) -> TextType:
    lowest, highest = parse_duration(minimum), parse_duration(maximum)
    between = f"a duration from {minimum} to {maximum}"

    def parse(text: str) -> float:
        if _NUMBER.fullmatch(text):
            sensible = [unit for unit in ("ms", "s") if lowest <= parse_duration(text + unit) <= highest]
            meant = one_of([text[:_LONGEST_SHOWN] + unit for unit in sensible]) if sensible else between
            raise ValueError(f"{quoted(text)} has no unit; write {meant}")
        seconds = parse_duration(text)
        if not lowest <= seconds <= highest:
            raise ValueError(f"{quoted(text)} is out of range; write {between}")
        return seconds

    return TextType("DURATION", parse, show_duration)


def whole_number(minimum: int, maximum: int) -> TextType:
    """An integer within an inclusive range; click's own type would accept ``1_0`` and non-ASCII digits."""

    def accepts(text: str) -> bool:
        return _WHOLE_NUMBER.fullmatch(text) is not None and minimum <= int(text) <= maximum

    return _text("NUMBER", accepts, f"is invalid; write a whole number from {minimum} to {maximum}", int)


def number_among(*choices: int) -> TextType:
    words = list(map(str, choices))
    return _text("NUMBER", words.__contains__, f"is invalid; write {one_of(words)}", int)


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


URL_PATH = TextType("PATH", _parse_url_path)


def split_listen_address(text: str) -> tuple[str, int]:
    """Split ``host:port``, ``:port`` (all interfaces) or ``[v6]:port``. Raises ValueError with the expected syntax."""
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
    """The path in ``unix:/path``, or None. Raises ValueError if it is invalid, or longer than the kernel's limit."""
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


LISTEN_ADDRESS = TextType("ADDRESS", _parse_listen_address)

TCP_ADDRESS = _text("ADDRESS", split_listen_address, "is no address")


def _parse_host_name(text: str) -> str:
    if not _ALLOWED_HOST.fullmatch(text):
        raise ValueError(
            f"{quoted(text)} is no host name; write one without a port, such as gpu-1.example.com or .example.com"
        )
    if not text.strip("0123456789."):
        raise ValueError(f"{quoted(text)} is an address, which is always allowed; write names only")
    return text.lower()


HOST_NAME = TextType("NAME", _parse_host_name)
"""In lower case; a leading dot matches a domain and all its subdomains."""

SCENARIO = _text(
    "SCENARIO",
    lambda text: text and text.isprintable(),
    "is invalid; write the name of a scenario or the path of its file",
)
SOCKET = _text(
    "PATH",
    lambda text: text.startswith("/") and text.isprintable(),
    "is invalid; write the absolute path of the socket, such as /var/lib/kubelet/pod-resources/kubelet.sock",
    Path,
)
"""A Unix socket that need not exist yet."""
METRIC_PATTERN = _text(
    "PATTERN", _METRIC_PATTERN.fullmatch, "is no metric; write a name, or a pattern such as gpu_nvlink_*"
)
"""Whether such a metric exists is checked later, when all metrics are known."""
DEVICE_PATTERN = _text(
    "PATTERN", _DEVICE_PATTERN.fullmatch, "is invalid; write a device or a pattern, such as mlx5_* or ens1f[01]np0"
)
