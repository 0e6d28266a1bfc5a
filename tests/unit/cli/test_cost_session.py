"""CostSession: what an instant is to it."""

from __future__ import annotations

import time

import pytest

from mileage.cli.cost_arguments import SourceArguments
from mileage.cli.cost_session import session_of


@pytest.mark.parametrize(("now_s", "expected"), [(1_800_000_000.2, 1_800_000_001), (7200.0, 7200)])
def test_what_ended_within_this_second_is_of_the_window(
    monkeypatch: pytest.MonkeyPatch, now_s: float, expected: int
) -> None:
    monkeypatch.setattr(time, "time", lambda: now_s)
    session = session_of(SourceArguments(timezone="UTC"))
    assert session.now_utc_s == expected
    assert session.window("1h", None).until_utc_s == expected
