"""What several files of jobs come to on one page: types, histograms, counters, and names that files disagree about."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from gpu_triage.machine import RealClock, real_machine
from gpu_triage.read.host.textfile_reader import TextFilesReader, TextFilesReading
from gpu_triage.read.metrics.rounds import HostRound
from gpu_triage.serve.exposition.encoding import END, Format, encode_families

OWNER = re.compile(r'owner="[^"]*",|,?owner="[^"]*"')

HISTOGRAM = """# HELP gpu_job_seconds Time of a step.
# TYPE gpu_job_seconds histogram
gpu_job_seconds_bucket{le="0.5"} 7
gpu_job_seconds_bucket{le="+Inf"} 9
gpu_job_seconds_sum 3.5
gpu_job_seconds_count 9
"""
HISTOGRAM_LINES = (
    "# TYPE gpu_job_seconds histogram",
    'gpu_job_seconds_bucket{le="0.5"} 7.0',
    'gpu_job_seconds_bucket{le="+Inf"} 9.0',
    "gpu_job_seconds_sum 3.5",
    "gpu_job_seconds_count 9.0",
)
SUMMARY = """# TYPE gpu_job_wait_seconds summary
gpu_job_wait_seconds{quantile="0.5"} 2
gpu_job_wait_seconds_sum 7
gpu_job_wait_seconds_count 3
"""
SUMMARY_LINES = (
    "# TYPE gpu_job_wait_seconds summary",
    'gpu_job_wait_seconds{quantile="0.5"} 2.0',
    "gpu_job_wait_seconds_sum 7.0",
    "gpu_job_wait_seconds_count 3.0",
)


class Case(NamedTuple):
    """Files, the lines of the text format that they come to (as of `lines_of`), and why a file is rejected."""

    files: dict[str, str]
    lines: tuple[str, ...]
    errors: dict[str, str] = {}  # noqa: RUF012 - never changed


FILES = {
    "a folder without files": Case({}, ()),
    "files of other names": Case({"a.txt": "gpu_job_x 1\n", "b.prom.tmp": "gpu_job_x 1\n"}, ()),
    "an empty file": Case({"a.prom": ""}, ()),
    "two files": Case({"a.prom": "gpu_job_x 1\n", "b.prom": "gpu_job_y 2\n"}, ("gpu_job_x 1.0", "gpu_job_y 2.0")),
    "every type": Case(
        {
            "a.prom": "# TYPE gpu_job_steps_total counter\ngpu_job_steps_total 5\n"
            "# TYPE gpu_job_loss gauge\ngpu_job_loss 0.25\n# TYPE gpu_job_other untyped\ngpu_job_other 1\n"
            + HISTOGRAM
            + SUMMARY
        },
        (
            "# TYPE gpu_job_steps_total counter",
            "gpu_job_steps_total 5.0",
            "# TYPE gpu_job_loss gauge",
            "gpu_job_loss 0.25",
            "gpu_job_other 1.0",
            *HISTOGRAM_LINES,
            *SUMMARY_LINES,
        ),
    ),
    "labels that not every series has": Case(
        {"a.prom": '# TYPE gpu_job_x gauge\ngpu_job_x{a="1"} 1\ngpu_job_x{b="2"} 2\ngpu_job_x 3\n'},
        ("# TYPE gpu_job_x gauge", 'gpu_job_x{a="1"} 1.0', 'gpu_job_x{b="2"} 2.0', "gpu_job_x 3.0"),
    ),
    "an empty label, which is none": Case(
        {"a.prom": 'gpu_job_x{a=""} 1\ngpu_job_x 2\n'}, (), {"a.prom": "duplicate_series"}
    ),
    "escapes": Case({"a.prom": 'gpu_job_x{a="\\\\ \\n \\" \\d", } 1\n'}, ('gpu_job_x{a="\\\\ \\n \\" \\\\d"} 1.0',)),
    "blanks and line ends of another system": Case(
        {"a.prom": '\t# TYPE  gpu_job_x\tgauge \r\n\r\n gpu_job_x { a = "1" , b="2" }\t1e3 \r\n#\r\n'},
        ("# TYPE gpu_job_x gauge", 'gpu_job_x{a="1",b="2"} 1000.0'),
    ),
    "a timestamp": Case(
        {"a.prom": "gpu_job_x 1 1700000000000\n", "b.prom": "gpu_job_y 2\n"},
        ("gpu_job_y 2.0",),
        {"a.prom": "timestamp"},
    ),
    "no metrics at all": Case({"a.prom": "gpu_job is not a metric\n"}, (), {"a.prom": "name_not_allowed"}),
    "one series in two files": Case(
        {"a.prom": "gpu_job_x 1\n", "b.prom": "gpu_job_x 2\ngpu_job_y 3\n"},
        ("gpu_job_x 1.0",),
        {"b.prom": "duplicate_series"},
    ),
    "not a number": Case(
        {"a.prom": "gpu_job_x NaN\ngpu_job_y +Inf\ngpu_job_z -Inf\n"},
        ("gpu_job_x NaN", "gpu_job_y +Inf", "gpu_job_z -Inf"),
    ),
    "a last line without an end": Case({"a.prom": "gpu_job_x 1"}, ("gpu_job_x 1.0",)),
    "comments": Case(
        {"a.prom": "#\n#HELP up x\n# HELPER up x\n#\tTYPE gpu_job_x gauge\n# HELP gpu_job_x\ngpu_job_x 1\n"},
        ("# TYPE gpu_job_x gauge", "gpu_job_x 1.0"),
    ),
    "OpenMetrics' last line": Case({"a.prom": "gpu_job_x 1\n# EOF\n"}, ("gpu_job_x 1.0",)),
}

MALFORMED = (
    "gpu_job_x",
    "gpu_job_x{} ",
    "gpu_job_x one",
    "gpu_job_x 1_000",
    "gpu_job_x 0x10",
    "gpu_job_x \u0661",
    "gpu_job_x 1 soon",
    "gpu_job_x 1 2 3",
    "gpu_job_x 1 # {} 1",
    "gpu_job_x{a} 1",
    "gpu_job_x{a=1} 1",
    'gpu_job_x{a="1} 1',
    'gpu_job_x{a="1"',
    'gpu_job_x{a="1" b="2"} 1',
    'gpu_job_x{,a="1"} 1',
    'gpu_job_x{a="1",a="2"} 1',
    'gpu_job_x{0a="1"} 1',
    'gpu_job_x{__name__="up"} 1',
    'gpu_job_x{"a"="1"} 1',
    '{"gpu_job_x"} 1',
    "gpu_job_x-y 1",
    "# TYPE gpu_job_x",
    "# TYPE gpu_job_x number",
    "# TYPE gpu_job_x gauge\n# TYPE gpu_job_x counter",
    "# TYPE",
)

TYPES = {
    "two types, which leave none": Case(
        {
            "a.prom": "# TYPE gpu_job_x gauge\ngpu_job_x 1\n",
            "b.prom": '# TYPE gpu_job_x histogram\ngpu_job_x_bucket{le="+Inf"} 2\ngpu_job_x_count 2\ngpu_job_y 3\n',
        },
        ("gpu_job_x 1.0", 'gpu_job_x_bucket{le="+Inf"} 2.0', "gpu_job_x_count 2.0", "gpu_job_y 3.0"),
    ),
    "two types that meet on the wire": Case(
        {
            "a.prom": "# TYPE gpu_job_x_total gauge\ngpu_job_x_total 1\n",
            "b.prom": '# TYPE gpu_job_x_total counter\ngpu_job_x_total{a="b"} 2\n',
        },
        ("gpu_job_x_total 1.0", 'gpu_job_x_total{a="b"} 2.0'),
    ),
    "a gauge beside the counter of its name": Case(
        {
            "a.prom": "# TYPE gpu_job_x gauge\ngpu_job_x 1\n",
            "b.prom": "# TYPE gpu_job_x_total counter\ngpu_job_x_total 2\n",
        },
        ("gpu_job_x 1.0", "gpu_job_x_total 2.0"),
    ),
    "no type and a type": Case(
        {"a.prom": 'gpu_job_x{a="1"} 1\n', "b.prom": '# TYPE gpu_job_x gauge\ngpu_job_x{a="2"} 2\n'},
        ('gpu_job_x{a="1"} 1.0', 'gpu_job_x{a="2"} 2.0'),
    ),
    "samples that stand apart from their family": Case(
        {
            "a.prom": HISTOGRAM.replace("gpu_job_seconds_count 9\n", "") + "gpu_job_y 1\ngpu_job_seconds_count 9\n",
        },
        (*HISTOGRAM_LINES, "gpu_job_y 1.0"),
    ),
    "since when a counter counts": Case(
        {
            "a.prom": "# TYPE gpu_job_x_created gauge\ngpu_job_x_created 1.7e9\n"
            "# TYPE gpu_job_x_total counter\ngpu_job_x_total 2\n",
            "b.prom": '# TYPE gpu_job_x_total counter\ngpu_job_x_total{a="b"} 3\n'
            '# TYPE gpu_job_x_created gauge\ngpu_job_x_created{a="b"} 1.8e9\n',
        },
        (
            "# TYPE gpu_job_x_total counter",
            "gpu_job_x_total 2.0",
            'gpu_job_x_total{a="b"} 3.0',
            "# TYPE gpu_job_x_created gauge",
            "gpu_job_x_created 1.7e+09",
            'gpu_job_x_created{a="b"} 1.8e+09',
        ),
    ),
    "a counter without _total keeps its name and loses its type": Case(
        {"a.prom": '# TYPE gpu_job_steps counter\ngpu_job_steps{rank="0"} 5\n'}, ('gpu_job_steps{rank="0"} 5.0',)
    ),
    "a counter declared as OpenMetrics does": Case(
        {"a.prom": "# TYPE gpu_job_steps counter\ngpu_job_steps_total 5\n# TYPE gpu_job_nothing gauge\n# EOF\n"},
        ("# TYPE gpu_job_steps_total counter", "gpu_job_steps_total 5.0"),
    ),
    "a histogram of several sets of labels, in any order": Case(
        {
            "a.prom": '# TYPE gpu_job_h histogram\ngpu_job_h_bucket{rank="0",le="1"} 1\n'
            'gpu_job_h_bucket{rank="1",le="+Inf"} 4\ngpu_job_h_bucket{rank="0",le="+Inf"} 2\n'
            'gpu_job_h_sum{rank="1"} 5\ngpu_job_h_count{rank="1"} 4\n'
            'gpu_job_h_sum{rank="0"} 3\ngpu_job_h_count{rank="0"} 2\n'
        },
        (
            "# TYPE gpu_job_h histogram",
            'gpu_job_h_bucket{le="1",rank="0"} 1.0',
            'gpu_job_h_bucket{le="+Inf",rank="0"} 2.0',
            'gpu_job_h_sum{rank="0"} 3.0',
            'gpu_job_h_count{rank="0"} 2.0',
            'gpu_job_h_bucket{le="+Inf",rank="1"} 4.0',
            'gpu_job_h_sum{rank="1"} 5.0',
            'gpu_job_h_count{rank="1"} 4.0',
        ),
    ),
    "a histogram that lacks a bucket loses its type": Case(
        {"a.prom": HISTOGRAM.replace('gpu_job_seconds_bucket{le="+Inf"} 9\n', "")},
        ('gpu_job_seconds_bucket{le="0.5"} 7.0', "gpu_job_seconds_sum 3.5", "gpu_job_seconds_count 9.0"),
    ),
    "a bucket without a bound": Case(
        {"a.prom": '# TYPE gpu_job_h histogram\ngpu_job_h_bucket 2\ngpu_job_h_bucket{le="+Inf"} 2\n'},
        ("gpu_job_h_bucket 2.0", 'gpu_job_h_bucket{le="+Inf"} 2.0'),
    ),
    "a bucket whose bound is no number": Case(
        {"a.prom": '# TYPE gpu_job_h histogram\ngpu_job_h_bucket{le="a"} 2\ngpu_job_h_bucket{le="+Inf"} 2\n'},
        ('gpu_job_h_bucket{le="a"} 2.0', 'gpu_job_h_bucket{le="+Inf"} 2.0'),
    ),
}
CASES = {**FILES, **TYPES}


def read(directory: Path) -> tuple[TextFilesReading, list[str]]:
    host = HostRound(real_machine(Path("/sys"), Path("/proc"), None), RealClock().now())
    return TextFilesReader(directory).read(host), host.failures


def lines_of(reading: TextFilesReading) -> list[str]:
    """The page in the text format: the series without their owner, and the types of those that have one."""
    page = OWNER.sub("", encode_families(reading.families, Format.TEXT).decode()).replace("{}", "")
    return [row for row in page.splitlines() if not row.startswith("# HELP") and not row.endswith(" untyped")]


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_files_come_to_a_page_that_is_valid_in_both_formats(tmp_path: Path, case: Case) -> None:
    for name, text in case.files.items():
        (tmp_path / name).write_text(text, newline="")
    reading, failures = read(tmp_path)
    assert lines_of(reading) == [*case.lines]
    assert {file.name: file.error for file in reading.files if file.error} == case.errors
    assert sorted(failures) == sorted(case.errors.values())
    text = encode_families(reading.families, Format.TEXT).decode()
    openmetrics = (encode_families(reading.families, Format.OPENMETRICS) + END).decode()
    types = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert [name for name, count in Counter(types).items() if count > 1] == []
    said = [sample.name for family in parse_text(text) for sample in family.samples]
    strictly = [s.name for family in parse_openmetrics(openmetrics) for s in family.samples]  # type: ignore[no-untyped-call] # not annotated there
    assert len(said) == len(strictly) == sum(not line.startswith("#") for line in case.lines)


@pytest.mark.parametrize("line", MALFORMED)
def test_a_file_with_one_malformed_line_is_rejected(tmp_path: Path, line: str) -> None:
    (tmp_path / "a.prom").write_text(f"gpu_job_y 1\n{line}\n")
    reading, _ = read(tmp_path)
    assert [file.error for file in reading.files] == ["malformed"]
    assert reading.families == ()


def test_the_first_help_that_says_something_stays(tmp_path: Path) -> None:
    for name, text in (("a", ""), ("b", "# HELP gpu_job_x First \\\\ \\n.\n"), ("c", "# HELP gpu_job_x Other.\n")):
        (tmp_path / f"{name}.prom").write_text(f'{text}# TYPE gpu_job_x gauge\ngpu_job_x{{file="{name}"}} 1\n')
    reading, _ = read(tmp_path)
    assert [(family.documentation, len(family.samples)) for family in reading.families] == [("First \\ \n.", 3)]
