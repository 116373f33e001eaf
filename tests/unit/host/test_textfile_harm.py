"""A job's file can harm nothing but its own series: not the page, not another job, not an alert, not the exporter."""

from __future__ import annotations

import math
import os
import pwd
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text
from prometheus_client.samples import Sample
from tests.rules.vocabulary import TARGET_LABELS as TARGET_LABELS_OF_RULES

from gpu_triage.encoding import END
from gpu_triage.foreign import encode
from gpu_triage.gpu.identity import GPU_INFO
from gpu_triage.host.textfile import TextFilesReading
from gpu_triage.host.textfile_limits import (
    MAX_FILES,
    MAX_HELP_BYTES,
    MAX_LABELS,
    MAX_LINE_BYTES,
    MAX_NAME_BYTES,
    MAX_SERIES,
    MAX_TOTAL_SERIES,
    MAX_VALUE_BYTES,
    PREFIXES,
)
from gpu_triage.host.textfile_reader import TextFilesReader
from gpu_triage.machine import RealClock, real_machine
from gpu_triage.processes.allocation import GPU_ALLOCATED
from gpu_triage.processes.on_gpu import GPU_PROCESS_INFO
from gpu_triage.registry import METRICS
from gpu_triage.subjects.rounds import HostRound

pytestmark = pytest.mark.slow

GENERIC = {"name", "architecture", "process"}
"""Labels of ours that claim no identity: a job may name a layer, an architecture or a process of its own."""

TARGET_LABELS = ("instance", "job", "namespace", "service", "endpoint", "pod", "container")
"""What the Prometheus operator adds to each series of a scrape."""


def read(directory: Path) -> TextFilesReading:
    machine = real_machine(Path("/sys"), Path("/proc"), None)
    return TextFilesReader(directory).read(HostRound(machine, RealClock().now()))


def errors(reading: TextFilesReading) -> dict[str, tuple[str, ...]]:
    return {file.name: file.errors for file in reading.files}


def samples(reading: TextFilesReading) -> list[Sample]:
    return [sample for family in reading.families for sample in family.samples]


def write(directory: Path, files: Mapping[str, str]) -> None:
    """Files as jobs leave them; those in a sub-folder belong to it."""
    directory.mkdir(exist_ok=True)
    directory.chmod(0o755)
    for name, text in files.items():
        path = directory / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)


def labelled(count: int) -> str:
    return "gpu_job_x{" + ",".join(f'l{number}="v"' for number in range(count)) + "} 1\n"


REFUSED = {
    "40 labels": (labelled(40), "too_many_labels"),
    "one label too many": (labelled(MAX_LABELS + 1), "too_many_labels"),
    "a label value of 2 KiB": (f'gpu_job_x{{a="{"v" * 2048}"}} 1\n', "value_too_long"),
    "a label value of too many bytes": (f'gpu_job_x{{a="{"ü" * (MAX_VALUE_BYTES // 2 + 1)}"}} 1\n', "value_too_long"),
    "a label name of 250 characters": (f'gpu_job_x{{{"n" * 250}="v"}} 1\n', "name_too_long"),
    "a metric name of 250 characters": (f"gpu_job_{'n' * 250} 1\n", "name_too_long"),
    "a sample name that its suffix makes too long": (
        f'# TYPE gpu_job_{"n" * 90} histogram\ngpu_job_{"n" * 90}_bucket{{le="+Inf"}} 1\n',
        "name_too_long",
    ),
    "a HELP of 2 KiB": (f"# HELP gpu_job_x {'h' * 2048}\ngpu_job_x 1\n", "help_too_long"),
    "a line of 20 KiB": (f'gpu_job_x{{a="{"v" * 20_000}"}} 1\n', "line_too_long"),
    "a recorded series that mutes a page": ('instance_gpu:gpu_busy:ratio5m{gpu="0"} 0\n', "name_not_allowed"),
    "up": ("up 0\n", "name_not_allowed"),
    "ALERTS": ('ALERTS{alertname="GpuLost",alertstate="firing"} 1\n', "name_not_allowed"),
    "a metric of the scrape": ("scrape_duration_seconds 0\n", "name_not_allowed"),
    "a metric of node_exporter": ("node_load1 0\n", "name_not_allowed"),
    "a metric of dcgm-exporter": ("DCGM_FI_DEV_GPU_UTIL 0\n", "name_not_allowed"),
    "a metric of this exporter": ("gpu_up 0\n", "name_not_allowed"),
    "a metric of this process": ("process_start_time_seconds 0\n", "name_not_allowed"),
    "a recorded series of jobs": ("gpu_job_steps:rate5m 1\n", "name_not_allowed"),
    "a name that only resembles": ("gpu_jobs 1\n", "name_not_allowed"),
    "the prefix in capitals": ("GPU_JOB_x 1\n", "name_not_allowed"),
    "a family that only its samples excuse": (
        '# TYPE gpu_job histogram\ngpu_job_bucket{le="+Inf"} 1\ngpu_job_count 1\n',
        "name_not_allowed",
    ),
    "a type of somebody else's": ("# TYPE up gauge\ngpu_job_x 1\n", "name_not_allowed"),
    "a HELP of somebody else's": ("# HELP gpu_up Down.\ngpu_job_x 1\n", "name_not_allowed"),
    "one foreign name among many": ("gpu_job_x 1\ngpu_job_y 2\nup 0\n", "name_not_allowed"),
}


@pytest.mark.parametrize(("text", "error"), REFUSED.values(), ids=REFUSED)
def test_a_file_that_could_harm_others_is_refused_by_name(tmp_path: Path, text: str, error: str) -> None:
    write(tmp_path, {"bad.prom": text, "good.prom": "gpu_job_fine 1\n"})
    reading = read(tmp_path)
    assert errors(reading) == {"bad.prom": (error,), "good.prom": ()}
    assert [sample.name for sample in samples(reading)] == ["gpu_job_fine"]


CLAIMS = (
    *TARGET_LABELS,
    *sorted(TARGET_LABELS_OF_RULES),
    "Instance",
    "hostname",
    "exported_instance",
    "gpu",
    "GPU",
    "gpu_id",
    "uuid",
    "UUID",
    "mig_uuid",
    "pci_bus_id",
    "minor_number",
    "workload_pod",
    "pod_uid",
    "container_id",
    "user",
    "owner",
    "account",
    "pid",
    "job_id",
    "slurm_job_id",
    "alertname",
    "severity",
)


@pytest.mark.parametrize("label", CLAIMS)
def test_a_label_that_claims_an_identity_is_refused(tmp_path: Path, label: str) -> None:
    write(tmp_path, {"bad.prom": f'gpu_job_x{{{label}="other"}} 1\n'})
    reading = read(tmp_path)
    assert errors(reading) == {"bad.prom": ("label_not_allowed",)}
    assert samples(reading) == []


def test_every_label_by_which_the_exporter_tells_gpus_and_owners_apart_is_refused(tmp_path: Path) -> None:
    ours = {label for spec in (GPU_INFO, GPU_PROCESS_INFO, GPU_ALLOCATED) for label in spec.labels} - GENERIC
    write(tmp_path, {f"{label}.prom": f'gpu_job_x{{{label}="1"}} 1\n' for label in ours})
    assert errors(read(tmp_path)) == {f"{label}.prom": ("label_not_allowed",) for label in ours}


def test_no_metric_of_the_exporter_has_a_name_that_jobs_may_take() -> None:
    assert [spec.name for spec in METRICS if spec.name.startswith(PREFIXES)] == []


STEPS = 'gpu_job_steps_total{job_name="bert"} %d\n'


def test_two_owners_of_one_job_name_have_a_series_each(tmp_path: Path) -> None:
    write(tmp_path, {"mallory/a.prom": STEPS % 0, "alice/z.prom": STEPS % 1200})
    reading = read(tmp_path)
    assert errors(reading) == {"alice/z.prom": (), "mallory/a.prom": ()}
    assert {sample.labels["owner"]: sample.value for sample in samples(reading)} == {"alice": 1200, "mallory": 0}
    assert all(sample.labels["job_name"] == "bert" for sample in samples(reading))


ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")


def owners(reading: TextFilesReading) -> dict[str, str]:
    return {file.name: file.owner for file in reading.files}


@ROOT_ONLY
def test_in_a_directory_that_others_can_write_to_the_owner_is_the_user_whatever_the_folder_is_called(
    tmp_path: Path,
) -> None:
    write(tmp_path, {"own.prom": "gpu_job_x 1\n", "alice/claimed.prom": "gpu_job_x 1\n", "4242/job.prom": STEPS % 1})
    tmp_path.chmod(0o1777)
    os.chown(tmp_path / "own.prom", 4711, -1)
    os.chown(tmp_path / "alice", 4712, -1)
    assert owners(read(tmp_path)) == {"4242/job.prom": "4242", "alice/claimed.prom": "4712", "own.prom": "4711"}


@ROOT_ONLY
def test_a_folder_that_a_prolog_gave_to_the_jobs_user_stays_the_jobs(tmp_path: Path) -> None:
    write(tmp_path, {"4242/job.prom": STEPS % 1})
    os.chown(tmp_path / "4242", 4711, -1)
    os.chown(tmp_path / "4242/job.prom", 4711, -1)
    assert owners(read(tmp_path)) == {"4242/job.prom": "4242"}


def test_a_file_in_the_directory_itself_belongs_to_its_user(tmp_path: Path) -> None:
    write(tmp_path, {"own.prom": "gpu_job_x 1\n"})
    assert owners(read(tmp_path)) == {"own.prom": pwd.getpwuid(os.geteuid()).pw_name}


@ROOT_ONLY
def test_whoever_links_to_a_file_of_another_owns_what_is_published_of_it(tmp_path: Path) -> None:
    write(tmp_path, {"victim.prom": STEPS % 1})
    tmp_path.chmod(0o1777)
    (tmp_path / "000.prom").symlink_to("victim.prom")
    os.lchown(tmp_path / "000.prom", 4711, -1)
    reading = read(tmp_path)
    assert errors(reading) == {"000.prom": (), "victim.prom": ()}
    assert len({sample.labels["owner"] for sample in samples(reading)}) == 2


def test_a_link_in_the_folder_of_one_job_reaches_no_file_of_another(tmp_path: Path) -> None:
    write(tmp_path, {"victim/.hidden": STEPS % 1, "mallory/own.prom": "gpu_job_x 1\n"})
    (tmp_path / "mallory/link.prom").symlink_to(tmp_path / "victim/.hidden")
    (tmp_path / "mallory/up.prom").symlink_to("../victim/.hidden")
    (tmp_path / "linked").symlink_to("victim")
    assert errors(read(tmp_path)) == {
        "mallory/link.prom": ("link_outside",),
        "mallory/own.prom": (),
        "mallory/up.prom": ("link_outside",),
    }


def test_a_type_that_one_owner_claims_costs_no_other_a_series(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "a/1.prom": "# TYPE gpu_job_steps_total gauge\ngpu_job_steps_total 1\n",
            "b/1.prom": "# TYPE gpu_job_steps_total counter\ngpu_job_steps_total 2\n",
            "c/1.prom": "# TYPE gpu_job_seconds histogram\n"
            'gpu_job_seconds_bucket{le="+Inf"} 3\ngpu_job_seconds_sum 3\ngpu_job_seconds_count 3\n',
            "d/1.prom": "# TYPE gpu_job_seconds_count gauge\ngpu_job_seconds_count 4\n",
        },
    )
    reading = read(tmp_path)
    assert set(errors(reading).values()) == {()}
    found = {(sample.labels["owner"], sample.name): sample.value for sample in samples(reading)}
    assert found == {
        ("a", "gpu_job_steps_total"): 1,
        ("b", "gpu_job_steps_total"): 2,
        ("c", "gpu_job_seconds_bucket"): 3,
        ("c", "gpu_job_seconds_sum"): 3,
        ("c", "gpu_job_seconds_count"): 3,
        ("d", "gpu_job_seconds_count"): 4,
    }
    assert {family.type for family in reading.families} == {"unknown"}


def many(count: int) -> str:
    return "".join(f'gpu_job_x{{n="{number}"}} 1\n' for number in range(count))


def test_an_owner_who_takes_all_room_takes_none_from_another(tmp_path: Path) -> None:
    greedy = {f"000-greedy/{number:03}.prom": many(MAX_SERIES) for number in range(10)}
    flooding = {f"001-flooding/{number:03}.prom": "gpu_job_x 1\n" for number in range(2 * MAX_FILES)}
    modest = {f"z/{number}.prom": f'gpu_job_y{{file="{number}"}} 1\n' + many(100) for number in range(1)}
    write(tmp_path, {**greedy, **flooding, **modest})
    reading = read(tmp_path)
    assert errors(reading)["z/0.prom"] == ()
    assert sum(sample.labels["owner"] == "z" for sample in samples(reading)) == 101
    assert len(samples(reading)) <= MAX_TOTAL_SERIES
    assert len(reading.files) == MAX_FILES
    assert errors(reading)["000-greedy/000.prom"] == ()


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
    assert set(errors(read(tmp_path)).values()) <= {("line_too_long",), ("malformed",), ("total_too_large",)}
    assert time.process_time() - began < 2


@pytest.fixture(scope="module")
def chart(repository: Path) -> Mapping[str, Any]:
    """How the chart's monitors scrape by default."""
    values: Mapping[str, Any] = yaml.safe_load((repository / "helm/gpu-triage-exporter/values.yaml").read_text())
    scrape: Mapping[str, Any] = values["scrape"]
    return scrape


def test_the_bounds_of_a_file_lie_below_the_limits_of_the_charts_scrape(chart: Mapping[str, Any]) -> None:
    own = ("__name__", "owner")
    assert MAX_LABELS + len(own) + len(TARGET_LABELS) <= chart["labelLimit"]
    # A label that the target has as well is renamed.
    assert len("exported_") + MAX_NAME_BYTES <= chart["labelNameLengthLimit"]
    assert max(MAX_NAME_BYTES, MAX_VALUE_BYTES) <= chart["labelValueLengthLimit"]
    of_16_gpus, of_the_files = 6000, 3 * MAX_FILES
    assert of_16_gpus + of_the_files + MAX_TOTAL_SERIES <= chart["sampleLimit"]
    assert chart["honorLabels"] is False


def obeys(reading: TextFilesReading, chart: Mapping[str, Any]) -> None:
    """Check a page of jobs' files against the limits of a scrape, in both formats."""
    text = encode(reading.families, openmetrics=False).decode()
    openmetrics = (encode(reading.families, openmetrics=True) + END).decode()
    found = [sample for family in parse_text(text) for sample in family.samples]
    assert openmetrics.count("\n") - openmetrics.count("\n# ") - openmetrics.startswith("# ") == len(found)
    assert len(found) <= MAX_TOTAL_SERIES
    for sample in found:
        assert sample.name.startswith(PREFIXES)
        assert ":" not in sample.name
        assert len(sample.labels) + 1 + len(TARGET_LABELS) <= chart["labelLimit"]
        assert all(len(name.encode()) <= chart["labelNameLengthLimit"] for name in sample.labels)
        values = (sample.name, *sample.labels.values())
        assert all(len(value.encode()) <= chart["labelValueLengthLimit"] for value in values)
        assert not {*TARGET_LABELS, "gpu", "uuid", "user"} & sample.labels.keys()
        assert sample.timestamp is None
    series = [(sample.name, tuple(sorted(sample.labels.items()))) for sample in found]
    assert len(series) == len(set(series))
    assert len(text) + (1 << 20) < 10 << 20


NAMES = st.one_of(
    st.sampled_from(["gpu_job_x", "gpu_job_x_total", "gpu_job_x_bucket", "gpu_job_x_count", "gpu_job_x_created", "up"]),
    st.builds(lambda count: "gpu_job_" + "n" * count, st.integers(0, 300)),
)
LABEL_NAMES = st.one_of(
    st.sampled_from(["le", "quantile", "rank", "instance", "owner", "__name__", "ü", ""]),
    st.builds(lambda count: "n" * count, st.integers(1, 300)),
    st.builds("l{}".format, st.integers(0, 60)),
)
LABEL_VALUES = st.one_of(
    st.sampled_from(["", "+Inf", "0.5", "1", '\\"', "\\\\", "\\n", "\\x", "\x00", "\r", "\u2028"]),
    st.text(st.characters(exclude_characters='"\\\n', codec="utf-8"), max_size=20),
    st.builds(lambda count: "v" * count, st.integers(0, 3000)),
)
VALUES = st.one_of(
    st.floats().map(str),
    st.sampled_from(["NaN", "+Inf", "-Inf", "1e999", "1_0", "0x1", "", "1 2", "1 # {} 1", "\u0661"]),
)
LABELS = st.lists(st.tuples(LABEL_NAMES, LABEL_VALUES), max_size=50)
LINES = st.one_of(
    st.builds(
        lambda name, labels, value: f"{name}{{{','.join(f'{k}={chr(34)}{v}{chr(34)}' for k, v in labels)}}} {value}",
        NAMES,
        LABELS,
        VALUES,
    ),
    st.builds("{} {}".format, NAMES, VALUES),
    st.builds("# TYPE {} {}".format, NAMES, st.sampled_from(["counter", "gauge", "histogram", "summary", "untyped"])),
    st.builds("# HELP {} {}".format, NAMES, LABEL_VALUES),
    st.sampled_from(["# EOF", "#", "# UNIT gpu_job_x seconds", "{", "gpu_job_x{", "\t", "gpu_job_x{} 1", "\x00"]),
    st.text(max_size=40),
)
FILES = st.dictionaries(
    st.sampled_from(["a/1.prom", "a/2.prom", "b/1.prom", "c.prom"]), st.lists(LINES, max_size=8).map("\n".join)
)


@settings(max_examples=300)
@given(files=FILES)
def test_whatever_files_hold_the_page_obeys_the_charts_limits(
    tmp_path_factory: pytest.TempPathFactory, chart: Mapping[str, Any], files: dict[str, str]
) -> None:
    directory = tmp_path_factory.mktemp("jobs")
    write(directory, {name: text.encode("utf-8", "replace").decode() for name, text in files.items()})
    obeys(read(directory), chart)


LARGEST = {
    "the most bytes": lambda n: (
        f'gpu_job_x{{n="{n}",{",".join(f"{k}={chr(34)}{chr(92)}x{chr(34)}" for k in "abcd")}}} 1'
    ),
    "the longest names": lambda n: f"gpu_job_{n:0{MAX_NAME_BYTES - 8}} 1",
    "the longest values": lambda n: f'gpu_job_x{{n="{n:0{MAX_VALUE_BYTES}}"}} 1',
    "backslashes": lambda n: f'gpu_job_x{{n="{n}{chr(92) * 2 * 90}"}} 1',
    "many histograms": lambda n: f"# TYPE gpu_job_{n} histogram\ngpu_job_{n}_count 1",
}


@pytest.mark.parametrize("line", LARGEST.values(), ids=LARGEST)
def test_the_largest_page_that_jobs_can_make_fits_into_a_scrape(
    tmp_path: Path, chart: Mapping[str, Any], line: Any
) -> None:
    each = min(MAX_SERIES, (1 << 20) // (len(line(10_000)) + 1))
    files = math.ceil(MAX_TOTAL_SERIES / each) + 1
    write(
        tmp_path,
        {
            f"{'owner' * 20}{file}/jobs.prom": "\n".join(
                line(number) for number in range(file * each, (file + 1) * each)
            )
            for file in range(files)
        },
    )
    reading = read(tmp_path)
    assert len(samples(reading)) > 1000
    obeys(reading, chart)


def test_the_page_parses_strictly_when_the_files_are_honest(tmp_path: Path) -> None:
    text = (
        "# HELP gpu_job_steps_total Steps.\n# TYPE gpu_job_steps_total counter\n"
        'gpu_job_steps_total{rank="0"} 5\ngpu_job_steps_total{rank="1"} 6\n'
        "# TYPE gpu_job_steps_created gauge\n"
        'gpu_job_steps_created{rank="0"} 1.7e9\ngpu_job_steps_created{rank="1"} 1.7e9\n'
        "# TYPE gpu_job_seconds histogram\n"
        'gpu_job_seconds_bucket{le="0.5"} 1\ngpu_job_seconds_bucket{le="+Inf"} 2\n'
        "gpu_job_seconds_sum 3\ngpu_job_seconds_count 2\n"
    )
    write(tmp_path, {"a/1.prom": text, "b/1.prom": text})
    page = (encode(read(tmp_path).families, openmetrics=True) + END).decode()
    kinds = {family.name: family.type for family in parse_openmetrics(page)}  # type: ignore[no-untyped-call] # not annotated there
    assert kinds == {"gpu_job_steps": "counter", "gpu_job_seconds": "histogram"}


def test_a_long_line_is_long_in_characters_that_no_honest_line_needs() -> None:
    longest = MAX_NAME_BYTES + MAX_LABELS * (MAX_NAME_BYTES + len('="",') + 2 * MAX_VALUE_BYTES) + len("{} ") + 30
    assert longest < MAX_LINE_BYTES
    assert len("# HELP  ") + MAX_NAME_BYTES + 2 * MAX_HELP_BYTES < MAX_LINE_BYTES
