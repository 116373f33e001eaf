"""Passwords and headers from outside: who is let through, what a check costs, and what a flood cannot do."""

import asyncio
import base64
import threading
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path

import bcrypt
import pytest
from tests.guarded_server import PASSWORDS, basic, serving

from gpu_triage.serve.passwords import Credentials, PasswordChecks, TooManyChecks, hashed

USERS = {b"prometheus": hashed(b"scrape", 4).encode(), b"grafana": hashed(b"look", 4).encode()}
SCRAPER = Credentials(b"prometheus", b"scrape")
HERE = "192.0.2.1"


class Comparisons:
    """bcrypt as it is, counted, and held up until it is let go."""

    def __init__(self) -> None:
        self.hashes: list[bytes] = []
        self.passwords: list[bytes] = []
        self.go = threading.Event()
        self.go.set()

    def __call__(self, password: bytes, against: bytes) -> bool:
        self.go.wait(10)
        self.passwords.append(password)
        self.hashes.append(against)
        return bcrypt.checkpw(password, against)


class CountedChecks(PasswordChecks):
    def __init__(self, users: Mapping[bytes, bytes] = USERS) -> None:
        self.comparisons = Comparisons()
        super().__init__(users, self.comparisons)


def in_a_loop(scenario: Callable[[CountedChecks], Coroutine[None, None, None]]) -> Callable[[], None]:
    """A test in an event loop."""

    def test() -> None:
        asyncio.run(asyncio.wait_for(scenario(CountedChecks()), 20))

    test.__name__ = scenario.__name__
    return test


CLAIMS = (
    (b"prometheus", b"scrape", True),
    (b"grafana", b"look", True),
    (b"prometheus", b"look", False),
    (b"prometheus", b"", False),
    (b"prometheus", b"scrape\0", False),
    (b"nobody", b"scrape", False),
    (b"", b"", False),
)


@in_a_loop
async def test_only_a_users_own_password_is_right_up_to_72_bytes_as_for_htpasswd_and_go(checks: CountedChecks) -> None:
    for user, password, right in CLAIMS:
        assert await checks.right(Credentials(user, password), HERE) is right, (user, password)
    long = CountedChecks({b"u": hashed(b"x" * 72, 4).encode()})
    assert await long.right(Credentials(b"u", b"x" * 100), HERE)


@in_a_loop
async def test_a_right_password_is_compared_once_and_a_wrong_one_each_time(checks: CountedChecks) -> None:
    for _ in range(3):
        assert await checks.right(SCRAPER, HERE)
    assert len(checks.comparisons.hashes) == 1
    for _ in range(3):
        assert not await checks.right(Credentials(b"prometheus", b"wrong"), HERE)
    assert len(checks.comparisons.hashes) == 4


@in_a_loop
async def test_an_unknown_user_costs_as_much_as_a_wrong_password(checks: CountedChecks) -> None:
    checks = CountedChecks({**USERS, b"slow": hashed(b"x", 5).encode()})
    assert not await checks.right(Credentials(b"nobody", b"x"), HERE)
    assert checks.comparisons.hashes[0].startswith(b"$2b$05$")
    assert len(checks.comparisons.hashes[0]) == 60


@in_a_loop
async def test_what_is_remembered_is_bounded_and_holds_no_password(checks: CountedChecks) -> None:
    users = {str(number).encode(): USERS[b"prometheus"] for number in range(300)}
    checks = CountedChecks(users)
    for user in users:
        assert await checks.right(Credentials(user, b"scrape"), HERE)
    assert len(checks.comparisons.hashes) == 300
    assert len(checks._right) == 256
    assert b"scrape" not in repr(vars(checks)).encode()


@in_a_loop
async def test_a_remembered_scraper_does_not_wait_for_a_flood(checks: CountedChecks) -> None:
    assert await checks.right(SCRAPER, HERE)
    checks.comparisons.go.clear()
    flood = [asyncio.create_task(_wrong(checks, number)) for number in range(50)]
    await asyncio.sleep(0)
    assert await checks.right(SCRAPER, HERE)
    checks.comparisons.go.set()
    assert await asyncio.gather(*flood) == [False] * 5 + [None] * 45  # one being compared, four that wait


@in_a_loop
async def test_a_newcomer_waits_for_one_check_of_each_other_address(checks: CountedChecks) -> None:
    checks.comparisons.go.clear()
    flood = [asyncio.create_task(_wrong(checks, number)) for number in range(50)]
    await asyncio.sleep(0)
    scrape = asyncio.create_task(checks.right(SCRAPER, HERE))
    await asyncio.sleep(0)
    checks.comparisons.go.set()
    assert await scrape
    await asyncio.gather(*flood)
    assert checks.comparisons.passwords.index(b"scrape") == 1


@in_a_loop
async def test_addresses_of_one_ipv6_network_count_as_one(checks: CountedChecks) -> None:
    checks.comparisons.go.clear()
    flood = [asyncio.create_task(_wrong(checks, n, f"2001:db8::{n:x}")) for n in range(20)]
    mapped = asyncio.create_task(_wrong(checks, 99, "::ffff:192.0.2.7"))
    await asyncio.sleep(0)
    checks.comparisons.go.set()
    assert (await asyncio.gather(*flood)).count(None) == 15
    assert await mapped is False


@in_a_loop
async def test_many_clients_with_one_password_are_one_check_and_bounded(checks: CountedChecks) -> None:
    checks.comparisons.go.clear()
    crowd = [asyncio.create_task(_ask(checks, SCRAPER, HERE)) for _ in range(200)]
    await asyncio.sleep(0)
    checks.comparisons.go.set()
    assert (await asyncio.gather(*crowd)).count(True) == 128
    assert len(checks.comparisons.hashes) == 1
    assert checks._waiting == 0
    assert (checks._checks, checks._networks) == ({}, {})


@in_a_loop
async def test_a_check_without_a_thread_to_run_it_is_refused_and_the_next_is_made(checks: CountedChecks) -> None:
    def refused(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with pytest.MonkeyPatch.context() as limited:
        limited.setattr(threading.Thread, "start", refused)
        assert await asyncio.gather(*(_wrong(checks, number) for number in range(2))) == [None, None]
    assert await checks.right(SCRAPER, HERE)


async def _wrong(checks: PasswordChecks, number: int, address: str = "198.51.100.1") -> bool | None:
    return await _ask(checks, Credentials(b"prometheus", f"wrong {number}".encode()), address)


async def _ask(checks: PasswordChecks, given: Credentials, address: str) -> bool | None:
    """The verdict; None where the client was turned away."""
    try:
        return await checks.right(given, address)
    except TooManyChecks:
        return None


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
