"""A gateway's own page over a window becomes facts."""

from __future__ import annotations

from typing import Any

import pytest

from mileage.doctor.collect.gateway_metrics import gateway_facts
from mileage.doctor.collect.likeness_facts import PROMPTS_MIN, likeness_facts
from mileage.doctor.collect.page_window import PageAt, PageWindow
from mileage.doctor.facts import decode_facts
from mileage.measure.exposition import parse
from mileage.measure.metrics_page import Page
from mileage.measure.prompt_likeness import Likeness

PAGE = """
mileage_replica_in_flight{{replica="a"}} {running}
mileage_replica_running{{replica="a"}} {running}
mileage_replica_waiting{{replica="a"}} {waiting}
mileage_replica_queue_requests{{replica="a"}} {held}
mileage_replica_limit{{replica="a"}} {limit}
mileage_replica_running_max{{replica="a"}} 4
mileage_requests_in_flight {open}
mileage_requests_total{{model="m",endpoint="chat",tenant="t",outcome="ok"}} {done}
mileage_requests_total{{model="m",endpoint="chat",tenant="t",outcome="failed"}} {failed}
mileage_prompt_tokens_total{{model="m",tenant="t"}} {prompt}
mileage_cached_tokens_total{{model="m",tenant="t"}} {cached}
mileage_output_tokens_total{{model="m",tenant="t"}} {output}
mileage_responses_total{{status="200"}} {done}
mileage_responses_total{{status="503"}} {failed}
"""
START: dict[str, float] = {
    "running": 4, "waiting": 0, "held": 6, "limit": 4, "open": 10, "done": 100, "failed": 1,
    "prompt": 1000, "cached": 0, "output": 500,
}  # fmt: skip


def facts(start: dict[str, float], end: dict[str, float], slots: int | None = None) -> Any:
    pages = [
        PageAt(at_s, Page(parse(PAGE.format(**values).encode())))
        for at_s, values in ((0.0, start), (10.0, end))
    ]
    document = gateway_facts(PageWindow(pages), slots)
    decode_facts(document)
    return document


def test_rates_are_of_the_window_and_gauges_are_means() -> None:
    end = START | {"done": 120, "prompt": 3000, "cached": 500, "output": 900, "running": 2}
    found = facts(START, end)
    signals = found["signals"]
    assert signals["requests_per_s"] == 2.0
    assert signals["output_tokens_per_s"] == 40.0
    assert signals["requests_running"] == 3
    assert signals["requests_running_max"] == 4
    assert (signals["prefix_cache_queries_tokens"], signals["prefix_cache_hits_tokens"]) == (
        2000,
        500,
    )
    assert found["workload"]["isl_tokens"] == 100.0
    assert found["settings"] == {"max_num_seqs": 4}
    assert signals["http_5xx_count"] == 0


@pytest.mark.parametrize(
    ("limit", "waiting"),
    [
        pytest.param(4, 7.0, id="held for want of slots: it waits for the engine"),
        pytest.param(2, 1.0, id="held by a lower limit: the gateway's policy, not the engine"),
    ],
)
def test_what_is_held_waits_for_the_engine_where_its_slots_are_the_limit(
    limit: int, waiting: float
) -> None:
    state = START | {"limit": limit, "waiting": 1}
    assert facts(state, state)["signals"]["requests_waiting"] == waiting


def test_one_page_is_no_window() -> None:
    page = PageAt(0.0, Page(parse(PAGE.format(**START).encode())))
    assert gateway_facts(PageWindow([page])) == {}


def test_likeness_becomes_the_workload() -> None:
    seen = Likeness(
        prompts=PROMPTS_MIN, alike_ratio=1.0, head_tokens=8.0, head_ratio=0.01,
        first_diff_token=8.0, same_behind_ratio=0.97, continued_ratio=0.0,
    )  # fmt: skip
    document = likeness_facts(seen)
    decode_facts(document)
    assert document["workload"] == {
        "shared_prefix_tokens": 8.0,
        "shared_prefix_ratio": 0.01,
        "first_diff_token": 8.0,
        "identical_after_diff_ratio": 0.97,
        "multi_turn": False,
    }


def test_few_prompts_say_nothing() -> None:
    assert likeness_facts(Likeness(prompts=PROMPTS_MIN - 1, alike_ratio=1.0)) == {}
    assert likeness_facts(None) == {}
