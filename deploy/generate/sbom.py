"""The image's software bill of materials: what requirements/image.txt locks, as CycloneDX JSON.

It depends on the lock alone: the same lock gives the same bytes.
"""

import re
import uuid
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, XsUri
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from deploy.generate import REPOSITORY
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from gpu_triage import __version__

NAME = "gpu-triage-exporter"
IMAGE_PYTHON = {"python_version": "3.12", "python_full_version": "3.12.0", "sys_platform": "linux"}
"""What the Dockerfile's base image is, for the markers of the lock."""

_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_CONTINUED = re.compile(r"\s*\\\n\s*")


def files() -> dict[Path, str]:
    lock = (REPOSITORY / "requirements" / "image.txt").read_text(encoding="utf-8")
    return {Path("dist/sbom.cdx.json"): bill_of_materials(lock, __version__)}


def locked(lock: str) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Name, version and SHA-256 digests of the files of each requirement that the image installs.

    Raises:
        ValueError: a requirement is not pinned, or lacks hashes.
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
            # The lock has no time, and a bill that changed with every run could not be compared.
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
