"""Files of the kernel, folders that jobs can write to, and which NUMA nodes are on a GPU's side of the host."""

import errno
import os
import re
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from functools import partial
from pathlib import Path, PosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.host_tree import HostTree

from gpu_triage.driver.kernel import job_folder
from gpu_triage.driver.kernel.files import (
    MAX_CPUS,
    QUESTIONS,
    Answer,
    HostInquiry,
    hooked,
    is_present,
    names_in,
    parse_count,
    parse_cpu_list,
    read_int,
    read_link,
    read_names,
    read_text,
    real_path,
    refusal,
)
from gpu_triage.driver.kernel.job_folder import Listing
from gpu_triage.driver.kernel.numa import near_nodes, read_distances, read_numa_nodes
from gpu_triage.driver.kernel.pci_bus import (
    BusEvents,
    PcieLink,
    PciGpu,
    link_of,
    normalize_bus_id,
    numa_node_of,
    parse_link_speed,
    parse_link_width,
    port_above,
    read_pci_gpus,
)
from gpu_triage.errors import HostReadFailed
from gpu_triage.read.host.disk import GpuDirectStorage
from gpu_triage.read.metrics.monotone import MonotoneCounters


def refusing(number: int) -> Path:
    """A path that the system refuses to open, which no mode bits can do to root."""

    class RefusingPath(PosixPath):
        def __fspath__(self) -> str:
            raise OSError(number, os.strerror(number))

    return RefusingPath("/proc/refused")


def test_a_missing_file_and_a_file_as_folder_are_absent(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("1")
    assert read_text(tmp_path / "file" / "below") is None
    assert [read(tmp_path / "nothing") for read in (read_text, read_int, read_names, read_link)] == [None] * 4


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (errno.EACCES, "no_permission"),
        (errno.EPERM, "no_permission"),
        (errno.EIO, "io_error"),
        # What the kernel has nothing to say about is absent.
        *((number, None) for number in (errno.ESRCH, errno.ENODEV, errno.EOPNOTSUPP, errno.EINVAL)),
    ],
)
def test_a_refused_read_fails_by_name(number: int, reason: str | None) -> None:
    with nullcontext() if reason is None else pytest.raises(HostReadFailed, match=reason):
        assert read_text(refusing(number)) is None


@pytest.mark.parametrize("written", [None, b"", b"MemTotal: 1 kB\n"])
def test_a_pipe_in_place_of_a_file_fails_at_once(tmp_path: Path, written: bytes | None) -> None:
    pipe = tmp_path / "meminfo"
    os.mkfifo(pipe)
    with ExitStack() as stack:
        if written is not None:
            # Open for both ends, so that it never blocks.
            writer = stack.enter_context(os.fdopen(os.open(pipe, os.O_RDWR | os.O_NONBLOCK), "wb", buffering=0))
            writer.write(written)
        with pytest.raises(HostReadFailed, match="not_a_file"):
            read_text(pipe)


def test_an_empty_device_in_place_of_a_file_is_no_empty_file(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert read_text(tmp_path / "empty") == ""
    with pytest.raises(HostReadFailed, match="not_a_file"):
        read_text(Path("/dev/null"))


def test_a_file_over_the_limit_is_not_read_whole_and_a_folder_is_no_file(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"a\x00\xff\n" + b"x" * 6)
    assert read_text(file, limit=10) == "a\x00\ufffd\n" + "x" * 6
    for path, reason in ((file, "too_large"), (Path("/dev/zero"), "too_large"), (tmp_path, "io_error")):
        with pytest.raises(HostReadFailed, match=reason):
            read_text(path, limit=9)


@given(content=st.binary(max_size=50))
def test_any_content_is_an_integer_or_malformed(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    file = tmp_path_factory.mktemp("kernel", numbered=True) / "file"
    file.write_bytes(content)
    if re.fullmatch(rb"-?[0-9]{1,20}", content.strip(b" \n")):
        assert read_int(file) == int(content)
    else:
        with pytest.raises(HostReadFailed, match="malformed"):
            read_int(file)


def test_a_dangling_link_is_present_and_has_a_target(tmp_path: Path) -> None:
    (tmp_path / "device").symlink_to("../../../0000:17:00.0")
    assert is_present(tmp_path / "device")
    assert read_link(tmp_path / "device") == "../../../0000:17:00.0"
    assert read_names(tmp_path) == ["device"]
    assert not is_present(tmp_path / "nothing")


def test_what_a_path_leads_to_and_whether_it_can_be_opened(tmp_path: Path) -> None:
    (tmp_path / "devices" / "0000:17:00.0").mkdir(parents=True)
    (tmp_path / "class").symlink_to("devices")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "file").touch()
    assert real_path(tmp_path / "class" / "0000:17:00.0") == str(tmp_path / "devices" / "0000:17:00.0")
    assert [real_path(tmp_path / name) for name in ("nothing", "loop")] == [None, None]
    assert read_names(tmp_path, folders=True) == ["devices"]
    assert names_in(tmp_path / "file", folders=True) == []
    assert [refusal(tmp_path / name) for name in ("file", "class", "nothing")] == [None, None, "missing"]
    assert refusal(refusing(errno.EACCES)) == "no_permission"


def test_every_read_below_a_root_passes_through_its_hooks_the_newest_first(tmp_path: Path) -> None:
    asked: list[tuple[str, str, str]] = []
    (tmp_path / "sys").mkdir()
    (tmp_path / "sysfs2").mkdir()
    (tmp_path / "sys" / "a").write_text("1\n")

    def hook(name: str, question: str, path: str, answer: Answer) -> bytes | None:
        asked.append((name, question, path))
        found = answer()
        return found if name == "old" or found is None else found.replace(b"1", b"2")

    def read() -> list[object]:
        path = tmp_path / "sys" / "a"
        calls = (read_text, names_in, lambda each: names_in(each, folders=True), read_link, real_path, is_present)
        return [*(call(path) for call in (*calls, refusal)), read_names(str(tmp_path / "sys"))]

    plain = read()
    with hooked({"sys": tmp_path / "sys"}, partial(hook, "old")):
        with hooked({"sys": tmp_path / "sys"}, partial(hook, "new")):
            changed = read()
            assert read_names(tmp_path / "sysfs2") == []
        assert read() == plain
    assert read() == plain
    assert (plain[0], changed[0]) == ("1\n", "2\n")
    order = [*((question, "sys/a") for question in QUESTIONS), ("names", "sys")]
    both = [(name, *each) for each in order for name in ("new", "old")]
    assert asked == [*both, *(("old", *each) for each in order)]


@pytest.mark.parametrize(
    ("text", "cpus"), [("0-3,64\n", {0, 1, 2, 3, 64}), ("5", {5}), ("\n", set()), ("0-8191", set(range(MAX_CPUS)))]
)
def test_cpu_lists_as_kernels_print_them(text: str, cpus: set[int]) -> None:
    assert parse_cpu_list(text) == cpus


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        *((parse_cpu_list, each) for each in ("0-99999999999", "8192", "3-1", "0-", "-1", "0,,1")),
        *((parse_cpu_list, each) for each in ("a", "0x1", "٣", "1_0")),
        *((parse_count, each) for each in ("", "-1", "+1", "1_000", " 1", "1.0", "٣", "9" * 5000)),
    ],
)
def test_what_no_kernel_prints_is_refused(parse: Callable[[str], object], text: str) -> None:
    with pytest.raises(ValueError, match="is no"):
        parse(text)


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1))
def test_counters_never_go_back_over_any_sequence(values: list[int]) -> None:
    counters = MonotoneCounters()
    published = [counters.published("reads", value) for value in values]
    assert published == sorted(published)
    assert published[0] == values[0]


def test_a_counter_of_a_reading_that_wrapped_goes_on_and_one_that_wobbled_waits_and_a_gauge_stays_as_it_is() -> None:
    counters, values = MonotoneCounters(), (2**32 - 10, 2**32 - 12, 2**32 - 9, 5, 8)
    readings = [counters.continued(GpuDirectStorage({"read": n}, {}, {}, {"read": n})) for n in values]
    assert tuple(each.in_flight["read"] for each in readings) == values
    assert [each.moved_bytes["read"] - values[0] for each in readings] == [0, 0, 1, 6, 9]


def test_when_nothing_is_read_the_last_failure_is_raised_and_the_others_noted(tmp_path: Path) -> None:
    failures: list[str] = []
    inquiry = HostInquiry(failures)
    (tmp_path / "bad").write_text("seven")
    assert inquiry.ask(lambda: read_text(tmp_path)) is None
    assert inquiry.lines(tmp_path / "bad", parse_count) is None
    with pytest.raises(HostReadFailed, match="malformed"):
        inquiry.finish()
    assert failures == ["io_error"]


@pytest.mark.parametrize(
    ("files", "lines", "parsed", "failures"),
    [
        # A failed part is noted, and the others are kept; malformed lines are noted once per file.
        ({"whole": "7\n", "lines": "1\nx\n\ny\n2\n"}, [1, 2], 7, ["malformed"]),
        ({"whole": "seven\n", "lines": "1\n"}, [1], None, ["malformed"]),
        # What is cut off may be half a number.
        ({"whole": "70", "lines": "1\n"}, [1], None, ["malformed"]),
        ({"lines": "1\n22\n33"}, [1, 22], None, ["malformed"]),
        ({"lines": "1\n"}, [1], None, []),
        ({}, None, None, []),  # absence alone is no failure
    ],
)
def test_a_part_costs_itself(
    tmp_path: Path, files: dict[str, str], lines: list[int] | None, parsed: int | None, failures: list[str]
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    noted: list[str] = []
    inquiry = HostInquiry(noted)
    assert inquiry.parse(tmp_path / "whole", int) == parsed
    assert inquiry.lines(tmp_path / "lines", parse_count) == lines
    inquiry.finish()
    assert noted == failures


def names(count: int, ending: str = ".prom") -> set[str]:
    return {f"{number:03}{ending}" for number in range(count)}


def make(folder: Path, files: set[str]) -> None:
    folder.mkdir(exist_ok=True)
    for name in files:
        (folder / name).touch()


@pytest.fixture(autouse=True)
def few_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_folder, "MOST_ENTRIES", 100)
    monkeypatch.setattr(job_folder, "MOST_IN_A_FOLDER", 30)


def test_a_small_folder_is_listed_whole_each_time(tmp_path: Path) -> None:
    make(tmp_path, {*names(20), *names(20, ".tmp"), ".hidden.prom"})
    make(tmp_path / "job", {"a.prom", "b.txt", ".c.prom"})
    make(tmp_path / "job" / "deeper", {"d.prom"})
    make(tmp_path / ".dot", {"e.prom"})
    make(tmp_path / "lost+found", {"f.prom"})
    listing = Listing(tmp_path, ".prom")
    for _ in range(3):
        assert listing.next_paths() == {*names(20), "job/a.prom"}


@pytest.mark.parametrize("ending", [".prom", ".tmp"])
def test_a_flood_is_listed_in_parts_and_every_file_comes_up_in_time(tmp_path: Path, ending: str) -> None:
    make(tmp_path, names(450, ending))
    make(tmp_path / "flooded", names(300))
    make(tmp_path / "job", {"new.prom"})
    listing = Listing(tmp_path, ".prom")
    rounds = [listing.next_paths() for _ in range(20)]
    assert max(map(len, rounds)) <= 100
    for first in range(10):
        found = set().union(*rounds[first : first + 7])
        assert "job/new.prom" in found
        assert names(450) <= found or ending == ".tmp"
        assert len([path for path in found if path.startswith("flooded/")]) == 30


def test_a_folder_that_cannot_be_listed_is_named(tmp_path: Path) -> None:
    listing = Listing(tmp_path / "later", ".prom")
    with pytest.raises(HostReadFailed, match="later") as failed:
        listing.next_paths()
    assert failed.value.reason == "missing"
    make(tmp_path / "later", names(3))
    assert listing.next_paths() == names(3)


NODES = "sys/devices/system/node"


def nodes(host: HostTree, cpus: dict[int, str], of: int, distances: str) -> frozenset[int]:
    """The nodes near to node `of`, on a host with these CPUs by node and these distances from it."""
    host.write({f"{NODES}/node{node}/cpulist": f"{each}\n" for node, each in cpus.items()})
    host.write({f"{NODES}/node{of}/distance": f"{distances}\n", f"{NODES}/online": "0-9\n"})
    return near_nodes(of, read_numa_nodes(host.sysfs), read_distances(host.sysfs, of))


EIGHT = {node: f"{node * 16}-{node * 16 + 15}" for node in range(8)}


@pytest.mark.parametrize(
    ("cpus", "of", "distances", "near"),
    [
        # DGX A100: two EPYC 7742 with NPS4. Its GPUs are on nodes 3, 1, 7 and 5 (nvidia-smi topo -m).
        (EIGHT, 3, "12 12 12 10 32 32 32 32", {0, 1, 2, 3}),
        (EIGHT, 7, "32 32 32 32 12 12 12 10", {4, 5, 6, 7}),
        # Two EPYC 7551: four dies a socket.
        (EIGHT, 0, "10 16 16 16 32 32 32 32", {0, 1, 2, 3}),
        # intel/cri-resource-manager #359: SNC on two sockets, and memory without CPUs on nodes 4 and 5.
        (dict(list(EIGHT.items())[:4]) | {4: "", 5: ""}, 1, "11 10 21 21 28 28", {0, 1}),
        # Two sockets, as firmware has them, and as the kernel has them without (REMOTE_DISTANCE).
        ({0: "0-31", 1: "32-63"}, 0, "10 21", {0}),
        ({0: "0-31", 1: "32-63"}, 1, "20 10", {1}),
        # GB200, its distances as assumed: two Grace CPUs, and a node for the memory of each GPU.
        ({0: "0-71", 1: "72-143", 2: "", 10: ""}, 0, "10 40 80 80", {0}),
        ({0: "0-71", 1: "72-143", 2: "", 10: ""}, 10, "120 80 160 10", {1}),
        # One socket with NPS4: no node is far.
        (dict(list(EIGHT.items())[:4]), 2, "12 12 10 12", {0, 1, 2, 3}),
    ],
)
def test_nodes_of_one_socket_are_near(
    host: HostTree, cpus: dict[int, str], of: int, distances: str, near: set[int]
) -> None:
    assert nodes(host, cpus, of, distances) == near


def test_without_distances_only_the_node_itself_is_near(host: HostTree) -> None:
    host.write({f"{NODES}/node{node}/cpulist": f"{cpus}\n" for node, cpus in EIGHT.items()})
    assert read_distances(host.sysfs, 3) == {}
    assert [near_nodes(of, EIGHT, {}) for of in (3, 9, -1)] == [{3}, set(), set()]


@pytest.mark.parametrize("text", ["10 21 21", "10", "10 far", ""])
def test_distances_that_fit_no_nodes_fail(host: HostTree, text: str) -> None:
    with pytest.raises(HostReadFailed, match="malformed"):
        nodes(host, {0: "0-31", 1: "32-63"}, 0, text)


GPU = "0000:65:00.0"
PORT = "0000:64:00.0"


def gpu_server(host: HostTree) -> None:
    """A GPU behind a root port, another passed through to a guest, one without a driver, and devices like these."""
    link = {"max_link_width": "16", "current_link_speed": "2.5 GT/s PCIe", "current_link_width": "8"}
    below = f"pci0000:64/{PORT}"
    host.device(below, "0x8086", "0x060400", max_link_speed="16.0 GT/s PCIe", **link)
    host.device(f"{below}/{GPU}", "0x10de", "0x030200", max_link_speed="32.0 GT/s PCIe", numa_node="1", **link)
    host.link(f"sys/devices/{below}/{GPU}/driver", "../../../../bus/pci/drivers/nvidia")
    host.device(f"{below}/0000:65:00.1", "0x10de", "0x040300")
    host.device("pci0000:00/0000:00:05.0", "0x10de", "0x030000", numa_node="-1")
    host.link("sys/devices/pci0000:00/0000:00:05.0/driver", "../../../bus/pci/drivers/vfio-pci")
    host.device("pci10000:00/10000:01:00.0", "0x10de", "0x030200", numa_node="junk")
    host.device("pci0000:80/0000:c1:00.0", "0x10de", "0x068000")
    host.device("pci0000:80/0000:03:00.0", "0x1a03", "0x030000")


def test_gpus_are_told_from_bridges_sound_and_other_vendors(host: HostTree) -> None:
    assert read_pci_gpus(host.sysfs, []) is None  # a host without a PCI bus is not one without GPUs
    host.device("pci0000:00/0000:02:00.0", "0x1a03", "0x030000")
    assert read_pci_gpus(host.sysfs, []) == ()
    gpu_server(host)
    found = (PciGpu("0000:00:05.0", "vfio-pci"), PciGpu(GPU, "nvidia"), PciGpu("10000:01:00.0", None))
    assert read_pci_gpus(host.sysfs, []) == found
    # A device that cannot be read costs only itself.
    host.spoil(f"sys/devices/pci0000:64/{PORT}/{GPU}/class")
    failures: list[str] = []
    assert read_pci_gpus(host.sysfs, failures) == (found[0], found[2])
    assert failures == ["io_error"]


def test_a_bus_that_cannot_be_read_is_a_failure(host: HostTree) -> None:
    host.link("sys/bus/pci/devices", "devices")  # a loop
    with pytest.raises(HostReadFailed, match="io_error"):
        read_pci_gpus(host.sysfs, [])


def test_links_of_the_gpu_and_of_the_port_above_it(host: HostTree) -> None:
    gpu_server(host)
    assert link_of(host.sysfs, GPU) == PcieLink(1, 8, 5, 16)
    # A device on the host bridge, or that is not there, has no port to see.
    above = {bus_id: port_above(host.sysfs, bus_id) for bus_id in (GPU, "0000:00:05.0", "0000:ff:00.0")}
    assert above == {GPU: PORT, "0000:00:05.0": None, "0000:ff:00.0": None}
    assert link_of(host.sysfs, PORT) == PcieLink(1, 8, 4, 16)


def test_a_device_that_left_or_reads_all_ones_has_no_link(host: HostTree) -> None:
    nothing = PcieLink(None, None, None, None)
    assert link_of(host.sysfs, GPU) == nothing
    dead = dict.fromkeys(("current_link_speed", "max_link_speed"), "Unknown")
    host.device(f"pci0000:64/{GPU}", "0x10de", "0x030200", **dead, current_link_width="63", max_link_width="255")
    assert link_of(host.sysfs, GPU) == nothing
    host.spoil(f"sys/devices/pci0000:64/{GPU}/current_link_speed")
    assert link_of(host.sysfs, GPU) == nothing


def test_numa_nodes_keep_minus_1_and_refuse_junk(host: HostTree) -> None:
    gpu_server(host)
    gpus = (GPU, "0000:00:05.0", "10000:01:00.0", "0000:65:00.1")
    assert [numa_node_of(host.sysfs, bus_id) for bus_id in gpus] == [1, -1, None, None]


@pytest.mark.parametrize(
    ("nvml", "sysfs"),
    [
        ("00000000:65:00.0", "0000:65:00.0"),
        ("00000000:CA:00.0", "0000:ca:00.0"),
        ("0000:ca:1f.7", "0000:ca:1f.7"),
        ("00010000:01:00.0", "10000:01:00.0"),
        ("00000008:01:00.0", "0008:01:00.0"),
    ],
)
def test_bus_ids_as_sysfs_writes_them(nvml: str, sysfs: str) -> None:
    assert normalize_bus_id(nvml) == sysfs


@pytest.mark.parametrize(
    ("text", "generation"),
    [
        *((f"{speed} GT/s PCIe\n", place) for place, speed in enumerate((2.5, 5.0, 8.0, 16.0, 32.0, 64.0, 128.0), 1)),
        *(("5 GT/s\n", 2), ("16 GT/s\n", 4)),
        *((text, None) for text in ("Unknown\n", "Unknown speed\n", "66 MHz PCI\n", "")),
    ],
)
def test_generations_of_speeds(text: str, generation: int | None) -> None:
    assert parse_link_speed(text) == generation


@pytest.mark.parametrize(("text", "width"), [("16\n", 16), ("1", 1), ("0", None), ("63", None), ("255", None)])
def test_widths_a_link_can_have(text: str, width: int | None) -> None:
    assert parse_link_width(text) == width


def test_no_event_is_no_hint_and_asking_never_waits() -> None:
    events = BusEvents()
    assert [events.seen() for _ in range(100)] == [False] * 100
