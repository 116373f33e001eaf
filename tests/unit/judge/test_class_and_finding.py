"""What slows a GPU down has a class and a finding that agree, and the words of a class claim no more than was seen."""

import pytest
from tests.working_gpus import Card, judged

from gpu_triage.judge.report.report import GpuVerdict
from gpu_triage.read.gpu.activity import (
    GPU_DECODER_UTILIZATION_RATIO,
    GPU_DRAM_ACTIVE_RATIO,
    GPU_ENCODER_UTILIZATION_RATIO,
    GPU_FP32_ACTIVE_RATIO,
    GPU_TENSOR_ACTIVE_RATIO,
)

NOTHING = "nothing holds it back"


def only(card: Card) -> GpuVerdict:
    (gpu,) = judged(card).gpus
    return gpu


@pytest.mark.parametrize("busy", [1.0, 0.25, None], ids=["busy", "hardly busy", "in MIG mode, without GPM"])
@pytest.mark.parametrize(
    ("reason", "code", "least"), [("hw_thermal", "thermal.hw", 0.1), ("sw_thermal", "thermal.sw", 0.25)]
)
@pytest.mark.parametrize("share", [0.09, 0.11, 0.2, 0.5])
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
    report = judged(Card(mhz=mhz, held={"applications_clocks": 0.9}), *[Card()] * 3)
    assert [gpu.bottleneck.name for gpu in report.gpus] == ["clock_cap" if is_held else "compute", *["compute"] * 3]
    assert ["clock.policy" in gpu.codes for gpu in report.gpus] == [is_held, False, False, False]


@pytest.mark.parametrize(
    ("card", "said", "unsaid"),
    [
        pytest.param(Card(), (NOTHING,), (), id="at its pace"),
        pytest.param(
            Card(mhz=1695.0, held={"sw_power_cap": 0.9}, watts=296.0),
            ("at its power limit 90% of the time", "1695 of 2100 MHz"),
            (NOTHING,),
            id="at its default power limit",
        ),
        pytest.param(Card(held={"sw_power_cap": 0.45}, watts=296.0), (NOTHING,), (), id="seldom at its power limit"),
        pytest.param(
            Card(held={"sw_power_cap": 0.9}, watts=180.0),
            (NOTHING,),
            (),
            id="a counter that counts far below the limit",
        ),
        pytest.param(
            Card(mhz=1890.0, held={"applications_clocks": 0.9}),
            ("held by applications_clocks", "1890 of 2100 MHz"),
            (NOTHING,),
            id="a clock set a little lower",
        ),
        pytest.param(Card(counted=False), (), (NOTHING,), id="throttling is not read"),
    ],
)
def test_a_busy_gpu_is_said_to_be_held_by_what_normally_holds_it(
    card: Card, said: tuple[str, ...], unsaid: tuple[str, ...]
) -> None:
    gpu = only(card)
    assert (gpu.bottleneck.name, gpu.codes) == ("compute", ())
    assert [words for words in said if words not in gpu.bottleneck.because] == []
    assert [words for words in unsaid if words in gpu.bottleneck.because] == []


GPM = {GPU_TENSOR_ACTIVE_RATIO: 0.0, GPU_FP32_ACTIVE_RATIO: 0.06, GPU_DRAM_ACTIVE_RATIO: 0.2}


@pytest.mark.parametrize(("decoder", "by_video"), [(0.6, False), (0.92, True)])
def test_a_transcoder_is_described_by_its_video_engines(decoder: float, *, by_video: bool) -> None:
    video = {GPU_DECODER_UTILIZATION_RATIO: decoder, GPU_ENCODER_UTILIZATION_RATIO: 0.4}
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


@pytest.mark.parametrize(
    ("others", "named"),
    [
        pytest.param((Card(),), "GPU 3 of its job", id="works"),
        pytest.param((Card(held={"hw_thermal": 0.6}, mhz=900.0),), "GPU 3 of its job", id="held back"),
        pytest.param((Card(busy=0.0, watts=60.0),), "GPU 3 of its job", id="stopped"),
        pytest.param((SPINS,), "", id="spins too"),
        pytest.param((Card(job="78"),), "", id="of another job"),
        pytest.param((Card(), Card(), Card()), "GPU 3-5 of its job", id="half of the job works"),
        pytest.param((Card(), Card(), Card(), Card()), "", id="most of the job works"),
        pytest.param((Card(job=""),), "", id="of no job"),
    ],
)
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
