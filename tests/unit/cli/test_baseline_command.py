"""``gpu-triage baseline``: what it prints, and its exit codes."""

import json
from pathlib import Path

import pytest
from tests.command_line import config_from
from tests.mig_layouts import seven
from tests.rig import scenario_with

from gpu_triage.cli.main import group
from gpu_triage.cli.run import run_cli

pytestmark = pytest.mark.slow

MOVED = 'at = "10m"\ngpu = 0\neffect = { kind = "slot", width = 8, node = 1 }'
LOST = 'at = "20m"\ngpu = 0\neffect = { kind = "lost" }'


@pytest.fixture
def scenario(tmp_path: Path) -> str:
    """A host whose first GPU is in another slot after ten minutes, and lost after twenty."""
    scenario_with(tmp_path, "dual-a10", MOVED, LOST)
    return str(tmp_path / "dual-a10-changed.toml")


@pytest.fixture
def recorded(tmp_path: Path, scenario: str) -> str:
    path = str(tmp_path / "baseline.json")
    assert run_cli(group, ["baseline", "write", path, "--simulate", scenario, "--despite-findings"]) == 0
    return path


def _diff(*arguments: str) -> int:
    return run_cli(group, ["baseline", "diff", *arguments])


def test_a_host_as_recorded_ends_with_0(tmp_path: Path, scenario: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "baseline.json")
    assert run_cli(group, ["baseline", "write", path, "--simulate", scenario, "--despite-findings"]) == 0
    assert _diff(path, "--simulate", scenario) == 0
    said = capsys.readouterr().out
    assert "baseline.json: 2 GPUs, driver 535.183.01" in said
    assert "this host is as in the baseline of 20" in said


def test_a_baseline_settles_what_a_splitting_board_gives(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    both = [f'at = 0\ngpu = {gpu}\neffect = {{ kind = "link", width = 8 }}' for gpu in (0, 1)]
    later = 'at = "10m"\ngpu = 1\neffect = { kind = "link", width = 4 }'
    scenario_with(tmp_path, "rtx-4070-ti-super", *both, later)
    scenario, path = str(tmp_path / "rtx-4070-ti-super-changed.toml"), str(tmp_path / "baseline.json")
    assert run_cli(group, ["baseline", "write", path, "--simulate", scenario]) == 0, "it is no reason to refuse"
    capsys.readouterr()
    check = ["check", "--simulate", scenario, "--format", "lines", "--for", "5s"]
    found = []
    for options in (["5m"], ["5m", "--baseline.file", path], ["15m", "--baseline.file", path]):
        run_cli(group, [*check, "--simulate-at", *options])
        lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
        found.append([(line[1], line[4]) for line in lines if line[0] == "finding" and line[4].startswith("pcie.")])
    assert found == [[("0", "pcie.width_built"), ("1", "pcie.width_built")], [], [("1", "pcie.width")]]


def test_a_swapped_motherboard_is_explained(recorded: str, scenario: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert _diff(recorded, "--simulate", scenario, "--simulate-at", "15m") == 1
    said = capsys.readouterr().out
    assert "5 differences from the baseline" in said
    assert "GPU 0000:65:00.0 GPU-aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee NVIDIA A10\n  pcie_width: x16 -> x8\n" in said
    assert "The slot offers 8 lanes instead of 16 lanes. Reseating does not help" in said
    assert said.count("The nearest common ancestor") == 1


def test_programs_get_the_same_as_json(recorded: str, scenario: str, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert _diff(recorded, "--simulate", scenario, "--simulate-at", "15m", "--format", "json") == 1
    said = json.loads(capsys.readouterr().out)
    assert (said["format"], said["version"], said["equal"], said["lacks"]) == (
        "gpu-triage-baseline-diff",
        1,
        False,
        None,
    )
    assert said["changes"][1]["field"] == "numa_node"
    assert (said["changes"][1]["was"], said["changes"][1]["now"]) == ("0", "1")
    assert said["changes"][1]["pci_bus_id"] == "0000:65:00.0"


def test_a_silent_gpu_is_a_difference(recorded: str, scenario: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert _diff(recorded, "--simulate", scenario, "--simulate-at", "25m") == 1
    assert "The recorded GPU is gone or does not answer" in capsys.readouterr().out


def test_a_simulated_host_may_learn_a_baseline_and_keep_it_nowhere() -> None:
    variables = {"GPU_TRIAGE_BASELINE_FROM_HOST": "true", "GPU_TRIAGE_SIMULATE": "dual-a10"}
    assert config_from([], variables).baseline_from_host


def test_without_a_file_the_baseline_is_printed(scenario: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(group, ["baseline", "write", "--simulate", scenario, "--despite-findings"]) == 0
    assert len(json.loads(capsys.readouterr().out)["gpus"]) == 2


@pytest.mark.parametrize("name", ["no-driver", "lost-before-start"])
def test_a_host_that_is_not_well_is_not_recorded(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "baseline.json"
    assert run_cli(group, ["baseline", "write", str(path), "--simulate", name, "--within", "1s"]) == 2
    assert "no baseline of a host that lacks" in capsys.readouterr().err
    assert not path.exists()


def test_a_host_with_critical_findings_is_not_recorded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "baseline.json"
    assert run_cli(group, ["baseline", "write", str(path), "--simulate", "dual-a10"]) == 2
    said = capsys.readouterr().err
    assert "no baseline of a host with critical findings: pcie.width GPU 0, 8 of 16 lanes" in said
    assert "--despite-findings" in said
    assert not path.exists()


def test_a_baseline_that_exists_is_replaced_only_by_force(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "baseline.json"
    path.write_text("mine")
    write = ["baseline", "write", str(path), "--simulate", "idle-downshift"]
    assert run_cli(group, write) == 2
    assert f"{path}: exists; name another file, or replace it with --force" in capsys.readouterr().err
    assert path.read_text() == "mine"
    assert run_cli(group, [*write, "--force"]) == 0
    assert len(json.loads(path.read_text())["gpus"]) == 2


def test_without_a_driver_there_is_nothing_to_compare(recorded: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert _diff(recorded, "--simulate", "no-driver", "--within", "1s") == 2
    assert "lacks the driver, which is unavailable" in capsys.readouterr().err


def test_a_file_that_cannot_be_used_ends_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "baseline.json"
    path.write_text("{}")
    assert _diff(str(path), "--simulate", "dual-a10") == 2
    assert "format: is not 'gpu-triage-baseline'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--simulate-at", "5m"], "name a scenario with --simulate"),
        (["--simulate-at", "soon", "--simulate", "dual-a10"], "--simulate-at: "),
        (["--within", "1", "--simulate", "dual-a10"], "--within: "),
        (["--within", "99999999h", "--simulate", "dual-a10"], "write a duration from 1s to 1h"),
        (["--path.sysfs", "/nowhere"], "--path.sysfs: Directory '/nowhere' does not exist"),
        (["--simulate", "nowhere"], "no scenario 'nowhere'"),
    ],
)
def test_wrong_arguments_are_named(arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(group, ["baseline", "write", *arguments]) == 2
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize(
    "command",
    [["record", "somewhere"], ["baseline", "write"], ["baseline", "diff", "file"], ["baseline", "accept", "file"]],
)
def test_a_host_is_where_its_exporter_is_told_that_it_is(
    command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GPU_TRIAGE_PATH_PROCFS", "/nowhere")
    assert run_cli(group, command) == 2
    assert "GPU_TRIAGE_PATH_PROCFS: Directory '/nowhere' does not exist" in capsys.readouterr().err


def test_check_and_diff_advise_the_same_about_fewer_lanes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "baseline.json"
    assert run_cli(group, ["baseline", "write", str(path), "--simulate", "moved-slot"]) == 0
    capsys.readouterr()
    host = ("--simulate", "moved-slot", "--simulate-at", "65m", "--format", "json")
    assert run_cli(group, ["check", *host, "--baseline.file", str(path), "--for", "2s"]) == 0
    findings = json.loads(capsys.readouterr().out)["findings"]
    assert "baseline.drift" in (each["code"] for each in findings)
    (decision,) = (each["decision"] for each in findings if each["code"] == "pcie.width")
    assert run_cli(group, ["baseline", "diff", str(path), *host]) == 1
    changes = json.loads(capsys.readouterr().out)["changes"]
    (meaning,) = (each["meaning"] for each in changes if each["field"] == "pcie_width")
    assert decision.startswith("Reseating does not help")
    assert decision[:-1] in meaning


def _accept(*arguments: str) -> int:
    return run_cli(group, ["baseline", "accept", *arguments, "--despite-findings"])


def test_an_accepted_field_no_longer_differs(recorded: str, scenario: str, capsys: pytest.CaptureFixture[str]) -> None:
    later = ("--simulate", scenario, "--simulate-at", "15m")
    before = json.loads(Path(recorded).read_text())
    capsys.readouterr()
    assert _accept(recorded, *later, "--field", "numa_node") == 1
    said = capsys.readouterr().out.splitlines()
    gpu = "GPU 0000:65:00.0 GPU-aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee NVIDIA A10"
    assert said[0] == f"accepted: {gpu}: numa_node: 0 -> 1"
    assert f"still different: {gpu}: pcie_width: x16 -> x8" in said
    after = json.loads(Path(recorded).read_text())
    assert after.pop("recorded") >= before.pop("recorded")
    # A replaced value, and not a byte beside it.
    changed = [each | {"numa_node": 1} if each["uuid"] in gpu else each for each in before["gpus"]]
    assert after == before | {"gpus": changed}


def test_once_all_is_accepted_nothing_differs(recorded: str, scenario: str, capsys: pytest.CaptureFixture[str]) -> None:
    later = ("--simulate", scenario, "--simulate-at", "15m")
    assert _accept(recorded, *later, "--field", "all") == 0
    assert capsys.readouterr().out.count("accepted: ") == 5
    assert _diff(recorded, *later) == 0
    # Again, as a rollout that is repeated does.
    assert _accept(recorded, *later) == 0
    assert "this host is as in the baseline of 20" in capsys.readouterr().out


def test_without_a_field_the_fields_are_named(recorded: str, scenario: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = Path(recorded).read_bytes()
    assert _accept(recorded, "--simulate", scenario, "--simulate-at", "15m") == 2
    said = capsys.readouterr().err
    assert "differs in pcie_width, numa_node" in said
    assert "name with --field what was changed on purpose, or --field all" in said
    assert Path(recorded).read_bytes() == before


@pytest.mark.parametrize(
    ("moment", "complaint"),
    [("25m", "no baseline of a host that lacks"), ("0s", "no baseline of a host with critical findings: pcie.width")],
)
def test_sick_hosts_refuse(
    moment: str, complaint: str, recorded: str, scenario: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = Path(recorded)
    file.write_text(file.read_text().replace("535.183.01", "470.256.02"))
    before = file.read_bytes()
    host = ["--simulate", scenario, "--simulate-at", moment, "--within", "3s"]
    assert run_cli(group, ["baseline", "accept", recorded, *host, "--field", "driver_version"]) == 2
    assert complaint in capsys.readouterr().err
    assert file.read_bytes() == before


def test_an_exporter_reads_it(recorded: str, scenario: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    learned = tmp_path / "simulated" / "baseline.json"
    learned.parent.mkdir()
    learned.write_bytes(Path(recorded).read_bytes())
    later = ("--simulate", scenario, "--simulate-at", "15m", "--field", "all")
    assert _accept(*later, "--baseline.from-host", "--state.directory", str(tmp_path)) == 0
    assert _accept(*later, "--baseline.file", recorded) == 0
    for path in (str(learned), recorded):
        assert _diff(path, "--simulate", scenario, "--simulate-at", "15m") == 0
    assert _accept(*later) == 2
    assert "name the baseline's FILE" in capsys.readouterr().err


def test_a_gpu_that_is_split_by_mig_has_lost_no_link(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # The driver then answers no question about NVLink, and direct access between GPUs ends by design.
    scenario_with(tmp_path, "h100-8", seven("10m"))
    scenario, path = str(tmp_path / "h100-8-changed.toml"), str(tmp_path / "h100.json")
    assert run_cli(group, ["baseline", "write", path, "--simulate", scenario]) == 0
    assert '"nvlinks_up": [0, 1, 2,' in Path(path).read_text()
    assert _diff(path, "--simulate", scenario, "--simulate-at", "15m") == 0
    assert "this host is as in the baseline of 20" in capsys.readouterr().out
