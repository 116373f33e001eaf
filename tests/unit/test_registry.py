from __future__ import annotations

from pathlib import Path

import pytest

from gpu_triage import catalogue
from gpu_triage.catalogue import MetricSpec
from gpu_triage.collectors import baseline, exporter, incidents, judgement, presence, registry, xid
from gpu_triage.exposition import Exposition
from gpu_triage.machine import Moment
from gpu_triage.sampler.outcomes import Outcome, OutcomeStore, checked

GPU = ("0", "GPU-1")


def test_every_metric_of_the_catalogue_belongs_to_exactly_one_collector() -> None:
    specs = [spec for spec in vars(catalogue).values() if isinstance(spec, MetricSpec)]
    owned = [spec for collector in registry.ALL_COLLECTORS for spec in collector.metrics]
    owned += [*presence.METRICS, *exporter.METRICS, *xid.METRICS, *incidents.METRICS]
    owned += [*baseline.METRICS, *judgement.METRICS]
    assert sorted(spec.name for spec in owned) == sorted(spec.name for spec in specs)


def test_every_collector_file_is_registered() -> None:
    folder = Path(registry.__file__).parent
    frame = {"__init__", "contract", "rendering", "registry", "presence", "exporter", "xid", "baseline", "judgement"}
    frame.add("incidents")
    files = {path.stem for path in folder.glob("*.py")} - frame
    assert files == {collector.name for collector in registry.ALL_COLLECTORS}


def test_samples_of_another_collectors_metric_are_refused() -> None:
    with pytest.raises(ValueError, match="gpu_power_watts is not declared"):
        checked([catalogue.POWER.sample(1, *GPU)], frozenset({catalogue.ENERGY}))


def test_a_series_that_appears_twice_in_an_outcome_is_refused() -> None:
    twice = [catalogue.POWER.sample(1, *GPU), catalogue.POWER.sample(2, *GPU)]
    with pytest.raises(ValueError, match="twice"):
        checked(twice, frozenset({catalogue.POWER}))


def test_two_gpus_that_claim_one_series_leave_it_once() -> None:
    store = OutcomeStore(["power"])
    for subject, watts in (("a", 1.0), ("b", 2.0)):
        samples = (catalogue.POWER.sample(watts, *GPU),)
        store.put(Outcome("power", subject, samples, True, (), 0.0, Moment(0, 0)))  # noqa: FBT003
    page = Exposition(store).page("", (), gzipped=False).body.decode()
    assert [line for line in page.splitlines() if line.startswith("gpu_power_watts{")] == [
        'gpu_power_watts{gpu="0",uuid="GPU-1"} 1.0'
    ]


def test_hostile_label_values_are_escaped_and_cost_nothing_else() -> None:
    hostile = 'a"b\\c\nd}# HELP x'
    store = OutcomeStore(["power", "energy"])
    samples = (catalogue.POWER.sample(1, "0", hostile),)
    store.put(Outcome("power", "a", samples, True, (), 0.0, Moment(0, 0)))  # noqa: FBT003
    page = Exposition(store).page("", (), gzipped=False).body.decode()
    lines = [line for line in page.splitlines() if line.startswith("gpu_power_watts")]
    assert lines == ['gpu_power_watts{gpu="0",uuid="a\\"b\\\\c\\nd}# HELP x"} 1.0']
