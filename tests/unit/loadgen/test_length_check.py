"""How far prompts and answers were from the lengths that were planned."""

from __future__ import annotations

from typing import Any

from mileage.loadgen.length_check import LengthCheck, check_lengths
from mileage.measure.call_record import CallRecord


def record(**fields: Any) -> CallRecord:
    usual: dict[str, Any] = {"index": 0, "phase": "measured", "outcome": "ok", "scheduled_s": 0.0}
    return CallRecord(**{**usual, **fields})


def test_what_differs_is_summed_and_the_worst_is_named() -> None:
    check = check_lengths(
        [
            record(planned_prompt_tokens=100, prompt_tokens=100, planned_output_tokens=10),
            record(planned_prompt_tokens=10, prompt_tokens=14, output_tokens=3),
            record(
                planned_prompt_tokens=90,
                prompt_tokens=80,
                planned_output_tokens=8,
                output_tokens=6,
            ),
        ]
    )
    prompts, outputs = check.prompts, check.outputs
    assert prompts is not None
    assert outputs is not None
    assert (prompts.count, prompts.planned_tokens, prompts.counted_tokens) == (3, 200, 194)
    assert (prompts.worst_tokens, prompts.worst_ratio, prompts.exact) == (10, 0.4, 1)
    assert prompts.ratio == 0.97
    assert (outputs.count, outputs.ratio) == (1, 0.75)


def test_requests_that_failed_tell_nothing() -> None:
    failed = record(outcome="cut", planned_prompt_tokens=9, prompt_tokens=9)
    assert check_lengths([failed, record()]) == LengthCheck()


def test_embeddings_generate_nothing_and_are_not_compared() -> None:
    check = check_lengths([record(planned_output_tokens=0, output_tokens=0)])
    assert check.outputs is None
