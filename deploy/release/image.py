"""The image as an OCI archive: the Dockerfile, built by buildah on a base of Debian's packages."""

import hashlib
import json
import os
import platform
import re
import shutil
import sys
from datetime import datetime, timezone
from email.parser import HeaderParser
from pathlib import Path
from typing import Any, Final, NamedTuple

from deploy.release.files import NAME, Source, run, write_tar

BASE: Final = "localhost/python"
PACKAGES: Final = "python3,python3-venv,python3-pip,ca-certificates"
_PIP: Final = ("index-url", "extra-index-url", "cert", "proxy", "trusted-host", "timeout")
"""Settings of this machine's pip that the build needs to reach a package index."""
_OF_THE_HOST: Final = ("etc/hostname", "etc/resolv.conf", "etc/machine-id", "var/cache/ldconfig/aux-cache")
_LEFT_OVER: Final = (
    *("var/log", "var/cache/apt", "var/cache/debconf", "var/lib/apt/lists", "tmp", "run"),
    *("usr/share/man", "usr/share/info", "usr/share/locale"),  # as in Debian's own slim images
)
# As the official image of Python: pip may install into it, by the name `python`. Modules are compiled without the times
# of their files, which the image does not keep.
_AS_OFFICIAL: Final = (
    "rm -f /usr/lib/python3*/EXTERNALLY-MANAGED && ln -sf python3 /usr/bin/python && "
    "PYTHONHASHSEED=0 python -B -m compileall -q -f --invalidation-mode unchecked-hash "
    "/usr/lib/python3* /usr/share/python3"
)
_COPIED: Final = re.compile(r"\b(dir|file|multi):[0-9a-f]{64}")


class Image(NamedTuple):
    archive: Path
    python: str  # such as 3.11.2
    base: dict[str, str]  # the distribution's packages with their versions
    distribution: str  # such as debian
    release: str  # such as bookworm


class Buildah:
    """buildah without a daemon, with everything that it keeps below a folder."""

    def __init__(self, folder: Path) -> None:
        # Copies of whole layers, and no mount to take away at the end.
        store = ("--storage-driver=vfs", f"--root={folder / 'storage'}", f"--runroot={folder / 'run'}")
        self._command = ("buildah", *store)

    def run(self, *arguments: str, folder: Path | None = None) -> str:
        environment = {**os.environ, "BUILDAH_ISOLATION": "chroot"}
        return run(*self._command, *arguments, env=environment, cwd=folder).strip()


def build_image(source: Source, scratch: Path, output: Path, version: str, base: str | None) -> Image:
    """Build the archive; `base` is an image of a registry, by default one is made.

    Raises RuntimeError: a program or the right is missing, or a step failed.
    """
    missing = [name for name in ("buildah", *(() if base else ("debootstrap",))) if shutil.which(name) is None]
    if missing or os.geteuid() != 0:
        lacks = " and ".join([*missing, *(("root",) if os.geteuid() else ())])
        raise RuntimeError(f"the image needs {lacks}; name what to build without it, such as ARGS='packages chart'")
    store = Buildah(scratch / "store")
    arguments = {
        "PYTHON_IMAGE": base or _make_base(store, scratch / "system", source.epoch),
        "SOURCE_DATE_EPOCH": str(source.epoch),
        "VERSION": version,
        "REVISION": source.commit,
        "CREATED": datetime.fromtimestamp(source.epoch, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    store.run(
        *("build", "--format=docker", f"--timestamp={source.epoch}", *_mounts(scratch)),
        *(f"--build-arg={name}={value}" for name, value in arguments.items()),
        *(f"--tag={NAME}:{version}", "."),
        folder=source.folder,
    )
    container = store.run("from", "--pull-never", f"{NAME}:{version}")
    root = Path(store.run("mount", container))
    layout = scratch / "layout"
    store.run("push", "--quiet", f"{NAME}:{version}", f"oci:{layout}:{version}")
    _settle(layout, json.loads(store.run("inspect", container))["Docker"]["config"]["Healthcheck"])
    archive = output / f"{NAME}-{version}-image.tar"
    with archive.open("wb") as file:
        write_tar(file, layout, source.epoch)
    (python,) = re.findall(r"^version = (\S+)$", (root / "opt/gpu-triage/pyvenv.cfg").read_text(), re.MULTILINE)
    known = dict(re.findall(r'^(\w+)="?([^"\n]*)', (root / "etc/os-release").read_text(), re.MULTILINE))
    return Image(archive, python, _installed(root), known["ID"], known["VERSION_CODENAME"])


def _installed(root: Path) -> dict[str, str]:
    paragraphs = (root / "var/lib/dpkg/status").read_text(encoding="utf-8").strip().split("\n\n")
    found = (HeaderParser().parsestr(each) for each in paragraphs)
    return {each["Package"]: each["Version"] for each in found if each["Status"].endswith(" installed")}


def _settle(layout: Path, check: Any) -> None:
    """Write the health check into the configuration, where Docker reads it: buildah drops it, since OCI has none.

    The history has hashes of what was copied with the times of files: they go.
    """

    def blob(digest: str) -> Path:
        return layout / "blobs" / "sha256" / digest.removeprefix("sha256:")

    def renewed(descriptor: Any, document: Any) -> None:
        content = json.dumps(document, separators=(",", ":")).encode()
        blob(descriptor["digest"]).unlink()
        descriptor.update(digest=f"sha256:{hashlib.sha256(content).hexdigest()}", size=len(content))
        blob(descriptor["digest"]).write_bytes(content)

    index = json.loads((layout / "index.json").read_bytes())
    (described,) = index["manifests"]
    manifest = json.loads(blob(described["digest"]).read_bytes())
    configuration = json.loads(blob(manifest["config"]["digest"]).read_bytes())
    configuration["config"]["Healthcheck"] = check
    for step in configuration["history"]:
        step["created_by"] = _COPIED.sub(r"\1", step["created_by"])
    renewed(manifest["config"], configuration)
    renewed(described, manifest)
    (layout / "index.json").write_text(json.dumps(index, separators=(",", ":")))


def _make_base(store: Buildah, system: Path, epoch: int) -> str:
    debootstrap(system, PACKAGES, epoch)
    for name in _OF_THE_HOST:
        (system / name).unlink(missing_ok=True)
    for path in (path for folder in _LEFT_OVER for path in (system / folder).glob("*")):
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    container = store.run("from", "scratch")
    store.run("add", "--quiet", container, str(system), "/")
    store.run("run", container, "--", "sh", "-c", _AS_OFFICIAL)
    store.run("commit", "--quiet", "--rm", "--format=docker", f"--timestamp={epoch}", container, BASE)
    return BASE


def debootstrap(system: Path, packages: str, epoch: int = 0) -> None:
    """Make a minimal system of this machine's release, with these packages, separated by commas."""
    release = platform.freedesktop_os_release().get("VERSION_CODENAME", "")
    command = ("debootstrap", "--variant=minbase", f"--include={packages}", release, str(system), _mirror(release))
    run(*command, env={**os.environ, "SOURCE_DATE_EPOCH": str(epoch)})


def _mirror(release: str) -> str:
    """The archive that this machine's apt takes the release from."""
    command = ("apt-get", "indextargets", "--format", "$(RELEASE) $(REPO_URI)", "Identifier: Packages")
    for line in run(*command).splitlines():
        name, _, address = line.partition(" ")
        if name == release:
            return address
    raise RuntimeError(f"apt has no archive of {release}, so there is nothing to make a system from")


def _mounts(folder: Path) -> list[str]:
    """Certificates and settings of pip, where the package index needs them."""
    told = run(sys.executable, "-m", "pip", "config", "list")
    settings = dict(re.findall(rf"^\S*\.({'|'.join(_PIP)})='(\S+)'$", told, re.MULTILINE))
    lines = [f"{name} = {value}\n" for name, value in settings.items() if not value.startswith("file:")]
    configuration = folder / "pip.conf"
    configuration.write_text("[global]\n" + "".join(lines))
    mounts = {"/etc/ssl/certs": "/etc/ssl/certs", str(configuration): "/etc/pip.conf"}
    return [f"--volume={source}:{target}:ro" for source, target in mounts.items() if Path(source).exists()]
