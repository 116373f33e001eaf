"""A session that is due to be replaced waits for calls that are out, and nobody else waits with it."""

import pytest
from tests.faults.random_host import CallFault, Hostile
from tests.faults.random_play import play
from tests.parts import some

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
