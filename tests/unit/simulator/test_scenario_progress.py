"""Where a scenario begins, and what it says comes next."""

import logging
import re
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.rig import scenario_with

from gpu_triage.cli.machines import live_host, stepped_host
from gpu_triage.errors import ConfigError
from gpu_triage.options.config import Config
from gpu_triage_simulator import FastClock, VirtualClock, load_scenario, simulated_machine
from gpu_triage_simulator.progress import progress_of

NIGHT = "h100-8-bad-night"


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        (0, "0m into the scenario. Next, in 10 min: GPU 3: thermal throttle."),
        (90, "1m30s into the scenario. Next, in 8 min: GPU 3: thermal throttle."),
        (1200, "20m into the scenario. Next, in 20 min: GPU 3: end of thermal throttle."),
        (2999, "49m59s into the scenario. Next, in 1 s: GPU 6: lost; host: kill."),
        (3300, "55m into the scenario. Next, in 5 min: GPU 0-7: load; host: cpu, pressure, disk."),
        (7800, "130m into the scenario. Nothing more happens in it."),
    ],
)
def test_progress_names_the_time_and_the_next_change(at: int, expected: str) -> None:
    assert progress_of(load_scenario(NIGHT), at, 1) == expected


def test_at_a_pace_scenario_time_is_as_written_and_the_wait_is_real() -> None:
    said = progress_of(load_scenario(NIGHT), 1800, 4)
    assert said == "30m into the scenario, at 4 times its pace. Next, in 2 min: GPU 3: end of thermal throttle."


def test_the_machine_follows_its_clock() -> None:
    clock = VirtualClock()
    with simulated_machine(load_scenario(NIGHT), clock=clock, starting_at=540) as simulated:
        assert "9m into the scenario. Next, in 60 s" in simulated.progress()
        clock.advance(60)
        assert "10m into the scenario. Next, in 10 min: GPU 5: link, pcie errors." in simulated.progress()


def test_serving_starts_there_and_logs_what_comes_next(caplog: pytest.LogCaptureFixture) -> None:
    config = Config(simulate=NIGHT, simulate_at_seconds=1800, simulate_pace=4)
    with caplog.at_level(logging.WARNING), ExitStack() as stack:
        progress = live_host(config, stack).progress
        assert progress is not None
        assert re.match(r"30m(\d\ds)? into the scenario, at 4 times its pace\.", progress())
    assert any("GPU 3: end of thermal throttle" in str(vars(record)) for record in caplog.records)


def test_no_scenario_starts_long_after_its_end(tmp_path: Path) -> None:
    scenario_with(tmp_path, "idle-downshift", 'at = "90m"\ngpu = 0\neffect = { kind = "lost" }')
    (path,) = tmp_path.glob("*.toml")
    with ExitStack() as stack:
        stepped_host(Config(simulate=str(path), simulate_at_seconds=9000), stack)
        with pytest.raises(ConfigError, match=r"nothing happens in .* after 90m; write 150m or less"):
            stepped_host(Config(simulate=str(path), simulate_at_seconds=9001), stack)


def test_a_fast_clock_takes_wall_and_monotonic_time_with_it() -> None:
    clock = FastClock(20)
    first, began = clock.now(), time.monotonic()
    while (passed := time.monotonic() - began) == 0:
        pass
    second = clock.now()
    assert second.monotonic - first.monotonic >= 20 * passed
    assert second.wall - first.wall == pytest.approx(second.monotonic - first.monotonic, abs=1e-6)


def test_a_call_that_hangs_at_a_pace_blocks_for_as_much_less_real_time() -> None:
    with simulated_machine(load_scenario("dual-a10"), clock=FastClock(1000)) as simulated:
        clock = simulated.machine.clock
        began, real = clock.now().monotonic, time.monotonic()
        simulated.host.block(60.0)
        assert clock.now().monotonic - began >= 60
        assert time.monotonic() - real < 60
