"""The file of findings: what is written is read, and nothing that is wrong in it is believed."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any, NamedTuple

import pytest
from tests.evidence import Readings, evidence_of, steady

from gpu_triage.documents.files import MOST_BYTES
from gpu_triage.errors import DocumentError
from gpu_triage.judge.conditions.clocks import judge_clocks
from gpu_triage.judge.conditions.health import judge_health
from gpu_triage.judge.conditions.host import judge_host
from gpu_triage.judge.conditions.links import judge_links
from gpu_triage.judge.evidence.host import HostEvidence
from gpu_triage.judge.evidence.past import MOST_LINKS, WidestLink, WidestLinks
from gpu_triage.judge.evidence.thresholds import WINDOW_PARTS
from gpu_triage.judge.findings.finding import Finding, KnownGpus, State, of_host
from gpu_triage.judge.findings.saved import SAVE_SECONDS, SAVED_FINDINGS, KeptFindings, SavedLives
from gpu_triage.judge.findings.states import MOST_FINDINGS, EndReason, FindingStates, Life, Part
from gpu_triage.judge.findings.table import BY_CODE
from gpu_triage.judge.host_judge import HostJudge, published
from gpu_triage.judge.report.report import JudgedHost
from gpu_triage.read.exporter.judgment import GPU_FINDING
from gpu_triage.read.exporter.judgment import GPU_HOST_FINDING_SINCE_TIMESTAMP_SECONDS as SINCE
from gpu_triage.read.gpu import pcie, power
from gpu_triage.read.gpu.presence import GPU_DEVICES, GPU_UP
from gpu_triage.read.host import infiniband, kernel_log
from gpu_triage.read.xid.xid_metrics import GPU_NVSWITCH_SXID_LAST_TIMESTAMP_SECONDS

HOT = Finding(BY_CODE["thermal.hw"], "throttled 50 % at 91 °C", "3", "GPU-a", value=0.5)
PRESENT = Life(HOT, State.CONFIRMED, 1000.0, 700.0, 2000.0, 1900.0, None, 20.0, 30.0)
OVER = Life(
    Finding(BY_CODE["gpu.missing"], "7 of 8"), State.ENDED, 1.5, 90.25, 1200.0, 300.0, holds=False, end=EndReason.GONE
)
PARTS = (Part(10.0, 60.0, 20.0), Part(70.0, 30.0, 0.0))
GONE = Finding(BY_CODE["gpu.missing"], "gone", pci_bus_id="0000:65:00.0")
SLOT = Life(GONE, State.PENDING, 10.0, 20.0, 100.0, 40.0, holds=False, gap_seconds=25.5, lost_seconds=8.0, parts=PARTS)
LINK = WidestLink("GPU-a", "0000:65:00.0", 16)
SAVED = SavedLives("boot", (PRESENT, OVER, SLOT), (LINK,))


def document(**changes: Any) -> bytes:
    return json.dumps(json.loads(SAVED_FINDINGS.encode(SAVED)) | changes).encode()


def entry(**changes: Any) -> bytes:
    """The file with its first entry changed."""
    first, *others = json.loads(SAVED_FINDINGS.encode(SAVED))["findings"]
    return document(findings=[first | changes, *others])


def decoded(content: bytes) -> tuple[SavedLives, tuple[str, ...]]:
    found = SAVED_FINDINGS.decode(content, "findings.json", 0.0)
    return found.memory, found.refused


def test_what_is_written_is_read() -> None:
    assert decoded(SAVED_FINDINGS.encode(SAVED)) == (SAVED, ())
    assert decoded(SAVED_FINDINGS.encode(SavedLives())) == (SavedLives(), ())


def test_the_most_findings_with_the_longest_texts_fit() -> None:
    finding = replace(HOT, measured="\U0001f525" * 5000, gpu="12345", uuid="G" * 80, value=-1.2345678901234567e-300)
    seconds = 123456789.12345678
    parts = (Part(seconds, 3 * 86_399.9, 3 * 86_399.9),) * (WINDOW_PARTS + 2)
    times = (seconds, seconds, seconds, seconds, None, seconds, seconds, EndReason.UNSEEN, seconds, seconds)
    life = Life(finding, State.ENDED, *times, parts)
    assert len(SAVED_FINDINGS.encode(SavedLives("b" * 36, (life,) * MOST_FINDINGS))) < MOST_BYTES


@pytest.mark.parametrize("measured", ["x" * 5000, "\x1b[31mred\n", "\udcff", '"\\'])
def test_whatever_a_finding_says_can_be_saved(measured: str) -> None:
    life = replace(PRESENT, finding=replace(HOT, measured=measured, value=float("nan")))
    memory, refused = decoded(SAVED_FINDINGS.encode(SavedLives("boot", (life,))))
    assert refused == ()
    (read,) = memory.lives
    assert read.finding.measured.isprintable()
    assert read.finding.value is None
    assert replace(read, finding=HOT) == PRESENT


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"state": 3}, "[0].state: is 3"),
        ({"held_at": 2001.0}, "[0].held_at: is not from began_at to seen_at"),
        ({"held_at": 999.0}, "[0].held_at: is not from began_at to seen_at"),
        ({"state": True}, "[0].state: is True"),
        ({"state": 0}, "[0].state: does not agree with end"),
        ({"end": "gone"}, "[0].state: does not agree with end"),
        ({"end": "bored"}, "[0].end: is 'bored'"),
        ({"began_at": 2000.5}, "[0].seen_at: is before began_at"),
        ({"began_at": -1.0}, "[0].began_at: is -1.0"),
        ({"began_at": float("nan")}, "[0].began_at: is nan"),
        ({"lasted_seconds": 1001.5}, "[0].lasted_seconds: is longer than from began_at to seen_at"),
        ({"quiet_seconds": 1e9}, "[0].quiet_seconds: is longer than from began_at to seen_at"),
        ({"unseen_seconds": 86_500.0}, "[0].unseen_seconds: is longer than from began_at to seen_at"),
        ({"value": float("inf")}, "[0].value: is inf"),
        ({"parts": [1000.0, 5.0]}, "[0].parts: are not parts"),
        ({"parts": [1000.0, 5.0, 6.0]}, "[0].parts: are not parts"),
        ({"parts": [900.0, 5.0, 5.0]}, "[0].parts: are not parts"),
        ({"parts": [2002.0, 5.0, 5.0]}, "[0].parts: are not parts"),
        ({"parts": [1000.0, 5.0, 5.0] * 15}, "[0].parts: "),
        ({"gpu": "<b>"}, "[0].gpu: is '<b>'"),
        ({"uuid": "x" * 81}, "[0].uuid: is"),
        ({"measured": "x" * 201}, "[0].measured: "),
    ],
)
def test_a_wrong_entry_costs_that_entry_and_is_named(changes: dict[str, Any], told: str) -> None:
    memory, (line,) = decoded(entry(**changes))
    assert memory == SavedLives("boot", (OVER, SLOT), (LINK,))
    assert line.startswith(f"findings.json: findings{told}"), line


def test_a_finding_that_this_release_does_not_have_is_left_out() -> None:
    assert decoded(entry(code="thermal.of_another_release")) == (SavedLives("boot", (OVER, SLOT), (LINK,)), ())


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"[]", "malformed"),
        (document(findings=None), "malformed"),
        (document(links=None), "malformed"),
        (document(boot="<script>"), "malformed"),
        (document(boot=7), "malformed"),
        (document(unknown=1), "malformed"),
        (document(version=2), "unknown_version"),
        (document(version=2, anything=[{}]), "unknown_version"),
    ],
)
def test_a_wrong_file_is_not_believed(content: bytes, reason: str) -> None:
    with pytest.raises(DocumentError) as raised:
        decoded(content)
    assert raised.value.reason == reason


def test_of_too_many_entries_the_last_are_used() -> None:
    listed = json.loads(SAVED_FINDINGS.encode(SAVED))["findings"]
    memory, refused = decoded(document(findings=[listed[0]] * MOST_FINDINGS + [listed[1]]))
    assert len(memory.lives) == MOST_FINDINGS
    assert memory.lives[-1] == OVER
    assert len(refused) == 1


class Saved:
    """The states of findings with what is kept of them."""

    def __init__(self) -> None:
        self.states = FindingStates()
        self.widest = WidestLinks()
        self.kept = KeptFindings(self.states, self.widest)

    def judge(self, now: float, *found: Finding) -> bool:
        """Judge; says whether there is something to save, and saves it."""
        self.states.judge(found, lambda _finding: True, now)
        self.kept.note(now)
        changed, self.kept.changed = self.kept.changed, False
        return changed


def test_it_is_saved_at_each_change_of_a_state_and_once_a_minute() -> None:
    saved = Saved()
    wait, hold = HOT.check.wait_seconds, HOT.check.hold_seconds
    assert saved.judge(0.0) is False
    assert saved.judge(5.0, HOT) is True
    assert saved.judge(5.0 + SAVE_SECONDS - 1, HOT) is False
    assert saved.judge(5.0 + SAVE_SECONDS, HOT) is True
    assert saved.judge(5.0 + wait, HOT) is True
    assert saved.judge(10.0 + wait) is False
    assert saved.judge(10.0 + wait + hold) is True, "it has ended"
    assert saved.judge(10.0 + wait + hold + 1200) is True, "it is forgotten"
    assert saved.judge(10.0 + wait + hold + 9999) is False


def test_before_the_end_it_is_saved_once_more_if_there_is_anything() -> None:
    saved = Saved()
    saved.kept.before_last_save()
    assert saved.kept.changed is False
    saved.judge(5.0, HOT)
    saved.kept.before_last_save()
    assert saved.kept.changed is True


@pytest.mark.parametrize(
    ("saved_in", "boot", "restored"), [("a", "a", True), ("a", "b", False), ("", "", False), ("a", "", False)]
)
def test_it_is_restored_in_the_same_boot_only(saved_in: str, boot: str, restored: bool) -> None:  # noqa: FBT001
    saved = Saved()
    saved.kept.add(SavedLives(saved_in, (PRESENT,)))
    saved.kept.see_boot(boot)
    assert saved.states.lives == ((PRESENT,) if restored else ())
    saved.kept.see_boot("a")
    assert saved.kept.memory == SavedLives("a", saved.states.lives)
    assert bool(saved.states.lives) is restored


def test_the_most_lanes_of_a_link_outlast_a_restart_in_the_same_boot() -> None:
    saved = Saved()
    saved.widest.see([LINK, replace(LINK, lanes=8)])
    assert saved.judge(0.0) is True
    assert saved.judge(5.0) is False
    assert saved.kept.memory.links == (LINK,)
    for boot, lanes in (("b", 0), ("a", 16)):
        again = Saved()
        again.kept.add(SavedLives("a", (), (LINK,)))
        again.kept.see_boot(boot)
        assert again.widest.of("GPU-a", "0000:65:00.0") == lanes
        assert again.widest.of("GPU-a", "0000:41:00.0") == 0, "another slot"


@pytest.mark.parametrize(("changes", "told"), [({"lanes": 7}, "lanes: is 7"), ({"gpu": 3}, "gpu: is 3")])
def test_a_wrong_link_costs_that_link(changes: dict[str, Any], told: str) -> None:
    memory, (line,) = decoded(document(links=[asdict(LINK) | changes, asdict(LINK)]))
    assert memory == SAVED
    assert line.startswith(f"findings.json: links[0].{told}")


def test_of_too_many_links_the_first_are_forgotten() -> None:
    widest = WidestLinks()
    widest.see(replace(LINK, gpu=f"GPU-{number}") for number in range(MOST_LINKS + 2))
    assert [len(widest.all), widest.all[0].gpu] == [MOST_LINKS, "GPU-2"]


def test_what_is_not_on_disk_is_named() -> None:
    saved = Saved()
    saved.judge(5.0, HOT, OVER.finding)
    assert saved.kept.not_in(SavedLives()) == ["thermal.hw of GPU 3", "gpu.missing of host"]
    pending = saved.kept.memory
    assert saved.kept.not_in(pending) == []
    saved.judge(5.0 + HOT.check.wait_seconds, HOT)
    assert saved.kept.not_in(pending) == ["thermal.hw of GPU 3"]


class Gpu(NamedTuple):
    """The GPU as it is known; without an index, the driver does not show it."""

    gpu: str = ""
    uuid: str = ""
    pci_bus_id: str = ""


def made(code: str, gpu: Gpu) -> Finding:
    return Finding(BY_CODE[code], "x", *gpu)


X = Gpu("1", "GPU-x", "0000:b3:00.0")
Y = Gpu("0", "GPU-y", "0000:65:00.0")
UNNAMED = X._replace(uuid="")
LATCHED, WAITS = made("gpu.lost", X), made("thermal.hw", X)
AT_SLOT = Finding(BY_CODE["gpu.lost"], "x", pci_bus_id=X.pci_bus_id)


def ends(states: FindingStates) -> list[tuple[str, EndReason]]:
    return [(life.finding.identity, life.end) for life in states.lives if life.end is not None]


def judged(states: FindingStates, at: float, gpus: Sequence[Gpu], *found: Finding) -> list[Finding]:
    """The pending and confirmed findings on a host with these GPUs."""
    present, _ = states.judge(found, lambda _finding: True, at, gpus=KnownGpus(gpus))
    return [life.finding for life in present]


@pytest.mark.parametrize("before", [AT_SLOT, replace(LATCHED, uuid=""), replace(LATCHED, uuid="", pci_bus_id="")])
def test_a_finding_goes_on_under_the_uuid_and_what_was_published_before_ends(before: Finding) -> None:
    states = FindingStates()
    judged(states, 0.0, [], before)
    assert judged(states, 5.0, [Y, X]) == [before.about(X)]
    assert ends(states) == [(before.identity, EndReason.MOVED)]
    assert judged(states, 10.0, [Y, X], LATCHED) == [LATCHED]
    (life,) = (life for life in states.lives if life.state is State.CONFIRMED)
    assert (life.began_at, life.holds) == (0.0, True)


def test_a_pending_finding_moves_without_a_trace_and_its_wait_goes_on() -> None:
    states = FindingStates()
    judged(states, 0.0, [UNNAMED], replace(WAITS, uuid=""))
    judged(states, 60.0, [X], WAITS)
    (life,) = states.lives
    assert (life.finding, life.lasted_seconds) == (WAITS, 60.0)


def test_what_is_still_said_of_a_slot_stays_with_the_slot() -> None:
    """An Xid of before the kernel found the present card may be of another card."""
    states = FindingStates()
    judged(states, 0.0, [], AT_SLOT)
    assert judged(states, 5.0, [X], AT_SLOT) == [AT_SLOT]
    assert ends(states) == []


def test_a_board_that_was_known_before_is_the_one_at_its_address() -> None:
    states = FindingStates()
    judged(states, 0.0, [X], LATCHED)
    assert judged(states, 5.0, [UNNAMED], replace(LATCHED, uuid="")) == [LATCHED]
    assert judged(states, 10.0, [], AT_SLOT) == [replace(LATCHED, gpu=None)]


def test_a_finding_about_a_board_ends_when_another_one_is_in_its_slot() -> None:
    states = FindingStates()
    new = X._replace(uuid="GPU-new")
    judged(states, 0.0, [X], LATCHED, WAITS)
    assert judged(states, 5.0, [new]) == []
    assert ends(states) == [(X.uuid, EndReason.REPLACED)]
    fault = replace(LATCHED, uuid=new.uuid)
    assert judged(states, 10.0, [new], fault) == [fault]


def test_a_board_that_has_moved_to_another_slot_keeps_its_findings() -> None:
    states = FindingStates()
    judged(states, 0.0, [X, Y], LATCHED)
    moved = X._replace(pci_bus_id="0000:17:00.0")
    assert judged(states, 5.0, [moved, Y._replace(pci_bus_id=X.pci_bus_id)]) == [LATCHED.about(moved)]


def test_the_index_of_a_gpu_that_is_gone_is_not_taken_for_the_gpu() -> None:
    """The driver numbers the others anew."""
    states, lost = FindingStates(), replace(LATCHED, gpu="0", uuid="", pci_bus_id=Y.pci_bus_id)
    other = made("recovery.action", X)
    judged(states, 0.0, [Y._replace(uuid=""), X], lost, other)
    assert judged(states, 5.0, [X._replace(gpu="0")]) == [lost, replace(other, gpu="0")]
    assert ends(states) == []


GPU = ("0", "GPU-0")
UP: Readings = {(GPU_UP, GPU): 1.0}


def said(kind: str, *subjects: str) -> Readings:
    return {(kernel_log.GPU_HOST_KERNEL_EVENT_LAST_TIMESTAMP_SECONDS, (kind, subject)): 0.0 for subject in subjects}


TASK, SILENT = said("hung_task", "python3 (42)", "dd (7)"), said("nfs_not_responding", "nas01")
TASKS = "dd (7), python3 (42)"
KILLED: Readings = {(kernel_log.GPU_HOST_OOM_KILL_TIMESTAMP_SECONDS, ("42", "<!here>", "", "", "4711")): 0.0}
SLOW_PORT: Readings = {(infiniband.GPU_HOST_INFINIBAND_RATE_EXPECTED_RATIO, ("mlx5_3", "1")): 0.5}
SXID: Readings = {(GPU_NVSWITCH_SXID_LAST_TIMESTAMP_SECONDS, ("0000:c1:00.0", "20034", "true")): 0.0}
NARROW: Readings = {(pcie.GPU_PCIE_LINK_WIDTH, GPU): 4.0, (pcie.GPU_PCIE_LINK_EXPECTED_WIDTH, GPU): 16.0}
HOT_READINGS: Readings = {
    (power.GPU_TEMPERATURE_CELSIUS, (*GPU, "gpu")): 89.0,
    (power.GPU_TEMPERATURE_THRESHOLD_CELSIUS, (*GPU, "slowdown")): 90.0,
}
SEVEN: Readings = {(GPU_DEVICES, ("nvml",)): 7.0, (GPU_DEVICES, ("expected",)): 8.0}


@pytest.mark.parametrize(
    ("judge", "readings", "code", "detail"),
    [
        (judge_host, said("filesystem_read_only", "md0"), "storage.read_only", "md0"),
        (judge_host, SILENT, "storage.not_responding", "nas01"),
        (judge_host, TASK, "host.hung_task", TASKS),
        (judge_host, {**TASK, **SILENT}, "host.hung_task", f"{TASKS}, and NFS server nas01 does not respond"),
        (judge_host, KILLED, "memory.oom_killed_other", "__here_ (42) of Slurm job 4711"),
        (judge_host, SLOW_PORT, "network.port_slow", "mlx5_3 port 1"),
        (judge_links, SXID, "nvswitch.sxid_fatal", "SXid 20034 of switch 0000:c1:00.0"),
        (judge_links, {**UP, **NARROW}, "pcie.width_from_boot", "x4 of x16"),
        (judge_clocks, {**UP, **HOT_READINGS}, "thermal.margin", "gpu at 89 °C, slowdown at 90 °C"),
        (lambda host: judge_health(host, {}), SEVEN, "gpu.missing", "1 of 8 missing"),
    ],
)
def test_a_detail_names_the_part(
    judge: Callable[[HostEvidence], Iterator[Finding]], readings: Readings, code: str, detail: str
) -> None:
    assert [each.detail for each in judge(steady(readings)) if each.check.code == code] == [detail]


def test_a_detail_is_bounded() -> None:
    assert len(of_host("storage.nvme", "", detail="n" * 1000).detail) == 100


@pytest.mark.parametrize(
    ("now", "kept"),
    [
        ("91 °C (limit 90 °C), SM clock about 1200 of 1980 MHz", True),
        ("91 °C (limit 90 °C), SM clock about 1200 of 1755 MHz", False),
        ("md1", False),
    ],
)
def test_measurements_alone_change_no_detail(now: str, kept: bool) -> None:  # noqa: FBT001 - a table
    before = "87 °C (limit 90 °C), SM clock about 1095 of 1980 MHz"
    assert of_host("storage.nvme", "", detail=now).with_earlier(before).detail == (before if kept else now)


def test_a_detail_is_published_once_confirmed_and_then_kept() -> None:
    """Until then each measurement would be a series; what needs no wait has it at once."""
    judge, details = HostJudge(JudgedHost("a", continuous=True)), []
    for number, heat in enumerate((87, 88)):
        host = steady({})
        host = replace(host, at=replace(host.at, monotonic=host.at.monotonic + 5.0 * number))
        more = [of_host("storage.nvme", "", 1, f"{heat} °C"), of_host("network.port_slow", "", 1, f"{heat} °C")]
        begun = [each for each in published(judge.judge(host, more=more).report) if each.spec is SINCE]
        details += [{each.labels[0]: each.labels[-1] for each in begun}]
    assert details == [{"storage.nvme": "87 °C", "network.port_slow": ""}] * 2


def test_findings_about_gpus_known_by_uuid_alone_are_published_by_it() -> None:
    judge = HostJudge(JudgedHost("host", continuous=True))
    found = [Finding(BY_CODE["gpu.lost"], "lost", uuid=uuid) for uuid in ("GPU-a", "GPU-b")]
    samples = published(judge.judge(evidence_of((0.0, ())), more=found).report)
    assert [each.labels[:3] for each in samples if each.spec is GPU_FINDING] == [("", "GPU-a", ""), ("", "GPU-b", "")]
