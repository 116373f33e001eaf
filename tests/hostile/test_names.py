"""What others name (processes, cgroups, mounts, pods, devices, messages) harms neither a scrape nor a terminal."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest
from tests.conftest import RequiresTool
from tests.e2e.processes import prometheus, wait_for
from tests.job_files import read, write
from tests.listening import serving
from tests.rig import Rig, rig
from tests.scrape_limits import check, config_of, page_of, scrape_of_the_chart

from gpu_triage.cli.top_command import Watch, frame_of
from gpu_triage.errors import ExporterUnreachable
from gpu_triage.judge.report.machine_readable import render_json, render_lines, report_from_json
from gpu_triage.judge.report.report import Report
from gpu_triage.judge.report.text import render_text
from gpu_triage.options.config import Config
from gpu_triage.serve.app import ExporterBackend
from gpu_triage.serve.exposition.encoding import Format
from gpu_triage_simulator import Scenario, load_scenario
from gpu_triage_simulator.allocation import Allocation, Pod, Slurm
from gpu_triage_simulator.scenario import NfsMount

RED, TITLE, C1, BIDI = "\x1b[31m", "\x1b]0;you\x07", "\x9b2J", "\u202e"
BREAK = 'a"}\nup 0\r\nfake{x="'
HARMFUL = (RED, TITLE, C1, BIDI, BREAK, "\x00", "\udcff", "\u2028", "\ufeff", "\U000e0001")
LONG = "deep/" * 400  # as long as the path of a cgroup that a user may make

ALTERED = re.compile(r"~[0-9a-f]{8}$")

KERNEL_LOG = (
    f"nfs: server {RED}{'n' * 200} not responding, still trying",
    f"INFO: task {BIDI}:3125 blocked for more than 122 seconds.",
    f"Memory cgroup out of memory: Killed process 3199 ({TITLE}) total-vm:98765432kB",
    f"EXT4-fs ({RED}): Remounting filesystem read-only",
    f"NVRM: Xid (PCI:0000:65:00): 94, pid='<unknown>', name={BIDI}{TITLE}",
)

CHARACTERS = (*map(chr, {*range(32)} - {ord("\n")}), "\x7f", "\x85", "\u2028", "\ufeff", "\uffff", "\U0010ffff")
JOB_FILES = {
    "many": "".join(f'gpu_job_many{{n="{number}"}} 1\n' for number in range(5000)),
    "mute": 'instance_gpu:gpu_busy:ratio5m{gpu="0"} 0\n',
    "up": "up 0\n",
    "target": 'gpu_job_x{instance="other",job="other"} 1\n',
    "timestamp": "gpu_job_x 1 1000\n",
    "end": "gpu_job_end 1\n# EOF\ngpu_job_end_after 1\n",
    "type": "# TYPE gpu_job_steps_total histogram\ngpu_job_steps_total_sum 1\n",
    "histogram": '# TYPE gpu_job_h histogram\ngpu_job_h_bucket{le="x"} 1\ngpu_job_h_sum NaN\n',
    "summary": '# TYPE gpu_job_s summary\ngpu_job_s{quantile="x"} 1\ngpu_job_s_count -1\n',
    **{f"{ord(each):x}": f'# HELP gpu_job_x a{each}b\ngpu_job_x{{a="{each}"}} 1\n' for each in CHARACTERS},
}
JOB_FILE = "".join(f'gpu_job_x{{a="{name}",l{number}="{name}"}} 1\n' for number, name in enumerate(HARMFUL[:4]))


@pytest.fixture(scope="module")
def chart(repository: Path) -> Mapping[str, Any]:
    return scrape_of_the_chart(repository)


def hostile_scenario() -> Scenario:
    """A host with a hostile name in every place that takes one, as long as its kernel lets it be."""
    scenario = load_scenario("sick-host")
    machine, (one, other) = scenario.machine, scenario.processes
    processes = [
        replace(one, name=RED, cgroup=f"/{LONG}{RED}"),
        replace(other, name=BIDI, cgroup=f"/{LONG}{BIDI}"),
        *(
            replace(one, pid=5000 + number, name=name.encode(errors="ignore").decode()[:15] or "x", uid=4 * 10**9)
            for number, name in enumerate(HARMFUL)
        ),
    ]
    nics = [replace(machine.nic[0], name=f"e{name}", infiniband=f"mlx5{name}", load=None) for name in (RED, C1, BIDI)]
    disks = [replace(machine.disk[0], name=name) for name in (f"sda{RED}", f"nvme0n1{BIDI}")]
    nfs = tuple(NfsMount(f"/{name}{LONG}", f"nas:/{name}") for name in (RED, C1, BIDI))
    allocations = tuple(
        Allocation(gpu, pod=Pod(name, f"{LONG}{name}", name), slurm=Slurm(str(number), f"{name}{LONG}", name))
        for number, name in enumerate(HARMFUL)
        for gpu in (0, 1)
    )
    return replace(
        scenario,
        machine=replace(machine, nic=tuple(nics), disk=tuple(disks), nfs=nfs),
        processes=tuple(processes),
        allocations=allocations,
    )


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    jobs = tmp_path_factory.mktemp("jobs")
    names = [name for name in HARMFUL if "\0" not in name and "\n" not in name]
    write(jobs, {f"{number}/{name}.prom": JOB_FILE for number, name in enumerate(names)})
    with rig(hostile_scenario(), Config(metrics_profile="full", collector_textfile_directory=jobs)) as running:
        for number, text in enumerate(KERNEL_LOG):
            running.kernel_logs(1000 + number, text)
        running.run(70)
        yield running


@pytest.mark.parametrize("form", Format)
def test_a_scrape_takes_in_whatever_others_name(running: Rig, form: Format, chart: Mapping[str, Any]) -> None:
    found = check(running.exposition.page(form.value, (), gzipped=False).body.decode(), form, chart)
    altered = {sample.name for sample in found if any(map(ALTERED.search, sample.labels.values()))}
    assert altered >= {
        *("gpu_process_info", "gpu_busiest_thread_ratio", "gpu_cgroup_pressure_seconds_total", "gpu_allocated"),
        *("gpu_nic_topology_info", "gpu_host_network_numa_node", "gpu_host_infiniband_up", "gpu_host_disk_reads_total"),
        *("gpu_host_nfs_bytes_total", "gpu_host_kernel_event_last_timestamp_seconds"),
        *("gpu_exporter_textfile_mtime_seconds", "gpu_job_x"),
    }


@pytest.mark.timeout(300)
def test_a_real_prometheus_with_the_charts_limits_takes_in_the_page_and_whatever_jobs_write(
    running: Rig, chart: Mapping[str, Any], tmp_path: Path, requires_tool: RequiresTool
) -> None:
    program = requires_tool("prometheus")
    write(tmp_path / "jobs", {f"{name}/job.prom": text for name, text in JOB_FILES.items()})
    of_jobs = read(tmp_path / "jobs").families

    def answer(path: str, _: bytes) -> tuple[int, bytes, str]:
        form = Format.TEXT if path.endswith("text") else Format.OPENMETRICS
        page = running.exposition.page(form.value, (), gzipped=False)
        return 200, page_of(form, foreign=of_jobs).encode() if "jobs" in path else page.body, page.content_type

    with serving(answer) as address:
        paths = {name: (address, f"/{name}") for name in ("openmetrics", "text", "jobs", "jobs_text")}
        with prometheus(program, tmp_path, config_of(chart, **paths)) as query:
            wait_for(lambda: len(query("count_over_time(up[1m]) >= 2")) == len(paths))
            targets = query.ask("targets")["activeTargets"]
            assert {each["labels"]["job"]: each["lastError"] for each in targets} == dict.fromkeys(paths, "")
            assert len(query("min_over_time(up[1m]) == 1")) == len(paths)
            assert len(query('count by (job) ({__name__=~"gpu_job_.*"}) > 5000')) == 2
            assert query('{__name__=~".+",__name__!~"gpu_.*|process_.*|python_.*|up|scrape_.*"}') == []
            assert query('{__name__=~".+",instance="other"}') == []
            assert len(query('count by (job) (gpu_cgroup_cpu_limit_cpus{cgroup=~"/deep/.*~[0-9a-f]{8}"}) == 2')) == 2
            assert "duplicate" not in (tmp_path / "prometheus.log").read_text().lower()


def commanded(text: str) -> str:
    """What a text makes a terminal do, besides choosing colors and beginning lines and columns."""
    return "".join(each for each in click.unstyle(text) if not each.isprintable() and each not in "\n\t")


def unreachable() -> Report:
    raise ExporterUnreachable(f"http://gpu-7:9836 is no exporter: {TITLE}")


def test_nothing_that_shows_names_to_people_commands_their_terminal(running: Rig) -> None:
    latest = running.judge.latest
    assert latest is not None
    assert {RED, TITLE} <= {name for name in HARMFUL if any(name in each.measured for each in latest.report.findings)}
    watch = Watch(unreachable, "http://gpu-7:9836", 1.0)
    watch.look()
    document = render_json(latest.report)
    backend = ExporterBackend(running.sampler, running.judge, running.config, lambda: None)
    shown = {
        "check": render_text(latest.report, 80),
        "check in a pipe": render_text(latest.report),
        "check for scripts": render_lines(latest.report),
        "check for programs": document,
        "top": frame_of(report_from_json(document), "this host", 200),
        "top without an exporter": "\n".join(watch.screen(200, 50)),
        "the status page": backend.status_page().body.decode(),
    }
    assert {where: commanded(text) for where, text in shown.items()} == dict.fromkeys(shown, "")
