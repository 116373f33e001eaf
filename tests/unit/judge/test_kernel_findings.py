"""What `check` finds in the kernel log of a host."""

from pathlib import Path

import pytest
from tests.evidence import evidence_of
from tests.judged import judged
from tests.one_shot import codes, finding, look_at
from tests.rig import only, scenario_with

from gpu_triage.judge.conditions.host import judge_kernel
from gpu_triage.judge.evidence.wording import length_of_time
from gpu_triage.judge.findings.verdicts import Verdict
from gpu_triage.read.gpu.presence import GPU_DEVICES, GPU_DRIVER_ERROR_INFO
from gpu_triage.read.host import cpu, host_memory, kernel_log, nfs
from gpu_triage.read.incidents.incident_metrics import GPU_RESET_TIMESTAMP_SECONDS
from gpu_triage.read.metrics.metric import MetricSpec, Sample

pytestmark = pytest.mark.slow

WALL = 1_768_435_200.0


def said(kind: str, subject: str, ago: float) -> Sample:
    return kernel_log.GPU_HOST_KERNEL_EVENT_LAST_TIMESTAMP_SECONDS.sample(WALL - ago, kind, subject)


def found(*samples: Sample) -> dict[str, str]:
    host = evidence_of((0.0, samples), wall=WALL)
    return {each.check.code: each.measured for each in judge_kernel(host)}


@pytest.mark.parametrize(
    ("kind", "subject", "ago", "code"),
    [
        ("pcie_dpc", "0000:a9:10.0", 80_000, "pcie.dpc"),
        ("iommu_fault", "0000:a9:00.0", 60, "host.iommu_fault"),
        ("irq_disabled", "IRQ 16", 700_000, "host.kernel_fault"),
        ("memory_uncorrected", "P1-DIMMA1", 3000, "host.hardware_error"),
        ("hardware_uncorrected", "", 60, "host.hardware_error"),
        ("soft_lockup", "CPU 3", 60, "host.lockup"),
        ("filesystem_read_only", "sda3", 700_000, "storage.read_only"),
        ("nvme_reset", "nvme2", 3000, "storage.nvme"),
        ("nfs_not_responding", "nas01", 80_000, "storage.not_responding"),
        ("cpu_thermal", "package", 60, "cpu.thermal"),
        ("gsp_timeout", "GPU 6", 700_000, "gpu.gsp_timeout"),
        ("gsp_timeout", "", 60, "gpu.gsp_timeout"),
        ("nvswitch_version_mismatch", "program 450.51.06", 60, "fabric.version_mismatch"),
        ("adapter_power", "0000:5c:00.0", 80_000, "network.adapter_power"),
        ("peermem_error", "x", 60, "network.peermem"),
        ("gpu_bound_elsewhere", "0000:01:00.0", 200_000, "driver.bound_elsewhere"),
        ("gpu_init_failed", "0000:01:00.0", 60, "driver.init_failed"),
        ("gpu_unpowered", "0000:01:00.0", 60, "driver.power_cables"),
    ],
)
def test_a_message_is_a_finding_with_its_subject_and_its_age(kind: str, subject: str, ago: float, code: str) -> None:
    host = evidence_of((0.0, [said(kind, subject, ago)]), wall=WALL)
    (finding,) = judge_kernel(host)
    assert finding.check.code == code
    assert subject in f"{finding.measured} {finding.pci_bus_id}"
    assert finding.measured.endswith(f"last {length_of_time(ago)} ago")


@pytest.mark.parametrize(
    "sample",
    [
        said("soft_lockup", "CPU 3", 601),
        said("iommu_fault", "0000:a9:00.0", 601),
        said("module_rejected", "unsigned module", 1),
        said("hardware_uncorrected", "CPU 3", 3601),
        said("nvme_reset", "nvme2", 3601),
        said("adapter_hot", "0000:5c:00.0", 3601),
        said("nvswitch_version_mismatch", "program 450.51.06", 3601),
        said("hardware_corrected", "CPU 3", 1),
        said("memory_corrected", "MC0", 1),
        said("hung_task", "jbd2 (911)", 1),
        said("gpu_init_failed", "0x25:0x40:1084", 1),
        said("driver_version_mismatch", "client 1.2, kernel module 1.3", 1),
        said("pcie_corrected", "0000:09:00.0", 1),
        said("adapter_link_down", "mlx5_5 port 1", 1),
    ],
)
def test_what_is_over_was_corrected_or_passes_by_itself_is_no_finding(sample: Sample) -> None:
    assert found(sample) == {}


def test_why_the_driver_does_not_answer_is_told_while_it_does_not() -> None:
    unavailable = GPU_DRIVER_ERROR_INFO.sample(1, "version_mismatch")
    assert found(unavailable, said("driver_version_mismatch", "client 1.2, kernel module 1.3", 90_000)) == {
        "driver.version_mismatch": "client 1.2, kernel module 1.3, last 25 h ago"
    }
    not_loaded = GPU_DRIVER_ERROR_INFO.sample(1, "driver_not_loaded")
    rejected = found(not_loaded, said("module_rejected", "unsigned module", 90_000))
    assert rejected == {"driver.module_rejected": "unsigned module, last 25 h ago"}


@pytest.mark.parametrize(("shown", "codes"), [(7, {"driver.init_failed"}), (8, set())])
def test_why_a_gpu_failed_is_told_while_one_is_missing(shown: int, codes: set[str]) -> None:
    counts = (GPU_DEVICES.sample(shown, "nvml"), GPU_DEVICES.sample(8, "pci"))
    assert set(found(*counts, said("gpu_init_failed", "0000:01:00.0", 90_000))) == codes


def test_a_gsp_that_timed_out_before_a_gpu_was_reset_is_over() -> None:
    reset = GPU_RESET_TIMESTAMP_SECONDS.sample(WALL - 30, "6", "GPU-6")
    assert found(reset, said("gsp_timeout", "GPU 6", 60)) == {}
    assert set(found(reset, said("gsp_timeout", "GPU 6", 20))) == {"gpu.gsp_timeout"}


@pytest.mark.parametrize(("rates", "codes"), [((4.0, 0.0), {"storage.not_responding"}), ((4.0, 1.0), set())])
def test_a_server_is_silent_until_every_nfs_mount_has_answers(rates: tuple[float, ...], codes: set[str]) -> None:
    """No OK is logged, if what waited for it was killed; nothing tells which server a mount has."""
    old, new = said("nfs_not_responding", "nas01", 600), said("nfs_not_responding", "nas01", 20)
    rounds = [
        (at, [nfs.GPU_HOST_NFS_OPERATIONS_TOTAL.sample(rate * at, f"/{i}", "READ") for i, rate in enumerate(rates)])
        for at in (0.0, 60.0)
    ]
    for event, expected in ((old, codes), (new, {"storage.not_responding"})):
        host = evidence_of(*((at, [*samples, event]) for at, samples in rounds), wall=WALL)
        assert {each.check.code for each in judge_kernel(host)} == expected


def test_tasks_that_hang_together_are_one_finding() -> None:
    tasks = [said("hung_task", f"python3 ({pid})", 60) for pid in range(5)]
    (measured,) = found(*tasks).values()
    assert [measured.count("python3"), measured.endswith("; 2 more")] == [3, True]


@pytest.mark.parametrize(
    ("owner", "words"),
    [(("", "", "4711"), " of Slurm job 4711"), (("", "0a1b", ""), " of pod 0a1b"), (("", "", ""), "")],
)
def test_a_killed_process_is_told_with_its_job(owner: tuple[str, str, str], words: str) -> None:
    kill = kernel_log.GPU_HOST_OOM_KILL_TIMESTAMP_SECONDS.sample(WALL - 60, "4242", "python3", *owner)
    old = kernel_log.GPU_HOST_OOM_KILL_TIMESTAMP_SECONDS.sample(WALL - 901, "4243", "python3", *owner)
    assert found(kill, old) == {"memory.oom_killed": f"the kernel killed python3 (4242){words}, 60 s ago"}


def test_a_filesystem_that_is_read_only_drains_the_host(tmp_path: Path) -> None:
    message = '["EXT4-fs (nvme0n1p2): Remounting filesystem read-only"]'
    event = f'at = 10\neffect = {{ kind = "kernel_messages", texts = {message} }}'
    report = look_at(scenario_with(tmp_path, "rtx-4070-ti-super", event), 60.0)
    assert codes(report, "host") == {"storage.read_only", "p2p.through_host"}
    assert finding(report, "storage.read_only").measured.startswith("the filesystem on nvme0n1p2 went read-only, last ")
    assert report.verdict is Verdict.DRAIN
    assert {gpu.verdict for gpu in report.gpus} == {Verdict.KEEP}


def counted(spec: MetricSpec, seconds: float, before: float, now: float, *labels: str) -> dict[str, str]:
    """What is found of a counter that had one value and has another one after so long."""
    rounds = ((at, [spec.sample(value, *labels)]) for at, value in ((0.0, before), (seconds, now)))
    return {each.check.code: each.measured for each in judge_kernel(evidence_of(*rounds, wall=WALL))}


@pytest.mark.parametrize(
    ("severity", "code", "when"),
    [("uncorrected", "host.hardware_error", "lately"), ("corrected", "host.memory_errors", "just now")],
)
def test_errors_that_memory_controllers_count_now_are_found(severity: str, code: str, when: str) -> None:
    measured = f"2 {severity} memory errors {when}, of memory controller mc0"
    assert counted(host_memory.GPU_HOST_EDAC_ERRORS_TOTAL, 30.0, 5, 7, "mc0", severity) == {code: measured}
    assert counted(host_memory.GPU_HOST_EDAC_ERRORS_TOTAL, 30.0, 5, 5, "mc0", severity) == {}


def test_the_memory_module_with_the_errors_is_named_and_none_of_a_controller_without_any() -> None:
    errors = host_memory.GPU_HOST_EDAC_ERRORS_TOTAL, ("mc0", "uncorrected")
    module, other = (
        (host_memory.GPU_HOST_EDAC_DIMM_ERRORS_TOTAL, (controller, "dimm0", name, "uncorrected"))
        for controller, name in (("mc0", "DIMM_A1"), ("mc1", "DIMM_B1"))
    )
    rounds = ((at, [spec.sample(at, *labels) for spec, labels in (errors, module, other)]) for at in (1.0, 3.0))
    (found,) = judge_kernel(evidence_of(*rounds, wall=WALL))
    assert found.detail == "memory controller mc0, DIMM_A1"


def test_a_kernel_log_that_lost_records_is_found() -> None:
    ((code, measured),) = counted(kernel_log.GPU_HOST_KERNEL_LOG_LOST_RECORDS_TOTAL, 30.0, 0, 120).items()
    assert code == "host.kernel_log_lost"
    assert measured.startswith("120 records of the kernel log were lost ")


@pytest.mark.parametrize(("seconds", "hot"), [(2.0, False), (15.0, True)])
def test_processors_that_count_heat_are_found(seconds: float, *, hot: bool) -> None:
    found = counted(cpu.GPU_HOST_CPU_THROTTLED_SECONDS_TOTAL, 60.0, 100.0, 100.0 + seconds, "1")
    assert found == ({"cpu.thermal": "CPUs of NUMA node 1 too hot for 25% of the time"} if hot else {})


@pytest.mark.parametrize(("at", "found_codes"), [(50.0, set()), (130.0, {"work.blocked"})])
def test_a_process_that_hangs_in_the_kernel_is_found_after_a_minute(
    tmp_path: Path, at: float, found_codes: set[str]
) -> None:
    event = 'at = 5\neffect = { kind = "blocked", pids = [5120], wait_channel = "uvm_ioctl" }'
    lean = only("power", "activity", "processes", "identity", sample_fast_seconds=5.0)
    with judged(scenario_with(tmp_path, "rtx-4070-ti-super", event), lean) as watched:
        watched.run_to(at)
        report = watched.report
        assert (codes(report, "GPU 0"), codes(report, "GPU 1")) == (found_codes, set())
        if found_codes:
            assert "(5120) has waited in uvm_ioctl for " in finding(report, "work.blocked").measured


@pytest.mark.parametrize(
    ("settings", "busy", "found_codes"),
    [
        ('governor = "powersave", frequency_ratio = 0.21', True, {"cpu.slow_clock"}),
        ('governor = "powersave", frequency_ratio = 0.21', False, set()),
        ('governor = "powersave", frequency_ratio = 0.5', True, set()),
        ('clock_source = "hpet"', False, {"host.clock_source"}),
        ('clock_source = "kvm-clock"', False, set()),
    ],
)
def test_settings_that_make_every_cpu_slow_are_found(
    tmp_path: Path, settings: str, found_codes: set[str], *, busy: bool
) -> None:
    events = [f'at = 0\neffect = {{ kind = "cpu_settings", {settings} }}']
    events += ['at = 0\neffect = { kind = "cpu", saturated_cpus = "3" }'] if busy else []
    report = look_at(scenario_with(tmp_path, "rtx-4070-ti-super", *events), 60.0)
    assert codes(report, "host") - {"cpu.saturated", "p2p.through_host"} == found_codes


@pytest.mark.parametrize(("more", "name"), [("", "storage"), (', "nfs: server nas01 OK"', "unattributed")])
def test_gpus_that_wait_while_a_file_server_is_silent_wait_for_storage(tmp_path: Path, more: str, name: str) -> None:
    silent = '"nfs: server nas01 not responding, still trying"'
    events = [
        'at = 0\neffect = { kind = "load", utilization = 0.3 }',
        f'at = 5\neffect = {{ kind = "kernel_messages", texts = [{silent}{more}] }}',
    ]
    report = look_at(scenario_with(tmp_path, "rtx-4070-ti-super", *events), 60.0)
    assert {gpu.bottleneck.name for gpu in report.gpus} == {name}
    assert ("storage.starved" in codes(report, "host")) is (name == "storage")
