"""The bill of materials lists what the image installs, and nothing else."""

import json
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from deploy.generate import sbom

A, B = "a" * 64, "b" * 64
LOCK = f"""\
# a comment
Grpc_IO==1.66.0 ; python_version >= '3.9' \\
    --hash=sha256:{A} \\
    --hash=sha256:{B}
    # via somebody
tomli==2.0.0 ; python_full_version < '3.11' \\
    --hash=sha256:{A}
"""


def test_a_requirement_of_another_python_is_no_part_of_the_image() -> None:
    assert list(sbom.locked(LOCK)) == [("grpc-io", "1.66.0", (A, B))]


@pytest.mark.parametrize("line", ["click>=8 --hash=sha256:" + A, "click==8.0.0"], ids=["range", "no hash"])
def test_a_requirement_that_is_not_pinned_is_an_error(line: str) -> None:
    with pytest.raises(ValueError, match=r"click.*make lock"):
        list(sbom.locked(line))


def test_the_bill_is_valid_and_names_each_release_with_its_hashes() -> None:
    text = sbom.bill_of_materials(LOCK, "1.2.3")
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    bill = json.loads(text)
    assert bill["metadata"]["component"]["purl"] == "pkg:pypi/gpu-triage-exporter@1.2.3"
    (component,) = bill["components"]
    assert component["purl"] == "pkg:pypi/grpc-io@1.66.0"
    (release,) = component["externalReferences"]
    assert {each["content"] for each in release["hashes"]} == {A, B}
    depends = {each["ref"]: each.get("dependsOn") for each in bill["dependencies"]}
    assert depends["pkg:pypi/gpu-triage-exporter@1.2.3"] == ["pkg:pypi/grpc-io@1.66.0"]


def test_the_repositorys_bill_has_all_that_the_image_locks(repository: Path) -> None:
    (text,) = sbom.files().values()
    bill = json.loads(text)
    lock = (repository / "requirements" / "image.txt").read_text(encoding="utf-8")
    names = {each["name"] for each in bill["components"]}
    assert names == {name for name, _, _ in sbom.locked(lock)}
    assert {"grpcio", "h11", "nvidia-ml-py"} <= names
