"""Runbooks over HTTP: found by any name, offline, with a policy that allows nothing but their style sheet.

What docs/web-security.md shows works here and in Prometheus's own programs.
"""

import re
from dataclasses import fields
from http.client import HTTPConnection
from pathlib import Path

import pytest
import yaml
from tests.certificates import Authority
from tests.conftest import RequiresTool
from tests.program_output import output_of
from tests.status_pages import GPU, judged, page_of, up
from tests.unit.serve.test_web_app import ask, client, host

from gpu_triage.alerting.settings import DEFAULTS
from gpu_triage.read.gpu.pcie import GPU_PCIE_LINK_EXPECTED_WIDTH, GPU_PCIE_LINK_WIDTH
from gpu_triage.serve import config_file
from gpu_triage.serve.messages import prefers_text
from gpu_triage.serve.page.runbook import runbook_answer
from gpu_triage.serve.page.style import source_hash
from gpu_triage.serve.passwords import hashed
from gpu_triage.serve.security import SecuritySource

__all__ = ["client", "host"]

BROWSER = "text/html,application/xhtml+xml,*/*;q=0.8"


@pytest.mark.parametrize(
    ("path", "heading"),
    [("/runbooks/", "Runbooks"), ("/runbooks/xid%2079", "Xid 79"), ("/runbooks/GpuLost?from=alertmanager", "GpuLost")],
)
def test_a_page_is_found_by_the_name_a_person_has_at_hand(client: HTTPConnection, path: str, heading: str) -> None:
    response, body = ask(client, path, Accept=BROWSER)
    assert response.status == 200
    assert response.headers["Content-Type"] == "text/html; charset=utf-8"
    assert re.findall(r"<h1[^>]*>(.*?)</h1>", body.decode())[0] == heading
    assert f"<title>{heading}</title>" in body.decode()


def test_a_page_loads_nothing_and_runs_nothing(client: HTTPConnection) -> None:
    response, body = ask(client, "/runbooks/GpuLost")
    page = body.decode()
    style = re.search(r"<style>(.*?)</style>", page, re.DOTALL)
    assert style
    policy = response.headers["Content-Security-Policy"]
    assert policy == (
        f"default-src 'none'; style-src '{source_hash(style[1])}'; img-src data:; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )
    assert response.headers["Referrer-Policy"] == "no-referrer"
    assert response.headers["Cache-Control"] == "no-store"
    assert not re.search(r"<script|<img|<iframe|style=|src=|@import|url\(", page)
    assert "prefers-color-scheme: dark" in page
    assert 'name="viewport"' in page


@pytest.mark.parametrize("plain", [False, True])
def test_a_page_that_is_requested_again_is_not_rendered_again(monkeypatch: pytest.MonkeyPatch, *, plain: bool) -> None:
    before = runbook_answer("GpuLost", plain=plain)
    monkeypatch.setattr("gpu_triage.serve.handbook.markdown._parser", None)
    assert runbook_answer("GpuLost", plain=plain) == before


def test_links_hold_behind_a_proxy_that_puts_a_prefix_before_every_path(client: HTTPConnection) -> None:
    _, body = ask(client, "/runbooks/GpuLost")
    links = re.findall(r'href="([^"]+)"', body.decode())
    assert "../" in links
    assert "playbook#reset-a-gpu" in links
    assert [link for link in links if link.startswith("/")] == []
    moved, _ = ask(client, "/runbooks")
    assert (moved.status, moved.headers["Location"]) == (308, "runbooks/")


@pytest.mark.parametrize("word", ["GpuLots", "gpulos", "%3Cscript%3E", "..%2f..%2fetc%2fpasswd", "a/b", "%00"])
def test_an_unknown_name_is_a_404_with_the_index_and_is_not_reflected(client: HTTPConnection, word: str) -> None:
    response, body = ask(client, f"/runbooks/{word}", Accept=BROWSER)
    page = body.decode()
    assert response.status == 404
    assert word not in page
    assert "<script" not in page
    assert 'href="GpuExporterDown"' in page


def test_an_unknown_name_is_answered_with_the_nearest_ones_first(client: HTTPConnection) -> None:
    _, body = ask(client, "/runbooks/GpuLots", Accept=BROWSER)
    near, _, index = body.decode().partition("<hr>")
    assert '<li><a href="GpuLost">GpuLost</a></li>' in near
    assert 'href="GpuLost"' in index
    response, words = ask(client, "/runbooks/GpuLots", Accept="text/plain")
    assert response.status == 404
    assert words.startswith(b"no such page; did you mean GpuLost,")
    assert words.endswith(b"? All pages: /runbooks/\n")


def test_who_prefers_plain_text_gets_it(client: HTTPConnection) -> None:
    response, body = ask(client, "/runbooks/GpuLost", Accept="text/plain")
    assert response.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert response.headers["Vary"] == "accept"
    assert body.startswith(b"GpuLost\n=======\n")
    assert b"\x1b" not in body


def test_html_is_for_everybody_who_does_not_ask_for_text() -> None:
    assert [prefers_text(each) for each in ("", "*/*", BROWSER, "text/plain, text/html", ";,;")] == [False] * 5
    assert [prefers_text(each) for each in ("text/plain", "text/markdown;q=0.5, */*")] == [True] * 2


def test_the_status_page_links_runbooks_that_exist_and_nothing_outside() -> None:
    width = ((GPU_PCIE_LINK_WIDTH, 8.0, GPU), (GPU_PCIE_LINK_EXPECTED_WIDTH, 16.0, GPU))
    page = page_of(judged(up(), *width))
    links = [link for link in re.findall(r'href="([^"#]+)"', page) if not link.startswith("data:")]
    assert "runbooks/" in links
    assert any(link.startswith("runbooks/Gpu") for link in links)
    assert [link for link in links if link.startswith(("/", "http"))] == []
    names = [link.removeprefix("runbooks/") for link in links if link.startswith("runbooks/")]
    assert {runbook_answer(name, plain=False).status for name in names} == {200}


YAML_BLOCK = re.compile(r"^```yaml\n(.*?)^```", re.MULTILINE | re.DOTALL)
YOUNGER_THAN_DEBIANS_PROMTOOL = re.compile(r"^ *client_allowed_sans:.*\n", re.MULTILINE)


@pytest.fixture
def sample(repository: Path, tmp_path: Path) -> Path:
    """The documented file, with its certificates beside it."""
    authority = Authority(tmp_path, "clients-ca")
    authority.issue("server", "IP:127.0.0.1")
    blocks = YAML_BLOCK.findall((repository / "docs" / "web-security.md").read_text())
    file = tmp_path / "web.yml"
    file.write_text(re.sub(r"\$2b\$\S+", hashed(b"scrape", 10), blocks[0]))
    return file


def test_the_documented_file_is_loaded(sample: Path) -> None:
    config = SecuritySource(str(sample)).current.config
    assert list(config.users) == [b"prometheus"]
    assert config.headers == ((b"strict-transport-security", b"max-age=31536000"),)
    assert config.tls is not None
    assert config.tls.client_allowed_sans == ("prometheus.example",)


def test_the_documented_file_is_what_prometheus_understands(sample: Path, requires_tool: RequiresTool) -> None:
    sample.write_text(YOUNGER_THAN_DEBIANS_PROMTOOL.sub("", sample.read_text()))
    output_of(requires_tool("promtool"), "check", "web-config", sample)
    SecuritySource(str(sample))


def test_prometheus_takes_the_documented_scrape(repository: Path, tmp_path: Path, requires_tool: RequiresTool) -> None:
    scrape = YAML_BLOCK.findall((repository / "docs" / "web-security.md").read_text())[1]
    (tmp_path / "prometheus.yml").write_text(scrape)
    output_of(requires_tool("promtool"), "check", "config", "--syntax-only", tmp_path / "prometheus.yml")


def test_the_alerts_recognize_the_documented_scrape_job(repository: Path) -> None:
    scrape = yaml.safe_load(YAML_BLOCK.findall((repository / "docs" / "web-security.md").read_text())[1])
    (name,) = (job["job_name"] for job in scrape["scrape_configs"])
    assert re.fullmatch(DEFAULTS.job, name)


def test_every_key_is_documented(repository: Path) -> None:
    page = (repository / "docs" / "web-security.md").read_text()
    tables = (config_file.WebFile, config_file.TlsSection, config_file.HttpSection)
    keys = (*config_file.HEADERS, *(field.name for table in tables for field in fields(table)))
    assert [key for key in keys if key not in page] == []
