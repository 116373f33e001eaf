"""The generic rule: an alert fires while its finding is confirmed, and says what was found. Series by hand."""

import math
from collections.abc import Mapping, Sequence
from typing import Final

import pytest
from tests.conftest import RequiresTool
from tests.gathered import every
from tests.promql.promtool import Alert
from tests.rules.handwritten import Played, Series, gpu, merged, over, play
from tests.rules.handwritten import host as of_host
from tests.rules.rulefile import alert_files, alerts, read_rules

from gpu_triage.judge.findings.table import BY_CODE

NAN: Final = math.nan
END: Final = 60
SHOWN_AT: Final = 25
HEAT, LOST, XIDS = "GpuHwThermalThrottling", "GpuLost", "GpuXidCritical"
CONFIRMED = ((2, END),)
SLOTS: Final = ("0000:65:00.0", "0000:b3:00.0")


def found(code: str, *spans: tuple[float, int], uuid: str = "GPU-1", **labels: str) -> Series:
    """A finding over time: 1 pending, 2 confirmed, 0 ended, NaN where nobody could scrape."""
    check = BY_CODE[code]
    facts = {"code": code, "severity": check.severity.value, "action": check.action.value, **labels}
    if check.of_host:
        return of_host("gpu_host_finding", over(*spans), **facts)
    return gpu("gpu_finding", over(*spans), uuid, **facts)


def known(*spans: tuple[float, int], uuid: str = "GPU-1", serial: str = "", **labels: str) -> Series:
    return gpu("gpu_info", over(*spans), uuid, pci_bus_id="0000:65:00.0", serial=serial, name="X", **labels)


def process(*spans: tuple[float, int], uuid: str = "GPU-1", **labels: str) -> Series:
    return gpu("gpu_process_owner_info", over(*spans), uuid, **labels)


def linked(
    model: str, *lanes: int, first: int = 0, board: str = "900-1", spans: Sequence[tuple[float, int]] = ((1, END),)
) -> Series:
    """GPUs, each on a host of its own, whose links have so many lanes; all clusters are compared by model."""
    values, series = over(*spans), []
    for host, width in enumerate(lanes, first):
        own = {"uuid": f"GPU-{host}", "instance": f"{host}"}
        series.append(gpu("gpu_pcie_link_width", [width * value for value in values], **own))
        series.append(gpu("gpu_info", values, **own, name=model, board_part_number=board))
    return merged(*series)


def narrow(lanes: int, *spans: tuple[float, int]) -> Series:
    """That the link on the first of these hosts never had more lanes."""
    value = [lanes / 2 * state for state in over(*spans)]
    code, own = "pcie.width_from_boot", {"uuid": "GPU-0", "instance": "0"}
    return merged(found(code, *spans, **own), gpu("gpu_finding_value", value, code=code, **own))


GAP = ((2, 10), (NAN, 14), (2, END - 24))
LINKS: Final[Mapping[str, tuple[Series, bool]]] = {
    "narrow, alone": (merged(linked("A", 8), narrow(8, *CONFIRMED)), True),
    "narrow, of two": (merged(linked("B", 8, 8), narrow(8, *CONFIRMED)), True),
    "narrow, of three alike": (merged(linked("C", 8, 8, 8), narrow(8, *CONFIRMED)), False),
    "narrow, and another has more": (merged(linked("D", 8, 8, 8, 16), narrow(8, *CONFIRMED)), True),
    "narrow, and another board has more": (
        merged(linked("E", 8, 8, 8), linked("E", 16, first=9, board="900-2"), narrow(8, *CONFIRMED)),
        False,
    ),
    "too few lanes for any board": (merged(linked("F", 4, 4, 4), narrow(4, *CONFIRMED)), True),
    "narrow, of three alike that could not be scraped": (
        merged(linked("G", 8, 8, 8, spans=((1, 10), (NAN, 14), (1, END - 24))), narrow(8, *GAP)),
        False,
    ),
}
"""Links that never had all lanes, and whether a finding is expected: not if every such board has as many."""
HOT = found("thermal.hw", *CONFIRMED)
CASES: Final[Mapping[str, Series]] = {
    "a life": found("thermal.hw", (NAN, 5), (1, 10), (2, 20), (0, 20), (NAN, 5)),
    "two silences": found("thermal.hw", (2, 5), (NAN, 14), (2, 11), (NAN, 20), (2, 10)),
    "one of seven scrapes": found("thermal.hw", *((2, 3), (NAN, 1), (2, 3)) * 9),
    "two pods": merged(
        found("thermal.hw", (2, 30), (NAN, 30), pod="a"), found("thermal.hw", (NAN, 31), (2, 29), pod="b")
    ),
    "renumbered": merged(
        found("thermal.hw", (2, 15), (NAN, 45), gpu="3"),
        found("thermal.hw", (NAN, 20), (2, 40), gpu="2"),
        known((1, 15), (NAN, 45), gpu="3", serial="1"),
        known((NAN, 20), (1, 40), gpu="2", serial="1"),
    ),
    "without UUIDs and handles": merged(
        found("xid.79", *CONFIRMED, uuid="", gpu="", pci_bus_id=SLOTS[0]),
        *(found(code, *CONFIRMED, uuid="", gpu="1", pci_bus_id=SLOTS[1]) for code in ("xid.79", "gpu.lost")),
        gpu("gpu_info", over((1, END)), "", gpu="1", pci_bus_id=SLOTS[1]),
    ),
    "shown later": merged(
        found("gpu.lost", (2, 5), (NAN, 55), uuid="", gpu="", pci_bus_id=SLOTS[0]),
        found("gpu.lost", (NAN, 5), (2, 15), (0, 20), (NAN, 20), uuid="", gpu="1", pci_bus_id=SLOTS[0]),
        found("gpu.lost", (NAN, 20), (2, 40), pci_bus_id=SLOTS[0]),
    ),
    "without UUIDs": merged(*(found("gpu.lost", *CONFIRMED, uuid="", gpu=number) for number in "01")),
    "routed": found("thermal.hw", *CONFIRMED, pod="a", drill="true"),
    "pending": found("thermal.hw", (1, END)),
    "two codes": merged(found("storage.starved", *CONFIRMED), found("network.starved", *CONFIRMED)),
    "serving and training": merged(
        found("work.hung", *CONFIRMED, uuid="GPU-1", workload="serving"),
        found("work.hung", *CONFIRMED, uuid="GPU-2", workload="training"),
    ),
    "job that died": merged(
        found("thermal.hw", (NAN, 18), (2, 42)),
        process((1, 18), (NAN, 42), slurm_job_id="42", user="alice"),
        known((1, END)),
    ),
    "jobs": merged(
        HOT,
        found("thermal.hw", *CONFIRMED, uuid="GPU-2"),
        gpu("gpu_allocated", over((1, END)), slurm_job_id="42", user="alice", account="physics"),
        process((1, END), slurm_job_id="42", user="root"),
        process((1, END), pod_uid="x", user="root"),
        process((1, END), uuid="GPU-2", pod_uid="y", user="nobody"),
        known((1, END)),
        known((1, END), uuid="GPU-2"),
    ),
    "baseline": merged(
        found("baseline.drift", (1, 5), (2, 25), (0, 30)),
        gpu("gpu_baseline_mismatch", over((1, 30), (0, 30)), field="vbios_version"),
        gpu("gpu_baseline_mismatch", over((0, END)), field="pcie_width"),
    ),
    **{name: series for name, (series, _) in LINKS.items()},
}


@pytest.fixture(scope="module")
def played(requires_tool: RequiresTool, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Played]:
    """What the rules say of all cases together: two clusters do not mix."""
    shown = dict.fromkeys((HEAT, LOST, XIDS), SHOWN_AT)
    directory = tmp_path_factory.mktemp("relay")
    return play(requires_tool("promtool"), directory, alert_files(), CASES, minutes=END, shown=shown)


@pytest.mark.parametrize(
    ("name", "minutes"),
    [
        ("a life", {*range(15, 35)}),
        ("two silences", {*range(45), *range(50, END)}),
        ("one of seven scrapes", {*range(END)}),
        ("two pods", {*range(END)}),
        ("renumbered", {*range(END)}),
        ("pending", set()),
    ],
)
def test_an_alert_fires_while_its_finding_is_confirmed_and_only_silence_ends_it_else(
    name: str, minutes: set[int], played: Mapping[str, Played]
) -> None:
    """From its first evaluation on, so that a server that starts goes on: silence of 14 minutes ends nothing."""
    assert [*played[name].firing.get(HEAT, {}).values()] == ([frozenset(minutes)] if minutes else [])


def heat(played: Played) -> Alert:
    (alert,) = played.shown[HEAT]
    return alert


def test_a_gpu_is_called_by_the_number_that_it_has_now(played: Mapping[str, Played]) -> None:
    alert = heat(played["renumbered"])
    assert "gpu" not in alert.labels
    assert alert.annotations["summary"].startswith("a GPU 2: ")
    assert alert.annotations["description"].startswith("GPU 2 of a (PCI 0000:65:00.0, serial 1): ")


def test_gpus_without_a_uuid_are_told_apart_by_their_number_or_address(played: Mapping[str, Played]) -> None:
    found = played["without UUIDs"].shown[LOST]
    assert [alert.labels["gpu"] for alert in found] == ["0", "1"]
    assert [alert.annotations["summary"].split(":")[0] for alert in found] == ["a GPU 0", "a GPU 1"]
    shown = played["without UUIDs and handles"].shown
    xids = {alert.labels["pci_bus_id"]: alert.annotations for alert in shown[XIDS]}
    assert {alert.labels["pci_bus_id"] for alert in shown[LOST]} == {SLOTS[1]}
    assert [xids[slot]["summary"].split(": ")[0] for slot in SLOTS] == [f"a GPU at {slot}" for slot in SLOTS]
    assert xids[SLOTS[0]]["description"].startswith(f"GPU of a (PCI {SLOTS[0]}): the driver reported Xid 79. ")
    assert xids[SLOTS[1]]["description"].startswith(f"GPU 1 of a (PCI {SLOTS[1]}): the driver reported Xid 79. ")


def test_a_gpu_that_gets_its_uuid_has_one_alert_at_any_time(played: Mapping[str, Played]) -> None:
    alerts = {**played["shown later"].firing[LOST]}
    names = {tuple(dict(labels).get(name) for name in ("uuid", "pci_bus_id")): at for labels, at in alerts.items()}
    assert names == {(None, SLOTS[0]): frozenset(range(20)), ("GPU-1", None): frozenset(range(20, END))}


def test_labels_that_route_an_alert_stay(played: Mapping[str, Played]) -> None:
    labels = heat(played["routed"]).labels
    assert labels.items() >= {"drill": "true", "code": "thermal.hw", "uuid": "GPU-1", "job": "gpu-triage"}.items()
    assert not {"gpu", "pod"} & labels.keys()


def test_two_codes_of_one_alert_are_told_apart(played: Mapping[str, Played]) -> None:
    codes = {dict(labels)["code"] for labels in played["two codes"].firing["GpuStarved"]}
    assert codes == {"storage.starved", "network.starved"}


def test_a_server_of_requests_may_rest(played: Mapping[str, Played]) -> None:
    firing = played["serving and training"].firing["GpuHungProcess"]
    assert [dict(labels)["uuid"] for labels in firing] == ["GPU-2"]


def test_whose_job_is_hit_is_known_for_a_quarter_of_an_hour_after_it_died(played: Mapping[str, Played]) -> None:
    description = heat(played["job that died"]).annotations["description"]
    assert description.startswith("GPU 0 of a (PCI 0000:65:00.0), used by Slurm job 42 of alice: ")
    # The job of a scheduler counts more than its processes, and a pod without a name last.
    texts = {alert.labels["uuid"]: alert.annotations["description"] for alert in played["jobs"].shown[HEAT]}
    assert "used by Slurm job 42 of alice: " in texts["GPU-1"]
    assert "used by user nobody: " in texts["GPU-2"]


@pytest.mark.parametrize("name", LINKS)
def test_a_link_is_compared_with_those_of_its_model_and_board(played: Mapping[str, Played], name: str) -> None:
    minutes = [minute for minute in played[name].minutes("GpuPcieWidthFromBoot") if minute >= 2]
    assert bool(minutes) is LINKS[name][1]


def test_a_field_that_differs_from_the_baseline_is_told_by_name(played: Mapping[str, Played]) -> None:
    ((labels, minutes),) = played["baseline"].firing["GpuBaselineDrift"].items()
    assert dict(labels)["field"] == "vbios_version"
    assert minutes == frozenset(range(5, 30))


def test_every_alert_carries_its_cluster() -> None:
    """Its inhibitions and its texts rely on it: an aggregation by fewer labels would lose it."""
    lost = [r.name for r in every(alerts(read_rules(alert_files()))) if "by (job" in r.expr or "on (job" in r.expr]
    assert lost == []
