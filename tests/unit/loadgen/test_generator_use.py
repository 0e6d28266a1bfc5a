"""Whether the generator was the limit."""

from __future__ import annotations

from typing import Any

import pytest

from mileage.loadgen.generator_use import GeneratorUse, limit_reason


@pytest.mark.parametrize(
    ("use", "latency_s", "closed", "word"),
    [
        pytest.param({}, 1.0, False, None, id="nothing sampled: nothing said"),
        pytest.param({"cpu_ratio": 0.9}, 1.0, False, None, id="busy, but with room"),
        pytest.param({"cpu_ratio": 0.91}, 1.0, False, "busy for 91%", id="no room left"),
        pytest.param({"lag_p99_s": 0.019}, 1.0, False, None, id="below the bound"),
        pytest.param({"lag_p99_s": 0.021}, 1.0, False, "left late", id="late, whatever the server"),
        pytest.param({"lag_p99_s": 0.011}, 0.1, False, "above 10.0 ms", id="late beside latency"),
        pytest.param({"lag_p99_s": 0.009}, 0.1, False, None, id="not so beside it"),
        pytest.param({"lag_p99_s": 0.0049}, 0.001, False, None, id="borne, however fast"),
        pytest.param({"lag_p99_s": 0.021}, None, False, "left late", id="no answers at all"),
        pytest.param({"lag_p99_s": 9.0}, 1.0, True, None, id="closed: calls have no schedule"),
        pytest.param({"loop_lag_p99_s": 0.03}, 1.0, True, "event loop", id="closed: the loop"),
        pytest.param({"lag_max_s": 3.0}, 1.0, False, None, id="one late call is no limit"),
        pytest.param(
            {"lag_p99_s": 0.03, "run_queue_ratio": 0.2}, 1.0, False, "20% of the time", id="why"
        ),
    ],
)
def test_the_generator_is_the_limit(
    use: dict[str, Any], latency_s: float | None, closed: bool, word: str | None
) -> None:
    reason = limit_reason(GeneratorUse(**use), latency_p50_s=latency_s, closed=closed)
    if word is None:
        assert reason is None
    else:
        assert reason is not None
        assert word in reason
