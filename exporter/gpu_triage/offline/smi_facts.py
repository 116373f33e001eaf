"""The facts of one GPU, asked for by the names that nvidia-smi's text and XML of different drivers have for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gpu_triage.offline import smi_values as values


class Facts:
    """What is said of a GPU, asked for by the names that text and XML of different drivers have for it."""

    def __init__(self, facts: Mapping[str, str]) -> None:
        self._facts = facts

    def get(self, *paths: str) -> str | None:
        """The first of these that is said and is a value."""
        found = [self._facts[path] for path in paths if path in self._facts]
        return next((value for value in found if values.words(value) not in ("n/a", "")), None)

    def number(self, *paths: str) -> float | None:
        """The first of these that is a number."""
        return next((n for path in paths if (n := values.number(self._facts.get(path))) is not None), None)

    def within(self, low: float, high: float, *paths: str) -> float | None:
        """That number, if it can be."""
        found = self.number(*paths)
        return found if found is not None and low <= found <= high else None

    def count(self, *paths: str) -> int | None:
        """The first of these that is a count."""
        return next((n for path in paths if (n := values.count(self._facts.get(path))) is not None), None)

    def flag(self, *paths: str) -> bool | None:
        """The first of these that is a yes or no."""
        return next((f for path in paths if (f := values.flag(self._facts.get(path))) is not None), None)

    def text(self, *paths: str) -> str:
        """The first of these that is a name."""
        return next((t for path in paths if (t := values.text(self._facts.get(path)))), "")

    def below(self, *sections: str) -> Iterator[tuple[str, str]]:
        """Names and values of what stands in these sections, at any depth."""
        for path, value in self._facts.items():
            section = next((section for section in sections if path.startswith(section)), None)
            if section is not None:
                yield path.removeprefix(section), value
