"""All cases of a rule: that there are some, and one test that tries all and tells those that break it together."""

import inspect
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, TypeVar

import pytest

Case = TypeVar("Case")
Cases = Iterable[Case] | Callable[[], Iterable[Case]]

MOST_TOLD = 20


def every(cases: Iterable[Case]) -> list[Case]:
    """All cases, of which there must be some: a test that looks at none of them would pass."""
    found = list(cases)
    assert found, "there is no case to try"
    return found


def for_each(
    names: str | tuple[str, ...], cases: Cases[Case], *, ids: Callable[[Case], str] = str
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Makes a test of one case a test of all of them, as ``@for_each("file", FILES)``.

    For what takes milliseconds each. What takes long, or leaves something behind, is parametrized.

    Args:
        names: the test's argument that is a case; several where a case is a tuple.
        cases: all of them, or what finds them when the test runs.
    """

    own = (names,) if isinstance(names, str) else names

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @wraps(test)
        def of_all(**fixtures: object) -> None:
            found = every(cases() if callable(cases) else cases)
            broken = []
            for case in found:
                try:
                    values: Any = (case,) if isinstance(names, str) else case
                    test(**dict(zip(own, values, strict=True)), **fixtures)
                except AssertionError as error:
                    broken.append(f"{ids(case)}: {error}")
                except Exception as error:
                    raise RuntimeError(f"{ids(case)} cannot be tried") from error
            if broken:
                pytest.fail(_told(broken, len(found)), pytrace=False)

        signature = inspect.signature(test)
        others = [each for each in signature.parameters.values() if each.name not in own]
        of_all.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]  # pytest reads it
        return of_all

    return decorate


def _told(broken: list[str], tried: int) -> str:
    more = [f"and {len(broken) - MOST_TOLD} more"] if len(broken) > MOST_TOLD else []
    return "\n\n".join([f"{len(broken)} of {tried} break the rule:", *broken[:MOST_TOLD], *more])
