"""Slurm's scripts against a running exporter: a sick GPU drains its node with a reason, and nothing else does.

Where nothing could be checked, syslog says so, and the node is drained if so configured. The preflight finds what is
missing.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.conftest import RequiresTool
from tests.e2e.processes import wait_for
from tests.rig import scenario_with
from tests.slurm_node import GO, HOLD, LOST, NOBODY, UNSET, Node, exporter_of_a_sick_gpu, lines_at

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")

PROGRAM = '#!/bin/sh\nshift\nexec "{python}" -m gpu_triage check "$@" {more}\n'


def test_a_job_on_the_sick_gpu_is_held_and_its_node_drained_with_code_and_gpu(node: Node, sick: str) -> None:
    result = node.prolog(sick, "0,1")
    assert result.returncode == HOLD
    assert node.told == ["update NodeName=gpu-7 State=DRAIN Reason=gpu.lost GPU 1, xid.79 GPU 1 (gpu-triage)"]
    assert node.comments == ["update JobId=42 AdminComment=gpu-7: gpu.lost GPU 1, xid.79 GPU 1 (gpu-triage)"]
    assert "gpu-triage-prolog: job 42: draining the node: gpu.lost GPU 1, xid.79 GPU 1 (gpu-triage)" in result.stderr


@pytest.mark.parametrize(
    ("script", "settings"),
    [("prolog", {"SLURM_JOB_GPUS": "0"}), ("prolog", {}), ("health-check", {"NODE_CHECK_PCI_DEVICES": "/nonexistent"})],
    ids=["a job on the healthy GPU", "a job without GPUs", "a node without GPUs"],
)
def test_what_has_no_interest_in_the_sick_gpu_goes_on(
    node: Node, sick: str, script: str, settings: dict[str, str]
) -> None:
    assert node.run(script, sick, **settings).returncode == GO
    assert node.told == []


@pytest.mark.parametrize(
    ("numbers", "gpus", "outcome"),
    [
        *(("minor", gpus, HOLD) for gpus in ("0", "0-1", "7", "MIG-1g", "1,x")),
        ("minor", "1", GO),
        *((None, gpus, HOLD) for gpus in ("1", "0-1", "MIG-1g")),
        (None, "0", GO),
    ],
)
def test_gpus_have_the_configured_numbers(node: Node, sick: str, numbers: str | None, gpus: str, outcome: int) -> None:
    """NVML's GPU 1 is /dev/nvidia0 here. A number or name that no GPU has may be any of them."""
    node.numbers(nvidia0="0000:B3:00.0", nvidia1="0000:65:00.0")
    configured = {} if numbers is None else {"NODE_CHECK_GPU_NUMBERS": numbers}
    assert node.prolog(sick, gpus, **configured).returncode == outcome


def test_a_gpu_that_nobody_could_ask_where_it_is_may_be_any(node: Node) -> None:
    node.numbers(nvidia0="0000:B3:00.0", nvidia1="0000:65:00.0")
    node.program(r"printf 'host\tdrain\tn\t-\nfinding\t1\t-\tcritical\tgpu.lost\tdrain\tlost\n'; exit 1")
    assert node.prolog(NOBODY, "0", NODE_CHECK_GPU_NUMBERS="minor").returncode == HOLD


def test_a_node_that_is_drained_keeps_its_reason_and_is_not_reported_every_minute(node: Node, sick: str) -> None:
    node.is_draining()
    # Slurm runs the health check on drained nodes as well.
    assert node.run("health-check", sick).returncode == 0
    assert node.syslog == []
    assert node.prolog(sick, "1").returncode == HOLD
    assert node.told == []
    assert [line.partition(" -- ")[2].partition(": gpu.lost")[0] for line in node.syslog] == [
        "job 42: the job does not start"
    ]


def test_the_epilog_drains_after_the_job_and_without_scontrol_leaves_it_to_slurmd(node: Node, sick: str) -> None:
    result = node.run("epilog", sick, SLURM_JOB_GPUS="1", SLURM_JOB_ID="42")
    assert result.returncode == 0
    assert node.told == ["update NodeName=gpu-7 State=DRAIN Reason=gpu.lost GPU 1, xid.79 GPU 1 (gpu-triage)"]
    assert node.run("epilog", sick, SLURM_JOB_GPUS="0").returncode == 0
    assert len(node.told) == 1
    result = node.run("epilog", sick, SLURM_JOB_GPUS="1", NODE_CHECK_SCONTROL="/nonexistent/scontrol")
    assert result.returncode == 1
    assert "scontrol cannot drain the node" in result.stderr


@pytest.mark.parametrize(
    ("program", "outcome", "said"),
    [
        ("printf 'host\\tkeep\\tgpu-7\\t-\\n'", GO, ""),
        (r"printf 'host\tdrain\tn\t-\nfinding\t1\t-\tcritical\txid.79\tdrain\tXid 79\n'; exit 1", HOLD, "xid.79 GPU 1"),
        (r"printf 'host\tnot_read\tn\tno GPU\n'; exit 2", HOLD, "unchecked: no GPU"),
        (r"printf 'host\twatch\tn\t-\nfinding\t1\t-\twarning\txid.63\treset\tXid 63\n'", GO, ""),
        ("echo Usage: gpu-triage", GO, "nothing was checked"),
        ("exec sleep 60", HOLD, "no answer in 1 s: the driver hangs"),
        ("echo no such option >&2; exit 2", GO, "nothing was checked"),
        ("echo Traceback >&2; exit 70", GO, "nothing was checked"),
    ],
    ids=["sound", "critical", "cannot look", "a ticket", "not ours", "hangs", "bad option", "broken program"],
)
def test_without_an_exporter_the_program_decides(node: Node, program: str, outcome: int, said: str) -> None:
    node.program(program)
    result = node.prolog(NOBODY, "1", NODE_CHECK_LOOK_SECONDS="1")
    assert result.returncode == outcome
    assert said in result.stderr
    assert len(node.told) == outcome


def test_a_program_that_is_configured_is_preferred_to_one_that_is_installed(node: Node, tmp_path: Path) -> None:
    node.program("printf 'host\\tkeep\\tgpu-7\\t-\\n'")
    mine = tmp_path / "mine"
    mine.write_text(
        "#!/bin/sh\nprintf 'host\\tdrain\\tn\\t-\\nfinding\\t1\\t-\\tcritical\\txid.79\\tdrain\\tXid 79\\n'"
    )
    mine.chmod(0o755)
    assert node.prolog(NOBODY, "1").returncode == GO
    assert node.prolog(NOBODY, "1", NODE_CHECK_PROGRAM=str(mine)).returncode == HOLD


def test_the_program_is_looked_for_where_the_instructions_install_it(node: Node) -> None:
    """The packages, the README's virtual environment, `pipx` and `uv tool` as root, and `pipx --global`."""
    command = f"role=test; . {node.scripts}/judge.sh; echo $PATH"
    said = subprocess.run(["sh", "-c", command], env={}, check=True, capture_output=True, text=True).stdout
    folders = said.strip().split(":")
    expected = ["/usr/bin", "/opt/gpu-triage/bin", "/root/.local/bin"]
    assert sorted(expected, key=folders.index) == expected
    assert "/usr/local/bin" in folders


def test_the_program_itself_is_asked_for_three_seconds(node: Node, tmp_path: Path) -> None:
    scenario_with(tmp_path, "idle-downshift", LOST)
    more = f"--simulate {tmp_path / 'idle-downshift-changed.toml'} --simulate-at 1m"
    node.program(PROGRAM.format(python=sys.executable, more=more))
    result = node.prolog(NOBODY, "1")
    assert result.returncode == HOLD
    assert [told[:55] for told in node.told] == ["update NodeName=gpu-7 State=DRAIN Reason=gpu.lost GPU 1"]
    assert node.prolog(NOBODY, "0").returncode == GO


def test_a_server_that_is_no_exporter_is_no_verdict(node: Node, tmp_path: Path) -> None:
    """Another service may have taken the port: the program decides as if nobody answered."""
    (tmp_path / "api" / "v1").mkdir(parents=True)
    (tmp_path / "api" / "v1" / "verdict").write_text("<html>It works!</html>")
    node.program(r"printf 'host\tdrain\tn\t-\nfinding\t1\t-\tcritical\txid.79\tdrain\tXid 79\n'; exit 1")
    assert node.prolog(f"file://{tmp_path}", "1").returncode == HOLD


def test_the_scripts_find_their_parts_through_links(node: Node, tmp_path: Path, sick: str) -> None:
    """Sites link them into /etc/slurm/prolog.d."""
    link = tmp_path / "50-gpu-triage.sh"
    link.symlink_to(node.scripts / "prolog.sh")
    assert node.run_file(link, sick, SLURM_JOB_GPUS="1").returncode == HOLD


def test_settings_come_from_a_file_as_well(node: Node, sick: str, tmp_path: Path) -> None:
    settings = tmp_path / "settings"
    settings.write_text(f"NODE_CHECK_URL={sick}\n")
    assert node.prolog(NOBODY, "1", NODE_CHECK_SETTINGS=str(settings)).returncode == HOLD


@pytest.mark.parametrize("script", ["prolog", "epilog", "health-check"])
def test_a_node_whose_gpus_nobody_could_check_says_so_in_syslog_and_keeps_its_jobs(node: Node, script: str) -> None:
    node.has_no_program()
    result = node.run(script, NOBODY, SLURM_JOB_GPUS="0", SLURM_JOB_ID="42")
    said = f"nothing was checked: no verdict from {NOBODY}, and gpu-triage is not installed"
    assert node.syslog == [f"-t gpu-triage-{script} -p daemon.err -- job 42: {said}"]
    assert result.stderr == f"gpu-triage-{script}: job 42: {said}\n"
    assert result.returncode == GO
    assert node.told == []


@pytest.mark.parametrize(("script", "outcome"), [("prolog", HOLD), ("epilog", 0), ("health-check", 0)])
def test_a_node_whose_gpus_cannot_be_checked_is_drained_if_so_configured(node: Node, script: str, outcome: int) -> None:
    node.program("exit 70")
    result = node.run(script, NOBODY, SLURM_JOB_GPUS="0", NODE_CHECK_UNCHECKED="drain")
    assert result.returncode == outcome
    (told,) = node.told
    assert told.startswith("update NodeName=gpu-7 State=DRAIN Reason=unchecked: no verdict from ")
    assert told.endswith("/gpu-triage check' ended with code 70 and without a report (gpu-triage)")


@pytest.mark.parametrize("sign", ["dev/nvidia0", "driver/0000:65:00.0"])
def test_a_node_without_a_sign_of_a_gpu_of_ours_is_not_drained_for_what_nobody_could_check(
    node: Node, tmp_path: Path, sign: str
) -> None:
    node.has_no_program()
    node.has_no_gpus()
    assert node.prolog(NOBODY, "0", NODE_CHECK_UNCHECKED="drain").returncode == GO
    assert node.told == []
    assert len(node.syslog) == 1
    (tmp_path / sign).mkdir(parents=True)
    assert node.prolog(NOBODY, "0", NODE_CHECK_UNCHECKED="drain").returncode == HOLD


def test_a_typing_error_in_what_to_do_drains_nothing_and_is_reported(node: Node) -> None:
    node.has_no_program()
    assert node.prolog(NOBODY, "0", NODE_CHECK_UNCHECKED="Drain").returncode == GO
    assert node.told == []
    assert "NODE_CHECK_UNCHECKED is 'Drain' instead of log or drain" in node.syslog[-1]


def test_a_mistake_in_the_settings_drains_nothing_and_is_reported(node: Node, tmp_path: Path, sick: str) -> None:
    """A shell that reads one exits with an error, and slurmd would take that for a failed prolog."""
    settings = tmp_path / "settings"
    for mistake in ("NODE_CHECK_URL=$UNKNOWN\n", "if true\n"):
        settings.write_text(mistake)
        result = node.prolog(sick, "0", NODE_CHECK_SETTINGS=str(settings))
        assert result.returncode == GO
        assert node.syslog.pop().endswith(f"{settings} is ignored: it has an error")
    settings.write_text("[ -e /nonexistent ] && NODE_CHECK_URL=\n")
    assert node.prolog(sick, "0", NODE_CHECK_SETTINGS=str(settings)).stderr == ""


def test_node_exporter_has_the_last_run(node: Node, tmp_path: Path, sick: str, requires_tool: RequiresTool) -> None:
    promtool = requires_tool("promtool")
    folder = tmp_path / "textfile"
    folder.mkdir()
    for url, success in ((NOBODY, 0), (sick, 1)):
        node.run("health-check", url, NODE_CHECK_TEXTFILE_DIRECTORY=str(folder), NODE_CHECK_PROGRAM="/nonexistent")
        (file,) = folder.iterdir()
        assert file.name == "slurm-gpu-check-health-check.prom"
        assert file.stat().st_mode & 0o777 == 0o644
        text = file.read_text()
        assert text.splitlines()[-1] == f'slurm_gpu_check_success{{script="health-check"}} {success}'
        subprocess.run([promtool, "check", "metrics"], input=text, check=True, text=True)


def test_root_writes_through_no_link_that_node_exporters_owner_planted(node: Node, tmp_path: Path) -> None:
    folder, victim, wrapper = tmp_path / "textfile", tmp_path / "victim", tmp_path / "wrapper"
    folder.mkdir()
    victim.write_text("precious")
    planted = folder / "slurm-gpu-check-health-check.prom"
    planted.symlink_to(folder)
    wrapper.write_text(f'#!/bin/sh\nln -s {victim} "{planted}.$$"\nexec {node.scripts / "health-check.sh"}\n')
    wrapper.chmod(0o755)
    node.run_file(wrapper, NOBODY, NODE_CHECK_TEXTFILE_DIRECTORY=str(folder), NODE_CHECK_PROGRAM="/nonexistent")
    assert victim.read_text() == "precious"
    assert [path.is_symlink() for path in folder.iterdir()] == [False]
    assert "slurm_gpu_check_success" in planted.read_text()


def test_a_job_is_not_refused_because_node_exporter_has_no_directory(node: Node, sick: str) -> None:
    assert node.prolog(sick, "0", NODE_CHECK_TEXTFILE_DIRECTORY="/nonexistent").returncode == GO
    assert "cannot write /nonexistent/slurm-gpu-check-prolog.prom" in node.syslog[-1]


def test_the_preflight_has_no_objection_to_the_recommended_configuration(node: Node, sick: str) -> None:
    result = node.run("preflight", sick)
    assert result.returncode == 0, result.stdout
    assert "problem" not in result.stdout
    assert f"ok: the exporter answers at {sick}" in result.stdout.splitlines()


def problems(output: str) -> list[str]:
    return [line.removeprefix("problem: ") for line in output.splitlines() if line.startswith("problem: ")]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"SchedulerParameters": "bf_continue"}, r"SchedulerParameters \(\S+:8\) is bf_continue: append ,nohold_on"),
        ({"SchedulerParameters": "xnohold_on_prolog_fail"}, "SchedulerParameters .* append"),
        ({"PrologFlags": "X11"}, "PrologFlags .* is X11: append ,Alloc"),
        ({"Prolog": UNSET}, "Prolog is not set in"),
        ({"HealthCheckProgram": UNSET}, "HealthCheckProgram is not set in"),
        ({"Prolog": "/etc/site/prolog"}, "Prolog is /etc/site/prolog, which does not run"),
        ({"Prolog": "/nonexistent/*"}, "Prolog is /nonexistent/\\*, which does not run"),
        ({"Epilog": "{scripts}/prolog.sh"}, "Epilog is .*, which does not run"),
        ({"HealthCheckProgram": "/bin/true"}, "HealthCheckProgram is /bin/true, which does not run"),
        ({"HealthCheckInterval": "0 sec"}, "HealthCheckInterval .* not in effect"),
        ({"PrologEpilogTimeout": "30"}, "PrologEpilogTimeout is 30 s: raise it above"),
    ],
)
def test_the_preflight_reports_what_slurm_lacks(node: Node, sick: str, changes: dict[str, str], problem: str) -> None:
    node.configured(**changes)
    result = node.run("preflight", sick)
    assert result.returncode == 1
    (found,) = problems(result.stdout)
    assert re.match(problem, found), found


def test_the_preflight_finds_what_is_set_twice_in_an_included_file_too(node: Node, sick: str, tmp_path: Path) -> None:
    (tmp_path / "site.conf").write_text("# epilog=/no\nEPILOG = /etc/site/epilog Waittime=0\n")
    node.slurm_conf.write_text(f"Include site.conf\n{node.slurm_conf.read_text()}include gone.conf\n")
    unread, doubled = problems(node.run("preflight", sick).stdout)
    assert str(tmp_path / "gone.conf") in unread
    assert doubled.endswith(f": {tmp_path / 'site.conf'}:2, {node.slurm_conf}:2")


def test_several_prologs_of_a_later_slurm_and_a_prolog_that_calls_ours_are_fine(node: Node, sick: str) -> None:
    own = node.slurm_conf.parent / "own"
    own.write_text(f"#!/bin/sh\nexec {node.scripts}/job.sh\n")
    node.configured(Prolog="/bin/false")
    config = node.slurm_conf.parent / "config"
    config.write_text(re.sub("(?m)^Prolog .*", f"Prolog[0] = /bin/false\nProlog[1] = {own}", config.read_text()))
    node.slurm_conf.write_text(f"{node.slurm_conf.read_text()}Prolog={own}\n")
    assert node.run("preflight", sick).returncode == 0


def test_only_lines_that_slurm_conf_lacks_are_printed(node: Node, sick: str) -> None:
    node.configured(Prolog="/etc/site/prolog", SchedulerParameters="bf_continue", PrologFlags=UNSET, Epilog=UNSET)
    ran = node.run_file(node.scripts / "preflight.sh", sick, "--lines")
    assert ran.stdout == "\nPrologFlags=Alloc\nEpilog=/usr/bin/*true\n"
    assert [each.split()[0] for each in problems(ran.stderr)] == ["Prolog", "SchedulerParameters"]


def test_the_preflight_waits_for_an_exporter_that_has_just_started(node: Node, tmp_path: Path) -> None:
    (tmp_path / "api" / "v1").mkdir(parents=True)
    (tmp_path / "metrics").write_text('gpu_exporter_collector_success{collector="slurm_jobs"} 1\n')
    sleep = tmp_path / "sleep"
    sleep.write_text(f"#!/bin/sh\nprintf 'host\\tkeep\\tgpu-7\\t-\\n' >{tmp_path}/api/v1/verdict\n")
    sleep.chmod(0o755)
    assert node.run("preflight", f"file://{tmp_path}").returncode == 1
    assert node.run("preflight", f"file://{tmp_path}", NODE_CHECK_START_SECONDS="2").returncode == 0


def test_a_gpu_has_one_name_although_a_finding_lacks_its_number(node: Node) -> None:
    gone = r"finding\t{}\t0000:B3:00.0\tcritical\t{}\tdrain\tlost\n"
    sick = r"host\tdrain\tn\t-\ngpu\t6\t0000:b3:00.0\tdrain\tsick\tx\n"
    node.program(f"printf '{sick}{gone.format('-', 'xid.79')}{gone.format('6', 'gpu.lost')}'; exit 1")
    node.numbers(nvidia5="0000:B3:00.0")
    assert node.prolog(NOBODY, "5", NODE_CHECK_GPU_NUMBERS="minor").returncode == HOLD
    assert node.told == ["update NodeName=gpu-7 State=DRAIN Reason=xid.79 GPU 6, gpu.lost GPU 6 (gpu-triage)"]


@pytest.mark.parametrize(("state", "told"), [("IDLE", 1), ("MIXED", 0)])
def test_an_idle_node_tells_that_no_job_has_a_gpu(node: Node, tmp_path: Path, state: str, told: int) -> None:
    (tmp_path / "state").write_text(f"NodeName=gpu-7 State={state} Gres=gpu:2")
    node.run("health-check", NOBODY)
    assert (tmp_path / "jobs").is_dir() == told


def test_a_node_that_an_administrator_drained_is_in_maintenance_until_it_is_resumed(node: Node, tmp_path: Path) -> None:
    node.program(f'exec {sys.executable} -m gpu_triage "$@"')
    with exporter_of_a_sick_gpu(tmp_path) as url:
        state = {"GPU_TRIAGE_STATE_DIRECTORY": str(tmp_path / "simulated")}
        node.is_draining()
        node.run("health-check", url, **state)
        wait_for(lambda: "\tslurm\tdrained: disk\n" in lines_at(url))
        assert (node.prolog(url, "1", **state).returncode, node.told) == (GO, [])
        assert "the node is in maintenance, so nothing is done about gpu.lost GPU 1" in node.syslog[-1]
        # Nor if no exporter answers and the check cannot run.
        unchecked = node.prolog(NOBODY, "1", NODE_CHECK_LOOK="--nonsense", NODE_CHECK_UNCHECKED="drain", **state)
        assert unchecked.returncode == GO
        # Nor while slurmctld does not answer.
        node.run("health-check", url, NODE_CHECK_SCONTROL="false", **state)
        assert [each.name for each in tmp_path.glob("simulated/maintenance-*")] == ["maintenance-slurm.json"]
        node.is_in("IDLE")
        node.run("health-check", url, **state)
        wait_for(lambda: "maintenance" not in lines_at(url))
        assert (node.prolog(url, "1", **state).returncode, len(node.told)) == (HOLD, 1)


@pytest.mark.parametrize(
    ("shown", "planned"),
    [
        (("IDLE+MAINTENANCE+RESERVED",), "reserved"),
        (("MIXED+DRAIN", "new riser", "root"), "drained: new riser"),
        (("MIXED+DRAIN", "[INC-7] see [bob@lab], new riser", "alice"), "drained: [INC-7] see [bob@lab], new riser"),
        (("IDLE+DRAIN", "gpu.lost GPU 1 (gpu-triage)", "root"), None),
        (("IDLE+DRAIN", "Prolog error", "slurm"), None),
        (("IDLE+DRAIN+INVALID_REG", "gres/gpu count reported lower than configured (1 < 2)", "slurm"), None),
        (("IDLE+DRAIN", "another reason of a later release", "slurm"), None),
        (("IDLE+DRAIN", "Kill task failed", "root"), None),
        (("IDLE+DRAIN", "NHC: check_fs_mount", "root"), None),
        (("DOWN", "Not responding", "slurm"), None),
        (("IDLE+RESERVED",), None),
    ],
)
def test_only_what_an_administrator_did_is_maintenance(
    node: Node, tmp_path: Path, shown: tuple[str, ...], planned: str | None
) -> None:
    node.program(f'[ "$1" = check ] || echo "$@" >> {tmp_path}/planned')
    node.is_in(*shown)
    node.run("health-check", NOBODY)
    told = tmp_path / "planned"
    asked = [line for line in told.read_text().splitlines() if " on " in line] if told.exists() else []
    wanted = f"maintenance on --source slurm --until 4h --reason {planned}"
    assert asked == ([] if planned is None else [wanted])


@pytest.mark.parametrize(
    ("named", "code"),
    [
        ("Prolog=/usr/bin/*true\n# Prolog=/usr/share/gpu-triage-exporter/slurm/prolog.sh\n", 0),
        ("HealthCheckProgram=/usr/share/gpu-triage-exporter/slurm/health-check.sh\n", 0),
        ("Epilog=/usr/share/gpu-triage-exporter/slurm/epilog.sh\n", 1),
        ("Prolog=/usr/bin/gpu-triage-or-true\n", 1),
    ],
)
def test_the_package_stays_while_slurm_would_drain_the_node_without_it(node: Node, named: str, code: int) -> None:
    node.slurm_conf.write_text(named)
    folder = {"SLURM_FOLDERS": str(node.slurm_conf.parent)}
    (node.slurm_conf.parent / "gpu-triage-or-true").unlink()
    assert node.run("in-use", NOBODY, **folder).returncode == code
    (node.slurm_conf.parent / "60-job-gpus.sh").symlink_to("/usr/share/gpu-triage-exporter/slurm/job-gpus-prolog.sh")
    assert node.run("in-use", NOBODY, **folder).returncode == 1


def test_the_preflight_reports_a_node_that_could_not_be_checked(node: Node) -> None:
    node.has_no_program()
    settings = {"NODE_CHECK_UNCHECKED": "yes", "NODE_CHECK_SCONTROL": "false", "NODE_CHECK_LOGGER": "no-such-logger"}
    result = node.run("preflight", NOBODY, **settings)
    assert result.returncode == 1
    assert [line.partition(":")[2].split("; ")[0] for line in result.stdout.splitlines()] == [
        " no-such-logger is not installed",
        " NODE_CHECK_UNCHECKED is 'yes'",
        f" no exporter answers at {NOBODY}",
        " gpu-triage is not installed",
        " 'false show config' failed",
    ]
