"""Which card is in a slot at what time, and which events end when it is replaced or reset."""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from gpu_triage_simulator import effects
from gpu_triage_simulator.load import Load
from gpu_triage_simulator.model import load_model
from gpu_triage_simulator.observer_effects import Reboot
from gpu_triage_simulator.scenario import Card, Event, Gpu

_OF_THE_SLOT = (Load, effects.Ambient)
"""Effects of the workload and the room; all others belong to the card, and end with it."""
_ENDED_BY_RESET = (
    effects.Lost,
    effects.ResetRequired,
    effects.RecoveryAction,
    effects.Hang,
    effects.PowerLimit,
    effects.ApplicationClock,
)
"""A reset also ends what is pending for it; damage stays, and whatever is not the GPU's own."""


@dataclass(frozen=True, slots=True)
class Identity:
    uuid: str
    serial: str


def identity(scenario: str, place: str) -> Identity:
    digest = hashlib.sha256(f"{scenario} {place}".encode()).hexdigest()
    uuid = f"GPU-{digest[:8]}-{digest[8:12]}-{digest[12:16]}-{digest[16:20]}-{digest[20:32]}"
    return Identity(uuid, str(1_320_000_000_000 + int(digest[:8], 16)))


def replacement_cards(name: str, gpus: tuple[Gpu, ...], events: Iterable[Event]) -> tuple[Card, ...]:
    """The cards that are inserted, and those that restart after a reset, in time order."""
    latest = dict(enumerate(gpus))
    cards = []
    for at, event in sorted(_swaps(events), key=lambda swap: swap[0]):
        for index in event.gpus or latest:
            if isinstance(event.effect, effects.ReplaceGpu):
                latest[index] = _inserted(name, gpus[index], event)
            latest[index] = replace(latest[index], powered_seconds=0)
            cards.append(Card(index, at, latest[index], reset=not isinstance(event.effect, effects.ReplaceGpu)))
    return tuple(cards)


def _swaps(events: Iterable[Event]) -> Iterator[tuple[int, Event]]:
    for event in events:
        if isinstance(event.effect, (effects.ReplaceGpu, effects.GpuReset)):
            yield event.at, event
        if isinstance(event.effect, Reboot) and event.until is not None:
            yield event.until, event


def _inserted(name: str, old: Gpu, event: Event) -> Gpu:
    known = identity(name, f"{old.slot.bus_id} {event.at}")
    return Gpu(
        model=load_model(event.effect.model),
        slot=old.slot,
        uuid=known.uuid,
        serial=known.serial,
        load=old.load,
        ambient_celsius=old.ambient_celsius,
        persistence_mode=old.persistence_mode,
    )


def end_with_their_cards(events: Iterable[Event], cards: tuple[Card, ...]) -> tuple[Event, ...]:
    """The events, with those ended that a replacement or reset of their card ends."""
    ended = list(events)
    for card in cards:
        ended = [part for event in ended for part in _parts(event, card)]
    return tuple(ended)


def _parts(event: Event, card: Card) -> tuple[Event, ...]:
    outlives = event.at < card.since and (event.until is None or event.until > card.since)
    if not outlives or card.index not in event.gpus or not _ends(event.effect, card):
        return (event,)
    ends = replace(event, gpus=(card.index,), until=card.since)
    others = tuple(index for index in event.gpus if index != card.index)
    return (replace(event, gpus=others), ends) if others else (ends,)


def _ends(effect: object, card: Card) -> bool:
    if card.reset:
        pending = isinstance(effect, (effects.RowRemap, effects.RetiredPages)) and effect.pending
        pending |= isinstance(effect, effects.Repair) and not effect.unrepairable
        return pending or isinstance(effect, _ENDED_BY_RESET)
    return not isinstance(effect, (*_OF_THE_SLOT, effects.ReplaceGpu, effects.GpuReset))
