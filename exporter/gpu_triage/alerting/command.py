"""``gpu-triage rules``: its arguments, its output and its exit codes."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from gpu_triage.alerting.default_settings import default_settings
from gpu_triage.alerting.files import dashboards, inhibitions, rule_files
from gpu_triage.alerting.output import write_files
from gpu_triage.alerting.settings import DEFAULTS, Settings
from gpu_triage.alerting.settings_file import SettingsError, read_settings
from gpu_triage.alerting.sources import INHIBITIONS, read_sources

_EXIT_USAGE: Final = 2


@click.command(
    "rules",
    context_settings={"max_content_width": 100},
    short_help="Write alert rules and dashboards, with your settings.",
)
@click.option("--output", metavar="DIR", type=Path, help="Where to write; the folder is created.")
@click.option("--config", metavar="FILE", help="Your settings, in YAML.  [default: those of --print-config]")
@click.option("--no-dashboards", is_flag=True, help="Write no dashboards.")
@click.option("--force", is_flag=True, help="Replace files that this command did not write, too.")
@click.option("--print-config", is_flag=True, help="Print every setting with its default and range, and write nothing.")
def rules_command(
    *, output: Path | None, config: str | None, no_dashboards: bool, force: bool, print_config: bool
) -> int:
    """Write alert rules, inhibitions and dashboards, with your settings.

    \b
      gpu-triage rules --print-config > rules.yaml
      (edit rules.yaml: keep what you change, delete the rest)
      gpu-triage rules --config rules.yaml --output /etc/prometheus/gpu-triage

    Then load DIR/rules/*.yml in Prometheus (rule_files) and DIR/alertmanager-inhibit.yml in Alertmanager
    (inhibit_rules), and import DIR/dashboards/*.json into Grafana. Settings look like this:

    \b
      job: "gpu-nodes"
      labels: {team: ml}
      alerts:
        GpuHwThermalThrottling: {for: 15m, severity: warning}
        GpuPersistenceModeOff: {enabled: false}

    DIR/rules/compat holds the recorded names of the release before; load it only if you still use them. Run the command
    again after an upgrade: it replaces its own files, and removes those of its rules that are gone.

    Exit code 0: written. 1: the folder cannot be written to. 2: a setting or a flag is wrong; nothing is written.
    """  # noqa: D301 - click reads the backspaces
    sources = read_sources()
    if print_config:
        click.echo(default_settings(sources), nl=False)
        return 0
    if output is None:
        raise click.UsageError("name the folder to write to with --output DIR")
    alerts = {alert.key: alert for source in sources for alert in source.alerts}
    try:
        settings = DEFAULTS if config is None else read_settings(config, alerts)
    except SettingsError as error:
        for problem in error.problems:
            click.echo(f"gpu-triage: error: {problem}", err=True)
        return _EXIT_USAGE
    files = _files(settings, with_dashboards=not no_dashboards)
    gone = write_files(output, files, force=force)
    for name in gone:
        click.echo(f"removed {output / name}: no rule of it is left")
    disabled = sum(not each.enabled for each in settings.alerts.values())
    click.echo(f"wrote {len(files)} files to {output}: {len(alerts) - disabled} alerts, {disabled} disabled")
    return 0


def _files(settings: Settings, *, with_dashboards: bool) -> dict[str, str]:
    files = {f"rules/{path}": text for path, text in rule_files(settings).items()}
    files[INHIBITIONS] = inhibitions(settings)
    if with_dashboards:
        files |= {f"dashboards/{name}": text for name, text in dashboards(settings).items()}
    return files
