"""Reads command lines by the recorded options of an engine's parser (see engine_options/)."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

__all__ = ["parse_options", "recorded"]

_DIRECTORY = Path(__file__).parent / "engine_options"
_TYPES: dict[str, Any] = {"int": int, "float": float}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise AssertionError(message)


@cache
def recorded(engine: str) -> dict[str, Any]:
    """What was recorded of the engine."""
    document: dict[str, Any] = json.loads((_DIRECTORY / f"{engine}.json").read_text("utf-8"))
    return document


@cache
def _parser(engine: str, part: str) -> _Parser:
    parser = _Parser(allow_abbrev=False, add_help=False)
    for name, option in recorded(engine)[part].items():
        if option["nargs"] == 0:
            parser.add_argument(name, action="store_true", dest=name)
            continue
        parser.add_argument(
            name,
            dest=name,
            nargs=option["nargs"],
            choices=option.get("choices"),
            type=_TYPES.get(option.get("type", ""), str),
            default=argparse.SUPPRESS,
        )
    return parser


def parse_options(engine: str, words: Sequence[str], part: str = "options") -> dict[str, Any]:
    """Option -> value, of those given; AssertionError where the engine would refuse the line."""
    found = vars(_parser(engine, part).parse_args(list(words)))
    return {name: value for name, value in found.items() if value is not False}
