"""What a client asks for, read from its headers and its query string; everything here may be hostile."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_NAMES = 256
MAX_NAME_LENGTH = 256


class QueryError(ValueError):
    """A query string that cannot be answered; the message is fit for the client and repeats none of it."""


def header(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> str:
    """The value of a header, "" where it was not sent; repeated headers are joined by commas (RFC 9110 5.3).

    Args:
        headers: names in lower case, as ASGI gives them.
        name: in lower case.
    """
    return ", ".join(value.decode("latin-1") for key, value in headers if key == name)


def accepts_gzip(accept_encoding: str) -> bool:
    """Whether an Accept-Encoding allows gzip: named with a weight above 0, or covered by ``*``.

    RFC 9110 12.5.3. A weight that is no number counts as 0: the plain answer is right for every client.
    """
    weights: dict[str, float] = {}
    for item in accept_encoding.split(","):
        coding, *parameters = (part.strip().lower() for part in item.split(";"))
        weights[coding] = _weight(parameters)
    return weights.get("gzip", weights.get("x-gzip", weights.get("*", 0.0))) > 0


def _weight(parameters: list[str]) -> float:
    for parameter in parameters:
        key, _, value = parameter.partition("=")
        if key.strip() == "q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0


def metric_names(query: bytes) -> tuple[str, ...]:
    """The metric families asked for with ``name[]=``, each once, in order; empty where all are wanted.

    Other parameters are left alone, for Prometheus may be told to send some to every target.

    Raises:
        QueryError: more than `MAX_NAMES` parameters, or a name longer than `MAX_NAME_LENGTH` characters.
    """
    if not query:
        return ()
    try:
        parameters = parse_qsl(query.decode("ascii", "replace"), max_num_fields=MAX_NAMES)
    except ValueError as error:
        raise QueryError(f"at most {MAX_NAMES} parameters") from error
    names = tuple(dict.fromkeys(value for key, value in parameters if key == "name[]"))
    if any(len(name) > MAX_NAME_LENGTH for name in names):
        raise QueryError(f"a name[] has at most {MAX_NAME_LENGTH} characters")
    return names
