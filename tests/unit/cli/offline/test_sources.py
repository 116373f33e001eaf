"""Where files come from, what the command prints of them, and what it leaves out when it is asked to."""

import bz2
import gzip
import io
import itertools
import json
import lzma
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

import pytest
from tests.offline_files import codes, packed_bug_report, report_on, run_check, sick_bug_report, smi, smi_gpu
from tests.recorded import record

from gpu_triage.documents.stream import TimeLimit
from gpu_triage.errors import ConfigError
from gpu_triage.judge.findings.verdicts import EXIT_COULD_NOT_LOOK, EXIT_FINDINGS, EXIT_SOUND
from gpu_triage.record.bundle import write_recording
from gpu_triage_simulator import load_scenario

pytestmark = pytest.mark.slow

SMI = smi(smi_gpu(facts={"remap pending": "Yes"})).encode()
DMESG = b"[ 1.0] NVRM: Xid (PCI:0000:41:00): 62, x\n"
MANY = {f"etc-{number}": b"x\n" for number in range(150)}


def test_standard_input_is_read() -> None:
    result = run_check("--from", "-", stdin=sick_bug_report().encode())
    assert result.return_value == EXIT_FINDINGS
    assert "standard input: NVIDIA bug report" in result.output


def test_several_files_can_follow_one_option(tmp_path: Path) -> None:
    (tmp_path / "smi.txt").write_bytes(SMI)
    (tmp_path / "dmesg").write_bytes(DMESG)
    files = [str(tmp_path / "smi.txt"), str(tmp_path / "dmesg")]
    found = json.loads(run_check("--from", *files, "--format", "json").output)
    assert [each["name"] for each in found["files"]] == files
    assert found == json.loads(run_check("--from", files[0], "--from", files[1], "--format", "json").output)


def test_a_folder_is_read_with_all_that_it_holds(tmp_path: Path) -> None:
    (tmp_path / "sos_commands/nvidia").mkdir(parents=True)
    (tmp_path / "sos_commands/nvidia/nvidia-smi_-q").write_bytes(SMI)
    (tmp_path / "var/log").mkdir(parents=True)
    (tmp_path / "var/log/messages").write_text("Mar 14 09:50:00 h kernel: NVRM: Xid (PCI:0000:41:00): 62, x\n")
    (tmp_path / "var/log/loop").symlink_to(tmp_path)
    assert codes(report_on(tmp_path)) == ["xid.62", "memory.row_remap_pending"]


def test_of_a_large_folder_or_archive_the_files_named_right_are_read_to_its_end(tmp_path: Path) -> None:
    files = {**MANY, "etc-x": DMESG, "var-log-dmesg": DMESG.replace(b"62", b"79")}
    assert codes(report_on(tar_of(tmp_path / "sos.tar", "w", files))) == ["xid.79"]
    assert codes(report_on(zip_of(tmp_path / "sos.zip", {"etc-y": SMI, **files}))) == ["xid.79"]
    (tmp_path / "folder").mkdir()
    for name, data in files.items():
        (tmp_path / "folder" / name).write_bytes(data)
    report = report_on(tmp_path / "folder")
    assert codes(report) == ["xid.79"]
    assert len(report.files) == 1


def tar_of(path: Path, mode: Literal["w", "w:gz", "w:xz"], files: Mapping[str, bytes]) -> Path:
    with tarfile.open(path, mode) as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return path


def zip_of(path: Path, files: Mapping[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return path


def test_files_of_an_archive_are_read_by_whatever_name_and_without_unpacking_them_to_a_disk(tmp_path: Path) -> None:
    path = tar_of(tmp_path / "case.tar.xz", "w:xz", {"../../what the GPU says": SMI, "a/b.out": DMESG, "empty": b""})
    report = report_on(path)
    assert codes(report) == ["xid.62", "memory.row_remap_pending"]
    assert [(file.name, file.kinds) for file in report.files][:2] == [
        (f"{path}: ../../what the GPU says", ("nvidia-smi -q",)),
        (f"{path}: a/b.out", ("kernel log",)),
    ]
    assert list(tmp_path.iterdir()) == [path]


def test_archives_in_archives_are_read(tmp_path: Path) -> None:
    inner = tar_of(tmp_path / "inner", "w:gz", {"one": SMI}).read_bytes()
    packed = packed_bug_report(sick_bug_report())
    outer = tar_of(tmp_path / "outer", "w", {"logs.tgz": inner, "nvidia-bug-report.log.gz": packed}).read_bytes()
    assert {"xid.119", "memory.row_remap_pending"} <= set(codes(report_on(tmp_path / "outer")))
    assert "xid.119" in run_check("--from", "-", stdin=outer).output
    assert "xid.119" in codes(report_on(zip_of(tmp_path / "case.zip", {"outer.tar": outer})))


def test_a_damaged_archive_is_named_and_what_came_before_it_read(tmp_path: Path) -> None:
    path = tar_of(tmp_path / "case.tar", "w", {"smi": SMI, "dmesg": DMESG * 100})
    path.write_bytes(path.read_bytes()[: len(SMI) + 2000])
    report = report_on(path)
    assert "memory.row_remap_pending" in codes(report)
    assert next(file.note for file in report.files if file.note) == "ends early: the archive is not complete"


PACKED: dict[str, Callable[[Path], object]] = {
    "plain": lambda path: path.write_bytes(DMESG),
    "gzip": lambda path: path.write_bytes(gzip.compress(DMESG)),
    "bzip2": lambda path: path.write_bytes(bz2.compress(DMESG)),
    "xz": lambda path: path.write_bytes(lzma.compress(DMESG)),
    "tar": lambda path: tar_of(path, "w", {"dmesg": DMESG}),
    "tar.gz": lambda path: tar_of(path, "w:gz", {"dmesg": DMESG}),
    "zip": lambda path: zip_of(path, {"dmesg": DMESG}),
    "tar in zip": lambda path: zip_of(path, {"a.tar": tar_of(path, "w", {"dmesg": DMESG}).read_bytes()}),
}


@pytest.mark.parametrize("pack", PACKED.values(), ids=PACKED)
def test_however_a_file_is_packed_the_report_says_when_its_time_was_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pack: Callable[[Path], object]
) -> None:
    pack(tmp_path / "file")
    assert codes(report_on(tmp_path / "file")) == ["xid.62"]
    hours = itertools.count(0.0, 3600.0)
    monkeypatch.setattr("gpu_triage.cli.offline.files_report.TimeLimit", lambda: TimeLimit(now=lambda: next(hours)))
    notes = [file.note for file in report_on(tmp_path / "file").files]
    assert notes == ["ends early: only what could be read within 600 s was read"]


@pytest.mark.parametrize(
    ("files", "method", "note"),
    [
        # zipfile would unpack these at once, and holds the list of files in memory.
        ({"smi.txt": SMI}, zipfile.ZIP_BZIP2, "unpack it first"),
        ({"smi.txt": SMI}, zipfile.ZIP_LZMA, "unpack it first"),
        ({f"{number}": b"" for number in range(20_001)}, zipfile.ZIP_STORED, "its list of files is too long"),
    ],
    ids=["bzip2", "LZMA", "many files"],
)
def test_a_zip_that_takes_memory_is_refused(tmp_path: Path, files: Mapping[str, bytes], method: int, note: str) -> None:
    assert note in report_on(zip_of(tmp_path / "case.zip", files, method)).files[0].note


def test_of_very_many_files_only_the_first_are_read_and_the_report_says_so(tmp_path: Path) -> None:
    report = report_on(tar_of(tmp_path / "logs.tar", "w", {f"dmesg-{number}": DMESG for number in range(2001)}))
    assert report.files[-1].note == "only the first 2000 files were read"


def test_a_zip_is_read_and_a_damaged_one_named(tmp_path: Path) -> None:
    path = zip_of(tmp_path / "case.zip", {"case/smi.txt": SMI, "case/log": sick_bug_report().encode() * 3})
    assert "memory.row_remap_pending" in codes(report_on(path))
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 0xFF
    path.write_bytes(raw)
    assert any(file.note for file in report_on(path).files)


def test_a_recording_is_replayed_at_once(tmp_path: Path) -> None:
    path = tmp_path / "recording.tar.gz"
    write_recording(record(load_scenario("dual-a10"))[0], path)
    report = report_on(path)
    assert {"thermal.sw", "pcie.width"} <= set(codes(report))
    assert report.files[0].kinds == ("recording of gpu-triage",)
    with pytest.raises(ConfigError, match="give it alone"):
        report_on(path, path)


@pytest.mark.parametrize("name", ["missing", "folder"])
def test_what_cannot_be_read_is_refused_by_name(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(ConfigError, match=r"--from: .*name"):
        report_on(tmp_path / name)


@pytest.mark.parametrize("content", [b"", b"\0" * 5000, b"hello\n", bytes(range(256)) * 100, b"\x1f\x8b\x08garbage"])
def test_a_file_that_is_none_of_these_is_named_as_such(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    result = run_check("--from", str(path))
    assert result.return_value == EXIT_COULD_NOT_LOOK
    assert f"{path}: no supported content" in result.output
    assert "none of these files holds what gpu-triage reads" in result.output


def test_exit_codes_are_those_of_check(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text(smi(smi_gpu(facts={"persistence": "Disabled"})))
    assert run_check("--from", str(path)).return_value == EXIT_SOUND
    assert run_check("--from", str(path), "--fail-on", "info").return_value == EXIT_FINDINGS
    assert "1 GPUs, 8 expected" in run_check("--from", str(path), "--expect.gpu-count", "8").output


PRIVATE = ("gpu-7", "example.org", "alice", "secret", "GPU-00000000-1111", "python3", "10.1.2.3", "1650")


def test_a_redacted_report_names_nobody(tmp_path: Path) -> None:
    folder = tmp_path / "alice"
    folder.mkdir()
    log = "[Sat Mar 14 09:50:00 2026] Out of memory: Killed process 4242 (python3) total-vm:1kB\n"
    (folder / "secret.log").write_text(sick_bug_report() + log + "Mar 14 09:50:00 gpu-7 kernel: from 10.1.2.3\n")
    for form in ("text", "json", "lines"):
        output = run_check("--from", str(folder / "secret.log"), "--redact", "--format", form).output
        assert "pcie.width_from_boot" in output
        assert [word for word in PRIVATE if word in output] == []


def test_a_report_holds_no_more_of_a_process_than_its_name(tmp_path: Path) -> None:
    path = tmp_path / "smi"
    processes = ["77 /home/alice/bin/train --token=secret", "78 /usr/bin/other x"]
    path.write_text(smi(smi_gpu(processes=processes), smi_gpu(1, facts={"busy": "0 %"})))
    output = run_check("--from", str(path)).output
    assert "train (77), other (78)" in output
    assert [word for word in ("alice", "token", "secret") if word in output] == []
