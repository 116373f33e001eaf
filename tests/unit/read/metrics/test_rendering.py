from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from gpu_triage.read.metrics.metric import gpu_counter, gpu_gauge, gpu_info
from gpu_triage.read.metrics.rendering import samples

GPU = ("0", "GPU-1")
POWER = gpu_gauge("gpu_thing_watts", "A thing.", source="nowhere")
HEAT = gpu_gauge("gpu_thing_celsius", "A thing.", labels=("sensor",), source="nowhere")
ERRORS = gpu_counter("gpu_thing_errors_total", "A thing.", labels=("end", "severity"), source="nowhere")
MODE = gpu_info("gpu_thing_mode_info", "A thing.", labels=("mode",), source="nowhere")
PEERS = gpu_info("gpu_thing_peer_info", "A thing.", labels=("peer", "level"), source="nowhere")
STATE = gpu_gauge("gpu_thing_state", "A thing: {states}.", states={1: "calm", 2: "busy"}, source="nowhere")


@dataclass(frozen=True, slots=True)
class Reading:
    name: str = "not published"
    watts: Annotated[float | None, POWER] = None
    core: Annotated[float | None, HEAT, "core"] = None
    others: Annotated[Mapping[str, float] | None, HEAT] = None
    errors: Annotated[Mapping[str, int] | None, ERRORS, "port"] = None
    mode: Annotated[str | None, MODE] = None
    peers: Annotated[Mapping[str, str] | None, PEERS] = None
    state: Annotated[str | None, STATE] = None
    unrelated: Annotated[int, "of something else"] = 0


def test_what_is_absent_has_no_sample() -> None:
    assert list(samples(Reading(), GPU)) == []
    assert list(samples(Reading(others={}, errors={}, peers={}), GPU)) == []
    assert list(samples(None)) == []


def test_zero_and_false_are_present() -> None:
    assert list(samples(Reading(watts=0), GPU)) == [POWER.sample(0, *GPU)]
    assert list(samples(Reading(watts=False), GPU)) == [POWER.sample(0, *GPU)]


def test_fields_are_published_in_their_order_with_the_labels_of_their_annotation() -> None:
    reading = Reading(watts=1, core=2, others={"memory": 3, "board": 4}, errors={"fatal": 5})
    assert list(samples(reading, GPU)) == [
        POWER.sample(1, *GPU),
        HEAT.sample(2, *GPU, "core"),
        HEAT.sample(3, *GPU, "memory"),
        HEAT.sample(4, *GPU, "board"),
        ERRORS.sample(5, *GPU, "port", "fatal"),
    ]


def test_text_is_the_last_label_of_an_info_and_the_state_of_a_gauge() -> None:
    assert list(samples(Reading(mode="default", peers={"1": "pix"}, state="busy"), GPU)) == [
        MODE.sample(1, *GPU, "default"),
        PEERS.sample(1, *GPU, "1", "pix"),
        STATE.sample(2, *GPU),
    ]
