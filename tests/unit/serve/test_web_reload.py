"""Certificates, authorities and users that change while the server works."""

import os
import ssl
import threading
from pathlib import Path

import pytest
from tests.certificates import Authority, trusting_context
from tests.e2e.processes import wait_for
from tests.guarded_server import MTLS, PASSWORDS, REQUEST, Running, basic, replace, serving
from tests.rig import rig
from tests.web_sources import Host

from gpu_triage.read.exporter.exporter_health import WebConfigHealth
from gpu_triage.serve.app import WebApp
from gpu_triage.serve.passwords import hashed
from gpu_triage.serve.server import WebServer
from gpu_triage_simulator import load_scenario

CHANGED = f"basic_auth_users:\n  prometheus: {hashed(b'change', 4)}\n"


def common_name(client: ssl.SSLSocket) -> str:
    certificate = client.getpeercert()
    assert certificate is not None
    return str(dict(field for name in certificate["subject"] for field in name)["commonName"])  # type: ignore[misc]  # as ssl shapes it


def test_a_new_certificate_is_served_and_old_connections_end(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    trusting = trusting_context(tmp_path)
    with serving(tmp_path, authority.server(), reload_seconds=0.02) as running:
        with running.shake(trusting) as old:
            old.sendall(REQUEST)
            received = b""
            while not received.endswith(b"healthy\n"):
                received += old.recv(65536)
            assert common_name(old) == "server"
            certificate, key = authority.issue("renewed", "IP:127.0.0.1")
            replace(tmp_path / "server.key", key.read_bytes())
            replace(tmp_path / "server.pem", certificate.read_bytes())
            assert old.recv(65536) == b""  # closed once the new one is loaded
        with running.shake(trusting) as new:
            assert common_name(new) == "renewed"
        assert running.health[-1].success


def test_an_authority_that_is_replaced_takes_its_clients_with_it(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    other = Authority(tmp_path, "elsewhere")
    before, after = (
        trusting_context(tmp_path, each.issue(each.certificate.stem + "-client")) for each in (authority, other)
    )
    (tmp_path / "clients.pem").write_bytes(authority.certificate.read_bytes())
    lines = ("client_auth_type: RequireAndVerifyClientCert", "client_ca_file: clients.pem")
    with serving(tmp_path, authority.server(*lines)) as running:
        assert running.get(context=before).status == 200
        replace(tmp_path / "clients.pem", other.certificate.read_bytes())
        assert running.source.reload()
        assert running.get(context=after).status == 200
        with pytest.raises((ssl.SSLError, ConnectionError)):
            running.get(context=before)


@pytest.mark.parametrize("keep_time", [False, True])
def test_users_are_those_of_the_file_now_even_where_its_time_is_not(tmp_path: Path, keep_time: bool) -> None:  # noqa: FBT001
    with serving(tmp_path, PASSWORDS) as running:
        assert running.get(Authorization=basic("prometheus", "scrape")).status == 200
        times = running.file.stat()
        running.file.write_text(CHANGED)
        if keep_time:
            os.utime(running.file, ns=(times.st_atime_ns, times.st_mtime_ns))
        assert running.source.reload()
        assert running.get(Authorization=basic("prometheus", "scrape")).status == 401
        assert running.get(Authorization=basic("prometheus", "change")).status == 200


def test_a_file_that_becomes_wrong_is_reported_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    with serving(tmp_path, PASSWORDS) as running:
        loaded_at = running.health[0].loaded_at
        running.file.write_text("basic_auth_users: {prometheus: hunter2}")
        assert [running.source.reload() for _ in range(3)] == [False] * 3
        assert running.get(Authorization=basic("prometheus", "scrape")).status == 200
        assert running.health[1:] == [WebConfigHealth(success=False, loaded_at=loaded_at)]
        running.file.write_text(PASSWORDS)
        assert not running.source.reload()
        assert running.health[2].success
        assert running.health[2].loaded_at > loaded_at
    assert [record.levelname for record in caplog.records] == ["ERROR", "INFO"]
    assert "hunter2" not in str([vars(record) for record in caplog.records])


def test_files_that_do_not_change_are_not_loaded_again(tmp_path: Path) -> None:
    with serving(tmp_path, Authority(tmp_path).server()) as running:
        before = running.source.current
        os.utime(running.file)
        assert not running.source.reload()
        assert running.source.current is before
        assert len(running.health) == 1


def test_a_web_configuration_says_whether_it_is_in_force_and_since_when() -> None:
    with rig(load_scenario("dual-a10")) as running:
        running.run(1)
        assert running.series("gpu_exporter_web_config_reload_success") == []
        for success in (True, False):
            running.sampler.status.web_config = WebConfigHealth(success=success, loaded_at=1e9)
            running.run(1)
            assert running.value("gpu_exporter_web_config_reload_success") == success
            assert running.value("gpu_exporter_web_config_last_reload_success_timestamp_seconds") == 1e9


WEAKER = {
    "emptied while it is written": ("", "turns TLS off"),
    "no TLS": (PASSWORDS, "turns TLS off"),
    "no password": ("tls", "asks for no password any more"),
    "no client certificate": ("tls passwords", "verifies no client certificate any more"),
}


@pytest.mark.parametrize(("content", "words"), WEAKER.values(), ids=WEAKER)
def test_a_reload_keeps_every_guard(tmp_path: Path, content: str, words: str, caplog: pytest.LogCaptureFixture) -> None:
    authority = Authority(tmp_path)
    tls = authority.server()
    client = trusting_context(tmp_path, authority.issue("client"))
    with serving(tmp_path, authority.server(*MTLS) + PASSWORDS) as running:
        running.file.write_text(content.replace("tls", tls).replace(" passwords", PASSWORDS))
        assert not running.source.reload()
        assert running.get(context=client).status == 401
        with pytest.raises((ssl.SSLError, ConnectionError)):
            running.get(context=trusting_context(tmp_path))
    (complaint,) = (record for record in caplog.records if record.levelname == "ERROR")
    assert words in str(vars(complaint))


def test_a_reload_looks_at_the_files_before_the_interval_is_over(tmp_path: Path) -> None:
    with serving(tmp_path, PASSWORDS, reload_seconds=600) as running:
        assert running.get(Authorization=basic("prometheus", "scrape")).status == 200
        running.file.write_text(CHANGED)
        running.server.reload()
        wait_for(lambda: _opens(running, "change"))
        assert not _opens(running, "scrape")


def test_a_request_to_reload_is_passed_on_even_without_files_of_the_server(tmp_path: Path) -> None:
    read = threading.Event()
    threads: list[str] = []

    def reload() -> None:
        threads.append(threading.current_thread().name)
        read.set()

    server = WebServer(WebApp(Host()), [f"unix:{tmp_path / 'socket'}"], also_reload=reload)
    server.bind()
    server.reload()  # before it serves: the request is not lost
    thread = threading.Thread(target=server.run)
    thread.start()
    assert read.wait(10)
    server.stop()
    thread.join()
    assert threads == ["reload"]
    assert not (tmp_path / "socket").exists()


def test_over_plain_http_a_client_that_is_about_to_ask_keeps_its_connection(tmp_path: Path) -> None:
    with serving(tmp_path, PASSWORDS, reload_seconds=0.02) as running, running.connect() as client:
        client.sendall(REQUEST[:10])
        running.file.write_text(CHANGED)
        wait_for(lambda: _opens(running, "change"))
        client.sendall(REQUEST[10:])
        assert client.recv(65536).startswith(b"HTTP/1.1 401 ")


def _opens(running: Running, password: str) -> bool:
    """Whether a password is taken."""
    return running.get(Authorization=basic("prometheus", password)).status == 200
