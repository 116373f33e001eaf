"""Random hosts, randomly mistreated: whatever happens, every page is valid and nothing healthy goes dark.

24 simulated hosts and 8 that are in trouble from the start by default; ``--seeds N`` plays N of either, ``--seed N``
one of each. A seed that fails prints what was done. A few chosen hosts have a session that is due to be replaced while
a call is out.
"""

from dataclasses import replace

import pytest
from tests.faults.hosts import steady
from tests.faults.random_host import CallFault, Hostile, hostile
from tests.faults.random_play import play
from tests.parts import some

from gpu_triage_simulator.effects import Lost, Removed
from gpu_triage_simulator.scenario import Event

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


def host(event: Event, *calls: CallFault) -> Hostile:
    """Four H100, and an effect on one of them."""
    return Hostile(0, replace(steady("h100-8", 4), events=(event,)), calls, (), frozenset({1, 2}), None)


@pytest.mark.parametrize("at", some(range(12, 20), {15}))
def test_a_hang_on_one_gpu_while_another_is_taken_off_the_bus_costs_the_others_nothing(at: int) -> None:
    play(host(Event(16, 27, (1,), Removed()), CallFault(2, "nvmlDeviceGetFieldValues", at, at + 12, "hang")))


@pytest.mark.parametrize("at", some(range(15, 20), {17}))
def test_a_look_that_hangs_while_a_session_is_due_costs_the_gpus_nothing(at: int) -> None:
    play(host(Event(12, 14, (1,), Lost()), CallFault(None, "nvmlDeviceGetCount_v2", at + 6, at + 16, "hang")))


@pytest.mark.parametrize("at", some(range(14, 17), ()))
def test_a_gpu_that_is_slow_and_never_late_costs_the_others_nothing_while_one_is_taken_off_the_bus(at: int) -> None:
    play(host(Event(at, at + 11, (1,), Removed()), CallFault(2, None, 12, 30, "slow", 0.8)))


@pytest.mark.parametrize("at", some(range(24, 29), {26}))
def test_an_event_set_that_hangs_while_a_session_is_due_costs_the_gpus_nothing(at: int) -> None:
    play(host(Event(12, 14, (1,), Lost()), CallFault(None, "nvmlEventSetWait_v2", at, at + 8, "hang")))
