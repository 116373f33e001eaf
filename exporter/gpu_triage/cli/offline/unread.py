"""Data in nvidia-smi output that could not be parsed or is missing, with the next step."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from gpu_triage.cli.offline.scan import Content
from gpu_triage.cli.offline.snapshot import Snapshot
from gpu_triage.cli.offline.times import written
from gpu_triage.read.metrics.contract import GpuLabels

_MOST_LINES: Final = 12
_MOST_FAILED: Final = 4


def unread_of(contents: Iterable[Content], last: Snapshot | None, labels: Mapping[str, GpuLabels]) -> Iterator[str]:
    """One line for each thing that nvidia-smi printed or omitted, and that therefore isn't judged."""
    for content in contents:
        if content.without_headings:
            yield (
                "rows of nvidia-smi --query-gpu without headings: leave out noheader, or attach the command too: "
                f"{content.without_headings}"
            )
    if last is None:
        return
    if last.attached is not None and last.attached > len(last.gpus):
        missing = last.attached - len(last.gpus)
        yield f"{missing} of {last.attached} GPUs that nvidia-smi counts: attach its whole output"
    for key, at in last.carried.items():
        since = "an earlier output" if at is None else written(at)
        yield f"GPU {_index(labels, key)} in the last output, which does not show all GPUs: it is judged as of {since}"
    for key, gpu in last.gpus.items():
        if gpu.failed:
            what = ", ".join(path.rpartition("/")[2].replace("_", " ") for path in gpu.failed[:_MOST_FAILED])
            yield f"what the driver could not read of GPU {_index(labels, key)}: {what}"
    yield from _unknown_forms(last, labels)


def _unknown_forms(last: Snapshot, labels: Mapping[str, GpuLabels]) -> Iterator[str]:
    lines: dict[str, list[str]] = defaultdict(list)
    for key, gpu in last.gpus.items():
        for line in gpu.unread:
            lines[line].append(f"GPU {_index(labels, key)}")
    for line in last.unread:
        lines[line].append("nvidia-smi")
    for line, of in list(lines.items())[:_MOST_LINES]:
        yield f"a line in an unknown form ({', '.join(Counter(of))}): {line}"
    if len(lines) > _MOST_LINES:
        yield f"{len(lines) - _MOST_LINES} more lines in an unknown form"


def _index(labels: Mapping[str, GpuLabels], key: str) -> str:
    return labels[key].gpu if key in labels else "?"
