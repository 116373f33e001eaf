"""A fleet whose hosts are scenarios: what each scrapes, what the rules make of it, and when its alerts fire.

Every scenario is recorded on a virtual clock and goes through the rules in promtool's virtual time, as the rules' own
tests do it. All begin at the same instant, each is one instance, and its recorded series and ALERTS stand beside its
raw series as in the database of a Prometheus that watched them.
"""

import math
from array import array
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tests.jobs.histories import with_series
from tests.promql.promtool import Run, ask
from tests.recordings import REPOSITORY, recorded, seconds_of, shortened, thinned
from tests.rules.cases import FOLDER, load_any
from tests.rules.examine import input_series, mentioned
from tests.rules.rulefile import read_rules, rule_files
from tests.rules.schedulers import exposed

from gpu_triage.options.config import Setting
from gpu_triage_simulator import load_scenario
from gpu_triage_simulator.history import History, SeriesKey
from gpu_triage_simulator.scenario import Expectation, Scenario
from gpu_triage_simulator.scenario_file import read_scenario
from gpu_triage_simulator.schema import read_toml

STEP_SECONDS = 60.0
SHORTEST_SECONDS = 75 * 60.0
"""Long enough for the rules' hours, and through them for their days."""
LONGEST_SECONDS = 130 * 60.0

SHIPPED = (
    *("a100-power-capped", "dual-a10", "h100-8-bad-night", "h100-mig", "idle-downshift", "lost-before-start"),
    *("no-driver", "repeat-offender", "rtx-4070-ti-super", "sick-host", "v100-old-driver"),
)
"""All shipped scenarios but h100-8, which is the bad night without the night."""
MAINTAINED = "maintained"
"""The case with faults of which nobody is notified, and which boards show."""
CASES = (
    *("path", "path-network", "path-uplink", "process-blocked", "sick-fabric", "sick-fabric-service", "sick-memory"),
    *("sick-repair", "sick-xid", "sick-xid-unit", "starved", "software-barrier", "allocated", "exporter"),
    *("accepted", MAINTAINED),
)
"""Cases of the rules' tests, for what no shipped scenario shows."""
DRIFT = "drift"
"""The scenario beside this file."""
GRACE = REPOSITORY / "tests" / "golden" / "gb200-fabric.toml"
"""What only Grace and Blackwell have: a module with its own power, NVLink 5 and NVLink-C2C, banks of spare memory."""
WITH_BASELINE = "path"
"""The case whose exporter knows what its host was like at the start."""


BY_ITS_CLOCK = {"ALERTS_FOR_STATE", "instance_code:gpu_exporter_target:down_since"}
"""Times by promtool's clock, which begins at 0."""
RECORDED = 'label_replace({__name__=~".+:.+|ALERTS_FOR_STATE"}, "recorded", "$1", "__name__", "(.+)")'
FIRING = 'ALERTS{alertstate="firing"}'
JOB_STEPS = "gpu_job_steps_total"


@dataclass(frozen=True, slots=True)
class Fleet:
    """The histories of all hosts as one."""

    history: History  # every series, raw, recorded and ALERTS
    scenarios: Mapping[str, Scenario]  # by instance


def scenarios() -> dict[str, Scenario]:
    return {DRIFT: _drift(), GRACE.stem: load_scenario(GRACE)} | {name: _loaded(name) for name in (*SHIPPED, *CASES)}


def expected_moments() -> list[tuple[str, Expectation]]:
    return [
        (name, each)
        for name, scenario in scenarios().items()
        for each in scenario.expectations
        if each.at <= LONGEST_SECONDS and name not in {WITH_BASELINE, MAINTAINED}
    ]


def record_fleet(promtool: Path, directory: Path, hosts: Mapping[str, Scenario] | None = None) -> Fleet:
    """What a Prometheus would hold that scraped these hosts, by instance, and ran the shipped rules; all, if None."""
    hosts = scenarios() if hosts is None else hosts
    return Fleet(joined([_watched(host, promtool, directory) for host in hosts.values()]), hosts)


def _drift() -> Scenario:
    path = Path(__file__).with_name(f"{DRIFT}.toml")
    return read_scenario({**read_toml(FOLDER / "base" / "three-a10.toml"), **read_toml(path), "name": DRIFT}, path.name)


def _loaded(name: str) -> Scenario:
    scenario = load_any(name)
    if name == WITH_BASELINE:
        recorded_at_start = {"baseline.from-host": Setting(("true",), "the dashboards' tests")}
        scenario = replace(scenario, exporter_options={**scenario.exporter_options, **recorded_at_start})
    return scenario


def _watched(scenario: Scenario, promtool: Path, directory: Path) -> History:
    length = max(SHORTEST_SECONDS, seconds_of(scenario))
    return with_rules(scraped(scenario, min(length, LONGEST_SECONDS)), promtool, directory)


def scraped(scenario: Scenario, seconds: float) -> History:
    """What a Prometheus scrapes of a host, of a job on it, and of kube-state-metrics."""
    # The rules' tests read all of it: otherwise, whoever came second would record it again.
    history = shortened(recorded(scenario, seconds=max(seconds, seconds_of(scenario))), seconds)
    return _with_pod_labels(_with_job(thinned(history, STEP_SECONDS)))


def with_rules(
    history: History,
    promtool: Path,
    directory: Path,
    rules: tuple[Path, ...] = rule_files(),
    names: Container[str] | None = None,
) -> History:
    """The history with what rules make of it, or of that these `names`: recorded series, and the alerts that fire."""
    times = [step * STEP_SECONDS for step in range(history.steps)]
    run = Run(
        rules,
        tuple(dict.fromkeys(rule.group for rule in read_rules(rules))),
        STEP_SECONDS,
        input_series(history, mentioned(rules)),
        tuple((question, at) for at in times for question in (RECORDED, FIRING)),
    )
    answers = ask(promtool, run, directory)
    made: dict[SeriesKey, array[float]] = {}
    for (_, at), samples in answers.samples.items():
        for sample in samples:
            labels = dict(sample.labels)
            name = labels.pop("recorded", "ALERTS")
            if names is not None and name not in names:
                continue
            column = made.setdefault((name, tuple(sorted(labels.items()))), array("d", [math.nan]) * history.steps)
            column[round(at / STEP_SECONDS)] = sample.value + (history.start_seconds if name in BY_ITS_CLOCK else 0)
    return joined([history, with_series(history, made)])


def _with_job(history: History) -> History:
    """The history with a job that counts two steps a second while its host's first GPU is fully busy."""
    busy = next((column for (name, _), column in history.series.items() if name == "gpu_busy_seconds_total"), None)
    if busy is None:
        return history
    labels = next(labels for name, labels in history.series if name == "up")
    key = (JOB_STEPS, tuple(sorted({**dict(labels), "job_name": "pretraining", "owner": "alice"}.items())))
    made = {key: array("d", [2 * value for value in busy])}
    return joined([history, with_series(history, made)])


def _with_pod_labels(history: History) -> History:
    """The history with what schedulers say: of the pods that have GPUs, that all are of one team, and what waits."""
    made: dict[SeriesKey, array[float]] = {}
    for name, labels in history.series:
        pod = dict(labels).get("workload_pod") if name == "gpu_allocated" else None
        if pod:
            of_pod = {"namespace": dict(labels)["workload_namespace"], "pod": pod, "label_team": "vision"}
            target = {"job": "kube-state-metrics", "instance": "kube-state-metrics:8080"}
            key = ("kube_pod_labels", tuple(sorted({**of_pod, **target}.items())))
            made[key] = array("d", [1.0]) * history.steps
            made |= {each: array("d", [value]) * history.steps for each, value in exposed().items()}
    return joined([history, with_series(history, made)]) if made else history


def joined(histories: Sequence[History]) -> History:
    """Histories of one start and step as one.

    What the rules make of all hosts together, such as ``owner:gpu_job:pace``, is that of the longest history.
    """
    steps = max(history.steps for history in histories)
    series: dict[SeriesKey, Sequence[float]] = {}
    for history in sorted(histories, key=lambda history: -history.steps):
        for key, column in history.series.items():
            series.setdefault(key, array("d", column) + array("d", [math.nan]) * (steps - len(column)))
    return with_series(replace(histories[0], steps=steps), series)
