"""What files of jobs come to on one page, and what none may hold or reach: names, labels and files of others.

NCCL Inspector's files are in the format of its documentation and source (plugins/profiler/inspector).
"""

import os
import re
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text
from tests.job_files import errors, read, samples, write
from tests.promql.vocabulary import TARGET_LABELS as TARGET_LABELS_OF_RULES
from tests.rig import only, rig
from tests.scrape_limits import TARGET_LABELS

from gpu_triage.read.gpu.identity import GPU_INFO
from gpu_triage.read.host.textfile import (
    MAX_AGE_SECONDS,
    MAX_BYTES,
    MAX_LABELS,
    PREFIX,
    TextFilesReader,
    TextFilesReading,
)
from gpu_triage.read.metrics.contract import PresentGpus
from gpu_triage.read.processes.allocation import GPU_ALLOCATED
from gpu_triage.read.processes.on_gpu import GPU_PROCESS_INFO
from gpu_triage.read.registry import METRICS
from gpu_triage.serve.exposition.encoding import END, Format, encode_families
from gpu_triage_simulator import load_scenario

OWNER = re.compile(r'owner="[^"]*",|,?owner="[^"]*"')

CASES = yaml.safe_load(Path(__file__).with_name("textfile_cases.yml").read_text(encoding="utf-8"))

VALUES = ("", " one", " 1_000", " 0x10", " \u0661", " 1 soon", " 1 2 3", " 1 # {} 1", "{} ", '{a="1"', "-y 1")
LABELS = ("a", "a=1", 'a="1', 'a="1" b="2"', ',a="1"', 'a="1",a="2"', '0a="1"', '__name__="up"', '"a"="1"')
TYPE_LINES = ("", " gpu_job_x", " gpu_job_x number", " gpu_job_x gauge\n# TYPE gpu_job_x counter")
MALFORMED = (
    *(f"gpu_job_x{value}" for value in VALUES),
    *(f"gpu_job_x{{{labels}}} 1" for labels in LABELS),
    *(f"# TYPE{rest}" for rest in TYPE_LINES),
    '{"gpu_job_x"} 1',
)


def page_of(reading: TextFilesReading) -> str:
    """The page in the text format: the series without their owner, and the types of those that have one."""
    page = OWNER.sub("", encode_families(reading.families, Format.TEXT).decode()).replace("{}", "")
    rows = page.splitlines(keepends=True)
    return "".join(row for row in rows if not row.startswith("# HELP") and not row.endswith(" untyped\n"))


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_files_come_to_a_page_that_is_valid_in_both_formats(tmp_path: Path, case: dict[str, Any]) -> None:
    for name, text in case["files"].items():
        (tmp_path / name).write_text(text, newline="")
    failures: list[str] = []
    reading = read(tmp_path, failures=failures)
    assert page_of(reading) == case["page"]
    assert {name: error for name, error in errors(reading).items() if error} == case.get("errors", {})
    assert sorted(failures) == sorted(case.get("errors", {}).values())
    text = encode_families(reading.families, Format.TEXT).decode()
    openmetrics = (encode_families(reading.families, Format.OPENMETRICS) + END).decode()
    types = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert [name for name, count in Counter(types).items() if count > 1] == []
    said = [sample.name for family in parse_text(text) for sample in family.samples]
    strictly = [s.name for family in parse_openmetrics(openmetrics) for s in family.samples]  # type: ignore[no-untyped-call] # not annotated there
    assert len(said) == len(strictly) == sum(not line.startswith("#") for line in case["page"].splitlines())


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
    "ALERTS": ('ALERTS{alertname="GpuLost",alertstate="firing"} 1\n', "name_not_allowed"),
    "a metric of this exporter": ("gpu_up 0\n", "name_not_allowed"),
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


UUID = "5b0d7fbc-5c21-9ac1-4fd7-0a6a7f1f2f3c"
OTHER = "11111111-2222-3333-4444-555555555555"
FILE = f"nccl_inspector_metrics_{UUID}.prom"
OTHER_FILE = f"nccl_inspector_metrics_{OTHER}.prom"
GPUS = PresentGpus({f"GPU-{UUID}": "3", f"GPU-{OTHER}": "4"}, complete=True)

COMMON = (
    'version="v5.1",slurm_job_id="4242",node="nvl72004-T01",gpu="GPU0",comm_name="DP Group 0",n_nodes="1",nranks="4"'
)
COLLECTIVE = f'{COMMON},collective="AllReduce",message_size="4-5GB",algo_proto="Ring_ll"'
P2P = f'{COMMON},p2p_operation="Send",message_size="512-513MB"'
NCCL_2_30 = f"""nccl_bus_bandwidth_gbs{{{COLLECTIVE}}} 678.263
nccl_collective_exec_time_microseconds{{{COLLECTIVE}}} 9498.47
nccl_p2p_bus_bandwidth_gbs{{{P2P}}} 464.9
nccl_p2p_exec_time_microseconds{{{P2P}}} 1154.87
"""
"""As NCCL 2.30 writes it: one line for each operation, size and communicator, without HELP and TYPE."""

OLD = (
    'comm_id="0xd152c00f111816",hostname="pool0-0002",rank="4",slurm_job="bert",slurm_job_id="4242",nranks="8",'
    'n_nodes="1",gpu_device_id="GPU4",collective="AllReduce",coll_sn="{sn}",timestamp="{at}",message_size="2.00GB"'
)


def labels(reading: TextFilesReading, name: str) -> list[Mapping[str, str]]:
    return [sample.labels for sample in samples(reading) if sample.name == name]


def series(reading: TextFilesReading) -> dict[str, float]:
    return {sample.name: sample.value for sample in samples(reading)}


def test_the_file_names_the_gpu_and_the_folder_the_job(tmp_path: Path) -> None:
    write(tmp_path, {f"4242/{FILE}": NCCL_2_30, f"4243/{OTHER_FILE}": NCCL_2_30})
    reading = read(tmp_path, gpus=GPUS)
    assert errors(reading) == {f"4242/{FILE}": "", f"4243/{OTHER_FILE}": ""}
    kept = {"version": "v5.1", "comm_name": "DP Group 0", "n_nodes": "1", "nranks": "4", "message_size": "4-5GB"}
    kept |= {"collective": "AllReduce", "algo_proto": "Ring_ll"}
    assert labels(reading, "nccl_bus_bandwidth_gbs") == [
        # The folder proves the job ID. In the other folder, the same file claims the job of somebody else.
        {**kept, "slurm_job_id": "4242", "gpu": "3", "uuid": f"GPU-{UUID}", "owner": "4242"},
        {**kept, "gpu": "4", "uuid": f"GPU-{OTHER}", "owner": "4243"},
    ]
    assert series(reading) == {
        "nccl_bus_bandwidth_gbs": 678.263,
        "nccl_collective_exec_time_microseconds": 9498.47,
        "nccl_p2p_bus_bandwidth_gbs": 464.9,
        "nccl_p2p_exec_time_microseconds": 1154.87,
    }


def test_labels_of_2_29_that_change_with_each_write_make_no_new_series(tmp_path: Path) -> None:
    reader = TextFilesReader(tmp_path)
    found = []
    for number, at in enumerate(("2025-10-17T03:31:47Z", "2025-10-17T03:32:17Z")):
        named = OLD.format(sn=228924 + number, at=at)
        text = (
            f"nccl_algorithm_bandwidth_gbs{{{named}}} 150.1\nnccl_bus_bandwidth_gbs{{{named}}} 262.7\n"
            f"nccl_collective_exec_time_microseconds{{{named}}} 14306\n"
        )
        write(tmp_path, {FILE: text})
        os.utime(tmp_path / FILE, (time.time() - 60 + 30 * number,) * 2)
        found.append(labels(read(tmp_path, reader=reader, gpus=GPUS), "nccl_bus_bandwidth_gbs"))
    (before,), (after,) = found
    kept = {"comm_id": "0xd152c00f111816", "rank": "4", "nranks": "8", "n_nodes": "1", "collective": "AllReduce"}
    ours = {"gpu": "3", "uuid": f"GPU-{UUID}", "owner": before["owner"]}
    assert before == after == {**kept, "message_size": "2.00GB", **ours}


def test_names_that_later_releases_may_add_are_accepted_without_a_type(tmp_path: Path) -> None:
    write(tmp_path, {FILE: 'nccl_collectives_total{cluster="a",node="b",gpu="GPU0"} 12\n'})
    (family,) = read(tmp_path, gpus=GPUS).families
    assert (family.name, family.type) == ("nccl_collectives_total", "unknown")
    assert set(family.samples[0].labels) == {"gpu", "uuid", "owner"}


HOSTILE = {
    "a pod of somebody else": ('nccl_x{pod="trainer"} 1\n', "label_not_allowed"),
    "another GPU": (f'nccl_x{{uuid="GPU-{OTHER}"}} 1\n', "label_not_allowed"),
    "labels that leave no room for ours": (
        "nccl_x{" + ",".join(f'l{number}="v"' for number in range(MAX_LABELS - 1)) + "} 1\n",
        "too_many_labels",
    ),
    "a name of a communicator with a quote, which NCCL does not escape": ('nccl_x{comm_name="a"b"} 1\n', "malformed"),
    "a file that a second process cut off": ("\0" * 64 + NCCL_2_30, "malformed"),
    "series that differ only by a label that is dropped": (
        'nccl_x{coll_sn="1"} 1\nnccl_x{coll_sn="2"} 1\n',
        "duplicate_series",
    ),
}


@pytest.mark.parametrize(("text", "error"), HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_file_is_rejected_and_no_other(tmp_path: Path, text: str, error: str) -> None:
    write(tmp_path, {FILE: text, OTHER_FILE: NCCL_2_30})
    reading = read(tmp_path, gpus=GPUS)
    assert errors(reading) == {FILE: error, OTHER_FILE: ""}
    assert {labels["gpu"] for labels in labels(reading, "nccl_bus_bandwidth_gbs")} == {"4"}


@pytest.mark.parametrize(
    "name",
    ["a.prom", "nccl_inspector_metrics_.prom", FILE.replace(UUID, f"{UUID}x"), f"x{FILE}", FILE.upper()[:-5] + ".prom"],
)
def test_other_files_have_no_metrics_of_nccl(tmp_path: Path, name: str) -> None:
    write(tmp_path, {name: "nccl_bus_bandwidth_gbs 1\n"})
    assert errors(read(tmp_path, gpus=GPUS)) == {name: "name_not_allowed"}


def test_a_gpu_that_is_not_here_is_an_error_once_all_are_known(tmp_path: Path) -> None:
    write(tmp_path, {FILE: NCCL_2_30, OTHER_FILE: NCCL_2_30})
    reader = TextFilesReader(tmp_path)
    first = {f"GPU-{UUID}": "0"}
    starting = read(tmp_path, reader=reader, gpus=PresentGpus(first))
    assert errors(starting) == {FILE: "", OTHER_FILE: ""}
    assert {sample.labels["gpu"] for sample in samples(starting)} == {"0"}
    started = read(tmp_path, reader=reader, gpus=PresentGpus(first, complete=True))
    assert errors(started) == {FILE: "", OTHER_FILE: "unknown_gpu"}
    # A GPU is lost, and the others move up.
    assert {s.labels["gpu"] for s in samples(read(tmp_path, reader=reader, gpus=GPUS))} == {"3", "4"}


@pytest.mark.parametrize(("age", "error"), [(MAX_AGE_SECONDS - 5, ""), (MAX_AGE_SECONDS + 5, "stale")])
def test_a_file_that_nccl_stopped_writing_is_withdrawn(tmp_path: Path, age: float, error: str) -> None:
    write(tmp_path, {FILE: NCCL_2_30})
    reader = TextFilesReader(tmp_path)
    assert samples(read(tmp_path, reader=reader, gpus=GPUS))
    later = read(tmp_path, reader=reader, gpus=GPUS, later=age)
    assert errors(later) == {FILE: error}
    assert bool(samples(later)) is not bool(error)
    (tmp_path / FILE).touch()
    assert errors(read(tmp_path, reader=reader, gpus=GPUS)) == {FILE: ""}


def test_a_file_from_the_future_is_not_fresh_for_ever(tmp_path: Path) -> None:
    write(tmp_path, {FILE: NCCL_2_30})
    os.utime(tmp_path / FILE, (time.time() + 1e6,) * 2)
    assert errors(read(tmp_path, gpus=GPUS)) == {FILE: "stale"}


def test_a_file_that_is_being_rewritten_keeps_its_content_and_its_time(tmp_path: Path) -> None:
    path, reader = tmp_path / FILE, TextFilesReader(tmp_path)
    write(tmp_path, {FILE: NCCL_2_30})
    written_at = time.time() - 30
    os.utime(path, (written_at, written_at))
    assert len(samples(read(tmp_path, reader=reader, gpus=GPUS))) == 4
    path.write_text(NCCL_2_30.splitlines(keepends=True)[0].replace("678", "500"))
    half = read(tmp_path, reader=reader, gpus=GPUS)
    assert series(half)["nccl_bus_bandwidth_gbs"] == 678.263
    assert half.files[0].modified_at == pytest.approx(written_at)
    path.write_text(NCCL_2_30.replace("678", "500"))
    rewritten = read(tmp_path, reader=reader, gpus=GPUS, later=5.0)
    assert series(rewritten)["nccl_bus_bandwidth_gbs"] == 500.263
    assert len(samples(rewritten)) == 4
    assert rewritten.files[0].modified_at == pytest.approx(path.stat().st_mtime)


def test_a_file_that_is_touched_all_the_time_does_not_keep_old_content(tmp_path: Path) -> None:
    path, reader = tmp_path / FILE, TextFilesReader(tmp_path)
    write(tmp_path, {FILE: NCCL_2_30})
    written_at = time.time() - MAX_AGE_SECONDS + 2
    os.utime(path, (written_at, written_at))
    assert len(samples(read(tmp_path, reader=reader, gpus=GPUS))) == 4
    path.write_text("")
    os.utime(path, (time.time() + 5,) * 2)
    assert samples(read(tmp_path, reader=reader, gpus=GPUS, later=5.5)) == []


def test_the_sampler_knows_the_gpus(tmp_path: Path) -> None:
    with rig(load_scenario("dual-a10"), only("textfile", collector_textfile_directory=tmp_path)) as running:
        running.run(1)
        (uuid,) = [labels["uuid"] for labels, _ in running.series("gpu_up") if labels["gpu"] == "1"]
        name = f"nccl_inspector_metrics_{uuid.removeprefix('GPU-')}.prom"
        write(tmp_path, {name: NCCL_2_30, OTHER_FILE: NCCL_2_30})
        for path in (tmp_path / name, tmp_path / OTHER_FILE):
            os.utime(path, (running.clock.now().wall,) * 2)
        running.run(6)
        assert running.value("nccl_bus_bandwidth_gbs", gpu="1", uuid=uuid) == 678.263
        assert running.value("gpu_exporter_textfile_error_info", file=OTHER_FILE, error="unknown_gpu") == 1
