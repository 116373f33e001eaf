"""Macros of the rules' source, ``${name}``: parts that expressions or texts share, and what the judge's tables have."""

import re
from collections.abc import Iterable, Mapping
from functools import cache
from textwrap import wrap
from types import MappingProxyType
from typing import Final

from gpu_triage.alerting.rule_source import read_macros
from gpu_triage.judge.evidence import thresholds
from gpu_triage.judge.findings.settings import LIMITS
from gpu_triage.read.exporter.judgment import GPU_BOTTLENECK
from gpu_triage.read.registry import GPU_COLLECTORS
from gpu_triage.read.xid.codes import (
    NONFATAL_ACTION,
    NONFATAL_MEANING,
    SLOW_GSP,
    SLOW_GSP_ACTION,
    SLOW_GSP_MEANING,
    XID_CODES,
    XidCode,
    XidKind,
)
from gpu_triage.read.xid.xid_events import MISSED_BY_NVML

GPU_HOURS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "observed": "GPU hours in which an exporter reported the GPU, whether or not it answered.",
        "allocated": "GPU hours for which somebody had the GPU: given by the scheduler, or else held by processes or "
        "their memory. A shared GPU counts by shares.",
        "used": "GPU hours with work: kernels, or a video engine if that was busier; an hour at 30 % is 0.3.",
        "idle while allocated": "Allocated GPU hours in which the GPU worked for less than 5 % of 5 minutes. "
        "Targets labeled as serving count apart.",
        "lost": "GPU hours that jobs missed by the pace of their best hour: 8 GPUs at a pace of 0.7 lose 2.4 per hour.",
        "unavailable": "Observed GPU hours in which the GPU did not answer: it was lost, missing or stalled.",
    }
)
"""The six words for GPU hours; rules, `gpu-triage report`, dashboards and the glossary quote these definitions."""

_REPLAYS: Final = (
    thresholds.PCIE_BIT_ERROR_RATE * thresholds.PCIE_BITS_PER_SECOND[5] * 16 * thresholds.EVENTS_WINDOW_SECONDS
)
"""The most that any healthy link of today has in 15 minutes: dcgm-exporter's default fields lack speed and width."""
_PLACEHOLDER: Final = re.compile(r"\$\{([a-z][a-z0-9_]*)\}")
_FIRST_XIDS: Final = ("79", "95", "64", "140", "48", "94")
"""If several Xids came together, a text is about the first of these, or else about another one."""


@cache
def macros() -> Mapping[str, str]:
    """The text of each macro by name, such as the limit ``thermal_hw_share``; placeholders for settings are kept."""
    found = {**xid_lists(), **xid_texts(), "gpu_collectors": "|".join(collector.name for collector in GPU_COLLECTORS)}
    numbers = ((name, value) for name, value in vars(thresholds).items() if isinstance(value, (int, float)))
    found |= {name.lower(): f"{value:g}" for name, value in numbers}
    found |= {
        f"{code.replace('.', '_')}_{name}": f"{limit.value:g}"
        for code, limits in LIMITS.items()
        for name, limit in limits.items()
    }
    found |= {"healthy_pcie_replays": f"{_REPLAYS:.0f}", "class_compute": str(GPU_BOTTLENECK.value_of("compute"))}
    found |= {f"hours_{name.replace(' ', '_')}": "\n".join(wrap(hours, 118)) for name, hours in GPU_HOURS.items()}
    for name, text in read_macros().items():
        found[name] = expanded(text, found)
    return MappingProxyType(found)


def expanded(text: str, values: Mapping[str, str]) -> str:
    """Replace the placeholders that have a value; its lines get the indentation of the line that it is in."""

    def value(found: re.Match[str]) -> str:
        line = text[text.rfind("\n", 0, found.start()) + 1 :]
        return values.get(found[1], found[0]).replace("\n", "\n" + " " * (len(line) - len(line.lstrip(" "))))

    return _PLACEHOLDER.sub(value, text)


def xid_lists() -> Mapping[str, str]:
    """Lists of Xid codes as regular expressions for label matchers, ``46|48|…``, by macro."""
    every = XID_CODES.values()
    page = [each for each in every if each.kind is XidKind.PAGE]
    lists: dict[str, Iterable[XidCode]] = {
        **{f"xids_{kind.value}": [each for each in every if each.kind is kind] for kind in XidKind},
        "xids_page_nvlink": [each for each in page if each.nvlink],
        "xids_page_other": [each for each in page if not each.nvlink],
        "xids_page_at_once": [each for each in page if not each.fatal_in_text],
        "xids_fatal_in_text": [each for each in every if each.fatal_in_text],
        "xids_listed": every,
    }
    return {name: "|".join(str(each.code) for each in codes) for name, codes in lists.items()}


def xid_texts() -> Mapping[str, str]:
    """Prometheus templates with the meaning of, or action for, the most important code in ``$codes``, by macro."""
    texts = {}
    for kind in (XidKind.PAGE, XidKind.TICKET):
        codes = [(str(each.code), each.meaning, each.action) for each in XID_CODES.values() if each.kind is kind]
        if kind is XidKind.TICKET:
            codes.append(("nonfatal", NONFATAL_MEANING, NONFATAL_ACTION))
            codes.append((str(SLOW_GSP), SLOW_GSP_MEANING, SLOW_GSP_ACTION))
        texts[f"xid_words_{kind.value}"] = _template((code, meaning) for code, meaning, _ in codes)
        texts[f"xid_action_{kind.value}"] = _template((code, action) for code, _, action in codes)
    *first, last = MISSED_BY_NVML
    texts["xid_slow_gsp"] = str(SLOW_GSP)
    texts["xids_missed_by_nvml"] = f"{', '.join(map(str, first))} and {last}"
    return texts


def _template(text_of_code: Iterable[tuple[str, str]]) -> str:
    def place(code: str) -> int:
        return _FIRST_XIDS.index(code) if code in _FIRST_XIDS else len(_FIRST_XIDS)

    codes_by_text: dict[str, list[str]] = {}
    for code, text in sorted(text_of_code, key=lambda each: place(each[0])):
        codes_by_text.setdefault(text, []).append(code)
    return choice((f'match " ({"|".join(codes)}) " $codes', text) for text, codes in codes_by_text.items())


def choice(texts: Iterable[tuple[str, str]]) -> str:
    """A template with the text of the first condition that holds."""
    return "{{ " + "else ".join(f"if {condition} }}}}{text}{{{{ " for condition, text in texts) + "end }}"
