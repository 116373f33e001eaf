"""Failures as NVIDIA's modules print them, and PCIe errors and adapters as Linux does, each with what is understood."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_triage.read.host.driver_messages import (
    AT_PROBE,
    UNTIL_LOADED,
    DriverMessage,
    PcieError,
    parse_device_message,
    parse_device_over,
    parse_driver_message,
    parse_failing_gpu,
    parse_pcie_error,
)
from gpu_triage.read.host.kernel_messages import HostMessage, ProblemKind, ProblemResolved, parse_host_message


def nvrm(*lines: str) -> str:
    """A sentence of the driver over several lines, each with its prefix, as one record of the kernel log."""
    return "\n".join(f"NVRM: {line}" for line in lines)


SAME_VERSION = ("make sure that this kernel module and all NVIDIA driver", "components have the same version.")
FROM_570 = ("kernel module and all NVIDIA driver components", "have the same version.")

DRIVER = [
    (
        nvrm(
            "API mismatch: the client has the version 390.25, but",
            "this kernel module has the version 390.12.  Please",
            *SAME_VERSION,
        ),
        ("driver_version_mismatch", "client 390.25, kernel module 390.12"),
    ),
    (
        nvrm(
            "API mismatch: the client 'kwin_wayland' (pid 1005)",
            "has the version 595.84, but this kernel module has",
            "the version 595.80.  Please make sure that this",
            *FROM_570,
        ),
        ("driver_version_mismatch", "client 595.84, kernel module 595.80"),
    ),
    (
        nvrm(
            "API mismatch: the client 'a (pid 7) has the version 1.1' (pid 4242)",
            "has the version 595.71.05, but this kernel module has",
            "the version 595.80.  Please",
        ),
        ("driver_version_mismatch", "client 595.71.05, kernel module 595.80"),
    ),
    (nvrm("API mismatch: the client has the version 304.137, but"), ("driver_version_mismatch", "client 304.137")),
    (
        nvrm("this kernel module has the version 535.154.05.  Please"),
        ("driver_version_mismatch", "kernel module 535.154.05"),
    ),
    (
        nvrm(
            "The NVIDIA GPU 0000:b3:00.0",
            "(PCI ID: 10de:26b5) installed in this system has",
            "fallen off the bus and is not responding to commands.",
        ),
        ("gpu_lost_at_probe", "0000:b3:00.0"),
    ),
    (
        nvrm(
            "The NVIDIA GPU 0000:01:00.0 (PCI ID: 10de:1381)",
            "installed in this system is not supported by the 570.133.07",
            "NVIDIA driver release.",
            "Please see 'Appendix A",
        ),
        ("gpu_unsupported", "0000:01:00.0"),
    ),
    (
        nvrm(
            "The NVIDIA GPU 0000:2d:00.0 (PCI ID: 10de:2b85)",
            "installed in this system requires use of the NVIDIA open kernel modules.",
        ),
        ("gpu_unsupported", "0000:2d:00.0"),
    ),
    (
        nvrm(
            "The NVIDIA GeForce GT 730 GPU installed in this system is",
            " supported through the NVIDIA 470.xx Legacy drivers. Please",
            " visit http://www.nvidia.com",
        ),
        ("gpu_unsupported", "is supported through the NVIDIA 470.xx Legacy drivers"),
    ),
    ("NVRM: GPU 0000:01:00.0 is already bound to NovaCore.", ("gpu_bound_elsewhere", "0000:01:00.0")),
    ("NVRM: GPU 0000:01:00.0 is already bound to nouveau.", ("gpu_bound_elsewhere", "0000:01:00.0")),
    ("NVRM: The NVIDIA probe routine was not called for 2 device(s).", ("gpu_not_probed", "2")),
    ("NVRM: The NVIDIA probe routine failed for 1 device(s).", ("gpu_probe_failed", "1")),
    ("NVRM: No NVIDIA devices probed.", ("driver_not_loaded", "")),
    ("NVRM: None of the NVIDIA devices were initialized.", ("driver_not_loaded", "")),
    ("NVRM: None of the NVIDIA graphics adapters were initialized!", ("driver_not_loaded", "")),
    ("NVRM: GPU 0000:42:00.0: RmInitAdapter failed! (0x62:0x40:2393)", ("gpu_init_failed", "0000:42:00.0")),
    ("NVRM: RmInitAdapter failed! (0x25:0x40:1084)", ("gpu_init_failed", "0x25:0x40:1084")),
    ("NVRM: GPU0 RmInitAdapter: Cannot initialize GSP firmware RM", ("gsp_init_failed", "GPU 0")),
    ("NVRM: _kgspBootGspRm: unexpected WPR2 already up, cannot proceed with booting GSP", ("gsp_init_failed", "")),
    (
        "NVRM: GPU6 _kgspIsHeartbeatTimedOut: Heartbeat timed out, currentTimeMs 812751949 heartbeat 1899482",
        ("gsp_timeout", "GPU 6"),
    ),
    (
        "NVRM: GPU6 _kgspLogRpcTimeout: ********************************* GSP Timeout ********************************",
        ("gsp_timeout", "GPU 6"),
    ),
    (
        "NVRM: _kgspLogXid119: ********************************* GSP Timeout **********************************",
        ("gsp_timeout", ""),
    ),
    ("NVRM: _issueRpcAndWait: rpcRecvPoll timedout for fn 76!", ("gsp_timeout", "")),
    ("NVRM: GPU3 _issueRpcAndWait: rpcRecvPoll timedout for fn 76 sequence 41!", ("gsp_timeout", "GPU 3")),
    (
        nvrm("This PCI I/O region assigned to your NVIDIA device is invalid:", "BAR1 is 0M @ 0x0 (PCI:0000:42:00.0)"),
        ("gpu_bar", "0000:42:00.0"),
    ),
    ("NVRM: GPU 0000:42:00.0: the InfoROM is corrupted", ("inforom_corrupted", "0000:42:00.0")),
    (
        "nvidia-nvswitch: Version mismatch, kernel version 450.80.02 user version 450.51.06",
        ("nvswitch_version_mismatch", "kernel module 450.80.02, program 450.51.06"),
    ),
    (
        "nvidia-nvlink: nvlink_lib_ctrl: version mismatch, kernel version 570.86.15 user version 570.9",
        ("nvswitch_version_mismatch", "kernel module 570.86.15, program 570.9"),
    ),
    (
        "nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context, skipping further processing",
        ("peermem_error", "detected invalid context, skipping further processing"),
    ),
]

DEVICES = [
    (
        "nvidia 0000:09:00.0: PCIe Bus Error: severity=Corrected, type=Data Link Layer",
        ("pcie_corrected", "0000:09:00.0"),
    ),
    ("nvme 0000:03:00.0: PCIe Bus Error: severity=Uncorrectable (Fatal), type=x", ("pcie_uncorrected", "0000:03:00.0")),
    (
        "mlx5_core 0000:5c:00.0: mlx5_pcie_event:299:(pid 268269): Detected insufficient power on the PCIe slot (27W).",
        ("adapter_power", "0000:5c:00.0"),
    ),
    (
        "mlx5_core 0000:5c:00.0: Port module event[error]: module 0, Cable error, Power budget exceeded",
        ("adapter_power", "0000:5c:00.0"),
    ),
    (
        (
            "mlx5_core 0000:5c:00.0: mlx5_port_module_event:1131:(pid 0): Port module event[error]: module 0, "
            "Cable error, Bad or shorted cable/module"
        ),
        ("adapter_module", "0000:5c:00.0"),
    ),
    (
        "mlx5_core 0000:5c:00.0: temp_warn:162:(pid 0): High temperature on sensors with bit set 0 1",
        ("adapter_hot", "0000:5c:00.0"),
    ),
    ("mlx5_core 0000:5c:00.0 ens1f0np0: Link down", ("adapter_link_down", "ens1f0np0")),
    ("mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link DOWN", ("adapter_link_down", "mlx5_5 port 1")),
]


@pytest.mark.parametrize(("text", "understood"), DRIVER, ids=lambda each: str(each)[:50])
def test_a_failure_of_the_driver_is_understood(text: str, understood: tuple[str, str]) -> None:
    said = parse_driver_message(text)
    assert said is not None
    assert (said.trouble.value, said.subject) == understood
    assert parse_host_message(text) is None
    assert parse_device_message(text) is None


@pytest.mark.parametrize(("text", "understood"), DEVICES, ids=lambda each: str(each)[:50])
def test_trouble_of_a_device_is_understood(text: str, understood: tuple[str, str]) -> None:
    said = parse_device_message(text)
    assert said == HostMessage(ProblemKind(understood[0]), understood[1])
    assert parse_host_message(text) is None
    assert parse_driver_message(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  595.71.05  Release Build",
        "NVRM: Xid (PCI:0000:61:00): 119, pid=977823, name=nvidia-smi, Timeout waiting for RPC from GSP!",
        "NVRM: GPU 0000:41:00.0: GPU has fallen off the bus.",
        "NVRM: GPU at PCI:0000:41:00: GPU-5fc0bcec",
        "NVRM: make sure that this kernel module and all NVIDIA driver",
        "NVRM: nvAssertOkFailedNoLog: Assertion failed: Call timed out [NV_ERR_TIMEOUT] (0x00000065)",
        "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
        "nvidia-modeset: WARNING: GPU:0: Lost display notification",
        "nvidia-nvlink: Nvlink Core is being initialized, major device number 511",
        "mlx5_core 0000:5c:00.0: Port module event: module 0, Cable plugged",
        "mlx5_core 0000:5c:00.0: PCIe slot advertised sufficient power (75W).",
        "mlx5_core 0000:d2:00.0: mlx5_cmd_out_err:838:(pid 1): ACCESS_REG(0x805) op_mod(0x1) failed",
        "pcieport 0000:00:03.1: AER: Corrected error received: 0000:09:00.0",
    ],
)
def test_other_messages_are_none_of_these(text: str) -> None:
    assert parse_driver_message(text) is None
    assert parse_device_message(text) is None


@pytest.mark.parametrize(
    ("text", "error"),
    [
        # Linux 4.4: the message of the port names its ID only
        (
            "pcieport 0000:00:1c.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, id=00e0(Receiver ID)",
            PcieError("0000:00:1c.0", "correctable", driver="pcieport"),
        ),
        # 5.4: the device's driver prints behind the prefix of AER
        (
            "nvidia 0000:09:00.0: AER: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=Transaction Layer, (x)",
            PcieError("0000:09:00.0", "nonfatal", driver="nvidia"),
        ),
        (
            "pcieport 0000:00:03.1: AER: Multiple Corrected error received: 0000:09:00.0",
            PcieError("0000:09:00.0", "correctable", "0000:00:03.1"),
        ),
        (
            "pcieport 0000:30:03.0: AER: Uncorrected (Fatal) error received: 0000:34:00.0",
            PcieError("0000:34:00.0", "fatal", "0000:30:03.0"),
        ),
        # 6.8 and later
        (
            "pcieport 0000:30:03.0: AER: Uncorrectable (Fatal) error message received from 0000:34:00.0",
            PcieError("0000:34:00.0", "fatal", "0000:30:03.0"),
        ),
        (
            "pcieport 0000:30:03.0: AER: Multiple Correctable error message received from 0000:34:00.0",
            PcieError("0000:34:00.0", "correctable", "0000:30:03.0"),
        ),
        (
            "vfio-pci 0000:34:00.0: PCIe Bus Error: severity=Uncorrectable (Fatal), type=Inaccessible, (Unregistered)",
            PcieError("0000:34:00.0", "fatal", driver="vfio-pci"),
        ),
        # where the firmware handles them
        (
            "nvidia 0000:34:00.0: aer_status: 0x00001000, aer_mask: 0x00002000",
            PcieError("0000:34:00.0", "correctable", driver="nvidia"),
        ),
        (
            "nvidia 0000:34:00.0: AER: aer_uncor_severity: 0x00062010",
            PcieError("0000:34:00.0", "nonfatal", driver="nvidia"),
        ),
    ],
)
def test_pcie_errors_are_read_in_the_words_of_every_kernel(text: str, error: PcieError) -> None:
    assert parse_pcie_error(text) == error


def test_the_details_of_a_pcie_error_tell_a_gpu_by_its_vendor() -> None:
    assert (
        parse_failing_gpu("vfio-pci 0000:34:00.0:   device [10de:2684] error status/mask=00001000/0") == "0000:34:00.0"
    )
    assert parse_failing_gpu("nvidia-nvswitch 0000:c1:00.0:   device [10de:1af1] error status/mask=1/0") is None
    assert parse_failing_gpu("snd_hda_intel 0000:34:00.1:   device [10de:22ba] error status/mask=1/0") is None


@pytest.mark.parametrize(
    ("text", "subject"),
    [
        ("mlx5_core 0000:5c:00.0 ens1f0np0: Link up", "ens1f0np0"),
        ("mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link ACTIVE", "mlx5_5 port 1"),
    ],
)
def test_a_link_that_is_up_again_ends_its_trouble(text: str, subject: str) -> None:
    assert parse_device_over(text) == ProblemResolved(ProblemKind.ADAPTER_LINK_DOWN, subject)
    assert parse_device_message(text) is None


def test_what_is_over_once_the_driver_was_loaded_is_known_of_every_failure_while_it_is() -> None:
    assert AT_PROBE < UNTIL_LOADED


@given(st.text(max_size=300))
def test_no_text_raises_or_names_anything_long(text: str) -> None:
    for said in (parse_driver_message(f"NVRM: {text}"), parse_driver_message(f"nvidia-peermem x:1 ERROR {text}")):
        assert said is None or isinstance(said, DriverMessage)
        assert said is None or len(said.subject) <= 64
    parse_device_message(f"mlx5_core 0000:01:00.0: {text}")
