"""HTTP requests and responses, and parsing of headers and query strings; all client input may be hostile."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl

MAX_NAMES = 256
MAX_NAME_LENGTH = 256
_LONGEST_HEADER = 2048
"""Of a longer Accept or Accept-Encoding, the rest is ignored, so that parsing it takes no time from other clients."""

Headers = tuple[tuple[bytes, bytes], ...]
"""Header names are in lower case."""

RETRY = (b"retry-after", b"1")
"""Header for a 503: retry in a second."""


class QueryError(ValueError):
    """An invalid query string; the message is safe to send and doesn't quote the query."""


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str  # decoded, without the query; starts with a slash
    query: bytes  # as sent, without the question mark
    headers: Headers
    address: str  # the client's IP address; "" over a Unix socket

    def header(self, name: bytes) -> str:
        """The value of a header, "" if missing; repeated headers are joined with commas (RFC 9110 5.3)."""
        return ", ".join(value.decode("latin-1") for key, value in self.headers if key == name)


@dataclass(frozen=True, slots=True)
class Answer:
    """One complete HTTP response; if a header is repeated, the last one wins."""

    status: int
    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    headers: Headers = ()


def text(status: int, message: str, *headers: tuple[bytes, bytes]) -> Answer:
    return Answer(status, f"{message}\n".encode("utf-8", "replace"), headers=headers)


def html(body: bytes, policy: bytes, *headers: tuple[bytes, bytes], status: int = 200) -> Answer:
    """An HTML page with a Content-Security-Policy; it sends no Referer header to other servers."""
    own = ((b"content-security-policy", policy), (b"referrer-policy", b"no-referrer"))
    return Answer(status, body, "text/html; charset=utf-8", (*own, *headers))


def weighted(header: str) -> Iterator[tuple[str, Mapping[str, str], float]]:
    """The items of an Accept header in lower case, with weights of 0 to 1; 0 if invalid. Source: RFC 9110 12.4.2."""
    for item in header[:_LONGEST_HEADER].lower().split(","):
        name, *parameters = (part.strip() for part in item.split(";"))
        options = {key.strip(): value for key, _, value in (each.partition("=") for each in parameters)}
        try:
            weight = float(options.get("q", "1"))
        except ValueError:
            weight = 0.0
        yield name, options, weight if 0 <= weight <= 1 else 0.0


def accepts_gzip(accept_encoding: str) -> bool:
    """Whether an Accept-Encoding header allows gzip: listed with a weight above 0, or covered by ``*``."""
    weights = {coding: weight for coding, _, weight in weighted(accept_encoding)}
    return weights.get("gzip", weights.get("x-gzip", weights.get("*", 0.0))) > 0


def prefers_text(accept: str) -> bool:
    """Whether an Accept header lists plain text or Markdown, but not HTML."""
    types = {media_type for media_type, _, _ in weighted(accept)}
    return bool(types & {"text/plain", "text/markdown"}) and "text/html" not in types


def metric_names(query: bytes) -> tuple[str, ...]:
    """The metric families requested with ``name[]=``, deduplicated and in order; empty if all are wanted.

    Other parameters are ignored, because Prometheus can be configured to send some to every target. Raises QueryError
    for too many parameters (`MAX_NAMES`), or a name longer than `MAX_NAME_LENGTH` characters.
    """
    try:
        parameters = parse_qsl(query.decode("ascii", "replace"), max_num_fields=MAX_NAMES)
    except ValueError as error:
        raise QueryError(f"at most {MAX_NAMES} parameters") from error
    names = tuple(dict.fromkeys(value for key, value in parameters if key == "name[]"))
    if any(len(name) > MAX_NAME_LENGTH for name in names):
        raise QueryError(f"a name[] has at most {MAX_NAME_LENGTH} characters")
    return names


HEALTHY_PATH = "/-/healthy"
READY_PATH = "/-/ready"
VERDICT_PATH = "/api/v1/verdict"
RELEASE_PATH = "/-/release"
ACQUIRE_PATH = "/-/acquire"
RUNBOOKS_PATH = "/runbooks/"
