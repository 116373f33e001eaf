"""Markdown reference of metrics and options, for docs/METRICS.md, docs/configuration.md and the handbook."""

from collections import Counter
from textwrap import fill
from typing import Final

from gpu_triage.documents import packaged_toml
from gpu_triage.judge.findings.settings import settings_markdown
from gpu_triage.options.option_table import all_options
from gpu_triage.read.metrics.contract import Subject
from gpu_triage.read.metrics.metric import Kind, MetricSpec, Tier
from gpu_triage.read.registry import COLLECTOR_SWITCHES, SUBJECTS

_INTRODUCTIONS: Final = packaged_toml(__package__, "reference.toml")

_USUAL_KINDS: Final = {"_total": Kind.COUNTER, "_info": Kind.INFO}
"""Types of metrics by the end of the name; the others are gauges."""

_REPEATED: Final = 2
"""A source that so many metrics of a subject have is named once."""


def metrics_markdown() -> str:
    """The metric reference as Markdown, one list per subject; ends with a newline."""
    return "\n".join((_INTRODUCTIONS["metrics"], *(_section(subject) for subject in SUBJECTS if subject.metrics)))


def configuration_markdown() -> str:
    """The option reference as Markdown, one list per section, then finding thresholds; ends with a newline."""
    sections: dict[str, list[str]] = {}
    for option in all_options(()):
        default = "" if option.shown_default == "none" else f" (`{option.shown_default}`)"
        text = f"- `{option.synopsis}`{default}: {_escaped(option.help or '')}\n"
        sections.setdefault(option.section, []).append(text)
    lists = "\n".join(f"## {title}\n\n{''.join(lines)}" for title, lines in sections.items())
    options, thresholds = _INTRODUCTIONS["options"], _INTRODUCTIONS["thresholds"]
    return f"{options}\n{lists}\n{_switches()}\n{thresholds}\n{settings_markdown()}"


def _switches() -> str:
    """The flags of the collectors; the headings of the metric reference have what each of them reads."""
    names = {each.name: each.default for each in COLLECTOR_SWITCHES}
    off = ", ".join(f"`--collector.{name}`" for name, default in names.items() if not default)
    fixed = ", ".join(each.name for each in SUBJECTS if each.metrics and each.name not in names)
    text = (
        "[METRICS.md](METRICS.md) has what each collector reads. `--no-collector.NAME` turns one off, all but "
        f"{fixed}, and `--no-collector.host` all `host_` collectors; a collector's own switch beats it. "
        f"Off by default: {off}."
    )
    return f"## Switches of collectors\n\n{fill(text, 120, break_on_hyphens=False)}\n"


def _section(subject: Subject) -> str:
    ((source, count),) = Counter(spec.source for spec in subject.metrics).most_common(1)
    common = source if count >= _REPEATED else ""
    head = f"Source: {_escaped(common)}\n\n" if common else ""
    lines = "".join(line(spec, subject.tier, common) for spec in subject.metrics)
    return f"## {subject.name}: {subject.about} ({subject.tier.value})\n\n{head}{lines}"


def line(spec: MetricSpec, tier: Tier, source: str = "") -> str:
    """The line of a metric; `tier` is its subject's, and `source` the one that its subject's section names."""
    labels = f"{{{','.join(spec.labels)}}}" if spec.labels else ""
    usual = next((kind for end, kind in _USUAL_KINDS.items() if spec.name.endswith(end)), Kind.GAUGE)
    unusual = [spec.kind.value] if spec.kind is not usual else []
    unusual += [spec.tier.value] if spec.tier not in (None, tier) else []
    remark = f" ({', '.join(unusual)})" if unusual else ""
    own = f" [{_escaped(spec.source)}]" if spec.source != source else ""
    return f"- `{spec.name}{labels}`{remark}: {_escaped(spec.help)}{own}\n"


def _escaped(text: str) -> str:
    for special, harmless in (("\\", "\\\\"), ("|", "\\|"), ("*", "\\*"), ("<", "&lt;")):
        text = text.replace(special, harmless)
    return text
