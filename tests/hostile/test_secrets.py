"""Nothing that lets anybody in can be seen from outside: pages, answers, log, process list."""

import base64
import http.client
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.e2e.processes import wait_for
from tests.hostile.target import PASSWORD, USER, Target, scrape, target

GUESS = "correct horse battery staple"
CLAIM = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with target(tmp_path_factory.mktemp("guarded"), guarded=True) as running:
        yield running


def secrets(running: Target) -> list[str]:
    """What must be seen nowhere: the password, its hashes, what goes over the wire for it, the key."""
    hashes = re.findall(r"\$2b\$\S+", (running.folder / "web.yml").read_text())
    key = (running.folder / "server.key").read_text().splitlines()[1]
    return [PASSWORD, CLAIM, GUESS, base64.b64encode(GUESS.encode()).decode(), key, *hashes, "PRIVATE KEY"]


def seen_in(text: str, running: Target) -> list[str]:
    return [secret for secret in secrets(running) if secret in text]


def answers(running: Target, path: str, authorization: dict[str, str]) -> str:
    with closing(running.client()) as client:
        client.request("GET", path, headers=authorization)
        response = client.getresponse()
        return f"{response.status} {response.headers} {response.read().decode()}"


@pytest.mark.parametrize("path", ["/", "/metrics", "/-/healthy", "/-/ready", "/nowhere", "/metrics?name[]=gpu_up"])
def test_no_answer_shows_a_secret(guarded: Target, path: str) -> None:
    wrong = {"Authorization": "Basic " + base64.b64encode(f"{USER}:{GUESS}".encode()).decode()}
    for authorization in ({}, wrong, guarded.authorization):
        assert seen_in(answers(guarded, path, authorization), guarded) == []


def test_no_answer_to_a_broken_request_shows_what_was_sent(guarded: Target) -> None:
    answer = guarded.ask(f"GET /{GUESS} HTTP/1.1\r\nAuthorization: Basic {CLAIM}\r\n\r\n".encode())
    assert seen_in(answer.decode("latin-1"), guarded) == []


def test_neither_log_nor_process_list_shows_a_secret_even_while_debugging(guarded: Target) -> None:
    known = secrets(guarded)
    (guarded.folder / "web.yml").write_text(f"basic_auth_users: {{{USER}: '{GUESS}'}}")
    wait_for(lambda: "web configuration cannot be used" in guarded.log)
    process = Path(f"/proc/{guarded.pid}")
    looked_at = [
        guarded.log,
        *((process / name).read_text(errors="replace") for name in ("cmdline", "environ", "comm")),
    ]
    assert [secret for secret in known for text in looked_at if secret in text] == []
    with closing(guarded.client()) as client:
        assert scrape(client, guarded) == http.HTTPStatus.OK
