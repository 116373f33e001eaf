"""A class, and what is pending about it, ends with its job; and a finding counts when it is likely to last."""

from collections.abc import Callable, Iterator

import pytest
from tests.fed import MINUTE, Fed
from tests.working_gpus import Card

from gpu_triage.judge.findings.finding import Finding, State
from gpu_triage.judge.findings.table import BY_CODE, Severity
from gpu_triage.judge.findings.verdicts import Verdict
from gpu_triage.judge.report.report import GpuVerdict
from gpu_triage.read.host.cpu import GPU_HOST_CPU_SECONDS_TOTAL
from gpu_triage.read.metrics.metric import Sample

ENDS_AT = 400.0
STARVED = Card(busy=0.4, full_thread=True)
GONE = Card(busy=0.0, watts=30.0, memory=0.0, processes=0, used_gib=0.4)
CODE = "cpu.starved"


def after(before: Card, then: Card, seconds: float) -> Fed:
    """A judge that sees one job for 400 s, and something else for so long."""
    fed, total = Fed(5.0), worked(before, then)

    def samples(at: float) -> Iterator[Sample]:
        card = before if at < ENDS_AT else then
        yield from read(card._replace(worked_seconds=total(at)), at)

    fed.run(ENDS_AT + seconds, samples)
    return fed


def read(card: Card, at: float) -> Iterator[Sample]:
    """What is read of a host with this GPU, and with CPUs of which most are idle."""
    yield GPU_HOST_CPU_SECONDS_TOTAL.sample(8 * at, "0", "idle")
    yield from card.samples(at, 0)


def worked(before: Card, then: Card) -> Callable[[float], float]:
    first, second = before.busy or 0.0, then.busy or 0.0
    return lambda at: first * min(at, ENDS_AT) + second * max(0.0, at - ENDS_AT)


def gpu_of(fed: Fed) -> GpuVerdict:
    assert fed.latest is not None
    (gpu,) = fed.latest.report.gpus
    return gpu


@pytest.mark.parametrize(
    ("before", "then", "seconds"),
    [
        pytest.param(STARVED, GONE, 10.0, id="its process has gone"),
        pytest.param(
            Card(processes=None), GONE._replace(processes=None), 25.0, id="processes are not listed, its memory is free"
        ),
    ],
)
def test_a_class_ends_with_its_job(before: Card, then: Card, seconds: float) -> None:
    soon, later = after(before, then, seconds), after(before, then, seconds + 60.0)
    assert gpu_of(soon).bottleneck.name == "idle"
    lost = {name: each for name, each in gpu_of(later).seconds.items() if each and name != "idle"}
    assert lost == {name: gpu_of(soon).seconds[name] for name in lost}
    assert lost


@pytest.mark.parametrize("then", [Card(busy=0.0, watts=85.0), Card(busy=0.0, watts=85.0, full_thread=True)])
def test_a_class_outlasts_a_pause_of_its_job(then: Card) -> None:
    assert gpu_of(after(Card(), then, 20.0)).bottleneck.name != "idle"


@pytest.mark.parametrize(("then", "state"), [(GONE, "absent"), (Card(), "pending")], ids=["gone", "works"])
def test_what_is_pending_about_a_job_goes_with_it(then: Card, state: str) -> None:
    assert after(STARVED, Card(), 0.0).state(CODE) == "pending"
    assert after(STARVED, then, 20.0).state(CODE) == state


def test_the_next_job_is_not_blamed_for_the_last_one() -> None:
    fed = after(STARVED, GONE, 10.0)
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
    ("code", "state", "lasted_seconds", "since", "holds", "is_urgent"),
    [
        pytest.param(CODE, State.PENDING, 5 * MINUTE - 1, 1.0, True, False, id="less than five minutes"),
        pytest.param(CODE, State.PENDING, 5 * MINUTE, 1.0, True, True, id="five minutes"),
        pytest.param("nvlink.down", State.PENDING, 2.5 * MINUTE - 1, 1.0, True, False, id="less than half of its wait"),
        pytest.param("nvlink.down", State.PENDING, 2.5 * MINUTE, 1.0, True, True, id="half of its wait"),
        pytest.param(CODE, State.PENDING, 5 * MINUTE, 1.0, None, False, id="not observable, as after its job"),
        pytest.param(CODE, State.CONFIRMED, 0.0, 1.0, None, True, id="confirmed, and not observable"),
        pytest.param(CODE, State.CONFIRMED, 0.0, 1.0, True, True, id="confirmed"),
        pytest.param(CODE, State.PENDING, 0.0, None, True, True, id="seen once"),
        pytest.param("thermal.hw", State.PENDING, 0.0, 1.0, True, True, id="critical"),
    ],
)
def test_a_pending_warning_is_urgent_once_it_is_likely_to_last(
    code: str, state: State, lasted_seconds: float, since: float | None, *, holds: bool | None, is_urgent: bool
) -> None:
    assert (BY_CODE[CODE].wait_seconds, BY_CODE["nvlink.down"].wait_seconds) == (20 * MINUTE, 5 * MINUTE)
    found = Finding(BY_CODE[code], "", state=state, lasted_seconds=lasted_seconds, since=since, holds=holds)
    assert found.urgency is (Severity.WARNING if is_urgent else Severity.INFO)


def test_a_host_is_to_be_watched_once_a_warning_is_likely_to_last() -> None:
    fed, verdicts = Fed(15.0), {}
    while fed.seconds < 15 * MINUTE:
        at = fed.seconds
        fed.see(read(STARVED, at))
        assert fed.latest is not None
        verdicts[at] = fed.latest.report.verdict
    assert fed.state(CODE) == "pending"
    began = next(at for at, verdict in verdicts.items() if verdict is Verdict.WATCH)
    assert 4 * MINUTE < began < 7 * MINUTE
    assert {verdict for at, verdict in verdicts.items() if at >= began} == {Verdict.WATCH}


OF_CLASS = {
    "no cause seen": "unattributed",
    "no compute process": "idle",
    "fills one CPU": "cpu",
    "busy 98%": "compute",
}


def test_the_words_are_those_of_the_class_through_every_change() -> None:
    turns = (Card(busy=0.98), STARVED, Card(busy=0.69), Card(busy=0.3), STARVED, GONE, Card(busy=0.3), Card(busy=0.98))
    fed, worked_seconds, said = Fed(5.0), 0.0, set()
    while fed.seconds < 90.0 * len(turns):
        card = turns[int(fed.seconds // 90.0)]
        worked_seconds += 5.0 * (card.busy or 0.0)
        fed.see(read(card._replace(worked_seconds=worked_seconds), fed.seconds))
        bottleneck = gpu_of(fed).bottleneck
        said |= {(words, bottleneck.name) for words in OF_CLASS if words in bottleneck.because}
    assert said == {*OF_CLASS.items()}
