"""The whole daemon without rights: nothing is lost that needs none, and what needs some is named."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path

import pytest
from tests.conftest import RequiresTool
from tests.e2e.processes import PROGRAM, Exporter, exporter, wait_for

USER = "65534"
_READ_ONLY = 'mount --make-rprivate / && mount -t tmpfs tmpfs "$1" && chmod 1777 "$1" && mount -o remount,bind,ro / && '


def unprivileged() -> list[str]:
    """Another user without any capability, nor a way to gain one."""
    flags = ["--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"]
    if os.geteuid() != 0:
        return ["setpriv", "--no-new-privs"]
    return ["setpriv", *(_other_user() if _others_can_run_this() else []), *flags]


def read_only_root(scratch: Path) -> list[str]:
    """As unprivileged, and every file system read-only below / but a small one at `scratch`."""
    script = f'{_READ_ONLY} export TMPDIR="$1" && shift && exec {" ".join(unprivileged())} "$@"'
    return [*_namespaces("--mount"), "sh", "-c", script, "sh", str(scratch)]


def _namespaces(*flags: str) -> list[str]:
    mapped = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return ["unshare", *mapped, *flags]


def _other_user() -> list[str]:
    return [f"--reuid={USER}", f"--regid={USER}", "--clear-groups"]


@cache
def _others_can_run_this() -> bool:
    """Whether another user can reach this interpreter and this working tree; root's own home is closed to others."""
    command = [shutil.which("setpriv") or "setpriv", *_other_user(), sys.executable, "-c", "import gpu_triage"]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


DEGRADED = re.compile(r'^gpu_exporter_degraded_info\{feature="(\w+)",reason="(\w+)"\} 1\.0$', re.MULTILINE)
LOGGED = re.compile(r'msg="feature degraded" feature=(\w+) reason=(\w+) remedy="[^"]+"')


@pytest.fixture(autouse=True)
def _tools(requires_tool: RequiresTool) -> None:
    for program in ("setpriv", "unshare"):
        requires_tool(program)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user can reach; pytest's own are closed to others."""
    with tempfile.TemporaryDirectory(prefix="gpu-triage-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def _confined(prefix: list[str], tmp_path: Path, *flags: str) -> AbstractContextManager[Exporter]:
    return exporter(tmp_path, *flags, program=[*prefix, *PROGRAM])


def _families(page: str) -> set[str]:
    return set(re.findall(r"^# TYPE (\S+)", page, re.MULTILINE))


def _daemon_status(running: Exporter) -> str:
    children = Path(f"/proc/{running.process.pid}/task/{running.process.pid}/children").read_text().split()
    return Path(f"/proc/{children[0] if children else running.process.pid}/status").read_text()


@pytest.mark.parametrize("way", ["no right", "read-only root"])
def test_a_host_is_watched_without_rights(way: str, tmp_path: Path, open_folder: Path) -> None:
    prefix = read_only_root(open_folder) if way == "read-only root" else unprivileged()
    # Side by side: some metrics are there only after a while, or only now and then.
    with (
        exporter(tmp_path, "--simulate", "h100-8") as free,
        _confined(prefix, tmp_path, "--simulate", "h100-8") as running,
    ):
        wait_for(lambda: "gpu_topology_info" in free.metrics())
        wait_for(lambda: _families(running.metrics()) == _families(free.metrics()))
        page, status = running.metrics(), _daemon_status(running)
        mounts = Path(f"/proc/{running.process.pid}/mountinfo").read_text()
    assert "gpu_exporter_errors_total{" not in page
    assert DEGRADED.findall(page) == []
    assert "level=error" not in running.log.read_text()
    assert re.search(r"^CapEff:\s+0+$", status, re.MULTILINE)
    assert re.search(r"^NoNewPrivs:\s+1$", status, re.MULTILINE)
    if way == "read-only root":
        assert re.search(r"^\S+ \S+ \S+ / / ro\b", mounts, re.MULTILINE)


def test_what_lacks_a_right_is_logged_once_and_published(tmp_path: Path, open_folder: Path) -> None:
    closed = open_folder / "jobs"
    closed.mkdir()
    closed.chmod(0)
    flags = ["--collector.process_memory_locality", "--collector.textfile.directory", str(closed)]
    flags += ["--kubernetes.pod-resources-socket", str(open_folder / "kubelet.sock"), "--sample.slow", "1s"]
    flags += ["--sample.medium", "1s", "--metrics.profile", "full"]
    with _confined(unprivileged(), tmp_path, *flags) as running:
        wait_for(lambda: "gpu_exporter_degraded_info{" in running.metrics())
        # Several rounds of the collector: a lack that lasts is not told again.
        first = float(_value(running.metrics(), "gpu_exporter_collector_last_success_timestamp_seconds"))
        later = "gpu_exporter_collector_last_success_timestamp_seconds"
        wait_for(lambda: float(_value(running.metrics(), later)) > first + 1)
        page = running.metrics()
    published = DEGRADED.findall(page)
    assert {("textfile", "no_permission"), ("pod_names", "missing")} <= set(published)
    if Path("/proc/1/numa_maps").exists():
        assert ("process_memory_locality", "no_permission") in published
    logged = LOGGED.findall(running.log.read_text())
    assert sorted(logged) == sorted(published)


def _value(page: str, metric: str) -> str:
    found = re.search(rf'^{metric}\{{collector="access"\}} (\S+)$', page, re.MULTILINE)
    assert found
    return found[1]


@pytest.mark.parametrize(
    ("own_procfs", "lacking"),
    [(True, {"processes", "host_network", "host_nfs"}), (False, {"processes"})],
    ids=["its own /proc", "the host's /proc"],
)
def test_a_container_is_told_what_it_does_not_see(tmp_path: Path, own_procfs: bool, lacking: set[str]) -> None:  # noqa: FBT001
    flags = ["--pid", "--fork", *(["--mount-proc"] if own_procfs else [])]
    with _confined([*_namespaces(*flags), *unprivileged()], tmp_path, "--sample.slow", "5s") as running:
        wait_for(lambda: "gpu_exporter_degraded_info{" in running.metrics())
        page = running.metrics()
    found = {feature for feature, reason in DEGRADED.findall(page) if reason == "other_pid_namespace"}
    assert found == lacking
