"""What a release states about itself: bill of materials, provenance, checksums and signature.

They depend on what is built alone: the same files give the same bytes, but for the signature.
"""

import hashlib
import json
import platform
import re
import sys
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import quote

from deploy.release.files import NAME, Source, run
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

LOCKS: Final = tuple(f"requirements/{name}.txt" for name in ("build", "image", "packages", "runtime"))
SUMS: Final = "SHA256SUMS"
KEY: Final = "RELEASE_SIGNING_KEY"
"""The environment variable with an OpenPGP private key in ASCII armor."""

_NONE: Final[Mapping[str, str]] = MappingProxyType({})
_HASH: Final = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_CONTINUED: Final = re.compile(r"\s*\\\n\s*")
_TYPE: Final = "https://gpu-triage-exporter.invalid/make-release/v1"


def locked(lock: str, python: str) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Name, version and SHA-256 digests of the files of each requirement that is installed for a Python.

    Raises:
        ValueError: a requirement is not pinned, or lacks hashes.
    """
    version = ".".join(python.split(".")[:2])
    environment = {"python_version": version, "python_full_version": python, "sys_platform": "linux"}
    for line in _CONTINUED.sub(" ", lock).splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        requirement = Requirement(line.split(" --hash", 1)[0])
        digests = tuple(_HASH.findall(line))
        (pin,) = requirement.specifier
        if pin.operator != "==" or not digests:
            raise ValueError(f"{line.split()[0]} is not pinned with hashes; run `make lock`")
        if requirement.marker is None or requirement.marker.evaluate(environment):
            yield canonicalize_name(requirement.name), pin.version, digests


def bill_of_materials(  # noqa: PLR0917 - the last three are of one base
    version: str, lock: str, python: str, base: Mapping[str, str] = _NONE, distribution: str = "", release: str = ""
) -> str:
    """What a package or image contains: the Python packages of a lock, and the base's; as CycloneDX 1.6 JSON."""
    found = locked(lock, python)
    parts = [_component(f"pkg:pypi/{name}@{pin}", name, pin, digests) for name, pin, digests in found]
    for name, pin in sorted(base.items()):
        url = f"pkg:deb/{distribution}/{quote(name)}@{quote(pin, safe='')}?distro={release}"
        parts.append(_component(url, name, pin))
    subject = {**_component(f"pkg:pypi/{NAME}@{version}", NAME, version), "type": "application"}
    dependencies = [{"ref": subject["bom-ref"], "dependsOn": [each["bom-ref"] for each in parts]}]
    content = json.dumps([version, parts])
    return _text(
        {
            "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
            "bomFormat": "CycloneDX",
            "specVersion": "1.6",
            "serialNumber": uuid.uuid5(uuid.NAMESPACE_URL, content).urn,
            "version": 1,
            "metadata": {"component": subject},
            "components": parts,
            "dependencies": dependencies + [{"ref": each["bom-ref"]} for each in parts],
        }
    )


def _component(url: str, name: str, version: str, digests: Iterable[str] = ()) -> dict[str, Any]:
    component = {"type": "library", "bom-ref": url, "name": name, "version": version, "purl": url}
    # Each digest is of one file of the release: which of them is installed depends on the architecture.
    hashes = [{"alg": "SHA-256", "content": each} for each in digests]
    address = f"https://pypi.org/project/{name}/{version}/"
    reference = {"type": "distribution", "url": address, "hashes": hashes}
    return {**component, **({"externalReferences": [reference]} if hashes else {})}


def provenance(files: Iterable[Path], source: Source, parameters: Mapping[str, Any]) -> str:
    """What the files were made from: an in-toto statement with a provenance of SLSA."""
    host = platform.freedesktop_os_release()
    made_with = {**{name: host.get(name) for name in ("ID", "VERSION_CODENAME")}, "python": sys.version}
    made_from = [{"uri": f"git:{NAME}", "digest": {"gitCommit": source.commit}}]
    made_from += [{"uri": name, "digest": {"sha256": sha256(source.folder / name)}} for name in (*LOCKS, "Dockerfile")]
    return _text(
        {
            "_type": "https://in-toto.io/Statement/v1",
            "subject": [{"name": path.name, "digest": {"sha256": sha256(path)}} for path in sorted(files)],
            "predicateType": "https://slsa.dev/provenance/v1",
            "predicate": {
                "buildDefinition": {
                    "buildType": _TYPE,
                    "externalParameters": {**parameters, "modified": source.modified, "epoch": source.epoch},
                    "internalParameters": made_with,
                    "resolvedDependencies": made_from,
                },
                "runDetails": {"builder": {"id": f"{_TYPE}#local"}},
            },
        }
    )


def checksums(files: Iterable[Path], kept: Mapping[str, str] = _NONE) -> str:
    """As `sha256sum --check` reads them; `kept` are digests of more files."""
    found = {**kept, **{path.name: sha256(path) for path in files}}
    return "".join(f"{digest}  {name}\n" for name, digest in sorted(found.items()))


def kept(sums: Path, version: str) -> dict[str, str]:
    """Digests of this version's files that earlier runs left there; raises RuntimeError if one was changed."""
    lines = sums.read_text(encoding="utf-8").splitlines() if sums.exists() else []
    listed = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    found = {name: listed[name] for name in listed if version in name and (sums.parent / name).is_file()}
    for name, digest in found.items():
        if sha256(sums.parent / name) != digest:
            raise RuntimeError(f"{sums.parent / name} was changed after its build; remove it, or name another --output")
    return found


def sign(file: Path, key: str) -> Path:
    """Write a signature beside the file, with an OpenPGP private key that has no passphrase."""
    signature = file.with_name(f"{file.name}.asc")
    with tempfile.TemporaryDirectory(prefix="gpu-triage-key-") as home:
        gpg = ("gpg", "--homedir", home, "--batch", "--quiet", "--yes")
        run(*gpg, "--import", stdin=key)
        run(*gpg, "--armor", "--output", str(signature), "--detach-sign", str(file))
        run("gpgconf", "--homedir", home, "--kill", "all")
    return signature


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _text(document: Any) -> str:
    return json.dumps(document, indent=2) + "\n"
