"""A job's GPUs wait for each other: what the driver answers about those that compute, wait, starve and are gone."""

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any, Final

import pynvml
import pytest
from tests.rules.cases import FOLDER
from tests.simulated_driver import Driver, driver

from gpu_triage.errors import ScenarioError
from gpu_triage_simulator import Scenario, describe_scenario
from gpu_triage_simulator.conditions import Timeline
from gpu_triage_simulator.describe import progress_of
from gpu_triage_simulator.host_state import HostState
from gpu_triage_simulator.job import Episode, Job, Rank, Trouble
from gpu_triage_simulator.scenario_file import read_fleet, read_scenario
from gpu_triage_simulator.schema import read_toml

BUSY, SM, TENSOR, DRAM = 1, 2, 5, 10
"""Metrics of GPM."""
NCCL_PERCENT: Final = 100 * 24 / 132
A_MOMENT: Final = 0.005
SLOWED: Final = 1 / (0.15 + 0.85 / 0.5)
"""Steps a second if one GPU computes at half its speed."""
RANKS: Final = tuple({"host": name, "gpus": [0, 1], "compute_seconds": 0.85} for name in "ab")
AT: Final = 60
EXITED, HUNG, LATE, PAUSED, ALONE = (
    {"trouble": trouble, "at": AT, "ranks": [1]} for trouble in ("exited", "hung", "late", "paused", "alone")
)


def fleet(*episodes: Mapping[str, Any], events: Mapping[str, Any] | None = None, **job: Any) -> dict[str, Scenario]:
    """Two hosts of two H100 with one job on them: a step of a second, 0.15 s of which its ranks exchange data.

    `episodes` are the job's, `events` those of host a.
    """
    base = read_toml(FOLDER / "base" / "two-h100.toml")
    steady = [{**gpu, "load": {**gpu["load"], "jitter": 0.0, "utilization": 1.0}} for gpu in base["gpu"]]
    nic = {**base["machine"]["nic"][0], "infiniband": "mlx5_0"}
    made = {
        **base,
        "gpu": steady,
        "machine": {**base["machine"], "nic": [nic]},
        "host": [{"name": "a", "event": [] if events is None else [events]}, {"name": "b"}],
        "job": [{"exchange_seconds": 0.15, "ranks": [*RANKS], "episode": [*episodes], **job}],
    }
    return {scenario.name: scenario for scenario in read_fleet(made, "fleet.toml")}


def throttled(sm_mhz: int, **more: Any) -> Mapping[str, Any]:
    return {"at": AT, "gpu": 1, "effect": {"kind": "thermal_throttle", "source": "hw", "sm_clock_mhz": sm_mhz, **more}}


class Minute:
    """What the driver answers about a GPU of a host, over a minute."""

    def __init__(self, running: Driver, gpu: int, since: float = AT) -> None:
        handle = running.handles[gpu]
        first, second = pynvml.nvmlGpmSampleAlloc(), pynvml.nvmlGpmSampleAlloc()
        running.at(since)
        joules = pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
        link = self._link_kib(running, gpu)
        pynvml.nvmlGpmSampleGet(handle, first)
        running.at(since + 60)
        pynvml.nvmlGpmSampleGet(handle, second)
        self.watts = (pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) - joules) / 60_000
        self.link_kib = self._link_kib(running, gpu) - link
        self.power_watts = pynvml.nvmlDeviceGetPowerUsage(handle) / 1000
        self.sm_mhz = pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM)
        self.pids = [each.pid for each in pynvml.nvmlDeviceGetComputeRunningProcesses_v3(handle)]
        request = pynvml.c_nvmlGpmMetricsGet_t()
        request.version, request.numMetrics = pynvml.NVML_GPM_METRICS_GET_VERSION, 4
        request.sample1, request.sample2 = first, second
        for place, metric in enumerate((BUSY, SM, TENSOR, DRAM)):
            request.metrics[place].metricId = metric
        pynvml.nvmlGpmMetricsGet(request)
        self.busy, self.sm, self.tensor, self.dram = (round(request.metrics[place].value, 6) for place in range(4))

    @staticmethod
    def _link_kib(running: Driver, gpu: int) -> int:
        (code, kib), *_ = running.fields(gpu, (pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, 0))
        assert code == 0
        return int(kib)


def minute(scenario: Scenario, gpu: int, since: float = AT) -> Minute:
    with driver(scenario) as running:
        return Minute(running, gpu, since)


@pytest.mark.parametrize(
    "hosts", [fleet(EXITED), fleet(events={"at": AT, "gpu": 1, "effect": {"kind": "lost"}})], ids=["exited", "lost"]
)
def test_a_gpu_that_waits_for_a_rank_that_never_comes_spins_as_real_ones_do(hosts: Mapping[str, Scenario]) -> None:
    waits = minute(hosts["b"], 0)
    assert waits.busy == 100
    assert waits.sm == pytest.approx(NCCL_PERCENT, abs=0.01)
    assert (waits.tensor, waits.dram, waits.link_kib) == (0, 0, 0)
    assert 121 <= waits.watts <= 124
    assert waits.sm_mhz == 1980


@pytest.mark.parametrize(
    ("episode", "watts", "pids"), [(EXITED, 72, []), (HUNG, 120, [7001]), (PAUSED, 120, [7001])], ids=str
)
def test_a_rank_without_a_kernel_is_idle_and_only_an_exited_one_is_gone(
    episode: Mapping[str, Any], watts: float, pids: list[int]
) -> None:
    """A context alone draws what spinning does, within 2 W."""
    stopped = minute(fleet(episode)["a"], 1)
    assert (stopped.busy, stopped.sm, stopped.link_kib) == (0, 0, 0)
    assert stopped.watts == pytest.approx(watts, abs=2)
    assert stopped.pids == pids


def test_all_of_a_healthy_job_compute_and_exchange() -> None:
    one, other = (minute(host, 0) for host in fleet().values())
    assert (one.sm, one.tensor, one.dram, one.link_kib) == (other.sm, other.tensor, other.dram, other.link_kib)
    assert one.busy == 100
    assert one.sm == pytest.approx(0.85 * 92 + 0.15 * NCCL_PERCENT, abs=0.1)
    assert one.link_kib > 0
    assert one.power_watts == pytest.approx(one.watts, abs=1)


@pytest.mark.parametrize(
    ("events", "episodes", "steps"),
    [
        (throttled(990), (), SLOWED),
        (throttled(990, duty=0.5), (), (1 + SLOWED) / 2),
        ({"at": AT, "gpu": 1, "effect": {"kind": "application_clock", "sm_mhz": 990}}, (), SLOWED),
        ({"at": AT, "gpu": 1, "effect": {"kind": "power_brake", "sm_clock_mhz": 990}}, (), SLOWED),
        (None, ({"trouble": "slow", "at": AT, "ranks": [1], "factor": 0.5},), SLOWED),
    ],
    ids=["hot", "hot half of the time", "locked", "braked", "slow for no reason"],
)
def test_others_spin_for_as_long_as_the_slowest_computes(
    events: Mapping[str, Any] | None, episodes: tuple[Mapping[str, Any], ...], steps: float
) -> None:
    """The slow one never waits; what a step moves over links stays the same, on all hosts."""
    hosts = fleet(*episodes, events=events)
    slow, waits, elsewhere = minute(hosts["a"], 1), minute(hosts["a"], 0), minute(hosts["b"], 1)
    before = minute(fleet()["a"], 0)
    assert waits.sm == pytest.approx(elsewhere.sm)
    assert slow.sm - waits.sm > 15
    assert slow.sm > before.sm
    assert waits.link_kib == slow.link_kib == pytest.approx(before.link_kib * steps, rel=0.05)
    assert waits.dram == pytest.approx(before.dram * steps, rel=0.05)


def test_a_power_cap_slows_the_job() -> None:
    capped = {"at": AT, "gpu": 1, "effect": {"kind": "power_limit", "watts": 300}}
    hosts = fleet(events=capped)
    assert minute(hosts["a"], 1).sm - minute(hosts["b"], 0).sm > 10


def test_only_the_host_with_the_slowest_data_starves() -> None:
    """At 0.8 of the steps its GPUs run kernels for 80 % of the time; those of the other host spin instead."""
    hosts = fleet({"trouble": "starved", "at": AT, "ranks": [0, 1], "factor": 0.8})
    starved, waits = minute(hosts["a"], 0), minute(hosts["b"], 0)
    assert starved.busy == pytest.approx(80)
    assert waits.busy == 100
    assert starved.link_kib == waits.link_kib
    assert waits.sm - starved.sm == pytest.approx(0.2 * NCCL_PERCENT, abs=0.1)


def test_the_drivers_power_reading_smooths_what_energy_shows() -> None:
    """A rank that computes for a second and then waits for data for nine."""
    ranks = [{"host": "a", "gpus": [0], "compute_seconds": 1.0, "feed_seconds": 10.0}]
    watts, joules = [], []
    with driver(fleet(ranks=ranks)["a"]) as running:
        for second in range(AT, 2 * AT + 1):
            running.at(second)
            watts.append(pynvml.nvmlDeviceGetPowerUsage(running.handles[0]) / 1000)
            joules.append(pynvml.nvmlDeviceGetTotalEnergyConsumption(running.handles[0]) / 1000)
    bursts = [after - before for before, after in pairwise(joules)]
    assert max(bursts) > 500
    assert max(watts) < 0.6 * max(bursts)
    assert sum(watts) / len(watts) == pytest.approx(sum(bursts) / len(bursts), rel=0.05)


@pytest.mark.parametrize(
    ("episode", "concerned", "waits"),
    [
        # An evaluation on one rank computes while the others spin; until a late rank starts, no rank runs a kernel.
        (ALONE, (pytest.approx(92, abs=0.1), 100, [7001]), (pytest.approx(NCCL_PERCENT, abs=0.01), 100, [7000])),
        (LATE, (0, 0, []), (0, 0, [7000])),
    ],
)
def test_one_rank_alone_or_late(episode: Mapping[str, Any], concerned: tuple[Any, ...], waits: tuple[Any, ...]) -> None:
    host = fleet(episode)["a"]
    found = [(each.sm, each.busy, each.pids) for each in (minute(host, 1), minute(host, 0))]
    assert found == [concerned, waits]


@pytest.mark.parametrize(
    ("one", "starving", "spinning"),
    [
        ({"compute_seconds": 0.4}, [0, 0], [0.45, 0]),
        ({"compute_seconds": 0.85, "feed_seconds": 1.0}, [0, 0], [0, 0]),
        ({"compute_seconds": 0.85, "feed_seconds": 1.25}, [0.2, 0], [0, 0.2]),
    ],
    ids=["a stage with less to do", "fed in time", "fed too late"],
)
def test_ranks_may_differ(one: Mapping[str, Any], starving: list[float], spinning: list[float]) -> None:
    ranks = [{"host": "a", "gpus": [0], **one}, {"host": "b", "gpus": [1], "compute_seconds": 0.85}]
    hosts = fleet(ranks=ranks)
    found = [Timeline(hosts[name]).shares(gpu, AT) for name, gpu in (("a", 0), ("b", 1))]
    assert [each.starving for each in found if each] == pytest.approx(starving)
    assert [each.spinning for each in found if each] == pytest.approx(spinning)
    assert Timeline(hosts["a"]).shares(1, AT) is None


def test_rdma_devices_carry_what_the_steps_exchange() -> None:
    for host in fleet(EXITED).values():
        state = HostState(host, Timeline(host), 1000.0)
        before, stopped = (state.rates(at)["net.ens1f0np0.receive_bytes"] for at in (AT - 1, AT))
        assert (before, stopped) == (1.1e9, 0)
    slowed = fleet({"trouble": "exchange", "at": AT, "factor": 0.25})["b"]
    rates = HostState(slowed, Timeline(slowed), 1000.0).rates(AT)
    assert rates["net.ens1f0np0.receive_bytes"] == pytest.approx(1.1e9 / (0.85 + 0.6))


def shares_of(*troubles: tuple[Trouble, float], seconds: float = AT) -> Callable[[str], list[float]]:
    ranks = tuple(Rank(host, gpu, 0.8) for host in "ab" for gpu in range(2))
    episodes = tuple(Episode(trouble, AT, 2 * AT, frozenset({3}), factor) for trouble, factor in troubles)
    found = Job(ranks, 0.2, episodes).shares(seconds)
    assert all(sum(each[:4]) == pytest.approx(1) for each in found)
    return lambda name: [getattr(each, name) for each in found]


@pytest.mark.parametrize(
    ("seconds", "step"), [(AT - A_MOMENT, 1.0), (AT, 1.8), (2 * AT - A_MOMENT, 1.8), (2 * AT, 1.0)]
)
def test_an_episode_lasts_from_its_start_to_its_end(seconds: float, step: float) -> None:
    assert shares_of((Trouble.SLOW, 0.5), seconds=seconds)("steps") == pytest.approx([1 / step] * 4)


def test_troubles_add_up() -> None:
    shares = shares_of((Trouble.SLOW, 0.5), (Trouble.EXCHANGE, 0.5), (Trouble.STARVED, 0.4))
    # Four times 0.4 of a second to exchange and 1.6 s to compute are less than what a starving host allows.
    assert shares("steps") == pytest.approx([1 / 2.5] * 4)
    assert shares("starving")[:3] == [0, 0, 0]
    assert shares("starving")[3] == pytest.approx((2.5 - 1.6 - 0.4) / 2.5)
    assert shares("spinning") == pytest.approx([(2.5 - 0.8 - 0.4) / 2.5] * 3 + [0])


def test_a_rank_elsewhere_has_full_speed_unless_an_episode_slows_it() -> None:
    base = read_toml(FOLDER / "base" / "two-h100.toml")
    ranks = [{"gpus": [0, 1], "compute_seconds": 0.8}, {"host": "far", "gpus": [0], "compute_seconds": 0.8}]
    slow = {"trouble": "slow", "ranks": [2], "factor": 0.8, "at": "1m", "until": "31m", "every": "10m", "lasts": "2m"}
    job = {"exchange_seconds": 0.2, "ranks": ranks, "episode": [slow]}
    scenario = read_scenario({**base, "name": "one", "job": [job]}, "one.toml")
    timeline = Timeline(scenario)
    steps = [shares.steps for at in (0, 60, 179, 180, 660, 1860) if (shares := timeline.shares(0, at))]
    assert steps == pytest.approx([1, 1 / 1.2, 1 / 1.2, 1, 1 / 1.2, 1])
    assert scenario.last_seconds == 23 * 60
    assert "1m to 3m           rank 2: slow (factor=0.8)" in describe_scenario(scenario)
    assert [progress_of(scenario, at, 1).partition("Next, in ")[2] for at in (0, 60, 23 * 60)] == [
        "60 s: rank 2: slow.",
        "2 min: rank 2: end of slow.",
        "",
    ]


@pytest.mark.parametrize(
    ("job", "where"),
    [
        ({"ranks": [{"gpus": [2], "compute_seconds": 1}]}, "job[0].ranks"),
        ({"ranks": [{"gpus": [0, 0], "compute_seconds": 1}]}, "job[0].ranks"),
        ({"ranks": []}, "job[0].ranks"),
        ({"ranks": [{"gpus": [0, 1], "compute_seconds": [1, 2, 3]}]}, "job[0].ranks[0].compute_seconds"),
        ({"ranks": [{"gpus": [0], "compute_seconds": -1}]}, "job[0].ranks[0].compute_seconds"),
        ({"episode": [{"trouble": "sad", "at": 0}]}, "job[0].episode[0].trouble"),
        ({"episode": [{"trouble": "hung", "at": 0, "ranks": [2]}]}, "job[0].episode[0].ranks"),
        ({"episode": [{"trouble": "hung", "at": 5, "until": 5}]}, "job[0].episode[0].until"),
        ({"exchange_seconds": 0}, "job[0].exchange_seconds"),
    ],
)
def test_a_wrong_job_says_where(job: Mapping[str, Any], where: str) -> None:
    base = read_toml(FOLDER / "base" / "two-h100.toml")
    right = {"exchange_seconds": 0.2, "ranks": [{"gpus": [0, 1], "compute_seconds": 1}]}
    with pytest.raises(ScenarioError) as error:
        read_scenario({**base, "name": "one", "job": [{**right, **job}]}, "one.toml")
    assert f"one.toml: {where}" in str(error.value)
