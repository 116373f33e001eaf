"""A host recorded and played again: the same page and verdict, without the names of boards, hosts and people."""

import ctypes
import re
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.gathered import every
from tests.host_tree import HostTree
from tests.parts import some
from tests.recorded import KEY, SECONDS, captured, record, recorder, replayed
from tests.rig import pair, scenario_with

from gpu_triage.cli.main import group
from gpu_triage.cli.measure import judge_recording
from gpu_triage.cli.run import run_cli
from gpu_triage.driver.kernel.files import (
    hooked,
    is_present,
    names_in,
    read_link,
    read_names,
    read_text,
    real_path,
    refusal,
)
from gpu_triage.errors import HostReadFailed, RecordingError
from gpu_triage.judge.report.machine_readable import report_from_json
from gpu_triage.judge.report.report import Report
from gpu_triage.machine import Machine, SystemNvml
from gpu_triage.options.config import Config
from gpu_triage.record.bundle import prepare_target, read_recording, write_recording
from gpu_triage.record.calls import CallKeys
from gpu_triage.record.masking import Masker, kernel_records, masked
from gpu_triage.record.recording import Recording, TimedAnswer
from gpu_triage.record.replay import ReplayedFiles, ReplayedNvml
from gpu_triage_simulator import Scenario, VirtualClock, load_scenario, simulated_machine
from gpu_triage_simulator.scenario_file import SCENARIOS

pytestmark = pytest.mark.slow

OF_THE_PROCESS = ("gpu_exporter_collector_duration_seconds", "process_")


def _samples(page: str) -> list[str]:
    lines = [line for line in page.splitlines() if line and line[0] != "#" and not line.startswith(OF_THE_PROCESS)]
    # Since when the judge has seen a finding depends on when it began to look.
    return [line.rpartition(" ")[0] if "finding_since_timestamp" in line else line for line in lines]


def _masked(page: str, masker: Masker, serials: set[str]) -> str:
    for serial in serials:
        page = page.replace(serial, masker.digits(serial.encode()).decode())
    return masker.data(page.encode()).decode()


ROUND_TRIPS = ["dual-a10", "h100-8", "h100-mig", "v100-old-driver", "no-driver", "lost-before-start"]
BAD_DAY = (
    'at = "3s"\ngpu = 1\neffect = { kind = "xid", code = 31, times = 2 }',
    'at = "5s"\ngpu = 1\neffect = { kind = "xid", code = 31, reported_by = "nvml" }',
    'at = "6s"\ngpu = 0\neffect = { kind = "lost" }',
    'at = "7s"\neffect = { kind = "disk", device = "nvme0n1", busy = 0.1 }',
    'at = "8s"\ngpu = 1\neffect = { kind = "error", function = "nvmlDeviceGetTemperature", code = "UNKNOWN" }',
)


def _assert_replayed_alike(scenario: Scenario, path: Path) -> None:
    recording, page, serials = record(scenario)
    write_recording(recording, path)
    with replayed(path) as host:
        host.run(SECONDS)
        expected, found = _samples(_masked(page, Masker(KEY), serials)), _samples(host.page())
        assert [line for line in found if line not in expected] == []
        assert [line for line in expected if line not in found] == []


@pytest.mark.parametrize("name", some(ROUND_TRIPS, usual=("dual-a10", "h100-mig", "no-driver")))
def test_a_replayed_host_publishes_what_the_recorded_one_did(tmp_path: Path, name: str) -> None:
    _assert_replayed_alike(load_scenario(name), tmp_path / "recording")


def test_what_happened_while_it_was_recorded_happens_again_once(tmp_path: Path) -> None:
    _assert_replayed_alike(scenario_with(tmp_path, "dual-a10", *BAD_DAY), tmp_path / "recording.tar.gz")


def test_a_replay_stays_as_the_recording_ended(recorded: Path) -> None:
    with replayed(recorded) as host:
        for _ in range(10):
            host.run(0)
            host.clock.advance(30)
        host.run(0)
        assert host.value("gpu_up", gpu="0") == 1
        assert host.value("gpu_exporter_simulated") == 1
        assert host.value("gpu_memory_used_bytes", gpu="0") is not None


def test_no_name_of_a_board_is_in_a_recording(recorded: Path) -> None:
    everything = "".join(part.read_text() for part in recorded.iterdir())
    gpus = load_scenario("dual-a10").gpus
    assert [gpu.uuid for gpu in gpus if gpu.uuid in everything] == []
    assert [gpu.serial for gpu in gpus if gpu.serial in everything] == []
    assert "GPU-" in everything


def test_no_name_of_a_host_or_person_is_in_a_recording() -> None:
    # That host's file server is filer1.example.net, at 192.0.2.21.
    recording, *_ = record(pair("h100-8"), Masker(KEY, hosts=["node17"], users=["alice"]))
    mounts = b"".join(
        out or b"" for state in recording.files if state.key.endswith("/mountstats") for out in state.outs
    )
    assert b"/mnt/datasets" in mounts
    assert b"filer1" not in mounts


def test_command_lines_and_environments_are_never_recorded() -> None:
    with simulated_machine(load_scenario("dual-a10"), clock=VirtualClock()) as simulated:
        with captured(simulated.machine) as capture:
            for name in ("cmdline", "environ", "numa_maps", "comm"):
                secret = simulated.machine.procfs / "24819" / name
                secret.write_text("--password=hunter2")
                assert read_text(secret) == "--password=hunter2"
            recording = masked(capture.captured(), Masker(KEY))
        assert read_text(secret) == "--password=hunter2"
        assert masked(capture.captured(), Masker(KEY)).files == recording.files
    assert [state.key for state in recording.files if b"--password=hunter2" in state.outs] == ["text proc/24819/comm"]


def test_what_could_not_be_read_cannot_be_read_in_a_replay_either(host: HostTree) -> None:
    """Each question has its own answer: none is derived from another's."""
    host.write({"proc/a": "1", "proc/later": "1"})
    host.spoil("proc/broken")
    host.link("sys/class/eth0", "../devices/eth0")
    host.write({"sys/devices/eth0/mtu": "1500\n"})
    clock = VirtualClock()
    machine = Machine(SystemNvml(), host.sysfs, host.procfs, None, clock)

    def answers(machine: Machine) -> list[object]:
        with pytest.raises(HostReadFailed) as failed:
            read_text(machine.procfs / "broken")
        link = machine.sysfs / "class" / "eth0"
        return [
            failed.value.reason,
            [read_text(machine.procfs / name) for name in ("a", "later", "nothing")],
            (read_names(machine.procfs), read_names(machine.sysfs, folders=True), names_in(machine.sysfs / "none")),
            (read_link(link), real_path(link), read_text(link / "mtu"), is_present(link), is_present(link / "x")),
            (refusal(link / "mtu"), refusal(link / "x")),
        ]

    with captured(machine) as capture:
        first = answers(capture.machine)
        clock.advance(10)
        (host.procfs / "later").unlink()
        second = answers(capture.machine)
        recording = masked(capture.captured(), Masker(KEY))
    assert second != first
    elapsed = [0.0]
    roots = {"sys": Path("/nowhere/sys"), "proc": Path("/nowhere/proc")}
    replay = replace(machine, sysfs=roots["sys"], procfs=roots["proc"])
    with hooked(roots, ReplayedFiles(recording, lambda: elapsed[0])):
        for elapsed[0], expected in ((0.0, first), (9.9, first), (10.0, second), (99.0, second)):
            assert answers(replay) == expected
        assert is_present(replay.sysfs / "class")
        assert not is_present(replay.sysfs / "block")


ID = "0123abcd-0000-1111-2222-333344445555"
MASKED = {
    "an address": ("mount at 192.168.7.12 now", r"mount at 10\.\d+\.\d+\.\d+ now"),
    "an address with a port": ("addr=192.168.7.12,clientaddr=192.168.7.13", r"addr=10\.[\d.]+,clientaddr=10\.[\d.]+"),
    "an address of version 6": ("addr=2001:db8::7:12,x", r"addr=fd00::[0-9a-f]{4},x"),
    "this host": ("0.0.0.0 and 127.0.0.1", r"0\.0\.0\.0 and 127\.0\.0\.1"),
    "a version of four": ("driver 580.95.05.01.2", r"driver 580\.95\.05\.01\.2"),
    "a bus address": ("0000:65:00.0", r"0000:65:00\.0"),
    "a host's name": ("node17 went", r"host-[0-9a-f]{8} went"),
    "a name within another": ("node171 and xnode17", r"node171 and xnode17"),
    "a person": ("/home/bob/x and alice", r"/home/user-[0-9a-f]{8}/x and user-[0-9a-f]{8}"),
    "a file server": ("device nas.corp:/x mounted", r"device host-[0-9a-f]{8}:/x mounted"),
    "a pod": (f"kubepods-pod{ID}.slice", rf"kubepods-pod{ID}\.slice"),
    "a board": (f"GPU-{ID}", r"GPU-(?!0123abcd)[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"),
}


@pytest.mark.parametrize(("text", "pattern"), MASKED.values(), ids=MASKED.keys())
def test_names_are_replaced_and_nothing_else(text: str, pattern: str) -> None:
    masker = Masker(KEY, hosts=["node17"], users=["alice", "an"])
    assert re.fullmatch(pattern, masker.text(text))
    assert masker.text(text) == masker.text(text)


def test_another_key_makes_other_names() -> None:
    uuid = f"GPU-{ID}".encode()
    assert len({Masker(KEY).data(uuid), Masker(b"other").data(uuid), uuid}) == 3


def test_a_host_without_the_library_is_replayed_as_one(tmp_path: Path, recording: Recording) -> None:
    write_recording(replace(recording, answers=(), kmsg=None), tmp_path / "recording")
    with replayed(tmp_path / "recording") as host:
        host.run(3)
        assert host.series("gpu_driver_error_info", error="library_not_found")
        assert host.value("gpu_devices", source="pci") == 2
        assert host.value("gpu_exporter_collector_success", collector="xid") is None


def test_an_answer_that_does_not_fit_into_the_callers_memory_is_not_written_there(recording: Recording) -> None:
    small, large = ctypes.c_uint(7), (ctypes.c_uint * 4)(1, 2, 3, 4)
    keys = CallKeys()
    answer = TimedAnswer(0.0, keys.describe("nvmlX", (ctypes.byref(small),))[0], 0, (bytes(large),))
    library: Any = ReplayedNvml(replace(recording, answers=(answer,)), lambda: 0.0).load()
    assert library.nvmlX(ctypes.byref(small)) == 7
    assert small.value == 7


@pytest.mark.parametrize(
    ("target", "seconds"),
    [
        *((target, "1s") for target in ("taken", "taken/file/below", "nowhere/x.tar.gz", "folder.tar.gz")),
        *(("new", seconds) for seconds in ("1", "1h")),
    ],
)
def test_what_cannot_be_recorded_is_refused_before_the_host_is_watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], target: str, seconds: str
) -> None:
    def nobody(_config: Config, _stack: ExitStack, _at: float) -> Machine:
        raise AssertionError("watched")

    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").touch()
    (tmp_path / "folder.tar.gz").mkdir()
    monkeypatch.setattr("gpu_triage.cli.record_command.live_host", nobody)
    assert run_cli(group, ["record", str(tmp_path / target), "--for", seconds]) == 2
    assert ("--for" if target == "new" else str(tmp_path / target)) in capsys.readouterr().err


def test_what_stands_where_a_recording_goes_is_left_alone_until_there_is_one(tmp_path: Path) -> None:
    old, new = tmp_path / "old.tar.gz", tmp_path / "new.tar.gz"
    old.write_bytes(b"old")
    for path in (old, new):
        prepare_target(path, replace=True)
    assert old.read_bytes() == b"old"
    assert not new.exists()


@pytest.mark.parametrize("name", ["recording", "recording.tar.gz"])
def test_a_recording_is_replaced_only_by_force(tmp_path: Path, recording: Recording, name: str) -> None:
    path = tmp_path / name
    write_recording(replace(recording, verdict="{}"), path)
    with pytest.raises(RecordingError, match=r"recording(\.tar\.gz)?: .*replace it with --force"):
        prepare_target(path)
    prepare_target(path, replace=True)
    write_recording(recording, path)
    assert read_recording(path).verdict is None
    (tmp_path / "recording").mkdir(exist_ok=True)
    (tmp_path / "recording" / "thesis.txt").touch()
    with pytest.raises(RecordingError, match="is not empty"):
        prepare_target(tmp_path / "recording", replace=True)


KEPT = (
    "NVRM: Xid (PCI:0000:41:00): 79, pid=1234, name=python, GPU has fallen off the bus.",
    "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
    "EXT4-fs (nvme0n1p2): Remounting filesystem read-only",
    "nfs: server nas01.example.com not responding, still trying",
    "nfs: server nas01.example.com OK",
)
NOT_KEPT = ("usb 1-1: new high-speed USB device number 2 using xhci_hcd", "audit: login of alice from 192.0.2.7")
FROM_A_PROCESS = "14,99,99,-;NVRM: Xid (PCI:0000:41:00): 79, said by a process\n"


def test_what_is_judged_is_kept_and_nothing_else(tmp_path: Path) -> None:
    log = tmp_path / "kmsg"
    lines = [f"4,{number},{number}000000,-;{text}\n" for number, text in enumerate((*KEPT, *NOT_KEPT), 1)]
    log.write_text("".join(lines) + FROM_A_PROCESS, encoding="ascii")
    recorded = kernel_records(log, Masker(b"k" * 32)) or ""
    texts = [line.partition(";")[2] for line in recorded.splitlines()]
    assert texts[:3] == list(KEPT[:3])
    assert len(texts) == len(KEPT)
    assert "nas01" not in recorded
    first, second = (text.split()[2] for text in texts[3:])
    assert first == second != ""
    assert kernel_records(tmp_path / "missing", Masker(b"k" * 32)) is None


RECORDED_SECONDS = 90.0
PAUSES_AT = 2760.0
"""When both GPUs of the training day have done nothing for a minute, after they worked."""
NAMES = sorted(path.stem for path in SCENARIOS.glob("*.toml"))
USUAL = ("training-day", "dual-a10", "sick-host")


def recorded(name: str, at: float, path: Path, seconds: float = RECORDED_SECONDS) -> Report:
    """The last report of an exporter that runs on a scenario until then, and is recorded from its start on."""
    scenario = pair(name) if len(load_scenario(name).gpus) > 2 else load_scenario(name)
    with recorder(replace(scenario, incidents=()), at=max(0.0, at - seconds)) as (host, made):
        host.run(seconds)
        write_recording(made(Masker(KEY)), path)
        return host.report


def verdicts(report: Report) -> dict[str, object]:
    gpus = {gpu.gpu: (gpu.bottleneck.name, gpu.bottleneck.because, gpu.verdict, gpu.codes) for gpu in report.gpus}
    findings = {(each.subject, each.check.code, each.state) for each in report.findings}
    areas = {area.area: area.is_known for area in report.areas}
    return {"host": report.verdict, "gpus": gpus, "findings": findings, "areas": areas}


def moments(name: str) -> tuple[float, ...]:
    """The middle and the last time that something is expected of a scenario."""
    times = sorted({float(each.at) for each in load_scenario(name).expectations}) or [120.0]
    return tuple(dict.fromkeys((times[len(times) // 2], times[-1])))


@pytest.mark.parametrize("name", some(NAMES, usual=USUAL))
def test_a_recording_has_the_verdict_of_the_live_host(tmp_path: Path, name: str) -> None:
    for at in every(moments(name)):
        path = tmp_path / f"{at:.0f}"
        live = recorded(name, at, path)
        assert verdicts(judge_recording(Config(replay=path))) == verdicts(live), at


def test_every_command_that_reads_a_recording_has_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "recording"
    live = recorded("training-day", PAUSES_AT, path, 180)
    assert {gpu.bottleneck.name for gpu in live.gpus} == {"compute"}, "they pause, and that needs what was before"
    for arguments in (["--replay", str(path)], ["--from", str(path)]):
        run_cli(group, ["check", "--format", "json", *arguments])
        assert verdicts(report_from_json(capsys.readouterr().out))["gpus"] == verdicts(live)["gpus"]
    assert run_cli(group, ["top", "--once", "--replay", str(path)]) == 0
    assert "pauses" in capsys.readouterr().out
    # The last seconds alone can still be asked for.
    run_cli(group, ["check", "--format", "json", "--replay", str(path), "--for", "10s"])
    report = report_from_json(capsys.readouterr().out)
    assert report.measured_seconds == 10
    assert {gpu.bottleneck.name for gpu in report.gpus} == {"unattributed"}
    assert all(gpu.bottleneck.unseen for gpu in report.gpus), "what it does not know, it says"
