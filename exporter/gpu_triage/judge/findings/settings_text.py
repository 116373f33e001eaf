"""All settings of findings: as a configuration file section, and as a table for the docs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gpu_triage.judge.findings.limits import LIMITS
from gpu_triage.judge.findings.settings import settable, shown
from gpu_triage.judge.findings.table import CHECKS, Area, Check

_HEAD: Final = """\
# How findings are judged, with the defaults: a section of the exporter's configuration file. Keep what you change and
# delete the rest: what is not here keeps its default, also in later versions.
#
#   gpu-triage config check /etc/gpu-triage/config.yml
#   systemctl reload gpu-triage-exporter   # or send SIGHUP
#
# wait: how long the condition of a finding must last before the finding is confirmed: the alert fires, and the verdict
# is that of its severity. Until then it is pending, and the verdict is watch.
# hold: how long it stays confirmed after its condition has ended, so that a flapping condition is one incident.
# Both are durations from 0s to 24h.
judge:"""
_TABLE_HEAD: Final = "| Setting | Default | Range | Meaning |\n|---|---|---|---|\n"


def settings_document() -> str:
    """Return the section `judge` with every default, each threshold explained by a comment; ends with a newline."""
    lines = [_HEAD]
    for area in Area:
        lines.append(f"\n  # {area.value}")
        for check in CHECKS:
            if check.area is area:
                lines += _entry(check)
    return "\n".join(lines) + "\n"


def _entry(check: Check) -> Iterator[str]:
    yield f"  {check.code}:"
    for name, limit in settable(check).items():
        if name in LIMITS.get(check.code, {}):
            yield f"    # {limit.about} ({shown(limit.low, limit.unit)} to {shown(limit.high, limit.unit)})"
        yield f"    {name}: {shown(limit.value, limit.unit)}"


def settings_markdown() -> str:
    """Return a Markdown table of all thresholds with default and range; ends with a newline."""
    rows = dict.fromkeys(row for check in CHECKS for row in _rows(check))
    return f"{_TABLE_HEAD}{''.join(rows)}"


def _rows(check: Check) -> Iterator[str]:
    # All Xids have the same settings.
    code = "xid.CODE" if check.code.removeprefix("xid.").isdecimal() else check.code
    for name, each in LIMITS.get(check.code, {}).items():
        value, low, high = (shown(number, each.unit) for number in (each.value, each.low, each.high))
        yield f"| `{code}.{name}` | {value} | {low}-{high} | {each.about} |\n"
