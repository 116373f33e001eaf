"""The baseline's file: read as it was written, refused with a reason where it is wrong; and what it has of links."""

import json
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from tests.rig import rig

from gpu_triage.errors import BaselineError, DocumentError
from gpu_triage.read.baseline.host_facts import (
    GpuFacts,
    GpuReadings,
    HostFacts,
    HostValues,
    LinkFacts,
    decode,
    encode,
    host_facts,
    write_baseline,
)
from gpu_triage.read.gpu.pcie import PCIE, PCIE_LIMITS, LinkExpectation, PcieLimitsReading, PcieReading
from gpu_triage_simulator import load_scenario
from gpu_triage_simulator.scenario_file import list_scenarios

SPARSE = HostFacts(0.0, HostValues(1), (GpuFacts("GPU-1", "", ""),))
FULL = HostFacts(
    at=1_768_435_200.0,
    host=HostValues(1, "580.95.05", iommu_active=True),
    gpus=(
        GpuFacts(
            uuid="GPU-1",
            pci_bus_id="0000:65:00.0",
            name="NVIDIA A10",
            vbios_version="94.02",
            pcie=LinkFacts(4, 16, 4, 16, 5, 16, 8),
            numa_node=-1,
            nics={"eth0": "sys"},
            peers={"GPU-2": {"level": "pix", "p2p_read": "ok"}, "GPU-3": {}},
            nvlinks_up=(0, 3),
            power_watts={"enforced": 150.0},
            clocks={"max_hertz": {"sm": 1.71e9}, "target_hertz": {}},
            persistence_mode=False,
            ecc_mode=True,
        ),
    ),
)


@pytest.fixture(scope="module")
def schema(repository: Path) -> Draft202012Validator:
    described = json.loads((repository / "docs" / "baseline.schema.json").read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(described)
    return Draft202012Validator(described)


def _document(**changed: Any) -> dict[str, Any]:
    return {**json.loads(encode(FULL)), **changed}


def _with_gpu(**changed: Any) -> dict[str, Any]:
    document = _document()
    document["gpus"][0].update(changed)
    return document


@pytest.mark.parametrize("facts", [SPARSE, FULL], ids=["sparse", "full"])
def test_a_baseline_is_read_as_it_was_written(facts: HostFacts, schema: Draft202012Validator) -> None:
    assert decode(encode(facts).encode(), "b.json") == facts
    schema.validate(json.loads(encode(facts)))


@pytest.mark.slow
@pytest.mark.parametrize("name", [scenario.name for scenario in list_scenarios()])
def test_every_simulated_host_has_a_baseline_that_its_schema_allows(name: str, schema: Draft202012Validator) -> None:
    with rig(load_scenario(name)) as host:
        host.run(2)
        facts = host.sampler.view.facts(host.clock.now().wall)
        if facts.host.gpu_count is None:
            assert name == "no-driver"
            return
    schema.validate(json.loads(encode(facts)))
    assert decode(encode(facts).encode(), "b.json").gpus == facts.gpus


def test_one_line_says_one_thing() -> None:
    lines = [line.strip() for line in encode(FULL).splitlines()]
    assert {'"GPU-2": {"level": "pix", "p2p_read": "ok"},', '"nvlinks_up": [0, 3],'} < {*lines}
    assert [line[:22] for line in lines if line.startswith('"pcie"')] == ['"pcie": {"generation":']


WRONG = {
    "another file": ({"format": "x"}, "format"),
    "no time": (_document(recorded="yesterday"), "recorded"),
    "a number as time": (_document(recorded=5), "recorded"),
    "unknown key": (_document(color="red"), "color"),
    "no count": (_document(host={"gpu_count": None}), "host.gpu_count"),
    "gpus no list": (_document(gpus={}), "gpus"),
    "no uuid": (_with_gpu(uuid=None), "gpus[0].uuid"),
    "an empty uuid": (_with_gpu(uuid=""), "gpus"),
    "text with a line break": (_with_gpu(name="a\nb"), "gpus[0].name"),
    "unknown link key": (_with_gpu(pcie={"lanes": 16}), "gpus[0].pcie.lanes"),
    "no generation": (_with_gpu(pcie={"generation": 8}), "gpus[0].pcie.generation"),
    "no width": (_with_gpu(pcie={"width": 3}), "gpus[0].pcie.width"),
    "no number": (_with_gpu(power_watts={"min": float("nan")}), "gpus[0].power_watts.min"),
    "unknown peer key": (_with_gpu(peers={"GPU-2": {"speed": "x"}}), "gpus[0].peers.GPU-2.speed"),
    "peer without end": (_with_gpu(peers={"GPU-2": {"level": None}}), "gpus[0].peers.GPU-2.level"),
    "one gpu twice": (_document(gpus=[{"uuid": "GPU-1"}] * 2), "gpus"),
}


@pytest.mark.parametrize(("document", "place"), WRONG.values(), ids=WRONG)
def test_a_wrong_key_is_named(document: object, place: str) -> None:
    with pytest.raises(DocumentError, match=re.escape(f"{place}: ")) as refused:
        decode(json.dumps(document).encode(), "b.json")
    assert refused.value.reason == "malformed"


def test_a_newer_version_is_told_from_a_broken_file() -> None:
    for version in (2, None):
        with pytest.raises(DocumentError, match=f"version: is {version}, and this program reads 1") as refused:
            decode(json.dumps(_document(version=version)).encode(), "b.json")
        assert refused.value.reason == "unknown_version"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from([*_document()["gpus"][0], "other"])


@given(key=KEYS, value=JSON)
def test_no_value_is_accepted_that_the_schema_forbids(key: str, value: object, schema: Draft202012Validator) -> None:
    document = _with_gpu(**{key: value})
    with suppress(DocumentError):
        schema.validate(json.loads(encode(decode(json.dumps(document).encode(), "b.json"))))


def test_a_file_without_a_folder_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(BaselineError, match="create the directory"):
        write_baseline(tmp_path / "nowhere" / "baseline.json", FULL)


def gpu(number: int, lanes: int, claims: int) -> GpuReadings:
    limits = PcieLimitsReading(4, 16, 4, claims, 4, claims)
    readings = {
        PCIE_LIMITS.name: LinkExpectation(limits, 4, claims),
        PCIE.name: PcieReading(4, lanes, 0, 0, None, None, None),
    }
    return GpuReadings(f"GPU-{number}", f"0000:0{number}:00.0", readings.get)


@pytest.mark.parametrize(
    ("links", "recorded"),
    [
        pytest.param([(16, 16), (16, 16)], [(16, None), (16, None)], id="whole"),
        pytest.param([(8, 16), (8, 16)], [(16, 8), (16, 8)], id="a board that splits the lanes"),
        pytest.param([(8, 16)], [(16, 8)], id="a cloud instance"),
        pytest.param([(8, 16), (4, 4)], [(16, 8), (4, None)], id="beside a slot that claims less"),
        pytest.param([(8, 16), (16, 16)], [(16, None), (16, None)], id="a link that lost lanes is not excused"),
        pytest.param([(4, 16)], [(None, None)], id="too few to be built that way: neither excused nor expected"),
        pytest.param([(8, 16), (4, 16)], [(16, 8), (16, None)], id="the sibling has more"),
    ],
)
def test_lanes_are_recorded(links: list[tuple[int, int]], recorded: list[tuple[int | None, int | None]]) -> None:
    gpus = [gpu(number, *link) for number, link in enumerate(links)]
    facts = host_facts(0.0, HostValues(len(gpus)), gpus)
    found = [each.pcie for each in facts.gpus]
    assert [(link.width, link.trained_width) for link in found if link is not None] == recorded
