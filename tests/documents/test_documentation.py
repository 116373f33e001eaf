"""Reference pages, lists of alerts and floors, and the site are complete; prose names only what exists."""

import re
from functools import cache
from pathlib import Path

from deploy.generate.alerts_page import alerts_page
from deploy.generate.pages import between
from deploy.generate.site import stage
from tests.gathered import every, for_each

from gpu_triage.alerting.rule_source import Alert
from gpu_triage.alerting.shipped import shipped_sources
from gpu_triage.judge.evidence import thresholds
from gpu_triage.judge.findings.table import CHECKS
from gpu_triage.options.option_table import all_options
from gpu_triage.read.metrics.metric import Tier, gpu_gauge
from gpu_triage.read.registry import COLLECTOR_SWITCHES, METRICS
from gpu_triage.read.xid.codes import XidKind
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


def test_the_manual_page_names_every_option_and_the_exit_codes(repository: Path) -> None:
    serve = (repository / "docs/man/gpu-triage-serve.1").read_text(encoding="utf-8").replace("\\-", "-")
    assert [each.key for each in all_options(COLLECTOR_SWITCHES) if each.variable not in serve] == []
    assert ".SH EXIT STATUS\n0 after a signal; 2 " in serve


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


def test_what_stands_between_markers_is_replaced_and_nothing_else() -> None:
    page = "above\n<!-- a -->\nold\n<!-- /a -->\nbelow\n<!-- other -->\nold\n<!-- /other -->\n"
    assert between(page, "a", "new\n") == page.replace("old", "new", 1)


def test_every_metric_is_documented_once() -> None:
    page = reference.metrics_markdown()
    named = re.findall(r"^- `(\w+)(?:\{([\w,]+)\})?`", page, re.MULTILINE)
    assert sorted(named) == sorted((spec.name, ",".join(spec.labels)) for spec in METRICS)


def test_a_type_that_the_name_does_not_show_is_named() -> None:
    peers = next(spec for spec in METRICS if spec.name == "gpu_p2p_status")
    assert "`gpu_p2p_status{" in (line := reference.line(peers, Tier.SLOW))
    assert "}` (info): " in line


def test_text_that_markdown_would_eat_is_escaped() -> None:
    spec = gpu_gauge("gpu_x", "Either a|b, or <c>.", source="/sys/*/x")
    assert ": Either a\\|b, or &lt;c>. [/sys/\\*/x]" in reference.line(spec, Tier.FAST)


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


def test_the_readme_is_short_and_has_one_picture(repository: Path) -> None:
    text = (repository / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 150
    assert len(re.findall(r"!\[", text)) == 1
    headings = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert headings[:3] == ["On a desk", "On a Slurm cluster", "On Kubernetes"]
    assert "Limits" in headings


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


SOURCES = shipped_sources()
ALERTS = [alert for source in SOURCES for alert in source.alerts]
ALERTS_PAGE = alerts_page(SOURCES)


def test_every_finding_has_one_row_with_its_alert_and_xids_share_one() -> None:
    lines = ALERTS_PAGE.split("\n## Alerts that Prometheus judges\n", maxsplit=1)[0]
    rows = re.findall(
        r"^- `([a-z][\w.]*)`: [a-z_]+, \w+/\w+[^\[\n]*(?:\[(\w+)\]\(\S+\))?(?: \(off\))?$", lines, re.MULTILINE
    )
    others = [check for check in CHECKS if not check.code.removeprefix("xid.").isdecimal()]
    others.sort(key=lambda check: -check.severity.rank)
    assert rows == [(check.code, check.alert or "") for check in others]
    assert "- `gpu.lost`: drain, none/7m, [GpuLost](" in ALERTS_PAGE
    assert "- `pcie.width`: inspect_hardware, 10m/25m, lanes, [GpuPcieWidthDowntrained](" in ALERTS_PAGE
    assert ALERTS_PAGE.count("- `xid.CODE` of ") == len(XidKind)


def test_every_alert_of_prometheus_has_one_row_with_its_runbook_and_no_tokens_left() -> None:
    rows = re.findall(r"^- \[(\S+)\]\(\S+/(\w+)\.md\)(?: \(off\))?: (\w+), ", ALERTS_PAGE, re.MULTILINE)
    assert sorted(rows) == sorted((alert.key, alert.name, alert.severity) for alert in ALERTS if not alert.codes)
    assert "${" not in ALERTS_PAGE


@for_each("alert", [a for a in ALERTS if a.thresholds], ids=lambda alert: alert.key)
def test_thresholds_stand_with_their_ranges(alert: Alert) -> None:
    for name, limits in every(alert.thresholds.items()):
        row = f"- {alert.key} `{name}` ({limits.value:g}, {limits.low:g}-{limits.high:g}): "
        assert row in ALERTS_PAGE or limits.high > 1e5


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


def test_readme_and_contributing_lead_there(repository: Path) -> None:
    assert "(docs/architecture.md)" in (repository / "README.md").read_text(encoding="utf-8")
    start = (repository / "CONTRIBUTING.md").read_text(encoding="utf-8").splitlines()[:8]
    assert "(docs/architecture.md)" in "\n".join(start)
