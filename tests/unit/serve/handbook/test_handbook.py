"""The handbook finds a page by any name that a person has at hand, and renders all of it."""

import re
from functools import cache
from html import unescape

import pytest
from click import unstyle
from tests.gathered import every, for_each
from tests.rules.rulefile import alerts, read_rules, rule_files

from gpu_triage.judge.findings.table import BY_CODE
from gpu_triage.read.xid.codes import XID_CODES
from gpu_triage.serve.handbook.markdown import render_html, served_address
from gpu_triage.serve.handbook.pages import (
    CONFIGURATION,
    INDEX,
    METRICS,
    PLAYBOOK,
    XIDS,
    UnknownPage,
    alert_names,
    find,
    summary_of,
)
from gpu_triage.serve.handbook.terminal import render_terminal

OWN_PAGES = (PLAYBOOK, XIDS, METRICS, CONFIGURATION, INDEX)
FINDINGS = tuple(code for code in BY_CODE if not code.removeprefix("xid.").isdigit())
EVERY_NAME = (*OWN_PAGES, *alert_names(), *FINDINGS, *(f"xid-{code}" for code in XID_CODES))
WORD = re.compile(r"[A-Za-z]{4,}")
HREF = re.compile(r'href="([^"]*)"')


def title(page: str) -> str:
    return page.partition("\n")[0].removeprefix("# ")


def test_every_alert_of_the_rules_is_found_whatever_its_case() -> None:
    names = {rule.name for rule in alerts(read_rules(rule_files()))}
    assert {title(find(name)) for name in names} == names
    assert {title(find(name.lower())) for name in names} == names


@for_each("code", BY_CODE)
def test_a_finding_comes_before_the_runbook_that_helps_with_it(code: str) -> None:
    head, _, runbook = find(code).partition("\n---\n")
    if not code.removeprefix("xid.").isdigit():
        assert BY_CODE[code].advice.meaning in head
        assert BY_CODE[code].advice.anywhere in head
        assert f"- **By default:** {BY_CODE[code].life}" in head
    assert title(runbook.strip()) == BY_CODE[code].runbook


@for_each("code", XID_CODES)
def test_an_xid_says_what_to_do_before_its_runbook(code: int) -> None:
    xid, page = XID_CODES[code], find(str(code))
    assert title(page) == f"Xid {code}"
    head, _, _ = page.partition("\n---\n")
    assert xid.action[:-1] in head
    assert xid.meaning[1:] in head


@pytest.mark.parametrize("word", ["79", "xid79", "xid-79", "xid 79", "XID.79", " Xid  79 ", "xid_79"])
def test_an_xid_is_found_however_it_is_written(word: str) -> None:
    assert find(word) == find("xid-79")


def test_an_xid_that_nobody_lists_has_a_page_that_says_so() -> None:
    page = find("9999")
    assert title(page) == "Xid 9999"
    assert "# GpuXidUnlisted\n" in page


@pytest.mark.parametrize(
    ("word", "nearest"),
    [
        ("GpuLots", "GpuLost"),
        ("hungproces", "GpuHungProcess"),
        ("HwThermal", "GpuHwThermalThrottling"),
        ("gpu.los", "gpu.lost"),
        ("playbok", "playbook"),
    ],
)
def test_a_name_that_nothing_has_is_answered_with_the_nearest(word: str, nearest: str) -> None:
    with pytest.raises(UnknownPage) as unknown:
        find(word)
    assert nearest in unknown.value.nearest
    assert len(unknown.value.nearest) <= 5


@pytest.mark.parametrize("word", ["", "x" * 10_000, "../../../etc/passwd", "README", "12345", "GpuLost/..", "\0"])
def test_what_is_no_name_opens_no_file(word: str) -> None:
    with pytest.raises(UnknownPage):
        find(word)


@cache
def html_of(name: str) -> str:
    return render_html(find(name))


@pytest.mark.slow
@for_each("name", EVERY_NAME)
def test_every_page_is_rendered_whole_and_well_formed(name: str) -> None:
    page = find(name)
    html = html_of(name)
    opened: list[str] = []
    for tag in re.finditer(r"<(/?)([a-z0-9]+)", html):
        if tag[2] in {"hr", "br"}:
            continue
        if tag[1]:
            assert opened.pop() == tag[2]
        else:
            opened.append(tag[2])
    assert opened == []
    # Link targets, fences and entities are markup; every other word of the page is shown.
    prose = unescape(re.sub(r"\]\([^)]*\)|^ *```\w+", "", page, flags=re.MULTILINE))
    shown = unescape(re.sub(r"<[^>]*>", " ", html))
    assert set(WORD.findall(prose)) - set(WORD.findall(shown)) == set()


@cache
def anchors_of(name: str) -> frozenset[str]:
    return frozenset(re.findall(r'<h\d id="([^"]*)"', html_of(name)))


@pytest.mark.slow
@for_each("name", [*OWN_PAGES, *alert_names()])
def test_every_link_of_a_served_page_leads_to_a_page_and_an_anchor_that_exist(name: str) -> None:
    dead = []
    for href in HREF.findall(html_of(name)):
        if href.startswith("https://"):
            continue
        word, _, anchor = href.partition("#")
        target = name if not word else INDEX if word == "./" else word
        if anchor and anchor not in anchors_of(target):
            dead.append(href)
        find(target)
    assert dead == []


def test_raw_html_is_text() -> None:
    html = render_html("# A <b>\n\n<script>alert(1)</script> `<i>` [x](javascript:alert(1))\n")
    assert "<script" not in html
    assert "<i>" not in html
    assert "javascript" not in " ".join(HREF.findall(html))


@pytest.mark.parametrize(
    ("target", "address"),
    [
        ("GpuLost.md", "GpuLost"),
        ("../playbook.md#reset-a-gpu", "playbook#reset-a-gpu"),
        ("runbooks/README.md", "./"),
        ("../../../../rules/README.md", None),
        ("../../../../docs/METRICS.md", "metrics"),
        ("../../../../docs/operations.md#x", None),
        ("https://docs.nvidia.com/deploy/xid-errors/", "https://docs.nvidia.com/deploy/xid-errors/"),
        ("#meaning", "#meaning"),
    ],
)
def test_links_between_files_become_links_between_pages(target: str, address: str | None) -> None:
    assert served_address(target) == address


@pytest.mark.parametrize("name", alert_names())
def test_a_runbook_begins_with_one_short_sentence_that_says_what_happened(name: str) -> None:
    assert 20 < len(summary_of(name)) < 130


@pytest.mark.parametrize("width", [40, 80, 100])
@for_each("name", [*alert_names(), *FINDINGS, "xid-79", PLAYBOOK])
def test_the_terminals_width_is_kept_by_prose_and_lists(name: str, width: int) -> None:
    text = unstyle(render_terminal(find(name), width))
    assert [mark for mark in ("](", "**", "```", "|---") if mark in text] == []
    prose = [line for line in text.splitlines() if "  " not in line]
    assert [line for line in every(prose) if len(line) > width and " " in line.strip(" -")] == []


def test_a_terminal_shows_headings_lists_and_commands_without_markup() -> None:
    markdown = (
        "# Title of two lines, which is no longer than each\n\nSome **bold** `code` and a [link](GpuLost.md).\n\n"
        "1. First\n   line.\n2. Second.\n\n- Point\n\n"
        "```console\n$ nvidia-smi -q   # a comment that is longer than the width\n```\n"
    )
    assert unstyle(render_terminal(markdown, 40)) == (
        "Title of two lines, which is no longer\nthan each\n======================================\n\n"
        "Some bold code and a link.\n\n"
        "1. First line.\n2. Second.\n\n- Point\n\n"
        "    $ nvidia-smi -q   # a comment that is longer than the width\n"
    )
