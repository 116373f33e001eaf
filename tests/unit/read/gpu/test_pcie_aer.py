import pytest
from tests.host_tree import HostTree

from gpu_triage.driver.nvml.inquiry import Inquiry
from gpu_triage.driver.nvml.session import Device, DriverVersions
from gpu_triage.errors import HostReadFailed
from gpu_triage.read.gpu.pcie import PcieAerReader, PcieAerReading, parse_aer_total
from gpu_triage.read.metrics.rounds import GpuRound

GPU, PORT = "0000:65:00.0", "0000:64:00.0"
PORT_PATH = f"sys/devices/pci0000:64/{PORT}"
GPU_PATH = f"{PORT_PATH}/{GPU}"

CORRECTABLE = """RxErr 0
BadTLP 3
BadDLLP 1
Rollover 0
Timeout 2
NonFatalErr 0
CorrIntErr 0
HeaderOF 0
TOTAL_ERR_COR 6
"""


def aer(path: str, correctable: str = "0", nonfatal: str = "0", fatal: str = "0") -> dict[str, str]:
    return {
        f"{path}/aer_dev_correctable": f"Receiver Error 0\nTOTAL_ERR_COR {correctable}\n",
        f"{path}/aer_dev_nonfatal": f"Completion Timeout 0\nTOTAL_ERR_NONFATAL {nonfatal}\n",
        f"{path}/aer_dev_fatal": f"Undefined 0\nTOTAL_ERR_FATAL {fatal}\n",
    }


def plug_in(host: HostTree) -> None:
    """A GPU below a port, both with AER."""
    host.write(aer(PORT_PATH, "12", "1", "0") | aer(GPU_PATH, "3", "0", "0"))
    host.write({f"{PORT_PATH}/class": "0x060400\n"})
    host.link(f"sys/bus/pci/devices/{GPU}", f"../../../devices/pci0000:64/{PORT}/{GPU}")
    host.link(f"sys/bus/pci/devices/{PORT}", f"../../../devices/pci0000:64/{PORT}")


def round_of(host: HostTree, bus_id: str | None = GPU) -> GpuRound:
    """A round of a GPU that no driver answers for."""
    round_ = host.round()
    inquiry = Inquiry(Device(0, "GPU-1", bus_id, None))
    return GpuRound(inquiry, DriverVersions(None, None, None), (), round_.machine, round_.at)


def test_where_no_sysfs_is_mounted_it_fails(host: HostTree) -> None:
    host.sysfs.mkdir()
    with pytest.raises(HostReadFailed, match="missing"):
        PcieAerReader().read(round_of(host))


def test_both_ends_of_the_link_are_read_without_a_driver(host: HostTree) -> None:
    plug_in(host)
    round_ = round_of(host)
    assert PcieAerReader().read(round_) == PcieAerReading(
        gpu={"correctable": 3, "nonfatal": 0, "fatal": 0}, port={"correctable": 12, "nonfatal": 1, "fatal": 0}
    )
    assert (round_.inquiry.failures, round_.inquiry.answered) == ([], 0)


def test_a_kernel_without_aer_and_a_guest_without_a_port_are_no_failure(host: HostTree) -> None:
    host.write({f"sys/devices/pci0000:00/{GPU}/class": "0x030200\n"})
    host.link(f"sys/bus/pci/devices/{GPU}", f"../../../devices/pci0000:00/{GPU}")
    round_ = round_of(host)
    assert PcieAerReader().read(round_) == PcieAerReading({}, {})
    assert round_.inquiry.failures == []
    assert PcieAerReader().read(round_of(host, bus_id=None)) == PcieAerReading({}, {})


@pytest.mark.parametrize(
    "junk",
    ["", "\n", "TOTAL_ERR_COR\n", "TOTAL_ERR_COR many\n", "TOTAL_ERR_COR -1\n", "TOTAL_ERR_COR ٣\n", "BadTLP 3\n"],
)
def test_a_file_without_a_sum_costs_itself_and_is_counted(host: HostTree, junk: str) -> None:
    plug_in(host)
    host.write({f"{GPU_PATH}/aer_dev_correctable": junk})
    round_ = round_of(host)
    reading = PcieAerReader().read(round_)
    assert list(reading.gpu) == ["nonfatal", "fatal"]
    assert len(reading.port) == 3
    assert round_.inquiry.failures == ["malformed"]


def test_the_sum_is_read_and_single_errors_are_not_added_up() -> None:
    assert parse_aer_total(CORRECTABLE, "correctable") == 6
    assert parse_aer_total(CORRECTABLE, "fatal") is None
    assert parse_aer_total("Bad Line\n\x00\nTOTAL_ERR_FATAL x\nTOTAL_ERR_FATAL  9  \n", "fatal") == 9


@pytest.mark.parametrize(
    ("service", "counts"),
    [
        (f"{PORT}:pcie002", {"correctable": 0, "nonfatal": 1, "fatal": 0}),
        (f"{PORT}:pcie001", {"nonfatal": 1}),  # power management alone: the firmware has the errors
        ("0000:01:00.0:pcie002", {"nonfatal": 1}),  # of another root port
        ("", {"correctable": 0, "nonfatal": 1, "fatal": 0}),  # not known: no such bus to look at
    ],
)
def test_nothing_is_published_where_firmware_has_errors(host: HostTree, service: str, counts: dict[str, float]) -> None:
    """get_port_device_capability of drivers/pci/pcie/portdrv.c gives a port the service AER only if native_aer."""
    plug_in(host)
    host.write(aer(GPU_PATH, "0", "1", "0"))
    if service:
        host.write({f"sys/bus/pci_express/devices/{service}/uevent": ""})
    assert PcieAerReader().read(round_of(host)).gpu == counts
