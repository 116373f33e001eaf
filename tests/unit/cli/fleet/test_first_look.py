"""`gpu-triage report --since`: a first look from raw series, of a real Prometheus that has none recorded of GPUs."""

from pathlib import Path

import pytest
from tests.command_line import Run
from tests.dashboards.store import Store
from tests.gathered import every

from gpu_triage.cli.fleet.fleet_view import Selection
from gpu_triage.cli.fleet.prometheus import HttpConfig, PrometheusClient
from gpu_triage.cli.fleet.review import Review, first_look, first_look_queries, review
from gpu_triage.cli.fleet.review_page import render_html, render_markdown
from gpu_triage.errors import PrometheusUnavailable

pytestmark = pytest.mark.slow

WINDOW = 600


def client(store: Store) -> PrometheusClient:
    return PrometheusClient(f"http://{store.address}", HttpConfig(), 10)


@pytest.fixture(scope="module")
def found(store: Store) -> Review:
    return first_look(client(store), Selection(), store.end, WINDOW)


def test_it_counts_what_the_exporters_measured(found: Review, store: Store) -> None:
    assert found.first_look
    (gpus,), (observed,), (busy,), (energy,) = found.gpus, found.observed, found.busy, found.energy
    assert gpus == 5  # of six; GPU 1 of cluster east was lost before these ten minutes
    assert observed is not None
    assert 0 < observed <= gpus * WINDOW / 3600
    assert busy is not None
    assert 0 < busy <= observed
    assert energy is not None
    joules = sum(
        each for one in store.at(f"increase(gpu_energy_joules_total[{WINDOW}s])", 900) for each in one.values.values()
    )
    assert energy == pytest.approx(joules / 3.6e6, rel=1e-3)


def test_models_and_losses_are_those_of_the_gpus(found: Review) -> None:
    assert sum(each.observed for each in found.models) == pytest.approx(found.observed[0])
    assert sum(each.busy for each in found.models) == pytest.approx(found.busy[0])
    assert all(each.name and each.p95 is not None and 0 <= each.p95 <= 1 for each in found.models)
    assert sum(each.hours for each in found.hosts) == pytest.approx(found.lost_by_day[0])
    assert not {"compute", "idle"} & set(found.lost)


def test_a_selection_is_a_part_of_it(found: Review, store: Store) -> None:
    parts = [
        first_look(client(store), Selection(cluster=name), store.end, WINDOW) for name in ("east", "west", "south")
    ]
    assert sum(each.observed[0] or 0 for each in parts) == pytest.approx(found.observed[0])
    assert sum(each.busy[0] or 0 for each in parts) == pytest.approx(found.busy[0])
    with pytest.raises(PrometheusUnavailable, match="has no GPU activity of hosts"):
        first_look(client(store), Selection(cluster="north"), store.end, WINDOW)


def test_no_query_reads_a_recorded_series() -> None:
    for selection in (Selection(), Selection(cluster="east")):
        for query in every(first_look_queries(selection, 21_600).values()):
            assert "last5m" not in query
            assert "instance_gpu:" not in query
            assert "owner:" not in query


def test_the_pages_say_what_it_is(found: Review) -> None:
    text, page = render_markdown(found), render_html(found).decode()
    assert text.startswith("# GPU capacity review, first look at 10 min\n")
    assert "from raw series" in text
    assert "Day by day" not in text + page
    assert "GPUs, most in a day" not in text


def test_the_command_and_the_review_without_rules_lead_to_it(store: Store, tmp_path: Path, run: Run) -> None:
    url = f"http://{store.address}"
    output = tmp_path / "look.md"
    look = ("report", "--prometheus", url, "--at", f"{store.end:.0f}", "--since", "30m", "--output", output)
    assert run(*look).code == 0
    assert "first look at 30 min" in output.read_text(encoding="utf-8")
    with pytest.raises(PrometheusUnavailable, match=r"load rules/recording\.yml, .*--since 6h for a first look"):
        review(client(store), Selection(), store.end, 3)
