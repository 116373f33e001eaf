"""What clients do to a server who mean it harm; each attack is bounded in connections and ends when it is told to."""

from __future__ import annotations

import base64
import itertools
import os
import socket
import ssl
import threading
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.synchronize import Event as ProcessEvent

    from tests.hostile.target import Target

    Stop = threading.Event | ProcessEvent
    Attack = Callable[[Target, Stop], None]

SLOW_CONNECTIONS = 100
WORKERS = 8
SCRAPE = b"GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n"
MALFORMED = (
    b"\x00" * 64 + b"\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + SCRAPE,
    b"GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
    b"GET /" + b"x" * 200_000 + b" HTTP/1.1\r\nHost: h\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: h\r\nA: " + b"x" * 200_000 + b"\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 100000000\r\n\r\n" + b"x" * 100_000,
)
ENCODINGS = (b"gzip;q=nan", b"*;q=1e999", b", ".join([b"gzip"] * 800), b"\xff\xfe", b"gzip;" * 2000)
SELECTION = b"GET /metrics?" + b"&".join(b"name[]=gpu_%d" % n for n in range(250)) + b" HTTP/1.1\r\nHost: h\r\n\r\n"


def silence(target: Target, stop: Stop) -> None:
    """Open more connections than the server keeps, say nothing, and open each again that is cut."""
    with ExitStack() as opened:
        clients = [opened.enter_context(target.connect()) for _ in range(600)]  # more than the server keeps
        for turn in itertools.cycle(range(len(clients))):
            if stop.is_set():
                return
            clients[turn].setblocking(False)  # noqa: FBT003 - the socket module's own signature
            with suppress(OSError):
                if clients[turn].recv(1) == b"":
                    clients[turn].close()
                    clients[turn] = opened.enter_context(target.connect())
            stop.wait(0.0005)


def slow(start: bytes, target: Target, stop: Stop) -> None:
    """Send requests byte by byte, over and over."""
    with ExitStack() as opened:
        clients = [_begin(opened, target, start) for _ in range(SLOW_CONNECTIONS)]
        while not stop.wait(0.01):
            for turn, client in enumerate(clients):
                try:
                    client.sendall(b"x")
                except OSError:
                    clients[turn] = _begin(opened, target, start)


def over_and_over(requests: tuple[bytes, ...], target: Target, stop: Stop) -> None:
    """Send one request after the other, each over a new connection, and read what comes."""
    for request in itertools.cycle(requests):
        if stop.is_set():
            return
        with suppress(OSError), _connection(target) as client:
            client.sendall(request)
            client.recv(1 << 16)


def unread(target: Target, stop: Stop) -> None:
    """Ask for page after page over many connections and read none."""
    with ExitStack() as opened:
        clients: list[socket.socket] = []
        while not stop.wait(0.002):
            with suppress(OSError):
                if len(clients) < SLOW_CONNECTIONS:
                    clients.append(opened.enter_context(_connection(target)))
                clients[-1].sendall(SCRAPE * 50)


def pipelined(target: Target, stop: Stop) -> None:
    over_and_over((SCRAPE * 400,), target, stop)


def wrong_passwords(target: Target, stop: Stop) -> None:
    """Try one password after the other over a connection that is kept."""
    claim = b"GET /metrics HTTP/1.1\r\nHost: h\r\nAuthorization: Basic %b\r\n\r\n"
    for number in itertools.count():
        with suppress(OSError), _connection(target) as client:
            for guess in range(200):
                if stop.is_set():
                    return
                client.sendall(claim % base64.b64encode(b"prometheus:guess %d %d" % (number, guess)))
                client.recv(1 << 16)


def crowd(connections: int, target: Target, stop: Stop) -> None:
    """Scrape over many connections at the same time, as fast as answers come."""
    request = SCRAPE.replace(b"\r\n\r\n", b"\r\nAccept-Encoding: gzip\r\n\r\n")
    with ExitStack() as opened:
        clients = [opened.enter_context(_connection(target)) for _ in range(connections)]
        while not stop.is_set():
            for send in (True, False):
                for turn, client in enumerate(clients):
                    try:
                        _step(client, request, send=send)
                    except OSError:
                        client.close()
                        with suppress(OSError):
                            clients[turn] = opened.enter_context(_connection(target))


def tls_garbage(target: Target, stop: Stop) -> None:
    """Begin handshakes that are none, or never end, and keep the connections."""
    with ExitStack() as opened:
        held: list[socket.socket] = []
        for number in itertools.count():
            if stop.is_set():
                return
            with suppress(OSError):
                client = opened.enter_context(target.connect())
                client.sendall(os.urandom(2000) if number % 3 == 0 else b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
                held.append(client)
            if len(held) > SLOW_CONNECTIONS:
                held.pop(0).close()


def tls_handshakes(target: Target, stop: Stop) -> None:
    while not stop.is_set():
        with suppress(OSError), _connection(target):
            pass


PLAIN: dict[str, tuple[Attack, int]] = {
    "silent connections": (silence, 1),
    "slow heads": (partial(slow, b"GET /metrics HTTP/1.1\r\nHost: h\r\nX: "), 1),
    "slow bodies": (partial(slow, b"POST /metrics HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\n\r\n"), 1),
    "malformed and oversized requests": (partial(over_and_over, MALFORMED), WORKERS),
    "odd encodings": (
        partial(over_and_over, tuple(SCRAPE[:-2] + b"Accept-Encoding: %b\r\n\r\n" % each for each in ENCODINGS)),
        WORKERS,
    ),
    "pipelined requests": (pipelined, WORKERS),
    "unread answers": (unread, 1),
    "selections of families": (partial(over_and_over, (SELECTION,)), WORKERS),
    "500 scrapers": (partial(crowd, 125), 4),
}
"""Attack by name, and how many carry it out; against a daemon that anybody may ask."""

GUARDED: dict[str, tuple[Attack, int]] = {
    "TLS garbage and half handshakes": (tls_garbage, WORKERS),
    "TLS handshakes": (tls_handshakes, WORKERS),
    "wrong passwords": (wrong_passwords, WORKERS),
    "silent connections before TLS": (silence, 1),
}
"""The same against one that wants TLS and a password."""


def carry_out(name: str, target: Target, stop: Stop) -> None:
    attack, workers = {**PLAIN, **GUARDED}[name]
    threads = [threading.Thread(target=attack, args=(target, stop), name=f"attack {n}") for n in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@contextmanager
def under(name: str, target: Target) -> Iterator[None]:
    """An attack, for the length of a ``with`` block."""
    stop = threading.Event()
    thread = threading.Thread(target=carry_out, args=(name, target, stop), name=name)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _begin(opened: ExitStack, target: Target, start: bytes) -> socket.socket:
    client = opened.enter_context(target.connect())
    with suppress(OSError):
        client.sendall(start)
    return client


def _connection(target: Target) -> socket.socket:
    client = target.connect()
    if not target.guarded:
        return client
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        return context.wrap_socket(client)
    except BaseException:
        client.close()
        raise


def _step(client: socket.socket, request: bytes, *, send: bool) -> None:
    if send:
        client.sendall(request)
    elif client.recv(1 << 20) == b"":
        raise ConnectionResetError
