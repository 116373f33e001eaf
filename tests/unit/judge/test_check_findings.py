from itertools import product
from pathlib import Path
from typing import Final

import pytest
from tests.evidence import evidence_of, report_of
from tests.one_shot import codes, finding, look_at
from tests.rig import pair, pair_with, rig, scenario_with, three_with

from gpu_triage.judge.evidence.gpu import GpuEvidence
from gpu_triage.judge.findings.table import Severity
from gpu_triage.judge.findings.verdicts import Verdict
from gpu_triage.options.config import Config
from gpu_triage.read.gpu.ecc import GPU_ECC_MODE, GPU_ECC_MODE_PENDING, GPU_ECC_SRAM_THRESHOLD_EXCEEDED
from gpu_triage.read.gpu.power import GPU_TEMPERATURE_CELSIUS, GPU_TEMPERATURE_THRESHOLD_CELSIUS
from gpu_triage.read.gpu.presence import GPU_UP
from gpu_triage.read.gpu.throttle import GPU_THROTTLE_ACTIVE, GPU_THROTTLE_SECONDS_TOTAL
from gpu_triage.read.host.platform import GPU_KERNEL_MODULE_LOADED
from gpu_triage.read.metrics.metric import MetricSpec
from gpu_triage_simulator import load_scenario

pytestmark = pytest.mark.slow

AT, GPU = 60.0, ("0", "GPU-a")
STARVED = 'at = 0\neffect = { kind = "load", utilization = 0.3 }'
SPINS = 'kind = "load", utilization = 0.97, memory_utilization = 0.02, intensity = 0.1'
HOT: Final = (
    (GPU_TEMPERATURE_CELSIUS, (104.0, 104.0), "memory"),
    (GPU_TEMPERATURE_THRESHOLD_CELSIUS, (105.0, 105.0), "memory_max"),
)


def event(effect: str, gpu: int | None = 0, at: str = "0") -> str:
    concerned = "" if gpu is None else f"gpu = {gpu}\n"
    return f"at = {at}\n{concerned}effect = {{ {effect} }}"


@pytest.mark.parametrize(
    ("config", "effect", "code", "decision"),
    [
        (Config(), 'kind = "link", width = 4', "pcie.width", "reseat card and riser"),
        (Config(expect_pcie_width=32), "", "pcie.width", "Reseating does not help: if it is the same card"),
        (Config(), 'kind = "link", generation = 1', "pcie.generation", "reseat card and riser"),
        (Config(expect_pcie_generation=6), "", "pcie.generation", "Reseating does not help: if it is the same card"),
    ],
)
def test_a_link_is_to_be_reseated_if_card_and_slot_can_do_what_is_expected(
    tmp_path: Path, config: Config, effect: str, code: str, decision: str
) -> None:
    events = (event(effect),) if effect else ()
    report = look_at(scenario_with(tmp_path, "rtx-4070-ti-super", *events), AT, config=config)
    found = [each for each in report.findings if each.check.code == code]
    assert found
    assert all(decision in each.advice.decision for each in found)


@pytest.mark.parametrize(
    ("base", "effect", "code", "bottleneck"),
    [
        ("rtx-4070-ti-super", 'kind = "thermal_throttle", source = "hw", sm_clock_mhz = 900', "thermal.hw", "thermal"),
        ("rtx-4070-ti-super", 'kind = "thermal_throttle", source = "sw", sm_clock_mhz = 900', "thermal.sw", "thermal"),
        ("rtx-4070-ti-super", 'kind = "power_brake", sm_clock_mhz = 900, duty = 0.5', "power.brake", "power_brake"),
        ("rtx-4070-ti-super", 'kind = "power_limit", watts = 100', "power.cap", "power_cap"),
        ("v100-old-driver", 'kind = "application_clock", sm_mhz = 900', "clock.policy", "clock_cap"),
        ("rtx-4070-ti-super", 'kind = "link", width = 4', "pcie.width", "pcie_link"),
        ("rtx-4070-ti-super", 'kind = "link", generation = 1', "pcie.generation", "pcie_link"),
        ("rtx-4070-ti-super", 'kind = "pcie_errors", replays_per_hour = 3600', "pcie.replays", "compute"),
        ("rtx-4070-ti-super", 'kind = "pcie_errors", fatal_per_hour = 3600', "pcie.aer", "compute"),
        ("v100-old-driver", 'kind = "ecc", uncorrected = 1', "ecc.uncorrected", "sick"),
        ("v100-old-driver", 'kind = "ecc", corrected_per_hour = 3600', "ecc.corrected", "compute"),
        ("v100-old-driver", 'kind = "retired_pages", pending = true', "memory.retired_pages_pending", "compute"),
        ("a100-power-capped", 'kind = "row_remap", pending = true', "memory.row_remap_pending", "power_cap"),
        ("a100-power-capped", 'kind = "row_remap", failure = true', "memory.row_remap_failure", "sick"),
        ("h100-mig", 'kind = "recovery_action", action = 1', "recovery.action", "sick"),
        ("v100-old-driver", 'kind = "p2p", status = "not_supported"', "p2p.unavailable", "compute"),
        ("rtx-4070-ti-super", 'kind = "lost"', "gpu.lost", "sick"),
        ("rtx-4070-ti-super", 'kind = "reset_required"', "gpu.lost", "sick"),
        ("rtx-4070-ti-super", 'kind = "hang", function = "nvmlDeviceGetUtilizationRates"', "gpu.lost", "sick"),
        ("rtx-4070-ti-super", SPINS, "work.low_power", "communication"),
        ("rtx-4070-ti-super", 'kind = "load", utilization = 0.0', "work.held_idle", "unattributed"),
    ],
)
def test_what_befalls_a_gpu_is_found_and_is_its_bottleneck(
    tmp_path: Path, base: str, effect: str, code: str, bottleneck: str
) -> None:
    report = look_at(scenario_with(tmp_path, base, event(effect)), AT)
    assert code in codes(report, "GPU 0")
    assert report.gpus[0].bottleneck.name == bottleneck
    assert code in report.gpus[0].codes
    assert codes(report, "GPU 1") & {code} == ({code} if code == "p2p.unavailable" else set())
    # One look cannot tell a hang from a pause.
    assert report.gpus[0].bottleneck.unseen.startswith("hung") is (code == "work.held_idle")


@pytest.mark.parametrize(
    ("effect", "code", "measured"),
    [
        ("link_downs_per_hour = 1800", "network.port_flapping", "mlx5_0:1"),
        ("link_errors_per_hour = 3600", "network.port_errors", "link errors in"),
        ("timeouts_per_hour = 3600", "network.timeouts", "mlx5_0:1"),
    ],
)
def test_what_befalls_a_port_is_found_and_gpus_wait_for_the_network_if_packets_are_lost(
    tmp_path: Path, effect: str, code: str, measured: str
) -> None:
    trouble = event(f'kind = "network", device = "ens1f0np0", {effect}', gpu=None, at="1")
    report = look_at(pair_with(tmp_path, "h100-8", STARVED, trouble), AT)
    found = {finding.check.code: finding.measured for finding in report.findings}
    assert measured in found[code]
    lost = code != "network.port_errors"
    assert ("network.starved" in found) == lost
    assert {gpu.bottleneck.name for gpu in report.gpus} == {"network" if lost else "unattributed"}


def test_an_interface_that_counts_bad_packets_or_loses_its_link_is_found(tmp_path: Path) -> None:
    trouble = 'kind = "network", device = "eth0", errors_per_second = 5, link_downs_per_hour = 1800'
    report = look_at(scenario_with(tmp_path, "dual-a10", event(trouble, gpu=None, at="1")), AT)
    assert {"network.interface_errors", "network.link_degraded"} <= codes(report, "host")
    healthy = codes(look_at(load_scenario("dual-a10"), AT), "host")
    assert not {"network.interface_errors", "network.link_degraded"} & healthy


def test_a_fabric_manager_that_does_not_run_concerns_the_host_and_no_gpu(tmp_path: Path) -> None:
    assert "fabric.service_down" not in codes(look_at(pair("h100-8"), AT), "host")
    report = look_at(pair_with(tmp_path, "h100-8", event('kind = "service_stopped"', gpu=None)), AT)
    assert finding(report, "fabric.service_down").severity is Severity.CRITICAL
    assert report.verdict is Verdict.WATCH, "one check cannot confirm findings that take time"
    assert {gpu.verdict for gpu in report.gpus} == {Verdict.KEEP}


@pytest.mark.parametrize(("fatal", "code"), [("true", "nvswitch.sxid_fatal"), ("false", "nvswitch.sxid")])
def test_an_error_of_a_switch_is_found_with_its_code_and_address(tmp_path: Path, fatal: str, code: str) -> None:
    sxid = event(f'kind = "sxid", code = 20034, fatal = {fatal}', gpu=None, at="10")
    report = look_at(pair_with(tmp_path, "h100-8", sxid), AT)
    said = f"SXid 20034 ({'fatal' if fatal == 'true' else 'nonfatal'}) of the switch at 0000:07:00.0"
    assert finding(report, code).measured.startswith(said)
    assert codes(report, "host") & {"nvswitch.sxid_fatal", "nvswitch.sxid"} == {code}


LOWERED = event('kind = "application_clock", sm_mhz = 900')
IOWAIT = event('kind = "cpu", iowait = 0.3', gpu=None)


@pytest.mark.parametrize(
    ("base", "events", "bottleneck", "found"),
    [
        pytest.param("rtx-4070-ti-super", (IOWAIT,), "compute", {"storage.saturated"}, id="nobody waits: context"),
        pytest.param("rtx-4070-ti-super", (STARVED,), "unattributed", set(), id="nothing seen here"),
        pytest.param("v100-old-driver", (STARVED, LOWERED, IOWAIT), "storage", {"storage.starved"}, id="low clocks"),
    ],
)
def test_a_gpu_has_the_class_of_what_it_waits_for(
    tmp_path: Path, base: str, events: tuple[str, ...], bottleneck: str, found: set[str]
) -> None:
    report = look_at(scenario_with(tmp_path, base, *events), AT)
    assert codes(report, "host") - {"p2p.through_host"} == found
    assert {gpu.bottleneck.name for gpu in report.gpus} == {bottleneck}
    assert ("clock.policy" in codes(report, "GPU 0")) is (LOWERED in events)


def test_missing_lanes_at_rest_are_a_ticket_and_a_low_generation_at_rest_is_nothing(tmp_path: Path) -> None:
    report = look_at(scenario_with(tmp_path, "idle-downshift", event('kind = "link", width = 8')), AT)
    assert codes(report, "GPU 0") == {"pcie.width_idle"}
    assert report.gpus[0].verdict is Verdict.WATCH
    (links,) = (area for area in report.areas if area.area.name == "PCIE")
    assert links.summary is not None
    assert "GPU 0-1 shifted down at rest, which is normal" in links.summary


def test_one_look_knows_what_the_exporter_saw_of_a_link(tmp_path: Path) -> None:
    scenario = scenario_with(tmp_path, "a100-power-capped", event('kind = "link", width = 8', at="100"))
    state = tmp_path / "state"
    state.mkdir()
    config = Config(simulate=scenario.name, state_directory=state)
    assert "pcie.width_from_boot" in codes(look_at(scenario, 300, config=config), "GPU 0")
    with rig(scenario, config=config) as exporter:
        exporter.run(60)
    assert "pcie.width" in codes(look_at(scenario, 300, config=config), "GPU 0")


def test_a_finding_that_follows_from_another_says_so(tmp_path: Path) -> None:
    hot = event('kind = "thermal_throttle", source = "hw", sm_clock_mhz = 600, ambient_celsius = 70', gpu=1)
    report = look_at(scenario_with(tmp_path, "v100-old-driver", hot), AT)
    assert finding(report, "clock.straggler").explained_by == "thermal.hw"
    assert finding(report, "thermal.hw").explained_by == ""


@pytest.mark.parametrize(
    ("peers", "found"), [(0.6, set()), (1.1, {"clock.straggler"})], ids=["lighter work", "the same cap"]
)
def test_the_slowest_at_its_power_limit_is_a_straggler_where_its_peers_are_at_theirs(
    tmp_path: Path, peers: float, found: set[str]
) -> None:
    work = [event(f'kind = "load", utilization = 1.0, intensity = {peers}, jitter = 0.0', gpu=g) for g in (1, 2, 3)]
    harder = event('kind = "load", utilization = 1.0, intensity = 2.2, jitter = 0.0')
    clocks = [event('kind = "application_clock", sm_mhz = 1530', gpu=g) for g in range(4)]
    report = look_at(scenario_with(tmp_path, "v100-old-driver", harder, *work, *clocks), AT)
    assert codes(report, "GPU 0") & {"clock.straggler"} == found


def test_what_may_not_be_read_is_named_with_the_next_step(tmp_path: Path) -> None:
    denied = event('kind = "error", function = "nvmlDeviceGetTotalEccErrors", code = "NO_PERMISSION"')
    report = look_at(scenario_with(tmp_path, "v100-old-driver", denied), AT)
    assert any("ecc: no_permission" in line for line in report.not_read)


def test_nvlink_links_that_are_down_are_found_where_others_are_up(tmp_path: Path) -> None:
    down = event('kind = "nvlink_down", links = [0, 3]', at="52")
    report = look_at(scenario_with(tmp_path, "v100-old-driver", down), AT + 5, seconds=30)
    assert codes(report, "GPU 0") == set(), "they were up for a part of the time"
    report = look_at(scenario_with(tmp_path, "v100-old-driver", event('kind = "nvlink_down", links = [0, 3]')), AT)
    assert finding(report, "nvlink.down").measured == "down: link 0, 3"


@pytest.mark.parametrize(
    ("readings", "code"),
    [
        ([(GPU_THROTTLE_SECONDS_TOTAL, (0.0, 5.0), "hw_slowdown")], "power.hw_slowdown"),
        ([(GPU_ECC_SRAM_THRESHOLD_EXCEEDED, (1.0, 1.0))], "ecc.sram_threshold"),
        ([(GPU_ECC_MODE, (1.0, 1.0)), (GPU_ECC_MODE_PENDING, (0.0, 0.0))], "ecc.mode_pending"),
        ([*HOT], "thermal.margin"),
    ],
)
def test_what_no_scenario_can_stage_is_judged_by_its_readings(
    readings: list[tuple[MetricSpec, tuple[float, float], str]], code: str
) -> None:
    rounds = []
    for number, at in enumerate((0.0, 10.0)):
        samples = [spec.sample(values[number], *GPU, *labels) for spec, values, *labels in readings]
        rounds.append((at, [GPU_UP.sample(1, *GPU), *samples]))
    assert codes(report_of(*rounds), "GPU 0") == {code}


@pytest.mark.parametrize(("loaded", "found"), [(0, {"driver.module_missing"}), (1, set())])
def test_a_kernel_module_that_cuda_needs_is_missing_if_it_is_not_loaded(loaded: int, found: set[str]) -> None:
    module = GPU_KERNEL_MODULE_LOADED.sample(loaded, "nvidia_uvm")
    assert codes(report_of((0.0, [GPU_UP.sample(1, *GPU), module])), "host") == found


DISABLED, DOWN = 'kind = "p2p", status = "disabled_by_regkey"', f'kind = "nvlink_down", links = {list(range(18))}'
JOINED, JOINS = 'kind = "fabric", state = 3', 'kind = "fabric", state = 1'


@pytest.mark.parametrize(
    ("base", "effects", "found"),
    [
        pytest.param("h100-8", (DISABLED,), {"p2p.unavailable"}, id="an administrator disabled peer access"),
        pytest.param("rtx-4070-ti-super", (DISABLED,), set(), id="no pair has it, without NVLink"),
        pytest.param("h100-8", (DOWN,), {"nvlink.down"}, id="all NVLinks are down since the boot"),
        pytest.param("h100-8", (DOWN, JOINED), {"nvlink.down"}, id="and the fabric is up"),
        pytest.param("h100-8", (DOWN, JOINS), set(), id="they wait for the fabric, whose trouble it is"),
    ],
)
def test_what_the_links_of_all_gpus_lack_is_found(
    tmp_path: Path, base: str, effects: tuple[str, ...], found: set[str]
) -> None:
    shipped, gpus = (three_with, range(3)) if base == "h100-8" else (scenario_with, range(2))
    report = look_at(shipped(tmp_path, base, *(event(each, gpu) for each in effects for gpu in gpus)), AT)
    of_each = [codes(report, f"GPU {gpu}") & {"p2p.unavailable", "nvlink.down"} for gpu in gpus]
    assert of_each == [found] * len(gpus)
    troubles = [each.measured for each in report.findings if each.check.code == "fabric.unhealthy"]
    assert troubles == ["GPU 0, 1, 2: has not joined the NVSwitch fabric"] * (JOINS in effects)


def slowed(step: float, *rounds: tuple[bool, bool, float, float]) -> GpuEvidence:
    """A GPU read so often: whether its board and heat slow it down at that moment, and the seconds counted of both."""
    series = [*product((GPU_THROTTLE_ACTIVE, GPU_THROTTLE_SECONDS_TOTAL), ("hw_slowdown", "hw_thermal"))]
    made = []
    for place, values in enumerate(rounds):
        samples = [spec.sample(value, *GPU, reason) for (spec, reason), value in zip(series, values, strict=True)]
        made.append((step * place, [GPU_UP.sample(1, *GPU), *samples]))
    return evidence_of(*made).gpus[0]


@pytest.mark.parametrize(("heat", "counted", "unexplained"), [(True, 0.05, 0.0), (False, 0.0, 0.2)])
def test_slowdown_is_explained_by_the_bits_of_the_same_readings(
    counted: float, unexplained: float, *, heat: bool
) -> None:
    on = [second in {3, 7} for second in range(11)]
    gpu = slowed(1.0, *((now, now and heat, sum(on[: at + 1]), counted * at) for at, now in enumerate(on)))
    assert gpu.unexplained_slowdown == pytest.approx(unexplained)


def test_slowdown_that_was_counted_in_more_readings_is_explained_by_the_bits_of_these() -> None:
    """A judge that looks every half minute at what is read every 15 seconds: on, on, off, on."""
    gpu = slowed(30.0, *((place % 2 == 1, place % 2 == 1, 22.5 * place, 22.5 * place) for place in range(5)))
    assert gpu.throttled("hw_slowdown") == pytest.approx(0.75)
    assert gpu.unexplained_slowdown == 0.0


XID_48, XID_94, ECC = 'kind = "xid", code = 48', 'kind = "xid", code = 94', 'kind = "ecc", uncorrected = 1'
NONFATAL, FATAL = 'kind = "xid", code = 149, fatal = false', 'kind = "xid", code = 149'
NOT_PERSISTENT = 'kind = "persistence_mode", enabled = false'
RESET_LATER, UNLICENSED = 'kind = "recovery_action", action = 4', 'kind = "vgpu_license", licensed = false'


@pytest.mark.parametrize(
    ("base", "effect", "code", "measured"),
    [
        ("dual-a10", "", "numa.mismatch", "GPU on node 0, on far nodes: python (24820) at distance 32"),
        ("v100-old-driver", 'kind = "nvlink_errors", links = [1], replay_per_hour = 7200', "nvlink.errors", ""),
        ("v100-old-driver", 'kind = "nvlink_errors", links = [1], recovery_per_hour = 7200', "nvlink.errors", ""),
        ("v100-old-driver", 'kind = "nvlink_errors", links = [1], crc_per_hour = 7200', "nvlink.errors", ""),
        ("idle-downshift", NOT_PERSISTENT, "policy.persistence", "persistence mode is off"),
        ("idle-downshift", UNLICENSED, "vgpu.unlicensed", "NVIDIA Virtual Compute Server: unlicensed"),
        ("rtx-4070-ti-super", XID_48, "xid.48", "Xid 48, last 60 s ago"),
        ("rtx-4070-ti-super", XID_94, "xid.94", "Xid 94, last 60 s ago"),
        ("rtx-4070-ti-super", 'kind = "xid", code = 998', "xid.unlisted", "Xid 998, last 60 s ago"),
        ("rtx-4070-ti-super", NONFATAL, "xid.nonfatal", "Xid 149 (nonfatal)"),
        ("rtx-4070-ti-super", FATAL, "xid.149", "Xid 149 (fatal)"),
    ],
)
def test_what_is_staged_on_a_gpu_is_found_and_told(
    tmp_path: Path, base: str, effect: str, code: str, measured: str
) -> None:
    report = look_at(scenario_with(tmp_path, base, *([event(effect)] if effect else [])), AT)
    found = finding(report, code)
    assert (found.subject, found.measured.startswith(measured)) == ("GPU 0", True)
    assert " 1 times" not in found.measured


@pytest.mark.parametrize(
    ("effects", "found", "verdict"),
    [
        pytest.param((NONFATAL,), {"xid.nonfatal"}, Verdict.WATCH, id="nonfatal"),
        pytest.param((FATAL,), {"xid.149"}, Verdict.DRAIN, id="fatal"),
        pytest.param(
            (XID_48, XID_94, ECC, RESET_LATER),
            {"xid.94", "ecc.contained", "recovery.drain_and_reset"},
            Verdict.WATCH,
            id="contained",
        ),
        pytest.param((XID_48, ECC), {"xid.48", "ecc.uncorrected"}, Verdict.DRAIN, id="not contained"),
    ],
)
def test_only_what_is_fatal_or_not_contained_drains(
    tmp_path: Path, effects: tuple[str, ...], found: set[str], verdict: Verdict
) -> None:
    report = look_at(scenario_with(tmp_path, "idle-downshift", *map(event, effects)), AT)
    assert codes(report, "GPU 0") >= found
    assert report.gpus[0].verdict is verdict
    assert (report.gpus[0].bottleneck.name == "sick") is (verdict is Verdict.DRAIN)


RESET_NOW, UNSAID = 'kind = "recovery_action", action = 1', f'{FATAL}, message = "NETIR_LINK_EVT"'
CHANGED = 'kind = "xid", code = 154, message = "GPU recovery action changed'


@pytest.mark.parametrize(
    ("base", "effects", "found"),
    [
        # The driver goes on after the first two timeouts of the GSP, and resets the GPU after three in a row.
        ("h100-8", ('kind = "xid", code = 119, times = 2',), {"xid.gsp_slow"}),
        ("h100-8", ('kind = "xid", code = 119, times = 3',), {"xid.119"}),
        ("h100-8", ('kind = "xid", code = 119', RESET_NOW), {"xid.119", "recovery.action"}),
        # Whether an error of NVLink 5 is fatal is in the kernel log alone.
        ("h100-8", (UNSAID,), {"xid.nonfatal"}),
        ("h100-8", (UNSAID, RESET_NOW), {"xid.nonfatal", "recovery.action"}),
        # What the driver asks for now outranks what it said: "None" withdraws it.
        ("h100-8", (f'{CHANGED} from 0x0 (None) to 0x1 (GPU Reset Required)"',), set()),
        ("v100-old-driver", (f'{CHANGED} from 0x0 (None) to 0x1 (GPU Reset Required)"',), {"xid.154"}),
        ("v100-old-driver", (f'{CHANGED} from 0x1 (GPU Reset Required) to 0x0 (None)"',), set()),
    ],
)
def test_an_xid_is_as_bad_as_what_the_driver_makes_of_it(
    tmp_path: Path, base: str, effects: tuple[str, ...], found: set[str]
) -> None:
    told = codes(look_at(scenario_with(tmp_path, base, *map(event, effects)), AT), "GPU 0")
    assert {code for code in told if code.startswith(("xid.", "recovery."))} == found


def test_an_old_nonfatal_xid_is_not_told_as_a_critical_one_of_earlier(tmp_path: Path) -> None:
    assert codes(look_at(scenario_with(tmp_path, "rtx-4070-ti-super", event(NONFATAL)), 3700), "GPU 0") == set()


def test_a_few_xids_of_an_application_are_its_own_business(tmp_path: Path) -> None:
    few = scenario_with(tmp_path, "rtx-4070-ti-super", event('kind = "xid", code = 31, times = 3'))
    assert {each.check.code for each in look_at(few, AT).findings} <= {"p2p.through_host"}
    many = scenario_with(tmp_path, "rtx-4070-ti-super", event('kind = "xid", code = 31, times = 4'))
    assert codes(look_at(many, AT), "GPU 0") == {"xid.31"}


RESET = 'at = 120\nuntil = 180\neffect = { kind = "driver_not_loaded" }'


@pytest.mark.parametrize(
    ("events", "at", "found"),
    [
        pytest.param((event(XID_48),), 3000, "xid.48", id="for an hour"),
        pytest.param((event(XID_48),), 7200, "xid.earlier", id="after that it is mentioned"),
        pytest.param((event(XID_48), event(RESET_NOW)), 7200, "xid.48", id="for as long as the damage lasts"),
        pytest.param((event(XID_48), RESET), 400, "xid.earlier", id="until a reset"),
    ],
)
def test_how_long_a_critical_xid_drains(tmp_path: Path, events: tuple[str, ...], at: int, found: str) -> None:
    report = look_at(scenario_with(tmp_path, "idle-downshift", *events), at)
    assert {code for code in codes(report, "GPU 0") if code.startswith("xid.")} == {found}
    drains = {event(RESET_NOW) in events, found == "xid.48"} & {True}
    assert report.gpus[0].verdict is (Verdict.DRAIN if drains else Verdict.KEEP)
