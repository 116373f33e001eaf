"""The command ``gpu-triage rules``: arguments, output and exit codes."""

from pathlib import Path
from typing import Final

import click

from gpu_triage.alerting.files import dashboards, inhibitions, rule_files, write_files
from gpu_triage.alerting.rule_source import INHIBITIONS
from gpu_triage.alerting.settings import DEFAULTS, default_settings, read_settings
from gpu_triage.alerting.shipped import shipped_sources

_LOADED: Final = """
  prometheus.yml:
    rule_files:
      - {0}/rules/*.yml
  alertmanager.yml, under inhibit_rules: the list in
    {0}/alertmanager-inhibit.yml
"""


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

    It prints the lines that load them in Prometheus and Alertmanager; import DIR/dashboards/*.json into Grafana.
    Settings look like this:

    \b
      job: "gpu-nodes"
      labels: {team: ml}
      alerts:
        GpuExporterDown: {for: 15m}
        GpuStraggler: {severity: info}
        GpuPersistenceModeOff: {enabled: true}

    DIR/rules/compat records metrics of dcgm-exporter under the names of these; load it only if you use that. Run the
    command again after an upgrade: it replaces its own files, and removes those of its rules that are gone.

    Exit code 0: written. 1: the folder cannot be written to. 2: a setting or a flag is wrong; nothing is written.
    """  # noqa: D301 - click needs the backspace escapes
    sources = shipped_sources()
    if print_config:
        click.echo(default_settings(sources), nl=False)
        return 0
    if output is None:
        raise click.UsageError("name the folder to write to with --output DIR")
    alerts = {alert.key: alert for source in sources for alert in source.alerts}
    settings = DEFAULTS if config is None else read_settings(config, alerts)
    files = {f"rules/{path}": text for path, text in rule_files(settings).items()}
    files[INHIBITIONS] = inhibitions(settings)
    if not no_dashboards:
        files |= {f"dashboards/{name}": text for name, text in dashboards(settings).items()}
    for name in write_files(output, files, force=force):
        click.echo(f"removed {output / name}: no rule of it is left")
    disabled = sum(not settings.alerts.get(key, alert).enabled for key, alert in alerts.items())
    click.echo(f"wrote {len(files)} files to {output}: {len(alerts) - disabled} alerts, {disabled} disabled")
    click.echo(f"Load them:\n{_LOADED.format(output.absolute())}", nl=False)
    return 0
