import random
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.parts import some
from tests.rig import Rig, rig

from gpu_triage_simulator import load_scenario

pytestmark = pytest.mark.slow

JUNK = (b"", b"\x00\xff\xfe" * 40, b"-1", b"99999999999999999999999999", b"N/A\n", b"a b c d e f g h i\n" * 200)


def files_of(running: Rig) -> list[Path]:
    """The files of the simulated kernel, less its log."""
    machine = running.simulated.machine
    roots = (machine.sysfs, machine.procfs)
    return sorted(path for root in roots for path in root.rglob("*") if path.is_file() and not path.is_symlink())


def check(running: Rig) -> None:
    """Nothing escaped, and what is published is a page."""
    errors = {labels["error"] for labels, _ in running.series("gpu_exporter_errors_total")}
    assert "exception" not in errors
    lines = [line.rpartition(" ") for line in running.page().splitlines() if not line.startswith("#")]
    assert len({series for series, _, _ in lines}) == len(lines)
    assert list(text_string_to_metric_families(running.page()))
    assert [value for _, value in running.series("gpu_up")] == [1.0, 1.0]


@pytest.mark.parametrize("seed", some(range(6), usual=range(1)))
def test_junk_in_any_kernel_file_lets_no_exception_escape(seed: int) -> None:
    chance = random.Random(seed)
    with rig(load_scenario("dual-a10")) as running:
        running.run(2)
        for _ in range(10):
            for path in chance.sample(files_of(running), 60):
                path.write_bytes(chance.choice(JUNK))
            running.run(5)
            check(running)


def test_kernel_files_that_vanish_leave_absent_series_and_no_exception() -> None:
    chance = random.Random(1)
    with rig(load_scenario("dual-a10")) as running:
        running.run(2)
        for _ in range(6):
            for path in chance.sample(files_of(running), 20):
                path.unlink()
            running.run(5)
            check(running)
