"""The limits with which the chart's monitors scrape, and whether a page stays within them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text
from prometheus_client.samples import Sample

from gpu_triage.machine import Moment
from gpu_triage.read.metrics import metric
from gpu_triage.sampler.outcomes import HOST, Outcome
from gpu_triage.serve.exposition.encoding import END, Encoder, Format

TARGET_LABELS: Final = ("instance", "job", "namespace", "service", "endpoint", "pod", "container")
"""What the Prometheus operator adds to each series of a scrape."""

TARGET: Final = {name: f"the-{name}" for name in TARGET_LABELS if name not in ("instance", "job")}
LIMITS: Final = ("sampleLimit", "labelLimit", "labelNameLengthLimit", "labelValueLengthLimit", "bodySizeLimit")


def scrape_of_the_chart(repository: Path) -> Mapping[str, Any]:
    """How the chart's monitors scrape by default."""
    values: Mapping[str, Any] = yaml.safe_load((repository / "helm/gpu-triage-exporter/values.yaml").read_text())
    scrape: Mapping[str, Any] = values["scrape"]
    return scrape


def config_of(chart: Mapping[str, Any], **addresses: tuple[str, str]) -> str:
    """The configuration of a Prometheus that scrapes each second with these limits: address and path by job."""
    names = {name: "".join(f"_{c.lower()}" if c.isupper() else c for c in name) for name in LIMITS}
    limits = {names[name]: chart[name] for name in LIMITS}
    jobs = [
        {"job_name": job, "metrics_path": path, **limits, "static_configs": [{"targets": [address], "labels": TARGET}]}
        for job, (address, path) in addresses.items()
    ]
    return yaml.safe_dump({"global": {"scrape_interval": "1s"}, "scrape_configs": jobs})


def page_of(form: Format, *samples: metric.Sample, foreign: tuple[Metric, ...] = ()) -> str:
    """A page of these samples and families alone."""
    at = Moment(0.0, 0.0)
    outcome = Outcome("c", HOST, samples, at, foreign=foreign)
    return (Encoder(form).encode((outcome,)) + (END if form is Format.OPENMETRICS else b"")).decode()


def samples_of(page: str, form: Format) -> list[Sample]:
    """The samples of a page, parsed as strictly as its format allows."""
    parse = parse_openmetrics if form is Format.OPENMETRICS else parse_text
    families = parse(page)
    return [sample for family in families for sample in family.samples]


def check(page: str, form: Format, chart: Mapping[str, Any]) -> list[Sample]:
    """The samples of a page that harms no terminal, and that a Prometheus with the chart's limits takes in whole."""
    assert all(line.isprintable() for line in page.split("\n"))
    found = samples_of(page, form)
    assert 0 < len(found) <= chart["sampleLimit"]
    for sample in found:
        assert len(sample.labels) + 1 + len(TARGET_LABELS) <= chart["labelLimit"]
        for name, value in {**sample.labels, "__name__": sample.name}.items():
            # A label that the target has as well is renamed.
            assert len(f"exported_{name}".encode()) <= chart["labelNameLengthLimit"]
            assert len(value.encode()) <= min(200, chart["labelValueLengthLimit"])
    series = [(sample.name, *sorted(sample.labels.items())) for sample in found]
    assert len(series) == len(set(series))
    return found
