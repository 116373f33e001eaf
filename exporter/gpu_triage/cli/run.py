"""Runs the command line, and converts errors to a message and an exit code."""

import errno
import fcntl
import os
import sys
import traceback
from collections.abc import Iterable, Sequence
from typing import TextIO

import click

from gpu_triage.documents import nearest, printable
from gpu_triage.errors import DocumentError, GpuTriageError, PrometheusUnavailable
from gpu_triage.options.option import Option

PROGRAM = "gpu-triage"
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_BROKEN = 70
"""EX_SOFTWARE in sysexits.h: an unexpected error must not look like a finding (1) or a usage error (2)."""
EXIT_INTERRUPTED = 130
EXIT_PIPE = 141
"""As a shell shows for programs that SIGPIPE ends: 1 would mean findings to a script with ``set -o pipefail``."""

_NO_OUTPUT = frozenset({errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})


def run_cli(command: click.Command, argv: Sequence[str]) -> int:
    """Run a command with these arguments (without the program name), and return the exit code.

    It is what the command returns if a number, else 0; 2 for invalid arguments or configuration, 1 for other errors of
    this program, one line each on stderr, 130 after an interrupt, 141 if the reader closed stdout early, 70 if the
    output could not be written or this program has a bug, with a traceback.
    """
    _open_missing_streams()
    code = _run(command, argv)
    try:
        sys.stderr.flush()
    except OSError:
        _discard(sys.stderr)
    return code


def _open_missing_streams() -> None:
    """Open /dev/null for each standard stream that is closed (``2>&-``), which Python replaces by None.

    Otherwise the next socket or file would get its number, and what a library writes there. stdout can still not be
    written to: a report that does not reach the user is an error.
    """
    for name, mode, flags in (("stdin", "r", os.O_RDONLY), ("stdout", "w", os.O_RDONLY), ("stderr", "w", os.O_WRONLY)):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, flags), mode, encoding="utf-8", errors="replace"))


def _is_closed(error: OSError) -> bool:
    """Whether the error is that of stdout opened for reading."""
    flags = fcntl.fcntl(sys.stdout.fileno(), fcntl.F_GETFL) if error.errno == errno.EBADF else os.O_WRONLY
    return flags & os.O_ACCMODE == os.O_RDONLY


def _discard(stream: TextIO) -> None:
    """Drop what could not be written: the interpreter would try again at exit, and then exit with 120."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _run(command: click.Command, argv: Sequence[str]) -> int:
    stdout = sys.stdout
    try:
        result = command.main(args=list(argv), prog_name=PROGRAM, standalone_mode=False)
        sys.stdout.flush()
    except (click.Abort, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    except SystemExit as stop:
        if sys.stdout is not stdout:
            return EXIT_PIPE  # click replaces it then, and exits with 1
        return stop.code if isinstance(stop.code, int) else EXIT_FAILED
    except Exception as error:  # noqa: BLE001 - Python would exit with 1, which means a finding
        return _explain(error)
    return result if isinstance(result, int) else 0


def _explain(error: Exception) -> int:
    if isinstance(error, click.ClickException):
        return _report_click(error)
    if isinstance(error, DocumentError):
        return max(_report(problem, EXIT_USAGE) for problem in error.problems)
    if isinstance(error, GpuTriageError):
        return _report(str(error), EXIT_USAGE if isinstance(error, PrometheusUnavailable) else EXIT_FAILED)
    if isinstance(error, OSError) and error.filename is None and (error.errno in _NO_OUTPUT or _is_closed(error)):
        _discard(sys.stdout)
        if error.errno == errno.EPIPE:
            return EXIT_PIPE
        cause = "stdout is closed" if error.errno == errno.EBADF else error.strerror
        return _report(f"the output cannot be written: {cause}; make room, or send it elsewhere", EXIT_BROKEN)
    trace = "\n".join(map(printable, "".join(traceback.format_exception(error)).split("\n")))
    _say(f"{PROGRAM}: this is a bug, please report it:\n{trace}")
    return EXIT_BROKEN


def _report(message: str, code: int) -> int:
    _say(f"{PROGRAM}: error: {printable(' '.join(message.split()))}")
    return code


def _say(text: str) -> None:
    """Write to stderr; if that is impossible too, only the exit code is left."""
    try:
        click.echo(text, err=True)
    except OSError:
        _discard(sys.stderr)


def _report_click(error: click.ClickException) -> int:
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()  # a group called without arguments: show the help rather than an error line
        return EXIT_USAGE
    return _report(_explained(error), EXIT_USAGE if isinstance(error, click.UsageError) else EXIT_FAILED)


def _explained(error: click.ClickException) -> str:
    context = error.ctx if isinstance(error, click.UsageError) else None
    help_command = f"{context.command_path if context else PROGRAM} --help"
    flags = _flags(context)
    if isinstance(error, click.NoSuchOption):
        where = f"{help_command}-all" if "--help-all" in flags else help_command
        return f"no such option {error.option_name}; {_nearest(error.option_name, flags, where)}"
    command = getattr(error, "command_name", None)  # since click 8.4; in older versions, click's message is used
    if command is not None and context is not None and isinstance(context.command, click.Group):
        return f"no such command {command}; {_nearest(command, context.command.list_commands(context), help_command)}"
    if isinstance(error, click.MissingParameter) and error.param is not None and context is not None:
        return _missing(error.param, context)
    if isinstance(error, click.BadParameter) and error.param is not None and "; " in error.message:
        return f"{_named(error.param)}: {error.message}"
    message = error.format_message().rstrip(".")
    parameter = flags.get(error.option_name) if isinstance(error, click.BadOptionUsage) else None
    if isinstance(parameter, click.Option):
        return f"{message}; write {_synopsis(parameter)}"
    return f"{message}; {help_command} shows what is right"


def _named(parameter: click.Parameter) -> str:
    return parameter.opts[0] if isinstance(parameter, click.Option) else parameter.human_readable_name


def _synopsis(option: click.Option) -> str:
    """A flag with what it takes: ``--format text|json``."""
    if isinstance(option, Option):
        return option.synopsis
    if option.is_flag:
        return option.opts[0]
    words = "|".join(option.type.choices) if isinstance(option.type, click.Choice) else option.type.name.upper()
    return f"{option.opts[0]} {option.metavar or words}"


def _missing(parameter: click.Parameter, context: click.Context) -> str:
    name = _named(parameter)
    right = _synopsis(parameter) if isinstance(parameter, click.Option) else f"{context.command_path} {name}"
    return f"{name} is missing; write {right}"


def _nearest(name: str, known: Iterable[str], help_command: str) -> str:
    close = nearest(name, known)
    return f"did you mean {close}?" if close else f"{help_command} lists them"


def _flags(context: click.Context | None) -> dict[str, click.Parameter]:
    parameters = context.command.get_params(context) if context is not None else []
    return {flag: each for each in parameters for flag in (*each.opts, *each.secondary_opts)}
