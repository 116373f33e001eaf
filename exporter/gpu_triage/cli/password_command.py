"""``gpu-triage web-password``: a hash for the web configuration file."""

from __future__ import annotations

import sys

import click

from gpu_triage.options.values import whole_number
from gpu_triage.serve.config_file import HIGHEST_COST
from gpu_triage.serve.passwords import LONGEST_PASSWORD, hashed


@click.command("web-password", short_help="Ask for a password and print its bcrypt hash.")
@click.option("--cost", type=whole_number(4, HIGHEST_COST), default=10, show_default=True, help="Work a check takes.")
def web_password_command(cost: int) -> int:
    """Ask for a password and print its bcrypt hash, for basic_auth_users in the file of --web.config.file.

    If standard input is not a terminal, its first line is the password.
    """
    if sys.stdin.isatty():
        typed: str = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
        password = typed.encode()
    else:
        password = sys.stdin.buffer.readline(LONGEST_PASSWORD + len(b"\r\n") + 1).rstrip(b"\r\n")
        if not password:
            raise click.UsageError("no password on standard input; type one at a terminal, or pipe one in")
    if len(password) > LONGEST_PASSWORD:
        raise click.UsageError(
            f"bcrypt looks at {LONGEST_PASSWORD} bytes of a password and no further; choose a shorter one"
        )
    click.echo(hashed(password, cost))
    return 0
