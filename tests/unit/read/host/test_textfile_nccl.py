"""NCCL Inspector's files, in the format of its documentation and source (plugins/profiler/inspector)."""

import os
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.job_files import errors, read, samples, write
from tests.rig import only, rig

from gpu_triage.read.host.textfile_reader import MAX_AGE_SECONDS, MAX_LABELS, TextFilesReader, TextFilesReading
from gpu_triage.read.metrics.rounds import PresentGpus
from gpu_triage_simulator import load_scenario

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


def nccl_2_29(sn: int, at: str) -> str:
    labels = OLD.format(sn=sn, at=at)
    return (
        f"nccl_algorithm_bandwidth_gbs{{{labels}}} 150.1\nnccl_bus_bandwidth_gbs{{{labels}}} 262.7\n"
        f"nccl_collective_exec_time_microseconds{{{labels}}} 14306\n"
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
        write(tmp_path, {FILE: nccl_2_29(228924 + number, at)})
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
    "a metric of this exporter": ("gpu_up 0\n", "name_not_allowed"),
    "a pod of somebody else": ('nccl_x{pod="trainer"} 1\n', "label_not_allowed"),
    "another GPU": (f'nccl_x{{uuid="GPU-{OTHER}"}} 1\n', "label_not_allowed"),
    "another owner": ('nccl_x{owner="alice"} 1\n', "label_not_allowed"),
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
