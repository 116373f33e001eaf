"""What rules/compat/dcgm.yml costs a Prometheus of hosts that have only dcgm-exporter, all of them at work."""

from pathlib import Path

import click
from tests.bench.jobs import COSTED_MINUTES, evaluation_seconds
from tests.bench.page import TO_SCREEN, conditions, report
from tests.bench.rules import SCALED_HOSTS
from tests.rules.test_dcgm import DCGM, PAGE_TEXT
from tests.rules.test_dcgm_faults import WORKS

HOSTS = (10, 30)
"""Compared, as an evaluation of none takes time, too. promtool allows no more."""
INTERVAL = 30.0
FIELDS = {line.partition("{")[0] for line in PAGE_TEXT.splitlines()} | {f"DCGM_FI_DEV_{name}" for name in WORKS}


@click.command(help=__doc__)
@TO_SCREEN
def main(*, to_screen: bool) -> None:
    took = []
    for hosts in HOSTS:
        series = {
            f'{name}{{instance="{gpu // 8}",job="dcgm",gpu="{gpu % 8}",UUID="{gpu}",modelName="A100"}}': WORKS.get(
                name.removeprefix("DCGM_FI_DEV_"), [0.0] * COSTED_MINUTES[1]
            )[: COSTED_MINUTES[1]]
            for gpu in range(8 * hosts)
            for name in FIELDS
        }
        took.append(evaluation_seconds(Path("promtool"), (DCGM,), series, 60.0, INTERVAL))
    each = (took[1] - took[0]) / (HOSTS[1] - HOSTS[0]) * SCALED_HOSTS
    share = f"{each:.2f} s of CPU for an evaluation at {SCALED_HOSTS:,} hosts, {each / INTERVAL:.1%} of its interval"
    report("dcgm", [f"{conditions()}: {share}"], to_screen=to_screen)
