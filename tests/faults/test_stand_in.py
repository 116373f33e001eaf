"""The compiled driver of tests/faults does what its control file says, for a process that runs on it."""

from __future__ import annotations

import re
import signal
import time
from typing import TYPE_CHECKING

import pytest
from tests.faults.stand_in import StandIn, up

if TYPE_CHECKING:
    from pathlib import Path


WAIT_SECONDS = 30.0

QUICK = ("--sample.fast", "200ms", "--sample.medium", "500ms", "--sample.deadline", "500ms")


@pytest.fixture
def host(tmp_path: Path) -> StandIn:
    """A host of four GPUs."""
    return StandIn(tmp_path, gpus=4)


def test_a_daemon_on_it_sees_healthy_gpus_and_ends_without_misuse(host: StandIn) -> None:
    with host.daemon(*QUICK) as daemon:
        daemon.wait_for(lambda page: len(up(page)) == page.count("\ngpu_power_watts{") == 4, WAIT_SECONDS)
    journal = host.journal()
    assert not [line for line in journal if "misuse" in line]
    assert journal[-1].endswith("shutdown done")


def test_a_call_hangs_until_its_line_is_cleared(host: StandIn) -> None:
    line = "gpu 2 hang nvmlDeviceGetPowerUsage"
    with host.daemon(*QUICK) as daemon:
        daemon.wait_for(lambda page: len(up(page)) == 4, WAIT_SECONDS)
        host.set(line)
        daemon.wait_for(lambda page: up(page) == ["0", "1", "3"], WAIT_SECONDS)
        host.clear(line)
        daemon.wait_for(lambda page: len(up(page)) == 4, WAIT_SECONDS)


def test_a_value_and_an_error_replace_an_answer(host: StandIn) -> None:
    with host.daemon(*QUICK) as daemon:
        host.set("gpu 1 value nvmlDeviceGetPowerUsage 123000", "gpu 0 error nvmlDeviceGetPowerUsage 999")
        page = daemon.wait_for(lambda page: bool(re.search(r'gpu_power_watts\{gpu="1".* 123', page)), WAIT_SECONDS)
        assert 'gpu_power_watts{gpu="0"' not in page


def test_a_lost_gpu_is_back_only_after_another_initialization(host: StandIn) -> None:
    with host.daemon(*QUICK) as daemon:
        daemon.wait_for(lambda page: len(up(page)) == 4, WAIT_SECONDS)
        inits = sum("init done" in line for line in host.journal())
        host.set("gpu 3 lost")
        daemon.wait_for(lambda page: up(page) == ["0", "1", "2"], WAIT_SECONDS)
        host.clear()
        time.sleep(1.0)
        assert up(daemon.get()) == ["0", "1", "2"]
        daemon.process.send_signal(signal.SIGUSR1)
        daemon.wait_for(lambda page: not up(page), WAIT_SECONDS)
        daemon.process.send_signal(signal.SIGUSR2)
        daemon.wait_for(lambda page: len(up(page)) == 4, WAIT_SECONDS)
        assert sum("init done" in line for line in host.journal()) > inits
