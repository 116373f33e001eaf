"""Listening sockets: from the addresses an operator writes, or inherited from systemd."""

from __future__ import annotations

import errno
import os
import socket
import stat
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpu_triage.errors import ConfigError
from gpu_triage.options.values import split_listen_address, unix_socket_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, MutableMapping, Sequence

_BACKLOG = 512
_NO_SUCH_FAMILY = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)
_FIRST_INHERITED = 3
"""systemd's SD_LISTEN_FDS_START."""


def open_listeners(addresses: Sequence[str]) -> list[socket.socket]:
    """Sockets that listen on every one of the addresses, in their order; all or none.

    Args:
        addresses: ``:port`` (every interface, IPv4 and IPv6 alike), ``host:port``, ``[v6]:port`` or ``unix:/path``;
            port 0 leaves the choice to the kernel.

    Raises:
        ConfigError: an address that cannot be understood, resolved or bound; the message names it and why.
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
    """The sockets that systemd opened for this process, in the order of its socket unit (sd_listen_fds(3)).

    Args:
        environment: LISTEN_PID and LISTEN_FDS are taken out of it, so that no child believes them.

    Raises:
        ConfigError: there are none, or one is no listening stream socket.
    """
    pid, count = environment.pop("LISTEN_PID", ""), environment.pop("LISTEN_FDS", "")
    environment.pop("LISTEN_FDNAMES", None)
    if pid != str(os.getpid()) or not count.isdecimal() or int(count) == 0:
        raise ConfigError(
            "--web.systemd-socket: systemd handed over no socket; start this by its socket unit, or leave the flag out"
        )
    return [_inherited(number) for number in range(_FIRST_INHERITED, _FIRST_INHERITED + int(count))]


def close_listener(listener: socket.socket, *, inherited: bool = False) -> None:
    """Close a listening socket; the file of a Unix socket goes with it unless systemd made it."""
    path = listener.getsockname() if listener.family == socket.AF_UNIX and not inherited else None
    listener.close()
    if path:
        with suppress(OSError):
            Path(path).unlink()


def listener_url(listener: socket.socket, scheme: str) -> str:
    """The URL that reaches a listening socket: ``http://127.0.0.1:9836``, ``http://[::]:9836``, ``http://unix:/path:``.

    The last is how nginx writes a Unix socket, to which a path can be added as to the others.
    """
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
            # One family may be missing from the kernel while the other is there.
            if error.errno not in _NO_SUCH_FAMILY:
                raise _refused(address, error) from error
            absent = error
            continue
        yield listener
        listening = True
        if where[0] == "::":
            return  # the dual-stack socket serves IPv4 as well
    if not listening:
        raise _refused(address, absent) from absent


def _places(address: str) -> list[tuple[int, tuple[Any, ...] | str]]:
    """Families with what to bind to in each."""
    try:
        path = unix_socket_path(address)
        host, port = ("", 0) if path is not None else split_listen_address(address)
    except ValueError as error:
        raise ConfigError(f"--web.listen-address {error}") from error
    if path is not None:
        return [(socket.AF_UNIX, path)]
    if not host:
        return [(socket.AF_INET6, ("::", port)), (socket.AF_INET, ("0.0.0.0", port))]  # noqa: S104 - asked for
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise _refused(address, error) from error
    return list(dict.fromkeys((family, where) for family, _, _, _, where in found))


def _remove_dead_socket(path: str) -> None:
    # The kernel leaves the file of a process that was killed, and refuses to bind where it lies.
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise OSError(errno.EEXIST, "a file that is no socket lies there")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        if probe.connect_ex(path) == errno.ECONNREFUSED:
            Path(path).unlink()


def _listen(family: int, where: tuple[Any, ...] | str) -> socket.socket:
    if isinstance(where, str):
        _remove_dead_socket(where)
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        if family != socket.AF_UNIX:
            # A restart must not wait for the last process's connections to leave TIME_WAIT.
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
        # Accepted sockets inherit it. asyncio sets it only on sockets made with the protocol spelled out, and
        # without it the end of a short page waits 40 ms for the client's delayed acknowledgement.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    listener.setblocking(False)  # noqa: FBT003 - the socket module's own signature
    return listener


def _refused(address: str, error: OSError | None) -> ConfigError:
    why = "no such address on this host" if error is None else error.strerror or str(error)
    taken = error is not None and error.errno == errno.EADDRINUSE
    next_step = "end what is served there, or write another" if taken else "write another"
    return ConfigError(f"--web.listen-address {address!r}: {why}; {next_step}")


def browser_url(urls: Iterable[str]) -> str | None:
    """The first of these, as `listener_url` gives them, that a browser of this host opens; None without one."""
    for url in urls:
        if not url.startswith("http://unix:"):
            return url.replace("//[::]:", "//localhost:", 1).replace("//0.0.0.0:", "//localhost:", 1)
    return None
