"""Which class a GPU is in, how soon, and for how long: the judge in the daemon, on a virtual clock."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.gathered import every
from tests.judged import Judged, judged
from tests.rig import Rig, only, rig, scenario_with

from gpu_triage.options.config import Config
from gpu_triage.read.exporter.judgment import BOTTLENECK_CLASSES
from gpu_triage_simulator import Scenario, load_scenario

pytestmark = pytest.mark.slow

HOST = "rtx-4070-ti-super"
LEAN = only(
    "activity",
    "memory",
    "clocks",
    "power",
    "throttle",
    "processes",
    "host_cpu",
    "host_disk",
    "host_memory",
    "host_network",
    "host_network_link",
    "host_pressure",
    "identity",
)
"""What classes are made of."""
QUICK = replace(LEAN, sample_fast_seconds=5.0)
COARSE = replace(LEAN, sample_fast_seconds=15.0, sample_medium_seconds=15.0)
MINUTELY = replace(LEAN, sample_fast_seconds=60.0, sample_medium_seconds=60.0, sample_slow_seconds=600.0)


def play(tmp_path: Path, *events: str) -> Scenario:
    """Two busy GPUs and what happens to them."""
    return scenario_with(tmp_path, HOST, *events)


def rest(at: int, until: int, gpu: int = 0) -> str:
    return f'at = {at}\nuntil = {until}\ngpu = {gpu}\neffect = {{ kind = "load", utilization = 0.0 }}'


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
        latest = seen.running.judge.latest
        assert latest is not None
        for verdict in latest.report.gpus:
            spent, lately = seen.seconds(verdict.gpu), verdict.bottleneck.lately
            assert sum(lately.values()) == pytest.approx(1)
            assert lately["storage"] == pytest.approx(spent["storage"] / sum(spent.values()), abs=0.03)


@pytest.mark.full
def test_a_pause_of_a_job_flips_nothing(tmp_path: Path) -> None:
    pauses = (rest(300, 320), rest(620, 710), rest(1010, 1250))
    with judged(play(tmp_path, *pauses), COARSE) as seen:
        seen.run_to(1320)
        assert [name for _, name in seen.changes["0"]][-1:] == ["compute"]
        assert seen.entered("0", "compute") < 60
        assert [at for at, _ in seen.changes["0"] if at > 60] == []


def test_a_checkpoint_that_fills_disk_and_cpu_flips_nothing(tmp_path: Path) -> None:
    saving = (
        rest(300, 390),
        rest(300, 390, gpu=1),
        host(
            300,
            390,
            'kind = "disk", device = "nvme0n1", busy = 0.99, writes_per_second = 900, write_bytes_per_second = 2.0e9',
        ),
        host(300, 390, 'kind = "cpu", iowait = 0.2, saturated_cpus = "0"'),
        host(300, 390, 'kind = "pressure", resource = "io", some = 0.9, full = 0.7'),
    )
    with judged(play(tmp_path, *saving), QUICK) as seen:
        seen.run_to(480)
        assert [at for at, _ in every(seen.changes["0"]) if at > 60] == []


@pytest.mark.full
def test_storage_that_nobody_writes_to_is_waited_for_even_at_a_standstill(tmp_path: Path) -> None:
    dead = (rest(300, 8000), host(300, 8000, 'kind = "pressure", resource = "io", some = 0.95, full = 0.9'))
    with judged(play(tmp_path, *dead), MINUTELY) as seen:
        seen.run_to(5000)
        assert seen.entered("0", "storage") <= 420
        assert {name for at, name in seen.changes["0"] if at > 420} <= {"storage"}, "never hung, however long"


def test_a_job_that_stops_is_hung_within_five_minutes_and_never_one_that_never_worked(tmp_path: Path) -> None:
    with judged(play(tmp_path, rest(300, 900), rest(0, 2000, gpu=1)), COARSE) as seen:
        seen.run_to(890)
        assert 520 < seen.entered("0", "hung") <= 600
        assert [name for at, name in seen.changes["0"] if at > 600] == []
        assert "work.hung" in seen.report.gpus[0].codes
        assert seen.report.gpus[0].verdict.value == "watch"
        seen.run_to(1500)
        assert seen.entered("0", "compute", after=900) <= 990
        assert [name for at, name in seen.changes["0"] if at > 900] == ["compute"], "in its true class at once"
        assert "hung" not in {name for _, name in seen.changes["1"]}


@pytest.mark.full
def test_a_hang_stays_one_for_as_long_as_it_lasts(tmp_path: Path) -> None:
    """Longer than the two hours after which nobody remembers that it worked."""
    hours = 3600
    with judged(play(tmp_path, rest(300, 4 * hours)), MINUTELY) as seen:
        seen.run_to(2.5 * hours)
        assert seen.entered("0", "hung") <= 660
        assert [name for at, name in seen.changes["0"] if at > 660] == []
        assert seen.seconds("0")["hung"] > 2 * hours
        assert "work.hung" in seen.report.gpus[0].codes


@pytest.mark.full
@pytest.mark.parametrize(("utilization", "names"), [(0.75, []), (0.5, ["unattributed", "compute"])])
def test_an_evaluation_is_work_as_long_as_it_keeps_the_gpu_busy(
    tmp_path: Path, utilization: float, names: list[str]
) -> None:
    slower = f'at = 300\nuntil = 400\neffect = {{ kind = "load", utilization = {utilization} }}'
    with judged(play(tmp_path, slower), QUICK) as seen:
        seen.run_to(480)
        assert [name for at, name in every(seen.changes["0"]) if at > 60] == names


def test_a_released_gpu_is_idle_and_has_no_verdict() -> None:
    with judged(load_scenario(HOST), LEAN) as seen:
        seen.run_to(100)
        seen.running.sampler.release()
        seen.run_to(106)
        assert set(seen.classes().values()) == {"idle"}
        assert seen.running.value("gpu_verdict", gpu="0") is None
        assert seen.running.value("gpu_host_verdict") is None
        seen.running.sampler.acquire()
        seen.run_to(110)
        assert seen.report.findings == ()
        seen.run_to(260)
        assert set(seen.classes().values()) == {"compute"}
        assert seen.running.value("gpu_host_verdict") == 0


@pytest.mark.full
def test_video_streams_starve_nobody(tmp_path: Path) -> None:
    streams = 'at = 0\neffect = { kind = "load", utilization = 0.08, encoder = 0.65 }'
    slow = host(0, 1000, 'kind = "pressure", resource = "io", some = 0.9')
    with judged(play(tmp_path, streams, slow)) as seen:
        seen.run_to(120)
        assert set(seen.classes().values()) <= {"compute", "unattributed"}


def test_a_gpu_that_works_for_nobody_listed_is_not_idle_and_no_free_sibling() -> None:
    with judged(load_scenario("dual-a10"), QUICK) as seen:
        seen.run_to(120)
        assert seen.classes()["1"] == "compute"
        assert "work.imbalance" not in {finding.check.code for finding in seen.report.findings}


@pytest.mark.parametrize(
    ("effect", "name"),
    [
        ('kind = "cpu", user = 0.96, system = 0.03', "cpu"),
        pytest.param(
            'kind = "network", device = "enp6s0", receive_bytes_per_second = 3.05e8', "network", marks=pytest.mark.full
        ),
        pytest.param('kind = "pressure", resource = "memory", some = 0.4', "memory", marks=pytest.mark.full),
    ],
)
def test_a_host_that_starves_a_gpu_to_a_standstill_is_named_within_a_minute(
    tmp_path: Path, effect: str, name: str
) -> None:
    with judged(play(tmp_path, rest(200, 400), host(200, 400, effect)), QUICK) as seen:
        seen.run_to(300)
        assert seen.entered("0", name) <= 260


def test_an_xid_of_before_the_exporter_started_is_of_its_gpu_from_the_first_judgment_on(tmp_path: Path) -> None:
    """Before the GPUs have said who they are, it is of a slot, and a page of its own."""
    xid = 'at = 20\ngpu = 1\neffect = { kind = "xid", code = 119 }'
    with rig(play(tmp_path, xid)) as first:
        first.run(60)
        restarted = Judged(Rig(first.simulated, first.clock, Config(), machine=first.simulated.for_another_process()))
        restarted.run_to(30)
    assert {subject for subject, code in restarted.lives if code.startswith("xid.")} == {"1"}
