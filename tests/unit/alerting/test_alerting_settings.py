"""Settings of the rules, the command that writes them, and the files: what is meant is what is read again."""

import json
import re
import textwrap
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.gathered import every, for_each

from gpu_triage.alerting.build import BuiltRule, Fields, built
from gpu_triage.alerting.files import MARK, inhibitions, rule_files, to_yaml
from gpu_triage.alerting.rule_source import Group, RuleSource
from gpu_triage.alerting.rules_command import rules_command
from gpu_triage.alerting.settings import DEFAULTS, Settings, default_settings, read_settings
from gpu_triage.alerting.shipped import shipped_sources
from gpu_triage.cli.main import group
from gpu_triage.cli.run import run_cli
from gpu_triage.errors import ConfigError

pytestmark = pytest.mark.slow

SOURCES = shipped_sources()
ALERTS = {alert.key: alert for source in SOURCES for alert in source.alerts}
OFF = {key for key, alert in ALERTS.items() if not alert.enabled}
WITH_THRESHOLD = next(alert for alert in ALERTS.values() if alert.thresholds)
WITH_WAIT = next(alert for alert in ALERTS.values() if alert.hold and alert.key != "GpuExporterDown")
THRESHOLD, LIMITS = next(iter(WITH_THRESHOLD.thresholds.items()))
Read = Callable[[str], Settings]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Reads settings from a file with this text."""

    def from_text(text: str) -> Settings:
        path = tmp_path / "rules.yaml"
        path.write_text(text, encoding="utf-8")
        return read_settings(str(path), ALERTS)

    return from_text


def rule_of(key: str, settings: Settings) -> dict[str, Any]:
    """The rule of an alert; empty if it is off."""
    groups = built(RuleSource("", (Group("g", "1m", (ALERTS[key],)),)), settings)
    return dict(groups[0][1][0].fields) if groups else {}


def rules_of(settings: Settings) -> Mapping[str, dict[str, Any]]:
    """Every alert's rule by its key, without those that are off."""
    return {key: rule for key in ALERTS if (rule := rule_of(key, settings))}


def test_the_printed_configuration_is_the_default(read: Read) -> None:
    text = default_settings(SOURCES)
    assert rule_files(read(text)) == rule_files(DEFAULTS)
    printed = yaml.safe_load(text)
    assert set(printed["alerts"]) == set(ALERTS)
    for key, alert in ALERTS.items():
        values = {name: each.value for name, each in alert.thresholds.items()}
        assert printed["alerts"][key].get("thresholds", {}) == values


@pytest.mark.parametrize("text", ["", "# nothing\n", "{}", "alerts:\n", "labels: {}\nalerts: {GpuLost: }\n"])
def test_nothing_set_is_the_default(text: str, read: Read) -> None:
    assert rule_files(read(text)) == rule_files(DEFAULTS)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "alerts: {GpuLost: {enabled: false}, GpuPcieWidthDowntrained.warning: {enabled: false}}",
            ALERTS.keys() - OFF - {"GpuLost", "GpuPcieWidthDowntrained.warning"},
        ),
        ("alerts: {GpuMemoryNearFull: {enabled: true}}", ALERTS.keys() - OFF | {"GpuMemoryNearFull"}),
    ],
)
def test_an_alert_can_be_turned_off_and_on_alone(text: str, expected: set[str], read: Read) -> None:
    assert {"GpuMemoryNearFull", "GpuPersistenceModeOff"} == OFF
    assert rules_of(read(text)).keys() == expected


def test_an_alert_takes_severity_wait_labels_and_annotations(read: Read) -> None:
    text = (
        f"{{labels: {{team: ml, tier: '1'}}, annotations: {{wiki: x}}, alerts: {{{WITH_WAIT.key}: {{for: 0s}}, "
        "GpuExporterDown: {for: 1h30m, severity: info, labels: {team: hosts}}}}"
    )
    rules = rules_of(read(text))
    down, missing = rules["GpuExporterDown"], rules[WITH_WAIT.key]
    assert (down["for"], "for" in missing) == ("1h30m", False)
    assert down["labels"] == {"severity": "info", "action": "fix_host", "team": "hosts", "tier": "1"}
    assert missing["labels"].items() >= {"team": "ml", "tier": "1"}.items()
    assert {rule["annotations"]["wiki"] for rule in rules.values()} == {"x"}


@for_each(("key", "name"), [(alert.key, name) for alert in ALERTS.values() for name in alert.thresholds])
def test_a_threshold_at_either_end_of_its_range_stands_in_the_expression(key: str, name: str, read: Read) -> None:
    limits = ALERTS[key].thresholds[name]
    for value in every({limits.low, limits.high} - {limits.value}):
        chosen = read(f"alerts: {{{key}: {{thresholds: {{{name}: {value}}}}}}}")
        assert rule_of(key, chosen)["expr"] != rule_of(key, DEFAULTS)["expr"]


def test_targets_are_told_apart_by_the_labels_named_and_those_that_route_stay(read: Read) -> None:
    text = "\n".join(rule_files(read("{cluster_label: region, replica_labels: [replica, zone]}")).values())
    assert "on (region, replica, zone, job, instance" in text
    assert "by (region, replica, zone, job, instance, workload, name)" in text
    assert not re.search(r"\(cluster\b(?!:)", text)
    assert "$labels.region" in text
    assert "$labels.cluster" not in text
    text = "\n".join(rule_files(read("routing_labels: [zone, rack]")).values())
    assert "max by (cluster, job, instance, drill, workload, zone, rack, uuid, code)" in text


def test_the_job_is_quoted_for_promql(read: Read) -> None:
    text = "\n".join(rule_files(read(r"""job: 'gpu\.(a|b)"x'""")).values())
    assert r'job=~"gpu\\.(a|b)\"x"' in text
    assert ".*gpu-triage.*" not in text


def test_runbooks_and_dashboards_are_linked_below_the_addresses_given(read: Read) -> None:
    rules = rules_of(read("{runbook_base_url: 'https://wiki/r/', grafana_base_url: 'https://g/'}"))
    for key, rule in every(rules.items()):
        links = rule["annotations"]
        assert links["runbook_url"] == f"https://wiki/r/{ALERTS[key].name}"
        assert links["dashboard_url"].startswith(f"https://g/d/{links['dashboard_uid']}?var-job=")
        assert ("var-instance=" in links["dashboard_url"]) != ALERTS[key].fleet
        assert "{{ with $labels.cluster }}&var-cluster={{ . | urlquery }}{{ end }}" in links["dashboard_url"]


def test_by_default_an_exporter_serves_the_runbook_and_another_one_if_that_is_down(read: Read) -> None:
    rules = rules_of(read("{runbook_base_url: 'https://{{ $labels.instance }}/gpu/runbooks', cluster_label: region}"))
    links = {key: rule["annotations"]["runbook_url"] for key, rule in rules.items()}
    assert links["GpuLost"] == "https://{{ $labels.instance }}/gpu/runbooks/GpuLost"
    fleet = next(key for key, alert in ALERTS.items() if alert.fleet)
    for key, matchers in ((fleet, "{region=%q,job=%q}"), ("GpuExporterDown", "{region=%q,job=%q,instance!=%q}")):
        assert links[key].startswith(f"{{{{ with printf `topk(1, gpu_exporter_build_info{matchers})` $labels.region ")
        assert (
            links[key].count(f"}}}}https://{{{{ . | first | label `instance` }}}}/gpu/runbooks/{key}{{{{ else }}}}")
            == 2
        )
        assert links[key].endswith(f"gpu-triage explain {key}{{{{ end }}}}{{{{ end }}}}")
    assert "dashboard_url" not in rules["GpuLost"]["annotations"]


def test_without_an_address_every_alert_has_the_command_that_prints_its_runbook(read: Read) -> None:
    command = "kubectl exec ds/x -- gpu-triage explain"
    for text, printer in (
        ("runbook_base_url: ''", "gpu-triage explain"),
        (f"{{runbook_base_url: '', runbook_command: {command}}}", command),
    ):
        for key, rule in every(rules_of(read(text)).items()):
            assert rule["annotations"]["runbook_url"] == f"{printer} {ALERTS[key].name}"


WRONG = {
    "runbook_command": [f"runbook_command: {'x' * 257}"],
    **yaml.safe_load(Path(__file__).with_name("wrong_settings.yml").read_bytes()),
    f"alerts.{WITH_THRESHOLD.key}.thresholds.{THRESHOLD}": [
        f"alerts: {{{WITH_THRESHOLD.key}: {{thresholds: {{{THRESHOLD}: '{value}'}}}}}}"
        for value in (LIMITS.low - 1, LIMITS.high * 2 + 1, "nan", "10%")
    ],
}
"""The key that is wrong, and what is wrong about it."""


@for_each(("key", "text"), [(key, text) for key, texts in WRONG.items() for text in texts])
def test_a_wrong_setting_is_named(key: str, text: str, read: Read) -> None:
    with pytest.raises(ConfigError) as refused:
        read(text)
    (problem,) = refused.value.problems
    assert re.search(rf"rules\.yaml: line \d+: {re.escape(key)}: ", problem)


def test_what_the_exporter_judges_leads_to_its_option(read: Read) -> None:
    with pytest.raises(ConfigError, match=r"judge\.thermal\.hw"):
        read("alerts: {GpuHwThermalThrottling: {for: 15m}}")


VALUES = st.recursive(
    st.text() | st.none() | st.integers(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.sampled_from(["GpuLost", "for", "labels"]), inner),
    max_leaves=8,
)


@settings(deadline=None, max_examples=25)
@given(st.dictionaries(st.sampled_from(["job", "labels", "alerts", "x", "cluster_label"]), VALUES))
def test_any_document_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, document: dict[str, Any]) -> None:
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    with suppress(ConfigError):
        assert rule_files(read_settings(str(path), ALERTS))


def test_the_settings_that_documents_and_help_show_can_be_used(read: Read, repository: Path) -> None:
    text = (repository / "rules/README.md").read_text(encoding="utf-8")
    shown = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)]
    examples = re.findall(r"\x08\n(.*?)\n\n", rules_command.help or "", re.DOTALL)
    shown.append(yaml.safe_load(textwrap.dedent(examples[-1])))
    assert len(shown) == 2
    for each in shown:
        assert rule_files(read(yaml.safe_dump(each))) != rule_files(DEFAULTS)


TEXT = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Zl", "Zp", "Cn", "Co")), max_size=200)
PROSE = st.lists(
    st.sampled_from(
        ["GPU", "{{ $labels.gpu }}", "of", "{{ if eq $value 1.0 }}a b{{ else }}c{{ end }}", "  ", "#", ": ", "'"]
    ),
    min_size=1,
    max_size=60,
).map(" ".join)


def read_again(fields: Fields) -> object:
    text = to_yaml("About.", ((Group("g", "1m"), (BuiltRule("", fields),)),))
    return yaml.safe_load(text)["groups"][0]["rules"][0]


def test_what_is_written_reads_as_what_was_built() -> None:
    for source in every(shipped_sources()):
        groups = built(source, DEFAULTS)
        read = yaml.safe_load(to_yaml(source.about, groups))["groups"]
        assert [group["rules"] for group in read] == [[rule.fields for rule in rules] for _, rules in groups]


@settings(max_examples=30)
@given(TEXT | PROSE, TEXT)
@example("", "null")
def test_any_text_reads_as_itself(text: str, label: str) -> None:
    fields: Fields = {"alert": "A", "expr": "up", "labels": {"a": label}, "annotations": {"description": text}}
    assert read_again(fields) == fields


@pytest.mark.parametrize("expr", ["up", "up == 0\n", "a\nor\nb\n", "a\nor\n  b", "'a'", "{a='b'} > 1", "vector(1) # x"])
def test_any_expression_reads_as_itself(expr: str) -> None:
    assert read_again({"record": "a:b:c", "expr": expr}) == {"record": "a:b:c", "expr": expr}


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
    assert files["alertmanager-inhibit.yml"] == inhibitions()
    shipped = [*(repository / "rules").rglob("*.yml"), *(repository / "dashboards").glob("*.json")]
    assert len(files) == len(shipped) + 1
    for path in every(shipped):
        assert files[path.relative_to(repository).as_posix()] == path.read_text(encoding="utf-8")
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
