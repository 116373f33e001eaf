"""Passwords and headers from outside."""

import base64
from pathlib import Path

import pytest
from tests.guarded_server import PASSWORDS, basic, serving

ALL_PATHS = (
    *("/", "/runbooks/", "/runbooks/GpuLost", "/api/v1/verdict", "/metrics", "/-/healthy", "/-/ready", "/nowhere"),
)


@pytest.mark.parametrize("path", ALL_PATHS)
def test_every_path_asks_for_the_password(tmp_path: Path, path: str) -> None:
    with serving(tmp_path, PASSWORDS) as running:
        refused = running.get(path)
        assert (refused.status, refused.headers["WWW-Authenticate"]) == (
            401,
            'Basic realm="gpu-triage", charset="UTF-8"',
        )
        assert running.get(path, Authorization=basic("prometheus", "scrape")).status != 401


WRONG = {
    "wrong password": basic("prometheus", "guess"),
    "unknown user": basic("nobody", "scrape"),
    "no colon": "Basic " + base64.b64encode(b"prometheus").decode(),
    "no base64": "Basic prometheus:scrape",
    "other scheme": "Bearer " + base64.b64encode(b"prometheus:scrape").decode(),
    "no scheme": base64.b64encode(b"prometheus:scrape").decode(),
    "empty": "",
    "not UTF-8": "Basic " + base64.b64encode(b"\xff:\xfe").decode(),
    "long": basic("prometheus", "x" * 9000),
}


@pytest.mark.parametrize("authorization", WRONG.values(), ids=WRONG)
def test_a_wrong_claim_is_not_logged(tmp_path: Path, authorization: str, caplog: pytest.LogCaptureFixture) -> None:
    with serving(tmp_path, PASSWORDS) as running:
        assert running.get(Authorization=authorization).status == 401
    assert [record for record in caplog.records if record.levelname not in ("DEBUG", "INFO")] == []


def test_two_claims_are_refused_although_one_is_right(tmp_path: Path) -> None:
    line = f"Authorization: {basic('prometheus', 'scrape')}\r\n".encode()
    with serving(tmp_path, PASSWORDS) as running, running.connect() as client:
        client.sendall(b"GET /metrics HTTP/1.1\r\nHost: h\r\n" + line + line + b"\r\n")
        assert client.recv(65536).startswith(b"HTTP/1.1 401")


def test_the_operators_headers_stand_on_every_answer_once(tmp_path: Path) -> None:
    headers = "{Content-Security-Policy: default-src 'self', X-Content-Type-Options: nosniff, X-Frame-Options: deny}"
    with serving(tmp_path, f"http_server_config: {{headers: {headers}}}\n{PASSWORDS}") as running:
        for path in ALL_PATHS:
            for answer in (running.get(path), running.get(path, Authorization=basic("prometheus", "scrape"))):
                assert answer.headers.get_all("Content-Security-Policy") == ["default-src 'self'"]
                assert answer.headers.get_all("X-Content-Type-Options") == ["nosniff"]
                assert answer.headers.get_all("X-Frame-Options") == ["deny"]
