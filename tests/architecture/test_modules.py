"""Modules are short, documented, well named, and say what they export."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.architecture.module_rules import (
    FUNCTION_LINES_MAX,
    MODULE_LINES_MAX,
    bad_exports,
    output,
    oversize,
    relative_imports,
    undocumented,
    vague_name,
)
from tests.architecture.source import ROOT, Module, module, modules_under, source_modules

Rule = Callable[[Module], list[str]]


def all_modules() -> list[Module]:
    """The package, its tests and its benchmarks."""
    others = [m for name in ("tests", "benchmarks") for m in modules_under(ROOT / name, ROOT)]
    return [*source_modules(), *others]


@pytest.mark.parametrize("rule", [oversize, relative_imports, undocumented, vague_name])
def test_every_module_keeps_the_rule(rule: Rule) -> None:
    assert [found for m in all_modules() for found in rule(m)] == []


@pytest.mark.parametrize("rule", [bad_exports])
def test_every_module_of_the_package_keeps_the_rule(rule: Rule) -> None:
    assert [found for m in source_modules() for found in rule(m)] == []


def test_only_the_command_line_writes_to_the_terminal() -> None:
    others = [m for m in source_modules() if m.package != "cli"]
    assert [found for m in others for found in output(m)] == []


def function_of(lines: int) -> str:
    """A function with that many lines."""
    return "def f():\n" + "    x = 1\n" * (lines - 1)


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        pytest.param(oversize, "x = 1\n" * (MODULE_LINES_MAX + 1), id="a long module"),
        pytest.param(oversize, function_of(FUNCTION_LINES_MAX + 1), id="a long function"),
        pytest.param(bad_exports, "class A: ...", id="no __all__"),
        pytest.param(bad_exports, "__all__ = ['b', 'a']\na = b = 1", id="unsorted"),
        pytest.param(bad_exports, "__all__ = ['a', 'a']\na = 1", id="named twice"),
        pytest.param(bad_exports, "__all__ = ['a']\nb = 1", id="exports what is not there"),
        pytest.param(undocumented, "x = 1", id="no docstring"),
        pytest.param(undocumented, '"""Parsing of"""\nx = 1', id="a docstring that breaks off"),
        pytest.param(relative_imports, "from . import x", id="a relative import"),
        pytest.param(relative_imports, "from ..core import x", id="a relative import upward"),
        pytest.param(output, "print(1)", id="print"),
        pytest.param(output, "import sys\nsys.stdout.write('1')", id="writes to stdout"),
    ],
)
def test_a_breach_is_found(rule: Rule, text: str) -> None:
    assert len(rule(module("mileage.core.a", text))) == 1


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        pytest.param(oversize, "x = 1\n" * MODULE_LINES_MAX, id="a module of the longest length"),
        pytest.param(oversize, function_of(FUNCTION_LINES_MAX), id="a function of the longest"),
        pytest.param(bad_exports, "_a = 1", id="nothing public, no __all__"),
        pytest.param(bad_exports, "__all__ = ['MAX', 'Ab', 'a2', 'a10']\nMAX = Ab = a2 = a10 = 1"),
        pytest.param(undocumented, "", id="an empty module"),
        pytest.param(undocumented, '"""What it does."""\nx = 1', id="a docstring"),
    ],
)
def test_what_keeps_the_rule_is_let_be(rule: Rule, text: str) -> None:
    assert rule(module("mileage.core.a", text)) == []


@pytest.mark.parametrize(
    ("name", "breaches"),
    [
        pytest.param("mileage.core.utils", 1, id="a vague module"),
        pytest.param("mileage.common.slo", 1, id="a vague package"),
        pytest.param("mileage.core.utility_curve", 0, id="a name that only looks like one"),
    ],
)
def test_a_vague_name_is_found(name: str, breaches: int) -> None:
    assert len(vague_name(module(name, ""))) == breaches
