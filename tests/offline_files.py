"""Made-up files in the forms that support cases hold, for the tests of offline triage."""

import gzip
import os
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.captured_cards import FOLDER as FOLDER_OF_CAPTURES

from gpu_triage.cli.main import group
from gpu_triage.cli.offline.files_report import check_files
from gpu_triage.judge.findings.table import Area
from gpu_triage.judge.report.report import Report
from gpu_triage.options.config import Config

UUID = "GPU-{:08d}-1111-2222-3333-444444444444"
AT = "Sat Mar 14 10:00:00 2026"
LOADING = "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.95.05  Wed Jan  1 00:00:00 UTC 2026"
XID = "NVRM: Xid (PCI:0000:41:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


@cache
def file_of(name: str) -> str:
    """A file of the folder that has outputs of other programs, made up as well."""
    return (Path(__file__).parent / "unit/cli/offline/files" / name).read_text(encoding="utf-8")


def rows_of(name: str) -> list[list[str]]:
    """The cells of a table in that folder, below the line that names its columns; ``\\n`` stands for a line's end."""
    return [[cell.replace("\\n", "\n") for cell in row.split("\t")] for row in file_of(name).splitlines()[1:]]


GPU = file_of("gpu.txt")
"""One GPU of ``nvidia-smi -q`` of driver 580; in braces are the facts of `smi_gpu`, with what they are by default."""


def report_on(*paths: Path | str, redact: bool = False) -> Report:
    """The report on files."""
    return check_files([str(path) for path in paths], Config(), redact=redact)


def report_on_text(folder: Path, *texts: str) -> Report:
    """The report on texts, each a file."""
    paths = []
    for place, text in enumerate(texts):
        paths.append(folder / f"file-{place}")
        paths[-1].write_text(text)
    return report_on(*paths)


def run_check(*arguments: str, stdin: bytes = b"") -> Result:
    """What ``gpu-triage check`` prints, and its exit code."""
    return CliRunner().invoke(group, ["check", *arguments], input=stdin, standalone_mode=False)


def codes(report: Report) -> list[str]:
    """Codes of the findings, in their order."""
    return [finding.check.code for finding in report.findings]


def measured(report: Report, code: str) -> str:
    """What was measured of the one finding with this code."""
    (found,) = (finding.measured for finding in report.findings if finding.check.code == code)
    return found


def assert_found(report: Report, found: Mapping[str, str]) -> None:
    """These are the findings, in their order, and what was measured of each begins with these words."""
    assert codes(report) == list(found)
    assert {code: measured(report, code)[: len(words)] for code, words in found.items()} == dict(found)


def summary(report: Report, area: Area) -> str | None:
    return {each.area: each.summary for each in report.areas}[area]


def logged(*lines: str, at: str = "09:50:00", day: int = 14) -> str:
    """Lines of ``dmesg -T``, all of one moment."""
    return "".join(f"[Sat Mar {day} {at} 2026] {line}\n" for line in lines)


def filled(template: str, facts: Mapping[str, str]) -> str:
    """A text with a value in place of each ``{fact=default}``."""
    return re.sub(r"{([^{}=]+)=?([^{}]*)}", lambda found: facts.get(found[1], found[2]), template)


def smi_gpu(place: int = 0, facts: Mapping[str, str] | None = None, processes: Iterable[str] = ()) -> str:
    """One GPU of ``nvidia-smi -q``; `facts` replace the values of labels, as ``Pending`` of the last section."""
    listed = "".join(
        f"        GPU instance ID                   : N/A\n        Process ID                        : {pid}\n"
        f"            Type                          : C\n            Name                          : {name}\n"
        "            Used GPU Memory               : 40000 MiB\n"
        for pid, name in (each.split(" ", 1) for each in processes)
    )
    said = {"bus": f"{0x41 + place:02X}", "place": str(place), "uuid": UUID.format(place), "listed": listed}
    said |= {} if listed else {"none": "                                          : None"}
    if facts and "Active" in (facts.get("hw thermal"), facts.get("brake")):
        said["hw slowdown"] = "Active"
    return filled(GPU, {**said, **(facts or {})})


def smi(*gpus: str, at: str = AT, driver: str = "580.95.05", attached: int | None = None) -> str:
    """An output of ``nvidia-smi -q``; `attached`: how many GPUs it counts, if not only these."""
    return file_of("smi.txt").format(at=at, driver=driver, attached=attached or len(gpus)) + "\n".join(gpus)


def of_real_files(cases: Callable[[Path], Iterable[Path]]) -> list[object]:
    """Parameters from the captures of real machines, which are in no repository; in CI, None stands for them."""
    if FOLDER_OF_CAPTURES.is_dir():
        return [pytest.param(each, id=each.name) for each in cases(FOLDER_OF_CAPTURES)]
    reason = "the files of real machines are not here; GPU_TRIAGE_TEST_CAPTURES names their folder"
    marks = () if os.environ.get("CI") == "true" else pytest.mark.skip(reason=reason)
    return [pytest.param(None, id="absent", marks=marks)]


LINE = "____________________________________________"


def lspci(
    width: int = 16, slot_width: int = 16, *, revision: str = "a1", driver: str = "nvidia", domain: str = ""
) -> str:
    """A GPU and the port above it, as ``lspci -vvv`` lists them."""
    facts = {"slot_width": slot_width, "revision": revision, "driver": driver, "domain": domain}
    return file_of("lspci.txt").format(width=width, **facts)


def bug_report(*sections: tuple[str, str], date: str = "Sat Mar 14 10:00:00 UTC 2026") -> str:
    """What nvidia-bug-report.sh writes: sections, each with its title."""
    body = "".join(f"{LINE}\n\n{title}\n\n{text}\n" for title, text in sections)
    head = file_of("bug-report.txt").format(line=LINE, date=date)
    return f"{head}{body}{LINE}\n\nEnd of NVIDIA bug report log file.\n"


def sick_bug_report() -> str:
    """A bug report of a host whose one GPU has half its lanes and an Xid, with all that such a file holds around it."""
    loading = "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build"
    xid = "NVRM: Xid (PCI:0000:41:00): 119, pid=4242, name=python3, Timeout after 6s of waiting for RPC response"
    scanned = (
        f"\n  /var/log/kern.log:\nMar 14 09:00:00 gpu-7 kernel: [   10.000000] {loading}\n"
        f"Mar 14 09:50:00 gpu-7 kernel: [ 3010.000000] {xid}\n"
        f"\n  journalctl -b -0:\nMar 14 09:00:00 gpu-7 kernel: {loading}\nMar 14 09:50:00 gpu-7 kernel: {xid}\n"
    )
    base64 = "\n".join("QUJD" * 19 for _ in range(200))
    return bug_report(
        ("*** /etc/issue", "*** ls: -rw-r--r-- 1 root root 26 2024-02-14 22:47:50.0 +0000 /etc/issue\nUbuntu"),
        ("*** /var/log/Xorg.0.log", "[     5.813] X.Org X Server 1.21.1\n[     6.118] (II) NOUVEAU driver Date: 2021"),
        ("/usr/bin/lspci -nnDvvvxxxx", lspci(8, domain="0000:")),
        ("Scanning kernel log files for NVIDIA kernel messages:", scanned),
        ("dmesg:", f"[    0.000000] Linux version 6.8.0\n[   10.000000] {loading}\n[ 3010.000000] {xid}\n"),
        ("*** /proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  Thu"),
        ("/usr/bin/nvidia-debugdump -D", base64),
        ("/usr/bin/nvidia-smi --query", smi(smi_gpu(facts={"width": "8x"}, processes=["4242 /opt/conda/bin/python3"]))),
    )


def packed_bug_report(text: str) -> bytes:
    """A bug report as nvidia-bug-report.sh packs it: each of 150 to 440 sections is a gzip member of its own."""
    head, *sections = text.split(LINE + "\n\n")
    empty = (f"*** /proc/asound/card{n}\n*** ls: No such file\n\n" for n in range(140))
    parts = (head, *(f"{LINE}\n\n{each}" for each in (*empty, *sections)))
    return b"".join(gzip.compress(part.encode()) for part in parts)


XML = file_of("tesla.xml")
"""One GPU of ``nvidia-smi -q -x``."""

TABLE_HEAD, TABLE_PROCESSES = file_of("table-head.txt"), file_of("table-processes.txt")
"""Of the table that ``nvidia-smi`` prints, around its rows."""
TABLE_END = "+-----------------------------------------------------------------------------------------+\n"


def table_row(index: int, bus: int, errors: str = "0") -> str:
    return file_of("table-row.txt").format(index=index, bus=bus, errors=errors)
