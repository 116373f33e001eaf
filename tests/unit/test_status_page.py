from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from tests.rig import rig

from gpu_triage import catalogue
from gpu_triage.config import Config
from gpu_triage.diagnosis.evidence import Evidence, Track
from gpu_triage.diagnosis.ladder import LADDER
from gpu_triage.diagnosis.report import report_of
from gpu_triage.diagnosis.standing import Standing, standing_of
from gpu_triage.diagnosis.view import view_of
from gpu_triage.sampler.recent import RecentOutcomes
from gpu_triage.simulator import load_scenario
from gpu_triage.web.page.collectors import duration
from gpu_triage.web.page.document import PageFacts, document
from gpu_triage.web.page.style import ICONS, SCRIPT, STYLE, content_security_policy
from gpu_triage.web.page.tones import OF_CLASS

if TYPE_CHECKING:
    from gpu_triage.catalogue import MetricSpec

WALL = 1_800_000_000.0
FACTS = PageFacts("1.2.3", None, "/metrics", None, None)
EVIL = """<script>alert(1)</script>'"&\u202e\u2066\x1b[31m\n</td>"""
HARMLESS = r"&lt;script&gt;alert(1)&lt;/script&gt;&#x27;&quot;&amp;\u202e\u2066\x1b[31m\n&lt;/td&gt;"
GPU = ("0", "GPU-1")


def seen(*series: tuple[MetricSpec, float, tuple[str, ...]]) -> Evidence:
    """Evidence of series that did not change for half a minute."""
    tracks: dict[MetricSpec, tuple[Track, ...]] = {}
    for spec, value, labels in series:
        named = dict(zip(spec.labels, labels, strict=True))
        track = Track(named, value, value, value, value, value, increase=0.0, seconds=30.0)
        tracks[spec] = (*tracks.get(spec, ()), track)
    return Evidence(tracks, 30.0, WALL)


def page_of(evidence: Evidence, facts: PageFacts = FACTS, blocked: str | None = None, host: str = "gpu-7") -> str:
    return document(Standing(report_of(evidence, host, blocked), view_of(evidence)), facts).decode()


def up(gpu: tuple[str, str] = GPU, *, answers: bool = True) -> tuple[MetricSpec, float, tuple[str, ...]]:
    return (catalogue.UP, float(answers), gpu)


def process(**named: str) -> tuple[MetricSpec, float, tuple[str, ...]]:
    labels = dict.fromkeys(catalogue.PROCESS_INFO.labels, "") | {"gpu": "0", "uuid": "GPU-1", "pid": "7"} | named
    return (catalogue.PROCESS_INFO, 1.0, tuple(labels.values()))


@pytest.mark.parametrize(
    "series",
    [
        (catalogue.INFO, 1.0, (*GPU, EVIL, "0000:01:00.0", "", "", "", "", "")),
        (catalogue.INFO, 1.0, (*GPU, "A10", EVIL, "", "", "", "", "")),
        (catalogue.DRIVER_INFO, 1.0, (EVIL, "", "")),
        (catalogue.ERROR_INFO, 1.0, (*GPU, EVIL)),
        (catalogue.NIC_TOPOLOGY_INFO, 1.0, (*GPU, EVIL, "pix")),
        (catalogue.P2P_STATUS, 1.0, (*GPU, "1", "GPU-2", "read", EVIL)),
        (catalogue.EXPORTER_COLLECTOR_INTERVAL, 5.0, (EVIL,)),
        process(process=EVIL),
        process(workload_pod=EVIL, workload_namespace="research"),
        process(slurm_job_id=EVIL),
    ],
    ids=lambda series: series[0].name,
)
def test_what_others_named_is_text_that_can_neither_be_markup_nor_hide(
    series: tuple[MetricSpec, float, tuple[str, ...]],
) -> None:
    others = (up(answers=series[0] is not catalogue.ERROR_INFO), up(("1", "GPU-2")))
    counted = (catalogue.PROCESSES, 1.0, (*GPU, "compute"))
    path = (catalogue.TOPOLOGY_INFO, 1.0, (*GPU, "1", "GPU-2", "sys"))
    page = page_of(seen(*others, counted, path, series))
    assert HARMLESS in page
    assert page.count("<script>") == 1
    assert not {"\u202e", "\u2066", "\x1b"} & set(page)


def test_the_hosts_name_the_reasons_and_the_path_are_escaped_too() -> None:
    facts = PageFacts("1", EVIL, '/"><script>', EVIL, None)
    page = page_of(seen(up(), (catalogue.EXPORTER_SIMULATED, 1.0, ())), facts, blocked=EVIL, host=EVIL)
    assert page.count(HARMLESS) >= 4
    assert page.count("<script>") == 1


def test_only_simulated_hosts_are_said_to_be() -> None:
    assert "imulated" not in page_of(seen(up())).partition("</style>")[2]
    page = page_of(seen(up(), (catalogue.EXPORTER_SIMULATED, 1.0, ())), PageFacts("1", "dual-a10", "/m", None, None))
    assert "Simulated data." in page
    assert "<bdi>dual-a10</bdi>" in page
    assert "(simulated)</title>" in page


def test_everything_the_page_loads_is_in_it_and_allowed_by_hash() -> None:
    page = page_of(seen(up()))
    assert re.findall(r"<style>(.*?)</style>", page, re.DOTALL) == [STYLE]
    assert re.findall(r"<script>(.*?)</script>", page, re.DOTALL) == [SCRIPT]
    assert not re.findall(r'\b(?:style|on\w+)="', page)
    policy = content_security_policy().decode()
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy


def test_every_class_has_a_colour() -> None:
    assert set(OF_CLASS) == {name for name, _ in LADDER} | {"hung", "idle"}
    assert all(f".{tone} {{ --tone" in STYLE for tone in {*OF_CLASS.values(), *ICONS})


@pytest.mark.parametrize(
    ("interval", "success", "age", "state"),
    [(5.0, 1.0, 3.0, "ok"), (5.0, 0.0, 3.0, "failing"), (5.0, 1.0, 46.0, "stale"), (60.0, 1.0, 46.0, "ok")],
)
def test_collectors_are_told_apart(interval: float, success: float, age: float, state: str) -> None:
    evidence = seen(
        (catalogue.EXPORTER_COLLECTOR_INTERVAL, interval, ("memory",)),
        (catalogue.EXPORTER_COLLECTOR_SUCCESS, success, ("memory",)),
        (catalogue.EXPORTER_COLLECTOR_LAST_SUCCESS, WALL - age, ("memory",)),
        (catalogue.EXPORTER_ERRORS, 3.0, ("memory", "timeout")),
    )
    page = page_of(evidence)
    assert f'data-collector="memory" data-state="{state}"' in page
    assert f"{age:.0f} s ago" in page
    assert "timeout 3" in page


def test_a_collector_that_has_not_finished_a_round_waits() -> None:
    assert 'data-state="waiting"' in page_of(seen((catalogue.EXPORTER_COLLECTOR_INTERVAL, 5.0, ("memory",))))


def test_a_gpu_that_does_not_answer_shows_no_numbers_and_why() -> None:
    page = page_of(seen(up(answers=False), (catalogue.ERROR_INFO, 1.0, (*GPU, "stalled"))))
    assert "does not answer (stalled)" in page
    assert 'data-bottleneck="sick" data-verdict="drain" data-findings="gpu.lost"' in page


def test_released_gpus_are_not_sick() -> None:
    released = (catalogue.EXPORTER_GPUS_RELEASED, 1.0, ())
    page = page_of(seen(up(answers=False), released), blocked="released: let go")
    assert 'data-state="released"' in page
    assert 'data-bottleneck="idle" data-verdict="keep" data-findings=""' in page
    assert 'data-code="gpu.released"' in page
    assert 'data-code="gpu.lost"' not in page


def test_before_the_first_publication_the_page_waits() -> None:
    page = document(standing_of((), "gpu-7", WALL), PageFacts("1", None, "/metrics", None, "the driver")).decode()
    assert 'data-state="starting"' in page
    assert "Waiting for the driver." in page
    assert "No GPU is known." in page


def test_durations_are_said_in_the_unit_that_fits() -> None:
    assert [duration(seconds) for seconds in (0.4, 119, 120, 7199, 7200)] == ["0 s", "119 s", "2 min", "120 min", "2 h"]


def test_recent_outcomes_reach_back_half_a_minute_and_stay_few() -> None:
    with rig(load_scenario("idle-downshift")) as running:
        recent = RecentOutcomes(running.sampler.store, running.config)
        assert recent.snapshots() == ()
        for _ in range(100):
            running.run(1.0)
            recent.note()
            snapshots = recent.snapshots()
            reach = snapshots[-1].at.monotonic - snapshots[0].at.monotonic
            assert reach <= recent.window_seconds + 5.0
            assert len(snapshots) <= 9
        assert reach >= recent.window_seconds == 30.0


def test_what_was_before_a_long_sleep_is_forgotten() -> None:
    with rig(load_scenario("idle-downshift")) as running:
        recent = RecentOutcomes(running.sampler.store, running.config)
        running.run(1.0)
        recent.note()
        running.clock.advance(3600.0)
        running.run(1.0)
        recent.note()
        assert len({snapshot.at for snapshot in recent.snapshots()}) == 1


def test_a_slow_medium_tier_widens_the_window_so_that_counters_have_rates() -> None:
    config = Config(sample_medium_seconds=20.0)
    with rig(load_scenario("idle-downshift"), config) as running:
        assert RecentOutcomes(running.sampler.store, config).window_seconds == 120.0


def test_snapshots_leave_single_processes_out_but_for_the_last() -> None:
    with rig(load_scenario("dual-a10")) as running:
        recent = RecentOutcomes(running.sampler.store, running.config)
        for _ in range(3):
            running.run(6.0)
            recent.note()
        running.run(1.0)
        recent.note()
        counts = [
            sum("pid" in s.spec.labels for name in each.collectors for o in each.of(name) for s in o.samples)
            for each in recent.snapshots()
        ]
    assert counts[-1] > 0
    assert set(counts[:-1]) == {0}
