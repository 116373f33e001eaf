"""The commands that the documents show: a shell takes them, and make, Python and nvidia-smi know what they name."""

import re
import subprocess
from pathlib import Path

import pytest
from tests.documents.pages import documents, shown

NVIDIA_SMI = re.compile(r"nvidia-smi (.*?)(?=[|;`\n]|$)", re.MULTILINE)

# Of nvidia-smi's manual page and `nvidia-smi --help-query-gpu`, as far as the documents need them.
DISPLAYS = {
    *("MEMORY", "UTILIZATION", "ECC", "TEMPERATURE", "POWER", "CLOCK", "COMPUTE", "PIDS", "PERFORMANCE"),
    *("SUPPORTED_CLOCKS", "PAGE_RETIREMENT", "ACCOUNTING", "ENCODER_STATS", "VOLTAGE", "FBC_STATS", "ROW_REMAPPER"),
}
FIELDS = {
    *("index", "uuid", "name", "serial", "pci.bus_id", "driver_version", "vbios_version", "persistence_mode"),
    *("pstate", "temperature.gpu", "memory.total", "memory.used", "memory.free", "clocks.sm", "clocks.mem"),
    *("pcie.link.gen.current", "pcie.link.gen.max", "pcie.link.width.current", "pcie.link.width.max"),
    *("power.draw", "power.limit", "enforced.power.limit", "power.default_limit"),
    *("clocks.applications.graphics", "clocks.default_applications.graphics"),
}
MAKE = re.compile(r"(?:`|\$ )make (?:PYTHON=\S+ )?([a-z-]+)")
TARGET = re.compile(r"^([a-z-]+):.*## ", re.MULTILINE)
MODULE = re.compile(r"(?:`|\$ )(?:\.venv/bin/)?python -m ((?:deploy|tests)[\w.]*)")
COMPUTE_APPS = {"pid", "process_name", "used_memory", "gpu_uuid"}
DMON = set("pucvmet")
"""Power and temperature, utilization, clocks, violations, memory, ECC and replays, PCIe throughput."""


def test_a_shell_can_read_every_command(repository: Path) -> None:
    found = [(page.name, each.command) for page in documents(repository) for each in shown(page)]
    assert len(found) > 100
    script = "\n".join(command for _, command in found)
    result = subprocess.run(["bash", "-n"], input=script, check=False, capture_output=True, text=True)
    assert result.stderr == "", [found[int(line) - 1] for line in re.findall(r"line (\d+)", result.stderr)]


def test_make_has_every_target_that_is_named_and_lists_twelve_at_most(repository: Path) -> None:
    targets = set(TARGET.findall((repository / "Makefile").read_text(encoding="utf-8")))
    assert len(targets) <= 12
    sources = (
        path
        for folder in ("deploy", "docs", "exporter", "helm", "tests")
        for path in (repository / folder).rglob("*.py")
    )
    texts = {path.name: path.read_text(encoding="utf-8") for path in (*documents(repository), *sources)}
    del texts["CHANGELOG.md"]
    named = {(name, target) for name, text in texts.items() for target in MAKE.findall(text)}
    assert named
    assert {(name, target) for name, target in named if target not in targets} == set()


def test_every_benchmark_finds_its_section_when_it_has_measured(repository: Path) -> None:
    programs = "".join(path.read_text(encoding="utf-8") for path in (repository / "tests/bench").glob("*.py"))
    named = re.findall(r'report\("([\w-]+)", .*to_screen=to_screen\)', programs)
    sections = re.findall(
        r"^<!-- ([\w-]+) -->$", (repository / "docs/benchmarks.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert sorted(named) == sorted(sections)
    assert set(sections) >= {"cost", "fleet", "rules", "soak"}


def test_every_module_that_python_is_told_to_run_exists(repository: Path) -> None:
    named = {name for page in documents(repository) for name in MODULE.findall(page.read_text(encoding="utf-8"))}
    assert len(named) > 5
    runs = ("{}.py", "{}/__main__.py")
    assert [
        each for each in named if not any((repository / run.format(each.replace(".", "/"))).exists() for run in runs)
    ] == []


@pytest.mark.parametrize(
    ("option", "known"),
    [
        (r"-d ([A-Z_,]+)", DISPLAYS),
        (r"--query-gpu=(\S+)", FIELDS),
        (r"--query-compute-apps=(\S+)", COMPUTE_APPS),
        (r"topo -p2p (\w)", set("rwnap")),
        (r"dmon -s (\w+)", DMON),
    ],
)
def test_nvidia_smi_is_asked_for_what_it_has(repository: Path, option: str, known: set[str]) -> None:
    asked = [
        (page.name, word)
        for page in documents(repository)
        for arguments in NVIDIA_SMI.findall(page.read_text(encoding="utf-8"))
        for words in re.findall(option, arguments)
        for word in (words if known == DMON else words.split(","))
    ]
    assert asked
    assert [(page, word) for page, word in asked if word not in known] == []
