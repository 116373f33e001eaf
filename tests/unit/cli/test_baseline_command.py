"""``gpu-triage baseline``: what it prints, and its exit codes."""

import json
from pathlib import Path

import pytest
from tests.command_line import Ran, Run
from tests.mig_layouts import seven
from tests.rig import scenario_with

pytestmark = pytest.mark.slow

MOVED = 'at = "10m"\ngpu = 0\neffect = { kind = "slot", width = 8, node = 1 }'
LOST = 'at = "20m"\ngpu = 0\neffect = { kind = "lost" }'


@pytest.fixture
def scenario(tmp_path: Path) -> str:
    """A host whose first GPU is in another slot after ten minutes, and lost after twenty."""
    scenario_with(tmp_path, "dual-a10", MOVED, LOST)
    return str(tmp_path / "dual-a10-changed.toml")


@pytest.fixture
def later(scenario: str) -> tuple[str, ...]:
    """The host with its first GPU in another slot."""
    return "--simulate", scenario, "--simulate-at", "15m"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "baseline.json"


@pytest.fixture
def recorded(path: Path, scenario: str, run: Run) -> Path:
    written = run("baseline", "write", path, "--simulate", scenario, "--despite-findings")
    assert (written.code, "baseline.json: 2 GPUs, driver 535.183.01" in written.out) == (0, True)
    return path


def test_a_baseline_settles_what_a_splitting_board_gives(tmp_path: Path, path: Path, run: Run) -> None:
    both = [f'at = 0\ngpu = {gpu}\neffect = {{ kind = "link", width = 8 }}' for gpu in (0, 1)]
    later = 'at = "10m"\ngpu = 1\neffect = { kind = "link", width = 4 }'
    scenario_with(tmp_path, "rtx-4070-ti-super", *both, later)
    scenario = str(tmp_path / "rtx-4070-ti-super-changed.toml")
    assert run("baseline", "write", path, "--simulate", scenario).code == 0, "it is no reason to refuse"
    check = ["check", "--simulate", scenario, "--format", "lines", "--for", "5s"]
    found = []
    for options in (["5m"], ["5m", "--baseline.file", path], ["15m", "--baseline.file", path]):
        lines = [line.split("\t") for line in run(*check, "--simulate-at", *options).out.splitlines()]
        found.append([(line[1], line[4]) for line in lines if line[0] == "finding" and line[4].startswith("pcie.")])
    assert found == [[("0", "pcie.width_built"), ("1", "pcie.width_built")], [], [("1", "pcie.width")]]


def test_a_swapped_motherboard_is_explained(recorded: Path, later: tuple[str, ...], run: Run) -> None:
    code, said, _ = run("baseline", "diff", recorded, *later)
    assert code == 1
    assert "5 differences from the baseline" in said
    assert "GPU 0000:65:00.0 GPU-aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee NVIDIA A10\n  pcie_width: x16 -> x8\n" in said
    assert "The slot offers 8 lanes instead of 16 lanes. Reseating does not help" in said
    assert said.count("The nearest common ancestor") == 1


def test_programs_get_the_same_as_json(recorded: Path, later: tuple[str, ...], run: Run) -> None:
    code, out, _ = run("baseline", "diff", recorded, *later, "--format", "json")
    said = json.loads(out)
    assert (code, said["format"], said["version"]) == (1, "gpu-triage-baseline-diff", 1)
    assert (said["equal"], said["lacks"]) == (False, None)
    node = said["changes"][1]
    assert [node[key] for key in ("field", "was", "now", "pci_bus_id")] == ["numa_node", "0", "1", "0000:65:00.0"]


def test_without_a_file_the_baseline_is_printed(scenario: str, run: Run) -> None:
    code, out, _ = run("baseline", "write", "--simulate", scenario, "--despite-findings")
    assert (code, len(json.loads(out)["gpus"])) == (0, 2)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("no-driver", "no baseline of a host that lacks"),
        ("lost-before-start", "no baseline of a host that lacks"),
        ("dual-a10", "no baseline of a host with critical findings: pcie.width GPU 0, 8 of 16 lanes"),
    ],
)
def test_a_host_that_is_not_well_is_not_recorded(name: str, said: str, path: Path, run: Run) -> None:
    code, _, err = run("baseline", "write", path, "--simulate", name, "--within", "1s")
    assert (code, path.exists()) == (2, False)
    assert said in err
    assert ("--despite-findings" in err) == (name == "dual-a10")


def test_a_baseline_that_exists_is_replaced_only_by_force(path: Path, run: Run) -> None:
    path.write_text("mine")
    write = ["baseline", "write", path, "--simulate", "idle-downshift"]
    code, _, err = run(*write)
    assert (code, path.read_text()) == (2, "mine")
    assert f"{path}: exists; name another file, or replace it with --force" in err
    assert run(*write, "--force").code == 0
    assert len(json.loads(path.read_text())["gpus"]) == 2


def test_what_cannot_be_compared_ends_with_2(recorded: Path, run: Run) -> None:
    code, _, err = run("baseline", "diff", recorded, "--simulate", "no-driver", "--within", "1s")
    assert (code, "lacks the driver, which is unavailable" in err) == (2, True)
    recorded.write_text("{}")
    code, _, err = run("baseline", "diff", recorded, "--simulate", "dual-a10")
    assert (code, "format: is not 'gpu-triage-baseline'" in err) == (2, True)


@pytest.mark.parametrize(
    "command", ["record somewhere", "baseline write", "baseline diff file", "baseline accept file"]
)
def test_a_host_is_where_its_exporter_is_told_that_it_is(
    command: str, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    monkeypatch.setenv("GPU_TRIAGE_PATH_PROCFS", "/nowhere")
    code, _, err = run(*command.split())
    assert code == 2
    assert "GPU_TRIAGE_PATH_PROCFS: Directory '/nowhere' does not exist" in err


def accept(run: Run, *arguments: object) -> Ran:
    return run("baseline", "accept", *arguments, "--despite-findings")


def test_an_accepted_field_no_longer_differs(recorded: Path, later: tuple[str, ...], run: Run) -> None:
    before = json.loads(recorded.read_text())
    code, out, _ = accept(run, recorded, *later, "--field", "numa_node")
    gpu = "GPU 0000:65:00.0 GPU-aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee NVIDIA A10"
    assert (code, out.splitlines()[0]) == (1, f"accepted: {gpu}: numa_node: 0 -> 1")
    assert f"still different: {gpu}: pcie_width: x16 -> x8" in out.splitlines()
    after = json.loads(recorded.read_text())
    assert after.pop("recorded") >= before.pop("recorded")
    # A replaced value, and not a byte beside it.
    changed = [each | {"numa_node": 1} if each["uuid"] in gpu else each for each in before["gpus"]]
    assert after == before | {"gpus": changed}


def test_once_all_is_accepted_nothing_differs(recorded: Path, later: tuple[str, ...], run: Run) -> None:
    code, out, _ = accept(run, recorded, *later, "--field", "all")
    assert (code, out.count("accepted: ")) == (0, 5)
    assert run("baseline", "diff", recorded, *later).code == 0
    # Again, as a rollout that is repeated does.
    code, out, _ = accept(run, recorded, *later)
    assert (code, "this host is as in the baseline of 20" in out) == (0, True)


def test_without_a_field_the_fields_are_named(recorded: Path, later: tuple[str, ...], run: Run) -> None:
    before = recorded.read_bytes()
    code, _, err = accept(run, recorded, *later)
    assert (code, recorded.read_bytes()) == (2, before)
    assert "differs in pcie_width, numa_node" in err
    assert "name with --field what was changed on purpose, or --field all" in err


@pytest.mark.parametrize(
    ("moment", "complaint"),
    [("25m", "no baseline of a host that lacks"), ("0s", "no baseline of a host with critical findings: pcie.width")],
)
def test_sick_hosts_refuse(moment: str, complaint: str, recorded: Path, scenario: str, run: Run) -> None:
    recorded.write_text(recorded.read_text().replace("535.183.01", "470.256.02"))
    before = recorded.read_bytes()
    host = ["--simulate", scenario, "--simulate-at", moment, "--within", "3s"]
    code, _, err = run("baseline", "accept", recorded, *host, "--field", "driver_version")
    assert (code, recorded.read_bytes()) == (2, before)
    assert complaint in err


def test_an_exporter_reads_it(recorded: Path, later: tuple[str, ...], tmp_path: Path, run: Run) -> None:
    learned = tmp_path / "simulated" / "baseline.json"
    learned.parent.mkdir()
    learned.write_bytes(recorded.read_bytes())
    everything = (*later, "--field", "all")
    assert accept(run, *everything, "--baseline.from-host", "--state.directory", tmp_path).code == 0
    assert accept(run, *everything, "--baseline.file", recorded).code == 0
    assert [run("baseline", "diff", path, *later).code for path in (learned, recorded)] == [0, 0]
    code, _, err = accept(run, *everything)
    assert (code, "name the baseline's FILE" in err) == (2, True)


def test_a_gpu_that_is_split_by_mig_has_lost_no_link(tmp_path: Path, path: Path, run: Run) -> None:
    # The driver then answers no question about NVLink, and direct access between GPUs ends by design.
    scenario_with(tmp_path, "h100-8", seven("10m"))
    scenario = str(tmp_path / "h100-8-changed.toml")
    assert run("baseline", "write", path, "--simulate", scenario).code == 0
    assert '"nvlinks_up": [0, 1, 2,' in path.read_text()
    code, out, _ = run("baseline", "diff", path, "--simulate", scenario, "--simulate-at", "15m")
    assert (code, "this host is as in the baseline of 20" in out) == (0, True)
