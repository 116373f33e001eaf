"""Measure what the exporter costs, beside nvitop-exporter and node_exporter, for docs/benchmarks.md."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

# Run as a script, so its own directory is on the path and the repository is not.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.bench import measure, subjects, workload
from tests.bench.environment import wiring
from tests.bench.measure import FULL, QUICK, Durations
from tests.bench.page import write_section
from tests.bench.report import Result, StandIn, document
from tests.bench.subjects import Subject

from gpu_triage import __version__

log = logging.getLogger("bench")


def run(durations: Durations) -> tuple[list[Result], StandIn]:
    """Every measurement of every exporter, ours first; and of the stand-in driver."""
    found = (subjects.this_exporter(__version__), subjects.nvitop_exporter(), subjects.node_exporter())
    tested = [subject for subject in found if subject is not None]
    with (
        tempfile.TemporaryDirectory(prefix="gpu-triage-bench-") as directory,
        workload.sleepers(workload.process_count()) as pids,
    ):
        logs = Path(directory)
        calm = workload.write_scenario(logs, pids)
        hanging = workload.write_scenario(logs, pids, durations.hang)
        log.info("one scrape a second, all at once: %.0f s", durations.steady)
        with ThreadPoolExecutor(len(tested)) as pool:
            rest = list(pool.map(partial(_steady, calm, logs, durations), tested))
        results = []
        for subject, steady in zip(tested, rest, strict=True):
            log.info("%s under load", subject.name)
            results.append(
                Result(
                    subject=subject,
                    steady=steady,
                    loaded=measure.loaded(subject, calm, logs, durations),
                    hung=measure.hung(subject, hanging, logs, durations.hang) if subject.power else None,
                    metered=measure.metered(subject, calm, logs, durations.metered)
                    if subject.metered_command
                    else None,
                )
            )
        return results, StandIn(
            measure.standin_resident_bytes(calm), measure.floor_ratio(calm), measure.where_time_goes(calm)
        )


def main(arguments: list[str]) -> int:
    """Parse, measure, write; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="short phases, 5 minutes in all, section to standard output"
    )
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    load = os.getloadavg()[0]
    durations = QUICK if options.quick else FULL
    results, standin = run(durations)
    text = document(results, standin, durations, wiring(arguments, load))
    if options.quick:
        sys.stdout.write(text)
    else:
        write_section("cost", text)
    return 0


def _steady(scenario: Path, logs: Path, durations: Durations, subject: Subject) -> measure.Steady:
    return measure.steady(subject, scenario, logs, durations)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
