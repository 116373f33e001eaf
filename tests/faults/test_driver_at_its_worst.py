"""A real daemon over a compiled driver that hangs, is slow to initialize or loses GPUs: the others stay fresh."""

import re
import time
from collections.abc import Callable

import pytest
from tests.faults.stand_in import Daemon, StandIn, up

WAIT_SECONDS = 40.0
SEARCHES_SECONDS = 18.0
"""Another process looks for a lost GPU after 5 s and then every 10 s."""
OTHERS = ["0", "1", "2"]
PAUSE_SECONDS = 3.0
"""How long a busy machine may leave a daemon without its turn once its values are stale, which takes 3 s more."""


def with_value(page: str, metric: str, value: str = "") -> list[str]:
    """Which GPUs have this metric, and this value of it."""
    return sorted(re.findall(rf'^{metric}\{{gpu="([0-9]+)".* {value}', page, re.MULTILINE))


def longest_gap(daemon: Daemon, ended: Callable[[str], bool]) -> float:
    """For how many seconds in a row, at most, pages lacked values of the others, up to the page that ends it."""
    longest = 0.0
    complete_at = time.monotonic()
    limit = complete_at + WAIT_SECONDS
    while True:
        page = daemon.get()
        now = time.monotonic()
        assert now < limit, page
        if up(page)[:3] == with_value(page, "gpu_power_watts")[:3] == OTHERS and "\ngpu_driver_up 1" in page:
            complete_at = now
            if ended(page):
                return longest
        longest = max(longest, now - complete_at)
        time.sleep(0.1)


@pytest.mark.parametrize("init", ["init_seconds 8", "host hang nvmlInit"])
def test_a_lost_gpu_costs_the_others_nothing_however_nvml_initializes(host: StandIn, init: str) -> None:
    with host.daemon() as daemon:
        daemon.wait_for(lambda page: len(up(page)) == len(with_value(page, "gpu_power_watts")) == 4, WAIT_SECONDS)
        host.set(init, "gpu 3 lost")
        daemon.wait_for(lambda page: up(page) == OTHERS, WAIT_SECONDS)
        begun = sum("init begins" in line for line in host.journal())
        ends_at = time.monotonic() + SEARCHES_SECONDS
        assert longest_gap(daemon, lambda _: time.monotonic() > ends_at) < PAUSE_SECONDS
        # Somebody did look for it meanwhile.
        assert sum("init begins" in line for line in host.journal()) > begun
    assert not [line for line in host.journal() if "misuse" in line]


def test_a_gpu_that_is_back_is_found_without_a_gap_for_the_others(host: StandIn) -> None:
    with host.daemon() as daemon:
        daemon.wait_for(lambda page: len(with_value(page, "gpu_power_watts")) == 4, WAIT_SECONDS)
        host.set("gpu 3 lost")
        daemon.wait_for(lambda page: up(page) == OTHERS, WAIT_SECONDS)
        host.clear()
        assert longest_gap(daemon, lambda page: len(up(page)) == 4) < PAUSE_SECONDS
    assert not [line for line in host.journal() if "misuse" in line]
