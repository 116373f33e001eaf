"""The documented command builds the image from the Dockerfile, and what it makes runs as the user that it names.

The base image is this machine's release with its Python, made by debootstrap: no registry is asked.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from tests.conftest import RequiresTool
from tests.e2e.processes import wait_for
from tests.image.dockerfile import Instruction, instructions
from tests.root_file_system import root_file_system

from gpu_triage import __version__
from gpu_triage.options.config import Config

BASE: Final = "localhost/python"
STOP_SECONDS: Final = 10.0
"""What Kubernetes gives the pod."""

_PIP: Final = ("index-url", "extra-index-url", "cert", "proxy", "trusted-host", "timeout")
"""Settings of this machine's pip that the build needs to reach a package index."""

_ALONE: Final = ("unshare", "--mount", "--pid", "--net", "--fork", "--kill-child")
_ENTER: Final = (Path(__file__).parent / "enter.sh").read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Image:
    """A built image."""

    root: Path  # its file system, mounted
    config: Mapping[str, Any]  # what a container runtime reads of it: Env, Entrypoint, Cmd, User, Healthcheck

    @property
    def environment(self) -> dict[str, str]:
        return dict(each.split("=", 1) for each in self.config["Env"])

    @contextmanager
    def running(self, *arguments: str, log: Path) -> Iterator[Container]:
        """The entry point with these arguments, or with the image's own, until the end of the ``with`` block."""
        command = [*self.config["Entrypoint"], *(arguments or self.config["Cmd"])]
        inside = [str(self.root), *self.config["User"].split(":"), *self.config["Env"], *command]
        with log.open("wb") as output:
            outer = subprocess.Popen([*_ALONE, "sh", "-c", _ENTER, "sh", *inside], stdout=output, stderr=output)
        container = Container(self, outer, log)
        try:
            yield container
        finally:
            # unshare ignores SIGTERM, and a program that changed its user does not end with it.
            with suppress(ProcessLookupError, FileNotFoundError, AssertionError):
                wait_for(lambda: _handles(container.pid, signal.SIGTERM))
                os.kill(container.pid, signal.SIGTERM)
            try:
                outer.wait(STOP_SECONDS)
            finally:
                outer.kill()
                outer.wait()


@dataclass(frozen=True, slots=True)
class Container:
    """A running container."""

    image: Image
    outer: subprocess.Popen[bytes]  # unshare, whose child is the program
    log: Path  # what the program writes

    @property
    def pid(self) -> int:
        """The program's, as this machine numbers it."""
        children = Path(f"/proc/{self.outer.pid}/task/{self.outer.pid}/children")
        wait_for(lambda: children.read_text().split() or self.outer.poll() is not None)
        assert self.outer.poll() is None, self.log.read_text()
        return int(children.read_text())

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command inside, as the image's user."""
        user, group = self.image.config["User"].split(":")
        inside = ["nsenter", f"--target={self.pid}", "--net", "--pid", "--mount", "chroot", str(self.image.root)]
        as_user = ["setpriv", f"--reuid={user}", f"--regid={group}", "--clear-groups", "env", "-i"]
        return subprocess.run(
            [*inside, *as_user, *self.image.config["Env"], *command], check=False, capture_output=True, text=True
        )

    def get(self, path: str) -> subprocess.CompletedProcess[str]:
        """What the exporter answers inside, as a probe asks it."""
        return self.run(
            "python",
            "-c",
            f"import urllib.request as u; print(u.urlopen('http://127.0.0.1:9836{path}', timeout=4).read().decode())",
        )


@contextmanager
def built(command: Sequence[str], repository: Path, folder: Path, requires_tool: RequiresTool) -> Iterator[Image]:
    """The image that a documented ``docker build`` makes; the test is skipped where buildah cannot build.

    Args:
        command: the documented command's words.
        folder: empty; takes a gigabyte or two.
    """
    assert command[:2] == ["docker", "build"]
    store = _Store(requires_tool("buildah"), folder)
    system = root_file_system(requires_tool, "pip", "python3,python3-venv,python3-pip,ca-certificates")
    _make_base(store, system)
    store.run(
        *("build", "--format=docker", "--pull-never", f"--build-arg=PYTHON_IMAGE={BASE}", *_mounts(folder)),
        *command[2:],
        folder=repository,
    )
    tag = command[command.index("--tag") + 1]
    container = store.run("from", "--pull-never", tag)
    inspected = json.loads(store.run("inspect", container))
    yield Image(Path(store.run("mount", container)), inspected["Docker"]["config"])


def _handles(pid: int, number: signal.Signals) -> bool:
    """Whether the process has a handler: the kernel drops signals that a container's first process doesn't handle."""
    (caught,) = re.findall(r"^SigCgt:\s(\w+)$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return bool(int(caught, 16) & 1 << number - 1)


def _make_base(store: _Store, system: Path) -> None:
    """As the official image of Python: one that pip may install into, by the name ``python``."""
    container = store.run("from", "scratch")
    store.run("add", "--quiet", container, str(system), "/")
    freed = "rm -f /usr/lib/python3*/EXTERNALLY-MANAGED && ln -sf python3 /usr/bin/python"
    store.run("run", container, "--", "sh", "-c", freed)
    store.run("commit", "--quiet", "--rm", container, BASE)


def _mounts(folder: Path) -> list[str]:
    """Certificates and settings of pip, for a machine whose way to the package index needs them."""
    told = subprocess.run([sys.executable, "-m", "pip", "config", "list"], check=True, capture_output=True, text=True)
    settings = dict(re.findall(rf"^\S*\.({'|'.join(_PIP)})='(\S+)'$", told.stdout, re.MULTILINE))
    lines = [f"{name} = {value}\n" for name, value in settings.items() if not value.startswith("file:")]
    configuration = folder / "pip.conf"
    configuration.write_text("[global]\n" + "".join(lines))
    mounts = {"/etc/ssl/certs": "/etc/ssl/certs", str(configuration): "/etc/pip.conf"}
    return [f"--volume={source}:{target}:ro" for source, target in mounts.items() if Path(source).exists()]


class _Store:
    """buildah without a daemon, with everything that it keeps below a folder."""

    def __init__(self, buildah: Path, folder: Path) -> None:
        # Copies of whole layers, and no mount to take away at the end.
        store = ("--storage-driver=vfs", f"--root={folder / 'storage'}", f"--runroot={folder / 'run'}")
        self._command = [str(buildah), *store]

    def run(self, *arguments: str, folder: Path | None = None) -> str:
        """Run it; returns its output."""
        ran = subprocess.run(
            [*self._command, *arguments],
            cwd=folder,
            env={**os.environ, "BUILDAH_ISOLATION": "chroot"},
            check=False,
            capture_output=True,
            text=True,
        )
        assert ran.returncode == 0, f"buildah {' '.join(arguments)}\n{ran.stdout[-4000:]}{ran.stderr[-4000:]}"
        return ran.stdout.strip()


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
