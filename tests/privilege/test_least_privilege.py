"""The whole daemon without rights: nothing is lost that needs none, and what needs some is named."""

import re
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from tests.conftest import RequiresTool
from tests.e2e.processes import PROGRAM, Exporter, exporter, wait_for
from tests.privilege import confinement

DEGRADED = re.compile(r'^gpu_exporter_degraded_info\{feature="(\w+)",reason="(\w+)"\} 1\.0$', re.MULTILINE)
LOGGED = re.compile(r'msg="feature degraded" feature=(\w+) reason=(\w+) remedy="[^"]+"')


@pytest.fixture(autouse=True)
def _tools(requires_tool: RequiresTool) -> None:
    for program in ("setpriv", "unshare", "systemd-analyze"):
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


def _prefix(way: str, scratch: Path, repository: Path) -> list[str]:
    if way == "read-only root":
        return confinement.read_only_root(scratch)
    if way == "the unit's system calls":
        return confinement.system_calls_of_the_unit(repository / "deploy/systemd/gpu-triage-exporter.service")
    return confinement.unprivileged()


@pytest.mark.parametrize("way", ["no right", "read-only root", "the unit's system calls"])
def test_a_host_is_watched_without_rights(way: str, tmp_path: Path, open_folder: Path, repository: Path) -> None:
    prefix = _prefix(way, open_folder, repository)
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
    if way == "the unit's system calls":
        assert re.search(r"^Seccomp:\s+2$", status, re.MULTILINE)


def test_what_lacks_a_right_is_logged_once_and_published(tmp_path: Path, open_folder: Path) -> None:
    closed = open_folder / "jobs"
    closed.mkdir()
    closed.chmod(0)
    flags = ["--collector.process_memory_locality", "--collector.textfile.directory", str(closed)]
    flags += ["--kubernetes.pod-resources-socket", str(open_folder / "kubelet.sock"), "--sample.slow", "1s"]
    flags += ["--sample.medium", "1s", "--metrics.profile", "full"]
    with _confined(confinement.unprivileged(), tmp_path, *flags) as running:
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
    prefix = confinement.own_pid_namespace(own_procfs=own_procfs)
    with _confined(prefix, tmp_path, "--sample.slow", "5s") as running:
        wait_for(lambda: "gpu_exporter_degraded_info{" in running.metrics())
        page = running.metrics()
    found = {feature for feature, reason in DEGRADED.findall(page) if reason == "other_pid_namespace"}
    assert found == lacking
