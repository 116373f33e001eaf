"""``gpu-triage rules``: what it writes, what it leaves alone, and its exit codes."""

import json
import re
from pathlib import Path

import pytest
import yaml
from tests.gathered import every

from gpu_triage.alerting.files import MARK, inhibitions, rule_files
from gpu_triage.cli.main import group
from gpu_triage.cli.run import run_cli

pytestmark = pytest.mark.slow


def written(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8")
        for path in folder.rglob("*")
        if path.is_file()
    }


def rules(folder: Path, *flags: str, config: str | None = None) -> int:
    """The exit code of the command, with settings in a file where there are any."""
    if config is not None:
        path = folder.parent / "rules.yaml"
        path.write_text(config, encoding="utf-8")
        flags = (*flags, "--config", str(path))
    return run_cli(group, ["rules", "--output", str(folder), *flags])


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """A folder that does not exist yet."""
    return tmp_path / "a" / "out"


def test_rules_and_dashboards_are_written(out: Path, repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out.parent.mkdir()
    assert rules(out) == 0
    files = written(out)
    assert {name for name in files if name.startswith("rules/")} == {f"rules/{name}" for name in rule_files()}
    assert files["alertmanager-inhibit.yml"] == inhibitions()
    for path in every((repository / "dashboards").glob("*.json")):
        assert files[f"dashboards/{path.name}"] == path.read_text(encoding="utf-8")
    said = capsys.readouterr()
    assert f"wrote {len(files)} files to {out}" in said.out
    assert said.err == ""


def test_files_are_readable_by_the_servers_that_load_them_and_dashboards_can_be_left_out(out: Path) -> None:
    assert rules(out, "--no-dashboards") == 0
    assert {path.stat().st_mode & 0o777 for path in out.rglob("*.yml")} == {0o644}
    assert not (out / "dashboards").exists()


def test_settings_reach_rules_and_inhibitions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    labels = "cluster_label: region\nreplica_labels: [replica]\n"
    alerts = "alerts: {GpuLost: {enabled: false}, GpuMissing: {severity: warning}}"
    assert rules(tmp_path / "out", config=labels + alerts) == 0
    files = written(tmp_path / "out")
    assert "alert: GpuLost\n" not in files["rules/alerts-findings.yml"]
    muted = yaml.safe_load(files["alertmanager-inhibit.yml"])["inhibit_rules"]
    assert {tuple(each["equal"][:3]) for each in muted} == {("region", "replica", "job")}
    assert "3 disabled" in capsys.readouterr().out


def test_dashboards_use_label_and_runbooks_of_the_settings_and_keep_the_variable_that_links_set(tmp_path: Path) -> None:
    out = tmp_path / "out"
    runbooks = "https://runbooks.example.org/gpu"
    addresses = f"grafana_base_url: 'https://grafana.example.org', runbook_base_url: '{runbooks}'"
    assert rules(out, config=f"{{cluster_label: region, {addresses}}}") == 0
    files = written(out)
    diagnosis = files["dashboards/diagnosis.json"]
    assert f"{runbooks}/playbook#1-is-it-sick" in diagnosis
    assert "http://${exporter:raw}/runbooks" not in diagnosis
    for name in ("capacity", "detail", "diagnosis", "fleet"):
        board = json.loads(files[f"dashboards/{name}.json"])
        variable = next(each for each in board["templating"]["list"] if each["label"] == "Cluster")
        assert variable["name"] == "cluster"
        assert variable["query"]["query"] == "label_values(gpu_exporter_build_info, region)"
        queries = re.findall(r'"(?:expr|query|legendFormat|titleFormat)": "(.*)"', files[f"dashboards/{name}.json"])
        assert len(queries) > 20
        assert {label for query in queries for label in re.findall(r"[$-]?\bcluster\b:?", query)} <= {
            "$cluster",
            "cluster:",
        }
    assert '"region": "Cluster"' in files["dashboards/fleet.json"]
    assert "{{ with $labels.region }}&var-cluster=" in files["rules/alerts-exporter.yml"]


def test_a_second_run_replaces_files_and_removes_old_rules(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert rules(out) == 0
    old = out / "rules" / "alerts-old.yml"
    old.write_text(f"# {MARK}\ngroups: []\n", encoding="utf-8")
    own = out / "rules" / "own.yml"
    own.write_text("groups: []\n", encoding="utf-8")
    assert rules(out) == 0
    assert not old.exists()
    assert own.exists()
    assert f"removed {old}" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["rules/alerts-findings.yml", "alertmanager-inhibit.yml", "dashboards/fleet.json"])
def test_a_foreign_file_is_kept_unless_forced(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = tmp_path / name
    own.parent.mkdir(exist_ok=True)
    own.write_text("{}", encoding="utf-8")
    assert rules(tmp_path) == 2
    assert written(tmp_path) == {name: "{}"}
    assert "--force" in capsys.readouterr().err
    assert rules(tmp_path, "--force") == 0
    assert own.read_text(encoding="utf-8") != "{}"
    own.unlink()
    own.mkdir()
    assert rules(tmp_path) == 2


def test_a_folder_that_cannot_be_written_to_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("", encoding="utf-8")
    assert rules(blocked / "out") == 1
    assert str(blocked) in capsys.readouterr().err


def test_a_full_disk_leaves_no_partial_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert rules(tmp_path) == 0
    before = written(tmp_path)

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    assert rules(tmp_path, config="cluster_label: region") == 1
    assert {name: text for name, text in written(tmp_path).items() if name != "rules.yaml"} == before


def test_wrong_settings_write_nothing_and_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert rules(out, config="jobs: x\nalerts: {GpuLots: {}}\n") == 2
    assert not out.exists()
    assert [line.partition(": error: ")[0] for line in capsys.readouterr().err.splitlines()] == ["gpu-triage"] * 2


@pytest.mark.parametrize("flags", [[], ["--config", "/nonexistent.yaml", "--output", "x"]])
def test_wrong_usage_has_exit_code_2(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(group, ["rules", *flags]) == 2
    assert "gpu-triage: error: " in capsys.readouterr().err


def test_every_dashboard_of_the_package_is_one_of_the_repository(repository: Path) -> None:
    package = [*(repository / "exporter/gpu_triage/alerting/dashboards").iterdir()]
    assert {path.name for path in package} == {path.name for path in (repository / "dashboards").glob("*.json")}
    assert all(path.is_symlink() for path in every(package))
