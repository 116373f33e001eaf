"""Reference pages, lists of alerts and floors, and the site are complete; prose names only what exists."""

import re
from functools import cache
from pathlib import Path

from deploy.generate.site import stage
from tests.gathered import every

from gpu_triage.judge.evidence import thresholds
from gpu_triage.read.registry import METRICS
from gpu_triage.serve.handbook import reference
from gpu_triage.serve.handbook.markdown import render_html
from gpu_triage_simulator.model import known_models, load_model
from gpu_triage_simulator.schema import read_toml

LINK = re.compile(r"\]\((?!https?://|mailto:)([^)\s]+)\)")
NAV_FILE = re.compile(r"^ +- .*: ([\w./-]+\.md)$", re.MULTILINE)
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def _prose(repository: Path) -> list[Path]:
    handbook = repository / "exporter" / "gpu_triage" / "serve" / "handbook"
    return [
        *repository.glob("*.md"),
        *(page for depth in ("*", "*/*") for page in repository.glob(f"{depth}/README.md")),
        *repository.glob("docs/**/*.md"),
        *handbook.rglob("*.md"),
    ]


def test_no_assumption_is_a_fact_of_a_card_and_each_names_its_source(repository: Path) -> None:
    page = (repository / "docs/cards.md").read_text(encoding="utf-8")
    cards = dict(re.findall(r"^- ([^:*`]+): (.+)$", page.partition("<!-- cards -->")[2], re.MULTILINE))
    for model in every([load_model(name) for name in known_models()]):
        card = cards[model.name.removeprefix("NVIDIA ")]
        said = {"clocks": "MHz", "sm_default": "MHz", "row_remap_banks": "banks", "nvlinks": "NVLink"}
        assert [key for key in model.source.assumed if said.get(key, "none") in card] == []
        assert card.endswith((*model.source.drivers[-1:], model.source.kind))


def test_the_page_on_thresholds_names_every_source(repository: Path) -> None:
    page = (repository / "docs/thresholds.md").read_text(encoding="utf-8")
    assert re.findall(r"^- `([A-Z_]+)` \(\S+\): \S", page, re.MULTILINE) == list(every(thresholds.SOURCES))


def test_every_metric_is_documented_once() -> None:
    page = reference.metrics_markdown()
    named = re.findall(r"^- `(\w+)(?:\{([\w,]+)\})?`", page, re.MULTILINE)
    assert sorted(named) == sorted((spec.name, ",".join(spec.labels)) for spec in METRICS)


@cache
def _anchors(page: Path) -> frozenset[str]:
    return frozenset(re.findall(r'<h\d id="([^"]*)"', render_html(page.read_text(encoding="utf-8"))))


def test_links_between_documents_lead_to_pages_and_anchors_that_exist(repository: Path) -> None:
    dead = []
    for page in every(_prose(repository)):
        for target in LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
            path, _, anchor = target.partition("#")
            to = (page.parent / path).resolve() if path else page
            if not to.exists() or (anchor and anchor not in _anchors(to)):
                dead.append(f"{page.relative_to(repository)}: {target}")
    assert dead == []


def test_no_address_of_a_repository_that_does_not_exist_is_linked(repository: Path) -> None:
    folders = ("dashboards", "deploy", "docs", "exporter", "helm", "rules")
    files = (path for folder in folders for path in (repository / folder).rglob("*") if path.is_file())
    texts = (path for path in files if path.suffix in {".json", ".md", ".py", ".toml", ".yaml", ".yml"})
    made_up = "github.com/" + "gpu-triage"
    assert [str(path) for path in every(texts) if made_up in path.read_text(encoding="utf-8", errors="replace")] == []


def test_every_page_of_docs_is_in_the_navigation_and_all_of_it_exists(repository: Path, tmp_path: Path) -> None:
    named = NAV_FILE.findall((repository / "mkdocs.yml").read_text(encoding="utf-8"))
    stage(tmp_path / "pages")
    assert [name for name in named if not (tmp_path / "pages" / name).is_file()] == []
    assert {page.relative_to(repository).as_posix() for page in repository.glob("docs/**/*.md")} - set(named) == set()


def test_a_link_to_a_folder_leads_to_a_page(tmp_path: Path) -> None:
    stage(tmp_path / "pages")
    pages = tmp_path / "pages"
    assert "](../deploy/prometheus/README.md)" in (pages / "docs" / "install.md").read_text(encoding="utf-8")
    listed = (pages / "deploy" / "prometheus" / "README.md").read_text(encoding="utf-8")
    assert "[static.yml](static.yml)" in listed


ROW = re.compile(r"^\| (\d+) \| `(\w+)` \|", re.MULTILINE)
PATH = re.compile(r"`([\w./-]*(?:/|\.py|\.toml))`")


def floors(repository: Path) -> str:
    return (repository / "docs/architecture.md").read_text(encoding="utf-8")


def test_the_floors_are_those_that_the_linter_checks(repository: Path) -> None:
    contracts = read_toml(repository / "pyproject.toml")["tool"]["importlinter"]
    layers: list[str] = contracts["contracts"][0]["layers"]
    checked = [
        (str(len(layers) - row), name.strip().removeprefix("gpu_triage."))
        for row, layer in enumerate(layers)
        for name in layer.split("|")
    ]
    assert ROW.findall(floors(repository)) == checked


def test_every_package_and_every_module_beside_them_has_a_row(repository: Path) -> None:
    package = repository / "exporter/gpu_triage"
    packages = [path.parent.name for path in package.glob("*/__init__.py")]
    simulator = [path.parent.name for path in package.parent.glob("*/__init__.py") if path.parent != package]
    modules = [path.stem for path in package.glob("*.py") if path.name != "__init__.py"]
    assert sorted(name for _, name in ROW.findall(floors(repository))) == sorted([*packages, *simulator, *modules])


def test_every_path_exists(repository: Path) -> None:
    roots = (repository / "exporter/gpu_triage", repository / "exporter", repository)
    paths = [path for path in PATH.findall(floors(repository)) if not path.startswith("/")]
    assert len(paths) > 50
    assert [path for path in paths if not any((root / path).exists() for root in roots)] == []
