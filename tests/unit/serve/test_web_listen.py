import os
import socket
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from gpu_triage.errors import AddressUnavailable, ConfigError
from gpu_triage.serve.listen import browser_url, close_listener, inherited_listeners, listener_url, open_listeners


def _loopbacks() -> list[str]:
    with socket.socket(socket.AF_INET) as probe:
        probe.bind(("127.0.0.1", 0))
    if not socket.has_ipv6:
        return ["127.0.0.1"]
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return ["127.0.0.1"]
    return ["127.0.0.1", "::1"]


@pytest.mark.parametrize("loopback", _loopbacks())
def test_a_port_alone_serves_every_family_of_the_host(loopback: str) -> None:
    (listener,) = open_listeners([":0"])
    with closing(listener):
        port = listener.getsockname()[1]
        socket.create_connection((loopback, port), timeout=5).close()


@pytest.mark.parametrize("loopback", _loopbacks())
def test_one_address_serves_itself_and_says_its_url(loopback: str) -> None:
    bracketed = f"[{loopback}]" if ":" in loopback else loopback
    (listener,) = open_listeners([f"{bracketed}:0"])
    with closing(listener):
        port = listener.getsockname()[1]
        assert listener_url(listener, "http") == f"http://{bracketed}:{port}"
        socket.create_connection((loopback, port), timeout=5).close()


def test_accepted_connections_send_short_answers_at_once() -> None:
    (listener,) = open_listeners(["127.0.0.1:0"])
    with closing(listener), socket.create_connection(listener.getsockname(), timeout=5):
        listener.settimeout(5)
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_name_serves_all_its_addresses() -> None:
    with ExitStack() as stack:
        listeners = [stack.enter_context(listener) for listener in open_listeners(["localhost:0"])]
        assert {listener.getsockname()[0] for listener in listeners} <= {"127.0.0.1", "::1"}
        assert listeners


def test_a_kernel_without_ipv6_serves_ipv4(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "AF_INET6", 45)  # a family no kernel builds by default: bind fails as without v6
    (listener,) = open_listeners([":0"])
    with closing(listener):
        assert listener.family == socket.AF_INET


def test_a_port_in_use_is_named_and_nothing_stays_open() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.create_server(("127.0.0.1", 0)) as other:
        free_port = other.getsockname()[1]
        other.close()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        refusal = f"--web.listen-address '{address}': Address already in use; end what is served there"
        with pytest.raises(AddressUnavailable, match=refusal):
            open_listeners([f"127.0.0.1:{free_port}", address])
        with socket.create_server(("127.0.0.1", free_port)):
            pass


@pytest.mark.parametrize("address", ["9836", "unix:gpu.sock"])
def test_a_text_that_is_no_address_is_named(address: str) -> None:
    with pytest.raises(ConfigError, match=r"--web\.listen-address"):
        open_listeners([address])


def test_an_address_of_another_host_is_named() -> None:
    with pytest.raises(AddressUnavailable, match=r"'192\.0\.2\.1:0': Cannot assign requested address; write another"):
        open_listeners(["192.0.2.1:0"])


def test_a_unix_socket_serves_its_path_and_goes_with_its_listener(tmp_path: Path) -> None:
    path = tmp_path / "gpu.sock"
    (listener,) = open_listeners([f"unix:{path}"])
    assert listener_url(listener, "http") == f"http://unix:{path}:"
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
    close_listener(listener)
    assert not path.exists()


def test_the_file_of_a_process_that_was_killed_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "gpu.sock"
    open_listeners([f"unix:{path}"])[0].close()
    assert path.exists()
    (listener,) = open_listeners([f"unix:{path}"])
    close_listener(listener)


def test_a_unix_socket_that_is_served_or_a_file_that_is_none_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "gpu.sock"
    (listener,) = open_listeners([f"unix:{path}"])
    with pytest.raises(AddressUnavailable, match=rf"'unix:{path}': Address already in use"):
        open_listeners([f"unix:{path}"])
    close_listener(listener)
    path.write_text("precious")
    with pytest.raises(ConfigError, match="a non-socket file exists at this path"):
        open_listeners([f"unix:{path}"])
    assert path.read_text() == "precious"
    with pytest.raises(ConfigError, match="No such file or directory"):
        open_listeners([f"unix:{tmp_path}/nowhere/gpu.sock"])


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"LISTEN_FDS": "1"},
        {"LISTEN_PID": "1", "LISTEN_FDS": "1"},
        {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "0"},
        {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "one"},
    ],
)
def test_without_a_socket_of_systemd_for_this_process_there_is_none(environment: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="systemd handed over no socket; start this by its socket unit"):
        inherited_listeners(environment)
    assert environment == {}


@pytest.mark.parametrize(
    ("urls", "page"),
    [
        (["http://127.0.0.1:9836"], "http://127.0.0.1:9836"),
        (["http://unix:/run/gpu.sock:", "https://[::]:9836"], "https://localhost:9836"),
        (["http://0.0.0.0:1", "http://127.0.0.2:2"], "http://localhost:1"),
        (["http://unix:/run/gpu.sock:"], None),
    ],
)
def test_a_person_is_told_a_page_that_a_browser_of_this_host_opens(urls: list[str], page: str | None) -> None:
    assert browser_url(urls) == page
