from tests.rig import Rig, rig

from gpu_triage_simulator import load_scenario


def names_on(running: Rig, wanted: tuple[str, ...] = ()) -> set[str]:
    page = running.exposition.page("", wanted, gzipped=False).body.decode()
    return {line.split("{")[0].split(" ")[0] for line in page.splitlines() if not line.startswith("#")}


def test_the_first_scrape_after_the_process_was_stopped_shows_nothing_old() -> None:
    with rig(load_scenario("dual-a10")) as running:
        running.run(6)
        assert {"gpu_power_watts", "gpu_up", "gpu_driver_up", "gpu_verdict"} <= names_on(running)
        running.clock.advance(30)  # nobody samples meanwhile
        left = names_on(running)
        assert not {"gpu_power_watts", "gpu_energy_joules_total", "gpu_up", "gpu_driver_up", "gpu_verdict"} & left
        assert {"gpu_info", "gpu_exporter_last_publication_timestamp_seconds"} <= left
        running.run(2)
        assert {"gpu_power_watts", "gpu_up", "gpu_driver_up"} <= names_on(running)


def test_each_collector_is_as_fresh_as_its_own_interval_asks() -> None:
    with rig(load_scenario("dual-a10")) as running:
        running.run(6)
        assert "gpu_power_watts" in names_on(running)
        running.clock.advance(4)
        left = names_on(running)
        assert "gpu_power_watts" not in left
        assert {"gpu_up", "gpu_memory_used_bytes"} <= left
        running.clock.advance(3)
        left = names_on(running)
        assert "gpu_up" not in left
        # The judge looks every five seconds, so that its verdict is good for fifteen.
        assert {"gpu_verdict", "gpu_memory_used_bytes"} <= left
        running.clock.advance(7)
        assert "gpu_verdict" in names_on(running)
        running.clock.advance(3)
        assert not {"gpu_verdict", "gpu_memory_used_bytes"} & names_on(running)


def test_a_selection_of_metrics_shows_nothing_old_either() -> None:
    wanted = ("gpu_power_watts", "gpu_up", "gpu_exporter_simulated")
    with rig(load_scenario("dual-a10")) as running:
        running.run(6)
        assert names_on(running, wanted) == set(wanted)
        running.clock.advance(30)
        assert names_on(running, wanted) == {"gpu_exporter_simulated"}


def test_scrapes_of_a_dead_sampler_share_a_page_for_three_seconds_at_most() -> None:
    with rig(load_scenario("dual-a10")) as running:
        running.run(6)
        running.clock.advance(30)
        first = running.exposition.page("", (), gzipped=False).body
        assert running.exposition.page("", (), gzipped=False).body is first
        running.clock.advance(4)
        assert running.exposition.page("", (), gzipped=False).body is not first
