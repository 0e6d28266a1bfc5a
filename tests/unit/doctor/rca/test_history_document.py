"""decode_history(): histories from files, good and bad."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from mileage.core.errors import ConfigError
from mileage.doctor.rca.history_document import decode_history


def encoded(**document: Any) -> bytes:
    """A document as some programs write it: with NaN."""
    return json.dumps(document).encode()


def row(*values: float | None, node: str = "gateway") -> dict[str, Any]:
    """A series."""
    return {"node": node, "name": "ttft_p50_s", "values": values}


def test_a_history_on_an_even_grid() -> None:
    event = {"at_utc_s": 130.0, "kind": "config", "node": "gateway", "detail": "d", "version": 3}
    history = decode_history(
        encoded(
            start_utc_s=100.0,
            step_s=10.0,
            since_utc_s=125.0,
            series=[row(1.0, 2.0, 3.0, 4.0), row(1.0)],
            events=[event],
            links=[["replica:a", "host:h"]],
        )
    )
    assert (history.points, history.first, history.at_utc_s(3)) == (4, 3, 130.0)
    assert history.series[1].values == (1.0, None, None, None)
    assert history.events[0].version == 3
    assert history.links == (("replica:a", "host:h"),)


def test_what_the_admin_plane_gives() -> None:
    history = decode_history(
        encoded(
            window_s=30,
            step_s=10,
            times_utc_s=[0.0, 10.0, 20.0],
            values={"ttft_p50_s": [0.1, None, 0.3]},
            groups={"running": [{"label": "a:1", "values": [1, 2, 3]}]},
            ceilings={},
            columns_dropped=0,
        )
    )
    assert [(each.node, each.name, each.values) for each in history.series] == [
        ("gateway", "ttft_p50_s", (0.1, None, 0.3)),
        ("replica:a:1", "running", (1.0, 2.0, 3.0)),
    ]


def test_nan_and_infinity_are_gaps() -> None:
    history = decode_history(
        encoded(start_utc_s=0.0, step_s=1.0, series=[row(math.nan, 1.0, -math.inf)])
    )
    assert history.series[0].values == (None, 1.0, None)


def test_time_that_is_missing_is_a_gap_and_is_told() -> None:
    times = [0.0, 10.0, 20.0, 500.0, 510.0]
    history = decode_history(encoded(times_utc_s=times, series=[row(1.0, 2.0, 3.0, 4.0, 5.0)]))
    values = history.series[0].values
    assert (len(values), values[2], values[3], values[50], values[51]) == (52, 3.0, None, 4.0, 5.0)
    assert "1 gaps" in history.notes[0]


def test_a_clock_that_was_set_back_is_told_and_the_later_reading_counts() -> None:
    times = [0.0, 10.0, 20.0, 10.0, 20.0, 30.0]
    values = row(1.0, 2.0, 3.0, 20.0, 30.0, 40.0)
    history = decode_history(encoded(times_utc_s=times, series=[values]))
    assert history.series[0].values == (1.0, 20.0, 30.0, 40.0)
    assert "set back 1 times" in history.notes[0]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param(b"", "as JSON", id="nothing"),
        pytest.param(b"[1]", "as JSON", id="a list"),
        pytest.param(b"\xff\xfe", "as JSON", id="no text"),
        pytest.param(b"{}", "start_utc_s and step_s", id="no times"),
        pytest.param(encoded(start_utc_s=0.0, step_s=0.0), "above 0", id="a step of 0"),
        pytest.param(
            encoded(times_utc_s=[0.0], series=[row(1.0, 2.0)]), "as long as", id="other lengths"
        ),
        pytest.param(encoded(times_utc_s=[], series=[]), "at least one", id="no time"),
        pytest.param(
            encoded(times_utc_s=[0.0, 1.0, 2.0, 1e9], series=[]), "at most 20000", id="too long"
        ),
        pytest.param(
            encoded(start_utc_s=0.0, step_s=1.0, series=[{**row(1.0), "extra": 1}]),
            "as JSON",
            id="an unknown key of a series",
        ),
    ],
)
def test_what_is_no_history_is_refused(data: bytes, expected: str) -> None:
    with pytest.raises(ConfigError, match="--series") as caught:
        decode_history(data)
    assert expected in caught.value.expected
