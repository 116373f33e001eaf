"""The names by which clients may call this server.

A page in somebody's browser may not read another server's answers, unless both have one name: an attacker's name can
lead to the attacker's server first, and to this one when the page asks again (DNS rebinding). The browser then sends
the attacker's name as Host, by which such a request is told from others.
"""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING, Final

from gpu_triage.web.messages import Answer, text
from gpu_triage.web.refusals import RefusalLog

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpu_triage.web.messages import Request

_HOST: Final = re.compile(r"(?:\[(?P<v6>[^\[\]:]*:[^\[\]]*)\]|(?P<name>[A-Za-z0-9._~!$&'()*+;=%-]*))(?::[0-9]*)?")
"""RFC 3986, without the comma, which stands between headers that were sent apart."""

_LOCALHOST: Final = "localhost"
"""Browsers do not ask the DNS for it."""

_LONGEST_LOGGED: Final = 100


class AllowedHosts:
    """Refuses requests to names that are not this server's.

    Addresses and localhost are always allowed: a name that an attacker controls is neither.

    Args:
        names: in lower case; one that starts with a dot stands for a domain and all names below it. Without any, every
            request is allowed.
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names = frozenset(names)
        self._domains = tuple(name for name in self._names if name.startswith("."))
        self._log = RefusalLog("request refused")

    def refusal(self, request: Request) -> Answer | None:
        """The answer to a request that is refused; None for one that is allowed."""
        if not self._names:
            return None
        given = request.header(b"host")
        host = _HOST.fullmatch(given)
        if host is None or not _is_address(host["v6"] or "::"):
            return text(400, "invalid Host")
        if host["v6"] or self._allows(host["name"].lower().removesuffix(".")):
            return None
        self._log.note("the Host is not in --web.allowed-hosts", request.address, host=given[:_LONGEST_LOGGED])
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
