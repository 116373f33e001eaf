"""What several files of jobs come to on one page: names taken twice, histograms with a hole, counters.

The first table is this exporter's own account of what node_exporter's textfile collector is documented to do, case by
case; where it differs, docs/textfile.md says why.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from gpu_triage.encoding import END
from gpu_triage.foreign import encode
from gpu_triage.host.textfile import TextFilesReading
from gpu_triage.host.textfile_reader import TextFilesReader
from gpu_triage.machine import RealClock, real_machine
from gpu_triage.subjects.rounds import HostRound

HISTOGRAM = """# HELP job_seconds Time of a step.
# TYPE job_seconds histogram
job_seconds_bucket{le="0.5"} 7
job_seconds_bucket{le="+Inf"} 9
job_seconds_sum 3.5
job_seconds_count 9
"""
SUMMARY = """# TYPE job_wait_seconds summary
job_wait_seconds{quantile="0.5"} 2
job_wait_seconds_sum 7
job_wait_seconds_count 3
"""


class Case(NamedTuple):
    """Files, the lines of the text format that they come to (as of `lines_of`), and what is refused of each."""

    files: dict[str, str]
    lines: tuple[str, ...]
    errors: dict[str, tuple[str, ...]] = {}  # noqa: RUF012 - never changed


AS_NODE_EXPORTER = {
    "a folder without files": Case({}, ()),
    "files of other names": Case({"a.txt": "job_x 1\n", "b.prom.tmp": "job_x 1\n"}, ()),
    "an empty file": Case({"a.prom": ""}, ()),
    "two files": Case({"a.prom": "job_x 1\n", "b.prom": "job_y 2\n"}, ("job_x 1.0", "job_y 2.0")),
    "every type": Case(
        {
            "a.prom": "# TYPE job_steps_total counter\njob_steps_total 5\n# TYPE job_loss gauge\njob_loss 0.25\n"
            "# TYPE job_other untyped\njob_other 1\n" + HISTOGRAM + SUMMARY
        },
        (
            "# TYPE job_steps_total counter",
            "job_steps_total 5.0",
            "# TYPE job_loss gauge",
            "job_loss 0.25",
            "job_other 1.0",
            "# TYPE job_seconds histogram",
            'job_seconds_bucket{le="0.5"} 7.0',
            'job_seconds_bucket{le="+Inf"} 9.0',
            "job_seconds_sum 3.5",
            "job_seconds_count 9.0",
            "# TYPE job_wait_seconds summary",
            'job_wait_seconds{quantile="0.5"} 2.0',
            "job_wait_seconds_sum 7.0",
            "job_wait_seconds_count 3.0",
        ),
    ),
    "a histogram of several sets of labels": Case(
        {
            "a.prom": '# TYPE job_h histogram\njob_h_bucket{rank="0",le="1"} 1\njob_h_bucket{rank="0",le="+Inf"} 2\n'
            'job_h_sum{rank="0"} 3\njob_h_count{rank="0"} 2\njob_h_bucket{rank="1",le="+Inf"} 4\n'
            'job_h_sum{rank="1"} 5\njob_h_count{rank="1"} 4\n'
        },
        (
            "# TYPE job_h histogram",
            'job_h_bucket{le="1",rank="0"} 1.0',
            'job_h_bucket{le="+Inf",rank="0"} 2.0',
            'job_h_sum{rank="0"} 3.0',
            'job_h_count{rank="0"} 2.0',
            'job_h_bucket{le="+Inf",rank="1"} 4.0',
            'job_h_sum{rank="1"} 5.0',
            'job_h_count{rank="1"} 4.0',
        ),
    ),
    "labels that not every series has": Case(
        {"a.prom": '# TYPE job_x gauge\njob_x{a="1"} 1\njob_x{b="2"} 2\njob_x 3\n'},
        ("# TYPE job_x gauge", 'job_x{a="1"} 1.0', 'job_x{b="2"} 2.0', "job_x 3.0"),
    ),
    "a timestamp": Case(
        {"a.prom": "job_x 1 1700000000000\n", "b.prom": "job_y 2\n"}, ("job_y 2.0",), {"a.prom": ("timestamp",)}
    ),
    "no metrics at all": Case({"a.prom": "this is not a metric\n"}, (), {"a.prom": ("malformed",)}),
    "one series in two files": Case(
        {"a.prom": "job_x 1\n", "b.prom": "job_x 2\njob_y 3\n"}, ("job_x 1.0",), {"b.prom": ("duplicate_series",)}
    ),
    "not a number": Case({"a.prom": "job_x NaN\njob_y +Inf\njob_z -Inf\n"}, ("job_x NaN", "job_y +Inf", "job_z -Inf")),
    "a last line without an end": Case({"a.prom": "job_x 1"}, ("job_x 1.0",)),
}

NAMES_TAKEN_TWICE = {
    "two types": Case(
        {"a.prom": "# TYPE job_x gauge\njob_x 1\n", "b.prom": '# TYPE job_x counter\njob_x{a="b"} 2\njob_y 3\n'},
        ("# TYPE job_x gauge", "job_x 1.0", "job_y 3.0"),
        {"b.prom": ("type_conflict",)},
    ),
    "two types that meet on the wire": Case(
        {
            "a.prom": "# TYPE job_x_total gauge\njob_x_total 1\n",
            "b.prom": '# TYPE job_x_total counter\njob_x_total{a="b"} 2\n',
        },
        ("# TYPE job_x_total gauge", "job_x_total 1.0"),
        {"b.prom": ("type_conflict",)},
    ),
    "a gauge of the name of a histogram's count": Case(
        {"a.prom": HISTOGRAM, "b.prom": '# TYPE job_seconds_count gauge\njob_seconds_count{a="b"} 1\njob_y 3\n'},
        (
            "# TYPE job_seconds histogram",
            'job_seconds_bucket{le="0.5"} 7.0',
            'job_seconds_bucket{le="+Inf"} 9.0',
            "job_seconds_sum 3.5",
            "job_seconds_count 9.0",
            "job_y 3.0",
        ),
        {"b.prom": ("type_conflict",)},
    ),
    "a histogram after the gauge": Case(
        {"a.prom": "# TYPE job_seconds_sum gauge\njob_seconds_sum 1\n", "b.prom": HISTOGRAM},
        ("# TYPE job_seconds_sum gauge", "job_seconds_sum 1.0"),
        {"b.prom": ("type_conflict",)},
    ),
    "a gauge and a summary": Case(
        {"a.prom": SUMMARY, "b.prom": "# TYPE job_wait_seconds gauge\njob_wait_seconds 1\n"},
        (
            "# TYPE job_wait_seconds summary",
            'job_wait_seconds{quantile="0.5"} 2.0',
            "job_wait_seconds_sum 7.0",
            "job_wait_seconds_count 3.0",
        ),
        {"b.prom": ("type_conflict",)},
    ),
    "a gauge beside the counter of its name": Case(
        {"a.prom": "# TYPE job_x gauge\njob_x 1\n", "b.prom": "# TYPE job_x_total counter\njob_x_total 2\n"},
        ("# TYPE job_x gauge", "job_x 1.0"),
        {"b.prom": ("type_conflict",)},
    ),
    "no type and a type": Case(
        {"a.prom": 'job_x{a="1"} 1\n', "b.prom": '# TYPE job_x gauge\njob_x{a="2"} 2\n'},
        ('job_x{a="1"} 1.0',),
        {"b.prom": ("type_conflict",)},
    ),
    "twice in one file": Case(
        {"a.prom": '# TYPE job_x gauge\njob_x 1\n# TYPE job_y gauge\njob_y 2\n# TYPE job_x counter\njob_x{a="b"} 3\n'},
        ("# TYPE job_x gauge", "job_x 1.0", "# TYPE job_y gauge", "job_y 2.0"),
        {"a.prom": ("type_conflict",)},
    ),
    "samples that stand apart from their family": Case(
        {"a.prom": HISTOGRAM.replace("job_seconds_count 9\n", "") + "job_y 1\njob_seconds_count 9\n"},
        (
            "# TYPE job_seconds histogram",
            'job_seconds_bucket{le="0.5"} 7.0',
            'job_seconds_bucket{le="+Inf"} 9.0',
            "job_seconds_sum 3.5",
            "job_seconds_count 9.0",
            "job_y 1.0",
        ),
    ),
    "since when a counter counts": Case(
        {
            "a.prom": "# TYPE job_x_created gauge\njob_x_created 1.7e9\n# TYPE job_x_total counter\njob_x_total 2\n",
            "b.prom": '# TYPE job_x_total counter\njob_x_total{a="b"} 3\n'
            '# TYPE job_x_created gauge\njob_x_created{a="b"} 1.8e9\n',
        },
        (
            "# TYPE job_x_total counter",
            "job_x_total 2.0",
            'job_x_total{a="b"} 3.0',
            "# TYPE job_x_created gauge",
            "job_x_created 1.7e+09",
            'job_x_created{a="b"} 1.8e+09',
        ),
    ),
}

COUNTERS_AND_HISTOGRAMS = {
    "a counter without _total keeps its name": Case(
        {"a.prom": '# HELP job_steps Steps.\n# TYPE job_steps counter\njob_steps{rank="0"} 5\n'},
        ("# TYPE job_steps counter", 'job_steps{rank="0"} 5.0'),
    ),
    "a counter declared as OpenMetrics does": Case(
        {"a.prom": "# TYPE job_steps counter\njob_steps_total 5\n# TYPE job_nothing gauge\n# EOF\n"},
        ("# TYPE job_steps_total counter", "job_steps_total 5.0"),
    ),
    "in several files": Case(
        {f"{n}.prom": f'# TYPE job_steps counter\njob_steps{{rank="{n}"}} {n}\n' for n in range(2)},
        ("# TYPE job_steps counter", 'job_steps{rank="0"} 0.0', 'job_steps{rank="1"} 1.0'),
    ),
    "beside the one with it": Case(
        {"a.prom": "# TYPE job_x counter\njob_x 1\n# TYPE job_x_total counter\njob_x_total 2\n"},
        ("# TYPE job_x counter", "job_x 1.0"),
        {"a.prom": ("type_conflict",)},
    ),
    "a histogram without +Inf": Case(
        {"a.prom": HISTOGRAM.replace('job_seconds_bucket{le="+Inf"} 9\n', "")},
        (
            "# TYPE job_seconds histogram",
            'job_seconds_bucket{le="0.5"} 7.0',
            'job_seconds_bucket{le="+Inf"} 9.0',
            "job_seconds_sum 3.5",
            "job_seconds_count 9.0",
        ),
    ),
    "for one of two sets of labels": Case(
        {
            "a.prom": '# TYPE job_h histogram\njob_h_bucket{rank="0",le="+Inf"} 2\njob_h_sum{rank="0"} 5\n'
            'job_h_count{rank="0"} 2\njob_h_bucket{rank="1",le="1"} 3\njob_h_sum{rank="1"} 6\njob_h_count{rank="1"} 4\n'
        },
        (
            "# TYPE job_h histogram",
            'job_h_bucket{le="+Inf",rank="0"} 2.0',
            'job_h_sum{rank="0"} 5.0',
            'job_h_count{rank="0"} 2.0',
            'job_h_bucket{le="1",rank="1"} 3.0',
            'job_h_bucket{le="+Inf",rank="1"} 4.0',
            'job_h_sum{rank="1"} 6.0',
            'job_h_count{rank="1"} 4.0',
        ),
    ),
    "without any bucket": Case(
        {"a.prom": "# TYPE job_h histogram\njob_h_sum 3\njob_h_count 2\n"},
        ("# TYPE job_h histogram", 'job_h_bucket{le="+Inf"} 2.0', "job_h_sum 3.0", "job_h_count 2.0"),
    ),
    "that nobody counted": Case(
        {"a.prom": '# TYPE job_h histogram\njob_h_bucket{le="1"} 1\njob_h_sum 3\njob_y 1\n'},
        ("job_y 1.0",),
        {"a.prom": ("incomplete_histogram",)},
    ),
    "whose +Inf is spelled otherwise": Case(
        {"a.prom": '# TYPE job_h histogram\njob_h_bucket{le="Inf"} 2\njob_h_sum 3\njob_h_count 2\n'},
        ("# TYPE job_h histogram", 'job_h_bucket{le="+Inf"} 2.0', "job_h_sum 3.0", "job_h_count 2.0"),
    ),
    "a bucket without a bound": Case(
        {"a.prom": "# TYPE job_h histogram\njob_h_bucket 2\njob_h_count 2\n"}, (), {"a.prom": ("malformed",)}
    ),
    "a bucket whose bound is no number": Case(
        {"a.prom": '# TYPE job_h histogram\njob_h_bucket{le="many"} 2\njob_h_count 2\n'}, (), {"a.prom": ("malformed",)}
    ),
}
CASES = {**AS_NODE_EXPORTER, **NAMES_TAKEN_TWICE, **COUNTERS_AND_HISTOGRAMS}


def read(directory: Path) -> tuple[TextFilesReading, list[str]]:
    host = HostRound(real_machine(Path("/sys"), Path("/proc"), None), RealClock().now())
    return TextFilesReader(directory).read(host), host.failures


def lines_of(reading: TextFilesReading) -> list[str]:
    """The page in the text format: the series, and the types of those that have one."""
    rows = encode(reading.families, openmetrics=False).decode().splitlines()
    return [row for row in rows if not row.startswith("# HELP") and not row.endswith(" untyped")]


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_files_come_to_a_page(tmp_path: Path, case: Case) -> None:
    for name, text in case.files.items():
        (tmp_path / name).write_text(text)
    reading, failures = read(tmp_path)
    assert lines_of(reading) == [*case.lines]
    assert {file.name: file.errors for file in reading.files if file.errors} == case.errors
    assert sorted(failures) == sorted(error for errors in case.errors.values() for error in errors)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_the_page_is_valid_in_both_formats(tmp_path: Path, case: Case) -> None:
    for name, text in case.files.items():
        (tmp_path / name).write_text(text)
    reading, _ = read(tmp_path)
    text = encode(reading.families, openmetrics=False).decode()
    openmetrics = (encode(reading.families, openmetrics=True) + END).decode()
    types = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert [name for name, count in Counter(types).items() if count > 1] == []
    said = [sample.name for family in parse_text(text) for sample in family.samples]
    strictly = [s.name for family in parse_openmetrics(openmetrics) for s in family.samples]  # type: ignore[no-untyped-call] # not annotated there
    assert len(said) == len(strictly) == sum(not line.startswith("#") for line in case.lines)


def test_the_first_help_that_says_something_stays(tmp_path: Path) -> None:
    for name, text in (("a", ""), ("b", "# HELP job_x First.\n"), ("c", "# HELP job_x Other.\n")):
        (tmp_path / f"{name}.prom").write_text(f'{text}# TYPE job_x gauge\njob_x{{file="{name}"}} 1\n')
    reading, _ = read(tmp_path)
    assert [(family.documentation, len(family.samples)) for family in reading.families] == [("First.", 3)]
