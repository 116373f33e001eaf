"""Each page's commands are run in their order on a clean host, and what is true at the end is asserted.

A command that neither walks.yaml runs nor a row of `ELSEWHERE` names fails the test of its page.
"""

import os
import re
import shlex
import subprocess
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
import yaml
from deploy.release.files import NAME
from tests.chart.rendering import render
from tests.conftest import REPOSITORY, RequiresTool
from tests.documents.pages import Shown, documents, shown
from tests.gathered import every, for_each

from gpu_triage.cli.main import group

CLEAN_HOST: Final = (Path(__file__).parent / "clean_host.sh").read_text(encoding="utf-8")
YAML: Final = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)
END: Final = re.compile(r"^\x1e(\d+) (\d+)\n", re.MULTILINE)
"""What tells the end of a command: its place, and its exit code."""


class Walk(NamedTuple):
    """How a page is walked: shell, in which `serving`, `within`, `metrics` and `verdict` are those of clean_host.sh."""

    state: str  # what is true at the end: each line succeeds
    before: str = ""  # what the page presupposes; its YAML blocks are $HOME/1.yaml, …
    instead: Mapping[str, str] = {}  # what is replaced in commands, such as the real length of a recording
    fails: Mapping[str, int] = {}  # exit codes other than 0, by the beginning of the command
    differs: str = "$^"  # commands that print something else here


WALKS: Final = {
    page: Walk(**each) for page, each in yaml.safe_load(Path(__file__).with_name("walks.yaml").read_bytes()).items()
}


def rendered(words: list[str]) -> None:
    """The chart of the repository takes the values; that of another repository is not here."""
    chart = "helm/gpu-triage-exporter" if words[3].startswith("dist/") else words[3]
    values: dict[str, Any] = {}
    for flag, value in pairwise(words):
        if flag == "--values":
            values |= yaml.safe_load((REPOSITORY / value).read_bytes())
        if flag == "--set":
            key, _, text = value.partition("=")
            setting: Any = text
            for name in reversed(key.split(".")):
                setting = {name: setting}
            values |= setting
    if words[1] != "test" and not chart.startswith("prometheus-community/"):
        assert render(values, REPOSITORY / chart).objects


def applied(words: list[str]) -> None:
    """What is applied is there."""
    for flag, value in pairwise(words):
        kustomization = REPOSITORY / value / "kustomization.yaml"
        assert flag not in {"-k", "--filename"} or kustomization.exists() or (REPOSITORY / value).is_file()


def of_the_image(words: list[str]) -> None:
    """The Dockerfile has the arguments, and the exporter the options."""
    arguments = set(re.findall(r"^ARG (\w+)", (REPOSITORY / "Dockerfile").read_text(), re.MULTILINE))
    named = [value.partition("=")[0] for flag, value in pairwise(words) if flag == "--build-arg"]
    assert set(named) <= arguments
    if words[1] == "run":
        parsed(words[words.index("gpu-triage-exporter") :])


def parsed(words: list[str]) -> None:
    """The command has these options."""
    context = group.make_context("gpu-triage", words[1:2], resilient_parsing=True)
    _, command, _ = group.resolve_command(context, words[1:2])
    assert command is not None
    command.make_parser(command.context_class(command)).parse_args(words[2:])


def exists(words: list[str]) -> None:
    """What is named of the package comes with it."""
    if words[0] in {"apt-get", "dnf"}:
        assert Path(words[-1]).name.startswith(NAME)
    for word in words:
        assert "/slurm/" not in word or (REPOSITORY / "deploy/slurm" / Path(word).name).exists()


class Elsewhere(NamedTuple):
    """Commands that no walk runs."""

    pages: str  # expressions of pages
    commands: str  # and of how commands begin
    why: str
    tests: str  # files that run them, or what comes closest
    check: Callable[[list[str]], None] = lambda _words: None  # what can be said of its words


ELSEWHERE: Final = (
    Elsewhere("exporter/.*", "", "a host that is sick", "unit/serve/handbook/test_runbooks.py"),
    Elsewhere("README.md|docs/desk.md", "pipx install", "a package index", "deploy/test_first_minute.py"),
    Elsewhere("README.md", "gpu-triage check", "on a system of its own", "deploy/test_first_minute.py", parsed),
    Elsewhere("README.md", "gpu-triage rules", "with its servers", "e2e/test_own_prometheus.py", parsed),
    Elsewhere(
        "README.md|deploy/slurm/README.md|docs/packages.md",
        "/usr/share/.*preflight|s(control|batch|info)|apt-get|dnf|systemctl|gpu-triage serve .*&$|curl.*slurm_job",
        "a Slurm, or a systemd",
        "deploy/test_first_minute.py deploy/test_package_life.py deploy/test_packages.py",
        exists,
    ),
    Elsewhere(
        ".*",
        "make (run|quick|release|regenerate|lock|demo)|RELEASE_SIGNING_KEY",
        "minutes, or the network",
        "documents/test_documented_commands.py deploy/test_release.py e2e/test_demo_ends.py",
    ),
    Elsewhere(
        "docs/check.md", "gpu-triage (accept|repaired)", "a GPU at fault", "unit/cli/test_accept_command.py", parsed
    ),
    Elsewhere("docs/install.md", "/opt/gpu-triage/bin/pip", "a package index", "deploy/test_release.py"),
    Elsewhere("docs/install.md", "gpg|grep .*sha256sum", "a release", "deploy/test_release.py"),
    Elsewhere(".*", "docker|skopeo", "a container runtime", "image/test_image.py", of_the_image),
    Elsewhere(".*", "helm", "a cluster", "deploy/test_first_minute.py", rendered),
    Elsewhere(".*", "kubectl", "a cluster", "deploy/test_kubernetes_recipes.py", applied),
    Elsewhere("docs/hardware-checks.md", "python -m tests.hardware|sh kit", "a GPU", "hardware/test_hardware.py"),
    Elsewhere("docs/maintenance.md", "gpu-triage maintenance", "Alertmanager", "e2e/test_silences.py", parsed),
    Elsewhere("docs/jobs.md", "gpu-triage job", "rules, and a job's history", "jobs/test_job_command.py", parsed),
    Elsewhere("docs/web-security.md", ".*web.config.file", "many settings", "unit/serve/test_web_runbooks.py", parsed),
)


def name_of(page: Path) -> str:
    return page.relative_to(REPOSITORY).as_posix()


def elsewhere(page: str, command: str) -> Elsewhere | None:
    """The first row that names a command."""
    rows = (row for row in ELSEWHERE if re.fullmatch(row.pages, page) and re.match(row.commands, command))
    return next(rows, None)


@for_each("page", lambda: [page for page in documents(REPOSITORY) if shown(page)], ids=name_of)
def test_every_command_of_a_page_is_run_or_named(page: Path) -> None:
    for command, _ in every(shown(page)):
        row = elsewhere(name_of(page), command)
        assert row or name_of(page) in WALKS, command
        if row:
            row.check(shlex.split(command, comments=True))


def script_of(page: str, walk: Walk, commands: list[Shown]) -> str:
    """All commands, then all lines of the state; the end of each is told."""
    lines = []
    for command, _ in commands:
        line = command
        for pattern, by in walk.instead.items():
            line = re.sub(pattern, by, line)
        is_server = re.match(r"(?:[A-Z_]+=\S* )*gpu-triage serve\b", line)
        lines.append(f"serving {line}" if is_server else line)
    lines += re.sub(r"\\\n", "", walk.state).splitlines()
    blocks = YAML.findall((REPOSITORY / page).read_text(encoding="utf-8"))
    files = "".join(f"cat >$HOME/{at}.yaml <<'END'\n{block}END\n" for at, block in enumerate(blocks, 1))
    told = "".join(f"{line}\nprintf '\\036%s %s\\n' {at} $?\n" for at, line in enumerate(lines))
    return f"{CLEAN_HOST}\n{files}{walk.before}\nprintf '\\036%s %s\\n' 999 0\n{told}"


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", WALKS)
def test_a_page_leads_where_it_says(page: str, requires_tool: RequiresTool) -> None:
    for program in ("unshare", "curl", "jq", "promtool", "prometheus", "amtool", "zsh", "fish"):
        requires_tool(program)
    if os.geteuid() != 0:
        pytest.skip("mount and network namespaces need root")
    walk = WALKS[page]
    commands = [each for each in shown(REPOSITORY / page) if elsewhere(page, each.command) is None]
    ran = subprocess.run(
        ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "bash", "-c",
         script_of(page, walk, commands), "bash", str(REPOSITORY)],
        stdin=subprocess.DEVNULL, check=False, capture_output=True, text=True,
    )  # fmt: skip
    told = ran.stdout + ran.stderr
    _, _, *parts = END.split(ran.stdout)[1:]
    outputs, codes = parts[::3], [int(code) for code in parts[2::3]]
    expected = [
        next((code for start, code in walk.fails.items() if command.startswith(start)), 0) for command, _ in commands
    ]
    assert codes[: len(commands)] == expected, told
    assert codes[len(commands) :] == [0] * len(walk.state.replace("\\\n", "").splitlines()) != [], told
    for (command, output), printed in zip(commands, outputs, strict=False):
        if output.strip() and not re.match(walk.differs, command):
            whole = "\n".join(line.strip() for line in printed.strip().splitlines())
            assert re.fullmatch(re.escape(output.strip()).replace("…", ".*"), whole, re.DOTALL), f"{command}\n{printed}"
