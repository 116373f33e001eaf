"""No file, however it was cut, mixed or made, ends in a traceback, takes much memory or takes for ever."""

import gzip
import io
import random
import time
import tracemalloc
from pathlib import Path
from types import FunctionType

import pytest
from tests.offline_files import XML, file_of, report_on, sick_bug_report, smi, smi_gpu
from tests.offline_shapes import PACKED, SHAPES, front, repeated
from tests.parts import some

from gpu_triage.cli.offline.lines import pieces
from gpu_triage.cli.offline.scan import HostFacts, Scanner
from gpu_triage.documents.stream import opened
from gpu_triage.errors import ConfigError
from gpu_triage.judge.findings.table import Area
from gpu_triage.judge.findings.verdicts import Verdict
from gpu_triage.judge.report.machine_readable import render_json
from gpu_triage.judge.report.report import Report
from gpu_triage.judge.report.text import render_text

pytestmark = pytest.mark.slow

ROUNDS = 25
SIZE = 1 << 18

OUTPUTS = smi(smi_gpu(), smi_gpu(1, processes=["1 a", "2 b"]))
SAMPLES = [text.encode() for text in (sick_bug_report(), OUTPUTS, XML, file_of("kernel.txt"))]


def cut(chance: random.Random, data: bytes) -> bytes:
    start = chance.randrange(len(data))
    return data[start : start + chance.randrange(len(data))]


def without_pieces(chance: random.Random, data: bytes) -> bytes:
    for _ in range(chance.randrange(1, 12)):
        start = chance.randrange(len(data) + 1)
        data = data[:start] + data[start + chance.randrange(200) :]
    return data


def shuffled(chance: random.Random, data: bytes) -> bytes:
    lines = data.split(b"\n")
    chance.shuffle(lines)
    return b"\n".join(lines)


def scrambled(chance: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.randrange(1, 300)):
        if changed:
            changed[chance.randrange(len(changed))] = chance.randrange(256)
    return bytes(changed)


def interleaved(chance: random.Random, data: bytes) -> bytes:
    others = [line for sample in SAMPLES for line in sample.split(b"\n")]
    lines = []
    for line in data.split(b"\n"):
        lines.append(line)
        if chance.random() < 0.3:
            lines.append(chance.choice(others))
    return b"\n".join(lines)


def packed_and_cut(chance: random.Random, data: bytes) -> bytes:
    packed = gzip.compress(data, 1)
    return packed[: chance.randrange(len(packed))]


@pytest.mark.parametrize("change", [cut, without_pieces, shuffled, scrambled, interleaved, packed_and_cut])
def test_any_damage_gives_a_report(tmp_path: Path, change: FunctionType) -> None:
    chance = random.Random(change.__name__)
    for number in range(ROUNDS):
        path = tmp_path / f"{number}"
        path.write_bytes(change(chance, chance.choice(SAMPLES)))
        try:
            report = report_on(path, redact=bool(number % 2))
        except ConfigError as error:
            # Of two outputs, one whose UUIDs were hit is of another host.
            assert "different hosts" in str(error)  # noqa: PT017 - most of them do not raise
            continue
        assert_said(report)
        assert render_json(report)


def scan(data: bytes) -> None:
    Scanner("x", HostFacts()).read(pieces(opened(io.BytesIO(data).read)))


LARGE = {**SHAPES, "many reports": repeated(smi(smi_gpu(processes=["1 a"])))}


@pytest.mark.parametrize("name", some(["messages 0", "one line", "quotes", "many reports"], {"one line", "quotes"}))
def test_memory_is_bounded_however_large_a_file_is(name: str) -> None:
    data = front(LARGE[name], 4 << 20)
    tracemalloc.start()
    try:
        scan(data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3 << 20


STARTS = ("", "| NVIDIA-SMI 1 ", "GPU 00000000:41:00.0\n ", "41:00.0 VGA compatible controller: ", "NVRM: ", "Date: ")


@pytest.mark.parametrize(
    "character", [" ", "|", ":", "<", "\t", "[", "A", "0", "/", "(", ",", "| ", " :", "GPU ", "0:"]
)
def test_lines_made_to_be_slow_are_read(character: str) -> None:
    for start in STARTS:
        text = f"{start}{character * 3000}\n".encode()
        scan(b"==============NVSMI LOG==============\n" + text)
        scan(text)


@pytest.mark.parametrize("name", some([*SHAPES, *PACKED], {"messages 0", "messages 3", "one line", "members"}))
def test_a_file_that_is_made_to_be_slow_takes_no_longer_than_its_size_asks_for(tmp_path: Path, name: str) -> None:
    """Four times the size takes about four times as long, not sixteen times. The least of three, else it is noise."""
    took: dict[int, list[float]] = {SIZE // 4: [], SIZE: []}
    for size, seconds in [*took.items()] * 3:
        path = tmp_path / f"{size}"
        path.write_bytes(front(SHAPES[name], size) if name in SHAPES else PACKED[name](size))
        began = time.process_time()
        report = report_on(path)
        seconds.append(time.process_time() - began)
        assert_said(report)
    assert min(took[SIZE]) < 10 * min(took[SIZE // 4])


def assert_said(report: Report) -> None:
    """Each area is one of a finding, well with what was read of it, or not read; and no finding is without words."""
    assert {area.area for area in report.areas} == set(Area)
    assert all(area.summary is None or area.summary for area in report.areas)
    assert all(finding.measured for finding in report.findings)
    said = render_text(report)
    ok = [line for line in said.splitlines() if line.startswith("ok ")]
    assert all(len(line.split()) > len(["ok", "GPU", "health"]) for line in ok)
    assert report.verdict is not Verdict.KEEP or report.gpus
