"""What guards the server now: loaded at the start, loaded again when a file changed, never weakened on the way."""

from __future__ import annotations

import logging
import ssl
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gpu_triage.collectors.exporter import WebConfigHealth
from gpu_triage.errors import ConfigError
from gpu_triage.log import fields
from gpu_triage.web.config_file import WebConfig, read_web_config
from gpu_triage.web.tls import server_context

if TYPE_CHECKING:
    from collections.abc import Callable

RELOAD_SECONDS = 5.0
"""How often the files are looked at."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Security:
    """What guards the server at one moment.

    Attributes:
        config: what the file asks for; all defaults without a file.
        context: to serve HTTPS with; None for HTTP.
    """

    config: WebConfig = field(default_factory=WebConfig)
    context: ssl.SSLContext | None = None


class SecuritySource:
    """What guards the server; with a file, as that file and those it names say now.

    Files are compared by content: whatever way a secret is replaced, written over or behind a swapped symbolic link,
    it is seen, and a touch without a change costs no connection.

    Args:
        path: of the web configuration file; None guards nothing.
        report: told how each load went, where there is a file.
        wall: seconds since the Unix epoch.

    Attributes:
        current: what guards now; swapped in whole, read it from any thread.

    Raises:
        ConfigError: the file cannot be used.
    """

    def __init__(
        self,
        path: str | None = None,
        report: Callable[[WebConfigHealth], None] = lambda _health: None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.current = Security() if path is None else _load(path)
        self.path = path
        self._report = report
        self._wall = wall
        self._complaint: str | None = None
        self._loaded_at = wall()
        if path is not None:
            self._report(WebConfigHealth(success=True, loaded_at=self._loaded_at))

    def reload(self) -> bool:
        """Whether what guards the server changed just now.

        Files that cannot be used change nothing; that they cannot is logged once, and reported.
        """
        if self.path is None:
            return False
        try:
            config = read_web_config(self.path)
            changed = config != self.current.config
            if changed:
                _refuse_weakening(self.path, self.current.config, config)
                self.current = _guarded_by(config)
        except ConfigError as error:
            self._fail(str(error))
            return False
        if changed or self._complaint is not None:
            self._loaded_at = self._wall()
            self._complaint = None
            log.info("web configuration loaded", extra=fields(file=self.path))
            self._report(WebConfigHealth(success=True, loaded_at=self._loaded_at))
        return changed

    def _fail(self, complaint: str) -> None:
        if complaint != self._complaint:
            self._complaint = complaint
            log.error("web configuration cannot be used, what was loaded last stays", extra=fields(cause=complaint))
            self._report(WebConfigHealth(success=False, loaded_at=self._loaded_at))


class Reloader:
    """A thread that reloads a source at an interval; a filesystem that hangs holds up nothing else.

    Args:
        source: what to reload.
        changed: called on the thread after each change.
        interval_seconds: from look to look.
    """

    def __init__(self, source: SecuritySource, changed: Callable[[], object], interval_seconds: float) -> None:
        self._source = source
        self._changed = changed
        self._interval_seconds = interval_seconds
        self._stopped = False
        self._woken = threading.Event()
        if source.path is not None:
            threading.Thread(target=self._run, name="web-config", daemon=True).start()

    def look_now(self) -> None:
        """Look before the interval is over; returns at once."""
        self._woken.set()

    def stop(self) -> None:
        """Look no more; returns at once."""
        self._stopped = True
        self._woken.set()

    def _run(self) -> None:
        while True:
            self._woken.wait(self._interval_seconds)
            if self._stopped:
                return
            self._woken.clear()
            if self._source.reload():
                with suppress(RuntimeError):  # the server's loop has just ended
                    self._changed()


def _load(path: str) -> Security:
    return _guarded_by(read_web_config(path))


def _guarded_by(config: WebConfig) -> Security:
    return Security(config, None if config.tls is None else server_context(config.tls))


def _refuse_weakening(path: str, before: WebConfig, after: WebConfig) -> None:
    # A file caught while it is being written may be empty, or end early: no moment may come at which that lets
    # everybody in. Turning TLS on changes the URL that clients use; that is a restart, too.
    if (before.tls is None) != (after.tls is None):
        raise ConfigError(f"{path}: turns TLS {'off' if after.tls is None else 'on'}; restart the exporter for that")
    if before.users and not after.users:
        raise ConfigError(f"{path}: asks for no password any more; restart the exporter for that")
    if before.tls and after.tls and before.tls.client_ca and not after.tls.client_ca:
        raise ConfigError(f"{path}: verifies no client certificate any more; restart the exporter for that")
