"""The reference pages say what the code says: every command, option, key and metric."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import pytest
import typer
from scripts.reference import commands, configuration, metrics
from scripts.reference.__main__ import pages
from typer.testing import CliRunner

from mileage.cli.config import Config
from mileage.cli.whole_command import app
from tests.architecture.source import SRC
from tests.docs.pages import ROOT

UNITS = ("_seconds", "_bytes", "_tokens", "_ratio", "_records", "_rows", "_info", "_usd")


PAGES = pages()


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.name))
def test_the_page_is_as_the_code_says(path: Path) -> None:
    assert path.read_text("utf-8") == PAGES[path](), "run `make docs`"


def test_every_page_of_a_rule_is_of_a_rule_that_there_is() -> None:
    assert set((ROOT / "docs" / "rules").glob("*.md")) == {
        path for path in PAGES if path.parent.name == "rules"
    }


def test_every_configuration_key_has_a_meaning() -> None:
    sections = configuration.sections(Config)
    assert len(sections) > 5
    assert [f"{s.header} {k.name}" for s in sections for k in s.keys if not k.meaning] == []


def metric_names(text: str) -> set[str]:
    """Strings of the module's text that look like a metric's whole name."""
    return {
        node.value
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and re.fullmatch(r"mileage_[a-z0-9_]*[a-z0-9]", node.value)
    }


def test_every_metric_is_documented_once() -> None:
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text("utf-8")
    # What the plugin adds to vLLM's objects is named so, too; it has no metrics of its own.
    texts = {
        path: path.read_text("utf-8")
        for path in (SRC / "mileage").rglob("*.py")
        if "vllm_plugin" not in path.parts
    }
    used = set[str]().union(*(metric_names(t) for t in texts.values() if "mileage_" in t))
    listed = re.findall(r"^\| `(mileage_\w+)` ", page, re.MULTILINE)
    assert used
    assert sorted(used) == sorted(listed)


def misnamed(families: list[metrics.Metric]) -> list[str]:
    """Families whose name breaks the conventions of Prometheus."""
    return [
        family.name
        for family in families
        if (family.kind == "counter") != family.name.endswith("_total")
        or (family.kind == "histogram" and not family.name.endswith(UNITS))
        or re.search(r"_(ms|milliseconds|percent|kb|mb|minutes)(_total)?$", family.name)
        or not family.help.endswith(".")
    ]


def test_metrics_keep_the_naming_conventions() -> None:
    assert misnamed(metrics.families_under(ROOT / "src")) == []


def test_a_misnamed_metric_is_found() -> None:
    families = [
        metrics.Metric("mileage_requests", "counter", (), "Requests."),
        metrics.Metric("mileage_wait_ms", "gauge", (), "Wait."),
        metrics.Metric("mileage_wait", "histogram", (), "Wait."),
        metrics.Metric("mileage_workers", "gauge", (), "Workers."),
    ]
    assert misnamed(families) == ["mileage_requests", "mileage_wait_ms", "mileage_wait"]


def test_metric_families_are_read_from_the_code() -> None:
    text = """
_BY = ("model",)
def f(self):
    self.a = Counter("mileage_a_total", "A " "b.", _BY)
    self.b = metrics.Histogram(name="mileage_b_seconds", help="B.", labels=("x", "y"), bounds=(1,))
    other.Counter("some_total", "Not ours.")
"""
    assert metrics.families_in(text) == [
        metrics.Metric("mileage_a_total", "counter", ("model",), "A b."),
        metrics.Metric("mileage_b_seconds", "histogram", ("x", "y"), "B."),
    ]


class Inner(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Section `[inner]`: what it is for."""

    mode: Literal["a", "b"]
    """Which | one."""
    limit_max: int | None = None
    """None: no limit."""
    names: tuple[str, ...] = ("x",)


class Root(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All of it."""

    inner: Inner
    many: tuple[Inner, ...] = ()
    """More of them."""
    named: dict[str, Inner] = {}
    aliases: dict[str, str] = {}
    """Name -> name."""


def test_configuration_is_read_from_the_structs() -> None:
    found = configuration.sections(Root)
    assert [s.header for s in found] == ["[inner]", "[[many]]", "[named.NAME]", "[aliases]"]
    assert found[0].meaning == "What it is for."
    assert found[0].keys == [
        configuration.Key("mode", '`"a"` or `"b"`', "required", "Which \\| one."),
        configuration.Key("limit_max", "integer", "-", "unset: no limit."),
        configuration.Key("names", "list of text", '`["x"]`', ""),
    ]
    assert found[3].keys == [configuration.Key("NAME", "text", "-", "Name -> name.")]


def options_in_help(path: str) -> set[str]:
    """Options that the command at the path shows for itself, but for those of typer's own."""
    shown = CliRunner().invoke(app, [*path.split()[1:], "--help"], env={"COLUMNS": "200"})
    assert shown.exit_code == 0, shown.output
    options = set(re.findall(r"^\s+(?:-\w, )?(--[a-z][\w-]*)", shown.output, re.MULTILINE))
    return options - {"--help", "--install-completion", "--show-completion"}


@pytest.mark.parametrize(
    "command", [*commands.commands(app)], ids=lambda command: str(command.path)
)
def test_the_command_line_takes_the_options_of_the_page(command: commands.Command) -> None:
    assert {p.names[0] for p in command.parameters if p.names} == options_in_help(command.path)


def test_commands_are_read_from_the_app() -> None:
    prog = typer.Typer(name="prog", add_completion=False)

    @prog.command()
    def run(
        target: Annotated[str, typer.Argument(help="What to run.")],
        port: Annotated[int, typer.Option(help="Port | number.")] = 80,
        fast: Annotated[bool, typer.Option("--fast", help="Hurry.")] = False,
        color: Annotated[bool, typer.Option(help="Paint.")] = True,
        tag: Annotated[list[str] | None, typer.Option(help="Mark.")] = None,
    ) -> None:
        """Run it."""

    @prog.command(hidden=True)
    def secret() -> None:
        """Hide it."""

    @prog.callback()
    def root() -> None:
        """All."""

    page = commands.render(prog)
    assert "## prog run\n\nRun it.\n\n```\nprog run [OPTIONS] TARGET\n```\n" in page
    assert "| `TARGET` | What to run. |\n" in page
    assert "| `--port` INTEGER | `80` | Port \\| number. |\n" in page
    assert "| `--fast` |  | Hurry. |\n" in page
    assert "| `--color`, `--no-color` | on | Paint. |\n" in page
    assert "| `--tag` TEXT (repeatable) |  | Mark. |\n" in page
    assert "secret" not in page
