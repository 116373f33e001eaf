"""States of GPUs of which one differs from its peers."""

from collections.abc import Iterator

from tests.states.play import State, on

from gpu_triage_simulator.readings import Readings


def _set_to(mhz: int) -> tuple[int, Readings]:
    return on(0, Readings(sm_mhz=mhz, reasons=("applications_clocks",)))


def peers() -> Iterator[State]:
    yield State("a clock set a tenth below its peers'", {0: "clock_cap", 1: "compute"}, (_set_to(2100),), gpus=4)
    yield State("a clock set a little below its peers'", "compute", (_set_to(2250),), gpus=4)
    yield State("all clocks set to the same, near their maximum", "compute", _set_to(2100)[1:], gpus=4)
    hot = on(0, Readings(sm_mhz=1500, reasons=("sw_thermal",), celsius=88.0, power_watts=210))
    name = "one is driven too hot, and the job goes on at its pace"
    yield State(name, {0: "thermal", 1: "compute"}, (hot,), gpus=4)
