"""Where a scenario begins, what it says comes next, its models and files, and a GPU or a host that is reset."""

import logging
import re
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pynvml
import pytest
import yaml
from tests.gathered import every
from tests.rig import rig, scenario_with
from tests.simulated_driver import Driver, driver

from gpu_triage.cli.machines import live_host, stepped_host
from gpu_triage.errors import ConfigError, DocumentError, ScenarioError
from gpu_triage.machine import RealClock
from gpu_triage.options.config import Config
from gpu_triage_simulator import (
    FastClock,
    VirtualClock,
    describe_scenario,
    list_scenarios,
    load_scenario,
    simulated_machine,
)
from gpu_triage_simulator.describe import progress_of
from gpu_triage_simulator.history import record_history
from gpu_triage_simulator.host_effects import DriverNotLoaded
from gpu_triage_simulator.model import MODELS, read_model
from gpu_triage_simulator.scenario_file import SCENARIOS
from gpu_triage_simulator.schema import read_toml

SMALL = (Path(__file__).parent / "small.toml").read_text(encoding="utf-8")
WRONG = yaml.safe_load((Path(__file__).parent / "wrong.yml").read_text(encoding="utf-8"))


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(text)
    return path


PAUSE = 'effect = { kind = "load", utilization = 0.0 }'


def test_every_shipped_scenario_is_described_in_a_sentence_and_says_what_to_expect_of_every_gpu() -> None:
    summaries = list_scenarios()
    names = {summary.name for summary in summaries}
    assert names == {path.stem for path in SCENARIOS.glob("*.toml")}
    assert names >= {"dual-a10", "a100-power-capped", "h100-8", "h100-8-bad-night", "idle-downshift"}
    for summary in every(summaries):
        assert summary.description.endswith("."), summary.name
        scenario = load_scenario(summary.name)
        assert scenario.expectations, summary.name
        first = scenario.expectations[0]
        silent = any(isinstance(e.effect, DriverNotLoaded) and e.active(first.at) for e in scenario.events)
        # Without a driver nobody knows of single GPUs.
        gpus = () if silent else range(len(scenario.gpus))
        assert set(first.bottleneck) == {str(gpu) for gpu in gpus}, summary.name


def test_durations_and_alerts_are_read_as_people_write_them(tmp_path: Path) -> None:
    event = '\n[[event]]\nat = "1h30m"\nuntil = 7200\neffect = { kind = "hang" }\n'
    expect = """\n[[expect]]\nat = "5m"\nalerts = ['GpuLost{gpu="0", uuid="x"}', "GpuXidCritical"]\n"""
    scenario = load_scenario(written(tmp_path, SMALL + event + expect))
    (event_read,), (expectation,) = scenario.events, scenario.expectations
    assert (event_read.at, event_read.until, event_read.gpus) == (5400, 7200, (0,))
    assert expectation.alerts == ('GpuLost{gpu="0", uuid="x"}', "GpuXidCritical")


@pytest.mark.parametrize(("old", "new", "message"), WRONG["changes"])
def test_a_wrong_scenario_names_the_key_and_what_is_right(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in SMALL
    with pytest.raises(ScenarioError) as error:
        load_scenario(written(tmp_path, SMALL.replace(old, new, 1)))
    assert message in str(error.value)
    assert "small.toml" in str(error.value)


@pytest.mark.parametrize(("table", "row"), [(table, row) for table, rows in WRONG["tables"].items() for row in rows])
def test_a_wrong_table_says_which_key_and_what_would_be_right(tmp_path: Path, table: str, row: dict[str, str]) -> None:
    with pytest.raises(ScenarioError) as error:
        load_scenario(written(tmp_path, f"{SMALL}\n{table}\n{row['content']}\n"))
    assert row["message"] in str(error.value)


def test_a_file_that_cannot_be_read_is_named_with_the_next_step(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError) as error:
        load_scenario(str(tmp_path / "x.toml"))
    assert str(error.value) == f"{tmp_path}/x.toml: cannot be read: No such file or directory; name a readable file"
    with pytest.raises(ScenarioError, match="no scenario 'h100'; known are a100-power-capped, desk, dual-a10"):
        load_scenario("h100")


def test_a_virtual_clock_never_goes_back_and_its_hooks_see_each_advance_until_they_leave() -> None:
    clock = VirtualClock()
    seen: list[float] = []
    leave = clock.on_advance(lambda moment: seen.append(moment.monotonic - 864_000))
    clock.advance(2)
    with pytest.raises(ValueError, match="cannot go back"):
        clock.advance(-1)
    clock.advance(3)
    leave()
    clock.advance(4)
    assert seen == [2, 5]


@pytest.mark.parametrize(
    ("until", "every", "expected"),
    [("100m", "30m", [(600, 690), (2400, 2490), (4200, 4290)]), ("41m", "30m", [(600, 690), (2400, 2460)])],
    ids=["until it is over", "the last one ends with it"],
)
def test_an_event_may_happen_again(tmp_path: Path, until: str, every: str, expected: list[tuple[int, int]]) -> None:
    event = f'\n[[event]]\nat = "10m"\nuntil = "{until}"\nevery = "{every}"\nlasts = "90s"\n{PAUSE}\n'
    scenario = load_scenario(written(tmp_path, SMALL + event))
    assert [(event.at, event.until) for event in scenario.events] == expected
    (line,) = (line for line in describe_scenario(scenario).splitlines() if "GPU 0: load" in line and "every" in line)
    assert f"every {every} for 1m30s" in line


@pytest.mark.parametrize(
    ("base", "instances", "complaint"),
    [
        ("dual-a10", "", "model without MIG"),
        ("h100-8", '{ profile = "1g.10gb", gi = 7 }, { profile = "2g.20gb", gi = 7 }', "same gi and ci"),
        ("h100-8", '{ profile = "1g.10gb", gi = 7, slot = 1 }, { profile = "1g.10gb", gi = 8 }', "slot of its own"),
        ("h100-8", '{ profile = "huge", gi = 7 }', "a MIG profile such as"),
    ],
)
def test_a_mig_layout_that_cannot_be_is_refused(tmp_path: Path, base: str, instances: str, complaint: str) -> None:
    event = f'at = 0\ngpu = 0\neffect = {{ kind = "mig", instances = [{instances}] }}'
    with pytest.raises(ScenarioError, match=complaint):
        scenario_with(tmp_path, base, event)


ISOLATED = "\n[exporter]\nhost_pids = false\n"


def test_an_exporter_in_another_pid_namespace_says_what_it_lacks(tmp_path: Path) -> None:
    for more, lacking in (("", ["processes"]), ("host_procfs = false\n", ["host_network", "host_nfs", "processes"])):
        with rig(load_scenario(written(tmp_path, SMALL + ISOLATED + more))) as running:
            running.run(10)
            degraded = running.series("gpu_exporter_degraded_info", reason="other_pid_namespace")
            assert sorted(labels["feature"] for labels, _ in degraded) == lacking
            assert len(running.series("gpu_exporter_degraded_info")) == len(lacking)
    described = describe_scenario(load_scenario(written(tmp_path, SMALL + ISOLATED)))
    assert "\nExporter: in a PID namespace of its own, with the host's /proc\n" in described
    assert "Exporter:" not in describe_scenario(load_scenario("rtx-4070-ti-super"))


NIGHT = "h100-8-bad-night"


@pytest.mark.parametrize(
    ("at", "pace", "expected"),
    [
        (0, 1, "0m into the scenario. Next, in 10 min: GPU 3: thermal throttle."),
        (90, 1, "1m30s into the scenario. Next, in 8 min: GPU 3: thermal throttle."),
        (1200, 1, "20m into the scenario. Next, in 20 min: GPU 3: end of thermal throttle."),
        (2999, 1, "49m59s into the scenario. Next, in 1 s: GPU 6: lost; host: kill."),
        (3300, 1, "55m into the scenario. Next, in 5 min: GPU 0-7: load; host: cpu, pressure, disk."),
        (7800, 1, "130m into the scenario. Nothing more happens in it."),
        # Scenario time is as written, and the wait is real.
        (1800, 4, "30m into the scenario, at 4 times its pace. Next, in 2 min: GPU 3: end of thermal throttle."),
    ],
)
def test_progress_names_the_time_and_the_next_change(at: int, pace: int, expected: str) -> None:
    assert progress_of(load_scenario(NIGHT), at, pace) == expected


def test_serving_starts_there_and_logs_what_comes_next(caplog: pytest.LogCaptureFixture) -> None:
    config = Config(simulate=NIGHT, simulate_at_seconds=1800, simulate_pace=4)
    with caplog.at_level(logging.WARNING), ExitStack() as stack:
        progress = live_host(config, stack).progress
        assert progress is not None
        assert re.match(r"30m(\d\ds)? into the scenario, at 4 times its pace\.", progress())
    assert any("GPU 3: end of thermal throttle" in str(vars(record)) for record in caplog.records)


def test_no_scenario_starts_long_after_its_end(tmp_path: Path) -> None:
    scenario_with(tmp_path, "idle-downshift", 'at = "90m"\ngpu = 0\neffect = { kind = "lost" }')
    (path,) = tmp_path.glob("*.toml")
    with ExitStack() as stack:
        stepped_host(Config(simulate=str(path), simulate_at_seconds=9000), stack)
        with pytest.raises(ConfigError, match=r"nothing happens in .* after 90m; write 150m or less"):
            stepped_host(Config(simulate=str(path), simulate_at_seconds=9001), stack)


def test_a_fast_clock_takes_wall_and_monotonic_time_with_it() -> None:
    clock = FastClock(20)
    first, began = clock.now(), time.monotonic()
    while (passed := time.monotonic() - began) == 0:
        pass
    second = clock.now()
    assert second.monotonic - first.monotonic >= 20 * passed
    assert second.wall - first.wall == pytest.approx(second.monotonic - first.monotonic, abs=1e-6)


def test_a_call_that_hangs_at_a_pace_blocks_for_as_much_less_real_time() -> None:
    with simulated_machine(load_scenario("dual-a10"), clock=FastClock(1000)) as simulated:
        clock = simulated.machine.clock
        began, real = clock.now().monotonic, time.monotonic()
        simulated.host.block(60.0)
        assert clock.now().monotonic - began >= 60
        assert time.monotonic() - real < 60


def changed(name: str, **changes: Any) -> dict[str, Any]:
    """The file of a model with other values; ``thermal__slowdown`` is a key of the table ``thermal``."""
    table = read_toml(MODELS / f"{name}.toml")
    for key, value in changes.items():
        *path, last = key.split("__")
        inner = table
        for part in path:
            inner = inner[part]
        inner[last] = value
    return table


DEPRECATED = {"kind": "capture", "facts": "nvidia-smi -q, drivers 590.48.01 and 595.80"}
"""Captures whose application clocks are "Requested functionality has been deprecated"."""


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"source": {"kind": "hearsay", "facts": "a rumour"}}, "source.kind: "),
        ({"source": DEPRECATED}, "clocks.sm_default: is not in its source"),
        ({"source": DEPRECATED | {"assumed": {"sm_defualt": "as before"}}}, "source.assumed: has no key of a model"),
        ({"memory_reserved_mib": 0}, "memory_reserved_mib: is 0; write what the driver reserves"),
        ({"row_remap_banks": 0}, "row_remap_banks: goes with the feature remapped_rows"),
        ({"thermal__slowdown": 99}, "thermal: needs gpu_max below slowdown below shutdown"),
        ({"power__default_limit": 1200}, "power: needs min_limit, default_limit and max_limit in this order"),
        ({"power__idle": 700}, "power.idle: needs to be below default_limit"),
        ({"clocks__sm_default": 2000}, "clocks.sm_default: is 2000, which is above the highest, 1980"),
        ({"clocks__memory_load": 2700}, "clocks.memory_load: is 2700, which is above the highest, 2619"),
        ({"nvlink_version": 0}, "nvlink_version: goes with nvlinks"),
        ({"fan_percent": 0}, "fan_percent: needs fans"),
        ({"memory_without_ecc_mib": 100}, "memory_without_ecc_mib: needs ECC that is on and takes memory"),
        ({"features": []}, "clocks.sm_default: goes with"),
        ({"idle_state": 16}, "idle_state: is 16; write "),
    ],
)
def test_a_wrong_model_says_which_key_and_what_would_be_right(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DocumentError) as error:
        read_model(changed("h100-sxm5-80gb", **changes), "h100.toml")
    assert "h100.toml" in str(error.value)
    assert message in str(error.value)


RESET_AT, LATER = 60, 90
RESET = f'at = {RESET_AT}\ngpu = 1\neffect = {{ kind = "gpu_reset" }}'
REBOOT = f'at = {RESET_AT}\nuntil = {LATER}\neffect = {{ kind = "reboot" }}'
BROKEN = 'at = 10\ngpu = 1\neffect = { kind = "%s" }'
VOLATILE, AGGREGATE = 0, 1


def handle_of(running: Driver, seconds: float) -> pynvml.c_nvmlDevice_t:
    """GPU 1 at a time, for a program that starts then."""
    running.at(seconds)
    pynvml.nvmlShutdown()
    pynvml.nvmlInit()
    return pynvml.nvmlDeviceGetHandleByIndex(1)


@pytest.mark.parametrize("kind", ["lost", "reset_required"])
@pytest.mark.parametrize(("cure", "at"), [(RESET, RESET_AT), (REBOOT, LATER)], ids=["reset", "reboot"])
def test_a_gpu_that_needs_a_reset_answers_after_one(kind: str, cure: str, at: float, tmp_path: Path) -> None:
    with driver(scenario_with(tmp_path, "h100-8", BROKEN % kind, cure)) as running:
        with pytest.raises(pynvml.NVMLError):
            pynvml.nvmlDeviceGetPowerUsage(handle_of(running, at - 1))
        assert pynvml.nvmlDeviceGetPowerUsage(handle_of(running, at)) > 0


def test_a_reset_begins_counters_anew_and_leaves_the_card_what_it_is(tmp_path: Path) -> None:
    rows = 'at = 10\ngpu = 1\neffect = { kind = "row_remap", uncorrectable = 2, pending = true }'
    ecc = 'at = 10\ngpu = 1\neffect = { kind = "ecc", uncorrected = 3, corrected_per_hour = 3600 }'
    cap = 'at = 10\ngpu = 1\neffect = { kind = "power_limit", watts = 400 }'
    corrected, uncorrected = 0, 1
    with driver(scenario_with(tmp_path, "h100-8", rows, ecc, cap, RESET)) as running:
        before = handle_of(running, RESET_AT - 1)
        uuid, joules = pynvml.nvmlDeviceGetUUID(before), pynvml.nvmlDeviceGetTotalEnergyConsumption(before)
        assert pynvml.nvmlDeviceGetRemappedRows(before) == (0, 2, 1, 0)
        assert pynvml.nvmlDeviceGetTotalEccErrors(before, uncorrected, VOLATILE) == 3
        after = handle_of(running, LATER)
        assert pynvml.nvmlDeviceGetUUID(after) == uuid
        assert pynvml.nvmlDeviceGetTotalEnergyConsumption(after) < joules
        assert pynvml.nvmlDeviceGetRemappedRows(after) == (0, 2, 0, 0)
        assert pynvml.nvmlDeviceGetEnforcedPowerLimit(after) == 700_000
        found = [
            [pynvml.nvmlDeviceGetTotalEccErrors(after, severity, lifetime) for lifetime in (VOLATILE, AGGREGATE)]
            for severity in (corrected, uncorrected)
        ]
        # The memory goes on failing.
        assert found == [[LATER - RESET_AT, LATER - 10], [0, 3]]


def test_a_reboot_ends_processes_while_it_lasts_and_begins_a_new_boot(tmp_path: Path) -> None:
    clock = VirtualClock()
    with simulated_machine(scenario_with(tmp_path, "dual-a10", REBOOT), clock=clock) as simulated:
        boots, processes = [], []
        for at in (RESET_AT - 1, RESET_AT, LATER - 1, LATER):
            clock.advance(at - simulated.host.seconds())
            boots.append((simulated.machine.procfs / "sys/kernel/random/boot_id").read_text())
            pids = [process.pid for process in simulated.host.scenario.processes]
            processes.append(all((simulated.machine.procfs / str(pid)).exists() for pid in pids))
    assert processes == [True, False, False, True]
    assert boots[0] == boots[1] == boots[2] != boots[3]


def test_a_host_that_reboots_is_not_scraped_and_counts_from_zero(tmp_path: Path) -> None:
    history = record_history(scenario_with(tmp_path, "dual-a10", REBOOT), seconds=120, step_seconds=15)
    (up,) = (list(column) for (name, _), column in history.series.items() if name == "up")
    assert up == [1, 1, 1, 1, 0, 0, 1, 1, 1]
    energy = next(column for (name, _), column in history.series.items() if name == "gpu_energy_joules_total")
    assert energy[6] < energy[3]


PLACES = {
    "a network interface": ("[[machine.nic]]", 'name = "NAME"'),
    "an RDMA device": ("[[machine.nic]]", 'infiniband = "NAME"'),
    "a disk": ("[[machine.disk]]", 'name = "NAME"'),
    "a cgroup": ("[[process]]", 'cgroup = "/NAME"'),
}


@pytest.mark.parametrize(("table", "line"), PLACES.values(), ids=PLACES)
@pytest.mark.parametrize("name", ["..", "../../../../escape", "a/../../../../../escape"])
def test_no_name_leads_out_of_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str, line: str, name: str
) -> None:
    monkeypatch.setattr("gpu_triage_simulator.session._MEMORY", tmp_path / "shm")
    (tmp_path / "shm").mkdir()
    text = (SCENARIOS / "h100-8.toml").read_text()
    key = line.partition(" ")[0]
    start = text.index(table)
    end = text.index("[[", start + 2)
    section = re.sub(rf"(?m)^{key} = .*$", "", text[start:end])
    path = tmp_path / "evil.toml"
    path.write_text(text[:start] + section.replace(table, f"{table}\n{line.replace('NAME', name)}") + text[end:])
    with pytest.raises(ScenarioError, match=rf"evil.toml: .*{key}: is ") as refused, ExitStack() as stack:
        stack.enter_context(simulated_machine(load_scenario(path), clock=VirtualClock()))
    assert "write" in str(refused.value)


def test_the_files_go_with_the_machine_and_it_may_be_closed_twice() -> None:
    clock = VirtualClock()
    with simulated_machine(load_scenario("idle-downshift"), clock=clock) as simulated:
        simulated.close()
    assert not simulated.root.exists()
    clock.advance(60)


def test_the_real_clock_has_a_thread_that_follows_it() -> None:
    before = frozenset(threading.enumerate())
    with simulated_machine(load_scenario("idle-downshift")) as simulated:
        assert isinstance(simulated.machine.clock, RealClock)
        (follows,) = frozenset(threading.enumerate()) - before
        assert follows.is_alive()
    assert not follows.is_alive()


def test_the_kernel_log_begins_anew_with_a_boot_for_its_readers_too(tmp_path: Path) -> None:
    clock = VirtualClock()
    xid, later = (
        f'at = {at}\ngpu = 0\neffect = {{ kind = "xid", code = {code} }}' for at, code in ((10, 48), (30, 31))
    )
    replaced = 'at = 20\ngpu = 0\neffect = { kind = "replace_gpu", model = "a10" }'
    down = 'at = 20\nuntil = 25\neffect = { kind = "exporter_down" }'
    with simulated_machine(scenario_with(tmp_path, "dual-a10", xid, replaced, down, later), clock=clock) as simulated:
        log = simulated.machine.kmsg
        assert log is not None
        with log.open() as opened_before:
            clock.advance(15)
            clock.advance(30)
            followed, begun = opened_before.read(), log.read_text()
    assert [re.findall(r"Xid \(.*\): (\d+)", text) for text in (followed, begun)] == [["48", "31"], ["31"]]
    sequence = [int(line.split(",")[1]) for line in followed.splitlines()]
    assert sequence == sorted(set(sequence))
    assert set(begun.splitlines()) < set(followed.splitlines())
