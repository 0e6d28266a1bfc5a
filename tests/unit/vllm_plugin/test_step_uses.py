"""What requests have of steps: chunks, cache hits, preemptions, drafts, several of one id."""

from __future__ import annotations

import pytest

from mileage.vllm_plugin.step_uses import StepUses
from tests.support.scheduler_outputs import Part, step_output

IDS = {"a": 1, "b": 2, "0_a": 1, "1_a": 1}


def uses() -> StepUses:
    return StepUses(lambda name: IDS.get(name, -1))


def full(rows: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """With the default of what was left out."""
    return [(*row, *(0,) * (5 - len(row))) for row in rows]


def test_a_prompt_in_chunks_then_its_answer() -> None:
    each = uses()
    assert full(each.rows(step_output(Part("a", 0, 40, prompt=100)))) == [(1, 40, 0, 0, 0)]
    assert full(each.rows(step_output(Part("a", 40, 40)))) == [(1, 40, 0, 40, 0)]
    assert full(each.rows(step_output(Part("a", 80, 20)))) == [(1, 20, 0, 80, 0)]
    assert full(each.rows(step_output(Part("a", 100, 1, outputs=1)))) == [(1, 0, 1, 100, 0)]
    assert full(each.rows(step_output(Part("a", 101, 1, outputs=2)))) == [(1, 0, 1, 101, 0)]


def test_tokens_out_of_the_prefix_cache_are_not_computed() -> None:
    each = uses()
    assert full(each.rows(step_output(Part("a", 64, 36, prompt=100)))) == [(1, 36, 0, 64, 0)]


def test_those_that_decode_beside_a_prompt() -> None:
    each = uses()
    each.rows(step_output(Part("a", 0, 10, prompt=10)))
    rows = each.rows(step_output(Part("b", 0, 50, prompt=80), Part("a", 10, 1, outputs=1)))
    assert full(rows) == [(2, 50, 0, 0, 0), (1, 0, 1, 10, 0)]
    rows = each.rows(step_output(Part("a", 11, 1, outputs=2), Part("b", 50, 30)))
    assert full(rows) == [(1, 0, 1, 11, 0), (2, 30, 0, 50, 0)]


@pytest.mark.parametrize("drafts", [pytest.param(3, id="some"), pytest.param(0, id="none")])
def test_drafts_count_as_decoded_whether_they_are_taken_or_not(drafts: int) -> None:
    each = uses()
    each.rows(step_output(Part("a", 0, 10, prompt=10)))
    assert full(each.rows(step_output(Part("a", 10, 1 + drafts)))) == [(1, 0, 1 + drafts, 10, 0)]
    # One draft was taken: two tokens more than before, and no token is computed again.
    assert full(each.rows(step_output(Part("a", 12, 1 + drafts)))) == [(1, 0, 1 + drafts, 12, 0)]


def test_a_preempted_answer_is_computed_again() -> None:
    each = uses()
    each.rows(step_output(Part("a", 0, 10, prompt=10)))
    each.rows(step_output(Part("a", 10, 1, outputs=1)))
    each.rows(step_output(Part("a", 11, 1, outputs=2)))
    # 10 tokens of the prompt and 3 of the answer, of which the last was not computed yet.
    rows = each.rows(step_output(Part("a", 4, 5, outputs=3, resumed=True)))
    assert full(rows) == [(1, 5, 0, 4, 5)]
    assert full(each.rows(step_output(Part("a", 9, 4, outputs=3)))) == [(1, 3, 1, 9, 3)]
    assert full(each.rows(step_output(Part("a", 13, 1, outputs=4)))) == [(1, 0, 1, 13, 0)]


def test_a_preempted_prompt_is_computed_again_as_far_as_it_was() -> None:
    each = uses()
    each.rows(step_output(Part("a", 0, 30, prompt=100)))
    rows = each.rows(step_output(Part("a", 0, 50, resumed=True)))
    assert full(rows) == [(1, 50, 0, 0, 30)]
    assert full(each.rows(step_output(Part("a", 50, 50)))) == [(1, 50, 0, 50, 0)]


def test_a_preempted_request_that_is_told_as_new() -> None:
    each = uses()
    each.rows(step_output(Part("a", 0, 10, prompt=10)))
    each.rows(step_output(Part("a", 10, 1, outputs=1)))
    each.rows(step_output(preempted=("a",)))
    rows = each.rows(step_output(Part("a", 0, 12, prompt=10, everything=12)))
    assert full(rows) == [(1, 11, 1, 0, 11)]


def test_an_old_version_flags_those_that_were_preempted() -> None:
    each = uses()
    each.rows(step_output(Part("a", 0, 30, prompt=100), flags=True))
    rows = each.rows(step_output(Part("a", 0, 50, resumed=True), flags=True))
    assert full(rows) == [(1, 50, 0, 0, 30)]


def test_the_choices_of_one_request_have_one_row() -> None:
    each = uses()
    rows = each.rows(step_output(Part("0_a", 0, 10, prompt=10), Part("1_a", 8, 2, prompt=10)))
    assert full(rows) == [(1, 12, 0, 8, 0)]
    rows = each.rows(step_output(Part("0_a", 10, 1, outputs=1), Part("1_a", 10, 1, outputs=1)))
    assert full(rows) == [(1, 0, 2, 20, 0)]
    rows = each.rows(step_output(Part("1_a", 11, 1, outputs=2), finished=("0_a",)))
    assert rows == [(1, 0, 1, 11)]


def test_nothing_is_left_of_requests_that_ended() -> None:
    each = uses()
    each.rows(step_output(Part("a", 0, 10, prompt=10), Part("b", 0, 5, prompt=20)))
    assert len(each) == 2
    assert each.rows(step_output(finished=("a", "b", "never-seen"))) == []
    assert len(each) == 0


def test_a_session_that_goes_on_has_a_new_prompt() -> None:
    each = uses()
    each.rows(step_output(Part("a", 0, 10, prompt=10)))
    rows = each.rows(step_output(Part("a", 12, 18, prompt=30)))
    assert full(rows) == [(1, 18, 0, 12, 0)]


def test_a_request_whose_beginning_was_not_seen_decodes() -> None:
    assert full(uses().rows(step_output(Part("b", 7, 1)))) == [(2, 0, 1, 7, 0)]
