"""Faults of every kind that the simulator can play, restarts of the exporter and repairs, in random orders."""

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from tests.incident_hosts import restarted
from tests.parts import some
from tests.rig import Rig, rig, three_with

from gpu_triage.judge.findings.finding import Finding
from gpu_triage.options.config import Config
from gpu_triage_simulator.simulated_nvml import SimulatedNvml

pytestmark = pytest.mark.slow

HOUR, MINUTE, STEP = 3600, 60, 15.0
FAULTS_UNTIL = 40 * MINUTE
RESTARTS = 6
LONGEST = 3 * HOUR
"""How long evidence of a fault may last after its repair, and a finding after its evidence; most last minutes."""
MANY = 10
"""Kinds of findings that are found in any order."""
LASTING = frozenset({"xid.earlier", "driver.earlier"})
"""Told for as long as the kernel log has it."""

OF_GPUS, OF_HOSTS = (
    tuple(part.splitlines()) for part in Path(__file__).with_name("effects.txt").read_text().split("\n\n")
)


def faults(chance: random.Random) -> list[str]:
    """Each fault once, at a random time on a random GPU, until a repair at a random time."""
    made = []
    for effect in chance.sample(OF_GPUS + OF_HOSTS, k=len(OF_GPUS) + len(OF_HOSTS)):
        at = chance.randrange(2 * MINUTE, FAULTS_UNTIL // 2)
        until = "" if "xid" in effect else f"until = {chance.randrange(at + MINUTE, FAULTS_UNTIL)}\n"
        gpu = f"gpu = {chance.randrange(3)}\n" if effect in OF_GPUS else ""
        made.append(f"at = {at}\n{until}{gpu}effect = {{ {effect} }}")
    return made


def active(running: Rig) -> list[Finding]:
    """The findings that are pending or confirmed."""
    return [] if running.judge.latest is None else list(running.report.findings)


def twice(running: Rig) -> set[tuple[str, str]]:
    """Address and code of what is told twice of one GPU or slot."""
    told = Counter((each.pci_bus_id, each.check.code) for each in active(running) if each.pci_bus_id)
    return {subject for subject, count in told.items() if count > 1}


def next_exporter(running: Rig, down: float, step_seconds: float = STEP) -> Rig:
    """The one that is started after so many seconds."""
    config = replace(running.config, sample_fast_seconds=step_seconds, sample_medium_seconds=step_seconds)
    made = restarted(running, config, down)
    nvml = running.simulated.machine.nvml
    assert isinstance(nvml, SimulatedNvml)
    while nvml.session._references:
        # The kernel closes what a process left open because a call hung.
        nvml.session.shut_down()
    return made


def played(running: Rig, chance: random.Random) -> tuple[Rig, set[str]]:
    """The last exporter on the host after restarts at random times, some of which take minutes; and what was found."""
    codes = set[str]()
    restarts = sorted(chance.sample(range(MINUTE, FAULTS_UNTIL), k=RESTARTS))
    for at in (*restarts, FAULTS_UNTIL):
        while running.elapsed < at:
            running.run(2 * STEP)
            assert twice(running) == set()
            codes |= {each.check.code for each in active(running)}
        if at < FAULTS_UNTIL:
            running = next_exporter(running, 0 if chance.random() < 0.5 else chance.randrange(MINUTE, 5 * MINUTE))
    return running, codes


@pytest.mark.timeout(600)  # half a minute of a CPU that may be busy
@pytest.mark.parametrize("seed", some(range(5), usual={0}))
@pytest.mark.parametrize("remembers", some([True, False], usual={True}))
def test_whatever_the_order_of_faults_restarts_and_repairs_nothing_is_left_of_what_was_repaired(
    tmp_path: Path, seed: int, *, remembers: bool
) -> None:
    chance, folder = random.Random(seed), tmp_path / "state"
    folder.mkdir()
    config = Config(state_directory=folder if remembers else None, sample_fast_seconds=STEP, sample_medium_seconds=STEP)
    with rig(three_with(tmp_path, "h100-8", *faults(chance)), config) as first:
        first.run_to(MINUTE)
        before = {each.check.code for each in active(first)}
        running, found = played(first, chance)
        assert len(found - before) > MANY
        running = next_exporter(running, 0, MINUTE)
        running.run_to(FAULTS_UNTIL + LONGEST)
        left = [each for each in active(running) if each.check.code not in before | LASTING]
        assert [(each.subject, each.check.code, each.measured) for each in left] == []
        assert {value for _, value in running.series("gpu_up")} == {1.0}
