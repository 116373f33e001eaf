"""Generates a manual page for each command, from its help.

click-man does this for any program, but doesn't know our option sections, examples, or the help's exit code paragraph.
"""

import inspect
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from gpu_triage import __version__
from gpu_triage.cli.main import group
from gpu_triage.options.option import Option
from gpu_triage.options.options_command import OptionsCommand

FOLDER = Path("docs/man")
_PROGRAM = "gpu-triage"
_VERBATIM = "\b"
_EXIT = re.compile(r"Exit codes?:? ", re.IGNORECASE)
_VARIABLES = (
    "Every option that names an environment variable can be set by it, or in the configuration file of --config.file. "
    "A flag beats the variable, which beats the file, which beats what a simulated scenario sets, which beats the "
    "default. A variable holds several values separated by commas; an empty one counts as not set."
)


def files() -> dict[Path, str]:
    found = list(commands())
    names = [ctx.command_path.replace(" ", "-") for ctx in found]
    return {
        FOLDER / f"{name}.1": _page(ctx, name, [other for other in names if _related(name, other)])
        for ctx, name in zip(found, names, strict=True)
    }


def commands() -> Iterator[click.Context]:
    """The program, and each of its commands."""
    return _with_subcommands(click.Context(group, info_name=_PROGRAM, **group.context_settings))


def _with_subcommands(ctx: click.Context) -> Iterator[click.Context]:
    yield ctx
    if isinstance(ctx.command, click.Group):
        for name in ctx.command.list_commands(ctx):
            command = ctx.command.get_command(ctx, name)
            assert command is not None  # noqa: S101 - every listed command exists
            yield from _with_subcommands(click.Context(command, parent=ctx, info_name=name, **command.context_settings))


def _related(name: str, other: str) -> bool:
    """Whether one is a subcommand of the other; the program's own page lists its commands anyway."""
    return (other.startswith(f"{name}-") and name != _PROGRAM) or name.startswith(f"{other}-")


def _page(ctx: click.Context, name: str, related: list[str]) -> str:
    paragraphs = inspect.cleandoc(ctx.command.help or "").split("\n\n")
    exits = [each for each in paragraphs if _EXIT.match(each)]
    described = [each for each in paragraphs if each not in exits]
    lines = [
        f'.TH {name.upper()} 1 "" "gpu-triage-exporter {__version__}" "User Commands"',
        ".nh",  # no hyphenation: a hyphenated option can't be copied
        ".ad l",
        ".SH NAME",
        f"{_escaped(name)} \\- {_escaped(_lower(ctx.command.get_short_help_str(limit=200)))}",
        ".SH SYNOPSIS",
        f"\\fB{_escaped(ctx.command_path)}\\fR {_escaped(' '.join(ctx.command.collect_usage_pieces(ctx)))}",
        ".SH DESCRIPTION",
        *_paragraphs(described),
        *_options(ctx),
    ]
    if isinstance(ctx.command, click.Group):
        lines += [".SH COMMANDS", *_subcommands(ctx)]
    if isinstance(ctx.command, OptionsCommand):
        if ctx.command.examples:
            lines += [".SH EXAMPLES", *_examples(ctx.command.examples)]
        lines += [".SH ENVIRONMENT", _escaped(_VARIABLES)]
    if exits:
        lines += [".SH EXIT STATUS", *_paragraphs(_EXIT.sub("", each) for each in exits)]
    if related:
        lines += [".SH SEE ALSO", ", ".join(f"\\fB{_escaped(each)}\\fR(1)" for each in related)]
    return "\n".join(lines) + "\n"


def _paragraphs(paragraphs: Iterable[str]) -> Iterator[str]:
    for place, paragraph in enumerate(paragraphs):
        if place:
            yield ".PP"
        verbatim, _, rest = paragraph.partition("\n")
        if verbatim.strip() == _VERBATIM:
            yield from (".nf", *map(_escaped, rest.splitlines()), ".fi")
        else:
            yield _escaped(" ".join(paragraph.split()))


def _options(ctx: click.Context) -> Iterator[str]:
    """Every option; shared ones are under the headings of `--help-all`."""
    sections: dict[str, list[tuple[str, str]]] = {"": []}
    for parameter in click.Command.get_params(ctx.command, ctx):
        record = parameter.get_help_record(ctx) if isinstance(parameter, click.Option) else None
        if record is not None:
            sections.setdefault(parameter.section if isinstance(parameter, Option) else "", []).append(record)
    yield ".SH OPTIONS"
    for section, records in sections.items():
        if section:
            yield f".SS {section}"
        for flag, meaning in records:
            yield from (".TP", f"\\fB{_escaped(flag)}\\fR", _escaped(" ".join(meaning.split())))


def _subcommands(ctx: click.Context) -> Iterator[str]:
    assert isinstance(ctx.command, click.Group)  # noqa: S101 - checked by the caller
    for name in ctx.command.list_commands(ctx):
        command = ctx.command.get_command(ctx, name)
        if command is not None:
            page = f"{ctx.command_path} {name}".replace(" ", "-")
            yield from (".TP", f"\\fB{_escaped(page)}\\fR(1)", _escaped(command.get_short_help_str(limit=200)))


def _examples(examples: Iterable[tuple[str, str]]) -> Iterator[str]:
    for line, purpose in examples:
        yield from (".TP", _escaped(f"{purpose[0].upper()}{purpose[1:]}:"), f"\\fB{_escaped(line)}\\fR")


def _lower(sentence: str) -> str:
    """Format a sentence for a NAME section: lower case, without a period."""
    return f"{sentence[:1].lower()}{sentence[1:].rstrip('.')}"


def _escaped(text: str) -> str:
    """Escape text for troff; hyphens become ASCII minus signs, so that commands can be copied."""
    plain = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{plain}" if plain.startswith((".", "'")) else plain
