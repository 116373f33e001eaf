"""The page for people: what this exporter watches, and where its metrics are."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from html import escape

_STYLE = """
:root { color-scheme: light dark; --line: #d5d8dc; --soft: #5b6470; --warn: #8a4b00; --warn-ground: #fff4e0;
  --link: #0b57a4; }
@media (prefers-color-scheme: dark) { :root { --line: #3a4048; --soft: #a3abb5; --warn: #ffcf8a;
  --warn-ground: #3b2a0d; --link: #8ec2ff; } }
body { font: 1rem/1.5 system-ui, sans-serif; max-width: 46rem; margin: 0 auto; padding: 1.5rem 1rem; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0; }
h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
a { color: var(--link); }
.soft { color: var(--soft); margin: .25rem 0 1.25rem; }
.simulated { border: 2px solid; border-radius: .4rem; padding: .6rem .9rem; color: var(--warn);
  background: var(--warn-ground); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .4rem .75rem .4rem 0; border-bottom: 1px solid var(--line); }
td, dd, p { overflow-wrap: anywhere; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .25rem 1rem; margin: 0; }
dt { color: var(--soft); }
dd { margin: 0; }
li { padding: .3rem 0; }
"""


@dataclass(frozen=True, slots=True)
class LandingFacts:
    """What the landing page says of this process and its host.

    Attributes:
        version: of this program.
        simulated: whether the data is made up; the page says so before anything else.
        scenario: name of the simulated scenario, None on a real host.
        driver: the driver in one line, such as its version or why it cannot be used.
        gpus: index, model name and state of each GPU, in the order to show.
    """

    version: str
    simulated: bool
    scenario: str | None
    driver: str
    gpus: tuple[tuple[int, str, str], ...]


def content_security_policy() -> bytes:
    """The page's Content-Security-Policy: its own style sheet, by hash, and nothing else from anywhere."""
    digest = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
    return (
        f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ).encode()


def landing_page(facts: LandingFacts, telemetry_path: str, alive: str | None, ready: str | None) -> bytes:
    """The landing page, HTML in UTF-8, every value escaped.

    Args:
        facts: what to show; model names and states come from the driver and are not trusted.
        telemetry_path: where the metrics are.
        alive: why the process is not healthy, None where it is.
        ready: what the first samples still lack, None where nothing.
    """
    page = f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>GPU triage exporter{" (simulated)" if facts.simulated else ""}</title>
<style>{_STYLE}</style>
</head>
<body>
<main>
<h1>GPU triage exporter</h1>
<p class="soft">Version {_safe(facts.version)}</p>
{_simulation_notice(facts)}
<h2>State</h2>
<dl>
<dt>Driver</dt><dd>{_safe(facts.driver)}</dd>
<dt>Healthy</dt><dd>{_verdict(alive)}</dd>
<dt>Ready</dt><dd>{_verdict(ready)}</dd>
</dl>
<h2>GPUs</h2>
{_gpu_table(facts.gpus)}
<h2>Endpoints</h2>
<ul>
<li><a href="{_safe(telemetry_path)}">Metrics</a> for Prometheus</li>
<li><a href="/-/healthy">Health</a>: whether the process should be left running</li>
<li><a href="/-/ready">Readiness</a>: whether first samples were taken</li>
</ul>
</main>
</body>
</html>
"""
    return page.encode("utf-8", "replace")


def _safe(value: object) -> str:
    return escape(str(value), quote=True)


def _verdict(complaint: str | None) -> str:
    return "yes" if complaint is None else f"no: {_safe(complaint)}"


def _simulation_notice(facts: LandingFacts) -> str:
    if not facts.simulated:
        return ""
    scenario = "" if facts.scenario is None else f" The scenario is <strong>{_safe(facts.scenario)}</strong>."
    return (
        '<p class="simulated" role="note"><strong>Simulated data.</strong> Nothing here or in the metrics '
        f"describes real hardware.{scenario}</p>"
    )


def _gpu_table(gpus: tuple[tuple[int, str, str], ...]) -> str:
    if not gpus:
        return "<p>No GPU is known.</p>"
    rows = "\n".join(
        f"<tr><td>{_safe(index)}</td><td>{_safe(name)}</td><td>{_safe(state)}</td></tr>" for index, name, state in gpus
    )
    return (
        '<div class="wide"><table>\n<thead><tr><th scope="col">Index</th><th scope="col">Model</th>'
        f'<th scope="col">State</th></tr></thead>\n<tbody>\n{rows}\n</tbody>\n</table></div>'
    )
