"""The baseline's file: read as it was written, described by its schema, and refused with a reason where it is wrong."""

from __future__ import annotations

import json
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
    MOST_BYTES,
    GpuFacts,
    HostFacts,
    LinkFacts,
    baseline_in,
    decode,
    encode,
    read_baseline,
    write_baseline,
)
from gpu_triage_simulator import load_scenario
from gpu_triage_simulator.scenario_file import list_scenarios

SPARSE = HostFacts(0.0, 1, None, None, (GpuFacts("GPU-1", "", ""),))
FULL = HostFacts(
    at=1_768_435_200.0,
    gpu_count=1,
    driver_version="580.95.05",
    iommu_active=True,
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
        if facts.gpu_count is None:
            assert name == "no-driver"
            return
    schema.validate(json.loads(encode(facts)))
    assert decode(encode(facts).encode(), "b.json").gpus == facts.gpus


def test_one_line_says_one_thing() -> None:
    lines = encode(FULL).splitlines()
    assert '      "pcie": {"generation": 4, "width": 16, "device_generation": 4, "device_width": 16, ' in "\n".join(
        lines
    )
    assert '        "GPU-2": {"level": "pix", "p2p_read": "ok"},' in lines


WRONG = {
    "no object": ([], "b.json: is not a baseline"),
    "another file": ({"format": "x"}, "format: is not 'gpu-triage-baseline'"),
    "no version": (_document(version=None), "version: has no value; write a whole number from 1"),
    "version is true": (_document(version=True), "version: is True; write a whole number"),
    "no time": (_document(recorded="yesterday"), "recorded: is 'yesterday'; write it as 2026-01-15T00:00:00Z"),
    "unknown key": (_document(color="red"), "color: unknown key; known are format"),
    "no host": (_document(host=None), "host.gpu_count: is missing"),
    "no count": (_document(host={}), "host.gpu_count: is missing"),
    "negative count": (_document(host={"gpu_count": -1}), "host.gpu_count: is -1"),
    "gpus no list": (_document(gpus={}), "gpus: is a table; write a list"),
    "gpu no object": (_document(gpus=[1]), "gpus[0]: is not a table"),
    "no uuid": (_with_gpu(uuid=None), "gpus[0].uuid: has no value"),
    "text with a line break": (_with_gpu(name="a\nb"), "gpus[0].name: is 'a\\nb'"),
    "text without end": (_with_gpu(name="x" * 300), "gpus[0].name: is 'xxx"),
    "width as text": (_with_gpu(pcie={"width": "16"}), "gpus[0].pcie.width: is '16'; write a whole number"),
    "unknown link key": (_with_gpu(pcie={"lanes": 16}), "gpus[0].pcie.lanes: unknown key; known are generation"),
    "mode as number": (_with_gpu(ecc_mode=1), "gpus[0].ecc_mode: is 1; write true or false"),
    "no number": (_with_gpu(power_watts={"min": float("nan")}), "gpus[0].power_watts.min: is nan"),
    "huge number": (_with_gpu(power_watts={"min": 10**400}), "gpus[0].power_watts.min: is 1000"),
    "adapter as list": (_with_gpu(nics=["eth0"]), "gpus[0].nics: is not a table"),
    "unknown peer key": (
        _with_gpu(peers={"GPU-2": {"speed": "x"}}),
        "gpus[0].peers.GPU-2.speed: unknown key; known are level and",
    ),
    "peer without end": (_with_gpu(peers={"GPU-2": {"level": None}}), "gpus[0].peers.GPU-2.level: has no value"),
    "link as text": (_with_gpu(nvlinks_up=["0"]), "gpus[0].nvlinks_up[0]: is '0'"),
    "one gpu twice": (_document(gpus=[{"uuid": "GPU-1"}] * 2), "two of them have one uuid"),
}


@pytest.mark.parametrize(("document", "complaint"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_key_is_named_with_what_would_be_right(document: object, complaint: str) -> None:
    with pytest.raises(DocumentError) as refused:
        decode(json.dumps(document).encode(), "b.json")
    assert complaint in str(refused.value)
    assert refused.value.reason == "malformed"


def test_a_newer_version_is_told_from_a_broken_file() -> None:
    with pytest.raises(DocumentError, match="version: is 2, and this program reads 1") as refused:
        decode(json.dumps(_document(version=2)).encode(), "b.json")
    assert refused.value.reason == "unknown_version"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from([*_document()["gpus"][0], "other"])


@given(key=KEYS, value=JSON)
def test_no_value_is_accepted_that_the_schema_forbids_and_none_crashes(
    key: str, value: object, schema: Draft202012Validator
) -> None:
    document = _with_gpu(**{key: value})
    with suppress(DocumentError):
        schema.validate(json.loads(encode(decode(json.dumps(document).encode(), "b.json"))))


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, '{"format": ' * 50_000, "nul", "\0"])
def test_what_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(DocumentError, match=r"is not valid JSON|is nested too deeply"):
        decode(text.encode(), "b.json")


def test_a_key_that_is_written_twice_is_refused() -> None:
    text = encode(FULL).replace('"gpu_count": 1', '"gpu_count": 1, "gpu_count": 8')
    with pytest.raises(DocumentError, match="'gpu_count' is written twice"):
        decode(text.encode(), "b.json")


def test_the_hash_is_that_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    write_baseline(path, FULL)
    assert read_baseline(path) == baseline_in(encode(FULL).encode(), "file")


def test_a_file_is_replaced_in_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    write_baseline(path, FULL)
    write_baseline(path, SPARSE)
    assert read_baseline(path).facts == SPARSE
    assert path.stat().st_mode & 0o777 == 0o644
    assert [each.name for each in tmp_path.iterdir()] == ["baseline.json"]


@pytest.mark.parametrize(
    ("make", "reason", "complaint"),
    [
        (lambda _path: None, "missing", "cannot be read: No such file"),
        (lambda path: path.mkdir(), "not_a_file", "is not a regular file"),
        (lambda path: path.write_bytes(b"\xff\xfe"), "malformed", "is not UTF-8 at byte 0"),
        (lambda path: path.write_bytes(b" " * (MOST_BYTES + 1)), "too_large", "is larger than 4 MiB"),
        (lambda path: path.write_text("{}"), "malformed", "format: is not"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_with_the_reason(
    tmp_path: Path, make: Any, reason: str, complaint: str
) -> None:
    path = tmp_path / "baseline.json"
    make(path)
    with pytest.raises(BaselineError) as refused:
        read_baseline(path)
    assert (refused.value.reason, str(path) in str(refused.value)) == (reason, True)
    assert complaint in str(refused.value)


def test_a_file_without_a_folder_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(BaselineError, match="make its folder first"):
        write_baseline(tmp_path / "nowhere" / "baseline.json", FULL)
