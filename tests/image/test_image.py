"""The Dockerfile's steps work, and what they make runs as the user and with the variables that it names."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.e2e.processes import end, listening, wait_for
from tests.image.dockerfile import Image, Instruction, exec_form, instructions, play_stage

from gpu_triage import __version__
from gpu_triage.options.config import Config

UNPRIVILEGED = "65534"


@pytest.fixture(scope="module")
def dockerfile(repository: Path) -> list[Instruction]:
    return instructions((repository / "Dockerfile").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def built(dockerfile: list[Instruction], repository: Path) -> Iterator[Image]:
    """The build stage, played in a folder that any user may read (pytest's own are private)."""
    root = Path(tempfile.mkdtemp(prefix="gpu-triage-image-"))
    root.chmod(0o755)
    try:
        # The base image's own Python: its venvs must find pip, and a system interpreter may have none to give.
        base = root / "usr/local"
        subprocess.run([sys.executable, "-m", "venv", str(base)], check=True)
        image = Image(root, {"PATH": f"{base / 'bin'}:{os.environ['PATH']}", "HOME": str(root)})
        steps = play_stage([each for each in dockerfile if each.stage == 1], repository, image)
        assert len(steps) == sum(each.name == "RUN" and each.stage == 1 for each in dockerfile)
        yield image
    finally:
        shutil.rmtree(root)


def _only(dockerfile: list[Instruction], name: str) -> str:
    (found,) = (each.rest for each in dockerfile if each.name == name and each.stage == 2)
    return found


def _final_environment(dockerfile: list[Instruction], root: Path) -> dict[str, str]:
    """The final stage's variables, below the folder, and nothing of this process's own."""
    last = Image(root, {"PATH": "/usr/local/bin:/usr/bin:/bin"})
    play_stage([each for each in dockerfile if each.stage == 2 and each.name == "ENV"], root, last)
    return {name: value.replace("/opt/", f"{root}/opt/") for name, value in last.environment.items()}


def _as_the_images_user(dockerfile: list[Instruction]) -> list[str]:
    if os.geteuid() != 0:
        return []  # already somebody without privileges
    user, group = _only(dockerfile, "USER").split(":")
    return ["setpriv", f"--reuid={user}", f"--regid={group}", "--clear-groups", "--bounding-set=-all", "--no-new-privs"]


@contextmanager
def _running(dockerfile: list[Instruction], built: Image, *flags: str) -> Iterator[tuple[str, str]]:
    """The image's command with these flags; yields its address and its log once it listens."""
    command = [*exec_form(_only(dockerfile, "ENTRYPOINT")), *exec_form(_only(dockerfile, "CMD"))]
    log = built.root / "exporter.log"
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            [*_as_the_images_user(dockerfile), *command, "--web.listen-address=127.0.0.1:0", *flags],
            cwd="/",
            env=_final_environment(dockerfile, built.root),
            stdin=subprocess.DEVNULL,
            stderr=stderr,
        )
    try:
        yield listening(process, log), Path(f"/proc/{process.pid}/status").read_text()
    finally:
        end(process)


def _healthcheck(dockerfile: list[Instruction], built: Image, address: str) -> int:
    command = [word.replace("127.0.0.1:9836", address) for word in exec_form(_only(dockerfile, "HEALTHCHECK"))]
    return subprocess.run(
        command, env=_final_environment(dockerfile, built.root), check=False, capture_output=True
    ).returncode


@pytest.mark.timeout(300)
def test_the_images_user_can_keep_its_state_where_a_volume_is_mounted(
    dockerfile: list[Instruction], built: Image
) -> None:
    if os.geteuid() != 0:
        pytest.skip("giving a directory to another user takes root")
    play_stage([each for each in dockerfile if each.stage == 2 and each.name == "RUN"], built.root, built)
    folder = built.root / "var/lib/gpu-triage"
    with _running(dockerfile, built, "--simulate", "dual-a10", "--state.directory", str(folder)):
        wait_for((folder / "incidents-simulated.json").exists)


@pytest.mark.timeout(300)
def test_the_images_program_serves_as_its_user_and_its_healthcheck_agrees(
    dockerfile: list[Instruction], built: Image
) -> None:
    with _running(dockerfile, built, "--simulate", "dual-a10") as (address, status):
        if os.geteuid() == 0:
            assert re.search(rf"^Uid:\s+{UNPRIVILEGED}\s", status, re.MULTILINE)
            assert re.search(r"^CapEff:\s+0+$", status, re.MULTILINE)
        assert _healthcheck(dockerfile, built, address) == 0
    assert _healthcheck(dockerfile, built, address) != 0


@pytest.mark.timeout(300)
def test_the_image_carries_the_program_whole_and_nothing_to_install_with(
    dockerfile: list[Instruction], built: Image
) -> None:
    environment = _final_environment(dockerfile, built.root)
    program = (
        "import gpu_triage, importlib.util as found; "
        "print(gpu_triage.__version__, found.find_spec('pip'), found.find_spec('grpc').name)"
    )
    result = subprocess.run(
        ["python", "-c", program], env=environment, cwd="/", check=False, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == [__version__, "None", "grpc"]


def test_the_image_is_given_the_driver_and_no_more(dockerfile: list[Instruction], tmp_path: Path) -> None:
    environment = _final_environment(dockerfile, tmp_path)
    assert environment["NVIDIA_VISIBLE_DEVICES"] == "all"
    assert environment["NVIDIA_DRIVER_CAPABILITIES"] == "utility"


def test_the_images_user_is_a_number(dockerfile: list[Instruction]) -> None:
    assert re.fullmatch(r"[1-9][0-9]*:[1-9][0-9]*", _only(dockerfile, "USER"))


def test_the_image_exposes_and_asks_the_default_port(dockerfile: list[Instruction]) -> None:
    (address,) = Config().web_listen_addresses
    assert f":{_only(dockerfile, 'EXPOSE')}" == address
    assert f"127.0.0.1{address}/-/healthy" in _only(dockerfile, "HEALTHCHECK")


def test_nothing_is_installed_without_its_hash(dockerfile: list[Instruction]) -> None:
    installs = [
        step for each in dockerfile if each.name == "RUN" for step in each.rest.split("&&") if "pip install" in step
    ]
    assert len(installs) == 3
    assert [step for step in installs if "--require-hashes" not in step and "--no-index" not in step] == []
