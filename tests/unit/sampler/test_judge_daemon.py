"""The judge at its place in the sampler: when it is asked, what its failure costs, and how time is counted."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.judged import judged
from tests.rig import only, rig, scenario_with

from gpu_triage.judge.host_judge import DaemonJudge
from gpu_triage.machine import Moment
from gpu_triage.options.config import Config
from gpu_triage.read.metrics.metric import Sample
from gpu_triage.sampler.outcomes import OutcomeStore
from gpu_triage_simulator import load_scenario

pytestmark = pytest.mark.slow

HOST = "rtx-4070-ti-super"
LEAN = only("power", "thermal", "throttle", "clocks", "activity", "processes", "identity")
QUICK = replace(LEAN, sample_fast_seconds=5.0)


def test_it_judges_on_the_medium_tier_and_at_once_when_a_gpu_is_lost(tmp_path: Path) -> None:
    lost = 'at = 62\ngpu = 1\neffect = { kind = "lost" }'
    with judged(scenario_with(tmp_path, HOST, lost)) as seen:
        moments = []
        for second in range(50, 80):
            seen.run_to(second)
            latest = seen.running.judge.latest
            assert latest is not None
            moments.append(latest.at.monotonic)
        ends = sorted(set(moments))
        apart = [round(b - a) for a, b in pairwise(ends)]
        assert set(apart) <= {1, 2, 3, 4, 5}
        assert apart.count(5) >= 3
        assert seen.entered("1", "sick") <= 64


def raises(_self: DaemonJudge, _store: OutcomeStore, _now: Moment) -> Iterable[Sample]:
    raise ZeroDivisionError


def breaks_off(self: DaemonJudge, store: OutcomeStore, now: Moment, good: Any = DaemonJudge.judge) -> Iterator[Sample]:
    yield from list(good(self, store, now))[:3]
    raise ValueError


@pytest.mark.parametrize("broken", [raises, breaks_off])
def test_a_judge_that_fails_costs_its_own_series_and_nothing_else(monkeypatch: pytest.MonkeyPatch, broken: Any) -> None:
    with rig(load_scenario(HOST), LEAN) as running:
        running.run(60)
        before = len(running.series("gpu_power_watts"))
        with monkeypatch.context() as patch:
            patch.setattr(DaemonJudge, "judge", broken)
            running.run(20)
        assert running.series("gpu_bottleneck") == running.series("gpu_bottleneck_seconds_total") == []
        assert running.value("gpu_exporter_collector_success", collector="judge") == 0
        assert running.value("gpu_exporter_errors_total", collector="judge", error="exception") in (3, 4)
        assert len(running.series("gpu_power_watts")) == before
        running.run(60)
        assert running.value("gpu_exporter_collector_success", collector="judge") == 1
        if broken is raises:
            counted = sum(value for _, value in running.series("gpu_bottleneck_seconds_total", gpu="0"))
            # The time from the last judgment before to the first one after it was judged by nobody.
            assert counted == pytest.approx(120, abs=11)


def test_time_in_which_the_exporter_was_stopped_counts_for_no_class() -> None:
    with judged(load_scenario(HOST), QUICK) as seen:
        seen.run_to(100)
        spent = sum(seen.seconds("0").values())
        seen.running.clock.advance(600)  # as after SIGSTOP, or while the host slept
        seen.running.elapsed += 600
        seen.run_to(750)
        assert sum(seen.seconds("0").values()) == pytest.approx(spent + 50, abs=6)
        strip = seen.report.gpus[0].strip
        assert sum(piece.began_ago - piece.ended_ago for piece in strip) == pytest.approx(150, abs=12)


def test_a_scrape_in_between_sees_the_counters_as_of_the_last_judgment() -> None:
    with judged(load_scenario(HOST), LEAN) as seen:
        seen.run_to(97)
        first = seen.seconds("0")
        seen.run_to(98)
        assert seen.seconds("0") == first


def test_a_gpu_that_moves_to_another_index_takes_its_seconds_with_it(tmp_path: Path) -> None:
    gone = 'at = 100\ngpu = 0\neffect = { kind = "removed" }'
    with judged(scenario_with(tmp_path, HOST, gone), QUICK) as seen:
        seen.run_to(90)
        (before,) = {labels["uuid"] for labels, _ in seen.running.series("gpu_bottleneck", gpu="1")}
        seen.run_to(250)
        for uuid in {labels["uuid"] for labels, _ in seen.running.series("gpu_up")}:
            classes = seen.running.series("gpu_bottleneck", uuid=uuid)
            assert len(classes) == 1, "one class a GPU, whatever its index"
        counted = sum(v for _, v in seen.running.series("gpu_bottleneck_seconds_total", uuid=before))
        assert counted == pytest.approx(250, abs=10)


def test_a_driver_that_goes_and_comes_back_leaves_each_gpu_one_class(tmp_path: Path) -> None:
    reload = 'at = 100\nuntil = 450\neffect = { kind = "driver_not_loaded" }'
    with judged(scenario_with(tmp_path, HOST, reload), QUICK) as seen:
        seen.run_to(150)
        assert set(seen.classes().values()) == {"sick"}
        assert seen.report.verdict.value == "watch", "not for long enough yet"
        seen.run_to(430)
        assert seen.report.verdict.value == "drain"
        seen.run_to(650)
        assert set(seen.classes().values()) == {"compute"}
        for gpu in ("0", "1"):
            assert sum(seen.seconds(gpu).values()) == pytest.approx(650, abs=6)


def test_without_gpu_or_driver_there_is_no_class_and_the_host_is_not_kept() -> None:
    with judged(load_scenario("no-driver"), QUICK) as seen:
        seen.run_to(320)
        assert seen.running.series("gpu_bottleneck") == []
        assert seen.running.value("gpu_host_verdict") == 2
        areas = {area.area.name: area.summary for area in seen.report.areas}
        assert areas["HEALTH"] is None
        assert areas["PCIE"] is None


def test_what_was_not_read_yet_has_no_verdict() -> None:
    with judged(load_scenario(HOST)) as seen:
        running = seen.running
        running.sampler.step()
        running.sampler.publish()
        assert running.series("gpu_verdict") == running.series("gpu_host_verdict") == []


def test_a_slower_medium_tier_is_judged_over_two_of_its_rounds() -> None:
    config = replace(Config(), sample_fast_seconds=15.0, sample_medium_seconds=60.0)
    with judged(load_scenario(HOST), config) as seen:
        seen.run_to(600)
        assert set(seen.classes().values()) == {"compute"}
        assert seen.report.measured_seconds == 120
