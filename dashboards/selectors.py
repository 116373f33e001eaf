"""How queries pick their series: always by the variables, and of thousands of GPUs the worst."""

from __future__ import annotations

from typing import Final

JOB_INSTANCE: Final = 'job=~"$job", instance=~"$instance"'
GPU: Final = f'{JOB_INSTANCE}, gpu=~"$gpu"'

MOST_SERIES: Final = 40
"""GPUs that a panel can show legibly."""

LEGEND: Final = "{{instance}} GPU {{gpu}}"
"""Who a line is about: host and index, everywhere."""


def host(metric: str, matchers: str = "") -> str:
    """The series of the chosen hosts."""
    return _select(metric, JOB_INSTANCE, matchers)


def gpu(metric: str, matchers: str = "") -> str:
    """The series of the chosen GPUs."""
    return _select(metric, GPU, matchers)


def gpu_or_host(metric: str, matchers: str = "") -> str:
    """The series of the chosen GPUs, and those that concern a chosen host as a whole."""
    return _select(metric, f'{JOB_INSTANCE}, gpu=~"$gpu|"', matchers)


def worst(expr: str) -> str:
    """Those series of an expression that are of the GPUs with the worst bottleneck in the time shown.

    `@ end()` makes the choice once for the whole picture, so that lines do not come and go; with up to MOST_SERIES GPUs
    it leaves all.
    """
    rank = gpu("instance_gpu:gpu_bottleneck:rank")
    return f"({expr})\nand on (job, instance, gpu)\nbottomk({MOST_SERIES}, min_over_time({rank}[$__range] @ end()))"


def rate(selected: str, window: str = "$__rate_interval") -> str:
    """Increase a second."""
    return f"rate({selected}[{window}])"


def by_gpu(expr: str) -> str:
    """One series a GPU, with nothing but its host and index: what the columns of a table are joined by."""
    return f"max by (job, instance, gpu) ({expr})"


def by_host(expr: str) -> str:
    """One series a host."""
    return f"max by (job, instance) ({expr})"


def _select(metric: str, always: str, matchers: str) -> str:
    return f"{metric}{{{always}{', ' if matchers else ''}{matchers}}}"
