"""Slurm's scripts against a running exporter: a sick GPU drains its node with a reason, and nothing else does."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from deploy.demo.processes import free_port
from tests.e2e.processes import Exporter, exporter, wait_for
from tests.rig import scenario_with

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed"),
]

GO, HOLD = 0, 1
LOST = 'at = "5s"\ngpu = 1\neffect = { kind = "lost" }'
NOBODY = f"http://127.0.0.1:{free_port()}"
PROGRAM = '#!/bin/sh\nshift\nexec "{python}" -m gpu_triage check "$@" {more}\n'


class Node:
    """A node of a cluster: its scripts, with a stand-in for scontrol that notes what it is told."""

    def __init__(self, folder: Path, repository: Path) -> None:
        self._scripts = repository / "deploy" / "slurm"
        self._folder = folder
        self._state = folder / "state"
        self._told = folder / "told"
        self._state.write_text("NodeName=gpu-7 State=IDLE")
        self._told.touch()
        for slot in ("0000:65:00.0", "0000:b3:00.0"):
            (folder / "pci" / slot).mkdir(parents=True)
            (folder / "pci" / slot / "vendor").write_text("0x10de\n")
        self.program("exit 99")
        self._write("scontrol", f'#!/bin/sh\n[ "$1" = show ] && exec cat {self._state}\necho "$@" >> {self._told}\n')

    def program(self, script: str) -> None:
        """What stands for /opt/gpu-triage/bin/gpu-triage."""
        self._write("gpu-triage", script if script.startswith("#!") else f"#!/bin/sh\n{script}\n")

    def is_draining(self) -> None:
        """Somebody has drained the node."""
        self._state.write_text("NodeName=gpu-7 State=IDLE+DRAIN Reason=disk")

    def numbers(self, **slots: str) -> None:
        """The driver's numbers of the GPUs in these slots."""
        for number, slot in slots.items():
            folder = self._folder / "driver" / slot
            folder.mkdir(parents=True)
            minor = number.removeprefix("nvidia")
            (folder / "information").write_text(f"Model: \t\t NVIDIA A10\nDevice Minor: \t {minor}\n")

    def run(self, script: str, url: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a script as slurmd would."""
        given = {
            "PATH": f"{self._folder}:/usr/bin:/bin",
            "SLURMD_NODENAME": "gpu-7",
            "NODE_CHECK_SETTINGS": "/nonexistent",
            "NODE_CHECK_URL": url,
            "NODE_CHECK_PROGRAM": str(self._folder / "gpu-triage"),
            "NODE_CHECK_DRIVER_FILES": str(self._folder / "driver"),
            "NODE_CHECK_PCI_DEVICES": str(self._folder / "pci"),
        }
        command = [self._scripts / f"{script}.sh"]
        return subprocess.run(command, env=given | environment, check=False, capture_output=True, text=True)

    def prolog(self, url: str, gpus: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run the prolog of a job on these GPUs."""
        return self.run("prolog", url, SLURM_JOB_GPUS=gpus, SLURM_JOB_ID="42", **environment)

    @property
    def told(self) -> list[str]:
        """What scontrol was told to change."""
        return self._told.read_text().splitlines()

    def _write(self, name: str, script: str) -> None:
        path = self._folder / name
        path.write_text(script)
        path.chmod(0o755)


@pytest.fixture
def node(tmp_path: Path, repository: Path) -> Node:
    return Node(tmp_path, repository)


@pytest.fixture(scope="module")
def sick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of an exporter whose GPU 1 is lost."""
    folder = tmp_path_factory.mktemp("sick")
    scenario_with(folder, "idle-downshift", LOST)
    with exporter(folder, "--simulate", str(folder / "idle-downshift-changed.toml")) as running:
        wait_for(lambda: _lines(running).count("\tcritical\tgpu.lost\t"), 60)
        yield f"http://{running.address}"


def _lines(running: Exporter) -> str:
    return running.get("/api/v1/verdict", Accept="text/plain")[2].decode()


def test_a_job_on_the_sick_gpu_is_held_and_its_node_drained_with_code_and_gpu(node: Node, sick: str) -> None:
    result = node.prolog(sick, "0,1")
    assert result.returncode == HOLD
    assert node.told == ["update NodeName=gpu-7 State=DRAIN Reason=gpu-triage: GPU 1 gpu.lost, GPU 1 xid.79"]
    assert "gpu-triage-prolog: job 42: draining the node: gpu-triage: GPU 1 gpu.lost, GPU 1 xid.79" in result.stderr


def test_a_job_on_a_healthy_gpu_of_the_same_node_starts(node: Node, sick: str) -> None:
    assert node.prolog(sick, "0").returncode == GO
    assert node.told == []


def test_a_job_without_gpus_has_no_interest_in_them(node: Node, sick: str) -> None:
    assert node.run("prolog", sick).returncode == GO
    assert node.told == []


@pytest.mark.parametrize(
    ("gpus", "outcome"), [("1", GO), ("0", HOLD), ("0-1", HOLD), ("7", HOLD), ("MIG-1g", HOLD), ("1,x", HOLD)]
)
def test_gpus_may_have_the_numbers_of_their_device_files(node: Node, sick: str, gpus: str, outcome: int) -> None:
    """NVML's GPU 1 is /dev/nvidia0 here. A number or name that no GPU has may be any of them."""
    node.numbers(nvidia0="0000:B3:00.0", nvidia1="0000:65:00.0")
    assert node.prolog(sick, gpus, NODE_CHECK_GPU_NUMBERS="minor").returncode == outcome


@pytest.mark.parametrize(("gpus", "outcome"), [("0", GO), ("1", HOLD), ("0-1", HOLD), ("MIG-1g", HOLD)])
def test_gpus_have_the_numbers_of_nvml_unless_told_otherwise(node: Node, sick: str, gpus: str, outcome: int) -> None:
    node.numbers(nvidia0="0000:B3:00.0", nvidia1="0000:65:00.0")
    assert node.prolog(sick, gpus).returncode == outcome


def test_a_gpu_that_nobody_could_ask_where_it_is_may_be_any(node: Node) -> None:
    node.numbers(nvidia0="0000:B3:00.0", nvidia1="0000:65:00.0")
    node.program(r"printf 'host\tdrain\tn\t-\nfinding\t1\t-\tcritical\tgpu.lost\tdrain\tlost\n'; exit 1")
    assert node.prolog(NOBODY, "0", NODE_CHECK_GPU_NUMBERS="minor").returncode == HOLD


def test_the_reason_that_a_node_is_drained_for_stays(node: Node, sick: str) -> None:
    node.is_draining()
    assert node.prolog(sick, "1").returncode == HOLD
    assert node.told == []


def test_the_epilog_drains_after_the_job_and_does_not_fail(node: Node, sick: str) -> None:
    result = node.run("epilog", sick, SLURM_JOB_GPUS="1", SLURM_JOB_ID="42")
    assert result.returncode == 0
    assert node.told == ["update NodeName=gpu-7 State=DRAIN Reason=gpu-triage: GPU 1 gpu.lost, GPU 1 xid.79"]
    assert node.run("epilog", sick, SLURM_JOB_GPUS="0").returncode == 0
    assert len(node.told) == 1


def test_an_epilog_without_scontrol_leaves_it_to_slurmd(node: Node, sick: str) -> None:
    result = node.run("epilog", sick, SLURM_JOB_GPUS="1", NODE_CHECK_SCONTROL="/nonexistent/scontrol")
    assert result.returncode == 1
    assert "scontrol cannot drain the node" in result.stderr


def test_the_health_check_drains_for_any_gpu(node: Node, sick: str) -> None:
    assert node.run("health-check", sick).returncode == 0
    assert node.told == ["update NodeName=gpu-7 State=DRAIN Reason=gpu-triage: GPU 1 gpu.lost, GPU 1 xid.79"]


def test_the_health_check_leaves_nodes_without_gpus_alone(node: Node, sick: str, tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    assert node.run("health-check", sick, NODE_CHECK_PCI_DEVICES=str(tmp_path / "none")).returncode == 0
    assert node.told == []


@pytest.mark.parametrize(
    ("program", "outcome", "said"),
    [
        ("printf 'host\\tkeep\\tgpu-7\\t-\\n'", GO, ""),
        (r"printf 'host\tdrain\tn\t-\nfinding\t1\t-\tcritical\txid.79\tdrain\tXid 79\n'; exit 1", HOLD, "GPU 1 xid.79"),
        (r"printf 'host\tnot_read\tn\tno GPU\n'; exit 2", HOLD, "the GPUs cannot be checked"),
        (r"printf 'host\twatch\tn\t-\nfinding\t1\t-\twarning\txid.63\treset\tXid 63\n'", GO, ""),
        ("echo 'unknown variable' >&2; exit 2", GO, "nothing was checked"),
        ("echo Usage: gpu-triage", GO, "nothing was checked"),
        ("exec sleep 60", HOLD, "no answer in 1 s: the driver hangs"),
        ("echo Traceback >&2; exit 70", GO, "nothing was checked"),
    ],
    ids=["sound", "critical", "cannot look", "a ticket", "wrong options", "not ours", "hangs", "broken program"],
)
def test_without_an_exporter_the_program_decides(node: Node, program: str, outcome: int, said: str) -> None:
    node.program(program)
    result = node.prolog(NOBODY, "1", NODE_CHECK_LOOK_SECONDS="1")
    assert result.returncode == outcome
    assert said in result.stderr
    assert len(node.told) == outcome


def test_the_program_itself_is_asked_for_three_seconds(node: Node, tmp_path: Path) -> None:
    scenario_with(tmp_path, "idle-downshift", LOST)
    more = f"--simulate {tmp_path / 'idle-downshift-changed.toml'} --simulate-at 1m"
    node.program(PROGRAM.format(python=sys.executable, more=more))
    result = node.prolog(NOBODY, "1")
    assert result.returncode == HOLD
    assert [told[:62] for told in node.told] == ["update NodeName=gpu-7 State=DRAIN Reason=gpu-triage: GPU 1 gpu"]
    assert node.prolog(NOBODY, "0").returncode == GO


def test_a_program_that_is_missing_does_not_drain_the_cluster(node: Node, tmp_path: Path) -> None:
    for script in ("prolog", "epilog", "health-check"):
        missing = str(tmp_path / "nowhere")
        result = node.run(script, NOBODY, SLURM_JOB_GPUS="0", NODE_CHECK_PROGRAM=missing)
        assert result.returncode == GO
        assert "nothing was checked" in result.stderr
    assert node.told == []


def test_an_option_that_the_program_does_not_know_drains_nothing(node: Node) -> None:
    node.program(PROGRAM.format(python=sys.executable, more="--no-such-option"))
    assert node.prolog(NOBODY, "1").returncode == GO
    assert node.told == []


def test_settings_come_from_a_file_as_well(node: Node, sick: str, tmp_path: Path) -> None:
    settings = tmp_path / "settings"
    settings.write_text(f"NODE_CHECK_URL={sick}\n")
    assert node.prolog(NOBODY, "1", NODE_CHECK_SETTINGS=str(settings)).returncode == HOLD
