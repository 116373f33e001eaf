import re
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.rig import scenario_with

from gpu_triage.errors import ScenarioError
from gpu_triage.machine import RealClock
from gpu_triage_simulator import START_OF_TIME, SimulatedMachine, VirtualClock, load_scenario, simulated_machine
from gpu_triage_simulator.scenario_file import SCENARIOS


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def dual(clock: VirtualClock) -> Iterator[SimulatedMachine]:
    with simulated_machine(load_scenario("dual-a10"), clock=clock) as simulated:
        yield simulated


def device(simulated: SimulatedMachine, bus_id: str, name: str) -> str:
    return (simulated.machine.sysfs / "bus/pci/devices" / bus_id / name).read_text().strip()


def numbers(simulated: SimulatedMachine, path: str, line: str) -> list[float]:
    for text in (simulated.machine.procfs / path).read_text().splitlines():
        fields = text.replace(":", " ").split()
        if line in fields[:3]:
            return [float(field) for field in fields[fields.index(line) + 1 :] if re.fullmatch(r"[\d.]+", field)]
    raise AssertionError(f"no {line} in {path}")


PLACES = {
    "a network interface": ("[[machine.nic]]", 'name = "NAME"'),
    "an RDMA device": ("[[machine.nic]]", 'infiniband = "NAME"'),
    "a disk": ("[[machine.disk]]", 'name = "NAME"'),
    "a cgroup": ("[[process]]", 'cgroup = "/NAME"'),
}


@pytest.mark.parametrize(("table", "line"), PLACES.values(), ids=PLACES)
@pytest.mark.parametrize("name", ["..", "../../../../escape", "a/../../../../../escape"])
def test_no_name_in_a_scenario_leads_out_of_the_simulated_host(
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


def test_gpus_hang_below_their_ports_as_the_kernel_shows_it(dual: SimulatedMachine) -> None:
    assert device(dual, "0000:65:00.0", "vendor") == "0x10de"
    assert device(dual, "0000:65:00.0", "class") == "0x030200"
    assert device(dual, "0000:65:00.0", "current_link_width") == "8"
    assert device(dual, "0000:65:00.0", "max_link_width") == "16"
    assert device(dual, "0000:65:00.0", "current_link_speed") == "16.0 GT/s PCIe"
    assert device(dual, "0000:b3:00.0", "numa_node") == "1"
    assert device(dual, "0000:b3:00.0", "local_cpulist") == "32-63"
    gpu = (dual.machine.sysfs / "bus/pci/devices/0000:65:00.0").resolve()
    assert (gpu / "driver").resolve().name == "nvidia"
    port = gpu.parent
    assert port.name == "0000:64:00.0"
    assert (port / "class").read_text() == "0x060400\n"
    assert (port / "max_link_width").read_text() == "16\n"
    assert (port / "current_link_width").read_text() == "8\n"
    assert port.parent.name == "pci0000:64"


def test_the_host_is_as_busy_as_the_field_saw_it(dual: SimulatedMachine, clock: VirtualClock) -> None:
    def reading() -> tuple[list[float], list[float], list[float]]:
        return (numbers(dual, "stat", "cpu"), numbers(dual, "diskstats", "nvme0n1"), numbers(dual, "net/dev", "eth0"))

    cpu, disk, net = reading()
    clock.advance(100)
    later = reading()
    ticks = [new - old for old, new in zip(cpu, later[0], strict=True)]
    share = [100 * tick / sum(ticks) for tick in ticks]
    assert [share[0], share[2], share[3], share[4]] == pytest.approx([42.11, 9.33, 29.86, 18.70], abs=0.02)
    gained = [new - old for old, new in zip(disk, later[1], strict=True)]
    reads, read_sectors, read_ms, busy_ms = gained[0], gained[2], gained[3], gained[9]
    assert reads / 100 == pytest.approx(320, abs=0.1)
    assert read_sectors * 512 / 1024 / 100 == pytest.approx(86_500, rel=1e-4)
    assert read_ms / reads == pytest.approx(5.1, abs=0.01)
    assert busy_ms / 100 / 10 == pytest.approx(92.0, abs=0.1)
    assert (later[2][0] - net[0]) / 100 / 1024 == pytest.approx(930_000, rel=1e-4)


@pytest.mark.slow
def test_a_gpu_off_the_bus_reads_all_ones_and_is_in_the_kernel_log(clock: VirtualClock) -> None:
    with simulated_machine(load_scenario("h100-8-bad-night"), clock=clock) as simulated:
        log = simulated.machine.kmsg
        assert log is not None
        assert "Xid" not in log.read_text()
        clock.advance(3000)
        assert device(simulated, "0000:ba:00.0", "current_link_width") == "63"
        assert device(simulated, "0000:ba:00.0", "current_link_speed") == "Unknown"
        records = [line for line in log.read_text().splitlines() if "0000:ba:00" in line]
        assert [record.partition(";")[2] for record in records] == [
            "NVRM: Xid (PCI:0000:ba:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
            "NVRM: GPU 0000:ba:00.0: GPU has fallen off the bus.",
        ]
        stamp = int(records[0].split(",")[2]) / 1e6
        assert stamp == pytest.approx(clock.now().monotonic, abs=0.1)
        size = log.stat().st_size
        clock.advance(3000)
        assert log.stat().st_size == size


def test_boot_time_and_uptime_agree_with_the_clock(dual: SimulatedMachine, clock: VirtualClock) -> None:
    clock.advance(33)
    uptime = float((dual.machine.procfs / "uptime").read_text().split()[0])
    assert uptime == pytest.approx(clock.now().monotonic)
    assert numbers(dual, "stat", "btime") == [START_OF_TIME + 33 - uptime]


def test_the_files_go_with_the_machine_and_it_may_be_closed_twice(clock: VirtualClock) -> None:
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


@pytest.mark.slow
def test_a_reader_never_sees_half_a_file(dual: SimulatedMachine, clock: VirtualClock) -> None:
    torn: list[str] = []
    ended = threading.Event()

    def read() -> None:
        while not ended.is_set():
            text = (dual.machine.procfs / "stat").read_text()
            if "procs_blocked" not in text:
                torn.append(text)

    thread = threading.Thread(target=read)
    thread.start()
    for _ in range(200):
        clock.advance(1)
    ended.set()
    thread.join()
    assert torn == []


def test_the_kernel_log_begins_anew_with_a_boot_for_its_readers_too(clock: VirtualClock, tmp_path: Path) -> None:
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
