"""Random hosts, randomly mistreated: whatever happens, every page is valid and nothing healthy goes dark.

24 simulated hosts and 8 that are in trouble from the start by default; ``--seeds N`` plays N of either, ``--seed N``
one of each. A seed that fails prints what was done. A few chosen hosts have a session that is due to be replaced while
a call is out.
"""

import pytest
from tests.faults.random_host import CallFault, Hostile, hostile
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


HEAD = """
name = "repro"
description = "Four H100."
seed = 1
driver = { version = "580.95.05", cuda = "12.4" }
[machine]
memory_gib = 512
memory_available_gib = 300
node = [{ cpus = "0-31" }]
"""
GPU = """
[[gpu]]
model = "h100-sxm5-80gb"
slot = {{ bus_id = "0000:{:02x}:00.0", node = 0 }}
load = {{ utilization = 0.5 }}
"""
EVENT = """
[[event]]
at = {}
until = {}
gpu = {}
effect = {{ kind = "{}" }}
"""


def host(event: tuple[int, int, int, str], *calls: CallFault) -> Hostile:
    text = HEAD + "".join(GPU.format(0x10 + gpu) for gpu in range(4)) + EVENT.format(*event)
    return Hostile(0, text, calls, (), frozenset({1, 2}), None)


@pytest.mark.parametrize("at", some(range(12, 20), {15}))
def test_a_hang_on_one_gpu_while_another_is_taken_off_the_bus_costs_the_others_nothing(at: int) -> None:
    play(host((16, 27, 1, "removed"), CallFault(2, "nvmlDeviceGetFieldValues", at, at + 12, "hang")))


@pytest.mark.parametrize("at", some(range(15, 20), {17}))
def test_a_look_that_hangs_while_a_session_is_due_costs_the_gpus_nothing(at: int) -> None:
    play(host((12, 14, 1, "lost"), CallFault(None, "nvmlDeviceGetCount_v2", at + 6, at + 16, "hang")))


@pytest.mark.parametrize("at", some(range(14, 17), ()))
def test_a_gpu_that_is_slow_and_never_late_costs_the_others_nothing_while_one_is_taken_off_the_bus(at: int) -> None:
    play(host((at, at + 11, 1, "removed"), CallFault(2, None, 12, 30, "slow", 0.8)))


@pytest.mark.parametrize("at", some(range(24, 29), {26}))
def test_an_event_set_that_hangs_while_a_session_is_due_costs_the_gpus_nothing(at: int) -> None:
    play(host((12, 14, 1, "lost"), CallFault(None, "nvmlEventSetWait_v2", at, at + 8, "hang")))
