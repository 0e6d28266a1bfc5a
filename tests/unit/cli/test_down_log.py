"""DownLog: one line for an engine that is down, and one when it is back."""

from __future__ import annotations

import pytest

from mileage.cli.down_log import DownLog
from mileage.core.events import ReplicaDown, ReplicaUp

DOWN = ReplicaDown("gpu-1:8000", "http://gpu-1:8000/health: connection refused")
UP = ReplicaUp("gpu-1:8000", ("toy",))


def test_each_change_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    downs = DownLog()
    for event in (UP, DOWN, DOWN, UP, UP, DOWN):
        downs.heard(event)
    down = f"engine gpu-1:8000 is down: {DOWN.reason}"
    assert caplog.messages == [down, "engine gpu-1:8000 is up now", down]


def test_what_was_left_while_it_was_down_is_not_told_to_be_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    downs = DownLog()
    downs.heard(DOWN)
    downs.forget(DOWN.replica)
    downs.heard(UP)
    assert len(caplog.messages) == 1
