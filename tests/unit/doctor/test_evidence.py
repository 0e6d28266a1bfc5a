"""What a rule sees: the document, the current arm on top, and "not known" where nothing is said."""

from __future__ import annotations

from typing import Any

import pytest

from mileage.doctor.evidence import Evidence
from mileage.doctor.facts import decode_facts
from mileage.doctor.interval import exactly


def evidence(**facts: Any) -> Evidence:
    return Evidence(decode_facts(facts))


def test_the_current_arm_lies_over_the_document() -> None:
    arms = [
        {"arm": "was", "settings": {"block_size": 16}, "signals": {"itl_mean_s": 0.1}},
        {"arm": "is", "settings": {"block_size": 32}, "current": True},
    ]
    seen = evidence(settings={"block_size": 8, "max_num_seqs": 4}, comparisons=[{"arms": arms}])
    assert seen.number("block_size").value == exactly(32)
    assert seen.number("max_num_seqs").value == exactly(4)
    assert not seen.known("itl_mean_s")
    was, now = seen.comparisons[0].arms
    assert was.number("block_size").value == exactly(16)
    assert was.number("max_num_seqs").value == exactly(4)
    assert was.has("block_size")
    assert not was.has("max_num_seqs")
    assert now.current


def test_what_is_not_said_answers_nothing() -> None:
    seen = evidence()
    checks = (
        seen.number("itl_mean_s").above(1),
        seen.is_true("enforce_eager"),
        seen.is_false("enforce_eager"),
        seen.is_one_of("quantization", "awq"),
        seen.contains("hardware.gpu", "h100"),
        seen.includes("model.architecture", "moe"),
        seen.is_unset("quantization"),
        seen.logged("anything"),
    )
    assert {check.truth for check in checks} == {None}


@pytest.mark.parametrize(
    ("settings", "unset", "awq"),
    [
        pytest.param({"quantization": None}, True, False, id="known to be not set"),
        pytest.param({"quantization": "AWQ"}, False, True, id="set, in capitals"),
        pytest.param({"quantization": "gptq"}, False, False, id="set to another"),
    ],
)
def test_a_setting_that_is_not_set_is_none_of_its_words(
    settings: dict[str, Any], unset: bool, awq: bool
) -> None:
    seen = evidence(settings=settings)
    assert seen.is_unset("quantization").truth is unset
    assert seen.is_one_of("quantization", "awq").truth is awq


def test_flags_texts_and_lists() -> None:
    seen = evidence(
        model={"architecture": ["MoE", "mla"]},
        settings={"enforce_eager": False},
        hardware={"gpu": "NVIDIA H100"},
    )
    assert seen.is_false("enforce_eager").truth is True
    assert seen.is_true("enforce_eager").truth is False
    assert seen.includes("model.architecture", "moe", "dense").truth is True
    assert seen.includes("model.architecture", "dense").truth is False
    assert seen.contains("hardware.gpu", "h100").truth is True


def test_a_name_of_no_vocabulary_is_a_bug_of_the_rule() -> None:
    with pytest.raises(KeyError):
        evidence().number("itl")


def test_a_log_says_a_thing_in_any_case_and_never_that_it_is_not() -> None:
    seen = evidence(logs=["one", "WARNING: Preempted 3 requests"])
    assert seen.logged(r"preempted \d+").value == "WARNING: Preempted 3 requests"
    assert seen.logged("retracted").truth is None


def test_lines_that_differ_in_numbers_alone_hide_no_other_line() -> None:
    statistics = [f"12:00:{n % 60:02} Running: {n} reqs" for n in range(400)]
    seen = evidence(logs=[*statistics, "CUDA out of memory", *statistics])
    assert seen.logged("out of memory").truth is True
    assert seen.logged("Running: 3 reqs").truth is True
    assert len(seen.logs) == 2 * len(statistics) + 1
