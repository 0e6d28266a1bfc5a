"""`mileage plan roi`: options and files, a document and tables, and refusals by place."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from mileage.cli.whole_command import app
from mileage.core.errors import ConfigError

API = "api usd_per_request=0.142"
OWN = "own usd_per_request=0.059"
VOLUME = ("--requests-per-month", "9")
FILE = """\
start = 2027-01-31

[business]
requests_per_month = 100_000
one_time_usd = 20_000

[baseline]
name = "api"
usd_per_request = 0.142

[candidate]
name = "own"
usd_per_request = 0.059
"""


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["plan", "roi", *arguments], env={"NO_COLOR": "1"})


def written(tmp_path: Path, text: str) -> str:
    path = tmp_path / "roi.toml"
    path.write_text(text, "utf-8")
    return str(path)


def test_options_say_what_a_file_says(tmp_path: Path) -> None:
    options = ("--requests-per-month", "100000", "--one-time", "20000", "--start", "2027-01-31")
    spelled = run("--baseline", API, "--candidate", OWN, *options, "--json")
    of_file = run(written(tmp_path, FILE), "--json")
    assert spelled.exit_code == of_file.exit_code == 0
    assert spelled.stdout == of_file.stdout
    document = json.loads(of_file.stdout)
    # 100,000 x (0.142 - 0.059) = 8,300 a month.
    assert document["saving_usd_per_month"] == pytest.approx(8_300)
    assert document["break_even_date"] == "2027-04-13"
    assert document["inputs"]["baseline"]["name"] == "api"
    swings = [each["swing_usd"] for each in document["sensitivity"]]
    assert swings == sorted(swings, reverse=True)


def test_an_option_goes_before_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, FILE)
    document = json.loads(run(path, "--one-time", "8300", "--json").stdout)
    assert document["break_even_months"] == pytest.approx(1.0)
    assert document["break_even_date"] == "2027-02-28"


def test_it_begins_today_where_nobody_tells() -> None:
    arguments = ("--baseline", API, "--candidate", OWN, "--requests-per-month", "1000", "--json")
    start = dt.date.fromisoformat(json.loads(run(*arguments).stdout)["inputs"]["start"])
    assert abs(dt.datetime.now(dt.UTC).date() - start) <= dt.timedelta(days=1)


def test_the_table_has_both_sides_a_verdict_and_what_it_hangs_on(tmp_path: Path) -> None:
    shown = run(written(tmp_path, FILE)).output
    assert "saves $8,300 in the first month" in shown
    assert "pays back $20,000 after 2.4 months, on 2027-04-13" in shown
    tornado = shown[shown.index("20 % less") :].splitlines()[1:]
    assert [line.split()[0] for line in tornado][:2] == [
        "baseline.usd_per_request",
        "requests_per_month",
    ]
    assert "+" in tornado[0]
    assert "-" in tornado[0]


def test_what_never_pays_back_exits_with_1() -> None:
    options = ("--requests-per-month", "100000", "--one-time", "10")
    dearer = run("--baseline", OWN, "--candidate", API, *options)
    assert dearer.exit_code == 1
    assert "costs $8,300 more in the first month" in dearer.output
    assert "never pays back" in dearer.output


@pytest.mark.parametrize(
    ("arguments", "key", "expected"),
    [
        pytest.param(("--baseline", API), "--requests-per-month", "a FILE", id="volume not told"),
        pytest.param(
            ("--requests-per-month", "9"), "--baseline", "a FILE", id="no way to serve told"
        ),
        pytest.param(
            ("--baseline", "usd_per_request=1"), "--baseline", "NAME", id="a way without a name"
        ),
        pytest.param(
            ("--baseline", "api usd_per_request=cheap"),
            "--baseline",
            "a number as usd_per_request",
            id="no number",
        ),
        pytest.param(
            ("--baseline", "api price=1", "--requests-per-month", "9"),
            "--baseline price",
            "usd_per_request",
            id="a key that there is not",
        ),
        pytest.param(
            ("--baseline", API, "--candidate", "own usd_per_month=2150", *VOLUME),
            "--candidate usd_per_request",
            "required",
            id="a price that is missing",
        ),
        pytest.param(
            ("--baseline", "api usd_per_request=-1", "--candidate", OWN, *VOLUME),
            "--baseline usd_per_request",
            "0.0..",
            id="a price below 0",
        ),
        pytest.param(
            ("--baseline", API, "--candidate", OWN, "--requests-per-month", "9", "--growth", "9"),
            "--growth",
            "-0.5..1.0",
            id="growth tenfold by month",
        ),
        pytest.param(("--start", "soon"), "--start", "2027-01-31", id="a day that is none"),
        pytest.param(
            ("--baseline", API, "--candidate", OWN, "--requests-per-month", "9", "--error", "2"),
            "baseline.accuracy_ratio",
            "error_usd",
            id="errors cost, and nobody knows how many",
        ),
    ],
)
def test_a_bad_option_is_refused_by_name(
    arguments: tuple[str, ...], key: str, expected: str
) -> None:
    error = run(*arguments).exception
    assert isinstance(error, ConfigError)
    assert error.key == key
    assert expected in error.expected


def test_a_bad_file_is_refused_with_its_line(tmp_path: Path) -> None:
    error = run(written(tmp_path, FILE.replace("0.059", "-0.059"))).exception
    assert isinstance(error, ConfigError)
    assert error.key == "candidate.usd_per_request"
    assert (error.place or "").endswith("roi.toml:13")
    error = run(written(tmp_path, FILE.replace("one_time_usd", "one_time"))).exception
    assert isinstance(error, ConfigError)
    assert "one_time_usd" in error.expected
    assert (error.place or "").endswith("roi.toml:5")


def test_without_anything_it_shows_how_it_is_used() -> None:
    shown = run()
    assert shown.exit_code == 2
    assert "Example: mileage plan roi" in shown.output
