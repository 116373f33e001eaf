"""What no file of a job may hold: a name or a label that is not its own, or a line that takes long to parse."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tests.job_files import errors, read, samples, write
from tests.promql.vocabulary import TARGET_LABELS as TARGET_LABELS_OF_RULES
from tests.scrape_limits import TARGET_LABELS

from gpu_triage.read.gpu.identity import GPU_INFO
from gpu_triage.read.host.textfile_reader import MAX_LABELS, PREFIX
from gpu_triage.read.processes.allocation import GPU_ALLOCATED
from gpu_triage.read.processes.on_gpu import GPU_PROCESS_INFO
from gpu_triage.read.registry import METRICS

GENERIC = {"name", "architecture", "process"}
"""Labels of ours that claim no identity: a job may name a layer, an architecture or a process of its own."""


def labeled(count: int) -> str:
    return "gpu_job_x{" + ",".join(f'l{number}="v"' for number in range(count)) + "} 1\n"


REFUSED = {
    "40 labels": (labeled(40), "too_many_labels"),
    "one label too many": (labeled(MAX_LABELS + 1), "too_many_labels"),
    "a label name of 250 characters": (f'gpu_job_x{{{"n" * 250}="v"}} 1\n', "name_too_long"),
    "a metric name of 250 characters": (f"gpu_job_{'n' * 250} 1\n", "name_too_long"),
    "a sample name that its suffix makes too long": (
        f'# TYPE gpu_job_{"n" * 90} histogram\ngpu_job_{"n" * 90}_bucket{{le="+Inf"}} 1\n',
        "name_too_long",
    ),
    "a line of 20 KiB": (f'gpu_job_x{{a="{"v" * 20_000}"}} 1\n', "line_too_long"),
    "a recorded series that mutes a page": ('instance_gpu:gpu_busy:ratio5m{gpu="0"} 0\n', "name_not_allowed"),
    "up": ("up 0\n", "name_not_allowed"),
    "ALERTS": ('ALERTS{alertname="GpuLost",alertstate="firing"} 1\n', "name_not_allowed"),
    "a metric of the scrape": ("scrape_duration_seconds 0\n", "name_not_allowed"),
    "a metric of node_exporter": ("node_load1 0\n", "name_not_allowed"),
    "a metric of dcgm-exporter": ("DCGM_FI_DEV_GPU_UTIL 0\n", "name_not_allowed"),
    "a metric of this exporter": ("gpu_up 0\n", "name_not_allowed"),
    "a metric of this process": ("process_start_time_seconds 0\n", "name_not_allowed"),
    "a recorded series of jobs": ("gpu_job_steps:rate5m 1\n", "name_not_allowed"),
    "a name that only resembles": ("gpu_jobs 1\n", "name_not_allowed"),
    "the prefix in capitals": ("GPU_JOB_x 1\n", "name_not_allowed"),
    "a family that only its samples excuse": (
        '# TYPE gpu_job histogram\ngpu_job_bucket{le="+Inf"} 1\ngpu_job_count 1\n',
        "name_not_allowed",
    ),
    "a type of somebody else's": ("# TYPE up gauge\ngpu_job_x 1\n", "name_not_allowed"),
    "a HELP of somebody else's": ("# HELP gpu_up Down.\ngpu_job_x 1\n", "name_not_allowed"),
    "one foreign name among many": ("gpu_job_x 1\ngpu_job_y 2\nup 0\n", "name_not_allowed"),
}


@pytest.mark.parametrize(("text", "error"), REFUSED.values(), ids=REFUSED)
def test_a_file_that_could_harm_others_is_refused_by_name(tmp_path: Path, text: str, error: str) -> None:
    write(tmp_path, {"bad.prom": text, "good.prom": "gpu_job_fine 1\n"})
    reading = read(tmp_path)
    assert errors(reading) == {"bad.prom": (error,), "good.prom": ()}
    assert [sample.name for sample in samples(reading)] == ["gpu_job_fine"]


CLAIMS = (
    *TARGET_LABELS,
    *sorted(TARGET_LABELS_OF_RULES),
    "Instance",
    "hostname",
    "exported_instance",
    "gpu",
    "GPU",
    "gpu_id",
    "uuid",
    "UUID",
    "mig_uuid",
    "pci_bus_id",
    "minor_number",
    "workload_pod",
    "pod_uid",
    "container_id",
    "user",
    "owner",
    "account",
    "pid",
    "job_id",
    "slurm_job_id",
    "alertname",
    "severity",
)


@pytest.mark.parametrize("label", CLAIMS)
def test_a_label_that_claims_an_identity_is_refused(tmp_path: Path, label: str) -> None:
    write(tmp_path, {"bad.prom": f'gpu_job_x{{{label}="other"}} 1\n'})
    reading = read(tmp_path)
    assert errors(reading) == {"bad.prom": ("label_not_allowed",)}
    assert samples(reading) == []


def test_every_label_by_which_the_exporter_tells_gpus_and_owners_apart_is_refused(tmp_path: Path) -> None:
    ours = {label for spec in (GPU_INFO, GPU_PROCESS_INFO, GPU_ALLOCATED) for label in spec.labels} - GENERIC
    write(tmp_path, {f"{label}.prom": f'gpu_job_x{{{label}="1"}} 1\n' for label in ours})
    assert errors(read(tmp_path)) == {f"{label}.prom": ("label_not_allowed",) for label in ours}


def test_no_metric_of_the_exporter_has_a_name_that_jobs_may_take() -> None:
    assert [spec.name for spec in METRICS if spec.name.startswith(PREFIX)] == []


def test_a_file_made_to_parse_slowly_does_not(tmp_path: Path) -> None:
    escapes = "\\" + '"'
    write(
        tmp_path,
        {
            "quotes.prom": f'gpu_job_x{{a="{escapes * 500_000}"}} 1\n',
            "labels.prom": "gpu_job_x{" + 'a="",' * 200_000 + "} 1\n",
            "blanks.prom": "#" + " " * 1_000_000 + "HELP gpu_job_x x\n",
            "braces.prom": f"gpu_job_x{{{'}' * 1_000_000}\n",
            "lines.prom": "\n".join(["gpu_job_x{" + '}"' * 8000] * 60),
        },
    )
    began = time.process_time()
    assert set(errors(read(tmp_path)).values()) <= {("line_too_long",), ("malformed",), ("too_large",)}
    assert time.process_time() - began < 2
