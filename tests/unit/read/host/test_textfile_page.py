"""What files of jobs come to on one page, and what none may hold or reach: names, labels and files of others."""

import re
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text
from tests.job_files import errors, read, samples, write
from tests.promql.vocabulary import TARGET_LABELS as TARGET_LABELS_OF_RULES
from tests.scrape_limits import TARGET_LABELS

from gpu_triage.read.gpu.identity import GPU_INFO
from gpu_triage.read.host.textfile_reader import MAX_BYTES, MAX_LABELS, PREFIX, TextFilesReader, TextFilesReading
from gpu_triage.read.processes.allocation import GPU_ALLOCATED
from gpu_triage.read.processes.on_gpu import GPU_PROCESS_INFO
from gpu_triage.read.registry import METRICS
from gpu_triage.serve.exposition.encoding import END, Format, encode_families

OWNER = re.compile(r'owner="[^"]*",|,?owner="[^"]*"')

SIMPLE = """# TYPE gpu_job_steps_total counter
gpu_job_steps_total 5
# TYPE gpu_job_loss gauge
gpu_job_loss 0.25
"""
HISTOGRAM = """# HELP gpu_job_seconds Time of a step.
# TYPE gpu_job_seconds histogram
gpu_job_seconds_bucket{le="0.5"} 7
gpu_job_seconds_bucket{le="+Inf"} 9
gpu_job_seconds_sum 3.5
gpu_job_seconds_count 9
"""
SUMMARY = """# TYPE gpu_job_wait_seconds summary
gpu_job_wait_seconds{quantile="0.5"} 2
gpu_job_wait_seconds_sum 7
gpu_job_wait_seconds_count 3
"""


def written(text: str) -> tuple[str, ...]:
    """The lines that these come to: each value a float."""
    kept = (line for line in text.splitlines() if not line.startswith("# HELP"))
    return tuple(re.sub(r"(?<= )[0-9]+$", r"\g<0>.0", line) for line in kept)


class Case(NamedTuple):
    """Files, the lines of the text format that they come to (as of `lines_of`), and why a file is rejected."""

    files: dict[str, str]
    lines: tuple[str, ...]
    errors: dict[str, str] = {}  # noqa: RUF012 - never changed


FILES = {
    "files of other names": Case({"a.txt": "gpu_job_x 1\n", "b.prom.tmp": "gpu_job_x 1\n"}, ()),
    "every type": Case(
        {"a.prom": f"{SIMPLE}# TYPE gpu_job_other untyped\ngpu_job_other 1\n{HISTOGRAM}{SUMMARY}"},
        (*written(SIMPLE), "gpu_job_other 1.0", *written(HISTOGRAM), *written(SUMMARY)),
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
    "one series in two files": Case(
        {"a.prom": "gpu_job_x 1\n", "b.prom": "gpu_job_x 2\ngpu_job_y 3\n"},
        ("gpu_job_x 1.0",),
        {"b.prom": "duplicate_series"},
    ),
    "not a number": Case(
        {"a.prom": "gpu_job_x NaN\ngpu_job_y +Inf\ngpu_job_z -Inf\n"},
        ("gpu_job_x NaN", "gpu_job_y +Inf", "gpu_job_z -Inf"),
    ),
    "comments": Case(
        {"a.prom": "#\n#HELP up x\n# HELPER up x\n#\tTYPE gpu_job_x gauge\n# HELP gpu_job_x\ngpu_job_x 1\n"},
        ("# TYPE gpu_job_x gauge", "gpu_job_x 1.0"),
    ),
    "OpenMetrics' last line": Case({"a.prom": "gpu_job_x 1\n# EOF\n"}, ("gpu_job_x 1.0",)),
}

VALUES = ("", " one", " 1_000", " 0x10", " \u0661", " 1 soon", " 1 2 3", " 1 # {} 1", "{} ", '{a="1"', "-y 1")
LABELS = ("a", "a=1", 'a="1', 'a="1" b="2"', ',a="1"', 'a="1",a="2"', '0a="1"', '__name__="up"', '"a"="1"')
TYPE_LINES = ("", " gpu_job_x", " gpu_job_x number", " gpu_job_x gauge\n# TYPE gpu_job_x counter")
MALFORMED = (
    *(f"gpu_job_x{value}" for value in VALUES),
    *(f"gpu_job_x{{{labels}}} 1" for labels in LABELS),
    *(f"# TYPE{rest}" for rest in TYPE_LINES),
    '{"gpu_job_x"} 1',
)

TYPES = {
    "two types, which leave none": Case(
        {
            "a.prom": "# TYPE gpu_job_x gauge\ngpu_job_x 1\n",
            "b.prom": '# TYPE gpu_job_x histogram\ngpu_job_x_bucket{le="+Inf"} 2\ngpu_job_x_count 2\ngpu_job_y 3\n',
        },
        ("gpu_job_x 1.0", 'gpu_job_x_bucket{le="+Inf"} 2.0', "gpu_job_x_count 2.0", "gpu_job_y 3.0"),
    ),
    "samples that stand apart from their family": Case(
        {"a.prom": HISTOGRAM.replace("gpu_job_seconds_count 9\n", "") + "gpu_job_y 1\ngpu_job_seconds_count 9\n"},
        (*written(HISTOGRAM), "gpu_job_y 1.0"),
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
}
CASES = {**FILES, **TYPES}


def lines_of(reading: TextFilesReading) -> list[str]:
    """The page in the text format: the series without their owner, and the types of those that have one."""
    page = OWNER.sub("", encode_families(reading.families, Format.TEXT).decode()).replace("{}", "")
    return [row for row in page.splitlines() if not row.startswith("# HELP") and not row.endswith(" untyped")]


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_files_come_to_a_page_that_is_valid_in_both_formats(tmp_path: Path, case: Case) -> None:
    for name, text in case.files.items():
        (tmp_path / name).write_text(text, newline="")
    failures: list[str] = []
    reading = read(tmp_path, failures=failures)
    assert lines_of(reading) == [*case.lines]
    assert {name: error for name, error in errors(reading).items() if error} == case.errors
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
    reading = read(tmp_path)
    assert [file.error for file in reading.files] == ["malformed"]
    assert reading.families == ()


def test_the_first_help_that_says_something_stays(tmp_path: Path) -> None:
    for name, text in (("a", ""), ("b", "# HELP gpu_job_x First \\\\ \\n.\n"), ("c", "# HELP gpu_job_x Other.\n")):
        (tmp_path / f"{name}.prom").write_text(f'{text}# TYPE gpu_job_x gauge\ngpu_job_x{{file="{name}"}} 1\n')
    reading = read(tmp_path)
    assert [(family.documentation, len(family.samples)) for family in reading.families] == [("First \\ \n.", 3)]


GENERIC = {"name", "architecture", "process"}
"""Labels of ours that claim no identity: a job may name a layer, an architecture or a process of its own."""


def labeled(count: int) -> str:
    return "gpu_job_x{" + ",".join(f'l{number}="v"' for number in range(count)) + "} 1\n"


REFUSED = {
    "one label too many": (labeled(MAX_LABELS + 1), "too_many_labels"),
    "a label name of 250 characters": (f'gpu_job_x{{{"n" * 250}="v"}} 1\n', "name_too_long"),
    "a metric name of 250 characters": (f"gpu_job_{'n' * 250} 1\n", "name_too_long"),
    "a sample name that its suffix makes too long": (
        f'# TYPE gpu_job_{"n" * 90} histogram\ngpu_job_{"n" * 90}_bucket{{le="+Inf"}} 1\n',
        "name_too_long",
    ),
    "a line of 20 KiB": (f'gpu_job_x{{a="{"v" * 20_000}"}} 1\n', "line_too_long"),
    "a recorded series that mutes a page": ('instance_gpu:gpu_busy:ratio5m{gpu="0"} 0\n', "name_not_allowed"),
    "up": ("up 0\n", "name_not_allowed"),
    "ALERTS": ('ALERTS{alertname="GpuLost",alertstate="firing"} 1\n', "name_not_allowed"),
    "a metric of this exporter": ("gpu_up 0\n", "name_not_allowed"),
    "a name that only resembles": ("gpu_jobs 1\n", "name_not_allowed"),
    "the prefix in capitals": ("GPU_JOB_x 1\n", "name_not_allowed"),
    "a family that only its samples excuse": (
        '# TYPE gpu_job histogram\ngpu_job_bucket{le="+Inf"} 1\ngpu_job_count 1\n',
        "name_not_allowed",
    ),
    "a type of somebody else's": ("# TYPE up gauge\ngpu_job_x 1\n", "name_not_allowed"),
    "a HELP of somebody else's": ("# HELP gpu_up Down.\ngpu_job_x 1\n", "name_not_allowed"),
}


@pytest.mark.parametrize(("text", "error"), REFUSED.values(), ids=REFUSED)
def test_a_file_that_could_harm_others_is_refused_by_name(tmp_path: Path, text: str, error: str) -> None:
    write(tmp_path, {"bad.prom": text, "good.prom": "gpu_job_fine 1\n"})
    reading = read(tmp_path)
    assert errors(reading) == {"bad.prom": error, "good.prom": ""}
    assert [sample.name for sample in samples(reading)] == ["gpu_job_fine"]


CLAIMS = (
    *TARGET_LABELS,
    *sorted(TARGET_LABELS_OF_RULES),
    *("Instance", "hostname", "exported_instance", "gpu", "GPU", "gpu_id", "uuid", "UUID"),
    *("mig_uuid", "pci_bus_id", "minor_number", "workload_pod", "pod_uid", "container_id"),
    *("user", "owner", "account", "pid", "job_id", "slurm_job_id", "alertname", "severity"),
)


OURS = {label for spec in (GPU_INFO, GPU_PROCESS_INFO, GPU_ALLOCATED) for label in spec.labels} - GENERIC
"""By which the exporter tells GPUs and owners apart."""


@pytest.mark.parametrize("label", sorted({*CLAIMS, *OURS}))
def test_a_label_that_claims_an_identity_is_refused(tmp_path: Path, label: str) -> None:
    write(tmp_path, {"bad.prom": f'gpu_job_x{{{label}="other"}} 1\n'})
    reading = read(tmp_path)
    assert errors(reading) == {"bad.prom": "label_not_allowed"}
    assert samples(reading) == []


def test_no_metric_of_the_exporter_has_a_name_that_jobs_may_take() -> None:
    assert [spec.name for spec in METRICS if spec.name.startswith(PREFIX)] == []


def test_a_file_made_to_parse_slowly_does_not(tmp_path: Path) -> None:
    escapes = "\\" + '"'
    write(
        tmp_path,
        {
            "quotes.prom": f'gpu_job_x{{a="{escapes * 500_000}"}} 1\n',
            "labels.prom": "gpu_job_x{" + 'a="",' * 200_000 + "} 1\n",
            "blanks.prom": "#" + " " * 1_000_000 + "HELP gpu_job_x x\n",
            "braces.prom": f"gpu_job_x{{{'}' * 1_000_000}\n",
            "lines.prom": "\n".join(["gpu_job_x{" + '}"' * 8000] * 60),
        },
    )
    began = time.process_time()
    assert set(errors(read(tmp_path)).values()) <= {"line_too_long", "malformed", "too_large"}
    assert time.process_time() - began < 2


def kubernetes(folder: Path, version: str, text: str) -> None:
    """Put a version of a ConfigMap where the kubelet would, as it would."""
    (folder / f"..{version}").mkdir()
    (folder / f"..{version}" / "job.prom").write_text(text)
    (folder / "..data_tmp").symlink_to(f"..{version}")
    (folder / "..data_tmp").rename(folder / "..data")
    if not (folder / "job.prom").is_symlink():
        (folder / "job.prom").symlink_to("..data/job.prom")


def test_a_config_map_is_read_and_read_anew_when_it_changes(tmp_path: Path) -> None:
    reader = TextFilesReader(tmp_path)
    kubernetes(tmp_path, "2026_01", "gpu_job_x 1\n")
    (first,) = read(tmp_path, reader=reader).families
    kubernetes(tmp_path, "2026_02", "gpu_job_x 2\n")
    (second,) = read(tmp_path, reader=reader).families
    assert [sample.value for family in (first, second) for sample in family.samples] == [1.0, 2.0]


def test_links_within_the_folder_are_followed_and_those_out_of_it_are_not(tmp_path: Path) -> None:
    folder, outside = tmp_path / "jobs", tmp_path / "outside"
    write(outside, {"secret.prom": "gpu_job_secret 1\n"})
    write(folder, {"sub/a": "gpu_job_a 1\n"})
    links = {
        "absolute.prom": (str(folder / "sub" / "a"), ""),
        "relative.prom": ("sub/a", "duplicate_series"),
        "out.prom": (str(outside / "secret.prom"), "link_outside"),
        "up.prom": ("../outside/secret.prom", "link_outside"),
        "detour.prom": ("sub/../../outside/secret.prom", "link_outside"),
        "through.prom": ("way/secret.prom", "link_outside"),
        "beside.prom": (f"{folder}-not/secret.prom", "link_outside"),
        "loop.prom": ("loop.prom", "unreadable"),
        "dangling.prom": ("nothing", "unreadable"),
        "itself.prom": (".", "unreadable"),
        "device.prom": ("/dev/watchdog", "link_outside"),
    }
    for name, (target, _) in links.items():
        (folder / name).symlink_to(target)
    (folder / "way").symlink_to(outside)
    reading = read(folder)
    assert errors(reading) == {name: error for name, (_, error) in links.items()}
    assert [family.name for family in reading.families] == ["gpu_job_a"]


def test_opening_files_leaves_no_descriptor_behind(tmp_path: Path) -> None:
    kubernetes(tmp_path, "2026_01", "gpu_job_x 1\n")
    (tmp_path / "out.prom").symlink_to("/etc/passwd")
    (tmp_path / "large.prom").write_bytes(b"#" * (MAX_BYTES + 1))
    read(tmp_path)
    before = sum(1 for _ in Path("/proc/self/fd").iterdir())
    for _ in range(5):
        read(tmp_path)
    assert sum(1 for _ in Path("/proc/self/fd").iterdir()) == before
