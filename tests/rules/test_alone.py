"""Alerts about what no host can see of itself, on series written by hand: at their thresholds, and just below."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from tests.conftest import RequiresTool
from tests.promql.promtool import Run, ask
from tests.rules.handwritten import Played, Series, gpu, host, merged, over, play
from tests.rules.rulefile import alert_files, read_rules, rule_files

from gpu_triage.cli.fleet.fleet_view import Selection, queries

END: Final = 150
NAN: Final = math.nan
HOSTS: Final = 20
NEVER: Final = range(0)
HOUR: Final = 60
BEHIND, AHEAD = -70 * 60.0, 2 * 3600.0


class Case(NamedTuple):
    """What is scraped of a cluster, when an alert fires, and what its summary says then."""

    alert: str
    fires: Sequence[int]
    series: Series
    summary: str = ""


def up(*spans: tuple[float, int], instance: str = "a", **labels: str) -> Series:
    """Whether a target could be scraped; what our exporter says of itself goes with it."""
    values = over(*spans)
    said = [1.0 if value == 1 else NAN for value in values]
    return merged(host("up", values, instance, **labels), host("gpu_exporter_build_info", said, instance, **labels))


def driver(instance: str, *versions: tuple[str, int], job: str = "gpu-triage", model: str = "H100") -> Series:
    begins = [0, *(end for _, end in versions)]
    each = (
        host(
            "gpu_driver_info", over((NAN, begin), (1, end - begin), (NAN, 1)), instance, job=job, driver_version=version
        )
        for begin, (version, end) in zip(begins, versions, strict=False)
    )
    return merged(*each, gpu("gpu_info", over((1, END)), f"GPU-{instance}", instance=instance, job=job, name=model))


def web_config(*spans: tuple[float, int]) -> Series:
    """Whether the web configuration of a host was taken."""
    return host("gpu_exporter_web_config_reload_success", over(*spans))


def judge_settings(*spans: tuple[float, int]) -> Series:
    return host("gpu_exporter_judge_settings_reload_success", over(*spans))


def clock(off: Callable[[int], float], minutes: Sequence[int] = range(END)) -> Series:
    """What time the exporter says it is at the scrapes that succeed, by how far its clock is off."""
    values = [minute * 60.0 + off(minute) if minute in minutes else NAN for minute in range(END)]
    return host("gpu_exporter_time_seconds", values)


def published(seconds_ago: Callable[[int], float]) -> Series:
    times = [minute * 60.0 - seconds_ago(minute) for minute in range(END)]
    return merged(clock(lambda _minute: 0.0), host("gpu_exporter_last_publication_timestamp_seconds", times))


def fleet(fallen: int) -> Series:
    """A job of twenty hosts, of which some fall at minute 10."""
    return merged(
        *(up((1, 10), (0 if number < fallen else 1, END - 10), instance=f"gpu-{number}") for number in range(HOSTS))
    )


def heard(kmsg: float, nvml: float, *others: Series) -> Series:
    sources = (("kmsg", kmsg), ("nvml", nvml))
    return merged(*(host("gpu_exporter_xid_source_up", over((up, END)), source=name) for name, up in sources), *others)


def judge(*spans: tuple[float, int], instance: str = "a") -> Series:
    """An exporter whose judge succeeds or fails."""
    success = over(*spans)
    return merged(
        up((1, len(success)), instance=instance),
        host("gpu_exporter_collector_success", success, instance, collector="judge"),
    )


def overdue(since: int, collector: str) -> Series:
    return host(
        "gpu_exporter_collector_stale_seconds",
        [60.0 * (minute - since) if minute > since else NAN for minute in range(END)],
        collector=collector,
    )


def started(*spans: tuple[float, int], instance: str = "a") -> Series:
    """The same with the time of its last start, which an exporter says of itself."""
    values, starts = over(*spans), 0.0
    at = [starts := minute * 60.0 if minute and not values[minute - 1] else starts for minute in range(len(values))]
    said = [start if value else NAN for start, value in zip(at, values, strict=True)]
    return merged(up(*spans, instance=instance), host("process_start_time_seconds", said, instance))


def planned(until: int, *spans: tuple[float, int], instance: str = "a") -> Series:
    """What an exporter says of a maintenance that ends at a minute, while it is read (1), and is not (0)."""
    read = over(*spans)
    ends = [until * 60.0 if value == 1 else NAN for value in read]
    said = host(
        "gpu_exporter_collector_success",
        [1.0 if value == 1 else value for value in read],
        instance,
        collector="maintenance",
    )
    return merged(host("gpu_host_maintenance_until_timestamp_seconds", ends, instance), said)


def cordoned(*spans: tuple[float, int]) -> Series:
    """What kube-state-metrics says of node a, by two replicas."""
    said = (
        host("kube_node_spec_unschedulable", over(*spans), instance, job="kube-state-metrics", node="a")
        for instance in ("10.0.0.7:8080", "10.0.0.8:8080")
    )
    return merged(*said)


def again(metric: str, fault: float = 0, sound: float = 1, **labels: str) -> Callable[[int, int], Series]:
    """A fault that comes and goes for as long as is played, by its minutes and those without it."""
    return lambda bad, good: host(metric, over((fault, bad), (sound, good)) * (END // (bad + good)), **labels)


RELEASED = host("gpu_exporter_gpus_released", over((1, END)))
CASES: Final[Mapping[str, Case]] = {
    "two drivers": Case(
        "GpuDriverVersionDrift",
        range(HOUR, END),
        merged(driver("a", ("570", END)), driver("b", ("570", END)), driver("c", ("580", END))),
        "gpu-triage: 2 driver versions on H100",
    ),
    "rolled out within the hour": Case(
        "GpuDriverVersionDrift", NEVER, merged(driver("a", ("580", END)), driver("b", ("570", 59), ("580", END)))
    ),
    "drivers of two jobs": Case(
        "GpuDriverVersionDrift", NEVER, merged(driver("a", ("570", END)), driver("b", ("580", END), job="lab"))
    ),
    "drivers of two models": Case(
        "GpuDriverVersionDrift", NEVER, merged(driver("a", ("570", END)), driver("b", ("580", END), model="V100"))
    ),
    "web configuration of no use for ten minutes": Case(
        "GpuExporterWebConfigReloadFailed", range(15, 20), web_config((1, 10), (0, 10), (1, 10))
    ),
    "certificate and key four minutes apart": Case(
        "GpuExporterWebConfigReloadFailed", NEVER, web_config((1, 10), (0, 4), (1, 10))
    ),
    "web configuration of an exporter that is gone": Case(
        "GpuExporterWebConfigReloadFailed", NEVER, web_config((1, 10), (0, 3), (NAN, 20))
    ),
    "settings of the judge that are invalid for ten minutes": Case(
        "GpuExporterJudgeReloadFailed", range(15, 20), judge_settings((1, 10), (0, 10), (1, 10))
    ),
    "settings of the judge that are mended within four minutes": Case(
        "GpuExporterJudgeReloadFailed", NEVER, judge_settings((1, 10), (0, 4), (1, 10))
    ),
    "no longer published": Case(
        "GpuExporterStale", range(17, END), published(lambda minute: max(0.5, (minute - 10) * 60.0))
    ),
    "published late": Case("GpuExporterStale", NEVER, published(lambda _minute: 60.0)),
    "a collector that is overdue": Case("GpuExporterStale", range(16, END), overdue(10, "power")),
    "clock behind": Case(
        "GpuHostClockWrong",
        range(15, END),
        clock(lambda minute: BEHIND if minute >= 10 else 0.0),
        "a: the clock is 1h 10m behind, since 00:10 UTC",
    ),
    "clock ahead": Case(
        "GpuHostClockWrong",
        range(15, END),
        clock(lambda minute: AHEAD if minute >= 10 else 0.0),
        "a: the clock is 2h ahead, since 00:10 UTC",
    ),
    "clock ahead of a minute": Case("GpuHostClockWrong", range(5, END), clock(lambda _minute: 61.0)),
    "clock nearly ahead": Case("GpuHostClockWrong", NEVER, clock(lambda _minute: 59.0)),
    "clock nearly behind": Case("GpuHostClockWrong", NEVER, clock(lambda _minute: -59.0)),
    # Ten seconds into the scrape is the most that its deadline allows.
    "slow scrapes": Case("GpuHostClockWrong", NEVER, clock(lambda minute: 10.0 if minute % 2 else 0.0)),
    "missed scrapes": Case("GpuHostClockWrong", NEVER, clock(lambda _minute: 0.5, range(0, END, 5))),
    "reboot of 12 minutes": Case("GpuExporterDown", NEVER, up((1, 10), (0, 12), (1, END - 22))),
    "down": Case("GpuExporterDown", range(23, END), up((1, 10), (0, END - 10))),
    # Kubernetes waits up to five minutes between starts; the exporter is scraped once in between.
    "crashes after each start": Case(
        "GpuExporterDown", range(32, END), up((1, 10), *((0, 2), (1, 1), (0, 3)) * (END // 6))
    ),
    "up for most of the time": Case("GpuExporterDown", range(61, END), started(*((1, 8), (0, 2)) * (END // 10))),
    "crashes every half hour": Case("GpuExporterDown", NEVER, started(*((1, 29), (0, 1)) * (END // 30))),
    "rolled out twice": Case("GpuExporterDown", NEVER, started((1, 10), (0, 2), (1, 20), (0, 2), (1, END - 34))),
    "rebooted twice, and rolled out": Case(
        "GpuExporterDown", NEVER, started((1, 10), (0, 9), (1, 3), (0, 9), (1, 14), (0, 2), (1, END - 47))
    ),
    "a quarter of a fleet that restarts again and again": Case(
        "GpuExportersDown",
        range(51, END),
        merged(
            *(
                started(*(((1, 6), (0, 4)) if number < 5 else ((1, 6), (1, 4))) * (END // 10), instance=f"gpu-{number}")
                for number in range(HOSTS)
            )
        ),
    ),
    "down for hours in a job of any name": Case(
        "GpuExporterDown", range(23, END), up((1, 10), (0, END - 10), job="nodes")
    ),
    "down and not ours": Case("GpuExporterDown", NEVER, host("up", over((0, END)), job="nodes")),
    "down in maintenance, and still at its end": Case(
        "GpuExporterDown",
        range(73, END),
        merged(up((1, 10), (0, END - 10)), planned(60, (1, 10), (NAN, END - 10))),
        "a: GPU exporter down, since 01:00 UTC; its maintenance ended at 01:00 UTC",
    ),
    "down in maintenance, of which the file broke before": Case(
        "GpuExporterDown",
        range(73, END),
        merged(up((1, 10), (0, END - 10)), planned(60, (1, 8), (0, 2), (NAN, END - 10))),
    ),
    "down on a cordoned node": Case(
        "GpuExporterDown", NEVER, merged(up((1, 10), (0, END - 10)), cordoned((0, 9), (1, END - 9)))
    ),
    "down on a node that is uncordoned": Case(
        "GpuExporterDown", range(63, END), merged(up((1, 10), (0, END - 10)), cordoned((0, 9), (1, 41), (0, END - 50)))
    ),
    "cordoned because it pages": Case(
        "GpuExporterDown", range(23, END), merged(up((1, 10), (0, END - 10)), cordoned((0, 30), (1, END - 30)))
    ),
    "cordoned again because it pages": Case(
        "GpuExporterDown",
        range(43, END),
        merged(up((1, 30), (0, END - 30)), cordoned((0, 9), (1, 10), (0, 27), (1, END - 46))),
    ),
    "cordoned because it pages, and down again after a repair that failed": Case(
        "GpuExporterDown",
        (*range(23, 50), *range(93, END)),
        merged(up((1, 10), (0, 25), (1, 45), (0, END - 80)), cordoned((0, 30), (1, END - 30))),
    ),
    "cordoned while it is about to page": Case(
        "GpuExporterDown", range(23, END), merged(up((1, 10), (0, END - 10)), cordoned((0, 15), (1, END - 15)))
    ),
    "down on a cordoned node, of which nobody tells for minutes": Case(
        "GpuExporterDown",
        range(118, END),
        merged(up((1, 10), (0, END - 10)), cordoned((0, 9), (1, 16), (NAN, 10), (1, 55), (NAN, END - 90))),
    ),
    "in maintenance for years by a wrong clock": Case(
        "GpuExporterDown", range(23, END), merged(up((1, 10), (0, END - 10)), planned(10**6, (1, 10), (NAN, END - 10)))
    ),
    "in maintenance, and then without a state directory": Case(
        "GpuExporterXidDeaf", range(30, END), merged(heard(0, 0), up((1, END)), planned(END, (1, 10), (NAN, END - 10)))
    ),
    "started and down again and again in maintenance": Case(
        "GpuExporterDown", NEVER, merged(started(*((1, 3), (0, 4)) * 8, (1, END - 56)), planned(60, (1, END)))
    ),
    "a quarter of a fleet, one of them in maintenance": Case(
        "GpuExportersDown", NEVER, merged(fleet(5), planned(END, (1, 10), (NAN, END - 10), instance="gpu-3"))
    ),
    "two drivers, one of them in maintenance": Case(
        "GpuDriverVersionDrift",
        range(130, END),
        merged(driver("a", ("570", END)), driver("b", ("580", END)), planned(70, (1, END), instance="b")),
    ),
    "a judge that fails in maintenance": Case(
        "GpuExporterJudgeFailing", range(61, END), merged(judge((0, END)), planned(60, (1, END)))
    ),
    "a quarter of a fleet": Case("GpuExportersDown", range(15, END), fleet(5)),
    "a quarter of a fleet, host by host": Case("GpuExporterDown", range(23, END), fleet(5)),
    "less than a quarter of a fleet": Case("GpuExportersDown", NEVER, fleet(4)),
    "one of two hosts": Case("GpuExportersDown", NEVER, merged(up((0, END)), up((1, END), instance="b"))),
    "deaf": Case("GpuExporterXidDeaf", range(15, END), heard(0, 0)),
    "deaf but for the driver": Case("GpuExporterXidDeaf", NEVER, heard(0, 1)),
    "deaf to the driver alone": Case("GpuExporterXidDeaf", NEVER, heard(1, 0)),
    "deaf without a driver": Case("GpuExporterXidDeaf", NEVER, heard(0, 0, host("gpu_driver_up", over((0, END))))),
    "deaf while released": Case("GpuExporterXidDeaf", NEVER, heard(0, 0, RELEASED)),
    "judges that fail": Case(
        "GpuExporterJudgeFailing",
        range(11, END),
        merged(
            *(judge((1, 10), (0, END - 10), instance=f"gpu-{number}") for number in range(5)),
            *(judge((1, END), instance=f"gpu-{number}") for number in range(5, HOSTS)),
        ),
        "gpu-triage: on 5 hosts the exporter cannot judge, since 00:10 UTC",
    ),
    "a judge that hangs": Case(
        "GpuExporterJudgeFailing", range(21, END), merged(judge((1, END)), overdue(19, "judge"))
    ),
}
PERIODIC: Final[Mapping[str, Callable[[int, int], Series]]] = {
    "GpuExporterJudgeFailing": again("gpu_exporter_collector_success", collector="judge"),
    "GpuExporterCollectorFailing": again("gpu_exporter_collector_success", collector="nfs"),
    "GpuExporterStale": again("gpu_exporter_collector_stale_seconds", 60, NAN, collector="nfs"),
    "GpuExporterXidDeaf": again("gpu_exporter_xid_source_up", source="kmsg"),
    "GpuExporterDown": again("up"),
    "GpuStragglerAcrossHosts": again("instance_gpu_owner:gpu_clock:straggling", 0.8, NAN, uuid="GPU-1", owner="4711/"),
    "GpuStragglerAcrossHosts of ranks": again("instance_rank:gpu_job_steps:low", 0.8, NAN, owner="4711", rank="3"),
}
"""Each fault as it comes and goes; what is recorded of jobs stands for their GPUs."""
ROUNDS: Final = {"0.8": (8, 2), "0.5": (5, 5), "0.4": (4, 6), "0.1": (1, 9)}
"""Minutes with the fault and without it, by its share. None of them is as long as the rule waits."""
SHOWN_AT: Final = END - 30


@pytest.fixture(scope="module")
def played(requires_tool: RequiresTool, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Played]:
    """What the rules say of all cases together: a cluster tells nothing of another one."""
    series = {name: case.series for name, case in CASES.items()}
    for alert, fault in PERIODIC.items():
        series |= {f"{alert} at {share}": fault(*minutes) for share, minutes in ROUNDS.items()}
    shown = {case.alert: SHOWN_AT for case in CASES.values() if case.summary}
    directory = tmp_path_factory.mktemp("alone")
    rules = tuple(path for path in alert_files() if path.name != "alerts-findings.yml")
    return play(requires_tool("promtool"), directory, rules, series, minutes=END, shown=shown)


@pytest.mark.parametrize("name", CASES)
def test_an_alert_about_what_no_host_can_see(name: str, played: Mapping[str, Played]) -> None:
    case = CASES[name]
    assert played[name].minutes(case.alert) == list(case.fires)
    if case.summary:
        (alert,) = played[name].shown[case.alert]
        assert alert.annotations["summary"] == case.summary


@pytest.mark.parametrize("share", ROUNDS)
@pytest.mark.parametrize("alert", PERIODIC)
def test_a_fault_that_comes_and_goes_is_told_like_one_that_stays(
    alert: str, share: str, played: Mapping[str, Played]
) -> None:
    fires = played[f"{alert} at {share}"].minutes(alert.partition(" ")[0])
    assert [minute for minute in fires if minute >= HOUR] == ([] if share == "0.1" else [*range(HOUR, END)])


@pytest.mark.parametrize(
    ("series", "first"),
    [(up((1, 20), (NAN, 40)), range(35, 42)), (up((1, 10), (0, 50)), NEVER)],
    ids=["all targets vanish from service discovery", "all exporters are down, which another alert tells"],
)
def test_no_exporter_at_all_is_told_of(
    series: Series, first: range, requires_tool: RequiresTool, tmp_path: Path
) -> None:
    question = 'ALERTS{alertname="GpuExporterAbsent", alertstate="firing"}'
    rules = tuple(path for path in alert_files() if path.name == "alerts-exporter.yml")
    run = Run(rules, (), 60, series, tuple((question, minute * 60.0) for minute in range(60)))
    found = ask(requires_tool("promtool"), run, tmp_path).samples
    fires = [round(at / 60) for (_, at), samples in found.items() if samples]
    assert min(fires, default=None) in (first or {None})


@pytest.mark.parametrize("alert", ["GpuExporterStale", "GpuHostClockWrong"])
def test_the_time_since_the_last_scrape_is_no_delay(alert: str, requires_tool: RequiresTool, tmp_path: Path) -> None:
    """A server evaluates its rules at any moment between two scrapes, and for minutes after the last that succeeded."""
    (rule,) = [rule for rule in read_rules(rule_files()) if rule.name == alert]
    series = {key: values[:21] for key, values in published(lambda _minute: 0.5).items()}
    questions = tuple((rule.expr, at) for at in (19 * 60.0 + 59, 24 * 60.0 + 59))
    answers = ask(requires_tool("promtool"), Run((), (), 60, series, questions), tmp_path).samples
    assert set(answers.values()) == {()}


@pytest.mark.parametrize("off", [BEHIND, AHEAD, 20 * 365 * 24 * 3600.0], ids=["behind", "ahead", "decades ahead"])
def test_the_fleet_command_tells_since_when_by_the_servers_clock(
    requires_tool: RequiresTool, tmp_path: Path, off: float
) -> None:
    finding = {"code": "gpu.lost", "severity": "critical", "action": "drain"}

    def since_minute_5(off: float) -> Series:
        return gpu("gpu_finding_since_timestamp_seconds", over((NAN, 5), (5 * 60.0 + off, END)), **finding)

    for series in (merged(clock(lambda _minute: off), since_minute_5(off)), since_minute_5(0)):
        question = (queries(Selection())["findings"], 20 * 60.0)
        (found,) = ask(requires_tool("promtool"), Run((), (), 60, series, (question,)), tmp_path).samples[question]
        assert found.value == 5 * 60.0
        assert found.labels["uuid"] == "GPU-1"
