"""Errors of the host's memory, as EDAC drivers show them."""

from __future__ import annotations

import shutil

import pytest
from tests.host_tree import HostTree

from gpu_triage.driver.kernel.files import Answer, Question, hooked
from gpu_triage.errors import HostReadFailed
from gpu_triage.options.config import Config
from gpu_triage.read.host.host_memory import HOST_EDAC, HostEdacReader, HostEdacReading
from gpu_triage.read.metrics.rendering import samples
from gpu_triage.read.selection import Selection

MC = "sys/devices/system/edac/mc"
LABEL = "CPU_SrcID#0_MC#0_Chan#1_DIMM#0"


def controller(host: HostTree, name: str = "mc0", ce: str = "0\n", ue: str = "0\n") -> None:
    host.write(
        {
            f"{MC}/{name}/mc_name": "Skylake Socket#0 IMC#0\n",
            f"{MC}/{name}/ce_count": ce,
            f"{MC}/{name}/ue_count": ue,
            f"{MC}/{name}/ce_noinfo_count": "0\n",
            f"{MC}/{name}/seconds_since_reset": "3195552\n",
        }
    )


def dimm(host: HostTree, name: str = "mc0/dimm3", ce: str = "0\n", ue: str = "0\n", label: str = f"{LABEL}\n") -> None:
    host.write({f"{MC}/{name}/dimm_ce_count": ce, f"{MC}/{name}/dimm_ue_count": ue, f"{MC}/{name}/dimm_label": label})


def shown(reading: HostEdacReading, profile: str = "full") -> dict[tuple[str, ...], float]:
    selection = Selection(Config(metrics_profile=profile))
    return {sample.labels: sample.value for sample in selection.of(samples(reading))}


def test_controllers_and_dimms_are_counted(host: HostTree) -> None:
    controller(host, ce="17\n", ue="1\n")
    dimm(host, ce="17\n", ue="1\n")
    dimm(host, "mc0/rank0", label="\n")
    reading = HostEdacReader().read(host.round())
    assert shown(reading) == {
        ("mc0", "corrected"): 17,
        ("mc0", "uncorrected"): 1,
        ("mc0", "dimm3", LABEL, "corrected"): 17,
        ("mc0", "dimm3", LABEL, "uncorrected"): 1,
        ("mc0", "rank0", "", "corrected"): 0,
        ("mc0", "rank0", "", "uncorrected"): 0,
    }


def test_of_dimms_those_with_errors_are_shown_to_all(host: HostTree) -> None:
    controller(host, ce="17\n")
    dimm(host, ce="17\n")
    dimm(host, "mc0/dimm4")
    assert shown(HostEdacReader().read(host.round()), "default") == {
        ("mc0", "corrected"): 17,
        ("mc0", "uncorrected"): 0,
        ("mc0", "dimm3", LABEL, "corrected"): 17,
    }


def test_a_host_without_ecc_memory_has_no_series(host: HostTree) -> None:
    host.mount()
    round_ = host.round()
    assert list(HOST_EDAC.render(HostEdacReader().read(round_))) == []
    (host.sysfs / "devices" / "system" / "edac" / "mc" / "power").mkdir(parents=True)
    assert list(HOST_EDAC.render(HostEdacReader().read(round_))) == []
    assert round_.failures == []


@pytest.mark.parametrize("text", ["many\n", "-3\n", "1_0\n"])
def test_junk_costs_its_own_count(host: HostTree, text: str) -> None:
    controller(host, ce=text, ue="2\n")
    round_ = host.round()
    assert shown(HostEdacReader().read(round_)) == {("mc0", "uncorrected"): 2}
    assert round_.failures == ["malformed"]


def test_a_recording_has_all_that_was_read(host: HostTree) -> None:
    controller(host)
    dimm(host, "mc0/dimm10", ce="3\n")
    dimm(host, "mc0/dimm9")
    answers: dict[tuple[str, str], bytes | None] = {}

    def record(question: Question, path: str, answer: Answer) -> bytes | None:
        answers[question, path] = answer()
        return answers[question, path]

    with hooked({"sys": host.sysfs}, record):
        recorded = HostEdacReader().read(host.round())
    shutil.rmtree(host.sysfs)
    with hooked({"sys": host.sysfs}, lambda question, path, _: answers.get((question, path))):
        assert HostEdacReader().read(host.round()) == recorded
    assert [dimm for _, dimm, _, severity in recorded.dimms if severity == "corrected"] == ["dimm9", "dimm10"]


def test_where_nothing_can_be_read_the_round_fails(host: HostTree) -> None:
    controller(host, ce="junk\n", ue="junk\n")
    with pytest.raises(HostReadFailed):
        HostEdacReader().read(host.round())


def test_a_count_that_root_sets_back_goes_on(host: HostTree) -> None:
    reader = HostEdacReader()
    for text, counted in (("40\n", 40), ("0\n", 40), ("2\n", 42)):
        controller(host, ce=text)
        assert shown(reader.read(host.round()))["mc0", "corrected"] == counted


@pytest.mark.slow
def test_a_tree_of_thousands_is_bounded(host: HostTree) -> None:
    for number in range(80):
        controller(host, f"mc{number}")
    for number in range(300):
        dimm(host, f"mc{number % 3}/dimm{number // 3}")
    round_ = host.round()
    reading = HostEdacReader().read(round_)
    assert (len(reading.controllers), len(reading.dimms)) == (2 * 64, 2 * 256)
    assert round_.failures == ["too_many_controllers", "too_many_dimms"]
