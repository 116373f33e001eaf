"""Three paths of the README, walked as they are written there: how many commands, and how many seconds.

A desk is a minimal system that has never seen the project. A node of a Slurm cluster is an overlay of this host, with
its Slurm running and no prolog. For Kubernetes, the chart is rendered.
"""

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest
import yaml
from deploy.release.files import copied
from tests.chart.rendering import IMAGE, render
from tests.conftest import REPOSITORY, RequiresTool
from tests.distribution import uv
from tests.documents.pages import shown
from tests.released import Packages, built, release
from tests.root_file_system import root_file_system

from gpu_triage import __version__

pytestmark = pytest.mark.timeout(900)

CERTIFICATES: Final = Path("/etc/ssl/certs/ca-certificates.crt")
"""Of this machine, whose way to the package index may need its own."""

FRESH: Final = (Path(__file__).parent / "fresh_host.sh").read_text(encoding="utf-8")
DESK: Final = """
export HOME=/root PATH=/root/.local/bin:/clone:/usr/bin:/bin
cd /clone
"""
NODE: Final = "gpu-7"
REASON: Final = "gpu.lost GPU 1, xid.79 GPU 1 (gpu-triage)"
SLURM: Final = ("slurmctld", "slurmd", "munged", "sbatch")
CONFIGURATION: Final = (Path(__file__).parent / "slurm.conf").read_text(encoding="utf-8")
NODE_OF_A_CLUSTER: Final = (Path(__file__).parent / "node_of_a_cluster.sh").read_text(encoding="utf-8")
JOBS: Final = """
{named}
within "{metric}"
{metric}
{sick}
within 'scontrol show node {node} | grep DRAIN'
within 'squeue --noheader --format=%T | grep PENDING'
scontrol show node {node} | grep -E 'State=|Reason='
scontrol show job 2 | grep AdminComment
scontrol show config | grep SchedulerParameters
scancel --user root
within 'test -z "$(squeue --noheader)"'
"""
# No setting changes, although a prolog and an epilog are still configured.
REMOVED: Final = """
dpkg --purge gpu-triage-exporter
scontrol update NodeName={node} State=RESUME
sbatch --output=/dev/null --wrap='echo @ran >/clone/ran'
within 'test -e /clone/ran && test -z "$(squeue --noheader)"'
scontrol show node {node} | grep -q DRAIN && echo @drained
cat /clone/ran
"""


def commands(repository: Path, heading: str, page: str = "README.md") -> list[str]:
    """The commands below a heading of a page."""
    return [each.command for each in shown(repository / page, heading)]


def timed(command: str) -> str:
    """A command whose start and end are told."""
    return f'echo "@start $(date +%s.%N)"; {command}\ncode=$?\necho "@end $(date +%s.%N) $code"\n'


def seconds_and_codes(output: str) -> list[tuple[float, int]]:
    """How long each timed command took, and its exit code."""
    started = [float(at) for at in re.findall(r"^@start (\S+)$", output, re.MULTILINE)]
    ended = [(float(at), int(code)) for at, code in re.findall(r"^@end (\S+) (\d+)$", output, re.MULTILINE)]
    return [(end - start, code) for start, (end, code) in zip(started, ended, strict=True)]


@pytest.fixture
def clone(repository: Path, tmp_path: Path) -> Path:
    """What git would check out, with the changes of this working tree."""
    return copied(repository, tmp_path / "clone", __version__).folder


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    folder = tmp_path / "scratch"
    folder.mkdir()
    return folder


def run(script: str, *, system: Path, clone: Path, scratch: Path, alone: bool) -> subprocess.CompletedProcess[str]:
    """Run a script in an overlay of a system, as root; with `alone`, in a network of its own."""
    if os.geteuid() != 0:
        pytest.skip("a root file system of its own needs root")
    variables = {"SCRATCH": str(scratch), "SYSTEM": str(system), "CLONE": str(clone), "ALONE": "yes" if alone else ""}
    network = ["--net"] if alone else []
    command = ["unshare", "--mount", "--pid", *network, "--fork", "--kill-child", "sh", "-c", FRESH]
    given = {**os.environ, **variables}
    return subprocess.run(command, env=given, input=script, check=False, capture_output=True, text=True)


def test_a_desk_has_a_verdict_within_a_minute(
    repository: Path, clone: Path, scratch: Path, requires_tool: RequiresTool
) -> None:
    system = root_file_system(requires_tool, "pip", "python3,python3-venv,python3-pip,ca-certificates")
    walked = commands(repository, "On a desk")
    (file,) = built("wheel").glob("*.whl")
    assert walked == ["make release ARGS=wheel", f"pipx install dist/{file.name}", "gpu-triage check"]
    (clone / "dist").mkdir()
    shutil.copy2(file, clone / "dist")
    shutil.copy2(uv(), clone / "uv")  # of the two that the README names, the one that comes with the tests
    if CERTIFICATES.exists():
        shutil.copy2(CERTIFICATES, clone / "certificates.crt")
    install, check = walked[1].replace("pipx install", "uv tool install --quiet"), f"{walked[2]} --simulate dual-a10"
    trust = "export SSL_CERT_FILE=/clone/certificates.crt\n" if (clone / "certificates.crt").exists() else ""
    script = DESK + trust + timed(install) + timed(check)
    ran = run(script, system=system, clone=clone, scratch=scratch, alone=False)
    told = seconds_and_codes(ran.stdout)
    assert told[0][1] == 0, ran.stdout + ran.stderr
    assert re.search(r"GPU 0 +thermal ", ran.stdout), ran.stdout + ran.stderr
    assert "pcie.width" in ran.stdout
    assert sum(took for took, _ in told) < 60.0


def test_a_slurm_node_drains_itself_after_six_commands(
    packages: Packages, tmp_path: Path, scratch: Path, requires_tool: RequiresTool
) -> None:
    for program in (*SLURM, "apt-get", "curl"):
        requires_tool(program)
    walked = commands(REPOSITORY, "On a Slurm cluster")
    assert walked[0] == "make release ARGS=packages"
    assert len(walked) <= 6
    dist = tmp_path / "dist"
    dist.mkdir()
    shutil.copy2(packages.deb, dist)
    host = os.uname().nodename.partition(".")[0]
    (tmp_path / "slurm.conf").write_text(CONFIGURATION.format(folder="/srv/slurm", host=host, node=NODE))
    install, append, *rest = walked[1:]
    stop, serve, named, metric, sick, _ = commands(REPOSITORY, "Rehearsal", "deploy/slurm/README.md")
    assert stop.startswith("systemctl stop ")  # nothing runs the unit here
    script = NODE_OF_A_CLUSTER.format(node=NODE) + timed(install) + f"{serve.removesuffix('&')} 2>/dev/null &\n"
    # Of the preflight alone, which else expects neither GPUs nor an exporter.
    script += "cat /usr/lib/gpu-triage-exporter/slurm.env\nexport NODE_CHECK_DEVICE_FILES=/srv/slurm/dev\n"
    script += timed(append) + "sed -i 's/=bf_continue/&,nohold_on_prolog_fail/' /etc/slurm/slurm.conf\n"
    script += "".join(map(timed, rest))
    script += JOBS.format(node=NODE, named=named, metric=metric.replace('"', '\\"'), sick=sick)
    ran = run(script + REMOVED.format(node=NODE), system=Path("/"), clone=tmp_path, scratch=scratch, alone=True)
    told = ran.stdout + ran.stderr
    assert [code for _, code in seconds_and_codes(ran.stdout)] == [0, 1, *(0 for _ in rest)], told
    assert "problem:" not in ran.stdout
    (problem,) = (line for line in ran.stderr.splitlines() if line.startswith("problem:"))
    assert "SchedulerParameters" in problem
    assert "GPU_TRIAGE_SLURM_JOBS_DIRECTORY=/run/gpu-triage/jobs" in ran.stdout
    assert re.search(r'^gpu_allocated{.*gpu="0",.*slurm_job_id="1",user="root"', ran.stdout, re.MULTILINE), told
    assert f"Reason={REASON}" in ran.stdout, told
    assert f"AdminComment={NODE}: {REASON}" in ran.stdout
    assert re.search(r"^SchedulerParameters += bf_continue,nohold_on_prolog_fail$", ran.stdout, re.MULTILINE)
    assert ("@ran" in ran.stdout, "@drained" in ran.stdout) == (True, False), told


def test_kubernetes_has_dashboards_with_pods_after_three_commands(repository: Path) -> None:
    walked = commands(repository, "On Kubernetes")
    assert len(walked) == 3
    build, push, install = map(shlex.split, walked)
    assert build == ["make", "release", "ARGS=chart image"]
    archive, target = push[2:]
    assert push[:2] == ["skopeo", "copy"]
    assert archive == f"oci-archive:dist/gpu-triage-exporter-{__version__}-image.tar"
    name, chart = install[2:4]
    assert install[:2] == ["helm", "install"]
    (setting,) = (install[at + 1] for at, word in enumerate(install) if word == "--set")
    assert f"docker://{setting.removeprefix('image.repository=')}:{__version__}" == target
    assert setting == f"image.repository={IMAGE}"
    values = yaml.safe_load((repository / install[install.index("--values") + 1]).read_bytes())
    rendered = render(values, release() / Path(chart).name, name)
    assert f"docker://{rendered.container['image']}" == target
    texts = "".join(text for each in rendered.of_kind("ConfigMap") for text in each["data"].values())
    assert "gpu_allocated" in texts or "workload_pod" in texts
    assert any("--kubernetes.pod-resources-socket" in flag for flag in rendered.container["args"])
    assert len(rendered.of_kind("ServiceMonitor")) == 1
