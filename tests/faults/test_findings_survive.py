"""Real daemons that are killed while a finding waits: the wait goes on, and a slow disk delays no scrape."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.faults.disk import WAIT_SECONDS, Disk, until
from tests.faults.stand_in import Daemon, StandIn, up
from tests.parts import some

CODE = "gpu.missing"
MISSING = ("--expect.gpu-count", "5", "--judge", f"{CODE}.wait=1m")
"""One GPU more than there is: a finding that is made to wait for a minute."""
FINDING = f'\ngpu_host_finding{{action="drain",code="{CODE}",severity="critical"}}'
OF_NO_USE = (b"half of i", b'{"version": 99, "findings": "other"}')
PENDING, CONFIRMED = f"{FINDING} 1.0", f"{FINDING} 2.0"


@pytest.fixture
def host(tmp_path: Path) -> StandIn:
    return StandIn(tmp_path, gpus=4)


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(tmp_path, monkeypatch)


def value(page: str, name: str, **labels: str) -> float:
    families = text_string_to_metric_families(page)
    samples = (sample for family in families for sample in family.samples if sample.name == name)
    (found,) = (sample.value for sample in samples if labels.items() <= sample.labels.items())
    return found


def since(page: str) -> float:
    return value(page, "gpu_host_finding_since_timestamp_seconds", code=CODE)


def lasted(page: str) -> float:
    return value(page, "gpu_host_finding_lasted_seconds", code=CODE)


def saved(disk: Disk) -> dict[str, Any]:
    """What the findings' file says of CODE; empty while it says nothing."""
    path = disk.state / "findings.json"
    if not path.exists() or path.read_bytes() in OF_NO_USE:
        return {}
    listed = json.loads(path.read_text()).get("findings", [])
    found: dict[str, Any] = next((each for each in listed if each["code"] == CODE), {})
    return found


def pending(daemon: Daemon, disk: Disk) -> str:
    """A page on which it is pending; by then, that is on disk."""
    page = daemon.wait_for(lambda page: PENDING in page and len(up(page)) == 4, WAIT_SECONDS)
    until(lambda: saved(disk))
    return page


@pytest.mark.parametrize("end", some([signal.SIGKILL, signal.SIGTERM], {signal.SIGKILL}))
def test_a_wait_goes_on_in_the_next_process(host: StandIn, disk: Disk, end: signal.Signals) -> None:
    with host.daemon(*disk.flags, *MISSING) as daemon:
        before = pending(daemon, disk)
        daemon.process.send_signal(end)
        daemon.process.wait(WAIT_SECONDS)
    seen_at = saved(disk)["seen_at"]
    with host.daemon(*disk.flags, *MISSING) as daemon:
        page = daemon.wait_for(lambda page: PENDING in page and lasted(page) > 0, WAIT_SECONDS)
        assert since(page) == pytest.approx(since(before), abs=0.05)
        assert lasted(page) > lasted(before)
        until(lambda: saved(disk)["seen_at"] > seen_at)


def test_time_in_which_no_process_ran_counts_for_a_condition_that_still_holds(host: StandIn, disk: Disk) -> None:
    with host.daemon(*disk.flags, *MISSING) as daemon:
        pending(daemon, disk)
        daemon.process.send_signal(signal.SIGKILL)
        daemon.process.wait(WAIT_SECONDS)
    path = disk.state / "findings.json"
    document = json.loads(path.read_text())
    for each in document["findings"]:
        # As if it had been killed two minutes ago.
        for time in ("began_at", "held_at", "seen_at"):
            each[time] -= 120
    path.write_text(json.dumps(document))
    with host.daemon(*disk.flags, *MISSING) as daemon:
        page = daemon.wait_for(lambda page: FINDING in page, WAIT_SECONDS)
        assert CONFIRMED in page, "from its first publication on"


@pytest.mark.full
def test_a_kill_in_the_middle_of_a_write_costs_at_most_a_minute_of_the_wait(host: StandIn, disk: Disk) -> None:
    with host.daemon(*disk.flags, *MISSING) as daemon:
        before = pending(daemon, disk)
        disk.takes(5.0)
        host.set("unloaded", "host error nvmlInit 9")
        until(lambda: ".findings.json.new" in disk.partial())
        daemon.process.send_signal(signal.SIGKILL)
        daemon.process.wait(WAIT_SECONDS)
    disk.takes(0.0)
    host.clear()
    with host.daemon(*disk.flags, *MISSING) as daemon:
        page = daemon.wait_for(lambda page: FINDING in page, WAIT_SECONDS)
        assert since(page) == pytest.approx(since(before), abs=0.05)
        until(lambda: disk.partial() == [])


def test_a_disk_that_takes_its_time_delays_no_publication(host: StandIn, disk: Disk) -> None:
    disk.takes(10.0)
    with host.daemon(*disk.flags, *MISSING) as daemon:
        first = daemon.wait_for(lambda page: PENDING in page and len(up(page)) == 4, WAIT_SECONDS)
        until(disk.partial)
        later = first
        for _ in range(3):
            earlier = value(later, "gpu_exporter_last_publication_timestamp_seconds")
            later = daemon.wait_for(
                lambda page, earlier=earlier: (  # type: ignore[misc]
                    value(page, "gpu_exporter_last_publication_timestamp_seconds") > earlier
                ),
                WAIT_SECONDS,
            )
        assert disk.partial(), "a file is still being written"
        assert len(up(later)) == 4
        disk.takes(0.0)


@pytest.mark.full
@pytest.mark.parametrize("content", OF_NO_USE)
def test_a_file_of_no_use_costs_the_past_and_nothing_else(host: StandIn, disk: Disk, content: bytes) -> None:
    (disk.state / "findings.json").write_bytes(content)
    with host.daemon(*disk.flags, *MISSING) as daemon:
        pending(daemon, disk)
        assert (disk.state / "findings.json.corrupt").read_bytes() == content
        log = daemon.log.read_text()
        assert log.count("not all of the history of findings is usable") == 1
        assert "no state directory" not in log


def test_without_a_state_directory_the_log_and_the_page_say_so(host: StandIn) -> None:
    with host.daemon() as daemon:
        page = daemon.wait_for(lambda page: len(up(page)) == 4, WAIT_SECONDS)
        assert "\ngpu_exporter_state_saved 0" in page
        (line,) = [line for line in daemon.log.read_text().splitlines() if "no state directory" in line]
        assert "level=warning" in line
        assert "set --state.directory" in line


@pytest.mark.full
def test_the_second_exporter_on_a_host_says_that_it_saves_nothing(host: StandIn, disk: Disk) -> None:
    with host.daemon(*disk.flags, *MISSING) as first:
        before = pending(first, disk)
        first.wait_for(lambda page: "\ngpu_exporter_state_saved 1" in page, WAIT_SECONDS)
        with host.daemon(*disk.flags, *MISSING, log_name="second-log") as second:
            page = second.wait_for(
                lambda page: "\ngpu_exporter_state_saved 0" in page and FINDING in page, WAIT_SECONDS
            )
            assert "\ngpu_exporter_state_directory_in_use 1" in page
            assert since(page) == pytest.approx(since(before), abs=0.05)
            assert "findings are remembered in memory only" in second.log.read_text()
