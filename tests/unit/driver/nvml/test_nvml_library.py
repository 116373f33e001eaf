"""The daemon over real shared objects: no library, one that is none, one that refuses, hangs or answers junk."""

import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.e2e.processes import PROGRAM, WAIT_SECONDS, end
from tests.faults.stand_in import Daemon
from tests.parts import NOT_FULL, some
from tests.stand_in_library import NAME, compile_library

from gpu_triage.read.exporter.judgment import GPU_BOTTLENECK

pytestmark = pytest.mark.slow

STOP_SECONDS = 2.0
"""What is promised to whoever sends SIGTERM."""


@dataclass(frozen=True, slots=True)
class Case:
    """A library and what to expect on the page once the daemon has settled.

    Attributes:
        library: the variant of the library: a key of COMPILED, ``cut_short`` or ``absent``.
        settled: what the page says by then.
        environment: how the library shall behave; it reads its environment.
        flags: of the daemon.
    """

    library: str
    settled: str
    environment: Mapping[str, str] = field(default_factory=dict)
    flags: tuple[str, ...] = ()


LAST_COLLECTOR = 'gpu_exporter_collector_success{collector="memory_repair"}'
COMPILED = {"plain": (), "no_init": ("-DNO_INIT",), "named": ("-DNAMED",), "junk": ("-DJUNK",)}
CASES = {
    "absent": Case("absent", 'error="library_not_found"'),
    "cut_short": Case("cut_short", 'error="library_invalid"'),
    "no_init": Case("no_init", 'error="function_not_found"'),
    "hang": Case("plain", 'error="stalled"', {"STUB_HANG": "1"}, ("--sample.deadline", "500ms")),
    "count": Case("plain", 'error="library_invalid"', {"STUB_COUNT": "4294967295"}),
    "plain": Case("plain", LAST_COLLECTOR),
    "twins": Case("plain", LAST_COLLECTOR, {"STUB_COUNT": "2", "STUB_TWINS": "1"}),
    "named": Case("named", LAST_COLLECTOR),
    "junk": Case("junk", LAST_COLLECTOR, {"STUB_COUNT": "2"}),
    # tests/faults plays every code.
    "error_345": Case("plain", 'error="error_345"', {"STUB_INIT": "345"}),
}
USUAL = ("absent", "hang", "plain", "junk", "error_345")
"""Those of `make test`."""


@dataclass(frozen=True, slots=True)
class Run:
    """What a daemon published once it had settled, and how it ended."""

    page: str
    log: str
    exit_code: int | None

    def series(self, name: str) -> list[tuple[dict[str, str], float]]:
        """Labels and values of a metric's series."""
        families = text_string_to_metric_families(self.page)
        return [(s.labels, s.value) for family in families for s in family.samples if s.name == name]

    def labels(self, name: str, label: str) -> list[str]:
        """The values of one label of a metric's series."""
        return [labels[label] for labels, _ in self.series(name)]

    def gpu_metrics(self) -> set[str]:
        """Names of everything that is said of a GPU."""
        return {line.split("{")[0] for line in self.page.splitlines() if re.match(r"\w+\{[^}]*uuid=\"[^\"]", line)}


@pytest.fixture(scope="module")
def runs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, repository: Path
) -> Iterator[dict[str, Run]]:
    """Every case of this run of the tests at work at once, since starting up is what takes long."""
    fewer = request.config.getoption("markexpr") == NOT_FULL
    cases = {name: case for name, case in CASES.items() if name in USUAL or not fewer}
    folder = tmp_path_factory.mktemp("nvml")
    for library in ("absent", "cut_short", *COMPILED):
        (folder / library).mkdir()
    for library in COMPILED.keys() & {case.library for case in cases.values()}:
        compile_library(repository / "tests" / "fixtures" / "nvml" / "stub.c", folder / library, COMPILED[library])
    content = (folder / "plain" / NAME).read_bytes()
    (folder / "cut_short" / NAME).write_bytes(content[:5000])
    daemons = {name: _start(case, folder / f"run-{name}", folder / case.library) for name, case in cases.items()}
    try:
        with ThreadPoolExecutor(len(cases)) as pool:
            pages = list(pool.map(lambda name: _settled(daemons[name], cases[name]), cases))
        codes = [_stop(daemon.process) for daemon in daemons.values()]
        yield {
            name: Run(page, daemon.log.read_text(), code)
            for (name, daemon), page, code in zip(daemons.items(), pages, codes, strict=True)
        }
    finally:
        for daemon in daemons.values():
            end(daemon.process)


def _start(case: Case, folder: Path, library: Path) -> Daemon:
    (folder / "sys" / "devices").mkdir(parents=True)
    command = [*PROGRAM, "serve", "--web.listen-address", "127.0.0.1:0", "--path.sysfs", str(folder / "sys")]
    environment = {**os.environ, **case.environment, "LD_LIBRARY_PATH": str(library)}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([*command, *case.flags], stdin=subprocess.DEVNULL, stderr=log, env=environment)
    return Daemon(process, folder / "log")


def _settled(daemon: Daemon, case: Case) -> str:
    """The page once it says what it shall, or the last one there was."""
    with suppress(AssertionError):
        return daemon.wait_for(lambda page: case.settled in page, WAIT_SECONDS)
    return daemon.get()


def _stop(process: subprocess.Popen[bytes]) -> int | None:
    """The exit code; None when the process did not heed SIGTERM in time."""
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        return process.wait(STOP_SECONDS)
    return None


@pytest.mark.parametrize("case", some(CASES, usual=USUAL))
def test_it_stays_up_says_whether_the_driver_is_and_sigterm_ends_it_in_time(runs: dict[str, Run], case: str) -> None:
    run, is_up = runs[case], CASES[case].settled == LAST_COLLECTOR
    assert CASES[case].settled in run.page, run.log
    assert run.exit_code == 0, run.log
    assert "Traceback" not in run.log
    assert "exception" not in run.labels("gpu_exporter_errors_total", "error")
    assert run.series("gpu_driver_up") == [({}, float(is_up))]
    errors = [f'error="{error}"' for error in run.labels("gpu_driver_error_info", "error")]
    assert errors == ([] if is_up else [CASES[case].settled])
    if not is_up:
        assert run.gpu_metrics() == set()
        assert run.series("gpu_devices") == []
        assert run.series("gpu_driver_info") == []
        assert run.series("gpu_host_load1") != []


def test_a_gpu_of_which_nothing_can_be_asked_is_there_and_nothing_is_made_up(runs: dict[str, Run]) -> None:
    run = runs["plain"]
    assert run.series("gpu_up") == [({"gpu": "0", "uuid": "GPU-stub-0"}, 1.0)]
    # Of Xids it is the kernel log that tells, and it was read.
    judged = {"gpu_bottleneck", "gpu_bottleneck_seconds_total"}
    # And of resets: the host has booted.
    known = {"gpu_up", "gpu_info", "gpu_xid_errors_total", "gpu_reset_timestamp_seconds"}
    assert run.gpu_metrics() == known | judged, "a class, but no verdict"
    assert [value for _, value in run.series("gpu_bottleneck")] == [GPU_BOTTLENECK.value_of("unattributed")]
    assert {count for _, count in run.series("gpu_xid_errors_total")} == {0.0}
    assert run.labels("gpu_info", "name") == [""]
    assert run.series("gpu_exporter_errors_total") == []
    assert run.labels("gpu_driver_info", "driver_version") == [""]


@pytest.mark.full
def test_of_two_gpus_under_one_uuid_one_is_published_and_a_name_that_is_no_text_is_not(runs: dict[str, Run]) -> None:
    twins, named = runs["twins"], runs["named"]
    assert twins.series("gpu_up") == [({"gpu": "0", "uuid": "GPU-stub-0"}, 1.0)]
    assert twins.series("gpu_devices") == [({"source": "nvml"}, 2.0), ({"source": "boot"}, 2.0)]
    assert [named.labels("gpu_info", label) for label in ("name", "serial")] == [[""], ["4711"]]
    malformed = {"collector": "identity", "error": "malformed"}
    assert [labels for labels, _ in named.series("gpu_exporter_errors_total")] == [malformed]


def test_junk_in_every_answer_is_not_published(runs: dict[str, Run]) -> None:
    run = runs["junk"]
    assert run.labels("gpu_up", "uuid") == ["GPU-stub-0", "GPU-stub-1"]
    elsewhere = ("gpu_up", "gpu_info", "gpu_xid_errors_total", "gpu_bottleneck", "gpu_reset_timestamp_seconds")
    shown = {
        line
        for line in run.page.splitlines()
        if re.match(r"\w+\{[^}]*uuid=", line) and 'gpu="0"' in line and not line.startswith(elsewhere)
    }
    assert shown == set()
    assert {count for _, count in run.series("gpu_xid_errors_total")} == {0.0}
    assert set(run.labels("gpu_info", "name")) == {""}
    assert set(run.labels("gpu_info", "compute_capability")) == {""}
    assert run.series("gpu_driver_info") == [({"driver_version": "", "cuda_version": "", "nvml_version": ""}, 1.0)]
    assert set(run.labels("gpu_exporter_errors_total", "error")) <= {"implausible", "malformed", "error_4294967295"}
