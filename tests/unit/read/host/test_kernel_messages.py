"""Messages as kernels 5.4 to 6.12 and NVIDIA's modules print them (kernel_messages.tsv), and what is made of each."""

from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_triage.read.host.driver_messages import (
    AT_PROBE,
    UNTIL_LOADED,
    PcieError,
    parse_device_message,
    parse_device_over,
    parse_driver_message,
    parse_failing_gpu,
    parse_pcie_error,
)
from gpu_triage.read.host.kernel_messages import (
    KillOrder,
    ProblemKind,
    corrected_errors,
    parse_host_message,
    parse_kill_order,
    parse_trouble_over,
)

PARSERS = {
    "host": parse_host_message,
    "over": parse_trouble_over,
    "driver": parse_driver_message,
    "device": parse_device_message,
    "device over": parse_device_over,
}


class Message(NamedTuple):
    """A message, the parser that understands it ("none" if none does), and what it finds."""

    parser: str
    kind: str
    subject: str
    text: str  # records of several lines have newlines


def messages() -> list[Message]:
    _, *rows = Path(__file__).with_name("kernel_messages.tsv").read_text(encoding="utf-8").splitlines()
    return [Message(*row.replace("\\n", "\n").split("\t")) for row in rows]


MESSAGES = messages()


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.text[:60])
def test_a_message_is_understood_by_one_parser(message: Message) -> None:
    found = {
        name: (said.trouble.value, said.subject)
        for name, parse in PARSERS.items()
        if (said := parse(message.text)) is not None
    }
    assert found == ({} if message.parser == "none" else {message.parser: (message.kind, message.subject)})


def test_every_kind_has_a_message() -> None:
    told = {message.kind for message in MESSAGES if message.parser in ("host", "driver", "device")}
    assert told == {trouble.value for trouble in ProblemKind}


def test_a_process_is_named_by_its_pid_too() -> None:
    texts = [message.text for message in MESSAGES if message.kind in ("oom_kill", "hung_task")]
    said = [parse_host_message(text) for text in texts]
    assert [each.pid if each else None for each in said] == [31337, 4242, 812, 4242, 1234, 99]


def test_a_name_with_control_characters_is_printed_without_them() -> None:
    message = parse_host_message("INFO: task a\nb\x1b[31m:7 blocked for more than 122 seconds.")
    assert message is None or message.subject.isprintable()


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("EDAC MC2: 300 CE single-symbol chipkill ECC on unknown memory (node: 0)", 300),
        ("EDAC MC1: 1 UE Multi-bit ECC on P1-DIMMA1 (csrow:0 channel:0)", 0),
        ("EDAC MC0: Giving out device to module skx_edac", 0),
    ],
)
def test_corrected_errors_are_as_many_as_the_message_says(text: str, count: int) -> None:
    assert corrected_errors(text) == count


def test_the_oom_killer_says_whose_process_it_chose() -> None:
    text = (
        "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=cri-containerd-aa.scope,mems_allowed=0-1,"
        "oom_memcg=/kubepods.slice/kubepods-pod1.slice,task_memcg=/kubepods.slice/kubepods-pod1.slice/"
        "cri-containerd-aa.scope,task=python3,pid=4242,uid=1000"
    )
    cgroup = "/kubepods.slice/kubepods-pod1.slice/cri-containerd-aa.scope"
    assert parse_kill_order(text) == KillOrder(4242, cgroup)
    assert parse_kill_order(text[:-4]) is None
    assert parse_kill_order("Out of memory: Killed process 4242 (python3)") is None


PCIE_ERRORS = Path(__file__).with_name("pcie_errors.tsv").read_text(encoding="utf-8").splitlines()[1:]


@pytest.mark.parametrize("row", PCIE_ERRORS)
def test_pcie_errors_are_read_in_the_words_of_every_kernel(row: str) -> None:
    _, address, severity, port, driver, text = row.split("\t")
    assert parse_pcie_error(text) == PcieError(address, severity, port, driver)


def test_the_details_of_a_pcie_error_tell_a_gpu_by_its_vendor() -> None:
    assert (
        parse_failing_gpu("vfio-pci 0000:34:00.0:   device [10de:2684] error status/mask=00001000/0") == "0000:34:00.0"
    )
    assert parse_failing_gpu("nvidia-nvswitch 0000:c1:00.0:   device [10de:1af1] error status/mask=1/0") is None
    assert parse_failing_gpu("snd_hda_intel 0000:34:00.1:   device [10de:22ba] error status/mask=1/0") is None


def test_what_is_over_once_the_driver_was_loaded_is_known_of_every_failure_while_it_is() -> None:
    assert AT_PROBE < UNTIL_LOADED


BEGINNINGS = ("", "NVRM: ", "nvidia-peermem x:1 ERROR ", "mlx5_core 0000:01:00.0: ", "oom-kill:constraint=")


@given(st.text(max_size=400))
def test_no_text_raises_or_names_anything_long(text: str) -> None:
    for beginning in BEGINNINGS:
        said = [parse(beginning + text) for parse in PARSERS.values()]
        assert all(len(each.subject) <= 64 for each in said if each is not None)
        parse_kill_order(beginning + text)
