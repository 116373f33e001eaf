"""What is installed is complete: the wheel carries its data, the locks cover what pyproject.toml asks for."""

import re
import zipfile
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version
from tests.distribution import SUPPORTED
from tests.gathered import every

from gpu_triage_simulator.schema import read_toml

LOCKED = re.compile(r"^([A-Za-z0-9._-]+==[^\s\\;]+(?: ; [^\\\n]+?)?)(?: \\)?$", re.MULTILINE)


@pytest.fixture(scope="module")
def pyproject(repository: Path) -> dict[str, Any]:
    return read_toml(repository / "pyproject.toml")


@pytest.mark.slow
def test_the_wheel_carries_every_file_of_the_package(wheel: Path, repository: Path) -> None:
    packages = [path.parent for path in (repository / "exporter").glob("*/__init__.py")]
    sources = {
        path.relative_to(package.parent).as_posix(): path.read_bytes()
        for package in packages
        for path in package.rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    assert any("/scenarios/" in name for name in sources)
    assert "gpu_triage/py.typed" in sources
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if not name.startswith("gpu_triage_exporter-")]
        packed = {name: archive.read(name) for name in names}
    commit = re.compile(rb'(?<=^__revision__ = ")[0-9a-f]{40}(-modified)?(?="$)', re.MULTILINE)
    packed["gpu_triage/__init__.py"], stamps = commit.subn(b"", packed["gpu_triage/__init__.py"])
    assert stamps == 1
    assert packed == sources


@pytest.mark.slow
def test_the_wheel_carries_the_manual_pages_and_the_license(wheel: Path, repository: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (license_name,) = (name for name in names if name.endswith("/licenses/LICENSE"))
        assert archive.read(license_name) == (repository / "LICENSE").read_bytes()
    packed = {name.rpartition("/share/man/man1/")[2] for name in names if "/share/man/man1/" in name}
    assert packed == {path.name for path in (repository / "docs/man").glob("*.1")} != set()


def _locked(repository: Path, lock: str) -> list[Requirement]:
    text = (repository / "requirements" / lock).read_text(encoding="utf-8")
    found = [Requirement(line) for line in LOCKED.findall(text)]
    assert found
    return found


def _version_locked(locked: list[Requirement], name: str, environment: dict[str, str]) -> Version | None:
    for entry in locked:
        if canonicalize_name(entry.name) == canonicalize_name(name) and (
            entry.marker is None or entry.marker.evaluate(environment)
        ):
            return Version(str(entry.specifier).removeprefix("=="))
    return None


@pytest.mark.parametrize("python", SUPPORTED)
@pytest.mark.parametrize("lock", ["build.txt", "runtime.txt", "image.txt", "dev.txt"])
def test_a_lock_holds_allowed_versions(repository: Path, pyproject: dict[str, Any], lock: str, python: str) -> None:
    build, runtime = pyproject["build-system"]["requires"], pyproject["project"]["dependencies"]
    asked = {
        "build.txt": build,
        "runtime.txt": runtime,
        "image.txt": [*runtime, *pyproject["project"]["optional-dependencies"]["kubernetes"]],
        "dev.txt": [*build, *runtime, *pyproject["dependency-groups"]["dev"]],
    }[lock]
    environment = {"python_version": python, "python_full_version": f"{python}.0", "sys_platform": "linux"}
    locked = _locked(repository, lock)
    unmet = []
    for requirement in map(Requirement, asked):
        if requirement.marker is None or requirement.marker.evaluate(environment):
            version = _version_locked(locked, requirement.name, environment)
            if version is None or not requirement.specifier.contains(version, prereleases=True):
                unmet.append(f"{requirement}: locked {version}")
    assert unmet == [], "run `make lock`"


def test_the_pythons_that_are_tested_are_those_that_the_package_names(pyproject: dict[str, Any]) -> None:
    named = [line.rpartition(" :: ")[2] for line in pyproject["project"]["classifiers"] if ":: Python :: 3." in line]
    assert tuple(named) == SUPPORTED


@pytest.mark.parametrize("lock", ["build.txt", "runtime.txt", "image.txt", "dev.txt", "site.txt"])
def test_every_locked_requirement_has_hashes(repository: Path, lock: str) -> None:
    text = (repository / "requirements" / lock).read_text(encoding="utf-8")
    entries = re.split(r"\n(?=\S)", re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE).strip())
    assert [entry for entry in every(entries) if "--hash=sha256:" not in entry] == []


@pytest.mark.parametrize("lock", ["build.txt", "runtime.txt", "image.txt"])
def test_what_runs_is_what_was_tested(repository: Path, lock: str) -> None:
    # Markers are not compared: what only old Pythons need to run, the tests may need on all of them.
    pins, tested = ({f"{r.name}{r.specifier}" for r in _locked(repository, name)} for name in (lock, "dev.txt"))
    assert pins <= tested


def test_the_image_is_built_from_files_that_its_context_holds(repository: Path) -> None:
    dockerfile = (repository / "Dockerfile").read_text(encoding="utf-8")
    copies = [line.split()[1:-1] for line in dockerfile.splitlines() if line.startswith("COPY ")]
    sources = {name for copy in copies if not copy[0].startswith("--from") for name in copy}
    ignore = (repository / ".dockerignore").read_text(encoding="utf-8").splitlines()
    let_in = [line[1:] for line in ignore if line.startswith("!")]
    assert [name for name in every(sources) if not (repository / name).exists()] == []
    assert [name for name in let_in if not any(name == s or name.startswith(f"{s}/") for s in sources)] == []
    assert [s for s in sources if not any(name == s or name.startswith(f"{s}/") for name in let_in)] == []
