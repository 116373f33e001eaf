"""The commands and examples that the documents show: a shell, make, Python and Prometheus take them as they are."""

import doctest
import math
import re
import subprocess
from importlib import import_module
from pathlib import Path

import pytest
from tests.conftest import RequiresTool
from tests.documents.pages import documents, shown
from tests.program_output import output_of
from tests.rules.handwritten import gpu, merged, over, play

import gpu_triage
from gpu_triage.cli.offline.smi_columns import FIELDS

# Of nvidia-smi's manual page, as far as the documents need it; of fields, what is read back with `check --from`.
DISPLAYS = {
    *("MEMORY", "UTILIZATION", "ECC", "TEMPERATURE", "POWER", "CLOCK", "COMPUTE", "PIDS", "PERFORMANCE"),
    *("SUPPORTED_CLOCKS", "PAGE_RETIREMENT", "ACCOUNTING", "ENCODER_STATS", "VOLTAGE", "FBC_STATS", "ROW_REMAPPER"),
}
MAKE = re.compile(r"(?:`|\$ )make (?:PYTHON=\S+ )?([a-z-]+)")
TARGET = re.compile(r"^([a-z-]+):.*## ", re.MULTILINE)
MODULE = re.compile(r"(?:`|\$ )(?:\.venv/bin/)?python -m ((?:deploy|tests)[\w.]*)")
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
        (r"--query-(?:gpu|compute-apps)=(\S+)", FIELDS),
        (r"topo -p2p (\w)", set("rwnap")),
        (r"dmon -s (\w+)", DMON),
    ],
)
def test_nvidia_smi_is_asked_for_what_it_has(repository: Path, option: str, known: set[str]) -> None:
    asked = [
        (page.name, word)
        for page in documents(repository)
        for arguments in re.findall(r"(?m)nvidia-smi (.*?)(?=[|;`\n]|$)", page.read_text(encoding="utf-8"))
        for words in re.findall(option, arguments)
        for word in (words if known == DMON else words.split(","))
    ]
    assert asked
    assert [(page, word) for page, word in asked if word not in known] == []


SOURCES = Path(gpu_triage.__file__).parents[1]
MODULES = sorted(
    ".".join(path.relative_to(SOURCES).with_suffix("").parts).removesuffix(".__init__")
    for path in SOURCES.rglob("*.py")
    if ">>> " in path.read_text(encoding="utf-8")
)


@pytest.mark.parametrize("name", MODULES)
def test_examples_hold(name: str) -> None:
    results = doctest.testmod(import_module(name))
    assert results.attempted > 0, "the examples are in no docstring"
    assert results.failed == 0


OWN_ALERTS = (Path(__file__).parents[2] / "docs" / "own-alerts.md").read_text(encoding="utf-8")
RULES = re.findall(r"^```yaml\n(.*?)^```$", OWN_ALERTS, re.MULTILINE | re.DOTALL)


def test_the_rules_are_valid_and_fire_when_they_should(tmp_path: Path, requires_tool: RequiresTool) -> None:
    promtool = requires_tool("promtool")
    assert len(RULES) == 2
    files = tuple(tmp_path / f"{number}.yml" for number in range(len(RULES)))
    for path, text in zip(files, RULES, strict=True):
        path.write_text(text, encoding="utf-8")
    output_of(promtool, "check", "rules", *files)
    # Hot from minute 10 on, with a scrape that failed at minute 30.
    hot = over((80, 10), (95, 20), (math.nan, 1), (95, 60))
    codes = {"thermal.hw": over((1, 10), (2, 20)), "pcie.aer": over((2, 30)), "pcie.width": over((2, 30))}
    series = merged(
        gpu("gpu_temperature_celsius", hot, sensor="memory", pod="x"),
        *(gpu("gpu_finding", states, code=code, severity="warning", action="x") for code, states in codes.items()),
    )
    for alert, before, fires, value in (("OurGpuMemoryHot", 35, 41, "95"), ("OurGpuHasManyFindings", 5, 20, "3")):
        played = play(promtool, tmp_path, files, {"": series}, minutes=42, shown={alert: fires})[""]
        assert before not in played.minutes(alert)
        (sent,) = played.shown[alert]
        assert {
            "instance": "a",
            "gpu": "0",
            "severity": "warning",
            "action": "inspect_hardware",
        }.items() <= sent.labels.items()
        assert value in re.findall(r"\d+", " ".join(sent.annotations.values()))
