"""Makes a folder of this kit, the exporter and the packages it needs, for hosts with Python and without network."""

import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

from deploy.packages.build import ARCHITECTURES, PYTHONS, Target, install_wheels
from deploy.release.files import copied, distributions

from gpu_triage import __version__


def pack(folder: Path, pythons: Iterable[str] = PYTHONS, architectures: Iterable[str] = tuple(ARCHITECTURES)) -> None:
    """Make the new folder, for each Python on each architecture (Debian's name)."""
    kit = folder / "tests" / "hardware"
    kit.mkdir(parents=True)
    (folder / "tests" / "__init__.py").touch()  # a package named tests of the host's Python would come first
    here = Path(__file__).parent
    for name in ("__main__.py", "table.py", "values.csv", "visit.py"):
        shutil.copy(here / name, kit)
    shutil.copy(here / "run.sh", folder)
    targets = (Target(python, architecture) for python in pythons for architecture in architectures)
    with tempfile.TemporaryDirectory() as scratch:
        source = copied(here.parents[1], Path(scratch) / "source", __version__)
        wheel, _ = distributions(source, Path(scratch))
        for target in targets:
            site = folder / "lib" / f"{target.python}-{ARCHITECTURES[target.architecture]}"
            install_wheels(source.folder, target, site, wheel, "runtime.txt")
