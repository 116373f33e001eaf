"""Builds a Config from flags, environment variables, a YAML file, and defaults, in order of precedence.

Each option is declared once, in `table`; its flag, variable, file key, help and documentation derive from that.
"""

from __future__ import annotations

from gpu_triage.options.command import OptionsCommand, serve_options, version_option
from gpu_triage.options.option import Option
from gpu_triage.options.run import run_cli
from gpu_triage.options.table import CollectorSwitch, all_options, options_markdown
from gpu_triage.options.values import split_listen_address, unix_socket_path

__all__ = [
    "CollectorSwitch",
    "Option",
    "OptionsCommand",
    "all_options",
    "options_markdown",
    "run_cli",
    "serve_options",
    "split_listen_address",
    "unix_socket_path",
    "version_option",
]
