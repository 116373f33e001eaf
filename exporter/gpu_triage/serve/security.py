"""The server's TLS and password settings, loaded at startup and reloaded on change, but never weakened by a reload.

The names under which the server may be accessed prevent DNS rebinding: an attacker's host name first resolves to the
attacker's web server, and later to this one, so that a page in the browser can read this server's responses. The
browser still sends the attacker's name in the Host header, which gives such requests away.
"""

from __future__ import annotations

import ipaddress
import logging
import re
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final, Literal

from gpu_triage.documents import Place
from gpu_triage.errors import ConfigError
from gpu_triage.log import QUIET_SECONDS, fields, repeated
from gpu_triage.read.exporter.exporter_health import WebConfigHealth
from gpu_triage.serve.config_file import WebConfig, read_web_config
from gpu_triage.serve.messages import Answer, Request, text

if TYPE_CHECKING:
    import ssl
    from collections.abc import Collection

    from gpu_triage.serve.passwords import PasswordChecks

RELOAD_SECONDS = 5.0
"""How often the files are checked for changes."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Security:
    """A consistent set of security settings: the configuration, and what it needs for HTTPS and for passwords."""

    config: WebConfig = field(default_factory=WebConfig)
    context: ssl.SSLContext | None = None
    passwords: PasswordChecks | None = None


class SecuritySource:
    """Provides the current security settings, and reloads them when the file or one it refers to changes.

    Changes are detected by content: that works however a secret is replaced, in place or by swapping a symlink, and
    touching a file costs no connection. Without a `path`, there is neither TLS nor passwords. `report` gets the result
    of each load, and `also` is called after each `look_now`. Raises ConfigError if the file is unreadable or invalid.
    """

    def __init__(
        self,
        path: str | None = None,
        report: Callable[[WebConfigHealth], None] = lambda _health: None,
        wall: Callable[[], float] = time.time,
        *,
        also: Callable[[], object] | None = None,
        reload_seconds: float = RELOAD_SECONDS,
    ) -> None:
        self.current = Security()  # the current settings; replaced atomically, safe to read from any thread
        self._path = path
        self._report = report
        self._wall = wall
        self._also = also
        self._reload_seconds = None if path is None else reload_seconds
        self._complaint: str | None = None
        self._loaded_at = wall()
        # Signal handlers may put orders, too: unlike an Event, a SimpleQueue is reentrant.
        self._orders: SimpleQueue[Literal["reload", "end"]] = SimpleQueue()
        if path is not None:
            self.current = _guarded_by(path, read_web_config(path))
            report(WebConfigHealth(success=True, loaded_at=self._loaded_at))

    def reload(self) -> bool:
        """Reload the files; return whether settings changed. Invalid ones change nothing, and are logged once."""
        if self._path is None:
            return False
        try:
            config = read_web_config(self._path)
            changed = config != self.current.config
            if changed:
                _refuse_weakening(self._path, self.current.config, config)
                self.current = _guarded_by(self._path, config)
        except ConfigError as error:
            if (complaint := str(error)) != self._complaint:
                self._complaint = complaint
                message = "web configuration cannot be used, what was loaded last stays"
                log.error(message, extra=fields(cause=complaint))  # noqa: TRY400 - no bug, so no traceback
                self._report(WebConfigHealth(success=False, loaded_at=self._loaded_at))
            return False
        if changed or self._complaint is not None:
            self._loaded_at = self._wall()
            self._complaint = None
            log.info("web configuration loaded", extra=fields(file=self._path))
            self._report(WebConfigHealth(success=True, loaded_at=self._loaded_at))
        return changed

    def watch(self, changed: Callable[[], object]) -> None:
        """Reload at the interval and on `look_now`, and call `changed` after a change.

        On a thread of its own, because a filesystem may hang.
        """

        def reload_until_stopped() -> None:
            while True:
                order = None
                with suppress(Empty):
                    order = self._orders.get(timeout=self._reload_seconds)
                    while order != "end":  # one reload is enough for all requests so far
                        order = self._orders.get_nowait()
                if order == "end":
                    return
                try:
                    if self.reload():
                        with suppress(RuntimeError):  # the server's loop has just closed
                            changed()
                    if order is not None and self._also is not None:
                        self._also()
                except Exception:
                    log.exception("reloading failed")  # a bug must not end the thread

        if self._path is not None or self._also is not None:
            threading.Thread(target=reload_until_stopped, name="reload", daemon=True).start()

    def look_now(self) -> None:
        """Request a reload; from any thread or signal handler."""
        self._orders.put("reload")

    def stop(self) -> None:
        self._orders.put("end")


def _guarded_by(path: str, config: WebConfig) -> Security:
    context = passwords = None
    if config.users:
        # Imported only with passwords: bcrypt takes half a megabyte.
        from gpu_triage.serve.passwords import PasswordChecks  # noqa: PLC0415

        passwords = PasswordChecks(config.users)
    if config.tls is not None:
        # Imported only when serving HTTPS: OpenSSL takes 4 MiB.
        from gpu_triage.serve.tls import server_context  # noqa: PLC0415

        context = server_context(config.tls, Place(path).at("tls_server_config"))
    return Security(config, context, passwords)


def _refuse_weakening(path: str, before: WebConfig, after: WebConfig) -> None:
    # A file read while it is being written may be empty or truncated, and must never open the server to everyone.
    # Turning TLS on changes the URL that clients use, so that takes a restart, too.
    if (before.tls is None) != (after.tls is None):
        raise ConfigError(f"{path}: turns TLS {'off' if after.tls is None else 'on'}; restart the exporter for that")
    if before.users and not after.users:
        raise ConfigError(f"{path}: asks for no password any more; restart the exporter for that")
    if before.tls and after.tls and before.tls.client_ca and not after.tls.client_ca:
        raise ConfigError(f"{path}: verifies no client certificate any more; restart the exporter for that")


_HOST: Final = re.compile(r"(?:\[(?P<v6>[^\[\]:]*:[^\[\]]*)\]|(?P<name>[A-Za-z0-9._~!$&'()*+;=%-]*))(?::[0-9]*)?")
"""RFC 3986, without commas, because repeated headers are joined with them."""

_LOCALHOST: Final = "localhost"
"""Browsers don't look it up in DNS."""

_LONGEST_LOGGED: Final = 100


def host_refusal(request: Request, names: Collection[str]) -> Answer | None:
    """The error response to a request for a host name that isn't among this server's `names`; None if it is allowed.

    IP addresses and localhost are always allowed, since an attacker's name is neither. The names are in lower case; one
    that starts with a dot matches a domain and its subdomains. If there are none, every request is allowed.
    """
    if not names:
        return None
    given = request.header(b"host")
    host = _HOST.fullmatch(given)
    if host is None or not _is_address(host["v6"] or "::"):
        return text(400, "invalid Host")
    name = (host["name"] or "").lower().removesuffix(".")
    in_a_domain = any(each.startswith(".") and f".{name}".endswith(each) for each in names)
    if host["v6"] or name == _LOCALHOST or name in names or in_a_domain or _is_address(name):
        return None
    cause = "the Host is not in --web.allowed-hosts"
    facts = repeated(cause, QUIET_SECONDS, cause=cause, client=request.address, host=given[:_LONGEST_LOGGED])
    log.warning("request refused", extra=facts)
    return text(421, "this Host is not in --web.allowed-hosts: add it there, or use the IP address")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.replace("%25", "%"))
    except ValueError:
        return False
    return True
