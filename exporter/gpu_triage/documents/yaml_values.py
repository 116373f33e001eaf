"""YAML as plain values. In its own module, so that its parser is only loaded when needed."""

from typing import Any, Final

import yaml

from gpu_triage.documents.place import Place, Text
from gpu_triage.errors import DocumentError

_NO_VALUE: Final = ("", "~", "null")


def parse(text: str, file: str) -> Any:
    """The value of a document; see `parse_yaml`. Raises DocumentError; RecursionError if nested too deeply."""
    try:
        root = yaml.compose(text, Loader=yaml.BaseLoader)
        return None if root is None else _value(root, Place(file), {})
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}: " if mark else ""
        raise DocumentError(f"{file}: {where}{error.problem or error.context}; write valid YAML") from error
    except yaml.reader.ReaderError as error:
        what = f"character {error.position + 1}: {error.reason}"
        raise DocumentError(f"{file}: {what}; write valid YAML") from error


def _value(node: yaml.Node, where: Place, known: dict[yaml.Node, Any]) -> Any:
    if isinstance(node, yaml.ScalarNode):
        return None if node.style is None and node.value in _NO_VALUE else _text(node)
    if node in known:
        return known[node]
    if isinstance(node, yaml.SequenceNode):
        items = known[node] = []
        items.extend(_value(each, where.at(i), known) for i, each in enumerate(node.value))
        return items
    table: dict[Text, Any] = {}
    known[node] = table
    for name, item in node.value:
        if not isinstance(name, yaml.ScalarNode):
            line = name.start_mark.line + 1
            raise Place(where.file, where.key, line).error("a key is not a plain word; write a name")
        key = _text(name)
        if key in table:
            raise where.at(key).error("is written twice; keep one of them")
        table[key] = _value(item, where.at(key), known)
    return table


def _text(node: yaml.ScalarNode) -> Text:
    text = Text(node.value)
    text.line = node.start_mark.line + 1
    return text
