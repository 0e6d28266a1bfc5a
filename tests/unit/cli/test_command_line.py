"""The command line loads the command that is asked for, and no other."""

from __future__ import annotations

import subprocess
import sys

import pytest

from mileage.cli.commands import COMMANDS, asked_for


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        pytest.param(["cost", "--json"], ("cost",), id="one command"),
        pytest.param([], COMMANDS, id="nothing"),
        pytest.param(["--help"], COMMANDS, id="help"),
        pytest.param(["costs"], COMMANDS, id="a name that there is not"),
        pytest.param(["--version"], (), id="the version"),
    ],
)
def test_what_is_needed(arguments: list[str], expected: tuple[str, ...]) -> None:
    assert asked_for(arguments) == expected


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_has_help_and_loads_nothing_of_the_others(name: str) -> None:
    code = (
        "import sys\nfrom mileage.cli.main import main\n"
        f"sys.argv = ['mileage', '{name}', '--help']\n"
        "try:\n    main()\nexcept SystemExit as ended:\n    assert not ended.code, ended.code\n"
        f"others = [n for n in {COMMANDS!r} if n != {name!r}"
        " and 'mileage.cli.' + n in sys.modules]\n"
        "print(others, file=sys.stderr)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    assert "Usage: mileage" in ran.stdout
    # `serve` runs what `reload` asks of it, and `bench` reads traces.
    assert set(eval(ran.stderr)) <= {"serve", "trace"}
