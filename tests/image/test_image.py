"""The image of the release runs as the user that it names, and has what it needs."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from deploy.release.image import Buildah
from tests.conftest import RequiresTool
from tests.e2e.processes import wait_for
from tests.gathered import every
from tests.released import IMAGE, release

from gpu_triage import __version__
from gpu_triage.options.config import Config

STOP_SECONDS: Final = 10.0
"""What Kubernetes gives the pod."""

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


def _handles(pid: int, number: signal.Signals) -> bool:
    """Whether the process has a handler: the kernel drops signals that a container's first process doesn't handle."""
    (caught,) = re.findall(r"^SigCgt:\s(\w+)$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return bool(int(caught, 16) & 1 << number - 1)


pytestmark = pytest.mark.timeout(600)

USER = "65534"


@pytest.fixture(scope="module")
def image(requires_tool: RequiresTool) -> Iterator[Image]:
    for program in IMAGE:
        requires_tool(program)
    (archive,) = release().glob("*-image.tar")
    folder = Path(tempfile.mkdtemp(prefix="gpu-triage-image-", dir="/var/tmp"))
    folder.chmod(0o755)
    try:
        shutil.unpack_archive(archive, folder / "layout", "tar")
        store = Buildah(folder)
        container = store.run("from", f"oci-archive:{archive}")
        index = json.loads((folder / "layout" / "index.json").read_bytes())
        manifest = blob(folder, index["manifests"][0])
        yield Image(Path(store.run("mount", container)), blob(folder, manifest["config"])["config"])
    finally:
        shutil.rmtree(folder)


def blob(folder: Path, descriptor: Mapping[str, str]) -> Any:
    return json.loads((folder / "layout" / "blobs" / descriptor["digest"].replace(":", "/")).read_bytes())


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


def test_no_start_compiles_a_module_since_their_times_are_not_kept(image: Image) -> None:
    compiled = [path for folder in ("opt", "usr") for path in (image.root / folder).rglob("*.pyc")]
    by_hash = 1  # a bit of the flags in the header of PEP 552
    assert [path for path in every(compiled) if not path.read_bytes()[4] & by_hash] == []


def test_the_image_has_the_driver_and_no_more_a_user_by_its_number_and_the_default_port(image: Image) -> None:
    assert image.environment["NVIDIA_VISIBLE_DEVICES"] == "all"
    assert image.environment["NVIDIA_DRIVER_CAPABILITIES"] == "utility"
    assert image.config["User"] == f"{USER}:{USER}"
    (address,) = Config().web_listen_addresses
    assert list(image.config["ExposedPorts"]) == [f"{address.removeprefix(':')}/tcp"]
    assert f"127.0.0.1{address}/-/healthy" in " ".join(image.config["Healthcheck"]["Test"])


def test_nothing_is_installed_without_its_hash(repository: Path) -> None:
    text = re.sub(r"^#.*\n|\\\n", "", (repository / "Dockerfile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    installs = re.findall(r"pip install[^&\n]*", text)
    assert len(installs) == 3
    assert [step for step in installs if "--require-hashes" not in step and "--no-index" not in step] == []
