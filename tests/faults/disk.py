"""A disk that a test makes slow, for a daemon on the compiled driver that keeps its state there."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.processes import WAIT_SECONDS, wait_for
from tests.faults.stand_in import Daemon, up
from tests.stand_in_library import compile_library


class Disk:
    """A disk on which each fsync takes as long as a test says."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.state = folder / "state"  # the state directory on it
        self.recordings = folder / "recordings"  # the flight recorder's directory on it
        self.state.mkdir()
        self._speed = folder / "slow-disk"
        self.takes(0.0)
        compile_library(Path(__file__).with_name("slow_disk.c"), folder, name="slow_disk.so")
        monkeypatch.setenv("LD_PRELOAD", str(folder / "slow_disk.so"))
        monkeypatch.setenv("SLOW_DISK", str(self._speed))

    @property
    def flags(self) -> tuple[str, ...]:
        return ("--state.directory", str(self.state))

    def takes(self, seconds: float) -> None:
        self._speed.write_text(str(seconds))

    def memory(self) -> dict[str, Any]:
        """What the incidents' file holds; empty while there is none."""
        path = self.state / "incidents.json"
        found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        return found

    def incidents(self) -> set[tuple[str, str]]:
        return {(each["kind"], each["slot"]) for each in self.memory().get("incidents", [])}

    def partial(self) -> list[str]:
        """Names of files that were not finished."""
        return sorted(each.name for each in self.state.iterdir() if each.name.endswith(".new"))


def slot(gpu: int) -> str:
    return f"0000:{0x10 + gpu:02x}:00.0"


def listening(daemon: Daemon) -> None:
    """Wait until all GPUs are sampled and NVML delivers Xids: the driver tells nobody of an earlier one."""
    daemon.wait_for(
        lambda page: len(up(page)) == 4 and 'gpu_exporter_xid_source_up{source="nvml"} 1' in page, WAIT_SECONDS
    )


def settled(daemon: Daemon, disk: Disk) -> None:
    """Wait until GPUs and Xids are read, and the incidents have a file."""
    listening(daemon)
    wait_for(disk.memory)
