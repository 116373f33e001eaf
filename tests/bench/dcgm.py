"""What rules/compat/dcgm.yml costs a Prometheus of hosts that have only dcgm-exporter, all of them at work."""

from pathlib import Path

import click
from tests.bench.jobs import COSTED_MINUTES, evaluation_seconds
from tests.bench.page import TO_SCREEN, conditions, report, table
from tests.bench.rules import SCALED_HOSTS
from tests.rules.handwritten import Series
from tests.rules.test_dcgm import DCGM, PAGE_TEXT
from tests.rules.test_dcgm_faults import WORKS

SAMPLE_SECONDS, INTERVAL = 60.0, 30.0
FIELDS = {line.partition("{")[0] for line in PAGE_TEXT.splitlines()} | {f"DCGM_FI_DEV_{name}" for name in WORKS}


@click.command(help=__doc__)
@click.option("--hosts", default=30, show_default=True, help="Hosts of eight GPUs; promtool allows no more.")
@click.option("--promtool", default="promtool", show_default=True)
@TO_SCREEN
def main(hosts: int, promtool: str, *, to_screen: bool) -> None:
    fewer = hosts // 3
    few, many = (
        evaluation_seconds(Path(promtool), (DCGM,), at_work(count), SAMPLE_SECONDS, INTERVAL)
        for count in (fewer, hosts)
    )
    # What an evaluation costs without any host does not grow with them.
    each = (many - few) / (hosts - fewer) * SCALED_HOSTS
    row = {
        "hosts": f"{SCALED_HOSTS:,}",
        "CPU of an evaluation": f"{each:.2f} s",
        "share of its interval": f"{each / INTERVAL:.1%}",
    }
    report("dcgm", [conditions(), "", *table([row])], to_screen=to_screen)


def at_work(hosts: int) -> Series:
    values = {name: WORKS.get(name.removeprefix("DCGM_FI_DEV_"), [0.0] * COSTED_MINUTES[1]) for name in FIELDS}
    gpus = ((host, gpu) for host in range(hosts) for gpu in range(8))
    return {
        f'{name}{{instance="gpu-{host}",job="dcgm",gpu="{gpu}",UUID="GPU-{host}-{gpu}",modelName="A100"}}': each[
            : COSTED_MINUTES[1]
        ]
        for host, gpu in gpus
        for name, each in values.items()
    }
