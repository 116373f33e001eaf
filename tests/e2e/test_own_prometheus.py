"""README's way to one's own Prometheus, block by block: at its end, rules are loaded and the host is scraped."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml
from tests.conftest import RequiresTool
from tests.e2e.processes import PROGRAM, alertmanager, exporter, prometheus, wait_for

pytestmark = pytest.mark.full

FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_lines_that_are_printed_load_every_rule(
    requires_tool: RequiresTool, repository: Path, tmp_path: Path
) -> None:
    section = (repository / "README.md").read_text().partition("## With your own Prometheus\n")[2].partition("\n## ")[0]
    (_, scraped), (_, command) = FENCE.findall(section)
    _, *flags = command.removeprefix("# ").split()
    folder = tmp_path / "gpu-triage"
    at_home = [flag.replace("/etc/prometheus/gpu-triage", str(folder)) for flag in flags]
    said = subprocess.run([*PROGRAM, *at_home], check=True, capture_output=True, text=True).stdout
    lines = yaml.safe_load(said.partition("Load them:\n")[2].replace("the list in\n", ""))
    with exporter(tmp_path, "--simulate", "dual-a10") as running:
        config = scraped.replace("gpu-host-1:9836", running.address) + yaml.safe_dump(lines["prometheus.yml"])
        with prometheus(requires_tool("prometheus"), tmp_path, "global: {scrape_interval: 1s}\n" + config) as server:
            wait_for(lambda: server('up{job="gpu-triage"} == 1'))
            groups = server.ask("rules")["groups"]
    assert {Path(group["file"]).name for group in groups} == {path.name for path in (folder / "rules").glob("*.yml")}
    assert not [rule["name"] for group in groups for rule in group["rules"] if rule["health"] == "err"]
    muted = Path(lines["alertmanager.yml, under inhibit_rules"])
    config_file = tmp_path / "alertmanager.yml"
    config_file.write_text("route: {receiver: pager}\nreceivers: [{name: pager}]\n" + muted.read_text())
    with alertmanager(requires_tool("prometheus-alertmanager"), tmp_path, config_file) as url:
        assert url
