"""A daemon under attack answers who scrapes it, and takes no more of its host than it may."""

import http.client
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from tests.e2e.processes import wait_for
from tests.hostile.attacks import GUARDED, PLAIN, under
from tests.hostile.target import NEWCOMER, PASSWORD, Scraper, Target, scrape, target

from gpu_triage.serve.connection import Limits

SCRAPES = 40


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with target(tmp_path_factory.mktemp("plain")) as running:
        yield running


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with target(tmp_path_factory.mktemp("guarded"), guarded=True) as running:
        yield running


@pytest.mark.parametrize("attack", PLAIN)
def test_a_scraper_is_answered_under_attack(plain: Target, attack: str) -> None:
    answered_under(attack, plain)


@pytest.mark.parametrize("attack", GUARDED)
def test_a_scraper_with_a_password_is_answered_under_attack(guarded: Target, attack: str) -> None:
    answered_under(attack, guarded)
    leaks = [secret for secret in (PASSWORD, "guess", "$2b$", "PRIVATE KEY") if secret in guarded.log]
    assert leaks == []


def answered_under(attack: str, running: Target) -> None:
    before = running.figures()
    with Scraper(running).scraping() as scraper:
        scraper.wait_for(5)
        with under(attack, running):
            scraper.wait_for(SCRAPES)
        scraper.wait_for(5)
    assert Counter(scraper.statuses) == {200: len(scraper.statuses)}
    assert scraper.most.resident_bytes < before.resident_bytes + (64 << 20)
    assert scraper.most.threads <= before.threads + 6
    assert scraper.most.descriptors <= Limits().connections + 64
    assert not [line for line in running.log.splitlines() if "level=error" in line]


def test_where_descriptors_are_scarce_half_of_them_are_left_to_the_sampler(tmp_path: Path) -> None:
    failed = re.compile(r"^gpu_exporter_collector_success{.*} 0", re.MULTILINE)
    with target(tmp_path, most_descriptors=80) as running, closing(running.client()) as client:
        quiet = failed.findall(page(client))
        with Scraper(running).scraping() as scraper, under("silent connections", running):
            scraper.wait_for(SCRAPES)
            assert failed.findall(page(client)) == quiet
        assert Counter(scraper.statuses) == {200: len(scraper.statuses)}
        assert scraper.most.descriptors < 40 + 20


def page(client: http.client.HTTPConnection) -> str:
    """The metrics; asked again where the connection was given away meanwhile."""
    for _ in range(2):
        with suppress(OSError, http.client.HTTPException):
            client.request("GET", "/metrics")
            return client.getresponse().read().decode()
        client.close()
    raise AssertionError("no answer")


def test_a_new_client_is_let_in_during_a_flood_of_wrong_passwords_from_elsewhere(guarded: Target) -> None:
    with under("wrong passwords", replace(guarded, source="127.0.0.2")):
        wait_for(lambda: checking(guarded))
        newcomer = replace(guarded, user=NEWCOMER)
        with closing(newcomer.client()) as client:
            assert scrape(client, newcomer) == http.HTTPStatus.OK


def checking(running: Target) -> bool:
    """Whether passwords are being compared at this moment, on a thread of low priority."""
    for thread in Path(f"/proc/{running.pid}/task").iterdir():
        with suppress(OSError):  # it may end while it is looked at
            # its place behind the thread's name
            if int((thread / "stat").read_text().rpartition(")")[2].split()[16]) > 0:
                return True
    return False
