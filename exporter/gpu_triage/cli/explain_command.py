"""The command `gpu-triage explain`: a page of the handbook on the terminal."""

import shutil
from typing import Final

import click

from gpu_triage.cli.one_shot import colors_wanted
from gpu_triage.documents import printable
from gpu_triage.errors import ConfigError
from gpu_triage.judge.findings.table import CHECKS
from gpu_triage.read.xid.codes import XID_CODES
from gpu_triage.serve.handbook.pages import UnknownPage, alert_names, find, summary_of
from gpu_triage.serve.handbook.terminal import render_terminal

_WIDEST: Final = 100
_NARROWEST: Final = 40
_PLAYBOOK: Final = "\nThe playbook has the steps, and how to drain and reset: gpu-triage explain playbook\n"


@click.command("explain", short_help="Print the runbook of an alert, a finding or an Xid.")
@click.argument("name", nargs=-1)
@click.option("--list", "list_all", is_flag=True, help="List every alert with its finding, and all Xid codes.")
def explain_command(*, name: tuple[str, ...], list_all: bool) -> int:
    """Print what an alert, a finding or an Xid means, and what to do about it.

    \b
      gpu-triage explain GpuLost          the runbook of an alert
      gpu-triage explain gpu.lost         a finding of gpu-triage check
      gpu-triage explain 79               an Xid; xid-79 and "xid 79" are the same
      gpu-triage explain pcie_link        a class of bottleneck, or a verdict
      gpu-triage explain fallen off the bus   a symptom or a message, in any words
      gpu-triage explain playbook         what to ask in which order
      gpu-triage explain xids             every Xid code
      gpu-triage explain metrics          every metric; "configuration" has every option

    Case does not matter. A running exporter serves the same pages under /runbooks/.
    """  # noqa: D301 - click needs the backspace escape
    if bool(name) == list_all:
        raise click.UsageError("give one alert, finding or Xid, or --list")
    click.echo(_listing() if list_all else _page(" ".join(name)), nl=False, color=colors_wanted())
    return 0


def _page(word: str) -> str:
    try:
        page = find(word)
    except UnknownPage as unknown:
        near = f"did you mean {', '.join(unknown.nearest)}?" if unknown.nearest else "--list shows them all"
        raise ConfigError(f"no alert, finding or Xid {printable(word[:80])!r}; {near}") from unknown
    columns = shutil.get_terminal_size((_WIDEST, 24)).columns
    more = _PLAYBOOK if "playbook.md" in page else ""
    return render_terminal(page, max(_NARROWEST, min(_WIDEST, columns))) + more


def _listing() -> str:
    names = alert_names()
    width = max(len(name) for name in (*names, *(check.code for check in CHECKS)))
    lines = ["Alerts:", *(f"  {name:<{width}}  {summary_of(name)}" for name in names), "", "Findings:"]
    lines += [
        f"  {check.code:<{width}}  {check.alert or check.runbook or '-'}"
        for check in CHECKS
        if not check.code.removeprefix("xid.").isdigit()
    ]
    lines += ["", "Xid codes:"]
    lines += [f"  {xid.code:<{width}}  {xid.meaning}" for xid in XID_CODES.values()]
    return "\n".join(lines) + "\n"
