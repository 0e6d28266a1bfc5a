"""`mileage bench`: a first argument is a subcommand's name, or a URL with options around it."""

from __future__ import annotations

from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from mileage.cli.bench_group import BenchGroup
from mileage.core.errors import ConfigError

app = typer.Typer(rich_markup_mode=None)
group = typer.Typer(cls=BenchGroup, rich_markup_mode=None)
app.add_typer(group, name="bench")


@app.callback()
def _root() -> None:
    """All."""


@group.callback(invoke_without_command=True)
def _own(
    url: Annotated[str | None, typer.Argument()] = None,
    rate: Annotated[str, typer.Option()] = "-",
) -> None:
    """The group's own."""
    typer.echo(f"own {url} {rate}")


@group.command()
def ab(left: str, right: str, rate: Annotated[str, typer.Option()] = "-") -> None:
    """A subcommand."""
    typer.echo(f"ab {left} {right} {rate}")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        pytest.param("http://h --rate 3", "own http://h 3", id="a URL, then options"),
        pytest.param("--rate 3 http://h", "own http://h 3", id="options, then a URL"),
        pytest.param("--rate 3", "own None 3", id="options alone"),
        pytest.param("", "own None -", id="nothing"),
        pytest.param("ab x y --rate 3", "ab x y 3", id="a subcommand, and its own options only"),
        pytest.param("--rate ab http://h", "own http://h ab", id="its name as an option's value"),
        pytest.param("./ab", "own ./ab -", id="not quite a subcommand's name"),
    ],
)
def test_the_first_argument_says_what_runs(line: str, said: str) -> None:
    result = CliRunner().invoke(app, ["bench", *line.split()])
    assert (result.exit_code, result.stdout) == (0, f"{said}\n"), result.output


def test_options_before_a_subcommand_are_refused_by_name() -> None:
    result = CliRunner().invoke(app, ["bench", "--rate", "3", "ab", "x", "y"])
    assert isinstance(result.exception, ConfigError)
    assert "behind `ab`" in str(result.exception)


def test_a_second_url_is_refused() -> None:
    result = CliRunner().invoke(app, ["bench", "http://h", "http://i"])
    assert result.exit_code == 2
    assert "http://i" in result.output


def test_help_shows_both_forms_and_the_subcommands() -> None:
    shown = CliRunner().invoke(app, ["bench", "--help"], env={"COLUMNS": "100"}).stdout
    for part in ("URL [OPTIONS]", "COMMAND ...", "--rate", "ab ", "A subcommand."):
        assert part in shown
