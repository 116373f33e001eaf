"""Options shared by the fleet commands."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import datetime, timezone
from functools import wraps
from typing import Any, Final

import click

from gpu_triage.cli.fleet.client import PrometheusClient
from gpu_triage.cli.fleet.http_config import HttpConfig, read_http_config
from gpu_triage.cli.fleet.query import Selection
from gpu_triage.cli.one_shot import Command, duration_option
from gpu_triage.documents import quoted
from gpu_triage.options.values import LATEST_SECONDS, TextType, duration, parse_datetime, whole_number

_UNIX: Final = re.compile(r"[0-9]{1,12}(\.[0-9]{1,9})?")


def parse_moment(text: str) -> float:
    """Parse a time such as ``2026-11-22T10:00:00Z``, with any UTC offset, or Unix seconds.

    Raises:
        ValueError: the text is neither; a time without an offset is rejected as ambiguous.
    """
    if _UNIX.fullmatch(text):
        return min(float(text), LATEST_SECONDS)
    wrong = f"{quoted(text)} is no time; write one such as 2026-11-22T10:00:00Z, or Unix seconds"
    try:
        found = parse_datetime(text)
    except ValueError as error:
        raise ValueError(wrong) from error
    if found.tzinfo is None:
        raise ValueError(f"{quoted(text)} has no offset; write {text}Z for UTC")
    return found.timestamp()


def _show_moment(seconds: float) -> str:
    return datetime.fromtimestamp(math.floor(seconds), timezone.utc).isoformat()


MOMENT: Final = TextType("TIME", parse_moment, _show_moment)


def at_option(meaning: str) -> Callable[[Command], Command]:
    """Return a decorator that adds the flag ``--at``, a time; now by default."""
    return click.option("--at", metavar="TIME", type=MOMENT, help=f"{meaning}  [default: now]")


def limit_option(meaning: str) -> Callable[[Command], Command]:
    """Return a decorator that adds the flag ``--limit``, how many rows to show."""
    return click.option(
        "--limit", metavar="NUMBER", type=whole_number(1, 100_000), default="20", show_default=True, help=meaning
    )


def _selector(flag: str, meaning: str) -> Callable[[Command], Command]:
    return click.option(flag, metavar="REGEX", help=meaning)


def server_options(command: Callable[..., int]) -> Callable[..., int]:
    """Add the options for the server and host selection; the command gets ``client`` and ``selection``."""

    @click.option(
        "--prometheus",
        metavar="URL",
        required=True,
        help="Server to ask, such as http://prometheus:9090; its query API is below this URL.",
    )
    @click.option(
        "--http.config.file",
        "http_config_file",
        metavar="FILE",
        help="Credentials, TLS and headers for the server, in the format of promtool's option of this name.",
    )
    @duration_option("--timeout", "timeout_seconds", duration("1s", "10m"), "30s", "How long each query may take.")
    @_selector("--cluster", "Only hosts whose label cluster matches this regular expression as a whole.")
    @_selector("--job", "Likewise for the label job, the scrape job of the exporters.")
    @_selector("--instance", "Likewise for the label instance, such as 'gpu-0[1-4]:9836'.")
    @wraps(command)
    def with_client(
        *,
        prometheus: str,
        http_config_file: str | None,
        timeout_seconds: float,
        cluster: str | None,
        job: str | None,
        instance: str | None,
        **parameters: Any,
    ) -> int:
        config = HttpConfig() if http_config_file is None else read_http_config(http_config_file)
        client = PrometheusClient(prometheus, config, timeout_seconds)
        return command(client=client, selection=Selection(cluster, job, instance), **parameters)

    return with_client
