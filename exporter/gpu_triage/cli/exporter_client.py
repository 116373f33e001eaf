"""HTTP client for a running exporter's verdict."""

import base64
import http.client
import json
import netrc
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final
from urllib.parse import urlsplit

from gpu_triage.cli.bounded_http import ended_after, read_body
from gpu_triage.errors import ConfigError, ExporterUnreachable
from gpu_triage.judge.report.machine_readable import report_from_json
from gpu_triage.judge.report.report import Report
from gpu_triage.options.values import split_listen_address, unix_socket_path

_PATH: Final = "/api/v1/verdict"
_TIMEOUT_SECONDS: Final = 3.0
_MOST_BYTES: Final = 16 * 1024**2
_PORT: Final = 9836
_EVERY_INTERFACE: Final = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - to reach, not to bind


class NothingListens(ExporterUnreachable):
    """Nothing accepts connections at the URL."""


class NotJudgedYet(ExporterUnreachable):
    """The exporter responds but has no verdict now; the message explains why."""


class ExporterClient:
    """Queries the exporter at a URL: ``http://host:9836``, ``https://host`` or ``unix:/path``; else a ConfigError.

    A password is read from ~/.netrc, because command lines are visible to all users. Proxies are not used.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._host, self._connection = _connection_to(url)

    def look(self) -> Report:
        """Fetch the verdict; raises ExporterUnreachable if there is none, with why and what to do."""
        status, body = self._get()
        if status == http.client.UNAUTHORIZED:
            hint = f"write a line to ~/.netrc: machine {self._host} login NAME password PASSWORD"
            raise ExporterUnreachable(f"{self.url} asks for a password; {hint}")
        try:
            if status == http.client.OK:
                return report_from_json(body)
            if status == http.client.SERVICE_UNAVAILABLE:
                document = json.loads(body)
                reason = document.get("error") if isinstance(document, dict) else None
                words = reason if isinstance(reason, str) else "it does not say why"
                raise NotJudgedYet(f"{self.url} has no verdict now: {words}")
        except (ValueError, RecursionError) as error:
            raise ExporterUnreachable(f"{self.url}{_PATH} cannot be read: {error}") from error
        raise ExporterUnreachable(f"{self.url} is no gpu-triage exporter: {_PATH} answers {status}")

    def _get(self) -> tuple[int, bytes]:
        connection = self._connection()
        try:
            with ended_after(connection, _TIMEOUT_SECONDS):
                connection.request("GET", _PATH, headers={"Accept": "application/json", **self._credentials()})
                # The connection does not close an answer that is left before its end.
                with connection.getresponse() as answer:
                    return answer.status, read_body(answer, _MOST_BYTES, "the answer is too long")
        except (ConnectionRefusedError, FileNotFoundError) as error:
            raise NothingListens(f"no exporter listens at {self.url}") from error
        except TimeoutError as error:
            raise ExporterUnreachable(f"{self.url} does not answer within {_TIMEOUT_SECONDS:g} s") from error
        except (OSError, http.client.HTTPException) as error:
            raise ExporterUnreachable(f"{self.url} does not answer: {error or type(error).__name__}") from error
        finally:
            connection.close()

    def _credentials(self) -> dict[str, str]:
        with suppress(OSError, netrc.NetrcParseError):
            if found := netrc.netrc().authenticators(self._host):
                pair = base64.b64encode(f"{found[0]}:{found[2]}".encode()).decode("ascii")
                return {"Authorization": f"Basic {pair}"}
        return {}


def local_url(listen_address: str, *, https: bool) -> str:
    if unix_socket_path(listen_address) is not None:
        return listen_address
    host, port = split_listen_address(listen_address)
    host = _EVERY_INTERFACE.get(host, host)
    return f"{'https' if https else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=_TIMEOUT_SECONDS)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(_TIMEOUT_SECONDS)
        self.sock.connect(self._path)


def _connection_to(url: str) -> tuple[str, Callable[[], http.client.HTTPConnection]]:
    """The host of a URL, which is localhost for a Unix socket, and a function that makes connections to it."""
    wrong = f"--url: {url!r} is no URL of an exporter; write one such as http://gpu-07:{_PORT}"
    try:
        if (path := unix_socket_path(url)) is not None:
            return "localhost", partial(_UnixConnection, path)
        parts = urlsplit(url)
        port = parts.port or _PORT
    except ValueError as error:
        raise ConfigError(f"{wrong}: {error}") from error
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/") or parts.query:
        raise ConfigError(wrong)
    if parts.username is not None:
        raise ConfigError("--url: leave name and password to ~/.netrc; everybody on this host can read a command line")
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    return parts.hostname, partial(kind, parts.hostname, port, timeout=_TIMEOUT_SECONDS)
