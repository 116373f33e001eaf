r"""Reads documents (YAML, TOML, JSON) as typed values; every error names the file and key. `files` also writes.

>>> import dataclasses
>>> @dataclasses.dataclass(frozen=True)
... class Server:
...     port: int
...     paths: tuple[str, ...] = ()
>>> read_value(Server, parse_yaml(b"port: 9836", "web.yml"), Place("web.yml"))
Server(port=9836, paths=())
>>> read_value(Server, parse_yaml(b"prot: 80\nport: x", "web.yml"), Place("web.yml"))
Traceback (most recent call last):
gpu_triage.errors.DocumentError: web.yml: line 1: prot: unknown key; did you mean port? (and 1 more mistake)
"""

from gpu_triage.documents.files import packaged, packaged_toml, parse_json, parse_toml, parse_yaml, read_file
from gpu_triage.documents.place import Place, nearest, printable, quoted, raised_as, suggestion
from gpu_triage.documents.typed_values import AtMost, Key, Keyed, Parsed, Pattern, Range, Secret, Tagged, read_value

__all__ = ["packaged", "packaged_toml", "parse_json", "parse_toml", "parse_yaml", "read_file"]
__all__ += ["Place", "nearest", "printable", "quoted", "raised_as", "suggestion"]
__all__ += ["AtMost", "Key", "Keyed", "Parsed", "Pattern", "Range", "Secret", "Tagged", "read_value"]
