"""The host that a configuration names: a scenario or a recording is made up here, and nowhere else."""

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from gpu_triage.cli.machines import Host, constants, judged_host, live_host, stepped_host
from gpu_triage.options.config import Config
from gpu_triage.read.incidents.ledger import INCIDENT_HISTORY
from gpu_triage.sampler.state_directory import INCIDENTS, StateDirectory

MADE_UP = Config(simulate="dual-a10")
MAY_SAY_SO = ("read/exporter/exporter_health.py", "judge/report/")
"""The metric that says that a host is made up, and the report that is headed with it."""


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def past_of(host: Host) -> int:
    assert host.config.state_directory is not None
    path = StateDirectory(host.config.state_directory).path(INCIDENTS)
    found = INCIDENT_HISTORY.read(path, host.machine.clock.now().wall)
    return 0 if found is None else len(found.memory.incidents)


def test_nothing_of_the_daemon_knows_that_its_host_may_be_made_up(repository: Path) -> None:
    package = repository / "exporter/gpu_triage"
    files = [path for name in ("driver", "read", "sampler", "judge") for path in (package / name).rglob("*.py")]
    assert len(files) > 100
    told = [
        path.relative_to(package).as_posix()
        for path in files
        if re.search(r"simulat|scenario", path.read_text(encoding="utf-8"), re.IGNORECASE)
    ]
    assert [path for path in told if not path.startswith(MAY_SAY_SO)] == []


@pytest.mark.parametrize(("config", "value"), [(Config(), 0), (MADE_UP, 1), (Config(replay=Path("a.tar.gz")), 1)])
def test_what_is_published_says_whether_it_is_made_up(config: Config, value: float) -> None:
    assert [(sample.spec.name, sample.value) for sample in constants(config)] == [("gpu_exporter_simulated", value)]
    assert judged_host(config, continuous=True).simulated == (config.simulate is not None)


def test_at_a_pace_a_round_takes_its_real_time(stack: ExitStack) -> None:
    host = live_host(Config(simulate="dual-a10", simulate_pace=20), stack)
    config = host.config
    assert (config.sample_fast_seconds, config.sample_medium_seconds, config.sample_slow_seconds) == (20, 100, 1200)
    assert config.sample_deadline_seconds == 20 * Config().sample_deadline_seconds
    assert stepped_host(Config(simulate="dual-a10", simulate_pace=20), stack).config.sample_fast_seconds == 1


def test_what_a_made_up_host_keeps_is_beside_the_state_of_this_host(
    stack: ExitStack, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = Config(simulate="dual-a10", state_directory=tmp_path)
    assert live_host(config, stack).config.state_directory == tmp_path / "simulated"
    assert (tmp_path / "simulated").is_dir()
    assert "RECORDING" not in caplog.text
    assert live_host(Config(state_directory=tmp_path), stack).config.state_directory == tmp_path
    assert stepped_host(config, stack).config.state_directory is None, "its clock is another one"


def test_incidents_of_the_weeks_before_are_in_a_state_directory(stack: ExitStack, tmp_path: Path) -> None:
    own = stepped_host(Config(simulate="repeat-offender"), stack)
    assert past_of(own) > 0
    given = live_host(Config(simulate="repeat-offender", state_directory=tmp_path), stack)
    assert past_of(given) == past_of(own)
    ledger = tmp_path / "simulated" / "incidents.json"
    before = ledger.stat().st_mtime_ns
    live_host(Config(simulate="repeat-offender", state_directory=tmp_path), stack)
    assert ledger.stat().st_mtime_ns == before, "what an exporter has written since stays"
