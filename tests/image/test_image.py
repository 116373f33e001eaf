"""The documented command builds the image from the Dockerfile, and what it makes runs as the user that it names."""

import re
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import RequiresTool
from tests.e2e.processes import wait_for
from tests.image.built import Image, built
from tests.image.dockerfile import Instruction, instructions

from gpu_triage import __version__
from gpu_triage.options.config import Config

pytestmark = pytest.mark.timeout(600)

USER = "65534"
PAGES = ("README.md", "docs/kubernetes.md")


def _documented(repository: Path, page: str) -> list[str]:
    """The words of the command that builds the image."""
    text = (repository / page).read_text(encoding="utf-8")
    (command,) = re.findall(r"^\$ (docker build .*)$", text, re.MULTILINE)
    return shlex.split(command)


@pytest.fixture(scope="module")
def image(repository: Path, requires_tool: RequiresTool) -> Iterator[Image]:
    folder = Path(tempfile.mkdtemp(prefix="gpu-triage-image-", dir="/var/tmp"))
    folder.chmod(0o755)
    try:
        with built(_documented(repository, PAGES[-1]), repository, folder, requires_tool) as made:
            yield made
    finally:
        shutil.rmtree(folder)


def test_every_page_has_the_same_command(repository: Path) -> None:
    assert len({tuple(_documented(repository, page)) for page in PAGES}) == 1


def test_the_images_own_command_serves_and_says_what_it_lacks(image: Image, tmp_path: Path) -> None:
    with image.running(log=tmp_path / "log") as container:
        wait_for(lambda: container.get("/-/ready").returncode == 0)
        assert re.search(r"^gpu_driver_up 0", container.get("/metrics").stdout, re.MULTILINE)


def test_it_serves_as_its_user_from_a_root_that_nobody_can_write_to(image: Image, tmp_path: Path) -> None:
    with image.running("serve", "--simulate", "dual-a10", log=tmp_path / "log") as container:
        wait_for(lambda: container.get("/-/ready").returncode == 0)
        assert len(re.findall(r"^gpu_up\{.*\} 1", container.get("/metrics").stdout, re.MULTILINE)) == 2
        status = Path(f"/proc/{container.pid}/status").read_text()
        assert re.search(rf"^Uid:\s+{USER}\s+{USER}\s", status, re.MULTILINE)
        assert re.search(rf"^Gid:\s+{USER}\s+{USER}\s", status, re.MULTILINE)
        assert re.search(r"^CapEff:\s+0+$", status, re.MULTILINE)
        mounts = Path(f"/proc/{container.pid}/mountinfo").read_text()
        assert re.search(r"^\d+ \d+ \S+ \S+ / ro[, ]", mounts, re.MULTILINE)
        assert "Read-only file system" in container.run("touch", "/var/lib/gpu-triage/x").stderr


def test_its_health_check_agrees_with_what_runs(image: Image, tmp_path: Path) -> None:
    kind, *command = image.config["Healthcheck"]["Test"]
    assert kind == "CMD"
    with image.running("serve", "--simulate", "dual-a10", log=tmp_path / "log") as container:
        wait_for(lambda: container.run(*command).returncode == 0)
    with image.running("serve", "--web.listen-address=127.0.0.1:9999", log=tmp_path / "log") as container:
        wait_for(lambda: "/metrics" in container.log.read_text())
        assert container.run(*command).returncode != 0


def test_a_volume_is_mounted_where_its_user_can_write(image: Image) -> None:
    folder = (image.root / "var/lib/gpu-triage").stat()
    assert (str(folder.st_uid), str(folder.st_gid), folder.st_mode & 0o777) == (USER, USER, 0o750)


def test_the_image_carries_the_program_whole_and_nothing_to_install_with(image: Image, tmp_path: Path) -> None:
    program = (
        "import gpu_triage, importlib.util as found; "
        "print(gpu_triage.__version__, found.find_spec('pip'), found.find_spec('grpc').name)"
    )
    with image.running("serve", "--simulate", "dual-a10", log=tmp_path / "log") as container:
        result = container.run("/opt/gpu-triage/bin/python", "-c", program)
        assert result.returncode == 0, result.stderr
        assert result.stdout.split() == [__version__, "None", "grpc"]
        assert container.run("gpu-triage", "explain", "GpuLost").stdout.startswith("GpuLost\n")


def test_the_image_is_given_the_driver_and_no_more(image: Image) -> None:
    assert image.environment["NVIDIA_VISIBLE_DEVICES"] == "all"
    assert image.environment["NVIDIA_DRIVER_CAPABILITIES"] == "utility"


def test_the_images_user_is_a_number(image: Image) -> None:
    assert image.config["User"] == f"{USER}:{USER}"


def test_the_image_exposes_and_asks_the_default_port(image: Image) -> None:
    (address,) = Config().web_listen_addresses
    assert list(image.config["ExposedPorts"]) == [f"{address.removeprefix(':')}/tcp"]
    assert f"127.0.0.1{address}/-/healthy" in " ".join(image.config["Healthcheck"]["Test"])


def test_nothing_is_installed_without_its_hash(repository: Path) -> None:
    dockerfile: list[Instruction] = instructions((repository / "Dockerfile").read_text(encoding="utf-8"))
    installs = [
        step for each in dockerfile if each.name == "RUN" for step in each.rest.split("&&") if "pip install" in step
    ]
    assert len(installs) == 3
    assert [step for step in installs if "--require-hashes" not in step and "--no-index" not in step] == []
