"""Which metrics are exposed: a profile, plus the user's inclusions, minus the user's exclusions."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Final

from gpu_triage.errors import ConfigError
from gpu_triage.options.config import FULL, RULES, Config
from gpu_triage.read.exporter.judgment import FINDING_SERIES
from gpu_triage.read.metrics.metric import MetricSpec, Sample

_NEEDED: Final = Path(__file__).with_name("metrics_of_rules.txt")
"""Generated from the rules by `make regenerate`, so that the exporter needs neither their files nor their package."""

_FINDINGS: Final = frozenset(spec.name for spec in FINDING_SERIES)
"""In the profile `rules`, too: some servers only get findings by remote write."""

Shown = bool | Callable[[Sample], bool]


@cache
def metrics_of_rules() -> Mapping[str, str]:
    """Metrics of the shipped rules and alert texts, with the ``label=value`` that they select; "" if others, too."""
    lines = _NEEDED.read_text(encoding="utf-8").splitlines()
    named = (line.partition(" ") for line in lines if not line.startswith("#"))
    return {name: selected for name, _, selected in named}


def needed_but_excluded(config: Config) -> tuple[str, ...]:
    """Metrics needed by a shipped alert but excluded with ``--metrics.exclude``, sorted."""
    excluded = config.metrics_exclude
    return tuple(sorted(name for name in metrics_of_rules() if _matches(name, excluded))) if excluded else ()


def refuse_unknown_metrics(config: Config, known: Collection[MetricSpec]) -> None:
    """Check the configured patterns against all known metrics; raises ConfigError if one matches none."""
    for option, patterns in (("include", config.metrics_include), ("exclude", config.metrics_exclude)):
        for pattern in patterns:
            if not any(fnmatchcase(spec.name, pattern) for spec in known):
                raise ConfigError(
                    f"metrics.{option}: {pattern!r} matches no metric; "
                    "write a name of docs/METRICS.md, or a pattern such as gpu_nvlink_*"
                )


class Selection:
    def __init__(self, config: Config) -> None:
        self._config = config
        self._everything = config.metrics_profile == FULL and not config.metrics_exclude
        self._shown: dict[MetricSpec, Shown] = {}

    def shown(self, spec: MetricSpec) -> Shown:
        """Whether a metric's samples are exposed: all, none, or those for which the returned function is true."""
        if self._everything:
            return True
        shown = self._shown.get(spec)
        if shown is None:
            shown = self._shown[spec] = self._decide(spec)
        return shown

    def of(self, samples: Iterable[Sample]) -> Iterator[Sample]:
        for sample in samples:
            shown = self.shown(sample.spec)
            if shown is True or (shown and shown(sample)):
                yield sample

    def _decide(self, spec: MetricSpec) -> Shown:
        config, name = self._config, spec.name
        if _matches(name, config.metrics_exclude):
            return False
        if config.metrics_profile == FULL or _matches(name, config.metrics_include):
            return True
        if config.metrics_profile == RULES and name not in _FINDINGS:
            selected = metrics_of_rules().get(name)
            if not selected:
                return False if selected is None else spec.default_samples or True
            label, _, value = selected.partition("=")
            place = spec.labels.index(label)
            return lambda sample: sample.labels[place] == value
        return spec.default_samples or True


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


EVERYTHING: Final = Selection(Config(metrics_profile=FULL))  # exposes everything
