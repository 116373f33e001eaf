"""What nvidia-smi -q says, as text and as XML, judged as a live host is."""

from pathlib import Path

import pytest
from click import unstyle
from tests.offline_files import UUID, XML, assert_found, codes, report_on_text, smi, smi_gpu, summary

from gpu_triage.errors import ConfigError
from gpu_triage.judge.findings.table import Area
from gpu_triage.judge.findings.verdicts import Verdict
from gpu_triage.judge.report.text import render_text


def test_a_sound_gpu_is_read_and_kept(tmp_path: Path) -> None:
    report = report_on_text(tmp_path, smi(smi_gpu()))
    assert codes(report) == []
    assert [(gpu.name, gpu.pci_bus_id, gpu.verdict) for gpu in report.gpus] == [
        ("NVIDIA H100 80GB HBM3", "0000:41:00.0", Verdict.KEEP)
    ]
    assert report.driver == "580.95.05"
    assert report.verdict is Verdict.KEEP
    assert [(file.kinds, file.written) for file in report.files] == [(("nvidia-smi -q",), "2026-03-14 10:00:00")]


def test_a_file_without_a_list_of_processes_calls_no_gpu_idle(tmp_path: Path) -> None:
    text = smi(smi_gpu(facts={"busy": "0 %"})).partition("    Processes")[0].replace(": 1\n", ": 4\n")
    report = report_on_text(tmp_path, text)
    assert report.gpus[0].bottleneck.name == "unattributed"
    assert any("3 of 4 GPUs that nvidia-smi counts" in line for line in report.not_read)


def test_one_section_of_nvidia_smi_tells_what_it_holds(tmp_path: Path) -> None:
    text = smi(
        "GPU 00000000:41:00.0\n    ECC Mode\n        Current : Enabled\n        Pending : Enabled\n"
        "    ECC Errors\n        Volatile\n            DRAM Uncorrectable : 0\n"
    )
    report = report_on_text(tmp_path, text)
    assert summary(report, Area.HEALTH) == "ECC on for 1 of 1; ECC errors since the driver was loaded: 0 uncorrected"
    assert summary(report, Area.PCIE) is None


def test_links_and_errors_of_the_moment_are_told(tmp_path: Path) -> None:
    gpus = [smi_gpu(facts={"generation": "1", "state": "P8", "busy": "0 %", "correctable": "4"}), smi_gpu(1)]
    report = report_on_text(tmp_path, smi(*gpus))
    assert str(summary(report, Area.PCIE)).endswith("now 1 x gen 1 x16, 1 x gen 5 x16")
    assert "since the driver was loaded: 4 corrected, 0 uncorrected" in str(summary(report, Area.HEALTH))
    assert str(summary(report, Area.HEALTH)).endswith("over the lifetime of GPU 0-1: 7 corrected, 0 uncorrected")


def test_one_snapshot_tells_no_share_of_time(tmp_path: Path) -> None:
    report = report_on_text(tmp_path, smi(smi_gpu(facts={"hw thermal": "Active", "limit": "400.00 W"})))
    assert not any("of the time" in finding.measured for finding in report.findings)
    assert "GPU 0 held by hw_slowdown, hw_thermal at that moment" in str(summary(report, Area.CLOCKS))
    assert any(line.startswith("rates, such as the share of time it throttled") for line in report.not_read)


def test_one_output_as_text_and_xml_is_one_moment(tmp_path: Path) -> None:
    report = report_on_text(tmp_path, smi(smi_gpu()), smi(smi_gpu(), smi_gpu(1)))
    assert (len(report.gpus), report.measured_seconds) == (2, 0)


def test_files_of_different_hosts_are_refused(tmp_path: Path) -> None:
    other = smi(smi_gpu(facts={"uuid": "GPU-99999999-1111-2222-3333-444444444444"}), at="Sat Mar 14 11:00:00 2026")
    with pytest.raises(ConfigError, match="different hosts"):
        report_on_text(tmp_path, smi(smi_gpu()), other)


def test_what_is_not_in_the_files_is_not_called_ok(tmp_path: Path) -> None:
    report = report_on_text(tmp_path, smi(smi_gpu(), smi_gpu(1)))
    assert (summary(report, Area.HOST), summary(report, Area.PEERS)) == (None, None)
    assert "not read  host resources       not in these files" in unstyle(render_text(report))
    assert "no source of Xid errors" in str(summary(report, Area.HEALTH))


HANDLE = "Unable to determine the device handle for"


@pytest.mark.parametrize(
    ("texts", "code", "subject"),
    [
        ((smi(smi_gpu()), f"{HANDLE} GPU0000:42:00.0: GPU is lost.  Reboot"), "gpu.lost", "GPU 1"),
        ((smi(smi_gpu()), f"{HANDLE} GPU 0000:42:00.0: Unknown Error"), "gpu.lost", "GPU 1"),
        ((smi(smi_gpu()), f"{HANDLE} GPU1: 0000:42:00.0: Unknown Error"), "gpu.lost", "GPU 1"),
        # By its address if how many come before it is unknown, and by its index if there is nothing else.
        ((f"{HANDLE} GPU 0000:C1:00.0: Unknown Error\n",), "gpu.lost", "GPU 0000:c1:00.0"),
        ((f"{HANDLE} GPU3: Unknown Error\n",), "gpu.lost", "GPU 3"),
        ((f"{smi(smi_gpu())}\nWARNING: infoROM is corrupted at gpu 0000:41:00.0\n",), "gpu.inforom", "GPU 0"),
    ],
)
def test_a_gpu_with_a_complaint_is_named(tmp_path: Path, texts: tuple[str, ...], code: str, subject: str) -> None:
    report = report_on_text(tmp_path, *texts)
    assert [(finding.check.code, finding.subject) for finding in report.findings] == [(code, subject)]


def test_single_errors_of_a_gpu_that_answers_are_named(tmp_path: Path) -> None:
    report = report_on_text(tmp_path, smi(smi_gpu(facts={"power": "ERR!"})))
    assert codes(report) == []
    assert any("power draw" in line for line in report.not_read)


@pytest.mark.parametrize(
    ("text", "found", "blocked"),
    [
        ("Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 535.161",
         ["driver.unavailable"], "version_mismatch"),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.",
         ["driver.unavailable"], "driver_not_loaded"),
        ("No devices were found\n", [], "found no device"),
    ],
)  # fmt: skip
def test_why_there_are_no_gpus_is_told(tmp_path: Path, text: str, found: list[str], blocked: str) -> None:
    report = report_on_text(tmp_path, text)
    assert codes(report) == found
    assert blocked in (report.blocked or "")


DRIVER_390 = (Path(__file__).parent / "files/driver-390.txt").read_text(encoding="utf-8")


def nvlinks(*states: str) -> str:
    """What nvidia-smi nvlink --status prints; of each GPU a letter a link: u for up, d for down."""
    said = {"u": "26.562 GB/s", "d": "<inactive>"}
    return "".join(
        f"GPU {place}: NVIDIA H100 80GB HBM3 (UUID: {UUID.format(place)})\n"
        + "".join(f"\t Link {number}: {said[state]}\n" for number, state in enumerate(links))
        for place, links in enumerate(states)
    )


def sick(facts: dict[str, str]) -> tuple[str, ...]:
    return (smi(smi_gpu(facts=facts, processes=["77 python3"])),)


def silent(words: str) -> tuple[str, ...]:
    """A GPU of which most values are these words, after one that answers."""
    facts = ("busy", "heat", "power", "limit", "state", "generation", "width", "replays")
    return (smi(smi_gpu(), smi_gpu(1, facts=dict.fromkeys(facts, words))),)


def renamed(name: str) -> tuple[str, ...]:
    """A section under this name at two moments, between which a counter in it rose."""
    second = smi_gpu(facts={"reasons": name, "hw thermal us": "30000000 us"})
    return smi(smi_gpu(facts={"reasons": name})), smi(second, at="Sat Mar 14 10:01:00 2026")


def linked(*states: str) -> tuple[str, ...]:
    return smi(smi_gpu(), smi_gpu(1), smi_gpu(2)), nvlinks(*states)


XML_FOUND = {"ecc.uncorrected": "", "pcie.width_from_boot": ""}
FOUND: list[tuple[tuple[str, ...], dict[str, str]]] = [
    (sick({"uncorrectable": "3"}), {"ecc.uncorrected": ""}),
    (sick({"remap pending": "Yes"}), {"memory.row_remap_pending": ""}),
    (sick({"remap failure": "Yes"}), {"memory.row_remap_failure": ""}),
    (sick({"recovery": "GPU Reset"}), {"recovery.action": ""}),
    (sick({"recovery": "Drain and Reset"}), {"recovery.drain_and_reset": ""}),
    (sick({"width": "8x"}), {"pcie.width_from_boot": ""}),
    (sick({"width": "8x", "state": "P8", "busy": "0 %"}), {"pcie.width_from_boot": ""}),
    (sick({"generation": "3"}), {"pcie.generation": ""}),
    (sick({"margin": "2 C"}), {"thermal.margin": ""}),
    (sick({"limit": "400.00 W"}), {"power.limit": ""}),
    (sick({"persistence": "Disabled"}), {"policy.persistence": ""}),
    # At rest, a link has a low generation, and one output does not tell how long a busy GPU draws little power.
    (sick({"generation": "1", "state": "P8", "busy": "0 %"}), {}),
    (sick({"busy": "100 %", "power": "120.00 W"}), {}),
    (silent("GPU is lost"), {"gpu.lost": "GPU lost: the driver cannot reach it"}),
    (silent("[GPU requires reset]"), {"gpu.lost": "GPU unusable: the driver asks for a reset of it"}),
    (silent("Unknown Error"), {"gpu.lost": "does not answer (unknown)"}),
    (renamed("Clocks Event Reasons"), {"thermal.hw": ""}),
    (renamed("Clocks Throttle Reasons"), {"thermal.hw": ""}),
    (
        (DRIVER_390,),  # old drivers call errors single and double bit
        {
            "ecc.uncorrected": "1 uncorrected errors since the driver was loaded",
            "memory.retired_pages_pending": "",
            "power.limit": "limit 200 W, default 250 W",
        },
    ),
    *(((text,), XML_FOUND) for text in (XML, XML.replace("\n", ""), XML.partition("</processes>")[0])),
    # A link that is down on every GPU leads nowhere.
    (linked("uuu", "uuu", "uuu"), {}),
    (linked("uud", "uud", "uud"), {}),
    (linked("ddd", "ddd", "ddd"), {}),
    (linked("uuu", "udu", "uuu"), {"nvlink.down": "down: link 1"}),
]


@pytest.mark.parametrize(("texts", "found"), FOUND)
def test_what_outputs_say_of_gpus(tmp_path: Path, texts: tuple[str, ...], found: dict[str, str]) -> None:
    report = report_on_text(tmp_path, *texts)
    assert_found(report, found)
    if "gpu.lost" in found:
        assert [gpu.verdict for gpu in report.gpus] == [Verdict.KEEP, Verdict.DRAIN]
    if found is XML_FOUND:
        assert report.gpus[0].name == "Tesla & Co"
    if len(report.gpus) == 3:
        assert not any("nvlink --status" in line for line in report.not_read)
