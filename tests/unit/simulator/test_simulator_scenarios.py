"""Where a scenario begins, and what it says comes next."""

import logging
import os
import re
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.gathered import every
from tests.rig import rig, scenario_with

from gpu_triage.cli.machines import live_host, stepped_host
from gpu_triage.errors import ConfigError, ScenarioError
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
from gpu_triage_simulator.host_effects import DriverNotLoaded
from gpu_triage_simulator.scenario_file import SCENARIOS

SMALL = (Path(__file__).parent / "small.toml").read_text(encoding="utf-8")


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(text)
    return path


PAUSE = 'effect = { kind = "load", utilization = 0.0 }'
AGAIN = 'at = 0\nuntil = "1h"\nevery = "10m"\nlasts = "1m"\n'
LASTING = ("scrape_gap", "release", "exporter_down")
MOMENTARY = ('kind = "exporter_restart"', 'kind = "replace_gpu", model = "a10"')


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


def test_every_mistake_of_a_scenario_is_told_at_once(tmp_path: Path) -> None:
    text = SMALL.replace("memory_gib = 64", "memory_gib = true").replace("utilization = 0.5", "utilisation = 0.5")
    with pytest.raises(ScenarioError, match="and 1 more mistake") as error:
        load_scenario(written(tmp_path, text))
    assert [problem.partition(";")[0] for problem in error.value.problems] == [
        "small.toml: machine.memory_gib: is True",
        "small.toml: gpu[0].load.utilisation: unknown key",
    ]


def test_durations_and_alerts_are_read_as_people_write_them(tmp_path: Path) -> None:
    event = '\n[[event]]\nat = "1h30m"\nuntil = 7200\neffect = { kind = "hang" }\n'
    expect = """\n[[expect]]\nat = "5m"\nalerts = ['GpuLost{gpu="0", uuid="x"}', "GpuXidCritical"]\n"""
    scenario = load_scenario(written(tmp_path, SMALL + event + expect))
    (event_read,), (expectation,) = scenario.events, scenario.expectations
    assert (event_read.at, event_read.until, event_read.gpus) == (5400, 7200, (0,))
    assert expectation.alerts == ('GpuLost{gpu="0", uuid="x"}', "GpuXidCritical")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('description = "One', 'descripton = "One', "small.toml: descripton: unknown key; did you mean description?"),
        ("memory_gib = 64", 'memory_gib = "64"', "small.toml: machine.memory_gib: is '64'; write a number"),
        ("memory_gib = 64\n", "", "machine.memory_gib: is missing; write a number"),
        ("utilization = 0.5", "utilization = 50", "load.utilization: is 50; write a number from 0 to 1"),
        ("utilization = 0.5", "utilization = true", "is True; write a number"),
        ('model = "a10"', 'model = "a11"', "gpu[0].model: is 'a11'; known models are a10, "),
        ("0000:65:00.0", "65:00.0", "a PCI address such as"),
        ("0000:65:00.0", "0000:05:00.0", "two devices at 0000:05:00.0"),
        ('slot = { bus_id = "0000:65:00.0", node = 0 }', 'slot = { bus_id = "0000:65:00.0", node = 3 }', "no node 3"),
        ('cpus = "0-7"', 'cpus = "1-7"', "their CPUs should be 0 to n - 1"),
        ("gpu = 0", "gpu = 1", "process[0].gpu: there is no GPU 1"),
        ('version = "580.95.05"', 'version = "new"', 'a version such as "580.82.07"'),
        ("name = ", "name  ", "not valid TOML"),
    ],
)
def test_a_wrong_scenario_names_the_key_and_what_is_right(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in SMALL
    with pytest.raises(ScenarioError) as error:
        load_scenario(written(tmp_path, SMALL.replace(old, new, 1)))
    assert message in str(error.value)
    assert "small.toml" in str(error.value)


WRONG = {
    "[[event]]": [
        ('at = "10x"\neffect = { kind = "hang" }', "event[0].at: is '10x'; write a duration"),
        ('at = "9m"\nuntil = "9m"\neffect = { kind = "hang" }', "event[0].until: is not after at"),
        ('at = 0\neffect = { kind = "hangs" }', "effect.kind: is 'hangs'; did you mean hang?"),
        ('at = 0\neffect = { kind = "link", width = 3 }', "effect.width: is 3; write one of 1, 2, 4"),
        ('at = 0\neffect = { kind = "link", wide = 4 }', "effect.wide: unknown key; did you mean width?"),
        ('at = 0\ngpu = 4\neffect = { kind = "hang" }', "event[0].gpu: there is no GPU 4"),
        ('at = 0\ngpu = 0\neffect = { kind = "cpu", user = 0.5 }', "concerns the host; leave gpu out"),
        ('at = 0\neffect = { kind = "kill", pids = [7] }', "not all of them are pids"),
        ('at = 0\neffect = { kind = "disk", device = "sda" }', "no 'sda'; known are nvme0n1"),
        ('at = 0\neffect = { kind = "error", function = "nvmlX", code = "UNKNOWN" }', "'nvmlX' is no function"),
        (
            'at = 0\neffect = { kind = "error", function = "nvmlDeviceGetName", code = "BAD" }',
            "there is no NVML_ERROR_BAD",
        ),
        ('at = 0\nwhen = 3\neffect = { kind = "hang" }', "event[0].when: unknown key; known are at, "),
        ("at = 0", "event[0].effect: is missing; write a table"),
        ("at = 0\neffect = {}", "effect.kind: is missing; "),
        ('at = 0\ngpu = "all"\neffect = { kind = "hang" }', "event[0].gpu: is 'all'; write the number of a GPU"),
        # What cannot last, has to last, or is nobody's.
        *((f'at = 60\neffect = {{ kind = "{kind}" }}', "needs until") for kind in LASTING),
        *((f"at = 60\nuntil = 90\neffect = {{ {kind} }}", "leave until out") for kind in MOMENTARY),
        ('at = 60\neffect = { kind = "replace_gpu", model = "a11" }', "a11"),
        ('at = 60\ngpu = 0\neffect = { kind = "exporter_restart" }', "leave gpu out"),
        # Repeated ones.
        (f'at = 0\nuntil = "1h"\nevery = "10m"\n{PAUSE}', "event[0]: every and lasts belong together"),
        (f'at = 0\nuntil = "1h"\nlasts = "10m"\n{PAUSE}', "event[0]: every and lasts belong together"),
        (f'at = 0\nevery = "10m"\nlasts = "1m"\n{PAUSE}', "event[0]: every needs until"),
        (f'at = 0\nuntil = "1h"\nevery = "10m"\nlasts = "10m"\n{PAUSE}', "lasts: should be shorter than every"),
        (f'at = 0\nuntil = "1h"\nevery = "10m"\nlasts = 0\n{PAUSE}', "should be shorter than every, and not 0"),
        (f'at = 0\nuntil = "1h"\nevery = "10 min"\nlasts = 0\n{PAUSE}', "every: is '10 min'; write a duration"),
        (f'at = 0\nuntil = "1d"\nevery = "20s"\nlasts = 5\n{PAUSE}', "event[0].every: happens more than 1000 times"),
        (f'{AGAIN}effect = {{ kind = "exporter_restart" }}', "event[0]: happens in a moment"),
        # An event is named by its place in the file, however often those before it happen.
        (f'{AGAIN}{PAUSE}\n[[event]]\nat = 0\neffect = {{ kind = "kill", pids = [7] }}', "event[1].effect.pids"),
    ],
    "[[expect]]": [
        ("at = 60\nalerts = ['gpu lost']", "expect[0].alerts[0]: is 'gpu lost'; write an alert and any of its"),
        ("at = 60\nalerts = ['GpuLost{gpu=6}']", "expect[0].alerts[0]: is 'GpuLost{gpu=6}'"),
        ("at = 60", "expect[0]: should either name alerts or be quiet = true"),
        ("at = 60\nquiet = true\nalerts = ['GpuLost']", "expect[0]: should either name alerts or be quiet = true"),
        (
            "at = 60\nalerts = ['GpuLost{gpu=\"0\"}']\nnear_misses = ['GpuLost']",
            "expect[0].near_misses: GpuLost is expected to fire",
        ),
        ("at = 60\nquiet = true\nbottleneck = { 0 = 'slow' }", "expect[0].bottleneck.0: is 'slow'; write one of "),
        ("at = 60\nquiet = true\nbottleneck = { 1 = 'idle' }", "expect[0]: there is no GPU '1'"),
    ],
    "[target]": [('labels = { "work-load" = "serving" }', "no name of a label")],
    "[exporter]": [
        ("host_pid = false", "exporter.host_pid: unknown key; did you mean host_pids?"),
        ("host_procfs = false", "exporter.host_procfs: a /proc in the host's PID namespace is the host's"),
        ("host_pids = 0", "exporter.host_pids: is 0; write true or false"),
        ("options = 3", "exporter.options: is not a table"),
    ],
}


@pytest.mark.parametrize(
    ("table", "content", "message"), [(table, *row) for table, rows in WRONG.items() for row in rows]
)
def test_a_wrong_table_says_which_key_and_what_would_be_right(
    tmp_path: Path, table: str, content: str, message: str
) -> None:
    with pytest.raises(ScenarioError) as error:
        load_scenario(written(tmp_path, f"{SMALL}\n{table}\n{content}\n"))
    assert message in str(error.value)


def test_a_file_that_cannot_be_read_is_named_with_the_next_step(tmp_path: Path) -> None:
    missing, folder, latin, pipe, endless, deep = (tmp_path / f"{number}.toml" for number in range(6))
    folder.mkdir()
    latin.write_bytes(b"a = '\xff'")
    os.mkfifo(pipe)
    endless.symlink_to("/dev/zero")
    deep.write_text("a = " + "[" * 5000 + "]" * 5000)
    for path, message in (
        (missing, "cannot be read: No such file or directory; name a readable file"),
        *((each, "is not a regular file; name a readable file") for each in (folder, pipe, endless)),
        (latin, "is not UTF-8 at byte 5; save it as UTF-8"),
        (deep, "is nested too deeply; write it flatter"),
    ):
        with pytest.raises(ScenarioError) as error:
            load_scenario(str(path))
        assert str(error.value) == f"{path}: {message}"
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


def test_the_machine_follows_its_clock() -> None:
    clock = VirtualClock()
    with simulated_machine(load_scenario(NIGHT), clock=clock, starting_at=540) as simulated:
        assert "9m into the scenario. Next, in 60 s" in simulated.progress()
        clock.advance(60)
        assert "10m into the scenario. Next, in 10 min: GPU 5: link, pcie errors." in simulated.progress()


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
