"""Options from a YAML file.

Only the file's structure is taken from YAML; every value stays text until its option's own parser reads it.
YAML's guesses (``no`` is false, ``1:30`` is 90, ``010`` is 8) therefore never come between an operator and an
option, no object is ever constructed, and an alias repeated a million times costs nothing.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

import yaml

from gpu_triage.errors import ConfigError
from gpu_triage.given import Given, read_document
from gpu_triage.options.document import compose_document, is_empty
from gpu_triage.options.values import quoted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpu_triage.options.table import Option


def options_in_file(path: str, options: Sequence[Option]) -> dict[str, Given]:
    """What the file gives, by option name; an empty file gives nothing.

    Raises:
        ConfigError: the file cannot be read, is no YAML mapping, repeats a key, or has one that is no option.
    """
    allowed = {option.name: option for option in options if option.field is not None}
    root = compose_document(path, read_document(path))
    if root is None or is_empty(root):
        return {}
    if not isinstance(root, yaml.MappingNode):
        raise ConfigError(f"{path}: is no mapping; write keys and values, such as 'stale-after: 3'")
    return {
        name: Given(_texts(path, allowed[name], node), f"{path}: {name}")
        for name, node in _leaves(path, root, "", allowed)
    }


def _leaves(
    path: str, mapping: yaml.MappingNode, prefix: str, allowed: dict[str, Option]
) -> Iterator[tuple[str, yaml.Node]]:
    seen: set[str] = set()
    for key, value in mapping.value:
        name = f"{prefix}{key.value}" if isinstance(key, yaml.ScalarNode) else ""
        if name in seen:
            line = key.start_mark.line + 1
            raise ConfigError(f"{path}: line {line}: {_shown(name)} is written twice; keep one of them")
        seen.add(name)
        below = [option[len(name) + 1 :] for option in allowed if option.startswith(f"{name}.")]
        if below and isinstance(value, yaml.MappingNode):
            yield from _leaves(path, value, f"{name}.", allowed)
        elif below and not is_empty(value):
            raise ConfigError(f"{path}: {name} has no value of its own; write below it: {', '.join(below)}")
        elif name in allowed and (prefix or "." not in name):
            yield name, value
        elif not below:
            raise _unknown_key(path, name, key, allowed)


def _unknown_key(path: str, name: str, key: yaml.Node, allowed: dict[str, Option]) -> ConfigError:
    if name in allowed:
        section, _, last = name.partition(".")
        right = f"write it nested, as '{section}: {{{last}: …}}'"
    elif close := get_close_matches(name, [*allowed, *{known.split(".")[0] for known in allowed}], n=1):
        right = f"did you mean {close[0]}?"
    else:
        right = "--help lists the options, and the file's keys are their names"
    if not name:
        return ConfigError(f"{path}: line {key.start_mark.line + 1}: a key is no plain word; {right}")
    return ConfigError(f"{path}: unknown key {_shown(name)}; {right}")


def _texts(path: str, option: Option, node: yaml.Node) -> tuple[str, ...]:
    nodes = node.value if option.many and isinstance(node, yaml.SequenceNode) else [node]
    if not nodes or any(is_empty(each) for each in nodes):
        raise ConfigError(f"{path}: {option.name}: has no value; write {option.kind.metavar} or leave the key out")
    if not all(isinstance(each, yaml.ScalarNode) for each in nodes):
        shape = "a value or a list of values" if option.many else "one value"
        raise ConfigError(f"{path}: {option.name}: is no plain value; write {shape}, such as {_example(option)}")
    return tuple(each.value for each in nodes)


def _example(option: Option) -> str:
    return option.kind.metavar if option.default == "none" else option.default


def _shown(name: str) -> str:
    return name if name.isprintable() and " " not in name else quoted(name)
