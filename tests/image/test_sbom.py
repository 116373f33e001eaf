"""The bill of materials lists what packages and image install, and nothing else."""

import json

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from deploy.release.statements import bill_of_materials, locked

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
    assert list(locked(LOCK, "3.12.0")) == [("grpc-io", "1.66.0", (A, B))]


@pytest.mark.parametrize("line", ["click>=8 --hash=sha256:" + A, "click==8.0.0"], ids=["range", "no hash"])
def test_a_requirement_that_is_not_pinned_is_an_error(line: str) -> None:
    with pytest.raises(ValueError, match=r"click.*make lock"):
        list(locked(line, "3.12.0"))


def test_the_bill_is_valid_and_names_each_release_with_its_hashes() -> None:
    text = bill_of_materials("1.2.3", LOCK, "3.12.1", {"libstdc++6": "12.2.0-14+deb12u1"}, "ubuntu", "noble")
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    bill = json.loads(text)
    assert bill["metadata"]["component"]["purl"] == "pkg:pypi/gpu-triage-exporter@1.2.3"
    python, system = bill["components"]
    assert python["purl"] == "pkg:pypi/grpc-io@1.66.0"
    assert system["purl"] == "pkg:deb/ubuntu/libstdc%2B%2B6@12.2.0-14%2Bdeb12u1?distro=noble"
    (release,) = python["externalReferences"]
    assert {each["content"] for each in release["hashes"]} == {A, B}
    depends = {each["ref"]: each.get("dependsOn") for each in bill["dependencies"]}
    assert depends["pkg:pypi/gpu-triage-exporter@1.2.3"] == [python["purl"], system["purl"]]
