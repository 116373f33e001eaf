"""Which class a GPU is in, how soon, and for how long: the judge in the daemon, on a virtual clock.

Jobs that their own cgroup's limits hold back, on hosts whose CPUs and memory are free.
"""

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from tests.incident_hosts import restarted
from tests.judged import Judged, judged
from tests.parts import some
from tests.rig import Rig, only, pair_with, rig, scenario_with, three_with

from gpu_triage.judge.findings.finding import Finding, State
from gpu_triage.judge.findings.table import BY_CODE, Severity
from gpu_triage.judge.findings.verdicts import EXIT_FINDINGS, EXIT_SOUND, Verdict
from gpu_triage.judge.report.machine_readable import render_lines
from gpu_triage.options.config import Config
from gpu_triage.read.exporter.judgment import BOTTLENECK_CLASSES
from gpu_triage_simulator import Scenario, load_scenario
from gpu_triage_simulator.simulated_nvml import SimulatedNvml

pytestmark = pytest.mark.slow

BUSY_PAIR = "rtx-4070-ti-super"
LEAN = only(
    *("activity", "memory", "clocks", "power", "throttle", "processes", "identity", "host_cpu", "host_disk"),
    *("host_memory", "host_network", "host_network_link", "host_pressure"),
)
"""What classes are made of."""
QUICK = replace(LEAN, sample_fast_seconds=5.0)


def play(tmp_path: Path, *events: str) -> Scenario:
    """Two busy GPUs and what happens to them."""
    return scenario_with(tmp_path, BUSY_PAIR, *events)


def host(at: int, until: int, effect: str) -> str:
    return f"at = {at}\nuntil = {until}\neffect = {{ {effect} }}"


def test_every_class_counts_from_0_and_all_add_up_to_the_time_judged(tmp_path: Path) -> None:
    slow = host(100, 250, 'kind = "cpu", iowait = 0.3')
    half = host(100, 250, 'kind = "load", utilization = 0.3')
    with judged(play(tmp_path, slow, half), QUICK) as seen:
        seen.run_to(1)
        first = seen.running.series("gpu_bottleneck_seconds_total", gpu="0")
        assert [labels["class"] for labels, _ in first] == list(BOTTLENECK_CLASSES)
        assert sum(value for _, value in first) <= 1
        seen.run_to(360)
        for gpu in ("0", "1"):
            spent = seen.seconds(gpu)
            assert sum(spent.values()) == pytest.approx(360, abs=5)
            assert spent["storage"] == pytest.approx(150, abs=60)
        for verdict in seen.report.gpus:
            spent, lately = seen.seconds(verdict.gpu), verdict.bottleneck.lately
            assert sum(lately.values()) == pytest.approx(1)
            assert lately["storage"] == pytest.approx(spent["storage"] / sum(spent.values()), abs=0.03)


def test_a_released_gpu_is_idle_and_has_no_verdict() -> None:
    with judged(load_scenario(BUSY_PAIR), LEAN) as seen:
        seen.run_to(100)
        seen.running.sampler.driver.release()
        seen.run_to(106)
        assert set(seen.classes().values()) == {"idle"}
        assert seen.running.value("gpu_verdict", gpu="0") is None
        assert seen.running.value("gpu_host_verdict") is None
        seen.running.sampler.driver.acquire()
        seen.run_to(110)
        assert seen.report.findings == ()
        seen.run_to(260)
        assert set(seen.classes().values()) == {"compute"}
        assert seen.running.value("gpu_host_verdict") == 0


def test_a_gpu_that_works_for_nobody_listed_is_not_idle_and_no_free_sibling() -> None:
    with judged(load_scenario("dual-a10"), QUICK) as seen:
        seen.run_to(120)
        assert seen.classes()["1"] == "compute"
        assert "work.imbalance" not in {finding.check.code for finding in seen.report.findings}


def test_an_xid_of_before_the_exporter_started_is_of_its_gpu_from_the_first_judgment_on(tmp_path: Path) -> None:
    """Before the GPUs have said who they are, it is of a slot, and a page of its own."""
    xid = 'at = 20\ngpu = 1\neffect = { kind = "xid", code = 119 }'
    with rig(play(tmp_path, xid)) as first:
        first.run(60)
        restarted = Judged(Rig(first.simulated, first.clock, Config(), machine=first.simulated.for_another_process()))
        restarted.run_to(30)
    assert {subject for subject, code in restarted.lives if code.startswith("xid.")} == {"1"}


def test_a_driver_that_is_loaded_anew_has_lost_no_gpu(tmp_path: Path) -> None:
    away = 'at = 60\nuntil = 120\neffect = { kind = "driver_not_loaded" }'
    with judged(scenario_with(tmp_path, BUSY_PAIR, away), Config(sample_fast_seconds=5.0)) as seen:
        seen.run_to(180)
        assert seen.running.value("gpu_up", gpu="0") == 1
        assert [key for key in seen.lives if key[1] == "gpu.lost"] == []


GPUS_ALONE = only("power", "activity", "identity")
SOON = 47
"""Seconds after a repair in which a node is given back."""


def hang(at: int, until: int) -> str:
    return f'at = {at}\nuntil = {until}\ngpu = 1\neffect = {{ kind = "hang" }}'


def lost(running: Rig) -> Finding:
    (found,) = (each for each in running.report.findings if each.check.code == "gpu.lost")
    return found


def acts(running: Rig) -> bool:
    """Whether anything that acts would take the GPU out of service; all of them agree."""
    report = running.report
    severities = [line.split("\t")[3] for line in render_lines(report).splitlines() if line.startswith("finding\t")]
    drains = report.verdict is Verdict.DRAIN
    assert report.exit_code(Severity.CRITICAL) == (EXIT_FINDINGS if drains else EXIT_SOUND)
    assert ("critical" in severities) == drains
    assert [gpu.verdict for gpu in report.gpus] == [Verdict.KEEP, Verdict.DRAIN if drains else Verdict.WATCH]
    assert (running.value("gpu_verdict", gpu="1"), running.value("gpu_host_verdict")) == (1 + drains, 1 + drains)
    return drains


def test_a_repaired_gpu_is_not_drained_again_while_its_page_is_held(tmp_path: Path) -> None:
    with rig(pair_with(tmp_path, "h100-8", hang(60, 300)), GPUS_ALONE) as running:
        running.run_to(290)
        assert (lost(running).holds, acts(running)) == (True, True)
        running.run_to(300 + SOON)
        assert running.value("gpu_finding", code="gpu.lost") == State.CONFIRMED
        assert (lost(running).holds, acts(running)) == (False, False)
        running.run_to(300 + BY_CODE["gpu.lost"].hold_seconds + 30)
        assert running.value("gpu_finding", code="gpu.lost") == State.ENDED


OF_JOBS = only(
    *("activity", "processes", "host_cpu", "host_disk", "host_memory", "host_pressure", "identity"),
    sample_fast_seconds=10.0,
    sample_medium_seconds=10.0,
)

AT_MEMORY_LIMIT = "memory_gib = 64, memory_events_per_second = 20, memory_pressure = 0.3"


def limited(tmp_path: Path, effect: str, *more: str) -> Scenario:
    """A GPU whose job gets slow when something happens to its cgroup."""
    slow = 'at = 120\ngpu = 0\neffect = { kind = "load", utilization = 0.3 }'
    cgroup = f'at = 120\neffect = {{ kind = "cgroup", pids = [5120], {effect} }}'
    return scenario_with(tmp_path, "rtx-4070-ti-super", slow, cgroup, *more)


@pytest.mark.parametrize(
    ("effect", "name", "code", "because"),
    [
        ("cpus = 4, throttled = 0.8", "cpu", "cpu.limited", "its own CPU limit of 4 CPUs stops it in 80% of"),
        (AT_MEMORY_LIMIT, "memory", "memory.limited", "its own memory limit stalls its tasks 30% of the time"),
        ("io_pressure = 0.45", "storage", "storage.starved", "tasks of the job stalled for I/O 45%"),
    ],
)
def test_a_job_waits_for_what_its_own_cgroup_lacks_and_that_is_one_finding(
    tmp_path: Path, effect: str, name: str, code: str, because: str
) -> None:
    with judged(limited(tmp_path, effect), OF_JOBS) as seen:
        seen.run_to(240)
        assert seen.classes() == {"0": name, "1": "compute"}
        assert because in seen.report.gpus[0].bottleneck.because
        (finding,) = (each for each in seen.report.findings if each.check.code.endswith((".limited", ".starved")))
        assert (finding.check.code, finding.state) == (code, State.PENDING)
        assert finding.measured == f"1 GPU (0) waiting: {seen.report.gpus[0].bottleneck.because}"


@pytest.mark.slow
def test_of_several_jobs_at_their_limit_the_worst_is_told(tmp_path: Path) -> None:
    events = [f'at = 120\ngpu = {gpu}\neffect = {{ kind = "load", utilization = 0.3 }}' for gpu in (0, 1)]
    for pid, throttled in ((41000, 0.6), (41100, 0.9)):
        what = f'{{ kind = "cgroup", pids = [{pid}], cpus = 4, throttled = {throttled} }}'
        events.append(f"at = 120\neffect = {what}")
    with judged(scenario_with(tmp_path, "h100-8", *events), OF_JOBS) as seen:
        seen.run_to(240)
        (finding,) = (each for each in seen.report.findings if each.check.code == "cpu.limited")
        assert finding.measured.startswith("2 GPUs (0, 1) waiting: ")
        assert "stops it in 90% of" in finding.measured


def test_processes_killed_at_the_limit_are_told_without_the_kernel_log(tmp_path: Path) -> None:
    killed = 'at = 200\neffect = { kind = "cgroup", pids = [5120], memory_gib = 64, oom_kills = 1 }'
    with judged(limited(tmp_path, "memory_gib = 64", killed), OF_JOBS) as seen:
        seen.run_to(260)
        (finding,) = (each for each in seen.report.findings if each.check.code == "memory.limited")
        assert finding.measured == "killed at the job's own memory limit: 1 process of session-1.scope"


HOUR, MINUTE, STEP = 3600, 60, 15.0
FAULTS_UNTIL = 40 * MINUTE
RESTARTS = 6
LONGEST = 3 * HOUR
"""How long evidence of a fault may last after its repair, and a finding after its evidence; most last minutes."""
MANY = 10
"""Kinds of findings that are found in any order."""

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
        # Told for as long as the kernel log has it: earlier Xids, and what the driver did earlier.
        left = [each for each in active(running) if each.check.code not in before | {"xid.earlier", "driver.earlier"}]
        assert [(each.subject, each.check.code, each.measured) for each in left] == []
        assert {value for _, value in running.series("gpu_up")} == {1.0}
