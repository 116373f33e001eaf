"""Card replacement: which card is in a slot at what time, and which events end with the old card."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace

from gpu_triage_simulator.effects import Ambient, ReplaceGpu
from gpu_triage_simulator.load import Load
from gpu_triage_simulator.model import load_model
from gpu_triage_simulator.scenario import Card, Event, Gpu

_OF_THE_SLOT = (Load, Ambient)
"""Effects of the workload and the room; all others belong to the card, and end with it."""


@dataclass(frozen=True, slots=True)
class Identity:
    uuid: str
    serial: str


def identity(scenario: str, place: str) -> Identity:
    digest = hashlib.sha256(f"{scenario} {place}".encode()).hexdigest()
    uuid = f"GPU-{digest[:8]}-{digest[8:12]}-{digest[12:16]}-{digest[16:20]}-{digest[20:32]}"
    return Identity(uuid, str(1_320_000_000_000 + int(digest[:8], 16)))


def replacement_cards(name: str, gpus: tuple[Gpu, ...], events: Iterable[Event]) -> tuple[Card, ...]:
    """The cards that are inserted, in time order."""
    swaps = [event for event in events if isinstance(event.effect, ReplaceGpu)]
    cards = []
    for event in sorted(swaps, key=lambda event: event.at):
        model = load_model(event.effect.model)
        for index in event.gpus:
            slot = gpus[index].slot
            known = identity(name, f"{slot.bus_id} {event.at}")
            card = Gpu(
                model=model,
                slot=slot,
                uuid=known.uuid,
                serial=known.serial,
                load=gpus[index].load,
                ambient_celsius=gpus[index].ambient_celsius,
                persistence_mode=gpus[index].persistence_mode,
                powered_seconds=0,
            )
            cards.append(Card(index, event.at, card))
    return tuple(cards)


def end_with_their_cards(events: Iterable[Event], cards: tuple[Card, ...]) -> tuple[Event, ...]:
    """The events, with those of a replaced card ended at its replacement."""
    ended = list(events)
    for card in cards:
        ended = [part for event in ended for part in _parts(event, card)]
    return tuple(ended)


def _parts(event: Event, card: Card) -> tuple[Event, ...]:
    outlives = event.at < card.since and (event.until is None or event.until > card.since)
    if not outlives or card.index not in event.gpus or isinstance(event.effect, (*_OF_THE_SLOT, ReplaceGpu)):
        return (event,)
    ends = replace(event, gpus=(card.index,), until=card.since)
    others = tuple(index for index in event.gpus if index != card.index)
    return (replace(event, gpus=others), ends) if others else (ends,)
