"""Where the counters of Xids begin: an increase starts with the first value that is scraped."""

from __future__ import annotations

from pathlib import Path

from tests.rig import Rig, rig, scenario_with

from gpu_triage.read.xid.codes import XID_CODES
from gpu_triage.read.xid.kernel_records import ROUND_BYTES
from gpu_triage_simulator import load_scenario

ADDRESS = "0000:65:00"
CODES = {str(xid.code) for xid in XID_CODES.values() if xid.common}


def counts(running: Rig) -> dict[tuple[str, str], float]:
    return {(labels["gpu"], labels["xid"]): value for labels, value in running.series("gpu_xid_errors_total")}


def kernel_log(running: Rig) -> Path:
    kmsg = running.simulated.machine.kmsg
    assert kmsg is not None
    return kmsg


def test_what_a_program_causes_starts_at_0_on_every_gpu() -> None:
    with rig(load_scenario("idle-downshift")) as running:
        running.run(10)
        assert counts(running) == {(gpu, code): 0 for gpu in ("0", "1") for code in CODES}
        assert running.series("gpu_xid_last_timestamp_seconds") == []


def test_a_gpu_never_seen_starts_with_none(tmp_path: Path) -> None:
    scenario = scenario_with(tmp_path, "idle-downshift", 'at = 0\ngpu = 1\neffect = { kind = "lost" }')
    with rig(scenario) as running:
        running.run(10)
        assert {gpu for gpu, _ in counts(running)} == {"0"}


def test_a_count_never_starts_below_what_the_kernel_log_holds() -> None:
    """A log that takes several rounds to read must not look like Xids of now."""
    with rig(load_scenario("idle-downshift")) as running:
        running.run(10)
        running.sampler.close(lambda condition: condition())
        stamp = round(running.clock.now().monotonic * 1e6)
        with kernel_log(running).open("a") as log:
            log.writelines(f"6,{5000 + i},{stamp},-;{'x' * 1000}\n" for i in range(3 * ROUND_BYTES // 1000))
            log.writelines(f"4,{90000 + i},{stamp},-;NVRM: Xid (PCI:{ADDRESS}): 31, MMU Fault\n" for i in range(5))
        again = Rig(running.simulated, running.clock, running.config)
        seen = []
        for _ in range(12):
            again.run(1)
            seen.append(counts(again).get(("0", "31")))
        assert seen[0] is None
        assert seen[-1] == 5
        assert set(seen) == {None, 5}


def test_where_nobody_hears_of_xids_none_is_counted_as_0(tmp_path: Path) -> None:
    deaf = 'at = 0\neffect = { kind = "missing_function", function = "nvmlEventSetCreate" }'
    with rig(scenario_with(tmp_path, "idle-downshift", deaf)) as running:
        kernel_log(running).unlink()
        running.run(30)
        assert running.series("gpu_exporter_xid_source_up") != []
        assert counts(running) == {}
