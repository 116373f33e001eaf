"""Syntax of judge settings: ``thermal.hw.wait=5m``, and in the file one table per finding."""

from __future__ import annotations

import re
from typing import Any, Final

from gpu_triage.documents import quoted
from gpu_triage.options.config import JudgeOption
from gpu_triage.options.values import TextType

JUDGE: Final = "judge"
_SETTING: Final = re.compile(r"\s*([^=\s]+)\.([^=.\s]+)\s*=\s*(.*?)\s*")
_EXAMPLE: Final = "such as thermal.hw.wait=5m"


def _parse_setting(text: str) -> JudgeOption:
    match = _SETTING.fullmatch(text)
    if match is None:
        raise ValueError(f"{quoted(text)} is invalid; write a finding, a setting of it and a value, {_EXAMPLE}")
    return JudgeOption(match[1], match[2], match[3])


def _show_setting(option: JudgeOption) -> str:
    return f"{option.code}.{option.name}={option.text}"


JUDGE_SETTING: Final = TextType("SETTING", _parse_setting, _show_setting)


def texts_in_file(value: Any) -> tuple[str, ...]:
    """Convert the value in the file to command line syntax.

    Raises:
        ValueError: it has a different structure.
    """
    if not isinstance(value, dict):
        raise ValueError("write a table for each finding, such as thermal.hw: {wait: 5m}")  # noqa: TRY004 - invalid user input
    texts = []
    for code, settings in value.items():
        if not isinstance(settings, dict):
            raise ValueError(f"{code}: write its settings as a table, such as {{wait: 5m}}")  # noqa: TRY004 - as above
        for name, text in settings.items():
            if not isinstance(text, str):
                raise ValueError(f"{code}.{name}: write one value, such as 5m")  # noqa: TRY004 - as above
            texts.append(f"{code}.{name}={text}")
    return tuple(texts)
