"""Documents in the packages: licenses, packaging changelog, shell completions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from email.parser import HeaderParser
from email.utils import format_datetime
from pathlib import Path
from typing import Final

from click.shell_completion import get_completion_class

from gpu_triage import __version__
from gpu_triage.cli.main import group

NAME: Final = "gpu-triage-exporter"


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
