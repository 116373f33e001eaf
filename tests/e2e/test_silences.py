"""Maintenance of many hosts, in a real Alertmanager."""

import json
import subprocess
import sys
import urllib.request
from pathlib import Path

from tests.conftest import RequiresTool
from tests.e2e.processes import alertmanager, fire, wait_for

HOSTS = 'instance=~"gpu-0[1-4]:9836"'
MACHINES = tuple(f"gpu-0{number}:9836" for number in range(1, 7))


def test_silences_of_many_hosts_are_made_listed_and_ended(
    repository: Path, tmp_path: Path, requires_tool: RequiresTool
) -> None:
    with alertmanager(
        requires_tool("prometheus-alertmanager"), tmp_path, repository / "deploy/alertmanager/alertmanager.yml"
    ) as url:
        server = url.removesuffix("/api/v2/alerts")

        def maintenance(*arguments: str) -> tuple[int, str]:
            command = [sys.executable, "-m", "gpu_triage", "maintenance", *arguments, "--alertmanager", server]
            ran = subprocess.run(command, check=False, capture_output=True, text=True)
            return ran.returncode, ran.stdout + ran.stderr

        def silenced() -> set[tuple[str, str]]:
            with urllib.request.urlopen(url, timeout=10) as answer:
                found = json.load(answer)
            return {
                (each["labels"]["instance"], each["labels"]["alertname"])
                for each in found
                if each["status"]["silencedBy"]
            }

        foreign = {"matchers": [{"name": "a", "value": "b", "isRegex": False}], "createdBy": "x", "comment": "theirs"}
        times = {"startsAt": "2026-01-01T00:00:00Z", "endsAt": "2099-01-01T00:00:00Z"}
        request = urllib.request.Request(
            f"{server}/api/v2/silences", json.dumps(foreign | times).encode(), {"Content-Type": "application/json"}
        )
        urllib.request.urlopen(request, timeout=10).close()
        names = ("GpuLost", "GpuExporterDown", "NodeDown", "GpuTriageWatchdog")
        fire(url, ({"labels": {"alertname": name, "instance": each}} for each in MACHINES for name in names))

        assert maintenance("status") == (1, "no maintenance\n")
        code, out = maintenance("on", "--until", "2h", "--reason", 'new "firmware"', "--match", HOSTS)
        assert (code, f'new "firmware": {HOSTS}' in out) == (0, True), out
        wanted = {(each, name) for each in MACHINES[:4] for name in names[:2]}
        wait_for(lambda: silenced() == wanted)
        assert "those about many hosts and jobs have no instance" in out
        assert maintenance("on", "--until", "1h", "--reason", 'new "firmware"', "--match", HOSTS)[0] == 0, "replaces it"
        wait_for(lambda: silenced() == wanted)
        code, out = maintenance("status")
        assert (code, out.count("\n"), ': new "firmware" (' in out, HOSTS in out) == (0, 1, True, True), out
        assert maintenance("off", "--match", "instance=~gpu-0[1-3].*") == (0, "ended: 0 silences\n")
        assert maintenance("off", "--match", HOSTS) == (0, "ended: 1 silence\n")
        assert maintenance("status")[0] == 1
        wait_for(lambda: silenced() == set())
