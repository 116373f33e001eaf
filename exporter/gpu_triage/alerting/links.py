"""Links of alerts: to the runbook and to the dashboard."""

from __future__ import annotations

import re
from typing import Final

_LABEL: Final = re.compile(r"\{\{ ?\$labels\.([a-zA-Z_][a-zA-Z0-9_]*) ?\}\}")


def runbook(base_url: str, alert: str, *, fleet: bool) -> str:
    """Where an alert's runbook is; where that is an exporter and the alert is about no single host, at any of them."""
    url = f"{base_url}/{alert}"
    if not fleet or not _LABEL.search(base_url):
        return url
    of_some_exporter = _LABEL.sub(r"{{ . | first | label `\1` }}", url)
    return (
        f"{{{{ with query `gpu_exporter_build_info` }}}}{of_some_exporter}"
        f"{{{{ else }}}}gpu-triage explain {alert}{{{{ end }}}}"
    )


def dashboard(uid: str, *, fleet: bool) -> str:
    """The path of a dashboard below Grafana's address, showing what the alert is about."""
    job = f"/d/{uid}?var-job={{{{ $labels.job | urlquery }}}}"
    if fleet:
        return job
    gpu = "{{ with $labels.gpu }}&var-gpu={{ . | urlquery }}{{ end }}"
    return f"{job}&var-instance={{{{ $labels.instance | urlquery }}}}{gpu}"
