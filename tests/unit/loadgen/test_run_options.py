"""Options and targets: what is refused, and by which name."""

from __future__ import annotations

from typing import Any

import pytest

from mileage.core.errors import ConfigError
from mileage.loadgen.run_options import Ramp, RunOptions
from mileage.loadgen.target import Target


@pytest.mark.parametrize(
    ("options", "key"),
    [
        pytest.param({"mode": "closed"}, "concurrency", id="a closed loop without lanes"),
        pytest.param({"concurrency": 3}, "concurrency", id="lanes of an open loop"),
        pytest.param({"think_s": 1.0}, "think_s", id="an open loop does not think"),
        pytest.param({"mode": "closed", "concurrency": 0}, "concurrency", id="no lanes"),
        pytest.param({"connections_max": 0}, "connections_max", id="no connections"),
        pytest.param({"retries": -1}, "retries", id="fewer than no retries"),
        pytest.param({"warmup_s": -1.0}, "warmup_s", id="a warm-up before the run"),
        pytest.param({"duration_s": 0.0}, "duration_s", id="no time"),
        pytest.param({"drain_s": float("inf")}, "drain_s", id="a drain without end"),
        pytest.param({"drain_s": float("nan")}, "drain_s", id="no number"),
        pytest.param({"connect_timeout_s": 0.0}, "connect_timeout_s", id="no time to connect"),
    ],
)
def test_bad_options_are_refused_by_name(options: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        RunOptions(**options)
    assert caught.value.key == key


def test_a_ramp_of_lanes_has_no_concurrency_beside_it() -> None:
    ramp = Ramp(start=0, end=5, over_s=1)
    assert RunOptions(mode="closed", ramp=ramp).ramp == ramp
    with pytest.raises(ConfigError):
        RunOptions(mode="closed", ramp=ramp, concurrency=3)


@pytest.mark.parametrize(
    ("fields", "key"),
    [
        pytest.param({"start": -1, "end": 1, "over_s": 1}, "ramp.start", id="below nothing"),
        pytest.param({"start": 0, "end": 0, "over_s": 1}, "ramp.end", id="nothing at all"),
        pytest.param({"start": 0, "end": 1, "over_s": 0}, "ramp.over_s", id="at once"),
        pytest.param({"start": 0, "end": float("nan"), "over_s": 1}, "ramp.end", id="no number"),
    ],
)
def test_bad_ramps_are_refused_by_name(fields: dict[str, float], key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Ramp(**fields)
    assert caught.value.key == key


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://x", "http://", "http://a b/", ""])
def test_a_url_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Target(url=url)
    assert caught.value.key == "url"


def test_credentials_are_sent_and_never_shown() -> None:
    target = Target(url="http://me:secret@host:1/v")
    assert target.authorization_value == "Basic bWU6c2VjcmV0"
    assert target.shown == "http://host:1/v"
    assert Target(url="http://host", authorization="Bearer k").authorization_value == "Bearer k"
    with pytest.raises(ConfigError) as caught:
        Target(url="http://host", authorization="Bearer k\r\nx: y")
    assert "Bearer" not in str(caught.value)
