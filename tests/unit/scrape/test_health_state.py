"""Health: which checks in a row bring a replica up or take it down."""

from __future__ import annotations

import pytest

from mileage.scrape.health import Health


def states(checks: str, **limits: int) -> str:
    """The state after each check, as letters; checks: + went well, - failed, t timed out."""
    health = Health(**limits)
    found = ""
    for check in checks:
        if check == "+":
            health.succeeded()
        else:
            health.failed(timed_out=check == "t")
        found += health.state[0]
    return found


@pytest.mark.parametrize(
    ("checks", "expected"),
    [
        pytest.param("+", "u", id="one success brings it up"),
        pytest.param("-+", "su", id="also after a failure"),
        pytest.param("--", "sd", id="two failures from the start: down"),
        pytest.param("+-+-+-", "uuuuuu", id="single failures are forgiven"),
        pytest.param("+--", "uud", id="two in a row are not"),
        pytest.param("+--+", "uudu", id="and one success is enough again"),
        pytest.param("+--++-+--", "uuduuuuud", id="and two failures again"),
        pytest.param("+tttt", "uuuuu", id="timeouts alone: patience"),
        pytest.param("+ttttt", "uuuuud", id="with an end"),
        pytest.param("+tttt+tttt", "uuuuuuuuuu", id="a success ends the row"),
        pytest.param("+t-t-", "uuuud", id="timeouts between do not excuse two failures"),
        pytest.param("+ttt-t", "uuuuud", id="a failure counts among the timeouts too"),
        pytest.param("+--tt-", "uudddd", id="down stays down"),
    ],
)
def test_the_state_after_each_check(checks: str, expected: str) -> None:
    assert states(checks) == expected


def test_the_limits_can_be_set() -> None:
    assert states("+-", failures_max=1) == "ud"
    assert states("+tt", timeouts_max=2) == "uud"
    assert states("+----", failures_max=4) == "uuuud"


def test_changes_are_told_once() -> None:
    health = Health()
    assert [health.succeeded(), health.succeeded()] == [True, False]
    assert [health.failed(timed_out=False) for _ in range(3)] == [False, True, False]
    assert health.failures_in_a_row == 3
    assert health.succeeded()
    assert health.failures_in_a_row == 0
