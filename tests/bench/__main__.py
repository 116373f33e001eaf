"""``python -m tests.bench NAME``: measure one thing; docs/benchmarks.md names the command of each figure."""

from importlib import import_module

import click

MODULES = ("peer", "scale", "attribution", "jobs", "onset", "rules", "dcgm", "fleet", "hostile", "soak")


class Benchmarks(click.Group):
    """The modules, each with a command called `main`: only the one that runs is imported."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(MODULES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - as above
        if cmd_name not in MODULES:
            return None
        command: click.Command = import_module(f"tests.bench.{cmd_name}").main
        return command


if __name__ == "__main__":
    Benchmarks(help="Measure what the exporter costs, for docs/benchmarks.md.")(prog_name="python -m tests.bench")
