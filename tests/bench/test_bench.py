"""The parts of the benchmarks that can be wrong without anybody noticing."""

import sys
from importlib.metadata import packages_distributions

from tests.bench import exporters
from tests.bench.fleet import CHOSEN, DASHBOARDS, sent
from tests.program_output import output_of


def test_the_peer_starts_with_nothing_installed_but_what_its_lock_names() -> None:
    pinned = set(exporters.peer_pins())
    others = [
        module
        for module, distributions in packages_distributions().items()
        if not module.startswith(("gpu_triage", "tests"))
        and not pinned & {name.lower().replace("_", "-") for name in distributions}
    ]
    imports = ("tests.bench.launch", "gpu_triage_simulator.host", "gpu_triage_simulator.simulated_nvml")
    # None in sys.modules stands for a module that is not installed.
    program = f"import sys; sys.modules.update(dict.fromkeys({others!r})); import {', '.join(imports)}"
    output_of("env", exporters.PYTHONPATH, sys.executable, "-c", program)


def test_raw_series_that_are_sent_are_those_that_dashboards_read() -> None:
    chosen, dashboards = (set(sent()[name].split("|")) for name in (CHOSEN, DASHBOARDS))
    assert {"gpu_verdict", "gpu_info", "up"} <= chosen < dashboards
