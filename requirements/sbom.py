"""Prints the image's software bill of materials: what requirements/image.txt locks, as CycloneDX JSON.

``make sbom`` writes it to dist/sbom.cdx.json. It depends on the lock alone: the same lock gives the same bytes.
"""

from __future__ import annotations

import re
import sys
import uuid
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, XsUri
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

REPOSITORY = Path(__file__).resolve().parent.parent
NAME = "gpu-triage-exporter"
IMAGE_PYTHON = {"python_version": "3.12", "python_full_version": "3.12.0", "sys_platform": "linux"}
"""What the Dockerfile's base image is, for the markers of the lock."""

_VERSION = re.compile(r'^__version__ = "([^"]+)"$', re.MULTILINE)
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_CONTINUED = re.compile(r"\s*\\\n\s*")


def locked(lock: str) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Name, version and SHA-256 digests of the files of each requirement that the image installs.

    Raises:
        ValueError: a line is no pinned requirement with hashes.
    """
    for line in _CONTINUED.sub(" ", lock).splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        requirement = Requirement(line.split(" --hash", 1)[0])
        digests = tuple(_HASH.findall(line))
        (pin,) = requirement.specifier
        if pin.operator != "==" or not digests:
            raise ValueError(f"{line.split()[0]} is not pinned with hashes; run `make lock`")
        if requirement.marker is None or requirement.marker.evaluate(IMAGE_PYTHON):
            yield canonicalize_name(requirement.name), pin.version, digests


def bill_of_materials(lock: str, version: str) -> str:
    """The bill of this version of the exporter with what the lock pins, as CycloneDX 1.6 JSON."""
    subject = _component(NAME, version, ComponentType.APPLICATION)
    parts = [_component(name, pin, ComponentType.LIBRARY, digests) for name, pin, digests in locked(lock)]
    bom = Bom(
        components=parts,
        metadata=BomMetaData(
            component=subject,
            # The lock says nothing of time, and a bill that changed with every run could not be compared.
            timestamp=datetime.fromtimestamp(0, timezone.utc),
        ),
        serial_number=uuid.uuid5(uuid.NAMESPACE_URL, f"{version}\n{lock}"),
    )
    bom.register_dependency(subject, parts)
    return JsonV1Dot6(bom).output_as_string(indent=2) + "\n"


def _component(name: str, version: str, kind: ComponentType, digests: tuple[str, ...] = ()) -> Component:
    url = PackageURL("pypi", name=name, version=version)
    # Each digest is of one file of the release: which of them an image has depends on its architecture.
    hashes = [HashType(alg=HashAlgorithm.SHA_256, content=each) for each in digests]
    index = ExternalReference(
        type=ExternalReferenceType.DISTRIBUTION, url=XsUri(f"https://pypi.org/project/{name}/{version}/"), hashes=hashes
    )
    references = [index] if hashes else []
    return Component(name=name, version=version, type=kind, purl=url, bom_ref=str(url), external_references=references)


def main() -> int:
    """Print the bill of the repository's lock; 1 without one."""
    lock = REPOSITORY / "requirements" / "image.txt"
    if not lock.exists():
        sys.stderr.write("sbom: requirements/image.txt is missing; run `make lock`\n")
        return 1
    source = (REPOSITORY / "exporter" / "gpu_triage" / "__init__.py").read_text(encoding="utf-8")
    found = _VERSION.search(source)
    if found is None:
        raise ValueError("gpu_triage/__init__.py names no version")
    sys.stdout.write(bill_of_materials(lock.read_text(encoding="utf-8"), found[1]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
