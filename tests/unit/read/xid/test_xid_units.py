"""Failures in one place of the chip: when they speak against the board, and when against the program."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.captured_cards import captured
from tests.one_shot import look_at
from tests.rig import rig, scenario_with

from gpu_triage.read.xid.xid_events import UnitFailures, XidSite, parse_site, parse_xid

GPU, OTHER_GPU = "0000:18:00.0", "0000:2a:00.0"
UNIT = "GPC 3 TPC 2"
HOUR = 3600.0


@pytest.mark.parametrize(
    ("code", "process", "text", "site"),
    [
        (
            13,
            "pid='<unknown>', name=<unknown>",
            "Graphics SM Warp Exception on (GPC 10, TPC 1, SM 1): Out Of Range Address",
            XidSite("GPC 10 TPC 1", "", ""),
        ),
        (
            13,
            "pid=626486, name=pt_main_thread",
            "Graphics SM Global Exception on (GPC 7, TPC 7, SM 0): Multiple Warp Errors",
            XidSite("GPC 7 TPC 7", "626486", "pt_main_thread"),
        ),
        (
            31,
            "pid=79749, name=exe",
            "Ch 0000000a, intr 00000000. MMU Fault: ENGINE GRAPHICS GPC2 GPCCLIENT_T1_7 faulted @ 0x2b57_b3000000.",
            XidSite("GPC 2 L1 7", "79749", "exe"),
        ),
        (31, "pid=1, name=a", "Ch 8. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_14 faulted @ 0x7f.", None),
        (31, "pid=1, name=a", "Ch 8. MMU Fault: ENGINE GRAPHICS GPC2 GPCCLIENT_PROP_0 faulted @ 0x0.", None),
        (31, "pid=1, name=a", "MMU Fault: ENGINE NVDEC HUBCLIENT_NVDEV faulted @ 0x0_00000000.", None),
        (13, "pid='<unknown>', name=<unknown>", "Graphics Exception: ESR 0x546fb0=0x11f000e 0x546fb4=0x24", None),
    ],
)
def test_a_place_is_what_the_driver_names(code: int, process: str, text: str, site: XidSite | None) -> None:
    found = parse_xid(f"NVRM: Xid (PCI:0000:18:00): {code}, {process}, {text}")
    assert found is not None
    assert (found.gpu, found.site) == (GPU, site)


def test_real_lines_of_one_crash_name_many_places() -> None:
    for path in captured("xid-lines.txt"):
        failures = UnitFailures()
        sites = [site for line in path.read_text().splitlines() if (site := parse_site(line)) is not None]
        assert len({site.unit for site in sites}) > 3
        for number in range(4):
            for site in sites:
                failures.see(GPU, site._replace(pid=str(number), program=f"job{number}"), number * HOUR)
        assert failures.suspects() == {}


def failed(
    *processes: tuple[str, str, float, str], gpu: str = GPU, failures: UnitFailures | None = None
) -> UnitFailures:
    """Failures by PID, program, time and place."""
    failures = failures or UnitFailures()
    for pid, program, at, unit in processes:
        failures.see(gpu, XidSite(unit, pid, program), at)
    return failures


THREE = (("1", "python", 0.0, UNIT), ("2", "gromacs", HOUR, UNIT), ("3", "python", 2 * HOUR, UNIT))


AGAIN = tuple((str(n), "python", n * HOUR, UNIT) for n in range(10))


@pytest.mark.parametrize(
    ("processes", "suspects"),
    [
        # Three processes of two programs in one place speak against the board, or of one program if a day apart.
        (THREE, 3),
        (THREE[:2], 0),
        (AGAIN, 0),
        ((*AGAIN, ("99", "python", 25 * HOUR, UNIT)), 11),
        # Lines of one crash are one failure.
        ([("1", "python", second, UNIT) for second in (0.0, 0.1, 0.2, 5.0)], 0),
        # Failures in other places speak for the board, but for those of one process.
        ((*THREE, *((str(n), "python", n * HOUR, f"GPC {n} TPC 0") for n in range(10, 12))), 0),
        ((*THREE, *(("77", "python", 9 * HOUR, f"GPC {n} TPC 0") for n in range(5))), 3),
        # Failures without a process count by their time.
        ([("", "", day * 86_400.0, UNIT) for day in range(3)], 3),
    ],
)
def test_what_speaks_against_the_board(processes: Sequence[tuple[str, str, float, str]], suspects: int) -> None:
    assert failed(*processes).suspects() == ({GPU: (UNIT, suspects)} if suspects else {})


def test_a_program_that_fails_there_on_another_gpu_too_is_the_program() -> None:
    failures = failed(*THREE)
    failed(("9", "python", HOUR, UNIT), gpu=OTHER_GPU, failures=failures)
    assert failures.suspects() == {}
    failed(("9", "blender", HOUR, UNIT), gpu=OTHER_GPU, failures=failures)
    assert failures.suspects() == {}


def test_another_card_starts_anew() -> None:
    failures = failed(*THREE)
    failures.forget(GPU)
    assert failures.suspects() == {}


def test_memory_is_bounded() -> None:
    failures = failed(*((str(n), f"p{n}", n * 60.0, UNIT) for n in range(1000)))
    assert failures.suspects()[GPU][1] == 64
    for n in range(1000):
        failed(*THREE, gpu=f"{n:04x}:18:00.0", failures=failures)
    assert len(failures._failures) == 256


def crash(at: int, pid: int, program: str) -> str:
    place = "Graphics SM Warp Exception on (GPC 3, TPC 2, SM 1): Illegal Instruction Parameter"
    return f'at = {at}\ngpu = 1\neffect = {{ kind = "xid", code = 13, message = "pid={pid}, name={program}, {place}" }}'


CRASHES = (crash(5, 901, "python"), crash(20, 902, "gromacs"), crash(35, 903, "python"))


@pytest.mark.slow
def test_the_suspect_is_published_with_its_gpu_and_found(tmp_path: Path) -> None:
    scenario = scenario_with(tmp_path, "dual-a10", *CRASHES)
    with rig(scenario) as running:
        running.run_to(30)
        assert running.series("gpu_xid_suspect_unit_processes") == []
        running.run_to(45)
        ((labels, value),) = running.series("gpu_xid_suspect_unit_processes")
        assert (labels["gpu"], labels["unit"], value) == ("1", UNIT, 3)
    report = look_at(scenario, 60.0)
    assert [each.measured for each in report.findings if each.check.code == "xid.same_unit"] == [
        f"3 processes failed at {UNIT}"
    ]
