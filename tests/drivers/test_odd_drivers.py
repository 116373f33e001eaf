"""The exporter over a library written from NVIDIA's documentation alone, for hosts unlike those it was made on.

``hosts/NAME.txt`` is what the library answers, ``NAME.prom`` what the page must say of it, to be reviewed beside each
other. ``make regenerate`` writes them anew; read the diff.
"""

import os
import re
import subprocess
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.e2e.processes import PROGRAM, end
from tests.faults.stand_in import Daemon
from tests.stand_in_library import compile_library

HERE = Path(__file__).parent
WAIT_SECONDS = 90.0
"""Far more than anything here takes on an idle machine: only a broken program waits so long."""
SETTLED_SECONDS = 15.0
"""A page that has not changed for so long stays as it is: a throttle counter is given up after 10 samples."""

HOSTS: Mapping[str, tuple[str, ...]] = {
    "geforce-450": ("-DDRIVER=450", "-DNO_EVENTS"),
    "vgpu-535": ("-DDRIVER=535", "-DWIDE_PROCESSES"),
    "eight-550": ("-DDRIVER=550",),
    "l4-550": ("-DDRIVER=550",),
    "wsl-570": ("-DDRIVER=570", "-DNO_EVENTS"),
    "gb200-580": ("-DDRIVER=580",),
}
"""Host to how its library is compiled."""

OF_THE_DRIVER = re.compile(
    r'gpu_\w+\{[^}]*\buuid="|gpu_(driver_\w+|devices)\b|gpu_exporter_xid_source_up\{source="nvml"'
    r'|gpu_exporter_errors_total\{collector="(?!host_|modules|platform)'
)
OF_THE_JUDGE = re.compile(r"gpu_(bottleneck|verdict|finding)")
"""What the exporter makes of it depends on how busy this machine is, and on how long it has lasted."""
VARIES = re.compile(
    r"gpu_((busy|observed)_seconds_total|reset_timestamp_seconds|exporter_(errors_total|call_inflight_seconds))\b"
)
"""What depends on how long the exporter, or this machine, has run: that it is there is compared, not its value."""
REJECTED = re.compile(r'gpu_throttle_counter_rejected_info\{cause="\w+",(.*)\}')
"""The exporter counts the time itself instead of such a counter, so its value varies too."""


def told(page: str) -> list[str]:
    found = (line for line in page.splitlines() if OF_THE_DRIVER.match(line) and not OF_THE_JUDGE.match(line))
    lines = sorted(found)
    rejected = {f"gpu_throttle_seconds_total{{{match[1]}}}" for line in lines if (match := REJECTED.match(line))}
    series_of = {line: line.rpartition(" ")[0] for line in lines}
    return [series if VARIES.match(line) or series in rejected else line for line, series in series_of.items()]


def play(host: str, folder: Path, until: list[str] | None) -> list[str]:
    """What the page of a daemon on this host says: once it says `until`, else in the end; if None, once it settled."""
    (folder / "sys" / "devices").mkdir(parents=True)
    compile_library(HERE / "witness.c", folder, HOSTS[host])
    command = [*PROGRAM, "serve", "--web.listen-address", "127.0.0.1:0"]
    command += ["--path.sysfs", str(folder / "sys"), "--sample.deadline", "1s"]
    environment = {**os.environ, "LD_LIBRARY_PATH": str(folder), "NVML_WITNESS": str(HERE / "hosts" / f"{host}.txt")}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=log, env=environment)
    try:
        return _settled(Daemon(process, folder / "log"), until)
    finally:
        end(process)


def _settled(daemon: Daemon, until: list[str] | None) -> list[str]:
    said: list[str] = []
    changed_at = time.monotonic()
    limit = changed_at + WAIT_SECONDS
    while said != until and time.monotonic() < limit:
        if until is None and said and time.monotonic() - changed_at > SETTLED_SECONDS:
            return said
        time.sleep(0.2)
        before, said = said, told(daemon.get())
        changed_at = changed_at if said == before else time.monotonic()
    assert until is not None, "the page still changes"
    return said


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory, regenerate: bool) -> Mapping[str, list[str]]:  # noqa: FBT001
    """Every host's page, all at work at once, since waiting is what takes long."""
    folder = tmp_path_factory.mktemp("drivers")

    def played(host: str) -> list[str]:
        return play(host, folder / host, None if regenerate else reviewed(host))

    with ThreadPoolExecutor(len(HOSTS)) as pool:
        said = dict(zip(HOSTS, pool.map(played, HOSTS), strict=True))
    if regenerate:
        for host, lines in said.items():
            (HERE / "hosts" / f"{host}.prom").write_text("".join(f"{line}\n" for line in lines))
    return said


def reviewed(host: str) -> list[str]:
    return (HERE / "hosts" / f"{host}.prom").read_text().splitlines()


@pytest.mark.parametrize("host", HOSTS)
def test_the_page_says_what_the_library_answers_and_nothing_else(pages: Mapping[str, list[str]], host: str) -> None:
    assert pages[host] == reviewed(host), f"hosts/{host}.prom: if it is meant, run `make regenerate`"
