"""docs/architecture.md names every package on its floor, and no path that does not exist."""

import re
from pathlib import Path

from gpu_triage_simulator.schema import read_toml

ROW = re.compile(r"^\| (\d+) \| `(\w+)` \|", re.MULTILINE)
PATH = re.compile(r"`([\w./-]*(?:/|\.py|\.toml))`")


def page(repository: Path) -> str:
    return (repository / "docs/architecture.md").read_text(encoding="utf-8")


def test_the_floors_are_those_that_the_linter_checks(repository: Path) -> None:
    contracts = read_toml(repository / "pyproject.toml")["tool"]["importlinter"]
    layers: list[str] = contracts["contracts"][0]["layers"]
    checked = [
        (str(len(layers) - row), name.strip().removeprefix("gpu_triage."))
        for row, layer in enumerate(layers)
        for name in layer.split("|")
    ]
    assert ROW.findall(page(repository)) == checked


def test_every_package_and_every_module_beside_them_has_a_row(repository: Path) -> None:
    package = repository / "exporter/gpu_triage"
    packages = [path.parent.name for path in package.glob("*/__init__.py")]
    simulator = [path.parent.name for path in package.parent.glob("*/__init__.py") if path.parent != package]
    modules = [path.stem for path in package.glob("*.py") if path.name != "__init__.py"]
    assert sorted(name for _, name in ROW.findall(page(repository))) == sorted([*packages, *simulator, *modules])


def test_every_path_exists(repository: Path) -> None:
    roots = (repository / "exporter/gpu_triage", repository / "exporter", repository)
    paths = [path for path in PATH.findall(page(repository)) if not path.startswith("/")]
    assert len(paths) > 50
    assert [path for path in paths if not any((root / path).exists() for root in roots)] == []


def test_readme_and_contributing_lead_there(repository: Path) -> None:
    assert "(docs/architecture.md)" in (repository / "README.md").read_text(encoding="utf-8")
    start = (repository / "CONTRIBUTING.md").read_text(encoding="utf-8").splitlines()[:8]
    assert "(docs/architecture.md)" in "\n".join(start)
