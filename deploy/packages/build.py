"""Builds the deb and rpm: a virtual environment below /usr/lib for the hosts' Python, and a launcher.

Nothing is compiled, and the hosts' Python isn't needed for the build: uv unpacks the wheels pinned in
requirements/image.txt, and nfpm packs the tree.
"""

import gzip
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from email.parser import HeaderParser
from email.utils import format_datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import yaml
from click.shell_completion import get_completion_class
from deploy.release.files import NAME, Source, run, tool

from gpu_triage import __version__
from gpu_triage.cli.main import group

HOME: Final = f"usr/lib/{NAME}"
"""Path of the virtual environment, without the leading slash."""
PYTHONS: Final = ("3.10", "3.11", "3.12", "3.13")
ARCHITECTURES: Final[Mapping[str, str]] = MappingProxyType({"amd64": "x86_64", "arm64": "aarch64"})
"""Debian's names, and those used in wheels."""

_HOOKS: Final = frozenset({"postinstall", "preremove", "postremove"})
_GLIBC: Final = "2.28"  # Debian 10, RHEL 8 and Ubuntu 20.04 have this or a newer one
_RELEASE: Final = 1
_HERE: Final = Path(__file__).parent
_SUMMARY: Final = "Prometheus exporter for NVIDIA GPU hosts"
_DESCRIPTION: Final = f"""{_SUMMARY}
Tells an on-call engineer why a GPU job is slow or failing: health, heat and
power, links, and what of the host starves the GPUs, as metrics, on a status
page and with the command gpu-triage check.
.
Contains its own Python packages and runs on the distribution's Python."""
_MAINTAINER: Final = "gpu-triage-exporter maintainers <maintainers@gpu-triage-exporter.invalid>"
_ZSH: Final = MappingProxyType({"deb": "/usr/share/zsh/vendor-completions", "rpm": "/usr/share/zsh/site-functions"})
"""Where zsh looks for completions installed by packages."""

_CONSOLE: Final = f"""#!/bin/sh
# -I: neither the current folder nor PYTHON* variables decide which code runs.
exec /{HOME}/bin/python3 -I -m gpu_triage "$@"
"""


class Target(NamedTuple):
    """The kind of host that a package is for."""

    python: str  # such as 3.11
    architecture: str  # Debian's name
    compression: str = "xz"  # gzip is six times as fast, but a third larger

    @property
    def release(self) -> str:
        """Package revision; includes the Python version, because each has its own package."""
        return f"{_RELEASE}.py{self.python.replace('.', '')}"


def build_packages(source: Source, target: Target, wheel: Path, output: Path) -> tuple[Path, Path]:
    """Build both packages in a folder; returns their paths, the deb first."""
    with tempfile.TemporaryDirectory(prefix="gpu-triage-packages-") as scratch:
        root = Path(scratch) / "root"
        _make_tree(source, target, root, wheel)
        scripts = _scripts(target, Path(scratch) / "scripts")

        def pack(packager: str) -> Path:
            specification = _specification(packager, target, root, scripts, source.epoch)
            return _pack(packager, specification, output, Path(scratch), source)

        return pack("deb"), pack("rpm")


def _make_tree(source: Source, target: Target, root: Path, wheel: Path) -> None:
    repository = source.folder
    home = root / HOME
    site = home / "lib" / f"python{target.python}" / "site-packages"
    install_wheels(repository, target, site, wheel)
    (home / "bin").mkdir()
    (home / "bin" / "python3").symlink_to(f"../../../bin/python{target.python}")
    _write(home / "pyvenv.cfg", f"home = /usr/bin\ninclude-system-site-packages = false\nversion = {target.python}\n")
    _write(root / "usr/bin/gpu-triage", _CONSOLE, 0o755)
    systemd = repository / "deploy" / "systemd"
    unit = (systemd / f"{NAME}.service").read_text(encoding="utf-8")
    _write(root / f"usr/lib/systemd/system/{NAME}.service", _for_package(unit))
    shutil.copy(systemd / f"{NAME}.sysusers.conf", _made(root / "usr/lib/sysusers.d") / f"{NAME}.conf")
    shutil.copy(systemd / f"{NAME}.env", _made(root / "etc/default") / NAME)
    (root / "etc/default" / NAME).chmod(0o640)
    slurm = repository / "deploy" / "slurm"
    for file in (*slurm.glob("*.sh"), slurm / "slurm.conf"):
        text = file.read_text(encoding="utf-8")
        _write(root / f"usr/share/{NAME}/slurm" / file.name, text, 0o755 if text.startswith("#!") else 0o644)
    # Where slurm.conf's pattern finds the scripts; job.sh has the reason.
    (root / "usr/bin/gpu-triage-or-true").symlink_to(f"../share/{NAME}/slurm/job.sh")
    _add_documents(repository, target, root, site, source.epoch)


def _add_documents(repository: Path, target: Target, root: Path, site: Path, epoch: int) -> None:
    documents = _made(root / f"usr/share/doc/{NAME}")
    at = datetime.fromtimestamp(epoch, timezone.utc)
    _write(documents / "copyright", copyright_notice(site, HOME, at))
    _write_gzip(documents / "changelog.gz", (repository / "CHANGELOG.md").read_bytes())
    changes = debian_changelog(f"{__version__}-{target.release}", _MAINTAINER, at)
    _write_gzip(documents / "changelog.Debian.gz", changes.encode())
    shutil.copy(repository / "SECURITY.md", documents)
    (documents / "SECURITY.md").chmod(0o644)
    for drop_in in (repository / "deploy" / "systemd" / f"{NAME}.service.d").iterdir():
        shutil.copy(drop_in, _made(documents / "examples") / drop_in.name)
    for page in (repository / "docs" / "man").glob("*.1"):
        _write_gzip(_made(root / "usr/share/man/man1") / f"{page.name}.gz", page.read_bytes())
    shells = completions()
    _write(root / "usr/share/bash-completion/completions/gpu-triage", shells["bash"])
    _write(root / f"{_ZSH['deb'][1:]}/_gpu-triage", shells["zsh"])
    _write(root / "usr/share/fish/vendor_completions.d/gpu-triage.fish", shells["fish"])


def _for_package(unit: str) -> str:
    line = "ExecStart=/opt/gpu-triage/bin/gpu-triage "
    if line not in unit:
        raise ValueError(f"the unit has no line {line!r}")
    return unit.replace(line, "ExecStart=/usr/bin/gpu-triage ")


def install_wheels(repository: Path, target: Target, site: Path, wheel: Path, lock: str = "image.txt") -> None:
    """Install the pinned packages with hash checks, and ours."""
    platform = f"{ARCHITECTURES[target.architecture]}-manylinux_{_GLIBC.replace('.', '_')}"
    hosts = (f"--python-version={target.python}", f"--python-platform={platform}")
    place = (f"--python={sys.executable}", f"--target={site}", *hosts)
    locked = ("--only-binary=:all:", "--require-hashes", f"--requirements={repository / 'requirements' / lock}")
    # Copied, because the default is hard links to uv's cache, and file modes are changed later.
    _uv("pip", "install", "--link-mode", "copy", *place, *locked)
    _uv("pip", "install", "--link-mode", "copy", *place, "--no-deps", str(wheel))
    # Remove scripts and manual pages of the packages, a test of nvidia-ml-py, and uv's metadata on this machine.
    shutil.rmtree(site / "bin", ignore_errors=True)
    shutil.rmtree(site / "share", ignore_errors=True)
    (site / ".lock").unlink(missing_ok=True)
    for leftover in ("*.dist-info/RECORD", "*.dist-info/direct_url.json", "*.dist-info/uv_cache.json", "example.py"):
        for path in site.glob(leftover):
            path.unlink()
    for path in site.rglob("*"):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() else 0o644)


def _scripts(target: Target, folder: Path) -> Path:
    for packager in ("deb", "rpm"):
        for source in (_HERE / packager).iterdir():
            text = source.read_text(encoding="utf-8").replace("@PYTHON@", target.python)
            _write(_made(folder / packager) / source.name, text, 0o755)
    return folder


def _specification(packager: str, target: Target, root: Path, scripts: Path, epoch: int) -> dict[str, Any]:
    python = f"python{target.python}" if packager == "deb" else f"/usr/bin/python{target.python}"
    specification: dict[str, Any] = {
        "name": NAME,
        "arch": target.architecture,
        "version": __version__,
        "release": target.release,
        "section": "net",
        "priority": "optional",
        "maintainer": _MAINTAINER,
        "description": _DESCRIPTION,
        "license": "Apache-2.0",
        "mtime": datetime.fromtimestamp(epoch, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "contents": list(_contents(packager, root)),
        "scripts": {path.stem: str(path) for path in (scripts / packager).iterdir() if path.stem in _HOOKS},
        "rpm": {"summary": _SUMMARY, "compression": target.compression, "group": "Applications/System"},
        "deb": {"compression": target.compression},
    }
    if packager == "deb":
        # systemd comes first, for releases without a package named systemd-sysusers.
        users = "systemd | systemd-standalone-sysusers | systemd-sysusers"
        specification["depends"] = [python, f"libc6 (>= {_GLIBC})", "libgcc-s1", "libstdc++6", "libudev1", users]
    else:
        specification["depends"] = [python, "systemd", "libudev.so.1()(64bit)"]
        specification["rpm"]["scripts"] = {"posttrans": str(scripts / "rpm" / "posttrans.sh")}
    return specification


def _contents(packager: str, root: Path) -> Iterator[dict[str, Any]]:
    """List each file separately, to keep its mode; list our own folders, so that uninstalling removes them."""
    owner = {"owner": "root", "group": "root"}
    for path in sorted(root.rglob("*")):
        place = f"/{path.relative_to(root)}".replace(_ZSH["deb"], _ZSH[packager])
        ours = f"/{NAME}" in place
        if path.is_symlink():
            yield {"src": str(path.readlink()), "dst": place, "type": "symlink", "file_info": owner}
        elif path.is_dir():
            if ours:
                yield {"dst": place, "type": "dir", "file_info": {**owner, "mode": 0o755}}
        else:
            mode = path.stat().st_mode & 0o777
            kind = {"type": "config|noreplace"} if place.startswith("/etc/") else {}
            yield {"src": str(path), "dst": place, "file_info": {**owner, "mode": mode}, **kind}
    if packager == "deb":
        overrides = f"/usr/share/lintian/overrides/{NAME}"
        yield {"src": str(_HERE / "lintian-overrides"), "dst": overrides, "file_info": {**owner, "mode": 0o644}}


def _pack(packager: str, specification: Mapping[str, Any], output: Path, scratch: Path, source: Source) -> Path:
    config = scratch / f"nfpm-{packager}.yaml"
    config.write_text(yaml.safe_dump(dict(specification)), encoding="utf-8")
    before = set(output.glob(f"*.{packager}"))
    arguments = ("package", "--packager", packager, "--config", str(config), "--target", f"{output}/")
    said = run(tool("nfpm"), *arguments, env=source.environment)
    made = [path for path in output.glob(f"*.{packager}") if path not in before or path.name in said]
    (package,) = made
    return package


def _write(path: Path, text: str, mode: int = 0o644) -> None:
    _made(path.parent)
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)


def _write_gzip(path: Path, content: bytes) -> None:
    # Without timestamp and name, for reproducible output.
    path.write_bytes(gzip.compress(content, 9, mtime=0))


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _uv(*arguments: str) -> None:
    run(tool("uv"), *arguments, "--quiet", "--no-config")


def completions() -> Mapping[str, str]:
    """Completion scripts for bash, zsh and fish, by shell; they call the program to complete."""
    found = {}
    for shell in ("bash", "zsh", "fish"):
        completion = get_completion_class(shell)
        assert completion is not None  # noqa: S101 - click supports these
        found[shell] = completion(group, {}, "gpu-triage", "_GPU_TRIAGE_COMPLETE").source()
    return found


def debian_changelog(version: str, maintainer: str, at: datetime) -> str:
    """The packaging changelog, which Debian requires in addition to the program's own."""
    words = f"{NAME} ({version}) stable; urgency=medium\n\n  * Package of version {__version__}; see changelog.gz.\n\n"
    return f"{words} -- {maintainer}  {format_datetime(at)}\n"


def copyright_notice(site: Path, home: str, at: datetime) -> str:
    """The copyright file: ours, and the licenses of the Python packages in `site`, which is `home` on the host."""
    lines = [
        f"Copyright (C) {at.year} the authors of {NAME}",
        "License: Apache License, version 2.0. Its text is in",
        "/usr/share/common-licenses/Apache-2.0 on Debian systems, and in",
        f"/{home}/lib/python*/site-packages/{NAME.replace('-', '_')}-*.dist-info/licenses/LICENSE.",
        "",
        f"The Python packages in /{home} are works of their own; their licenses are in their",
        "*.dist-info folders:",
        "",
        *_bundled(site),
    ]
    return "\n".join(lines) + "\n"


def _bundled(site: Path) -> Iterator[str]:
    for path in sorted(site.glob("*.dist-info/METADATA")):
        about = HeaderParser().parsestr(path.read_text(encoding="utf-8"))
        classified = [line.rpartition(" :: ")[2] for line in about.get_all("Classifier", []) if "License ::" in line]
        first_line = (about["License"] or "").partition("\n")[0]
        terms = about["License-Expression"] or ", ".join(classified) or first_line
        if about["Name"] != NAME:
            yield f"  {about['Name']} {about['Version']}: {terms}"
