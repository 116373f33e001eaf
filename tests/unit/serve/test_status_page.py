import re
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest
from tests.status_pages import FACTS, GPU, WALL, Series, body_of, headline, judged, page_of, read, seen, up
from tests.unit.judge.test_color_vision import luminance

from gpu_triage.judge.bottleneck.class_history import STRIP_SECONDS, ClassPeriod
from gpu_triage.judge.bottleneck.classes import Bottleneck
from gpu_triage.judge.evidence.wording import length_of_time
from gpu_triage.judge.findings.finding import Finding, State
from gpu_triage.judge.findings.table import BY_CODE
from gpu_triage.judge.findings.verdicts import CLASS_COLORS, COLORS, DESK, Verdict, verdict_on
from gpu_triage.judge.host_judge import HostJudge, Judgment
from gpu_triage.judge.report.report import GpuVerdict, JudgedHost
from gpu_triage.machine import Moment
from gpu_triage.read.exporter.exporter_health import (
    GPU_EXPORTER_COLLECTOR_INTERVAL_SECONDS,
    GPU_EXPORTER_COLLECTOR_LAST_SUCCESS_TIMESTAMP_SECONDS,
    GPU_EXPORTER_COLLECTOR_STALE_SECONDS,
    GPU_EXPORTER_COLLECTOR_SUCCESS,
    GPU_EXPORTER_ERRORS_TOTAL,
    GPU_EXPORTER_GPUS_RELEASED,
    GPU_EXPORTER_SIMULATED,
)
from gpu_triage.read.exporter.judgment import BOTTLENECK_CLASSES
from gpu_triage.read.gpu.device_memory import GPU_MEMORY_TOTAL_BYTES, GPU_MEMORY_USED_BYTES
from gpu_triage.read.gpu.ecc import GPU_ECC_VOLATILE_ERRORS_TOTAL
from gpu_triage.read.gpu.identity import GPU_INFO
from gpu_triage.read.gpu.modes import GPU_PERSISTENCE_MODE
from gpu_triage.read.gpu.power import GPU_POWER_LIMIT_WATTS, GPU_POWER_WATTS
from gpu_triage.read.gpu.presence import GPU_DEVICES, GPU_DRIVER_ERROR_INFO, GPU_DRIVER_INFO, GPU_ERROR_INFO
from gpu_triage.read.processes.allocation import GPU_ALLOCATED
from gpu_triage.read.processes.on_gpu import GPU_PROCESS_INFO, GPU_PROCESSES
from gpu_triage.serve.page.document import PageFacts
from gpu_triage.serve.page.markup import OF_SEVERITY, UNKNOWN, lasting, window
from gpu_triage.serve.page.sections import legend, overview_section, strip
from gpu_triage.serve.page.style import ICONS, POLICY, SCRIPT, STYLE

EVIL = """<script>alert(1)</script>'"&\u202e\u2066\x1b[31m\n</td>"""
HARMLESS = r"&lt;script&gt;alert(1)&lt;/script&gt;&#x27;&quot;&amp;\u202e\u2066\x1b[31m\n&lt;/td&gt;"
RELEASED = (GPU_EXPORTER_GPUS_RELEASED, 1.0, ())
MADE_UP = (GPU_EXPORTER_SIMULATED, 1.0, ())


def process(**named: str) -> Series:
    labels = dict.fromkeys(GPU_PROCESS_INFO.labels, "") | {"gpu": "0", "uuid": "GPU-1", "pid": "7"} | named
    return (GPU_PROCESS_INFO, 1.0, tuple(labels.values()))


@pytest.mark.parametrize(
    "series",
    [
        (GPU_INFO, 1.0, (*GPU, EVIL, "0000:01:00.0", "", "", "", "", "", "")),
        (GPU_INFO, 1.0, (*GPU, "A10", EVIL, "", "", "", "", "", "")),
        (GPU_DRIVER_INFO, 1.0, (EVIL, "", "")),
        (GPU_ERROR_INFO, 1.0, (*GPU, EVIL)),
        (GPU_EXPORTER_COLLECTOR_INTERVAL_SECONDS, 5.0, (EVIL,)),
        process(process=EVIL),
        process(workload_pod=EVIL, workload_namespace="research"),
        process(slurm_job_id=EVIL),
        (GPU_ALLOCATED, 1.0, (*GPU, "", EVIL, "research", "", "", "", "")),
        (GPU_ALLOCATED, 1.0, (*GPU, "", "", "", "", "42", EVIL, "")),
    ],
    ids=lambda series: series[0].name,
)
def test_what_others_named_is_text_that_can_neither_be_markup_nor_hide(series: Series) -> None:
    others = (up(answers=series[0] is not GPU_ERROR_INFO), up(("1", "GPU-2")))
    counted = (GPU_PROCESSES, 1.0, (*GPU, "compute"))
    page = page_of(judged(*others, counted, series))
    assert HARMLESS in page
    assert page.count("<script>") == 1
    assert not {"\u202e", "\u2066", "\x1b"} & set(page)


def test_host_reasons_paths_and_recordings_are_escaped_too() -> None:
    facts = PageFacts("1", EVIL, EVIL, '/"><script>', EVIL, None, judge_failed=False)
    blocked = judged(*read(), MADE_UP, error=EVIL)
    for page, least in ((page_of(blocked, facts), 4), (page_of(judged(recording=EVIL)), 1), (page_of(None, facts), 4)):
        assert page.count(HARMLESS) >= least
        assert page.count("<script>") == 1


def test_simulated_and_replayed_hosts_are_told_apart_from_real_ones() -> None:
    real = body_of(judged(*read()))
    assert "imulated" not in real
    assert "ecording" not in real
    simulated = page_of(judged(*read(), MADE_UP), replace(FACTS, scenario="dual-a10"))
    assert "Simulated data." in simulated
    assert "<bdi>dual-a10</bdi>" in simulated
    assert "(simulated)</title>" in simulated
    coming = page_of(judged(*read(), MADE_UP), replace(FACTS, scenario="dual-a10", scenario_progress="Next: <lost>."))
    assert "<bdi>dual-a10</bdi></strong>. <bdi>Next: &lt;lost&gt;.</bdi>" in coming
    replayed = body_of(judged(*read(), MADE_UP, recording="night.tar"))
    assert "<bdi>night.tar</bdi>" in replayed
    assert "imulated" not in replayed
    assert "(recording)</title>" in page_of(judged(*read(), MADE_UP, recording="night.tar"))


def test_everything_the_page_loads_is_in_it_and_allowed_by_hash() -> None:
    page = page_of(judged(*read()))
    assert re.findall(r"<style>(.*?)</style>", page, re.DOTALL) == [STYLE]
    assert re.findall(r"<script>(.*?)</script>", page, re.DOTALL) == [SCRIPT]
    assert not re.findall(r'\b(?:style|on\w+)="', page)
    policy = POLICY.decode()
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy


@pytest.mark.parametrize(
    ("success", "age", "stale", "state"),
    [
        (1.0, 3.0, (), "ok"),
        (0.0, 3.0, (), "failing"),
        (1.0, 46.0, ((GPU_EXPORTER_COLLECTOR_STALE_SECONDS, 46.0, ("memory",)),), "stale"),
    ],
)
def test_collectors_are_told_apart(success: float, age: float, stale: tuple[Series, ...], state: str) -> None:
    page = body_of(
        judged(
            *stale,
            (GPU_EXPORTER_COLLECTOR_INTERVAL_SECONDS, 5.0, ("memory",)),
            (GPU_EXPORTER_COLLECTOR_SUCCESS, success, ("memory",)),
            (GPU_EXPORTER_COLLECTOR_LAST_SUCCESS_TIMESTAMP_SECONDS, WALL - age, ("memory",)),
            (GPU_EXPORTER_ERRORS_TOTAL, 3.0, ("memory", "timeout")),
        )
    )
    assert f'data-collector="memory" data-state="{state}"' in page
    assert f"{age:.0f} s ago" in page
    assert "timeout 3" in page
    assert ("all collectors current" in page) == (state == "ok") == ("<details open>" not in page)


def test_a_collector_that_has_not_finished_a_round_waits() -> None:
    assert 'data-state="waiting"' in page_of(judged((GPU_EXPORTER_COLLECTOR_INTERVAL_SECONDS, 5.0, ("memory",))))


def summaries(latest: Judgment) -> dict[str, str]:
    """What the page shows by area."""
    return dict(re.findall(r'<dt data-area="(\w+)"[^>]*>.*?</dt><dd>(.*?)</dd>', body_of(latest)))


def test_an_area_shows_what_was_read_of_it_or_that_nothing_was() -> None:
    assert "1 of 1" in summaries(judged(*read(), up(("1", "GPU-2")), (GPU_PERSISTENCE_MODE, 1.0, GPU)))["settings"]
    assert summaries(judged(error="driver_not_loaded"))["pcie"] == UNKNOWN


@pytest.mark.parametrize(("watts", "width"), [(60.0, 75), (90.0, 100)])
def test_a_bar_is_filled_to_its_share_and_no_further(watts: float, width: int) -> None:
    page = body_of(judged(up(), (GPU_POWER_WATTS, watts, GPU), (GPU_POWER_LIMIT_WATTS, 80.0, GPU)))
    assert re.findall(r'of 80 W<svg class="bar"[^>]*><rect width="(\d+)"', page) == [str(width)]


def test_memory_is_shown_in_gibibytes() -> None:
    page = body_of(judged(up(), (GPU_MEMORY_USED_BYTES, 1.5 * 2**30, GPU), (GPU_MEMORY_TOTAL_BYTES, 2.0**31, GPU)))
    assert "1.5 of 2 GiB" in page


def test_a_gpu_that_does_not_answer_shows_no_numbers_and_why() -> None:
    page = page_of(judged(up(answers=False), (GPU_ERROR_INFO, 1.0, (*GPU, "stalled"))))
    assert "does not answer (stalled)" in page
    assert 'data-bottleneck="sick" data-verdict="drain" data-findings="gpu.lost"' in page
    assert headline(page) == ("sick", "drain", "drain")


def test_released_gpus_are_grey_and_not_sick() -> None:
    error = (GPU_DRIVER_ERROR_INFO, 1.0, ("released",))
    page = body_of(judged(up(answers=False), error, RELEASED, error="released"))
    assert headline(page) == ("idle", "released", "not_read")
    assert 'data-bottleneck="idle" data-verdict="not_read" data-findings=""' in page
    assert 'data-code="gpu.released"' in page
    assert "no driver" not in page
    assert 'data-code="gpu.lost"' not in page
    assert "well" not in page.partition('id="areas"')[0]


def test_a_gpu_that_was_just_found_is_grey() -> None:
    waiting = replace(FACTS, waiting_for="the first reading of GPU 0")
    page = body_of(judged(up()), waiting)
    assert headline(page) == ("idle", "starting", "not_read")
    assert "Waiting for the first reading of GPU 0." in page
    assert '<span class="chip idle">not read</span>' in page
    assert 'data-verdict="not_read"' in page
    above = page.partition('id="collectors"')[0]
    assert "chip well" not in above
    assert "chip class" not in above


def test_a_gpu_that_waits_for_its_reading_hides_no_other_that_is_lost() -> None:
    latest = judged(up(answers=False), (GPU_ERROR_INFO, 1.0, (*GPU, "lost")), up(("1", "GPU-2")))
    page = body_of(latest, replace(FACTS, waiting_for="the first reading of GPU 1"))
    assert headline(page) == ("sick", "drain", "drain")
    assert "Waiting for the first reading of GPU 1." in page


def test_a_host_without_driver_is_amber_until_that_has_lasted_and_what_was_not_read_is_grey() -> None:
    devices = ((GPU_DEVICES, 8.0, ("pci",)), (GPU_DRIVER_ERROR_INFO, 1.0, ("driver_not_loaded",)))
    page = body_of(judged(*devices, error="driver_not_loaded"))
    assert headline(page) == ("held", "blocked", "watch")
    assert "no driver" in page
    states = dict(re.findall(r'<dt data-area="(\w+)" data-state="(\w+)">', page))
    assert states["driver"] == "warning"
    assert set(states.values()) == {"warning", "not_read"}
    assert states["health"] == states["pcie"] == "not_read"
    assert "chip well" not in page.partition('id="areas"')[2]


def test_before_the_first_judgment_the_page_waits() -> None:
    page = page_of(None, replace(FACTS, waiting_for="the first answer of the driver"))
    assert headline(page) == ("idle", "starting", "not_read")
    assert "Waiting for the first answer of the driver." in page
    assert ICONS["idle"] in page
    assert "Waiting for the first judgment." in page_of(None)
    assert "<section id=" in page  # the links


@pytest.mark.parametrize("latest", [None, judged(*read())], ids=["at once", "later"])
def test_a_judge_that_failed_is_named_and_its_last_judgment_stays(latest: Judgment | None) -> None:
    failed = replace(FACTS, judge_failed=True)
    page = body_of(latest, failed)
    assert headline(page)[:2] == ("sick", "judge_failed")
    assert "Judge failed" in page
    assert ("The rest of this page is from 2027-01-15 08:00:00 UTC." in page) == (latest is not None)
    assert ('class="overview' in page) == (latest is not None)
    stale = body_of(latest, replace(failed, silence="the sampler has published nothing for 45 s"))
    assert headline(stale)[:2] == ("sick", "stale")
    assert "Out of date: the sampler has published nothing for 45 s." in stale


@pytest.mark.parametrize("verdict", list(Verdict))
def test_headline_and_icon_have_the_color_of_the_verdict(verdict: Verdict) -> None:
    latest = judged(*read())
    page = page_of(replace(latest, report=replace(latest.report, verdict=verdict)))
    tone = COLORS[verdict].tone
    assert headline(page) == (tone, verdict.value, verdict.value)
    assert f'<link rel="icon" href="{ICONS[tone]}">' in page


def test_findings_and_classes_say_since_when_they_last() -> None:
    series = (up(answers=False), (GPU_ERROR_INFO, 1.0, (*GPU, "lost")))
    judge = HostJudge(JudgedHost("gpu-7", continuous=True))
    first = judge.judge(seen(*series), None)
    at = Moment(785.0, WALL + 725.0)
    later = judge.judge(replace(seen(*series), at=at), None)
    assert ">just now</time>" in page_of(first)
    told = 'datetime="2027-01-15T08:00:00+00:00" title="since 2027-01-15 08:00:00 UTC">for 12 min</time>'
    overview, _, findings = body_of(later).partition('id="findings"')
    assert overview.count(told) == findings.count(told) == 1


def test_the_first_lines_say_what_to_do_about_the_worst_that_follows_from_nothing_else() -> None:
    latest = judged(*read(), (GPU_ECC_VOLATILE_ERRORS_TOTAL, 2.0, (*GPU, "uncorrected")))
    report = latest.report
    (worst,) = (each for each in report.findings if each.check.code == "ecc.uncorrected")
    followed = replace(worst, explained_by="xid.48", measured="what follows")
    areas = (replace(area, findings=(*area.findings, followed)) for area in report.areas if worst in area.findings)
    latest = replace(latest, report=replace(report, areas=tuple(areas)))
    number = latest.report.findings.index(worst)
    page = body_of(latest)
    (steps,) = re.findall(r'<ol class="first" aria-label="What to do first">(.*?)</ol>', page)
    assert steps == f'<li><a href="#finding-{number}">GPU 0</a>: {DESK.decision(worst.advice)}</li>'
    assert f'<li id="finding-{number}" ' in page
    assert 'class="first"' not in body_of(judged(*read())), "nothing presses"


def test_durations_are_said_in_the_unit_that_fits() -> None:
    seconds = (0.4, 119, 120, 7199, 7200, 172_799, 172_800)
    assert [length_of_time(each) for each in seconds] == ["0 s", "119 s", "2 min", "120 min", "2 h", "48 h", "2 days"]
    windows = [window(each) for each in (0.0, 31.2, 60.0, 120.0)]
    assert windows == ["the first readings", "the last 31 s", "the last minute", "the last 2 min"]
    assert lasting(None, WALL) == "", "what nobody remembers has no beginning"


def with_findings(*findings: Finding, ended: tuple[Finding, ...] = ()) -> Judgment:
    """A judgment of a GPU that is well but for these."""
    latest = judged(*read())
    areas = [replace(area, findings=()) for area in latest.report.areas]
    areas[0] = replace(areas[0], findings=findings)
    verdict = verdict_on((finding.urgency for finding in findings), was_read=True)
    return replace(latest, report=replace(latest.report, areas=tuple(areas), verdict=verdict, ended=ended))


NARROW = Finding(BY_CODE["pcie.width"], "4 of 16 lanes under load", *GPU, since=WALL - 40.0, lasted_seconds=40.0)


def test_a_critical_finding_that_is_pending_says_how_long_it_must_last_and_asks_for_nothing() -> None:
    page = body_of(with_findings(NARROW))
    assert headline(page) == ("held", "watch", "watch")
    assert 'data-code="pcie.width" data-subject="GPU 0" data-severity="warning" data-state="pending"' in page
    assert '<span class="standing">has lasted 40 s of 10 min; then critical: take it out of use</span>' in page
    assert "1 pending" in page
    first = page.partition('<ol class="first"')[2].partition("</ol>")[0]
    assert first.endswith("GPU 0</a>: nothing yet; pcie.width becomes critical after 10 min.</li>")
    assert "chip sick" not in page.partition('id="areas"')[0]


def test_a_confirmed_finding_says_for_how_long_and_what_to_do_first() -> None:
    confirmed = replace(NARROW, state=State.CONFIRMED, since=WALL - 7200.0, lasted_seconds=7000.0)
    page = body_of(with_findings(confirmed, replace(NARROW, gpu="1")))
    assert headline(page) == ("sick", "drain", "drain")
    assert ">for 2 h</time></p>" in page
    assert "1 critical, 1 pending" in page
    first = page.partition('<ol class="first"')[2].partition("</ol>")[0]
    assert first.count("<li>") == 1
    assert DESK.decision(confirmed.advice).split(";")[0] in first
    gone = body_of(with_findings(replace(confirmed, holds=False, quiet_seconds=240.0)))
    assert "gone for 4 min, ends after 25 min" in gone


def test_findings_that_ended_lately_are_listed_apart() -> None:
    heat = Finding(BY_CODE["thermal.hw"], "hot", "3", "GPU-4", state=State.ENDED, lasted_seconds=1500.0)
    over = (
        replace(heat, ended_at=WALL - 300.0, end="gone"),
        replace(heat, gpu="5", ended_at=WALL - 60.0, end="unseen"),
    )
    page = body_of(with_findings(ended=over))
    assert headline(page) == ("well", "keep", "keep")
    assert "No findings." in page
    ended = page.partition('<ul class="ended soft">')[2].partition("</ul>")[0]
    assert re.sub(r"<[^>]+>", "", ended).strip().splitlines() == [
        "ended 60 s ago: thermal.hw GPU 5, lasted 25 min, could not be observed for a day",
        "ended 5 min ago: thermal.hw GPU 3, lasted 25 min",
    ]
    assert "Ended in the last" not in body_of(with_findings(NARROW))


BLACK, WHITE = "#000000", "#ffffff"


def contrast(one: str, other: str) -> float:
    """Contrast ratio of two colors, 1-21 (https://www.w3.org/TR/WCAG22/#dfn-contrast-ratio)."""
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def test_every_class_has_its_color_of_the_one_table_and_an_ink_that_is_legible_on_it() -> None:
    rules = re.findall(r"\.c-(\w+) \{ --fill: (#\w+); --on: (#\w+); fill: (#\w+); \}", STYLE)
    assert {name: fill for name, fill, _, _ in rules} == dict(CLASS_COLORS)
    assert tuple(CLASS_COLORS) == BOTTLENECK_CLASSES
    for name, fill, ink, drawn in rules:
        assert fill == drawn
        assert ink in {BLACK, WHITE}
        assert contrast(fill, ink) >= 4.5, name


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_tone_is_legible_on_its_ground(scheme: str) -> None:
    light, dark = re.findall(r":root \{ (?:color-scheme: light dark; )?(--.*?) \}", STYLE, re.DOTALL)
    colors = dict(re.findall(r"--([\w-]+): (#\w+)", light if scheme == "light" else dark))
    tones = {*OF_SEVERITY.values(), *(color.tone for color in COLORS.values()), "path"}
    for tone in tones:
        assert f".{tone} {{ --tone" in STYLE
        assert contrast(colors[tone], colors[f"{tone}-g"]) >= 4.5
    for ink in ("ink", "soft", "link"):
        assert contrast(colors[ink], colors["ground"]) >= 4.5


def test_a_strip_is_to_scale_and_what_was_not_judged_stays_empty() -> None:
    strips = (
        ClassPeriod("compute", 900.0, 600.0),
        ClassPeriod("thermal", 450.0, 90.0),
        ClassPeriod("compute", 90.0, 0.0),
    )
    drawn = ET.fromstring(strip(strips, "GPU 3", WALL))  # noqa: S314 - our own
    # Left edge and width, in percent.
    places = [(r.attrib["class"], float(r.attrib["x"][:-1]), float(r.attrib["width"][:-1])) for r in drawn.iter("rect")]
    assert places == [("c-compute", 50.0, 16.67), ("c-thermal", 75.0, 20.0), ("c-compute", 95.0, 5.0)]
    titles = [title.text for title in drawn.iter("title")]
    assert titles == [
        "compute for 5 min, 07:45 to 07:50 UTC",
        "thermal for 6 min, 07:52 to 07:58 UTC",
        "compute for 90 s, 07:58 to 08:00 UTC",
    ]


def label(*strips: ClassPeriod) -> str:
    return ET.fromstring(strip(strips, "GPU 3", WALL)).attrib["aria-label"]  # noqa: S314 - our own


def test_a_strip_is_told_in_words() -> None:
    told = label(
        ClassPeriod("compute", 900.0, 600.0), ClassPeriod("thermal", 450.0, 90.0), ClassPeriod("idle", 90.0, 0.0)
    )
    assert told == (
        "GPU 3, last 15 min: compute for 5 min, then not judged for 2 min, then thermal for 6 min, then idle for 90 s"
    )
    assert label(ClassPeriod("idle", 900.0, 300.0)) == "GPU 3, last 15 min: idle for 10 min, then not judged for 5 min"
    assert label() == "GPU 3, not judged yet"


def test_a_strip_of_many_changes_is_told_in_short_and_stays_small() -> None:
    step = STRIP_SECONDS / 400
    strips = tuple(
        ClassPeriod(("compute", "storage")[place % 2], STRIP_SECONDS - place * step, STRIP_SECONDS - (place + 1) * step)
        for place in range(400)
    )
    assert label(*strips).startswith("GPU 3, last 30 min: 392 earlier changes, then compute for ")
    assert len(strip(strips, "GPU 3", WALL)) < 64 * 1024


def test_the_legend_names_the_classes_of_the_strips_by_rank_and_says_what_hatching_means() -> None:
    whole = (ClassPeriod("compute", 1800.0, 60.0), ClassPeriod("thermal", 60.0, 0.0))
    assert re.findall(r"c-(\w+)", legend([whole])) == ["thermal", "compute"]
    assert "hatched" not in legend([whole])
    assert "hatched: not judged" in legend([whole, whole[1:]])


def gpu(index: str, verdict: Verdict, name: str) -> GpuVerdict:
    (like,) = judged(*read()).report.gpus
    return replace(like, gpu=index, verdict=verdict, bottleneck=Bottleneck(name, "measured"))


def test_the_worst_gpus_come_first_by_verdict_then_class_then_index() -> None:
    gpus = (
        gpu("0", Verdict.KEEP, "compute"),
        gpu("1", Verdict.NOT_READ, "unattributed"),
        gpu("2", Verdict.WATCH, "clock_cap"),
        gpu("3", Verdict.DRAIN, "thermal"),
        gpu("4", Verdict.KEEP, "storage"),
        gpu("9", Verdict.DRAIN, "sick"),
        gpu("10", Verdict.DRAIN, "sick"),
    )
    order = re.findall(r'<li data-gpu="(\d+)"', overview_section(gpus, WALL))
    assert order == ["9", "10", "3", "2", "1", "4", "0"]
    # The readings stand in the same order.
    second = ("1", "GPU-2")
    page = body_of(judged(*read(), up(second, answers=False), (GPU_ERROR_INFO, 1.0, (*second, "lost"))))
    assert re.findall(r'<li data-gpu="(\d+)"', page) == re.findall(r'<tr id="gpu-(\d+)"', page) == ["1", "0"]
    assert re.findall(r'href="#gpu-(\d+)"', page) == ["1", "0"]
