"""YAML files as their structure only: every value stays text until its own reader takes it."""

from __future__ import annotations

import yaml

from gpu_triage.errors import ConfigError

_NO_VALUE = ("", "~", "null")


def compose_document(path: str, content: bytes) -> yaml.Node | None:
    """The root node of a YAML document, values as text and tags ignored; None where it is empty.

    Args:
        path: what messages call it.
        content: in UTF-8, with or without a byte order mark.

    Raises:
        ConfigError: no UTF-8 or no YAML; the message names the place and repeats nothing of the content.
    """
    try:
        return yaml.compose(content.decode("utf-8-sig"), Loader=yaml.BaseLoader)
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is not UTF-8 at byte {error.start}; save it as UTF-8") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}: " if mark else ""
        raise ConfigError(f"{path}: {where}{error.problem or error.context}; write valid YAML") from error
    except yaml.reader.ReaderError as error:
        what = f"character {error.position + 1}: {error.reason}"
        raise ConfigError(f"{path}: {what}; write valid YAML") from error
    except RecursionError as error:
        raise ConfigError(f"{path}: nested too deeply; write each option at most one level deep") from error


def is_empty(node: yaml.Node) -> bool:
    """Whether a node is YAML's way to write no value: nothing, ``~`` or ``null``, unquoted."""
    return isinstance(node, yaml.ScalarNode) and node.style is None and node.value in _NO_VALUE
