"""Random hosts, randomly mistreated: whatever happens, every page is valid and nothing healthy goes dark.

24 simulated hosts, 8 that are in trouble from the start, and 2 real daemons by default; ``--seeds N`` plays N of either
host and a daemon for every 20 of them, ``--seed N`` one of each. A seed that fails prints what was done.
"""

from pathlib import Path

import pytest
from tests.faults.random_daemon import plan
from tests.faults.random_daemon import play as play_daemon
from tests.faults.random_host import hostile
from tests.faults.random_play import play
from tests.parts import some

USUAL_SEEDS = 24
USUAL_STARTS = 8
USUAL_DAEMONS = 2
HOSTS_A_DAEMON = 20
OF_EVERY_RUN = {"seed": 2, "start_seed": 1, "daemon_seed": 1}
"""How many of the usual ones `make test` plays."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every test that takes a seed is run for each of them."""
    one, many = metafunc.config.getoption("--seed"), metafunc.config.getoption("--seeds")
    daemons = many // HOSTS_A_DAEMON if many else USUAL_DAEMONS
    counts = {"seed": many or USUAL_SEEDS, "start_seed": many or USUAL_STARTS, "daemon_seed": daemons}
    for name in counts.keys() & set(metafunc.fixturenames):
        seeds = [one] if one is not None else some(range(counts[name]), range(OF_EVERY_RUN[name]))
        metafunc.parametrize(name, seeds)


def test_every_page_is_valid_and_untouched_gpus_stay_fresh_and_all_recovers(seed: int) -> None:
    play(hostile(seed))


def test_a_host_in_trouble_from_the_start_is_told_in_valid_pages_and_recovers(start_seed: int) -> None:
    play(hostile(start_seed, first_second=0))


def test_a_real_daemon_over_a_compiled_driver_does_as_well(daemon_seed: int, tmp_path: Path) -> None:
    # The first two are part of every run, which a lost GPU would make 15 s longer.
    play_daemon(plan(daemon_seed, lost=daemon_seed >= USUAL_DAEMONS), tmp_path)


def test_a_seed_always_makes_the_same_host() -> None:
    assert str(hostile(7)) == str(hostile(7))
    assert str(hostile(7)) != str(hostile(8))
