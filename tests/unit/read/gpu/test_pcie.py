"""One set of PCIe generations and widths, wherever they are read."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest
from jsonschema import Draft202012Validator
from tests.nvml_bench import BenchMaker, says
from tests.unit.read.baseline.test_host_facts import FULL

from gpu_triage.documents import Place, read_value
from gpu_triage.documents.pcie_values import MOST_GENERATION, TRANSFER_RATES, WIDTHS
from gpu_triage.driver.kernel.pci_bus import parse_link_speed, parse_link_width
from gpu_triage.errors import DocumentError
from gpu_triage.options.option_table import all_options
from gpu_triage.read.baseline.host_facts import LinkFacts, decode, encode
from gpu_triage.read.gpu.pcie import PcieReader
from gpu_triage_simulator import effects
from gpu_triage_simulator.model import Pcie
from gpu_triage_simulator.scenario import Slot

SLOT = {"bus_id": "0000:65:00.0", "node": 0}
LINKS = [*((generation, 16) for generation in TRANSFER_RATES), *((4, width) for width in WIDTHS)]
NO_LINKS = [(0, 16), (MOST_GENERATION + 1, 16), (4, 3), (4, 64)]


def _schema(repository: Path) -> Draft202012Validator:
    return Draft202012Validator(json.loads((repository / "docs" / "baseline.schema.json").read_text(encoding="utf-8")))


def _baseline(generation: int, width: int) -> str:
    link = LinkFacts(generation, width)
    return encode(replace(FULL, gpus=tuple(replace(gpu, pcie=link) for gpu in FULL.gpus)))


def _simulated(generation: int, width: int) -> None:
    link: dict[str, Any] = {"generation": generation, "width": width}
    for kind, table in ((Slot, SLOT | link), (effects.Link, link), (effects.SlotChange, link), (Pcie, link)):
        read_value(kind, table, Place("scenario.toml"))


def _options(generation: int, width: int) -> None:
    values = {"expect.pcie-generation": generation, "expect.pcie-width": width}
    for option in all_options(()):
        if option.key in values:
            option.type.convert(str(values[option.key]), option, None)


@pytest.mark.parametrize(("generation", "width"), LINKS)
def test_every_link_is_read_everywhere(generation: int, width: int, bench: BenchMaker, repository: Path) -> None:
    nvml = bench()
    nvml.answer("nvmlDeviceGetCurrPcieLinkGeneration", says(generation))
    nvml.answer("nvmlDeviceGetCurrPcieLinkWidth", says(width))
    reading = PcieReader(15.0, 60.0).read(nvml.round())
    assert (reading.generation, reading.width) == (generation, width)
    assert parse_link_speed(f"{TRANSFER_RATES[generation]} GT/s PCIe") == generation
    assert parse_link_width(str(width)) == width
    assert decode(_baseline(generation, width).encode(), "b.json").gpus[0].pcie == LinkFacts(generation, width)
    _schema(repository).validate(json.loads(_baseline(generation, width)))
    _simulated(generation, width)
    _options(generation, width)


@pytest.mark.parametrize(("generation", "width"), NO_LINKS)
def test_no_other_link_is_read_anywhere(generation: int, width: int, bench: BenchMaker, repository: Path) -> None:
    nvml = bench()
    nvml.answer("nvmlDeviceGetCurrPcieLinkGeneration", says(generation))
    nvml.answer("nvmlDeviceGetCurrPcieLinkWidth", says(width))
    reading = PcieReader(15.0, 60.0).read(nvml.round())
    assert None in (reading.generation, reading.width)
    with pytest.raises(DocumentError):
        decode(_baseline(generation, width).encode(), "b.json")
    assert not _schema(repository).is_valid(json.loads(_baseline(generation, width)))
    with pytest.raises(DocumentError):
        _simulated(generation, width)
    with pytest.raises(click.UsageError, match="write"):
        _options(generation, width)


def test_the_chart_takes_the_same_values(repository: Path) -> None:
    schema = (repository / "helm/gpu-triage-exporter/values.schema.json").read_text(encoding="utf-8")
    expected = json.loads(schema)["properties"]["expected"]["properties"]
    assert expected["pcieGeneration"]["maximum"] == MOST_GENERATION
    assert expected["pcieWidth"]["enum"] == [*WIDTHS, None]
