"""A host's procfs and sysfs, written file by file."""

from collections.abc import Callable
from pathlib import Path

from tests.watched_paths import watched

from gpu_triage.machine import Moment, real_machine
from gpu_triage.read.metrics.contract import HostRound


def kernel_file(name: str) -> str:
    """What kernels wrote, from tests/unit/read/host/files."""
    return (Path(__file__).parent / "unit/read/host/files" / name).read_text(encoding="utf-8")


class HostTree:
    def __init__(self, root: Path) -> None:
        self.procfs = root / "proc"
        self.sysfs = root / "sys"
        self.root = root

    def mount(self) -> None:
        """Have the procfs and sysfs of a kernel that has none of the features that are looked for."""
        (self.procfs / "self").mkdir(parents=True)
        (self.sysfs / "devices").mkdir(parents=True)

    def write(self, files: dict[str, str]) -> None:
        """Write files by path below the root (``proc/stat``)."""
        for path, text in files.items():
            file = self.root / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(text.encode())

    def link(self, path: str, target: str) -> None:
        """Make a symbolic link; its target need not exist."""
        link = self.root / path
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(target)

    def device(self, path: str, vendor: str, class_: str, **attributes: str) -> None:
        """Show a PCI device at its place below /sys/devices, and its link under bus/pci."""
        files = {"vendor": vendor, "class": class_, **attributes}
        self.write({f"sys/devices/{path}/{name}": f"{text}\n" for name, text in files.items()})
        link = f"sys/bus/pci/devices/{path.rpartition('/')[2]}"
        if not (self.root / link).is_symlink():
            self.link(link, f"../../../devices/{path}")

    def in_container(self, nspid: str = "7") -> None:
        """Show the exporter in a PID namespace of its own; its PIDs from the outermost in (pid_namespaces(7))."""
        self.write({"proc/self/status": f"Name:\tgpu-triage\nNSpid:\t{nspid}\n"})
        if not (self.procfs / "self/ns/pid").is_symlink():
            self.link("proc/self/ns/pid", "pid:[4026532441]")

    def spoil(self, path: str) -> None:
        """Make reading the file fail, for root too: a folder stands in its place."""
        file = self.root / path
        file.unlink(missing_ok=True)
        file.mkdir(parents=True)

    def round(self, at: float = 0.0, opened: Callable[[Path], None] | None = None) -> HostRound:
        """A round at this second; `opened` is told of each file of sysfs before it is opened."""
        sysfs = self.sysfs if opened is None else watched(self.sysfs, opened)
        return HostRound(real_machine(sysfs, self.procfs, None), Moment(monotonic=at, wall=at))


def counter_files(folder: str, counters: str) -> dict[str, str]:
    """Files of a folder with one counter each, given as name=value."""
    pairs = (each.split("=") for each in counters.split())
    return {f"{folder}/{name}": f"{count}\n" for name, count in pairs}
