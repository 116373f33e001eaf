"""What docs/web-security.md shows works here and in Prometheus's own programs."""

import re
from dataclasses import fields
from pathlib import Path

import pytest
import yaml
from tests.certificates import Authority
from tests.conftest import RequiresTool
from tests.program_output import output_of

from gpu_triage.alerting.settings import DEFAULTS
from gpu_triage.serve import config_file
from gpu_triage.serve.passwords import hashed
from gpu_triage.serve.security import SecuritySource

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
