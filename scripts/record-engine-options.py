"""Prints the options of an engine's own command-line parser as JSON: names, arity, choices, types.

To be run where the engine is, with its name and where that is from:

    .venvs/vllm/bin/python scripts/record-engine-options.py vllm SOURCE
    PYTHONPATH=UNPACKED_WHEEL .venvs/vllm/bin/python scripts/record-engine-options.py sglang SOURCE

The second needs no GPU and none of SGLang's own requirements beside what vLLM brings: modules that
SGLang imports and that are not there are stood in for, since its parser calls none of them. What is
printed belongs in tests/support/engine_options/ENGINE.json.
"""

# mypy: disable-error-code="import-not-found"
from __future__ import annotations

import argparse
import importlib.abc
import importlib.machinery
import json
import sys
from collections.abc import Sequence
from types import FrameType, ModuleType
from typing import Any, cast
from unittest.mock import MagicMock

__all__ = ["main", "options_of"]

_CHOICES_MAX = 100
_TYPES = {int: "int", float: "float"}


class _StandIn(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Makes up modules that are missing, where a module of `package` imports them."""

    def __init__(self, package: str) -> None:
        self._package = package
        self._made: set[str] = set()

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        top = name.partition(".")[0]
        if top == self._package or not (top in self._made or self._imports()):
            return None
        self._made.add(top)
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def _imports(self) -> bool:
        frame: FrameType | None = sys._getframe(2)
        while frame is not None and "importlib" in frame.f_code.co_filename:
            frame = frame.f_back
        return frame is not None and str(frame.f_globals.get("__name__")).startswith(self._package)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        made = MagicMock(name=spec.name, __spec__=spec, __path__=[], __version__="1")
        made.__name__ = spec.name
        return cast(ModuleType, made)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing is run."""


def vllm_parser() -> tuple[argparse.ArgumentParser, str]:
    """vLLM's, and its version."""
    from vllm.entrypoints.launchers.cli_args import make_arg_parser
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    from vllm import __version__

    return make_arg_parser(FlexibleArgumentParser()), __version__


def sglang_parser() -> tuple[argparse.ArgumentParser, str]:
    """SGLang's, and its version."""
    sys.meta_path.append(_StandIn("sglang"))
    from sglang.srt.server_args import ServerArgs
    from sglang.version import __version__

    parser = argparse.ArgumentParser()
    ServerArgs.add_cli_args(parser)
    return parser, __version__


def options_of(parser: argparse.ArgumentParser) -> dict[str, dict[str, Any]]:
    """Each spelling of each option -> its `nargs`, and `choices` and `type` where it has some."""
    found: dict[str, dict[str, Any]] = {}
    for action in parser._actions:
        option: dict[str, Any] = {"nargs": action.nargs}
        choices = list(action.choices or ())
        if choices and len(choices) <= _CHOICES_MAX:
            option["choices"] = [each for each in choices if each is not None]
        if action.type in _TYPES:
            option["type"] = _TYPES[action.type]
        for name in action.option_strings:
            found[name] = option
    return dict(sorted(found.items()))


def main(engine: str, source: str) -> None:
    """Print the document."""
    parser, version = {"vllm": vllm_parser, "sglang": sglang_parser}[engine]()
    print(f'{{"engine": {json.dumps(engine)}, "version": {json.dumps(version)},')
    print(f'"source": {json.dumps(source)}, "options": {{')
    lines = [f"{json.dumps(k)}: {json.dumps(v)}" for k, v in options_of(parser).items()]
    print(",\n".join(lines))
    print("}}")


if __name__ == "__main__":
    main(*sys.argv[1:3])
