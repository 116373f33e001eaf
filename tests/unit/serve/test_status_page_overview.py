import re
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest
from tests.status_pages import WALL, body_of, judged, read, up

from gpu_triage.judge.bottleneck.class_history import STRIP_SECONDS, ClassPeriod
from gpu_triage.judge.bottleneck.classes import Bottleneck
from gpu_triage.judge.findings.verdicts import CLASS_COLORS, COLORS, Verdict
from gpu_triage.judge.report.report import GpuVerdict
from gpu_triage.read.exporter.judgment import BOTTLENECK_CLASSES
from gpu_triage.read.gpu.presence import GPU_ERROR_INFO
from gpu_triage.serve.page.markup import OF_SEVERITY
from gpu_triage.serve.page.sections import legend, overview_section, strip
from gpu_triage.serve.page.style import STYLE

BLACK, WHITE = "#000000", "#ffffff"


def contrast(one: str, other: str) -> float:
    """Contrast ratio of two colors, 1-21 (https://www.w3.org/TR/WCAG22/#dfn-contrast-ratio)."""
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def luminance(color: str) -> float:
    channels = (int(color[place : place + 2], 16) / 255 for place in (1, 3, 5))
    linear = [each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in channels]
    return sum(weight * each for weight, each in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


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


def test_contrast_is_that_of_the_web_content_accessibility_guidelines() -> None:
    assert contrast(BLACK, WHITE) == pytest.approx(21)
    assert contrast("#767676", WHITE) == pytest.approx(4.54, abs=0.01)


def geometry(drawn: str) -> list[tuple[str, float, float]]:
    """Class, left edge and width, in percent, of each rectangle of a strip."""
    rectangles = ET.fromstring(drawn).iter("rect")  # noqa: S314 - our own
    return [(r.attrib["class"], float(r.attrib["x"][:-1]), float(r.attrib["width"][:-1])) for r in rectangles]


def test_a_strip_is_to_scale_and_what_was_not_judged_stays_empty() -> None:
    strips = (
        ClassPeriod("compute", 900.0, 600.0),
        ClassPeriod("thermal", 450.0, 90.0),
        ClassPeriod("compute", 90.0, 0.0),
    )
    drawn = strip(strips, "GPU 3", WALL)
    assert geometry(drawn) == [("c-compute", 50.0, 16.67), ("c-thermal", 75.0, 20.0), ("c-compute", 95.0, 5.0)]
    titles = [title.text for title in ET.fromstring(drawn).iter("title")]  # noqa: S314 - our own
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


def test_the_readings_are_in_the_same_order_as_the_overview() -> None:
    second = ("1", "GPU-2")
    page = body_of(judged(*read(), up(second, answers=False), (GPU_ERROR_INFO, 1.0, (*second, "lost"))))
    assert re.findall(r'<li data-gpu="(\d+)"', page) == re.findall(r'<tr id="gpu-(\d+)"', page) == ["1", "0"]
    assert re.findall(r'href="#gpu-(\d+)"', page) == ["1", "0"]
