"""What was seen from outside beside an engine's own means."""

from __future__ import annotations

from array import array
from typing import Any

import pytest

from mileage.measure.call_record import CallRecord
from mileage.scrape.engine_check import check_means
from mileage.scrape.engine_means import EngineFigure, EngineMean


def stream(sent_s: float, *times_s: float, **fields: Any) -> CallRecord:
    usual: dict[str, Any] = {
        "index": 0,
        "phase": "measured",
        "outcome": "ok",
        "scheduled_s": 0.0,
        "sent_s": sent_s,
        "ended_s": times_s[-1] + 1.0 if times_s else sent_s + 1.0,
        "token_times_s": array("d", times_s),
        "token_events": array("I", [1] * len(times_s)),
    }
    return CallRecord(**{**usual, **fields})


RECORDS = [
    stream(1.0, 1.5, 1.6, 1.9, output_tokens=3, prompt_tokens=10),
    stream(2.0, 2.3, 2.7, output_tokens=2, prompt_tokens=20),
    stream(9.0, 9.9, outcome="cut"),
]


def mean(value: float, count: int = 2, **fields: Any) -> EngineMean:
    return EngineMean(mean=value, count=count, family="f", **fields)


@pytest.mark.parametrize(
    ("figure", "seen", "count"),
    [
        pytest.param("ttft_s", 0.4, 2, id="from when it was sent"),
        pytest.param("e2e_s", 0.8, 2, id="to the last token"),
        pytest.param("itl_s", 0.8 / 3, 3, id="every gap counts alike"),
        pytest.param("tpot_s", 0.3, 2, id="every request counts alike"),
        pytest.param("prompt_tokens", 15.0, 2, id="tokens of prompts"),
        pytest.param("output_tokens", 2.5, 2, id="tokens of answers"),
    ],
)
def test_each_figure_as_it_was_seen(figure: EngineFigure, seen: float, count: int) -> None:
    check = check_means({figure: mean(seen / 1.04)}, RECORDS)[figure]
    assert check.seen_mean == pytest.approx(seen)
    assert check.seen_count == count
    assert check.ratio == pytest.approx(1.04)
    assert check.agrees


def test_means_that_are_further_apart_do_not_agree() -> None:
    assert not check_means({"ttft_s": mean(0.4 / 1.06)}, RECORDS)["ttft_s"].agrees
    assert not check_means({"ttft_s": mean(0.0)}, RECORDS)["ttft_s"].agrees


def test_tokens_that_came_together_have_gaps_of_nothing() -> None:
    record = stream(0.0, 1.0, 2.0, token_events=array("I", [2, 3]))
    check = check_means({"itl_s": mean(0.25, 4)}, [record])["itl_s"]
    assert (check.seen_mean, check.seen_count) == (0.25, 4)


def test_an_engine_that_counts_first_tokens_has_fewer_gaps_than_tokens() -> None:
    own = mean(0.8 / 5, 5, counts_first_tokens=True)
    check = check_means({"itl_s": own}, RECORDS)["itl_s"]
    assert check.engine_mean == pytest.approx(0.8 / 3)
    assert check.engine_count == 3
    assert check.agrees


def test_an_answer_without_a_stream_ends_with_its_last_byte() -> None:
    record = stream(1.0, stream=False)
    assert check_means({"e2e_s": mean(1.0)}, [record])["e2e_s"].seen_mean == 1.0


@pytest.mark.parametrize("figure", ["ttft_s", "itl_s", "tpot_s", "queue_s", "prompt_tokens"])
def test_what_was_not_seen_is_not_compared(figure: EngineFigure) -> None:
    assert check_means({figure: mean(1.0)}, [stream(1.0, stream=False)]) == {}
    assert check_means({figure: mean(1.0, 1, counts_first_tokens=True)}, []) == {}
