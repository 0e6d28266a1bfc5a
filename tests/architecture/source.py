"""Source modules as the rules of architecture see them: a name, lines and a syntax tree."""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src"


class Module(NamedTuple):
    """One module. `name` is dotted; a package's own module has the package's name."""

    name: str
    text: str
    tree: ast.Module

    @property
    def package(self) -> str:
        """The package of `mileage` that it belongs to; empty for the root."""
        return [*self.name.split("."), ""][1]


class Import(NamedTuple):
    """One imported module or name, dotted, and where. `typing_only`: not imported at run time."""

    line: int
    target: str
    typing_only: bool


def module(name: str, text: str) -> Module:
    """A module out of its text."""
    return Module(name, text, ast.parse(text))


@cache
def modules_under(directory: Path, base: Path) -> tuple[Module, ...]:
    """Every module in the directory, named from `base`; parsed once for all rules."""
    found = []
    gc.disable()  # millions of nodes are made and none is let go: looking for some costs most
    try:
        for path in sorted(directory.rglob("*.py")):
            parts = list(path.relative_to(base).with_suffix("").parts)
            if parts[-1] == "__init__":
                parts.pop()
            found.append(module(".".join(parts), path.read_text("utf-8")))
        gc.freeze()
    finally:
        gc.enable()
    return tuple(found)


def source_modules() -> tuple[Module, ...]:
    """Every module of the package."""
    return modules_under(SRC / "mileage", SRC)


def imports(module: Module) -> Iterator[Import]:
    """Everything that the module imports, also inside functions and for type checkers only.

    `from a.b import c` gives `a.b.c`: whether c is a module or a name makes no difference here.
    """
    nodes = list(ast.walk(module.tree))
    typing_only = {
        child
        for node in nodes
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
        for statement in node.body
        for child in ast.walk(statement)
    }
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(node.lineno, alias.name, node in typing_only)
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            for alias in node.names:
                yield Import(node.lineno, f"{base}.{alias.name}", node in typing_only)
