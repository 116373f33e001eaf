"""Whatever the files of jobs hold, the page stays below the limits of the chart's scrape."""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.job_files import read, samples, write
from tests.parts import some
from tests.scrape_limits import TARGET_LABELS, check, page_of, scrape_of_the_chart

from gpu_triage.read.host.textfile_reader import (
    MAX_BYTES,
    MAX_FILES,
    MAX_LABELS,
    MAX_LINE_BYTES,
    MAX_NAME_BYTES,
    MAX_SERIES,
    PREFIX,
    TextFilesReading,
)
from gpu_triage.serve.exposition.encoding import Format

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def chart(repository: Path) -> Mapping[str, Any]:
    return scrape_of_the_chart(repository)


def test_the_bounds_of_a_file_lie_below_the_limits_of_the_charts_scrape(chart: Mapping[str, Any]) -> None:
    own = ("__name__", "owner")
    assert MAX_LABELS + len(own) + len(TARGET_LABELS) <= chart["labelLimit"]
    # A label that the target has as well is renamed.
    assert len("exported_") + MAX_NAME_BYTES <= chart["labelNameLengthLimit"]
    assert chart["labelValueLengthLimit"] >= MAX_NAME_BYTES
    of_16_gpus, of_the_files = 6000, 3 * MAX_FILES
    assert of_16_gpus + of_the_files + MAX_SERIES <= chart["sampleLimit"]
    assert chart["honorLabels"] is False


def obeys(reading: TextFilesReading, chart: Mapping[str, Any]) -> None:
    """Check a page of jobs' files against the limits of a scrape, in both formats."""
    pages = {form: page_of(form, foreign=reading.families) for form in Format}
    found = {form: check(page, form, chart) if reading.families else [] for form, page in pages.items()}
    assert len(found[Format.TEXT]) == len(found[Format.OPENMETRICS]) <= MAX_SERIES
    for sample in found[Format.TEXT]:
        assert sample.name.startswith(PREFIX)
        assert ":" not in sample.name
        assert not {*TARGET_LABELS, "gpu", "uuid", "user"} & sample.labels.keys()
        assert sample.timestamp is None
    assert len(pages[Format.TEXT]) + (1 << 20) < 10 << 20


NAMES = st.one_of(
    st.sampled_from(["gpu_job_x", "gpu_job_x_total", "gpu_job_x_bucket", "gpu_job_x_count", "gpu_job_x_created", "up"]),
    st.builds(lambda count: "gpu_job_" + "n" * count, st.integers(0, 300)),
)
LABEL_NAMES = st.one_of(
    st.sampled_from(["le", "quantile", "rank", "instance", "owner", "__name__", "ü", ""]),
    st.builds(lambda count: "n" * count, st.integers(1, 300)),
    st.builds("l{}".format, st.integers(0, 60)),
)
LABEL_VALUES = st.one_of(
    st.sampled_from(["", "+Inf", "0.5", "1", '\\"', "\\\\", "\\n", "\\x", "\x00", "\r", "\u2028"]),
    st.text(st.characters(exclude_characters='"\\\n', codec="utf-8"), max_size=20),
    st.builds(lambda count: "v" * count, st.integers(0, 3000)),
)
VALUES = st.one_of(
    st.floats().map(str),
    st.sampled_from(["NaN", "+Inf", "-Inf", "1e999", "1_0", "0x1", "", "1 2", "1 # {} 1", "\u0661"]),
)
LABELS = st.lists(st.tuples(LABEL_NAMES, LABEL_VALUES), max_size=50)
LINES = st.one_of(
    st.builds(
        lambda name, labels, value: f"{name}{{{','.join(f'{k}={chr(34)}{v}{chr(34)}' for k, v in labels)}}} {value}",
        NAMES,
        LABELS,
        VALUES,
    ),
    st.builds("{} {}".format, NAMES, VALUES),
    st.builds("# TYPE {} {}".format, NAMES, st.sampled_from(["counter", "gauge", "histogram", "summary", "untyped"])),
    st.builds("# HELP {} {}".format, NAMES, LABEL_VALUES),
    st.sampled_from(["# EOF", "#", "# UNIT gpu_job_x seconds", "{", "gpu_job_x{", "\t", "gpu_job_x{} 1", "\x00"]),
    st.text(max_size=40),
)
FILES = st.dictionaries(
    st.sampled_from(["a/1.prom", "a/2.prom", "b/1.prom", "c.prom"]), st.lists(LINES, max_size=8).map("\n".join)
)


@settings(max_examples=40)
@given(files=FILES)
def test_whatever_files_hold_the_page_obeys_the_charts_limits(
    tmp_path_factory: pytest.TempPathFactory, chart: Mapping[str, Any], files: dict[str, str]
) -> None:
    directory = tmp_path_factory.mktemp("jobs")
    write(directory, {name: text.encode("utf-8", "replace").decode() for name, text in files.items()})
    obeys(read(directory), chart)


LARGEST: dict[str, Callable[[int], str]] = {
    "the most bytes": lambda n: (
        f'gpu_job_x{{n="{n}",{",".join(f"{k}={chr(34)}{chr(92)}x{chr(34)}" for k in "abcd")}}} 1'
    ),
    "the longest names": lambda n: f"gpu_job_{n:0{MAX_NAME_BYTES - 8}} 1",
    "the longest values": lambda n: f'gpu_job_x{{n="{n:0{300}}"}} 1',
    "backslashes": lambda n: f'gpu_job_x{{n="{n}{chr(92) * 2 * 90}"}} 1',
    "many histograms": lambda n: f"# TYPE gpu_job_{n} histogram\ngpu_job_{n}_count 1",
}


@pytest.mark.parametrize("kind", some(LARGEST, usual=("backslashes", "many histograms")))
def test_the_largest_page_of_jobs_fits_into_a_scrape(tmp_path: Path, chart: Mapping[str, Any], kind: str) -> None:
    line = LARGEST[kind]
    each = min(MAX_SERIES, MAX_BYTES // (len(line(10_000)) + 1)) // 2
    files = math.ceil(MAX_SERIES / each) + 1
    write(
        tmp_path,
        {
            f"{'owner' * 20}{file}/jobs.prom": "\n".join(
                line(number) for number in range(file * each, (file + 1) * each)
            )
            for file in range(files)
        },
    )
    reading = read(tmp_path)
    assert len(samples(reading)) > 1000
    obeys(reading, chart)


def test_a_long_line_is_long_in_characters_that_no_honest_line_needs() -> None:
    longest = MAX_NAME_BYTES + MAX_LABELS * (MAX_NAME_BYTES + len('="",') + 2 * 200) + len("{} ") + 30
    assert longest < MAX_LINE_BYTES
