"""What is wrong with a query, as far as its text and the catalog tell: rules and dashboards are held to the same."""

import re
from collections.abc import Callable, Iterator

from tests.promql.expressions import LabelError, RecordError, Use, labels_of, uses
from tests.promql.vocabulary import kinds, words

from gpu_triage.read.metrics.metric import Kind

_COUNTER_FUNCTIONS = frozenset({"rate", "increase", "irate", "resets"})
_PRESENCE_FUNCTIONS = frozenset({"absent", "absent_over_time", "present_over_time", "count", "group", "unless"})
_LEVELS = frozenset({"gpu_ecc_volatile_errors_total"})
"""Counters that say something as they stand: one error counts until the reset that clears it."""
_ONE_OR_ZERO = frozenset({"instance_gpu_name:gpu_available:last5m"})
"""Gauges of which a reset is an event: from 1 to 0."""
_COPIES = frozenset({"last_over_time", "max_over_time"})
"""What records a counter as it stands, once in a while, for a long window to read."""
_COPIED = re.compile(r"\w+:gpu_\w+_(?:seconds|joules):(?:last|max)5m")
"""Names of such copies: counters, too."""
_IDENTITIES = frozenset(
    {
        *("gpu_info", "gpu_driver_info", "gpu_exporter_build_info", "gpu_flight_recording_timestamp_seconds"),
        *("instance_gpu_code:gpu_finding:confirmed", "instance:gpu_alert:affected"),
        *("instance:gpu_exporter_target:up", "instance_gpu:gpu_info:affected", *_ONE_OR_ZERO),
    }
)
"""Series of which topk may keep one a GPU or host: whichever stays joins the same."""
_ALTERNATIVES = re.compile(r"[A-Za-z0-9_]+(\|[A-Za-z0-9_]+)*")


def faults(expr: str, labels: Callable[[str], frozenset[str]]) -> list[str]:
    """What is wrong with a PromQL expression; empty if nothing is.

    Args:
        expr: the expression.
        labels: labels of the series of a name; raises KeyError for an unknown one.
    """
    try:
        found = uses(expr)
    except ValueError as error:
        return [str(error)]
    lines = [line for use in found for line in (*_unknown(use, labels), *_misused(use), *_impossible(use))]
    if not lines:
        try:
            labels_of(expr, labels)
        except LabelError as error:
            lines.append(str(error))
        except RecordError:
            pass  # told of the rule that records it
    return lines


def _unknown(use: Use, labels: Callable[[str], frozenset[str]]) -> Iterator[str]:
    try:
        labels(use.metric)
    except KeyError:
        yield f"nothing makes {use.metric}"
    except RecordError:
        return


def _misused(use: Use) -> Iterator[str]:
    around = use.inside[0] if use.inside else "nothing"
    copied = bool(_COPIED.fullmatch(use.metric))
    counter = kinds().get(use.metric) is Kind.COUNTER or copied
    level = use.metric in _LEVELS and around in {"nothing", "max", "min"}
    sound = _COUNTER_FUNCTIONS | _PRESENCE_FUNCTIONS | (frozenset() if copied else _COPIES)
    if counter and not level and around not in sound:
        yield f"{use.metric} is a counter under {around}; it means something under rate or increase"
    level = use.metric in _ONE_OR_ZERO and around == "resets"
    if not counter and not level and any(function in _COUNTER_FUNCTIONS for function in use.inside[:2]):
        yield f"{use.metric} is a gauge under {around}; use delta or an average"
    for function in sorted({"topk", "bottomk"}.intersection(use.inside) if use.metric not in _IDENTITIES else ()):
        yield f"{use.metric} is under {function}, whose series come and go"


def _impossible(use: Use) -> Iterator[str]:
    for label, operator, value in use.matchers:
        known = words(use.metric, label)
        if known is None or value in ("", ".+"):
            continue
        plain = operator in ("=", "!=")
        single = plain or not _ALTERNATIVES.fullmatch(value)
        for word in [value] if single else value.split("|"):
            if not any(word == one if plain else re.fullmatch(word, one) for one in known):
                yield f"{use.metric}{{{label}}} is never {word!r}; it is one of {', '.join(sorted(known))[:200]}"
