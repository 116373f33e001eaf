"""Random hosts, randomly mistreated: whatever happens, every page is valid and nothing healthy goes dark.

24 simulated hosts and 8 that are in trouble from the start by default; ``--seeds N`` plays N of either, ``--seed N``
one of each. A seed that fails prints what was done.
"""

import pytest
from tests.faults.random_host import hostile
from tests.faults.random_play import play
from tests.parts import some

USUAL = {"seed": range(24), "start_seed": range(8)}
OF_EVERY_RUN = {"seed": range(2), "start_seed": range(1)}
"""Those of the usual ones that `make test` plays."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every test that takes a seed is run for each of them."""
    one, many = metafunc.config.getoption("--seed"), metafunc.config.getoption("--seeds")
    for name in USUAL.keys() & set(metafunc.fixturenames):
        seeds = [one] if one is not None else some(range(many) if many else USUAL[name], OF_EVERY_RUN[name])
        metafunc.parametrize(name, seeds)


def test_every_page_is_valid_and_untouched_gpus_stay_fresh_and_all_recovers(seed: int) -> None:
    play(hostile(seed))


def test_a_host_in_trouble_from_the_start_is_told_in_valid_pages_and_recovers(start_seed: int) -> None:
    play(hostile(start_seed, first_second=0))
