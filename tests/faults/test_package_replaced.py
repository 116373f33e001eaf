"""The package of a running daemon is removed or replaced on disk: it goes on answering and recording as before."""

import os
import py_compile
import shutil
import sys
import venv
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.e2e.processes import WAIT_SECONDS, wait_for
from tests.faults.stand_in import StandIn, up

PATHS = (
    *("/", "/api/v1/verdict", "/runbooks/", "/runbooks/GpuLost", "/runbooks/playbook", "/runbooks/metrics"),
    *("/runbooks/configuration", "/runbooks/xid-79"),
)

EDITED = "edited since it was compiled"


def installed(where: Path) -> Path:
    """A virtual environment with the exporter and its dependencies; returns its folder of packages."""
    venv.create(where, symlinks=True)
    site = where / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    for name in (
        *("gpu_triage", "bcrypt", "click", "h11", "markdown_it", "mdurl", "pyudev", "psutil", "pynvml"),
        *("prometheus_client", "yaml"),
    ):
        spec = find_spec(name)
        assert spec is not None, name
        origin = Path(spec.origin or "")
        if spec.submodule_search_locations:
            shutil.copytree(origin.parent, site / name)
        else:
            shutil.copy2(origin, site)
    page = site / "gpu_triage" / "serve" / "page" / "document.py"
    py_compile.compile(str(page))
    page.write_text(page.read_text().replace("<main", f"<!-- {EDITED} --><main"))
    return site


def removed(site: Path) -> None:
    """As in the middle of an upgrade, or after ``rm -r`` of the environment."""
    shutil.rmtree(site.parents[2])


def replaced(site: Path) -> None:
    """By a version of which nothing fits the one that runs."""
    for path in site.rglob("*.py"):
        path.unlink()
        path.write_text("raise ImportError('another version')\n")


@pytest.mark.parametrize("change", [removed, replaced])
def test_a_daemon_whose_package_is_gone_answers_and_records(tmp_path: Path, change: Callable[[Path], None]) -> None:
    host = StandIn(tmp_path, gpus=4)
    site = installed(tmp_path / "environment")
    recordings = tmp_path / "recordings"
    flags = ("--flight-recorder.directory", str(recordings), "--path.procfs", "/proc", "--sample.slow", "5s")
    with host.daemon(*flags, python=site.parents[2] / "bin" / "python") as daemon:
        daemon.wait_for(
            lambda page: len(up(page)) == 4 and 'gpu_exporter_xid_source_up{source="nvml"} 1' in page, WAIT_SECONDS
        )
        change(site)
        host.set("gpu 1 xid 1 79", f"gpu 2 pids {os.getpid()}", "gpu 3 lost")
        daemon.wait_for(lambda page: f'pid="{os.getpid()}"' in page, WAIT_SECONDS)
        wait_for(lambda: list(recordings.glob("*.tar.gz")))
        host.clear("gpu 3 lost")
        daemon.wait_for(lambda page: len(up(page)) == 4, WAIT_SECONDS)
        for accept in ("text/html", "text/plain", "application/json"):
            for path in PATHS:
                status, _, body = daemon.ask(path, accept=accept)
                assert status == 200, (path, accept, body)
        assert EDITED in daemon.get("/")
        page = daemon.wait_for(lambda page: "gpu_exporter_degraded_info" in page, WAIT_SECONDS)
        log = daemon.log.read_text()
    assert 'gpu_exporter_degraded_info{feature="package",reason="replaced"} 1' in page
    assert "restart" in log
    assert "Traceback" not in log
