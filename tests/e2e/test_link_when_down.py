"""Real Prometheus: the link of an alert about a host that is down opens, and shows that alert's runbook."""

import json
import urllib.request
from pathlib import Path

import pytest
from deploy.demo.processes import free_port
from tests.conftest import RequiresTool
from tests.e2e.processes import exporter, prometheus, wait_for

from gpu_triage.alerting.files import rule_files
from gpu_triage.alerting.settings import AlertSettings, Settings


@pytest.mark.slow
def test_the_link_of_a_host_that_is_down_opens(tmp_path: Path, requires_tool: RequiresTool) -> None:
    program = requires_tool("prometheus")
    settings = Settings(alerts={"GpuExporterDown": AlertSettings(hold="0s")})
    rules = rule_files(settings)["alerts-exporter.yml"].replace("interval: 1m", "interval: 1s")
    (tmp_path / "rules.yml").write_text(rules, encoding="utf-8")
    dead = f"127.0.0.1:{free_port()}"
    with exporter(tmp_path, "--simulate", "dual-a10") as alive:
        config = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "external_labels": {"cluster": "east"}},
            "rule_files": [str(tmp_path / "rules.yml")],
            "scrape_configs": [{"job_name": "gpu-triage", "static_configs": [{"targets": [dead, alive.address]}]}],
        }
        with prometheus(program, tmp_path, json.dumps(config)) as ask:

            def link() -> str | None:
                with urllib.request.urlopen(f"http://{ask.address}/api/v1/alerts", timeout=10) as answer:
                    alerts = json.load(answer)["data"]["alerts"]
                down = [each for each in alerts if each["labels"]["alertname"] == "GpuExporterDown"]
                assert {each["labels"]["instance"] for each in down} <= {dead}
                return next((each["annotations"]["runbook_url"] for each in down), None)

            # Until the first scrape of the other, no exporter is known to be up.
            wait_for(lambda: (link() or "").startswith("http"))
            url = link()
            assert url == f"http://{alive.address}/runbooks/GpuExporterDown"
            with urllib.request.urlopen(url, timeout=10) as page:
                assert "GpuExporterDown" in page.read().decode()
