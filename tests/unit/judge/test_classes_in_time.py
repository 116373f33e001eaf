"""How soon a class follows what happens: at once if seconds show it strongly and it is news, else by the window.

What slows a GPU down has a class and a finding that agree, and the words of a class claim no more than was seen.
"""

from collections.abc import Iterator
from types import MappingProxyType

import pytest
from tests.evidence import Key, Readings, steady
from tests.fed import GPU, HOUR, MINUTE, Fed
from tests.working_gpus import Card, judged

from gpu_triage.judge.bottleneck.class_history import ClassPeriod, Soon
from gpu_triage.judge.bottleneck.classes import Bottleneck
from gpu_triage.judge.evidence.thresholds import (
    HELD_BYTES,
    HUNG_SECONDS,
    NEWS_SECONDS,
    NO_CAUSE_SECONDS,
    OBSERVED_SHARE,
    SOON_SECONDS,
    SOON_WAITING_SHARE,
    UNKNOWN_SECONDS,
    WINDOW_SECONDS,
)
from gpu_triage.judge.findings.finding import Finding, State
from gpu_triage.judge.findings.settings import LIMITS
from gpu_triage.judge.findings.table import BY_CODE, Severity
from gpu_triage.judge.findings.verdicts import Verdict
from gpu_triage.judge.report.report import GpuVerdict
from gpu_triage.read.gpu import activity, device_memory, power, presence, throttle
from gpu_triage.read.host import cpu, disk
from gpu_triage.read.metrics.metric import Sample
from gpu_triage.read.processes import on_gpu

STEP = 5.0
NONE: Readings = MappingProxyType({})


class Host:
    """A judged host with one GPU, whose readings change."""

    def __init__(self, step_seconds: float = STEP) -> None:
        self.fed, self._step_seconds = Fed(step_seconds), step_seconds
        self.changes: list[tuple[float, str]] = []  # each class that the GPU entered, with the second
        self._totals: dict[Key, float] = {}

    def run(self, seconds: float, busy: float, more: Readings = NONE, *, processes: int | None = 1) -> Bottleneck:
        """Judge this for so long, each round; return what is said at the end."""
        readings: dict[Key, float] = {
            (presence.GPU_UP, GPU): 1.0,
            (activity.GPU_PERFORMANCE_STATE, GPU): 0.0,
            (device_memory.GPU_MEMORY_USED_BYTES, GPU): 0.0 if processes == 0 else 8.0 * 1024**3,
            (activity.GPU_SM_UTILIZATION_RATIO, GPU): busy,
            (activity.GPU_BUSY_SECONDS_TOTAL, GPU): busy,
            **CALM,
            **more,
        }
        if processes is not None:
            readings[on_gpu.GPU_PROCESSES, (*GPU, "compute")] = processes
        until = self.fed.seconds + seconds
        while self.fed.seconds < until:
            at = self.fed.seconds
            self.fed.see([self._sample(key, value) for key, value in readings.items()])
            if not self.changes or self.changes[-1][1] != self.now.name:
                self.changes.append((at, self.now.name))
        return self.now

    def _sample(self, key: Key, value: float) -> Sample:
        spec, labels = key
        if spec.name.endswith("_total"):
            value = self._totals[key] = self._totals.get(key, 0.0) + value * self._step_seconds
        return spec.sample(value, *labels)

    @property
    def now(self) -> Bottleneck:
        return self.fed.report.gpus[0].bottleneck


PRESSURE, HEAT = (
    (cpu.GPU_HOST_PRESSURE_SECONDS_TOTAL, ("io", "some")),
    (throttle.GPU_THROTTLE_SECONDS_TOTAL, (*GPU, "hw_thermal")),
)
CALM: Readings = {PRESSURE: 0.0, HEAT: 0.0, (disk.GPU_HOST_DISK_WRITTEN_BYTES_TOTAL, ("nvme0n1",)): 0.0}
STALLED: Readings = {PRESSURE: 0.9}
SAVES: Readings = {**STALLED, (disk.GPU_HOST_DISK_WRITTEN_BYTES_TOTAL, ("nvme0n1",)): 1e9}
MISPLACED: Readings = {(on_gpu.GPU_NUMA_MISMATCHED_PROCESSES, GPU): 1.0}
WORK_SECONDS, LOOK_SECONDS = 180.0, 120.0
HOT = LIMITS["thermal.hw"]["share"].value
AT_ONCE = SOON_SECONDS + STEP


def after_work(busy: float, more: Readings = NONE, step_seconds: float = STEP) -> list[tuple[float, str]]:
    """The classes of a GPU that worked and then is like this, with the seconds since then."""
    host = Host(step_seconds)
    host.run(WORK_SECONDS, 1.0)
    assert host.changes[-1][1] == "compute"
    known = len(host.changes)
    host.run(LOOK_SECONDS, busy, more)
    return [(at - WORK_SECONDS, name) for at, name in host.changes[known:]]


def test_a_gpu_that_is_not_read_for_long_keeps_the_classes_that_it_had() -> None:
    host = Host(step_seconds=1.0)
    host.run(300, 1.0)
    host.fed.run(450, lambda _: [presence.GPU_UP.sample(1, *GPU)])
    (gpu,) = host.fed.report.gpus
    assert gpu.strip == (ClassPeriod("compute", 749.0, 449.0),)


@pytest.mark.parametrize(
    ("busy", "more", "name"),
    [
        pytest.param(0.2, STALLED, "storage", id="it waits for storage"),
        pytest.param(1.0, {HEAT: 3 * HOT + 0.05}, "thermal", id="it is throttled"),
        pytest.param(0.2, MISPLACED, "numa", id="its process is on another node"),
    ],
)
def test_strong_evidence_decides_within_seconds_and_for_good(busy: float, more: Readings, name: str) -> None:
    ((seconds, found),) = after_work(busy, more)
    assert (found, seconds <= AT_ONCE) == (name, True)


@pytest.mark.parametrize(
    ("busy", "more", "name"),
    [
        pytest.param(SOON_WAITING_SHARE + 0.05, STALLED, "storage", id="it waits a little"),
        pytest.param(1.0, {HEAT: 3 * HOT - 0.05}, "thermal", id="it is throttled a little"),
        pytest.param(SOON_WAITING_SHARE + 0.02, NONE, "unattributed", id="without a cause"),
    ],
)
def test_weak_evidence_waits_for_the_window(busy: float, more: Readings, name: str) -> None:
    ((seconds, found),) = after_work(busy, more)
    assert (found, AT_ONCE < seconds <= WINDOW_SECONDS) == (name, True)


@pytest.mark.parametrize(
    ("seconds", "changes"), [(SOON_SECONDS, []), (SOON_SECONDS + NO_CAUSE_SECONDS + STEP, ["unattributed"])]
)
def test_what_has_no_cause_takes_longer_than_what_has(seconds: float, changes: list[str]) -> None:
    host = Host()
    host.run(WORK_SECONDS, 1.0)
    known = len(host.changes)
    host.run(seconds, 0.2)
    assert [name for _, name in host.changes[known:]] == changes


@pytest.mark.parametrize(("step_seconds", "is_sudden"), [(SOON_SECONDS, True), (SOON_SECONDS + 1, False)])
def test_a_single_round_is_no_strong_evidence(step_seconds: float, *, is_sudden: bool) -> None:
    ((seconds, name),) = after_work(0.2, STALLED, step_seconds)
    assert (name, seconds < 2 * SOON_SECONDS) == ("storage", is_sudden)


@pytest.mark.parametrize(
    ("works_seconds", "names"),
    [
        pytest.param(NEWS_SECONDS - 15, ["storage", "compute"], id="it comes and goes"),
        pytest.param(NEWS_SECONDS + 15, ["storage", "compute"] * 4, id="each time it is news"),
    ],
)
def test_what_comes_back_soon_is_left_to_the_window(works_seconds: float, names: list[str]) -> None:
    host = Host()
    host.run(WORK_SECONDS, 1.0)
    host.changes.clear()
    host.run(STEP, 1.0)
    for _ in range(4):
        host.run(15.0, 0.2, STALLED)
        host.run(works_seconds, 1.0)
    assert [name for _, name in host.changes][1:] == names


@pytest.mark.parametrize(("gap", "is_news"), [(NEWS_SECONDS, True), (NEWS_SECONDS - 1, False)])
def test_news_was_not_seen_for_a_while_and_stays_news_while_it_lasts(gap: float, *, is_news: bool) -> None:
    soon = Soon()
    assert [soon.note("compute", 0.0), soon.note("storage", 5.0), soon.note("storage", 10.0)] == [True] * 3
    assert soon.note("compute", 15.0) is False
    assert soon.note("compute", 10.0 + gap - 1) is False
    assert [soon.note("storage", 10.0 + gap), soon.note("storage", 500.0)] == [is_news] * 2


@pytest.mark.parametrize(
    ("more", "names"),
    [
        pytest.param(STALLED, ["storage"], id="something else"),
        pytest.param(NONE, ["thermal", "unattributed"], id="nothing known"),
    ],
)
def test_what_was_before_a_sudden_change_no_longer_counts(more: Readings, names: list[str]) -> None:
    """The heat of the minute before is still in the window."""
    host = Host()
    host.run(WORK_SECONDS, 1.0, {HEAT: 1.0})
    assert host.now.name == "thermal"
    host.run(SOON_SECONDS, 0.3, more)
    known = len(host.changes)
    host.run(20.0, 0.3, more)
    assert {name for _, name in host.changes[known - 1 :]} == set(names)


@pytest.mark.parametrize("more", [SAVES, {**SAVES, **MISPLACED}, MISPLACED], ids=["saves", "saves on", "misplaced"])
def test_a_pause_is_none_of_the_classes_that_a_job_at_work_would_have(more: Readings) -> None:
    assert after_work(0.0, more) == []
    assert after_work(0.2, more) != [], "what works now and then does not pause"


def test_a_pause_says_how_long_it_has_lasted() -> None:
    host = Host()
    host.run(WORK_SECONDS, 1.0)
    said = host.run(60.0, 0.0)
    assert (said.name, said.because) == ("compute", "pauses, for 60 s now; compute before that")


@pytest.mark.parametrize(("more", "name"), [(NONE, "hung"), (STALLED, "storage")])
def test_a_standstill_has_its_class_for_as_long_as_it_lasts(more: Readings, name: str) -> None:
    """Longer than the hour after which nobody remembers that it worked."""
    host = Host(60.0)
    host.run(WORK_SECONDS, 1.0)
    known = len(host.changes)
    host.run(3 * HOUR, 0.0, more)
    ((at, found),) = host.changes[known:]
    assert (found, at - WORK_SECONDS <= HUNG_SECONDS + 30.0) == (name, True)
    assert ("work.hung" in host.fed.codes()) == (name == "hung")


def test_a_pause_has_no_bound() -> None:
    host = Host()
    gpm: Readings = {(spec, GPU): 0.9 for spec in GPM}
    assert host.run(WORK_SECONDS, 1.0, gpm).bound is not None
    assert host.run(10.0, 0.0, gpm).bound is None


def test_a_class_that_is_held_keeps_its_own_words() -> None:
    host = Host()
    host.run(WORK_SECONDS, 1.0)
    share = SOON_WAITING_SHARE + 0.02
    while host.run(STEP, share).because.startswith("busy") and "until" not in host.now.because:
        assert host.now.name == "compute"
    held = [host.now.because] + [host.run(STEP, share).because for _ in range(2)]
    assert host.now.name == "compute"
    words, seconds = zip(*(each.split(", until ") for each in held), strict=True)
    assert seconds == ("5 s ago", "10 s ago", "15 s ago")
    assert len(set(words)) == 1
    assert words[0].endswith("nothing holds it back")
    assert host.run(UNKNOWN_SECONDS, share).name == "unattributed"
    assert "until" not in host.now.because


NOTHING = "nothing holds it back"


def only(card: Card) -> GpuVerdict:
    (gpu,) = judged(card).gpus
    return gpu


@pytest.mark.parametrize("busy", [1.0, 0.25, None], ids=["busy", "hardly busy", "in MIG mode, without GPM"])
@pytest.mark.parametrize(
    ("reason", "code", "least"), [("hw_thermal", "thermal.hw", 0.1), ("sw_thermal", "thermal.sw", 0.25)]
)
@pytest.mark.parametrize("share", [0.09, 0.11, 0.24, 0.26])
def test_heat_has_a_class_where_it_has_a_finding(
    reason: str, code: str, least: float, share: float, busy: float | None
) -> None:
    """What is not worth a finding is not worth a claim that nothing holds it back either."""
    gpu = only(Card(held={reason: share}, busy=busy))
    assert (gpu.bottleneck.name == "thermal", code in gpu.codes) == (share > 0.1, share > least)


@pytest.mark.parametrize(("reason", "code"), [("hw_power_brake", "power.brake"), ("hw_slowdown", "power.hw_slowdown")])
@pytest.mark.parametrize("share", [0.04, 0.06])
def test_a_brake_has_a_class_where_it_has_a_finding(reason: str, code: str, share: float) -> None:
    gpu = only(Card(held={reason: share}))
    assert (gpu.bottleneck.name == "power_brake") == (code in gpu.codes) == (share > 0.05)


@pytest.mark.parametrize("gpus", [1, 4])
@pytest.mark.parametrize(
    ("share", "mhz", "is_held"), [(0.99, 1050.0, True), (0.99, 1700.0, False), (0.45, 1050.0, False)]
)
def test_a_held_clock_has_class_and_finding_on_every_gpu(gpus: int, share: float, mhz: float, *, is_held: bool) -> None:
    report = judged(*[Card(mhz=mhz, held={"applications_clocks": share})] * gpus)
    held = [gpu.bottleneck.name == "clock_cap" for gpu in report.gpus]
    assert held == ["clock.policy" in gpu.codes for gpu in report.gpus] == [is_held] * gpus


@pytest.mark.parametrize(("mhz", "is_held"), [(1800.0, True), (1950.0, False)])
def test_a_gpu_set_below_its_peers_has_class_and_finding(mhz: float, *, is_held: bool) -> None:
    report = judged(SET._replace(mhz=mhz), *[Card()] * 3)
    assert [gpu.bottleneck.name for gpu in report.gpus] == ["clock_cap" if is_held else "compute", *["compute"] * 3]
    assert ["clock.policy" in gpu.codes for gpu in report.gpus] == [is_held, False, False, False]


CAPPED, SET = Card(held={"sw_power_cap": 0.9}), Card(held={"applications_clocks": 0.9})
AT_ITS_LIMIT = ("at its power limit 90% of the time", "1695 of 2100 MHz")
HELD: dict[str, tuple[Card, tuple[str, ...]]] = {
    "at its pace": (Card(), (NOTHING,)),
    "at its default power limit": (CAPPED._replace(mhz=1695.0, watts=296.0), AT_ITS_LIMIT),
    "seldom at its power limit": (Card(held={"sw_power_cap": 0.45}, watts=296.0), (NOTHING,)),
    "a counter that counts far below the limit": (CAPPED._replace(watts=180.0), (NOTHING,)),
    "a clock set a little lower": (SET._replace(mhz=1890.0), ("held by applications_clocks", "1890 of 2100 MHz")),
    "throttling is not read": (Card(counted=False), ()),
}


@pytest.mark.parametrize(("card", "said"), HELD.values(), ids=HELD)
def test_a_busy_gpu_is_said_to_be_held_by_what_normally_holds_it(card: Card, said: tuple[str, ...]) -> None:
    gpu = only(card)
    assert (gpu.bottleneck.name, gpu.codes) == ("compute", ())
    assert [words for words in said if words not in gpu.bottleneck.because] == []
    assert (NOTHING in gpu.bottleneck.because) == (NOTHING in said)


GPM = {activity.GPU_TENSOR_ACTIVE_RATIO: 0.0, activity.GPU_FP32_ACTIVE_RATIO: 0.06, activity.GPU_DRAM_ACTIVE_RATIO: 0.2}


@pytest.mark.parametrize(("decoder", "by_video"), [(0.6, False), (0.92, True)])
def test_a_transcoder_is_described_by_its_video_engines(decoder: float, *, by_video: bool) -> None:
    video = {activity.GPU_DECODER_UTILIZATION_RATIO: decoder, activity.GPU_ENCODER_UTILIZATION_RATIO: 0.4}
    gpu = only(Card(busy=0.75, more={**GPM, **video}))
    assert gpu.bottleneck.name == "compute"
    assert ("decoder 92%" in gpu.bottleneck.because) == ("encoder 40%" in gpu.bottleneck.because) == by_video
    assert ("FP32 units" in gpu.bottleneck.because) == (gpu.bottleneck.bound is not None) == (not by_video)


@pytest.mark.parametrize(
    ("instances", "name"),
    [((0.22, 0.02), "unattributed"), ((0.22, 0.9), "compute"), ((), "unattributed")],
    ids=["hardly work", "one works", "not read"],
)
def test_a_partitioned_gpu_computes_only_if_an_instance_does(instances: tuple[float, ...], name: str) -> None:
    gpu = only(Card(busy=None, instances=instances))
    assert gpu.bottleneck.name == name
    assert "no cause seen" not in gpu.bottleneck.because
    assert ("MIG instance" in gpu.bottleneck.because) == bool(instances)


SPINS = Card(watts=80.0, memory=0.01)

OTHERS = {
    "works": ((Card(),), "GPU 3 of its job"),
    "held back": ((Card(held={"hw_thermal": 0.6}, mhz=900.0),), "GPU 3 of its job"),
    "stopped": ((Card(busy=0.0, watts=60.0),), "GPU 3 of its job"),
    "spins too": ((SPINS,), ""),
    "of another job": ((Card(job="78"),), ""),
    "half of the job works": ((Card(),) * 3, "GPU 3-5 of its job"),
    "most of the job works": ((Card(),) * 4, ""),
    "of no job": ((Card(job=""),), ""),
}


@pytest.mark.parametrize(("others", "named"), OTHERS.values(), ids=OTHERS)
def test_gpus_that_spin_say_for_whom_they_wait(others: tuple[Card, ...], named: str) -> None:
    report = judged(*[SPINS] * 3, *others)
    words = [gpu.bottleneck.because for gpu in report.gpus[:3]]
    assert [gpu.bottleneck.name for gpu in report.gpus[:3]] == ["communication"] * 3
    assert [("waiting for" in each, named in each) for each in words] == [(bool(named), True)] * 3


def test_gpus_that_share_a_user_alone_are_not_known_to_wait_for_each_other() -> None:
    cards = [each._replace(job="") for each in (SPINS, SPINS, SPINS, Card())]
    report = judged(*cards)
    assert [gpu.bottleneck.name for gpu in report.gpus] == [*["communication"] * 3, "compute"]
    assert [gpu.gpu for gpu in report.gpus if "waiting for" in gpu.bottleneck.because] == []


ENDS_AT = 400.0
STARVED = Card(busy=0.4, full_thread=True)
GONE = Card(busy=0.0, watts=30.0, memory=0.0, processes=0, used_gib=0.4)
CODE = "cpu.starved"


def after(before: Card, then: Card, seconds: float) -> Fed:
    """A judge that sees one job for 400 s, and something else for so long."""
    fed, first, second = Fed(5.0), before.busy or 0.0, then.busy or 0.0

    def samples(at: float) -> Iterator[Sample]:
        card = before if at < ENDS_AT else then
        total = first * min(at, ENDS_AT) + second * max(0.0, at - ENDS_AT)
        yield from read(card._replace(worked_seconds=total), at)

    fed.run(ENDS_AT + seconds, samples)
    return fed


def read(card: Card, at: float) -> Iterator[Sample]:
    """What is read of a host with this GPU, and with CPUs of which most are idle."""
    yield cpu.GPU_HOST_CPU_SECONDS_TOTAL.sample(8 * at, "0", "idle")
    yield from card.samples(at, 0)


def gpu_of(fed: Fed) -> GpuVerdict:
    (gpu,) = fed.report.gpus
    return gpu


ENDS = {
    "its process has gone": (STARVED, GONE, 10.0),
    "processes are not listed, its memory is free": (Card(processes=None), GONE._replace(processes=None), 25.0),
}


@pytest.mark.parametrize(("before", "then", "seconds"), ENDS.values(), ids=ENDS)
def test_a_class_ends_with_its_job(before: Card, then: Card, seconds: float) -> None:
    soon, later = after(before, then, seconds), after(before, then, seconds + 60.0)
    assert gpu_of(soon).bottleneck.name == "idle"
    lost = {name: each for name, each in gpu_of(later).seconds.items() if each and name != "idle"}
    assert lost == {name: gpu_of(soon).seconds[name] for name in lost}
    assert lost


def test_what_is_pending_about_a_job_stays_while_it_works() -> None:
    assert after(STARVED, Card(), 20.0).state(CODE) == "pending"


def test_the_next_job_is_not_blamed_for_the_last_one() -> None:
    fed = after(STARVED, GONE, 0.0)
    assert fed.state(CODE) == "pending"
    fed.run(20.0, lambda at: read(GONE._replace(worked_seconds=0.4 * ENDS_AT), at))
    assert fed.state(CODE) == "absent"
    work = 0.4 * ENDS_AT
    start = fed.seconds
    fed.run(60.0, lambda at: read(Card(worked_seconds=work + at - start), at))
    assert gpu_of(fed).bottleneck.name == "compute"
    assert fed.state(CODE) == "absent"


@pytest.mark.parametrize(("works_on_seconds", "name"), [(3.0, "idle"), (60.0, "compute")])
def test_work_that_ends_after_its_process_is_not_that_of_another(works_on_seconds: float, name: str) -> None:
    fed, classes = Fed(5.0), set()
    while fed.seconds < ENDS_AT + 30.0:
        at = fed.seconds
        card = Card() if at < ENDS_AT else GONE._replace(busy=float(at < ENDS_AT + works_on_seconds))
        fed.see(card._replace(worked_seconds=min(at, ENDS_AT + works_on_seconds)).samples(at, 0))
        if at >= ENDS_AT + 10.0:
            classes.add(gpu_of(fed).bottleneck.name)
    assert name in classes
    assert (classes == {"idle"}) == (name == "idle")


@pytest.mark.parametrize(
    ("code", "state", "lasted_seconds", "since", "holds", "urgency"),
    [
        pytest.param(CODE, State.PENDING, 5 * MINUTE - 1, 1.0, True, Severity.INFO, id="less than five minutes"),
        pytest.param(CODE, State.PENDING, 5 * MINUTE, 1.0, True, Severity.WARNING, id="five minutes"),
        pytest.param(
            "nvlink.down", State.PENDING, 2.5 * MINUTE - 1, 1.0, True, Severity.INFO, id="nearly half of its wait"
        ),
        pytest.param("nvlink.down", State.PENDING, 2.5 * MINUTE, 1.0, True, Severity.WARNING, id="half of its wait"),
        pytest.param(CODE, State.PENDING, 5 * MINUTE, 1.0, None, Severity.INFO, id="not observable, as after its job"),
        pytest.param(CODE, State.CONFIRMED, 0.0, 1.0, None, Severity.WARNING, id="confirmed, and not observable"),
        pytest.param(CODE, State.CONFIRMED, 0.0, 1.0, True, Severity.WARNING, id="confirmed"),
        pytest.param(CODE, State.PENDING, 0.0, None, True, Severity.WARNING, id="seen once"),
        pytest.param("gpu.lost", State.PENDING, 0.0, 1.0, True, Severity.WARNING, id="critical, and pending"),
        pytest.param("gpu.lost", State.CONFIRMED, 0.0, 1.0, True, Severity.CRITICAL, id="critical now"),
        pytest.param("gpu.lost", State.CONFIRMED, 0.0, 1.0, False, Severity.WARNING, id="critical, and repaired"),
        pytest.param("gpu.lost", State.CONFIRMED, 0.0, 1.0, None, Severity.WARNING, id="critical, and unobservable"),
    ],
)
def test_a_warning_is_urgent_once_it_is_likely_to_last_and_what_is_critical_while_it_holds(
    code: str, state: State, lasted_seconds: float, since: float | None, *, holds: bool | None, urgency: Severity
) -> None:
    assert (BY_CODE[CODE].wait_seconds, BY_CODE["nvlink.down"].wait_seconds) == (20 * MINUTE, 5 * MINUTE)
    found = Finding(BY_CODE[code], "", state=state, lasted_seconds=lasted_seconds, since=since, holds=holds)
    assert found.urgency is urgency


def test_a_host_is_to_be_watched_once_a_warning_is_likely_to_last() -> None:
    fed, verdicts = Fed(15.0), {}
    while fed.seconds < 15 * MINUTE:
        at = fed.seconds
        fed.see(read(STARVED, at))
        verdicts[at] = fed.report.verdict
    assert fed.state(CODE) == "pending"
    began = next(at for at, verdict in verdicts.items() if verdict is Verdict.WATCH)
    assert 4 * MINUTE < began < 7 * MINUTE
    assert {verdict for at, verdict in verdicts.items() if at >= began} == {Verdict.WATCH}


NAMES = {"no cause seen": "unattributed", "no compute process": "idle", "fills one CPU": "cpu", "busy 98%": "compute"}


def test_the_words_are_those_of_the_class_through_every_change() -> None:
    turns = (Card(busy=0.98), STARVED, Card(busy=0.69), Card(busy=0.3), STARVED, GONE, Card(busy=0.3), Card(busy=0.98))
    fed, worked_seconds, said = Fed(5.0), 0.0, set()
    while fed.seconds < 90.0 * len(turns):
        card = turns[int(fed.seconds // 90.0)]
        worked_seconds += 5.0 * (card.busy or 0.0)
        fed.see(read(card._replace(worked_seconds=worked_seconds), fed.seconds))
        bottleneck = gpu_of(fed).bottleneck
        said |= {(words, bottleneck.name) for words in NAMES if words in bottleneck.because}
    assert said == {*NAMES.items()}


EDGE = 1e-3
SECONDS_BUSY, SECONDS_OBSERVED = (
    (spec, GPU) for spec in (activity.GPU_BUSY_SECONDS_TOTAL, activity.GPU_OBSERVED_SECONDS_TOTAL)
)
LITTLE_POWER: Readings = {(power.GPU_POWER_WATTS, GPU): 60.0, (power.GPU_POWER_LIMIT_WATTS, GPU): 300.0}


def seen(busy: float, observed: float) -> Readings:
    """A GPU that is observed for a share of the time, and is busy for a share of that."""
    return {**LITTLE_POWER, SECONDS_BUSY: busy * observed, SECONDS_OBSERVED: observed}


@pytest.mark.parametrize("busy", [0.0, 0.3, 0.98])
@pytest.mark.parametrize("observed", [1.0, 0.75, OBSERVED_SHARE, OBSERVED_SHARE - EDGE, 0.0])
def test_shares_are_of_the_time_that_was_observed_if_that_is_most_of_it(observed: float, busy: float) -> None:
    resident = {(presence.GPU_UP, GPU): 1.0, (on_gpu.GPU_PROCESSES, (*GPU, "compute")): 1.0}
    (gpu,) = steady({**resident, (device_memory.GPU_MEMORY_USED_BYTES, GPU): HELD_BYTES, **seen(busy, observed)}).gpus
    if observed >= OBSERVED_SHARE:
        assert gpu.busy_share == pytest.approx(busy)
        assert (gpu.unobserved, gpu.under_load) == ("", busy >= 0.2)
    else:
        assert gpu.busy_share is None
        assert gpu.unobserved.startswith("not observed")
        assert (gpu.under_load, gpu.loaded, gpu.held_idle) == (False, False, False)


def observed_host() -> Host:
    host = Host()
    assert host.run(2 * WINDOW_SECONDS, 0.98, seen(0.98, 1.0)).name == "compute"
    return host


@pytest.mark.parametrize(
    ("seconds", "observed", "name"),
    [(300.0, OBSERVED_SHARE + 0.05, "compute"), (UNKNOWN_SECONDS, 0.0, "compute"), (180.0, 0.0, "unattributed")],
)
def test_a_gpu_that_nobody_observes_has_no_class_in_the_end(seconds: float, observed: float, name: str) -> None:
    host = observed_host()
    known = len(host.changes)
    said = host.run(seconds, 0.98, seen(0.98, observed))
    assert [each for _, each in host.changes[known:]] == [name] * (name != "compute")
    assert said.because.startswith("not observed") == (name == "unattributed")
    assert host.run(120, 0.98, seen(0.98, 1.0)).name == "compute"


@pytest.mark.parametrize(
    ("observed", "hangs"), [pytest.param(1.0, True, id="observed"), pytest.param(0.1, False, id="not observed")]
)
def test_only_a_gpu_that_was_seen_idle_hangs(observed: float, hangs: bool) -> None:  # noqa: FBT001 - a table
    host = observed_host()
    assert (host.run(HUNG_SECONDS + 60, 0.0, seen(0.0, observed)).name == "hung") == hangs
    assert ("work.hung" in host.fed.codes()) == hangs


def test_a_gap_in_a_hang_does_not_end_it() -> None:
    host = observed_host()
    for seconds, observed in ((90, 1.0), (20, 0.0), (HUNG_SECONDS, 1.0)):
        host.run(seconds, 0.0, seen(0.0, observed))
    assert host.now.name == "hung"
