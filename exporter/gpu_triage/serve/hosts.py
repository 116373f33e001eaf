"""The host names under which this server may be accessed.

This prevents DNS rebinding: an attacker's host name first resolves to the attacker's web server, and later to this one,
so that a page in the browser can read this server's responses. The browser still sends the attacker's name in the Host
header, which gives such requests away.
"""

from __future__ import annotations

import ipaddress
import logging
import re
from typing import TYPE_CHECKING, Final

from gpu_triage.log import QUIET_SECONDS, repeated
from gpu_triage.serve.messages import Answer, text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpu_triage.serve.messages import Request

_HOST: Final = re.compile(r"(?:\[(?P<v6>[^\[\]:]*:[^\[\]]*)\]|(?P<name>[A-Za-z0-9._~!$&'()*+;=%-]*))(?::[0-9]*)?")
"""RFC 3986, without commas, because repeated headers are joined with them."""

_LOCALHOST: Final = "localhost"
"""Browsers don't look it up in DNS."""

_LONGEST_LOGGED: Final = 100

log = logging.getLogger(__name__)


class AllowedHosts:
    """Rejects requests for host names that aren't this server's.

    IP addresses and localhost are always allowed, since an attacker's name is neither.

    Args:
        names: in lower case; one that starts with a dot matches a domain and all its subdomains. If empty, every
            request is allowed.
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names = frozenset(names)
        self._domains = tuple(name for name in self._names if name.startswith("."))

    def refusal(self, request: Request) -> Answer | None:
        """The error response to a rejected request; None if it is allowed."""
        if not self._names:
            return None
        given = request.header(b"host")
        host = _HOST.fullmatch(given)
        if host is None or not _is_address(host["v6"] or "::"):
            return text(400, "invalid Host")
        if host["v6"] or self._allows(host["name"].lower().removesuffix(".")):
            return None
        cause = "the Host is not in --web.allowed-hosts"
        facts = repeated(cause, QUIET_SECONDS, cause=cause, client=request.address, host=given[:_LONGEST_LOGGED])
        log.warning("request refused", extra=facts)
        return text(421, "this Host is not in --web.allowed-hosts: add it there, or use the IP address")

    def _allows(self, name: str) -> bool:
        return (
            name == _LOCALHOST
            or name in self._names
            or any(f".{name}".endswith(domain) for domain in self._domains)
            or _is_address(name)
        )


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.replace("%25", "%"))
    except ValueError:
        return False
    return True
