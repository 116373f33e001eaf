"""Listening sockets: opened for configured addresses, or inherited from systemd."""

import errno
import os
import re
import socket
import stat
from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final

from gpu_triage.errors import AddressUnavailable, ConfigError
from gpu_triage.options.values import split_listen_address, unix_socket_path

_BACKLOG = 512
_NO_SUCH_FAMILY = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)
_MAY_PASS = frozenset({errno.EADDRINUSE, errno.EADDRNOTAVAIL, socket.EAI_AGAIN})
"""Another process may end, an interface may get its address, and the name server may answer."""
_FIRST_INHERITED = 3
"""systemd's SD_LISTEN_FDS_START."""


def open_listeners(addresses: Sequence[str]) -> list[socket.socket]:
    """Listen on all of the addresses, in their order; all or none.

    Raises ConfigError if an address is invalid, or can't be resolved or bound; the message names it and the reason;
    AddressUnavailable if it can't be bound now: it is in use, or this host doesn't have it yet. An address is ``:port``
    (all interfaces, IPv4 and IPv6), ``host:port``, ``[v6]:port`` or ``unix:/path``; for port 0, the kernel chooses one.
    """
    with ExitStack() as opened:
        listeners: list[socket.socket] = []
        for address in addresses:
            for listener in _listeners(address):
                opened.callback(close_listener, listener)
                listeners.append(listener)
        opened.pop_all()
    return listeners


def inherited_listeners(environment: MutableMapping[str, str]) -> list[socket.socket]:
    """The sockets passed by systemd, in the order of its socket unit (sd_listen_fds(3)).

    Raises ConfigError if there are none, or one isn't a listening stream socket. LISTEN_PID and LISTEN_FDS are removed
    from `environment`, so that child processes don't use them.
    """
    pid, count = environment.pop("LISTEN_PID", ""), environment.pop("LISTEN_FDS", "")
    environment.pop("LISTEN_FDNAMES", None)
    if pid != str(os.getpid()) or not count.isdecimal() or int(count) == 0:
        raise ConfigError(
            "--web.systemd-socket: systemd handed over no socket; start this by its socket unit, or leave the flag out"
        )
    return [_inherited(number) for number in range(_FIRST_INHERITED, _FIRST_INHERITED + int(count))]


def close_listener(listener: socket.socket, *, inherited: bool = False) -> None:
    """Close a listening socket; also removes the file of a Unix socket unless systemd created it."""
    path = listener.getsockname() if listener.family == socket.AF_UNIX and not inherited else None
    listener.close()
    if path:
        with suppress(OSError):
            Path(path).unlink()


def listener_url(listener: socket.socket, scheme: str) -> str:
    """The URL of a socket: ``http://[::]:9836``, or as in nginx ``http://unix:/path:``, to which a path is appended."""
    if listener.family == socket.AF_UNIX:
        return f"{scheme}://unix:{listener.getsockname()}:"
    host, port = listener.getsockname()[:2]
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def _inherited(number: int) -> socket.socket:
    try:
        listener = socket.socket(fileno=number)
    except OSError as error:
        raise ConfigError(f"--web.systemd-socket: file descriptor {number} is no socket: {error.strerror}") from error
    if listener.type != socket.SOCK_STREAM or not listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        raise ConfigError(
            f"--web.systemd-socket: file descriptor {number} does not listen for streams; "
            "write ListenStream= and Accept=no into the socket unit"
        )
    listener.set_inheritable(False)
    return _tuned(listener)


def _listeners(address: str) -> Iterator[socket.socket]:
    absent: OSError | None = None
    listening = False
    for family, where in _places(address):
        try:
            listener = _listen(family, where)
        except OSError as error:
            # The kernel may lack one of the address families.
            if error.errno not in _NO_SUCH_FAMILY:
                raise _refused(address, error) from error
            absent = error
            continue
        yield listener
        listening = True
        if where[0] == "::":
            return  # the dual-stack socket covers IPv4
    if not listening:
        raise _refused(address, absent) from absent


def _places(address: str) -> list[tuple[int, tuple[Any, ...] | str]]:
    try:
        path = unix_socket_path(address)
        host, port = ("", 0) if path is not None else split_listen_address(address)
    except ValueError as error:
        raise ConfigError(f"--web.listen-address {error}") from error
    if path is not None:
        return [(socket.AF_UNIX, path)]
    if not host:
        return [(socket.AF_INET6, ("::", port)), (socket.AF_INET, ("0.0.0.0", port))]  # noqa: S104 - as configured
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise _refused(address, error) from error
    return list(dict.fromkeys((family, where) for family, _, _, _, where in found))


def _remove_dead_socket(path: str) -> None:
    # The socket file of a killed process stays behind and makes bind() fail.
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise OSError(errno.EEXIST, "a non-socket file exists at this path")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        if probe.connect_ex(path) == errno.ECONNREFUSED:
            Path(path).unlink()


def _listen(family: int, where: tuple[Any, ...] | str) -> socket.socket:
    if isinstance(where, str):
        _remove_dead_socket(where)
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        if family != socket.AF_UNIX:
            # Without this, a restart would have to wait for old connections to leave TIME_WAIT.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(where[0] != "::"))
        listener.bind(where)
        listener.listen(_BACKLOG)
        return _tuned(listener)
    except BaseException:
        listener.close()
        raise


def _tuned(listener: socket.socket) -> socket.socket:
    if listener.family != socket.AF_UNIX:
        # Inherited by accepted sockets. asyncio sets it only on sockets created with an explicit protocol; without it,
        # the end of a short response waits 40 ms for the client's delayed ACK.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    listener.setblocking(False)  # noqa: FBT003 - signature of the socket module
    return listener


def _refused(address: str, error: OSError | None) -> ConfigError | AddressUnavailable:
    why = "no such address on this host" if error is None else error.strerror or str(error)
    taken = error is not None and error.errno == errno.EADDRINUSE
    next_step = "end what is served there, or write another" if taken else "write another"
    message = f"--web.listen-address {address!r}: {why}; {next_step}"
    return AddressUnavailable(message) if error is not None and error.errno in _MAY_PASS else ConfigError(message)


_EVERY_INTERFACE: Final = re.compile(r"//(?:\[::\]|0\.0\.0\.0):")


def on_every_interface(url: str) -> bool:
    """Whether a URL from `listener_url` is that of all interfaces of its host."""
    return _EVERY_INTERFACE.search(url) is not None


def browser_url(urls: Iterable[str]) -> str | None:
    """The first of these URLs, from `listener_url`, that a browser on this host can open; None if none can."""
    return next((_EVERY_INTERFACE.sub("//localhost:", url) for url in urls if not url.startswith("http://unix:")), None)
