"""The commands `gpu-triage accept`, for a finding that is known and may wait, and `gpu-triage repaired`."""

import os
import time
from dataclasses import replace
from datetime import datetime
from getpass import getuser
from pathlib import Path
from typing import Final

import click

from gpu_triage.cli.one_shot import host_options
from gpu_triage.cli.operator_options import REASON, until_type
from gpu_triage.documents import printable
from gpu_triage.driver.kernel.procfs import read_boot
from gpu_triage.errors import ConfigError
from gpu_triage.judge.findings.accepted import accept
from gpu_triage.judge.report.entries import accepted_text
from gpu_triage.options.config import Config
from gpu_triage.options.options_command import OptionsCommand
from gpu_triage.read.incidents import decisions
from gpu_triage.read.incidents.decisions import MOST_CHARACTERS, MOST_DAYS, Acceptance, Decisions, Repair
from gpu_triage.read.incidents.ledger import INCIDENT_HISTORY, Board, IncidentLedger
from gpu_triage.sampler.state_directory import INCIDENTS, UNIT_STATE_DIRECTORY, StateDirectory


def _user() -> str:
    return printable(os.environ.get("SUDO_USER") or getuser())[:MOST_CHARACTERS]


_by: Final = click.option("--by", metavar="NAME", type=REASON, default=_user, help="Who decided.  [default: you]")
_host: Final = host_options(lambda option: option.key in ("state.directory", "path.procfs", "config.file"))


@click.command(
    "accept",
    cls=OptionsCommand,
    short_help="Accept a known finding of a GPU until a date.",
    examples=(
        ("gpu-triage accept pcie.width --gpu 3 --until 2026-12-24 --reason 'riser on order'", "up to that day's end"),
        ("gpu-triage accept pcie.width --gpu 3 --withdraw", "no longer"),
        ("gpu-triage accept", "what is accepted on this host"),
    ),
    essential=("state.directory", "config.file"),
)
@click.argument("finding", required=False)
@click.option("--gpu", metavar="GPU", help="Its index, UUID or PCI address.")
@click.option(
    "--until",
    metavar="TIME",
    type=until_type(MOST_DAYS),
    help=f"Its last day, or a time, at most {MOST_DAYS} days ahead: 2026-12-24, 30d.",
)
@click.option("--reason", metavar="TEXT", type=REASON, help="Shown with the finding.")
@_by
@click.option("--even-critical", is_flag=True, help="Accept a critical finding, too.")
@click.option("--withdraw", is_flag=True, help="No longer accept it.")
@_host
def accept_command(
    *,
    config: Config,
    finding: str | None,
    gpu: str | None,
    until: datetime | None,
    reason: str | None,
    by: str,
    even_critical: bool,
    withdraw: bool,
) -> int:
    """Accept FINDING of a GPU, as it is now, until a date; without FINDING, list what is accepted on this host.

    It stays visible, with who accepted it, why and until when, but no alert fires, and no verdict or exit code follows
    from it. That ends early if the board is replaced or repaired, or if the finding becomes clearly worse.

    What makes a GPU sick cannot be accepted: jobs on it fail or compute wrong results. Drain it.

    Run it as root, or as the exporter's user, where the exporter runs.

    Exit code: 0 done; 1 the state directory cannot be read or written; 2 the options are invalid, or there is no such
    finding.
    """
    folder, now = _folder(config), time.time()
    if not finding or not gpu:
        if any((finding, gpu, until, reason, even_critical, withdraw)):
            raise click.UsageError("FINDING and --gpu belong together; write them as gpu-triage check names them")
        for each in decisions.read_decisions(folder).accepted:
            words = accepted_text(each.until, each.by, each.reason)
            click.echo(printable(f"{each.code} of GPU {each.uuid}{' ENDED' * (each.until < now)}: {words}"))
        return 0
    if withdraw:
        board = _board(folder, config, gpu)
        keys = {(gpu, finding), (board.uuid if board else gpu, finding)}

        def remove(present: Decisions) -> Decisions:
            if keys.isdisjoint(each.key for each in present.accepted):
                others = ", ".join(f"{each.code} of GPU {each.uuid}" for each in present.accepted)
                raise ConfigError(f"{finding} of GPU {gpu} is not accepted; what is: {others or 'nothing'}")
            return replace(present, accepted=tuple(each for each in present.accepted if each.key not in keys))

        decisions.change_decisions(folder, remove)
        click.echo(f"{finding} of GPU {gpu} is not accepted")
        return 0
    if until is None or reason is None:
        raise click.UsageError("it takes --until TIME --reason TEXT")
    wish = Acceptance(finding, gpu, "", "info", None, now, until.timestamp(), by, reason)
    accept(folder, wish, read_boot(config.path_procfs).boot_id, even_critical=even_critical)
    click.echo(printable(f"{finding} of GPU {gpu} is accepted {accepted_text(wish.until, by, reason)}"))
    return 0


@click.command(
    "repaired",
    cls=OptionsCommand,
    short_help="Record a repair of a GPU, which closes its history.",
    examples=(("gpu-triage repaired --gpu 3 --note 'new riser, RMA 4711'", "as soon as the GPU answers again"),),
    essential=("state.directory", "config.file"),
)
@click.option("--gpu", metavar="GPU", required=True, help="Its index, UUID or PCI address.")
@click.option("--note", metavar="TEXT", type=REASON, help="What was done.")
@_by
@_host
def repaired_command(*, config: Config, gpu: str, note: str | None, by: str) -> int:
    """Record that a GPU or its slot was repaired: incidents that either had before no longer count, and no finding of
    the GPU is accepted any longer.

    Run it as root, or as the exporter's user, where the exporter runs.

    Exit code: 0 done; 1 the state directory cannot be read or written; 2 the options are invalid, or there is no such
    GPU.
    """  # noqa: D205 - the help shows it as a paragraph
    folder = _folder(config)
    if (board := _board(folder, config, gpu)) is None:
        raise ConfigError(f"{folder}: no GPU {gpu} since boot; does the exporter run, with this state directory?")
    repair = Repair(board.uuid, board.slot, time.time(), by, note or "")

    def add(present: Decisions) -> Decisions:
        kept = (each for each in present.accepted if each.uuid != board.uuid and each.pci_bus_id != board.slot)
        return Decisions(tuple(kept), (*present.repairs, repair))

    decisions.change_decisions(folder, add)
    click.echo(f"GPU {board.gpu}, {board.uuid} at {board.slot}, was repaired")
    return 0


def _folder(config: Config) -> Path:
    folder = config.state_directory or UNIT_STATE_DIRECTORY
    if not folder.is_dir():
        raise ConfigError(f"{folder}: no such directory; name the exporter's with --state.directory")
    return folder


def _board(folder: Path, config: Config, gpu: str) -> Board | None:
    """The board with this index, UUID or PCI address that the exporter has seen since boot."""
    loaded = INCIDENT_HISTORY.read(StateDirectory(folder).path(INCIDENTS), time.time())
    ledger = IncidentLedger(None if loaded is None else loaded.memory)
    boards = ledger.boards_in(read_boot(config.path_procfs).boot_id).values()
    return next((each for each in boards if gpu in (each.gpu, each.uuid, each.slot)), None)
