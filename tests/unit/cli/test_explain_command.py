"""`gpu-triage explain` prints the page of whatever an alert, a report or a kernel log has named."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.command_line import Run
from tests.gathered import for_each
from tests.offline_files import of_real_files

from gpu_triage.cli.main import group
from gpu_triage.judge.findings.table import BY_CODE
from gpu_triage.judge.findings.verdicts import CLASS_COLORS, DESK, Verdict
from gpu_triage.read.xid.codes import XID_CODES
from gpu_triage.serve.handbook.pages import alert_names

FINDINGS = tuple(code for code in BY_CODE if not code.removeprefix("xid.").isdigit())


def explained(*words: str) -> str:
    result = CliRunner().invoke(group, ["explain", *words])
    assert result.exit_code == 0
    return result.output


XID_LINE = (
    "[12345.6] NVRM: Xid (PCI:0000:41:00): 119, pid=7, name=python3, Timeout after 6s of waiting for RPC response"
)
SHORT_ANSWERS = {
    **{name: f"Class {name}" for name in CLASS_COLORS},
    **{verdict.text: f"Verdict {verdict.text}" for verdict in Verdict},
    **{words: f"Verdict {verdict.text}" for verdict, words in DESK.verdicts.items()},
    XID_LINE: "Xid 119",
    "fallen off the bus": "Xid 79",
    "no devices were found": "GpuMissing",
    "throttle": "Class thermal",
    "out of memory": "GpuProcessOomKilled",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB": "GpuMemoryNearFull",
    "Failed to initialize NVML: Unknown Error": "Finding driver.no_access",
    "my job hangs": "GpuHungProcess",
    "GPU utilization high, low throughput": "Class compute",
    "uncorrectable ECC": "Finding ecc.uncorrected",
    "license": "GpuVgpuUnlicensed",
}


@for_each("words", SHORT_ANSWERS)
def test_a_class_a_verdict_or_a_symptom_leads_to_a_page(words: str) -> None:
    assert f"\n{SHORT_ANSWERS[words]}\n==" in f"\n{explained(*words.split())}"


@for_each("name", ["79", "GpuLost", "gpu.lost", "out of memory"])
def test_what_to_do_comes_before_what_it_means(name: str) -> None:
    page = explained(*name.split())
    assert 0 < page.index("\nMitigation\n") < page.index("\nMeaning\n")


@pytest.mark.parametrize("path", of_real_files(lambda folder: (folder.parents[1] / "design/articles").glob("00[03]_*")))
def test_the_symptoms_of_the_field_articles_have_a_cause_and_a_fix(path: Path | None) -> None:
    symptoms = [] if path is None else re.findall(r"^\d+\) Symptom: (.+)$", path.read_text("utf-8"), re.MULTILINE)
    assert path is None or len(symptoms) > 6
    assert [words for words in symptoms if "Most likely: " not in explained(*words.split())] == []


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("GpuLots", "no alert, finding or Xid 'GpuLots'; did you mean GpuLost"),
        ("zzz", "no alert, finding or Xid 'zzz'; --list shows them all"),
        ("\x1b[2J", "no alert, finding or Xid '\\\\x1b[2J'"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(word: str, told: str, run: Run) -> None:
    code, out, err = run("explain", word)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert told in err


def test_the_list_names_all_that_can_be_explained() -> None:
    listed = {line.split()[0] for line in explained("--list").splitlines() if line.startswith("  ")}
    assert set(alert_names()) <= listed
    assert {str(code) for code in XID_CODES} <= listed
    assert set(FINDINGS) <= listed


def test_a_pasted_error_of_an_nvlink_is_as_urgent_as_it_says_and_decoded() -> None:
    head = "NVRM: Xid (PCI:0008:06:00):"
    nonfatal = explained(f"{head} 145, RLW_REMAP Nonfatal XC0 i0 Link 0 (0x00000004 0x00000001 0x00000000)")
    assert ("a ticket" in nonfatal, "RLW_REMAP, link 0, error status 0x1" in nonfatal) == (True, True)
    fatal = explained(f"{head} 149, NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6 0x00000000)")
    assert ("critical" in fatal, "link 8 down: a bad signal" in fatal) == (True, True)
