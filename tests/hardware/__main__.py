"""``python -m tests.hardware``: what the exporter reports of this host's GPUs, beside what nvidia-smi prints.

Takes up to four minutes and leaves a bundle. Exit code 0: all agrees. 1: something differs. 2: nothing was compared.
"""

import argparse
import json
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Final

from tests.hardware.table import AGREES, DIFFERS, VERDICTS, compare, lines
from tests.hardware.visit import FILES, Plan, Visit

_NO_DRIVER: Final = "Install the NVIDIA driver, which has nvidia-smi, or load it (modprobe nvidia), and run this again."


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.hardware", description=__doc__)
    parser.add_argument("--out", type=Path, help="new folder for the bundle")
    parser.add_argument("--load", metavar="COMMAND", help="shell command that keeps the GPUs busy until it is ended")
    parser.add_argument("--judge", type=Path, metavar="FOLDER", help="print the table of this bundle, and no more")
    parser.add_argument("--pack", type=Path, metavar="FOLDER", help="make a folder to copy to hosts without network")
    parser.add_argument("--simulate", metavar="SCENARIO", help="the exporter's simulated host in place of this one")
    for each in fields(Plan):
        parser.add_argument(
            f"--{each.name}", type=type(each.default), default=each.default, help="see Plan in visit.py"
        )
    given = parser.parse_args()
    if given.pack:
        from tests.hardware.pack import pack  # noqa: PLC0415 - it is not in what it packs

        pack(given.pack)
        sys.stdout.write(f"Copy {given.pack} to the host and run: sh {given.pack.name}/run.sh\n")
        return 0
    if given.judge:
        return report(given.judge)
    folder = given.out or Path(time.strftime("gpu-triage-hardware-%Y%m%dT%H%M%S"))
    if folder.exists():
        parser.error(f"{folder}: exists; name a new folder")
    folder.mkdir(parents=True)
    plan = Plan(**{each.name: getattr(given, each.name) for each in fields(Plan)})
    visit = Visit(folder, plan, given.simulate, given.load)
    if why := visit.refusal():
        shutil.rmtree(folder)
        sys.stderr.write(f"{why}\n{_NO_DRIVER}\n")
        return 2
    visit.run()
    code = report(folder)
    archive = shutil.make_archive(str(folder), "gztar", folder.parent, folder.name)
    sys.stdout.write(f"\nBundle: {archive}. Look through it, then attach it to an issue.\n")
    return code


def report(folder: Path) -> int:
    """Print the table of a bundle, and leave it there; returns the exit code."""
    results = list(compare(folder))
    found = Counter(each.verdict for each in results)
    totals = ", ".join(f"{each}: {found[each]}" for each in VERDICTS)
    text = "\n".join((*lines(results), "", *measured(folder), "", totals, ""))
    (folder / "table.txt").write_text(text, encoding="utf-8")
    sys.stdout.write(text)
    return 1 if found[DIFFERS] else 0 if found[AGREES] else 2


def measured(folder: Path) -> Iterator[str]:
    """What nothing is compared with: the exporter's own cost, and the driver's calls."""
    about = json.loads((folder / "about.json").read_text(encoding="utf-8"))
    yield f"load: {about['load'] or 'none available; name one with --load'}"
    yield from (f"{name}: {figures}" for name, figures in about.items() if name.startswith("exporter"))
    for name in FILES:
        entries = json.loads((folder / name).read_text(encoding="utf-8")) if (folder / name).exists() else []
        yield from (", ".join(f"{key} {value}" for key, value in each.items()) for each in entries[:16])


if __name__ == "__main__":
    sys.exit(main())
