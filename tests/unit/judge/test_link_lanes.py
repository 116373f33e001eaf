"""Lanes that a link lacks: lost, given by the board to all, or never seen since boot. Slots and peer access beside it.

The widths are those of captures: `nvidia-smi -q` of an A10G and a T4 in cloud instances says "Max: 16x, Current: 8x".
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import pytest
from tests.fed import HOUR, MINUTE, Fed, after, loaded

from gpu_triage.judge.evidence.past import WidestLink
from gpu_triage.judge.findings.verdicts import Verdict
from gpu_triage.read.gpu import pcie
from gpu_triage.read.gpu.identity import GPU_INFO
from gpu_triage.read.gpu.presence import GPU_P2P_EXPECTED, GPU_UP
from gpu_triage.read.gpu.topology import GPU_P2P_STATUS
from gpu_triage.read.metrics.metric import Sample
from gpu_triage.read.processes.on_gpu import GPU_PROCESS_INFO, GPU_PROCESSES
from gpu_triage.serve.page.sections import gpus_section

Series = Callable[[float], Iterator[Sample]]


@dataclass(frozen=True)
class Card:
    """A card in its slot; `lanes` is what its link has at a second."""

    lanes: Callable[[float], int] | int = 16
    name: str = "RTX 4090"
    card: tuple[int, int] = (4, 16)
    slot: tuple[int, int] = (4, 16)
    declared: int | None = None
    busy: float = 0.95
    errors: Mapping[str, float] | None = None  # AER errors and replays a second
    moves: tuple[float, float] | None = None  # bytes received and sent a second
    user: str = "ada"


def desk(*cards: Card, p2p: str | None = None, p2p_expected: int | None = None) -> Series:
    def samples(at: float) -> Iterator[Sample]:
        if p2p_expected is not None:
            yield GPU_P2P_EXPECTED.sample(p2p_expected)
        for index, card in enumerate(cards):
            yield from of_card(at, card, (str(index), f"GPU-{index}"))
            for peer in range(len(cards)):
                if peer != index and p2p is not None:
                    pair = (str(index), f"GPU-{index}", str(peer), f"GPU-{peer}")
                    yield GPU_P2P_STATUS.sample(1, *pair, "read", p2p, "phb")

    return samples


def of_card(at: float, card: Card, gpu: tuple[str, str]) -> Iterator[Sample]:
    generation, width = (min(each) for each in zip(card.card, card.slot, strict=True))
    facts = {"name": card.name, "pci_bus_id": f"0000:{gpu[0]}1:00.0"}
    yield GPU_INFO.sample(1, *gpu, *(facts.get(label, "") for label in GPU_INFO.labels[2:]))
    yield from loaded(at, card.busy, gpu)
    yield GPU_PROCESSES.sample(1, *gpu, "compute")
    process = {"pid": f"10{gpu[0]}", "process": "python", "user": card.user}
    yield GPU_PROCESS_INFO.sample(1, *gpu, *(process.get(label, "") for label in GPU_PROCESS_INFO.labels[2:]))
    yield pcie.GPU_PCIE_LINK_WIDTH.sample(card.lanes(at) if callable(card.lanes) else card.lanes, *gpu)
    yield pcie.GPU_PCIE_LINK_GENERATION.sample(generation, *gpu)
    yield pcie.GPU_PCIE_LINK_EXPECTED_GENERATION.sample(generation, *gpu)
    yield pcie.GPU_PCIE_LINK_EXPECTED_WIDTH.sample(card.declared or width, *gpu)
    if card.declared:
        yield pcie.GPU_PCIE_LINK_EXPECTED_WIDTH_DECLARED.sample(1, *gpu)
    yield pcie.GPU_PCIE_LINK_DEVICE_MAX_GENERATION.sample(card.card[0], *gpu)
    yield pcie.GPU_PCIE_LINK_DEVICE_MAX_WIDTH.sample(card.card[1], *gpu)
    yield pcie.GPU_PCIE_LINK_SLOT_MAX_GENERATION.sample(card.slot[0], *gpu)
    yield pcie.GPU_PCIE_LINK_SLOT_MAX_WIDTH.sample(card.slot[1], *gpu)
    for kind, rate in (card.errors or {}).items():
        if kind == "replays":
            yield pcie.GPU_PCIE_REPLAYS_TOTAL.sample(at * rate, *gpu)
        else:
            yield pcie.GPU_PCIE_AER_ERRORS_TOTAL.sample(at * rate, *gpu, "port", kind)
    if card.moves is not None:
        yield pcie.GPU_PCIE_RECEIVE_BYTES_TOTAL.sample(at * card.moves[0], *gpu)
        yield pcie.GPU_PCIE_TRANSMIT_BYTES_TOTAL.sample(at * card.moves[1], *gpu)


def found(series: Series) -> Fed:
    return after(3 * MINUTE, series)


def codes_of(fed: Fed) -> dict[str, set[str]]:
    return {each.gpu: {code for code in each.codes if code.startswith("pcie.")} for each in fed.report.gpus}


X8 = Card(8)


def once(second: float, before: int, after: int) -> Callable[[float], int]:
    return lambda at: after if at >= second else before


@pytest.mark.parametrize(
    ("cards", "code"),
    [
        pytest.param([X8, X8], "pcie.width_built", id="a board that splits the lanes"),
        pytest.param([X8, Card(8, "RTX 3080")], "pcie.width_built", id="so it does for two models"),
        pytest.param([X8] * 8, "pcie.width_built", id="eight alike"),
        pytest.param([X8, X8, Card(4)], "pcie.width_built", id="a third that lost lanes does not change that"),
        pytest.param([X8, Card(4, slot=(3, 4))], "pcie.width_from_boot", id="the other claims less"),
        pytest.param([X8], "pcie.width_from_boot", id="alone"),
        pytest.param([Card(4)], "pcie.width_from_boot", id="alone with four"),
        pytest.param([Card(4), Card(4)], "pcie.width_from_boot", id="four are too few for a board"),
        pytest.param([X8, Card(16, "RTX 3080")], "pcie.width_from_boot", id="another model has more"),
        pytest.param([X8, Card(16)], "pcie.width", id="a sibling has more"),
        pytest.param([X8, *[Card()] * 7], "pcie.width", id="seven siblings have more"),
        pytest.param([X8, Card(once(90, 16, 8))], "pcie.width", id="the sibling had more"),
        pytest.param([Card(once(90, 16, 8))], "pcie.width", id="it had more"),
        pytest.param([Card(8, declared=16)], "pcie.width", id="alone, but declared"),
        pytest.param([Card(8, declared=16), Card(8, declared=16)], "pcie.width", id="declared, or in the baseline"),
        pytest.param([Card(8, errors={"fatal": 0.1}), X8], "pcie.width", id="with errors"),
        pytest.param([Card(8, errors={"replays": 1.0}), X8], "pcie.width", id="with replays"),
        pytest.param([Card(8, errors={"correctable": 1.0}), X8], "pcie.width", id="with many corrected errors"),
        pytest.param([Card(8, errors={"correctable": 0.01}), X8], "pcie.width_built", id="with few of them"),
        pytest.param([Card(4), X8], "pcie.width", id="a sibling has more of what the board gives"),
        pytest.param([replace(X8, busy=0.0), Card(16)], "pcie.width_idle", id="a sibling has more, at rest"),
        pytest.param([replace(X8, busy=0.0)] * 2, "pcie.width_built", id="a board at rest"),
    ],
)
def test_missing_lanes_are_as_bad_as_what_they_had_before(cards: list[Card], code: str) -> None:
    fed = found(desk(*cards))
    assert codes_of(fed)["0"] & {"pcie.width", "pcie.width_idle", "pcie.width_built", "pcie.width_from_boot"} == {code}


@pytest.mark.parametrize(("lanes", "code"), [(16, "pcie.width"), (8, "pcie.width_built")])
def test_a_sibling_that_does_not_respond_is_remembered(lanes: int, code: str) -> None:
    both, alone = desk(X8, Card(lanes)), desk(X8)

    def samples(at: float) -> Iterable[Sample]:
        if at < 2 * MINUTE:
            yield from both(at)
            return
        yield from alone(at)
        yield from (sample for sample in both(at) if sample.spec is GPU_INFO and sample.labels[0] == "1")
        yield GPU_UP.sample(0, "1", "GPU-1")

    assert codes_of(after(5 * MINUTE, samples))["0"] == {code}


@pytest.mark.parametrize("lanes", [8, 16])
def test_a_declared_width_settles_it(lanes: int) -> None:
    assert codes_of(found(desk(Card(lanes, declared=8), Card(lanes, declared=8)))) == {"0": set(), "1": set()}


@pytest.mark.parametrize(
    ("cards", "code", "verdict", "bottleneck"),
    [
        ([X8, X8], "pcie.width_built", Verdict.KEEP, "compute"),
        ([X8], "pcie.width_from_boot", Verdict.WATCH, "pcie_link"),
        ([Card(4), Card(4)], "pcie.width_from_boot", Verdict.WATCH, "pcie_link"),
        ([X8, Card(16)], "pcie.width", Verdict.DRAIN, "pcie_link"),
    ],
)
def test_only_lost_lanes_are_a_reason_to_drain(cards: list[Card], code: str, verdict: Verdict, bottleneck: str) -> None:
    fed = after(HOUR + 3 * MINUTE, desk(*cards), 60.0)
    assert fed.state(code) == "confirmed"
    (gpu, *_) = fed.report.gpus
    assert (gpu.verdict, gpu.bottleneck.name) == (verdict, bottleneck)


def test_what_a_link_had_before_a_restart_in_this_boot_is_known() -> None:
    fed = Fed()
    fed.memory.widest.see([WidestLink("GPU-0", "0000:01:00.0", 16)])
    fed.run(3 * MINUTE, desk(X8))
    assert codes_of(fed)["0"] == {"pcie.width"}
    moved = Fed()
    moved.memory.widest.see([WidestLink("GPU-0", "0000:65:00.0", 16)])
    moved.run(3 * MINUTE, desk(X8))
    assert codes_of(moved)["0"] == {"pcie.width_from_boot"}, "in another slot"


def test_the_finding_names_all_that_share_it() -> None:
    fed = found(desk(X8, X8, X8))
    texts = {each.measured for each in fed.report.findings if each.check.code == "pcie.width_built"}
    assert texts == {"8 of 16 lanes under load, as all of GPU 0-2 since boot"}


@pytest.mark.parametrize(
    ("cards", "cell"),
    [
        ([X8, X8], 'gen 4 x8<br><small class="soft">of gen 4 x16, as its siblings</small>'),
        ([X8], '<span class="chip path">gen 4 x8</span><br><small class="soft">expected gen 4 x16</small>'),
    ],
)
def test_the_page_marks_only_what_may_be_broken(cards: list[Card], cell: str) -> None:
    fed = found(desk(*cards))
    assert fed.latest is not None
    assert cell in gpus_section(fed.latest)


X4 = Card(4, slot=(4, 4))
PAIR = [Card(), Card()]
GEN5 = Card(card=(5, 16))
"""A card of generation 5 in a slot of generation 4."""
NARROW = Card(8, "RTX 4060", card=(4, 8))
"""A card of eight lanes in a slot of sixteen."""


@pytest.mark.parametrize(
    ("cards", "below", "says"),
    [
        pytest.param([Card(), X4], {"1"}, "PCIe 4 x4 (7.9 GB/s), that of GPU 0 PCIe 4 x16 (31.5 GB/s)", id="two"),
        pytest.param(PAIR, set(), "", id="two alike"),
        pytest.param([X4, X4], set(), "", id="two alike and slow"),
        pytest.param([*PAIR, X4], {"2"}, "that of GPU 0-1 PCIe 4 x16", id="one of three"),
        pytest.param([X4, X4, Card()], set(), "", id="most are slow"),
        pytest.param([replace(GEN5, lanes=4, slot=(5, 4)), GEN5], {"0"}, "PCIe 5 x4 (15.8 GB/s)", id="newer, slower"),
        pytest.param([replace(GEN5, lanes=8, slot=(5, 8)), GEN5], set(), "", id="newer, and as fast"),
        pytest.param([replace(X4, name="RTX 3080"), Card()], {"0"}, "that of GPU 1 PCIe 4 x16", id="two models"),
        pytest.param([NARROW, Card()], set(), "", id="a card of eight lanes has them"),
        pytest.param([NARROW, Card(8, slot=(4, 8))], {"1"}, "that of GPU 0 PCIe 4 x16", id="slot is wider"),
        pytest.param([replace(GEN5, name="RTX 5090"), Card()], set(), "", id="no slot of the host is faster"),
    ],
)
def test_a_slot_that_gives_less_than_another_would_is_named(cards: list[Card], below: set[str], says: str) -> None:
    fed = found(desk(*cards))
    assert {gpu for gpu, codes in codes_of(fed).items() if "pcie.below_peers" in codes} == below
    texts = [each.measured for each in fed.report.findings if each.check.code == "pcie.below_peers"]
    assert all(says in text for text in texts)
    held = [gpu.gpu for gpu in fed.report.gpus if "its slot gives" in gpu.bottleneck.because]
    assert set(held) == below


def test_what_the_job_moves_stands_beside_what_the_slot_gives() -> None:
    fed = found(desk(Card(moves=(6.1e9, 1.2e9)), replace(X4, moves=(6.4e9, 5.9e9)), p2p="chipset_not_supported"))
    assert fed.finding("pcie.below_peers").measured.endswith("31.5 GB/s); it receives 6.4 and sends 5.9 GB/s")
    assert fed.finding("p2p.through_host").measured == (
        "GPU 0-1 exchange data through host memory (chipset_not_supported); the slowest link on that way is GPU 1's, "
        "PCIe 4 x4 (7.9 GB/s), which receives 6.4 and sends 5.9 GB/s"
    )
    equal = found(desk(*PAIR, p2p="gpu_not_supported")).finding("p2p.through_host").measured
    assert equal.endswith("(gpu_not_supported); each over PCIe 4 x16 (31.5 GB/s)")


@pytest.mark.parametrize(
    ("cards", "p2p", "expected", "codes"),
    [
        pytest.param(PAIR, "chipset_not_supported", None, {"p2p.through_host"}, id="busy"),
        pytest.param([Card(), Card(name="RTX 3080")], "chipset_not_supported", None, {"p2p.through_host"}, id="models"),
        pytest.param(PAIR, "ok", None, set(), id="with access"),
        pytest.param(PAIR, "unknown", None, set(), id="unknown"),
        pytest.param([Card(busy=0.7)] * 2, "gpu_not_supported", None, {"p2p.through_host"}, id="just busy"),
        pytest.param([Card(busy=0.69), Card()], "gpu_not_supported", None, set(), id="one is not busy"),
        pytest.param([Card(), Card(user="bob")], "gpu_not_supported", None, set(), id="of two users"),
        pytest.param(PAIR, "chipset_not_supported", 0, set(), id="declared to have none"),
        pytest.param(PAIR, "chipset_not_supported", 1, {"p2p.unavailable"}, id="declared to have it"),
    ],
)
def test_busy_gpus_without_direct_access_are_named(
    cards: list[Card], p2p: str, expected: int | None, codes: set[str]
) -> None:
    fed = found(desk(*cards, p2p=p2p, p2p_expected=expected))
    assert {code for code in fed.codes() if code.startswith("p2p.")} == codes
