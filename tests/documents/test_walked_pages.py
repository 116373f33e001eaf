"""Each page's commands are run in their order on a clean host, and what is true at the end is asserted.

A command that neither a row of `WALKS` runs nor a row of `ELSEWHERE` names fails the test of its page.
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
from deploy.packages.build import NAME
from tests.chart.rendering import render
from tests.conftest import REPOSITORY, RequiresTool
from tests.documents.pages import Shown, documents, shown
from tests.gathered import every, for_each
from tests.image.dockerfile import instructions

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


SIMULATED: Final = "export GPU_TRIAGE_SIMULATE={}\n"
NOT_SIMULATED: Final = {r"(?=gpu-triage \w+ --replay)": "GPU_TRIAGE_SIMULATE= "}
TO_TERMINAL: Final = {r"^gpu-triage top(?! --once)": "gpu-triage top --once"}
SERVED: Final = "serving gpu-triage serve {}\n"

WALKS: Final = {
    "deploy/alertmanager/README.md": Walk(
        "amtool config routes test --config.file=alertmanager.yml drill=true alertname=GpuLost | grep -x gpu-drill\n"
        "amtool config routes test --config.file=alertmanager.yml alertname=GpuLost severity=critical |"
        " grep -x gpu-pager",
        "cd deploy/alertmanager",
    ),
    "deploy/kubernetes/node-problem-detector/README.md": Walk(
        "verdict '.verdict == \"drain\"'",
        SERVED.format("--simulate lost-before-start"),
        {r"; echo \$\?$": ""},
        {"GPU_VERDICT_HOST": 1},
    ),
    "deploy/slurm/README.md": Walk(
        'test "$(/usr/bin/gpu-triage-or-true; echo $?)" = 0\n'
        'test "$(. /etc/default/gpu-triage-exporter; echo $GPU_TRIAGE_SLURM_JOBS_DIRECTORY)" = /run/gpu-triage/jobs\n'
        "/etc/slurm/gpu-triage/preflight.sh --lines | grep -x HealthCheckProgram=/etc/slurm/gpu-triage/health-check.sh",
        "mkdir -p /etc/slurm; echo ClusterName=a >/etc/slurm/slurm.conf; cd deploy/slurm\n"
        "printf '#!/bin/sh\\necho SLURM_CONF = /etc/slurm/slurm.conf' >/usr/bin/shows; chmod +x /usr/bin/shows\n"
        "export NODE_CHECK_SCONTROL=shows\n" + SERVED.format("--simulate dual-a10"),
        {"deploy/slurm/": "./", r"; echo \$\?$": ""},
    ),
    "deploy/systemd/README.md": Walk(
        "systemctl is-enabled gpu-triage-exporter\n"
        "test $(id -un gpu-triage) = gpu-triage\n"
        "systemd-analyze verify gpu-triage-exporter.service\n"
        "test $(stat -c %a /etc/default/gpu-triage-exporter) = 640",
        "mkdir -p /opt/gpu-triage/bin; ln -s $(command -v gpu-triage) /opt/gpu-triage/bin; cd deploy/systemd",
    ),
    "docs/advise.md": Walk(
        "gpu-triage advise --params 350M --format json | jq -e '.choice == \"depends\"'",
        SIMULATED.format("desk"),
        differs="gpu-triage advise",
    ),
    "docs/baseline-and-recordings.md": Walk(
        "within 'ls /var/lib/gpu-triage/recordings/*-gpu-1-*.tar.gz'\n"
        "gpu-triage baseline diff baseline.json --simulate desk\n"
        "serving gpu-triage serve --baseline.file baseline.json --simulate desk\n"
        "metrics | grep '^gpu_baseline_info'\n"
        "! metrics | grep '^gpu_baseline_mismatch.* 1.0$'",
        SIMULATED.format("desk"),
        {"30s": "2s", "(?=gpu-triage serve --flight)": "GPU_TRIAGE_SIMULATE=lost-before-start ", **NOT_SIMULATED},
    ),
    "docs/check.md": Walk(
        'gpu-triage check --format lines; test "$(gpu-triage check --format lines | cut -f1 | uniq | xargs)" '
        '= "host gpu finding"\n'
        'test "$(gpu-triage check --no-such 2>/dev/null; echo $?)" = 2',
        SIMULATED.format("dual-a10"),
        fails={"gpu-triage check --for 1m --fail-on warning": 1},
    ),
    "docs/desk.md": Walk(
        'test "$(ss -Hltn | awk \'{print $4}\')" = 127.0.0.1:9836\nverdict ".gpus | length == 2"',
        SIMULATED.format("desk"),
        TO_TERMINAL,
    ),
    "docs/fire-drill.md": Walk(
        "promtool tsdb list data | grep -E '^01'\ncurl -sf $URL/metrics | grep '^gpu_exporter_simulated 1'",
        "URL=http://localhost:9837 READY=http://localhost:9837/-/ready",
        {"6h --step 15s": "10m --step 60s"},
    ),
    "docs/first-diagnosis.md": Walk(
        "gpu-triage check --simulate h100-8-bad-night --simulate-at 70m --format json | jq -e '.verdict == \"drain\"'"
    ),
    "docs/fleet.md": Walk(
        "jq -e '.hosts | length == 1' fleet.json\n"
        "gpu-triage report --prometheus http://prometheus:9090 --since 6h | grep dual-a10",
        "gpu-triage simulate dual-a10 --history 30m --step 60s --label cluster=east --output h.om\n"
        "promtool tsdb create-blocks-from openmetrics h.om data\n"
        "READY=http://prometheus:9090/-/ready serving prometheus --config.file=/dev/null --storage.tsdb.path=data",
        {"2026-11-22T03:00:00Z": '"$(date -ud -10min +%FT%TZ)"', "(?<=format json).*": " >fleet.json"},
        # There are neither days nor rules that record them.
        {"gpu-triage fleet": 1, "gpu-triage report --prometheus http://prometheus:9090 --over": 2},
    ),
    "docs/install.md": Walk(
        "bash -n /etc/bash_completion.d/gpu-triage\n"
        "zsh -n /usr/local/share/zsh/site-functions/_gpu-triage\n"
        "fish -n ~/.config/fish/completions/gpu-triage.fish\n"
        "! ls /opt/gpu-triage /etc/default/gpu-triage-exporter /var/lib/gpu-triage",
        "PROGRAM=$(command -v gpu-triage) PATH=/usr/local/bin:/usr/bin:/bin\n"
        "mkdir -p /opt/gpu-triage/bin /etc/gpu-triage /var/lib/gpu-triage; ln -s $PROGRAM /opt/gpu-triage/bin\n"
        "touch /etc/systemd/system/gpu-triage-exporter.service /etc/default/gpu-triage-exporter\n"
        "(cd /etc/gpu-triage; openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=a -keyout key -out certificate\n"
        'hash=$(echo \'$2b$10$\'; yes a | head -53 | tr -d "\\n"); hash=$(echo $hash | tr -d " ")\n'
        'echo "tls_server_config: {cert_file: certificate, key_file: key}" >web.yml\n'
        'echo "basic_auth_users: {a: $hash, b: $hash}" >>web.yml\n'
        'echo "web: {config: {file: /etc/gpu-triage/web.yml}}" >config.yml) 2>/dev/null',
        {"^(_GPU_TRIAGE_COMPLETE=zsh.*)": r"zsh -c '\1'"},
    ),
    "docs/jobs.md": Walk(
        "gpu-triage check --slurm.jobs-directory /run/gpu-triage/jobs --format json\\\n"
        '    | jq -e \'.gpus[1].held_by[0] | .slurm_job_id == "4711" and .user == "ada"\'',
        SIMULATED.format("dual-a10") + "mkdir -p /run/gpu-triage/jobs\n"
        "for each in JOB_ID=4711 JOB_GPUS=1 JOB_USER=ada; do echo SLURM_$each; done >/run/gpu-triage/jobs/4711.job",
    ),
    "docs/offline.md": Walk(
        "gpu-triage check --from nvidia-bug-report.log.gz | grep xid.119\n"
        "gpu-triage check --from sosreport-gpu-7 --format json | jq -e '.findings[] | select(.code == \"xid.79\")'",
        "PYTHONPATH=. python -c 'import tests.offline_files as o; from pathlib import Path as P\n"
        'P("report").write_text(o.sick_bug_report()); P("smi").write_text(o.smi(o.smi_gpu()))\n'
        'P("dmesg.txt").write_text(o.logged(o.XID))\'\n'
        "gzip <report >nvidia-bug-report.log.gz; cp smi smi-before.txt; cp smi smi-after.txt\n"
        "mkdir sosreport-gpu-7; cp dmesg.txt smi sosreport-gpu-7; ssh() { cat dmesg.txt; }",
        fails={"gpu-triage": 1, "ssh": 1},
    ),
    "docs/operations.md": Walk("gpu-triage config check $HOME/1.yaml | grep -x OK"),
    "docs/own-alerts.md": Walk(
        "verdict '.gpus | length == 8'\npromtool check rules $HOME/2.yaml", "cp $HOME/1.yaml our-rules.yml"
    ),
    "docs/status-page.md": Walk("verdict '.verdict'", SIMULATED.format("dual-a10") + SERVED.format("")),
    "docs/textfile.md": Walk(
        "metrics | grep '^gpu_job_step_seconds{.*owner=\"uid:'$(id -u alice)",
        SIMULATED.format("dual-a10")
        + "useradd alice; install -d -m 1777 /var/lib/gpu-jobs\n"
        + SERVED.format("--collector.textfile.directory /var/lib/gpu-jobs"),
        {r"^mv (\S+)": r"chown alice \1; \g<0>", "^(curl.*)": r"within '\1'"},
        differs="curl",  # a simulated host has no users with names
    ),
    "docs/thresholds.md": Walk(
        'verdict \'[.settings[].finding] | unique == ["pcie.replays", "thermal.hw"]\'',
        "mkdir /etc/gpu-triage; cp $HOME/1.yaml /etc/gpu-triage/config.yml\n"
        "gpu-triage record 20260115T002010Z-gpu-3-thermal.hw.tar.gz --for 2s --simulate h100-8-bad-night\n"
        + SIMULATED.format("dual-a10"),
        NOT_SIMULATED,
        differs="gpu-triage judge",
    ),
    "docs/top.md": Walk(
        "gpu-triage top --once --url http://gpu-07:9836 | grep '^  1 '",
        SERVED.format("--simulate dual-a10"),
        TO_TERMINAL,
    ),
    "docs/web-security.md": Walk(
        "curl -sf http://gpu-host-1:9836/metrics | grep -c ^gpu_\n"
        'test "$(curl -so /dev/null -w "%{http_code}" -H "Host: evil.example" http://localhost:9836/)" = 421'
    ),
    "rules/README.md": Walk(
        "printf 'rule_files:\\n  - /etc/prometheus/gpu-triage/rules/*.yml\\n' >prometheus.yml\n"
        "promtool check config prometheus.yml | grep -E '^ +SUCCESS: [0-9]+ rules found' | wc -l | grep -x 5\n"
        "serving prometheus --config.file=prometheus.yml --storage.tsdb.path=$HOME/data\n"
        "curl -s prometheus:9090/api/v1/rules | jq -e '[.data.groups[].rules[]] | length > 150'",
        "READY=http://prometheus:9090/-/ready",
    ),
}
"""How each page is walked."""


def rendered(words: list[str]) -> None:
    """The chart of the repository takes the values; that of another repository is not here."""
    chart = words[3]
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
    arguments = {
        each.rest.partition("=")[0]
        for each in instructions((REPOSITORY / "Dockerfile").read_text())
        if each.name == "ARG"
    }
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
        "make (run|quick|packages|lock|demo)",
        "minutes, or the network",
        "documents/test_documented_commands.py deploy/test_packages.py e2e/test_demo_ends.py",
    ),
    Elsewhere("docs/install.md", "/opt/gpu-triage/bin/pip", "a package index", "e2e/test_pythons.py"),
    Elsewhere(".*", "docker", "a container runtime", "image/test_image.py", of_the_image),
    Elsewhere(".*", "helm", "a cluster", "deploy/test_first_minute.py", rendered),
    Elsewhere(".*", "kubectl", "a cluster", "deploy/test_kubernetes_recipes.py", applied),
    Elsewhere("docs/hardware-checks.md", "python -m tests.hardware|sh kit", "a GPU", "hardware/test_hardware.py"),
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


def test_every_row_is_needed_and_names_tests_that_exist() -> None:
    said = [(name_of(page), each.command) for page in documents(REPOSITORY) for each in shown(page)]
    assert {elsewhere(*each) for each in said} - {None} == set(ELSEWHERE)
    assert [name for row in ELSEWHERE for name in row.tests.split() if not (REPOSITORY / "tests" / name).exists()] == []
    assert [name for name in WALKS if not (REPOSITORY / name).exists()] == []


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
        pytest.skip("folders and a network of its own need root")
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
