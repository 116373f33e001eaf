"""Compares what the exporter published of a host with what nvidia-smi printed of it, from the files of a bundle."""

import csv
import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

from prometheus_client.parser import text_string_to_metric_families

DIFFERS, CANNOT_KNOW, AGREES = VERDICTS = ("differs", "cannot know", "agrees")


class Row(NamedTuple):
    """One value that both report, as in ``values.csv``."""

    metric: str
    labels: Mapping[str, str]  # further labels of its series; the values of several series are added
    label: str  # of a fact: the label that has its text
    # Constant: all values are equal. Gauge: the ranges of both overlap. Counter: each value is between those that
    # nvidia-smi printed before and after. Fact: the texts are equal.
    kind: str
    tolerance: float  # in the metric's unit
    # Where nvidia-smi has it, the preferred one first: elements in the XML of a GPU, whose values are added if joined
    # by +, and what `_look` adds from other commands.
    places: Sequence[str]


class Result(NamedTuple):
    """One line of the table."""

    verdict: str  # of VERDICTS
    what: str
    exporter: str = ""
    smi: str = ""
    gpu: str = ""
    phase: str = ""


Page = Mapping[str, Sequence[tuple[str, Mapping[str, str], float]]]
"""The series of one scrape by UUID; those of the host by ""."""
Look = Mapping[str, Mapping[str, str]]
"""What nvidia-smi printed at one time by UUID: texts by place."""

_SCALES: Final = {"MiB": 2.0**20, "MHz": 1e6, "GB/s": 1e9, "us": 1e-6, "%": 0.01}
_NUMBER: Final = re.compile(r"P?(-?\d+(?:\.\d+)?) ?(MiB|MHz|GB/s|us|%|W|C|x|bank\(s\))?")
_WORDS: Final = {
    **dict.fromkeys(("disabled", "no", "not active", "none"), 0.0),  # none: recovery action, virtualization
    **dict.fromkeys(("enabled", "yes", "active", "not started", "healthy", "reset", "pass-through"), 1.0),
    **dict.fromkeys(("in progress", "unhealthy", "reboot", "vgpu"), 2.0),
    **dict.fromkeys(("completed", "limited capacity", "drain p2p", "host vgpu"), 3.0),
    **dict.fromkeys(("drain and reset", "host vsga"), 4.0),
}
_NOTHING: Final = ("no series", "not printed")
_GPU: Final = re.compile(r"GPU(\d+)")


def rows() -> Iterator[Row]:
    """The values that are compared of each GPU."""
    for each in csv.DictReader(Path(__file__).with_name("values.csv").read_text(encoding="utf-8").splitlines()):
        labels = dict(pair.split("=") for pair in each["labels"].split() if "=" in pair)
        label, tolerance = "" if labels or each["kind"] != "fact" else each["labels"], float(each["tolerance"] or 0)
        yield Row(each["metric"], labels, label, each["kind"], tolerance, each["nvidia-smi"].split())


def compare(folder: Path) -> Iterator[Result]:
    """The table of a bundle."""
    steps = json.loads((folder / "about.json").read_text(encoding="utf-8"))["steps"]
    failures = dict.fromkeys((step["command"], step["outcome"]) for step in steps if step["outcome"])
    yield from (Result(CANNOT_KNOW, command, smi=why) for command, why in failures)
    for phase in ("idle", "load"):
        pages = [_page(path) for path in sorted((folder / phase).glob("*.prom"))]
        looks = [_look(folder, phase, number) for number in range(len(pages) + 1)]
        for uuid in dict.fromkeys(uuid for look in looks for uuid in look):
            places = [look.get(uuid, {}) for look in looks]
            series = [page.get(uuid, ()) if page else None for page in pages]
            compared = [row for row in rows() if phase == "idle" or row.kind in ("gauge", "counter")]
            results = [judged(row, places, series) for row in (*compared, *_levels(places))]
            gpu = next(each["gpu"] for each in places if each)
            known = (each for each in results if (each.exporter, each.smi) != _NOTHING)
            yield from (each._replace(gpu=gpu, phase=phase) for each in known)


def judged(row: Row, looks: Sequence[Mapping[str, str]], pages: Sequence[Sequence[Any] | None]) -> Result:
    theirs, ours = [_printed(row, look) for look in looks], [_published(row, page or ()) for page in pages]
    known, have = [each for each in theirs if each is not None], [each for each in ours if each is not None]
    if not known or all(page is None for page in pages):
        verdict = CANNOT_KNOW
    elif not have:
        verdict = DIFFERS
    elif row.kind == "fact":
        verdict = AGREES if set(have) == set(known) else DIFFERS
    elif row.kind == "counter":
        turns = zip(theirs, ours, theirs[1:], strict=False)
        spans = [[each for each in turn if each is not None] for turn in turns if turn[1] is not None]
        rises = all(b - a >= -row.tolerance for span in spans for a, b in pairwise(span))
        verdict = AGREES if rises else DIFFERS
    else:
        gap = max(min(have) - max(known), min(known) - max(have))
        spread = max(*have, *known) - min(*have, *known)
        verdict = AGREES if (gap if row.kind == "gauge" else spread) <= row.tolerance else DIFFERS
    parts = [part for place in row.places for part in place.split("+")]
    texts = dict.fromkeys(look[part] for look in looks for part in parts if part in look)
    name = row.label or ",".join(row.labels.values())
    what = f"{row.metric}{{{name}}}" if name else row.metric
    return Result(verdict, what, _range(have) or _NOTHING[0], _range(known) or ", ".join(texts) or _NOTHING[1])


def _published(row: Row, page: Sequence[Any]) -> Any:
    """The value on a page, or the text of a fact; None if there is no series."""
    wanted = row.labels.items()
    found = [(labels, value) for name, labels, value in page if name == row.metric and wanted <= labels.items()]
    if not found:
        return None
    return _plain(found[0][0][row.label]) if row.label else sum(value for _, value in found)


def _printed(row: Row, look: Mapping[str, str]) -> Any:
    """The value that nvidia-smi printed, or the text of a fact; None if it printed none, as with N/A."""
    for place in row.places:
        texts = [look.get(part, "") for part in place.split("+")]
        if row.label and _plain(texts[0]) not in ("", "n/a", "[n/a]"):
            return _plain(texts[0])
        numbers = [] if row.label else [number for text in texts if (number := _number(text)) is not None]
        if len(numbers) == len(texts):
            return sum(numbers)
    return None


def _number(text: str) -> float | None:
    match = _NUMBER.fullmatch(text)
    return float(match[1]) * _SCALES.get(match[2], 1.0) if match else _WORDS.get(text.lower())


def _plain(text: str) -> str:
    """Text without what both write differently: the case of letters, and the eight digits of a PCI domain."""
    return re.sub(r"^0000(?=[0-9a-f]{4}:)", "", text.lower())


def _range(values: Sequence[Any]) -> str:
    ends = (min(values), max(values)) if values else ()
    return "..".join(dict.fromkeys(f"{end:.10g}" if isinstance(end, float) else str(end) for end in ends))


def _page(path: Path) -> Page:
    page: dict[str, list[tuple[str, Mapping[str, str], float]]] = {}
    for family in text_string_to_metric_families(path.read_text(encoding="utf-8")):
        for sample in family.samples:
            page.setdefault(sample.labels.get("uuid", ""), []).append((sample.name, sample.labels, sample.value))
    return page


def _look(folder: Path, phase: str, number: int) -> Look:
    """One look at all GPUs, with topology and links at the first; empty if nvidia-smi did not answer."""

    def read(name: str) -> str:
        return (folder / name).read_text(encoding="utf-8") if (folder / name).exists() else ""

    try:
        gpus = ET.fromstring(read(f"{phase}/{number}.xml")).findall("gpu")  # noqa: S314 - of a host that you chose
    except ET.ParseError:
        return {}
    look = {gpu.findtext("uuid", ""): {"gpu": str(index), **dict(_leaves(gpu))} for index, gpu in enumerate(gpus)}
    for record in csv.DictReader(read(f"{phase}/{number}.csv").splitlines(), skipinitialspace=True):
        facts = {f"query/{name.split()[0]}": text for name, text in record.items() if name and text}
        look.get(record.get("uuid", ""), {}).update(facts)
    if (phase, number) == ("idle", 0):
        for uuid, place, value in (*topology(read("topo.txt"), list(look)), *links(read("nvlink.txt"))):
            look.get(uuid, {})[place] = value
    return look


def _leaves(element: ET.Element, path: str = "") -> Iterator[tuple[str, str]]:
    """Texts of the innermost elements by their paths, and how many processes there are."""
    for child in element:
        if child.tag == "processes":
            yield "processes/count", (child.text or "").strip() or str(len(child))
        elif len(child):
            yield from _leaves(child, f"{path}{child.tag}/")
        else:
            yield f"{path}{child.tag}", (child.text or "").strip()


def topology(text: str, uuids: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """UUID, place and text from ``topo -m``: levels to other GPUs, if NVLink does not hide them, and NUMA nodes."""
    table = [[cell.strip() for cell in re.sub(r"\x1b\[\d*m", "", line).split("\t")] for line in text.splitlines()]
    heads = next((cells for cells in table if "GPU0" in cells[1:]), [])
    for cells in table:
        if (gpu := _GPU.fullmatch(cells[0])) and cells is not heads:
            named, uuid = list(zip(heads, cells, strict=False)), dict(enumerate(uuids)).get(int(gpu[1]), "")
            peers = [(head, cell) for head, cell in named if _GPU.fullmatch(head) and cell != "X"]
            if joined := sum(cell.startswith("NV") for _, cell in peers):
                yield uuid, "topo/nvlink", str(joined)
            yield from ((uuid, f"topo/{head}", cell) for head, cell in peers if not cell.startswith("NV"))
            yield from ((uuid, "topo/numa", cell) for head, cell in named if head == "NUMA Affinity")


def _levels(looks: Sequence[Mapping[str, str]]) -> Iterator[Row]:
    """The levels of topology, which the exporter has once for two GPUs."""
    for look in looks:
        for place in look:
            peer = place.removeprefix("topo/GPU")
            if peer != place and int(peer) > int(look["gpu"]):
                yield Row("gpu_topology_info", {"peer_gpu": peer}, "level", "fact", 0.0, (place,))


def links(text: str) -> Iterator[tuple[str, str, str]]:
    """UUID, place and text from ``nvlink -s``: how many links have a speed, and its sum."""
    for part in re.split(r"^GPU ", text, flags=re.MULTILINE)[1:]:
        uuid, speeds = re.search(r"UUID: ([\w-]+)", part), re.findall(r"Link \d+: ([\d.]+) GB/s", part)
        if uuid and "Link" in part:
            yield uuid[1], "nvlink/up", str(len(speeds))
            yield uuid[1], "nvlink/speed", f"{sum(map(float, speeds)):.3f} GB/s"


def lines(results: Iterable[Result]) -> Iterator[str]:
    """The table as text, what differs first; values are those of the first GPU of a line."""
    alike: dict[tuple[str, str, str], list[Result]] = {}
    for each in results:
        alike.setdefault((each.verdict, each.phase, each.what), []).append(each)
    for (verdict, phase, what), group in sorted(alike.items(), key=lambda item: VERDICTS.index(item[0][0])):
        gpus = ",".join(dict.fromkeys(each.gpu for each in group))
        yield f"{verdict:12}{phase:5}{gpus:16}{what:58} {group[0].exporter:24} {group[0].smi}"
