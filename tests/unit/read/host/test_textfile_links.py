"""Files of jobs behind symbolic links: a mounted ConfigMap is read, and nothing outside the folder."""

from __future__ import annotations

from pathlib import Path

from tests.job_files import errors

from gpu_triage.machine import RealClock, real_machine
from gpu_triage.read.host.textfile_reader import MAX_BYTES, TextFilesReader, TextFilesReading
from gpu_triage.read.metrics.rounds import HostRound


def host_round() -> HostRound:
    return HostRound(real_machine(Path("/sys"), Path("/proc"), None), RealClock().now())


def read(directory: Path) -> TextFilesReading:
    return TextFilesReader(directory).read(host_round())


def kubernetes(folder: Path, version: str, text: str) -> None:
    """Put a version of a ConfigMap where the kubelet would, as it would."""
    (folder / f"..{version}").mkdir()
    (folder / f"..{version}" / "job.prom").write_text(text)
    (folder / "..data_tmp").symlink_to(f"..{version}")
    (folder / "..data_tmp").rename(folder / "..data")
    if not (folder / "job.prom").is_symlink():
        (folder / "job.prom").symlink_to("..data/job.prom")


def test_a_config_map_is_read_and_read_anew_when_it_changes(tmp_path: Path) -> None:
    host = host_round()
    reader = TextFilesReader(tmp_path)
    kubernetes(tmp_path, "2026_01", "gpu_job_x 1\n")
    (first,) = reader.read(host).families
    kubernetes(tmp_path, "2026_02", "gpu_job_x 2\n")
    (second,) = reader.read(host).families
    assert [sample.value for family in (first, second) for sample in family.samples] == [1.0, 2.0]
    assert host.failures == []


def test_links_within_the_folder_are_followed_and_those_out_of_it_are_not(tmp_path: Path) -> None:
    folder, outside = tmp_path / "jobs", tmp_path / "outside"
    (folder / "sub").mkdir(parents=True)
    outside.mkdir()
    (outside / "secret.prom").write_text("gpu_job_secret 1\n")
    (folder / "sub" / "a").write_text("gpu_job_a 1\n")
    links = {
        "relative.prom": "sub/a",
        "absolute.prom": str(folder / "sub" / "a"),
        "out.prom": str(outside / "secret.prom"),
        "up.prom": "../outside/secret.prom",
        "detour.prom": "sub/../../outside/secret.prom",
        "through.prom": "way/secret.prom",
        "beside.prom": f"{folder}-not/secret.prom",
        "loop.prom": "loop.prom",
        "dangling.prom": "nothing",
        "itself.prom": ".",
        "device.prom": "/dev/watchdog",
    }
    for name, target in links.items():
        (folder / name).symlink_to(target)
    (folder / "way").symlink_to(outside)
    reading = read(folder)
    assert errors(reading) == {
        "absolute.prom": (),
        "relative.prom": ("duplicate_series",),
        "out.prom": ("link_outside",),
        "up.prom": ("link_outside",),
        "detour.prom": ("link_outside",),
        "through.prom": ("link_outside",),
        "beside.prom": ("link_outside",),
        "loop.prom": ("unreadable",),
        "dangling.prom": ("unreadable",),
        "itself.prom": ("unreadable",),
        "device.prom": ("link_outside",),
    }
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
