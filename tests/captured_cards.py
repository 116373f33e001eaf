"""What real cards said of themselves through nvidia-smi, as the people who own them published it.

These are other people's files, and none is part of the repository. Tests that compare with them look in
``../shared/data/real``, or in the folder that GPU_TRIAGE_TEST_CAPTURES names.
"""

import os
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

FOLDER: Final = Path(
    os.environ.get("GPU_TRIAGE_TEST_CAPTURES") or Path(__file__).resolve().parents[2] / "shared" / "data" / "real"
)


def captured(pattern: str) -> list[Path]:
    """The files of this name, of which there are some, or none if the whole folder is not here."""
    found = sorted(FOLDER.glob(pattern))
    assert found or not FOLDER.is_dir(), f"{FOLDER} has no {pattern}"
    return found


ABSENT: Final = frozenset({"N/A", "[N/A]", "None", "", "[Not Supported]"})
DEPRECATED: Final = "Requested functionality has been deprecated"

_FACTS: Final = yaml.safe_load(Path(__file__).with_name("captured_facts.yml").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Capture:
    """One look at a card."""

    driver: str  # its driver's version
    # what was said, by fact; a fact that this version of nvidia-smi does not know is not in it
    facts: Mapping[str, str]
    nvlink: str = ""  # what ``nvidia-smi nvlink -s`` said of its links; "" where nobody asked

    @property
    def name(self) -> str:
        return self.facts["name"]

    @property
    def mig(self) -> bool:
        return self.facts.get("mig.mode.current") == "Enabled"

    @property
    def working(self) -> bool:
        shares = (self.facts.get(f"utilization.{engine}", "") for engine in ("gpu", "encoder"))
        return any(share.removesuffix(" %").isdigit() and int(share.removesuffix(" %")) > 1 for share in shares)

    def present(self, fact: str) -> bool | None:
        """Whether it said this; None where nobody asked."""
        told = self.facts.get(fact)
        return None if told is None else told not in ABSENT and told.strip("[]") != DEPRECATED

    def number(self, fact: str) -> float | None:
        return float(self.facts[fact].split()[0]) if self.present(fact) else None


def xml_captures(path: Path) -> Iterator[Capture]:
    """The cards in what ``nvidia-smi -q -x`` printed."""
    root = ET.fromstring(path.read_text(encoding="utf-8"))  # noqa: S314 - files that we chose
    for gpu in root.findall("gpu"):
        facts = {}
        for fact, places in _FACTS["xml"].items():
            texts = [text for text in map(gpu.findtext, places) if text is not None]
            if texts:
                facts[fact] = texts[0].strip()
        yield Capture(root.findtext("driver_version") or "", facts)


def text_captures(path: Path) -> Iterator[Capture]:
    """The card at each look that a log of several nvidia-smi commands has: idle, then at work."""
    text = path.read_text(encoding="utf-8", errors="replace")
    sections = dict(_sections(text))
    rows = [body.splitlines()[-2:] for command, body in _sections(text) if command.startswith("--query-gpu=")]
    reports = [body for command, body in _sections(text) if command == "-q"]
    for (heads, values), report in zip(rows, reports, strict=True):
        named = zip(heads.split(", "), values.split(", "), strict=True)
        facts = {name.partition(" [")[0].strip(): value.strip() for name, value in named}
        for line in report.splitlines():
            label, _, value = line.partition(" : ")
            if fact := _FACTS["report"].get(label.strip()):
                facts[fact] = value.strip()
        yield Capture(facts["driver_version"], facts, sections.get("nvlink -s", ""))


def _sections(text: str) -> Iterator[tuple[str, str]]:
    for part in text.split("\n# $ nvidia-smi ")[1:]:
        command, _, body = part.partition("\n")
        yield command.strip(), body.partition("\n\n\n####")[0].strip()
