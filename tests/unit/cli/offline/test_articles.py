"""The outputs in the field articles that the playbook was made from: they are private, and no part of the project."""

import re
from pathlib import Path
from typing import Final

import pytest
from click import unstyle
from tests.offline_files import codes, of_real_files, report_on_text

from gpu_triage.judge.report.text import render_text

FACTS: Final = {
    "000": {
        1: ("nvidia-smi shows 2 x ",),
        2: ("pcie.width_from_boot", "8 of 16 lanes", "0000:65:00.0"),
        3: ("topology: 1 x SYS", "GPU 0 on NUMA node 0, GPU 1 on NUMA node 1"),
        4: ("peer access: 2 x nvlink ok",),
        5: ("files: not read.", "GPU 0 below its clock", "84 °C", "98% of its power limit", "-q -d PERFORMANCE"),
        6: ("over the lifetime of GPU 0: 2 corrected",),
        7: ("critical xid.79",),
        8: ("cpu.saturated", "CPU 0, 32 always busy"),
        9: ("storage.saturated", "19% of the CPU time is iowait", "disk nvme0n1 busy 92%"),
        10: ("eth0 receives 7.6 Gbit/s", "line rate"),
        11: ("work.imbalance", "2 compute processes, none on GPU 1"),
        12: ("pcie.width_from_boot", "GPU 0: 8 of 16 lanes"),
        13: ("work.memory_imbalance", "GPU 0: memory 97% full, GPU 1 5%"),
        14: ("bound to CPUs 0-15 and the memory of node 0",),
    },
    "003": {
        1: ("1 of 1 GPUs answer", "GPU 0: python (23141)", "62% busy"),
        2: ("GPU 0 works and waits in turn: 8% to 63% busy, 85 to 190 W",),
        3: ("GPU 0 held by sw_power_cap", "attach nvidia-smi -q -d POWER"),
        4: ("now 1 x gen 4 x16",),
        5: ("GPU to adapter: 1 x PHB", "GPU 0 on NUMA node 0"),
        6: ("driver 550.54.14 answers",),
        7: ("kernel modules of GPU drivers: nvidia, nvidia_drm, nvidia_modeset, nvidia_uvm",),
        8: ("CPUs idle while tasks wait for I/O", "attach iostat"),
        9: ("storage.saturated", "disk nfs0 busy 99% of the time, 18 ms a request"),
        10: ("7.5Gi of 16Gi of swap in use", "attach vmstat"),
        11: ("python (23141) sleeping",),
        12: ("1 compute process on GPU 0", "python (23141) at 62% of the SMs"),
        13: ("ECC on for 1 of 1", "0 corrected, 0 uncorrected"),
        14: ("persistence mode on for 1 of 1",),
        15: ("1410 MHz SM clock", "applications clocks: graphics 1410 MHz"),
    },
}
"""What stands under "Meaning" and "Decision" of each task, in this program's words."""
TOGETHER: Final = {
    "000": (["sick", "idle"], ["xid.79", "pcie.width_idle", "storage.saturated", "work.imbalance"]),
    "003": (["storage"], ["storage.starved"]),
}
"""What all outputs of an article show: the classes of the host's GPUs, and findings in the playbook's order."""


def outputs(article: Path) -> dict[int, str]:
    """The command of each task with its output."""
    tasks = re.split(r"^Task (\d+): .*\n", article.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    return {int(task): text.partition("\nMeaning:")[0] for task, text in zip(tasks[::2], tasks[1::2], strict=True)}


articles = pytest.mark.parametrize(
    "article", of_real_files(lambda folder: sorted((folder.parents[1] / "design/articles").glob("00[03]_*.txt")))
)


@articles
def test_each_output_is_answered_as_the_article_answers_it(tmp_path: Path, article: Path | None) -> None:
    if article is not None:
        shown, facts = outputs(article), FACTS[article.name[:3]]
        assert shown.keys() == facts.keys()
        for task, text in shown.items():
            told = " ".join(unstyle(render_text(report_on_text(tmp_path, text))).split())
            assert [fact for fact in facts[task] if fact not in told] == [], f"{task}: {told}"


@articles
def test_all_outputs_of_an_article_are_of_one_host(tmp_path: Path, article: Path | None) -> None:
    if article is not None:
        report = report_on_text(tmp_path, "\n".join(outputs(article).values()))
        classes, found = TOGETHER[article.name[:3]]
        assert [gpu.bottleneck.name for gpu in report.gpus] == classes
        assert [gpu.gpu for gpu in report.gpus] == [str(index) for index in range(len(classes))]
        assert [code for code in codes(report) if code in found] == found
        assert codes(report)[0] == found[0]
