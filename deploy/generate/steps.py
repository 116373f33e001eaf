"""What is generated, step by step: each reads what the steps before it write."""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

from dashboards.build import dashboards
from deploy.generate import REPOSITORY, chart, first_diagnosis, man_pages, names, pages
from deploy.generate.alertmanager import alertmanager_files
from deploy.generate.fleet import fleet_files
from deploy.generate.kubernetes import kubernetes_files
from deploy.generate.metrics_of_rules import metrics_of_rules

from gpu_triage.alerting.files import rule_files


class Step(NamedTuple):
    files: Callable[[], Mapping[Path, str]]
    """The text of each file, by path in the repository."""
    owned: tuple[str, ...] = ()
    """Globs of files that nothing else writes: one that the step no longer makes is deleted."""


def _rules() -> dict[Path, str]:
    rules = {Path("rules") / name: text for name, text in rule_files().items()}
    return rules | {Path("exporter/gpu_triage/read/metrics_of_rules.txt"): metrics_of_rules()}


def _dashboards() -> dict[Path, str]:
    return {Path("dashboards") / name: text for name, text in dashboards().items()}


def _examples() -> dict[Path, str]:
    return {**alertmanager_files(REPOSITORY), **fleet_files(REPOSITORY), **kubernetes_files(REPOSITORY)}


STEPS: Final[Mapping[str, Step]] = MappingProxyType(
    {
        "rules": Step(_rules, ("rules/**/*.yml",)),
        "docs": Step(pages.files),
        "top": Step(pages.page_of_top),
        "tutorial": Step(first_diagnosis.files),
        "names": Step(names.files),
        "man": Step(man_pages.files, ("docs/man/*.1",)),
        "dashboards": Step(_dashboards, ("dashboards/*.json",)),
        "chart": Step(chart.files, (f"{chart.CHART}/files/**/*.*",)),
        "examples": Step(_examples, ("deploy/kubernetes/exporter/*", "deploy/kubernetes/operator/*")),
    }
)
"""What is committed. Notifications and goldens are written by tests, with ``--regenerate``."""


def stale(step: Step, repository: Path = REPOSITORY) -> list[Path]:
    """Files that the step would change, create or delete."""
    wanted = step.files()
    changed = [path for path, text in wanted.items() if _content(repository / path) != text]
    return changed + sorted(_left_over(step, wanted, repository))


def write(step: Step, repository: Path = REPOSITORY) -> None:
    wanted = step.files()
    for path in _left_over(step, wanted, repository):
        (repository / path).unlink()
    for path, text in wanted.items():
        (repository / path).parent.mkdir(parents=True, exist_ok=True)
        (repository / path).write_text(text, encoding="utf-8")


def _left_over(step: Step, wanted: Mapping[Path, str], repository: Path) -> set[Path]:
    return {path.relative_to(repository) for glob in step.owned for path in repository.glob(glob)} - wanted.keys()


def _content(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None
