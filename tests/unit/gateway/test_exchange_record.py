"""The record of a request: each figure is in its own place."""

from __future__ import annotations

from typing import Any
from unittest.mock import ANY

import msgspec
import pytest

from mileage.control.spend import Spend
from mileage.core.timeline import RequestTimeline
from tests.support.shared_generation import DONE, World, in_loop, token

USAGE = {
    "prompt_tokens": 7,
    "completion_tokens": 201,
    "prompt_tokens_details": {"cached_tokens": 3},
    "completion_tokens_details": {"reasoning_tokens": 2},
}
GAPS_S = [0.01] * 197 + [1.0, 1.0, 5.0]


def near(value: float) -> Any:
    return pytest.approx(value)


def test_a_stream_is_recorded_with_all_that_was_seen_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def story() -> None:
        world = World()
        monkeypatch.setattr(world.controller.intake, "take_spend", lambda _: Spend(208, 123, 45))
        client = world.ask()
        assert client.exchange is not None
        client.exchange.call.trace_id = "0af7651916cd43dd8448eb211c80319c"
        client.exchange.call.arrived_at_utc_ns = 99
        client.exchange.call.key = "ci"
        client.exchange.call.adapter = "sql"
        client.exchange.call.labels = "env=prod,team=search"
        now_s = 1.0
        engine = world.engine.head().send(token(), now_s=now_s)
        for gap_s in GAPS_S:
            now_s += gap_s
            engine.send(token(), now_s=now_s)
        last = msgspec.json.encode({"choices": [], "usage": USAGE})
        engine.send(b"data: %b\n\n" % last + DONE, now_s=now_s + 0.25)
        assert world.record(client) == RequestTimeline(
            id=client.id,
            tenant="t",
            model="m",
            endpoint="chat",
            stream=True,
            arrived_at_utc_ns=99,
            outcome="ok",
            status=200,
            replica="a",
            attempts=1,
            dispatched_s=ANY,
            first_token_s=near(0.5),
            last_token_s=near(9.47),
            finished_s=near(9.72),
            prompt_tokens=7,
            cached_tokens=3,
            output_tokens=201,
            reasoning_tokens=2,
            output_tokens_counted=201,
            itl_mean_s=near(8.97 / 200),
            itl_p99_s=near(1.0),
            itl_max_s=near(5.0),
            token_times=ANY,
            trace_id="0af7651916cd43dd8448eb211c80319c",
            gpu_ns=123,
            cost_nano_usd=45,
            key="ci",
            adapter="sql",
            labels="env=prod,team=search",
        )

    in_loop(story)
