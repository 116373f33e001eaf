from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType

import pytest

from gpu_triage.read import baseline, exporter, gpu, host, incidents, processes, xid
from gpu_triage.read.gpu.power import GPU_ENERGY_JOULES_TOTAL, GPU_POWER_WATTS
from gpu_triage.read.metrics.metric import MetricSpec
from gpu_triage.read.registry import METRICS
from gpu_triage.sampler.outcomes import checked

GPU = ("0", "GPU-1")


def modules_of(package: ModuleType) -> list[ModuleType]:
    return [import_module(f"{package.__name__}.{found.name}") for found in iter_modules(package.__path__)]


def test_every_metric_that_is_declared_is_published_and_has_its_own_name() -> None:
    packages = (baseline, exporter, gpu, host, incidents, processes, xid)
    modules = [module for package in packages for module in modules_of(package)]
    constants = [value for module in modules for value in vars(module).values() if isinstance(value, MetricSpec)]
    assert set(constants) == set(METRICS)
    assert len({spec.name for spec in METRICS}) == len(METRICS)


def test_samples_of_another_collectors_metric_and_a_series_that_appears_twice_are_refused() -> None:
    twice = [GPU_POWER_WATTS.sample(1, *GPU), GPU_POWER_WATTS.sample(2, *GPU)]
    for spec, said in ((GPU_ENERGY_JOULES_TOTAL, "gpu_power_watts is not declared"), (GPU_POWER_WATTS, "twice")):
        with pytest.raises(ValueError, match=said):
            checked(twice, frozenset({spec}))
