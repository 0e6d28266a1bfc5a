"""Facts of a record: sources by name, long watches, pages of several sorts."""

from __future__ import annotations

import pytest

from mileage.doctor.collect.engine_facts import engine_facts
from mileage.doctor.collect.engine_record import EngineRecord, RecordedPage
from mileage.doctor.collect.merge_facts import merge_facts


def page(second: int, text: str) -> RecordedPage:
    """A page of that second."""
    return RecordedPage(at_s=float(second), at_utc_s=1e9 + second, path="/metrics", text=text)


def test_of_a_long_watch_the_ends_count_and_enough_in_between() -> None:
    pages = [
        page(second, f"vllm:num_requests_running 1\nvllm:generation_tokens_total {second * 7}")
        for second in range(2_000)
    ]
    (part,) = engine_facts(EngineRecord(url="http://engine", pages=tuple(pages)))
    assert part.source == "metrics of http://engine"
    assert part.standing == "measured"
    assert part.document["signals"]["output_tokens_per_s"] == pytest.approx(7)


def test_each_iteration_of_a_long_watch_counts() -> None:
    pages = [
        page(
            second, '[{"numActiveRequests": 1, "inflightBatchingStats": {"numPausedRequests": 1}}]'
        )
        for second in range(1_000)
    ]
    document = merge_facts(engine_facts(EngineRecord(url="x", pages=tuple(pages)))).document
    assert document["signals"]["preemptions_count"] == 1_000


def test_a_page_that_says_nothing_is_no_source() -> None:
    record = EngineRecord(url="x", pages=(page(0, "<html>"),), answers={"/version": "{}"})
    assert engine_facts(record) == ()
