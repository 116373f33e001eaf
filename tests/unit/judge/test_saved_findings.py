"""The file of findings: what is written is read, and nothing that is wrong in it is believed."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_triage.documents.saved_state import MOST_BYTES
from gpu_triage.errors import DocumentError
from gpu_triage.judge.evidence.past import MOST_LINKS, WidestLink, WidestLinks
from gpu_triage.judge.evidence.thresholds import WINDOW_PARTS
from gpu_triage.judge.findings.finding import Finding, State
from gpu_triage.judge.findings.saved import SAVE_SECONDS, SAVED_FINDINGS, KeptFindings, SavedLives
from gpu_triage.judge.findings.states import MOST_FINDINGS, EndReason, FindingStates, Life, Part
from gpu_triage.judge.findings.table import BY_CODE

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


JUNK = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=8,
)


@given(key=st.sampled_from(sorted(json.loads(SAVED_FINDINGS.encode(SAVED))["findings"][0])), value=JUNK)
def test_with_any_junk_in_an_entry_the_others_are_read_and_the_times_agree(key: str, value: object) -> None:
    memory, _ = decoded(entry(**{key: value}))
    assert memory.lives[-2:] == (OVER, SLOT)
    for life in memory.lives:
        assert 0 <= life.began_at <= life.seen_at
        assert life.lasted_seconds <= life.seen_at - life.began_at + 1


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
    saved.widest.see([LINK, LINK._replace(lanes=8)])
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
    memory, (line,) = decoded(document(links=[LINK._asdict() | changes, LINK._asdict()]))
    assert memory == SAVED
    assert line.startswith(f"findings.json: links[0].{told}")


def test_of_too_many_links_the_first_are_forgotten() -> None:
    widest = WidestLinks()
    widest.see(LINK._replace(gpu=f"GPU-{number}") for number in range(MOST_LINKS + 2))
    assert [len(widest.all), widest.all[0].gpu] == [MOST_LINKS, "GPU-2"]


def test_what_is_not_on_disk_is_named() -> None:
    saved = Saved()
    saved.judge(5.0, HOT, OVER.finding)
    assert saved.kept.not_in(SavedLives()) == ["thermal.hw of GPU 3", "gpu.missing of host"]
    pending = saved.kept.memory
    assert saved.kept.not_in(pending) == []
    saved.judge(5.0 + HOT.check.wait_seconds, HOT)
    assert saved.kept.not_in(pending) == ["thermal.hw of GPU 3"]
