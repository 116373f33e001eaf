import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from tests.hardware.__main__ import report
from tests.hardware.pack import pack
from tests.hardware.table import AGREES, CANNOT_KNOW, DIFFERS, Row, compare, judged, links, topology
from tests.hardware.visit import HANGS, QUERY

GPU, OTHER = "GPU-aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee", "GPU-ffffffff-1111-2222-3333-444444444444"
REPOSITORY = Path(__file__).parents[2]
SERIAL = "1320883901604"
XML = Path(__file__).with_name("two-a10.xml").read_text()
TOPOLOGY = (
    "\t\x1b[4mGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"
    "GPU0\t X \t{0}\tNODE\t0-31\t0\t\tN/A\nGPU1\t{0}\t X \tSYS\t32-63\t1\t\tN/A\n\nLegend:\n\n  X    = Self\n"
)
"""As nvidia-smi 590 prints it, with the connection of both."""
CSV = f"uuid, index, compute_cap, pcie.link.gen.gpumax, enforced.power.limit [W]\n{GPU}, 0, 8.6, 4, 150.00 W\n"
LINKS = f"GPU 0: NVIDIA H100 (UUID: {GPU})\n\t Link 0: 26.562 GB/s\n\t Link 1: 26.562 GB/s\n\t Link 2: <inactive>\n"

SMI = """#!/bin/sh
answer="$(dirname "$0")/$*"
[ -e "$answer" ] || { echo Failed to initialize NVML; exit 9; }
[ -s "$answer" ] || sleep 60
cat "$answer"
"""
"""An nvidia-smi that answers with the file named as its arguments, hangs if that is empty, and fails without."""


def run(folder: Path, answers: Mapping[str, str], *options: str) -> subprocess.CompletedProcess[str]:
    """The kit beside an nvidia-smi."""
    for name, text in {"nvidia-smi": SMI, **answers}.items():
        (folder / name).write_text(text)
    (folder / "nvidia-smi").chmod(0o755)
    environment = {**os.environ, "PATH": f"{folder}:/usr/bin:/bin", "GPU_TRIAGE_SAMPLE_MEDIUM": "1s"}
    command = (sys.executable, "-m", "tests.hardware", *options, "--out", str(folder / "bundle"))
    return subprocess.run(command, check=False, capture_output=True, text=True, env=environment, cwd=REPOSITORY)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """That of a simulated host with two A10, beside an nvidia-smi that is wrong in one value and hangs once."""
    answers = {"-L": LINKS, "-q -x": XML, QUERY: CSV, "topo -m": TOPOLOGY.format("SYS"), "nvlink -s": ""}
    folder = tmp_path_factory.mktemp("host")
    options = ("--looks", "2", "--pause", "3", "--command", "8", "--record", "2", "--load", "exec sleep 60")
    result = run(folder, answers, "--simulate", "dual-a10", *options)
    assert result.returncode == 1, result.stdout + result.stderr
    return folder / "bundle"


def found(bundle: Path, verdict: str) -> set[tuple[str, str, str]]:
    return {(each.phase, each.gpu, each.what) for each in compare(bundle) if each.verdict == verdict}


@pytest.mark.slow
def test_what_differs_is_found_and_all_else_agrees(bundle: Path) -> None:
    assert found(bundle, DIFFERS) == {("idle", "1", "gpu_memory_total_bytes")}
    facts = ("gpu", "name", "serial", "minor_number", "pci_bus_id", "compute_capability")
    changing = {
        *("gpu_sm_utilization_ratio", "gpu_performance_state", "gpu_processes", "gpu_pcie_link_width"),
        *("gpu_pcie_replays_total", "gpu_clock_hertz{sm}", "gpu_ecc_aggregate_errors_total{corrected}"),
        *("gpu_throttle_active{sw_power_cap}", "gpu_throttle_active{sw_thermal}"),
    }
    constant = {
        *(f"gpu_info{{{fact}}}" for fact in facts),
        *("gpu_persistence_mode", "gpu_numa_node", "gpu_topology_info{level}", "gpu_memory_total_bytes"),
        *("gpu_power_limit_watts", "gpu_pcie_link_device_max_generation", "gpu_row_remap_banks{max}"),
        "gpu_temperature_threshold_celsius{shutdown}",
    }
    expected = {("idle", "0", what) for what in changing | constant} | {("load", "0", what) for what in changing}
    assert found(bundle, AGREES) - {("idle", "1", "gpu_numa_node")} == expected


@pytest.mark.slow
def test_what_nvidia_smi_does_not_know_or_hangs_at_is_no_difference(bundle: Path) -> None:
    unknown = {(each.what, each.gpu): each.smi for each in compare(bundle) if each.verdict == CANNOT_KNOW}
    assert unknown["gpu_fan_speed_ratio{0}", "0"] == "N/A"
    assert unknown["nvidia-smi nvlink -s", ""].startswith(HANGS)
    assert unknown["nvidia-smi nvlink -e", ""] == "exit code 9"


@pytest.mark.slow
def test_a_bundle_names_nobody_and_has_one_pseudonym_for_each_board(bundle: Path, tmp_path: Path) -> None:
    shutil.unpack_archive(f"{bundle}.tar.gz", tmp_path)
    shutil.unpack_archive(bundle / "recording.tar.gz", tmp_path)
    paths = (path for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".gz")
    texts = {path.relative_to(tmp_path).as_posix(): path.read_text() for path in paths}
    assert [name for name in (GPU, OTHER, SERIAL, "someone", "24819<") if name in "".join(texts.values())] == []
    uuid = json.loads(texts["bundle/fields.json"])[0]["uuid"]
    assert {name for name, text in texts.items() if uuid in text} >= {
        *("bundle/idle/0.prom", "bundle/idle/0.xml", "bundle/load/0.csv", "recording/nvml.jsonl")
    }
    timed = {each["function"] for each in json.loads(texts["bundle/calls.json"])}
    assert {"nvmlDeviceGetFieldValues", "nvmlDeviceGetClockInfo"} <= timed
    about = json.loads(texts["bundle/about.json"])
    assert about["load"] == "given"
    assert about["exporter idle"]["cpus"] > 0 < about["exporter idle"]["memory_mib"]


@pytest.mark.parametrize("answers", [{}, {"-L": "No devices were found\n"}])
def test_a_host_without_gpus_or_driver_is_refused(tmp_path: Path, answers: Mapping[str, str]) -> None:
    result = run(tmp_path, answers)
    assert (result.returncode, (tmp_path / "bundle").exists()) == (2, False)
    assert "modprobe nvidia" in result.stderr


@pytest.mark.parametrize(
    ("kind", "tolerance", "printed", "published", "verdict"),
    [
        ("constant", 0, ["7", "7"], [7], AGREES),
        ("constant", 0, ["7", "7"], [8], DIFFERS),
        ("constant", 1 << 20, ["100 MiB"], [101 << 20], AGREES),
        ("constant", 1 << 20, ["100 MiB"], [(101 << 20) + 1], DIFFERS),
        ("gauge", 10, ["100 W", "200 W"], [90, 80], AGREES),
        ("gauge", 10, ["100 W", "200 W"], [89], DIFFERS),
        ("gauge", 10, ["100 W", "200 W"], [211], DIFFERS),
        ("gauge", 0, ["Not Active", "Active"], [1], AGREES),
        ("counter", 0, ["5 us", "9 us", "9 us"], [5e-6, 9e-6], AGREES),
        ("counter", 0, ["5", "9", "9"], [4, 9], DIFFERS),
        ("counter", 0, ["5", "9", "9"], [5, 10], DIFFERS),
        ("counter", 0, ["5", "N/A", "9"], [8, 6], AGREES),
        ("gauge", 0, ["7"], [None], DIFFERS),
        ("gauge", 0, ["N/A", "[Unknown Error]"], [7], CANNOT_KNOW),
    ],
)
def test_values_are_compared_by_kind(
    kind: str, tolerance: float, printed: Sequence[str], published: Sequence[float | None], verdict: str
) -> None:
    row = Row("gpu_value", {}, "", kind, tolerance, ("old", "new"))
    nothing: Mapping[str, str] = {}
    pages = [[("gpu_other" if value is None else "gpu_value", nothing, value)] for value in published]
    assert judged(row, [{"new": text} for text in printed], pages).verdict == verdict


def test_a_gpu_that_is_not_on_the_page_differs_but_no_page_says_nothing() -> None:
    row = Row("gpu_value", {}, "", "constant", 0, ("place",))
    assert [judged(row, [{"place": "7"}], [page]).verdict for page in ((), None)] == [DIFFERS, CANNOT_KNOW]


@pytest.mark.parametrize(("printed", "code"), [("7", 0), ("8", 1), ("N/A", 2)])
def test_the_exit_code_is_0_only_if_something_agrees(tmp_path: Path, printed: str, code: int) -> None:
    (tmp_path / "idle").mkdir()
    (tmp_path / "about.json").write_text('{"steps": [], "load": null}')
    (tmp_path / "idle" / "0.prom").write_text('gpu_pcie_replays_total{uuid="GPU-1"} 7\n')
    pci = f"<pci><replay_counter>{printed}</replay_counter></pci>"
    for number in range(2):
        (tmp_path / "idle" / f"{number}.xml").write_text(f"<log><gpu><uuid>GPU-1</uuid>{pci}</gpu></log>")
    assert report(tmp_path) == code


def test_topology_and_links_are_read_from_tables() -> None:
    places = {(uuid, place): text for uuid, place, text in topology(TOPOLOGY.format("NV18"), [GPU, OTHER])}
    assert places == {
        (GPU, "topo/nvlink"): "1",
        (GPU, "topo/numa"): "0",
        (OTHER, "topo/nvlink"): "1",
        (OTHER, "topo/numa"): "1",
    }
    assert list(links(LINKS)) == [(GPU, "nvlink/up", "2"), (GPU, "nvlink/speed", "53.124 GB/s")]


@pytest.mark.full
def test_a_packed_kit_runs_on_a_bare_python(tmp_path: Path) -> None:
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    pack(tmp_path / "kit", (python,), ({"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()],))
    bare = {"PYTHON": f"{sys.base_prefix}/bin/python{python}", "PATH": "/usr/bin:/bin"}
    result = subprocess.run(("sh", "kit/run.sh"), check=False, capture_output=True, text=True, env=bare, cwd=tmp_path)
    assert (result.returncode, "modprobe nvidia" in result.stderr) == (2, True), result.stderr
