import re
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.rig import scenario_with

from gpu_triage.errors import ScenarioError
from gpu_triage.machine import RealClock
from gpu_triage_simulator import VirtualClock, load_scenario, simulated_machine
from gpu_triage_simulator.scenario_file import SCENARIOS


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


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
def test_a_reader_never_sees_half_a_file(clock: VirtualClock) -> None:
    torn: list[str] = []
    ended = threading.Event()

    with simulated_machine(load_scenario("dual-a10"), clock=clock) as simulated:

        def read() -> None:
            while not ended.is_set():
                text = (simulated.machine.procfs / "stat").read_text()
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
