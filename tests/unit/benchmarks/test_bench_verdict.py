"""Exit codes: 0 passed, 1 failed, 3 where the run cannot tell."""

from __future__ import annotations

import pytest

from benchmarks.support.verdict import FAILED, NO_VERDICT, PASSED, Bar, verdict

BARS = (Bar("speed", 10), Bar("delay", 2, at_least=False))
GOOD: dict[str, object] = {"speed": 10, "delay": 1.9}
SLOW: dict[str, object] = {"speed": 9.9, "delay": 2.0}


@pytest.mark.parametrize(
    ("figures", "notes", "code", "count"),
    [
        pytest.param(GOOD, {}, PASSED, 0, id="bars met"),
        pytest.param(SLOW, {}, FAILED, 2, id="bars missed"),
        pytest.param(
            SLOW, {"doubts": ["noise"]}, NO_VERDICT, 3, id="missed on a disturbed machine"
        ),
        pytest.param(GOOD, {"doubts": ["noise"]}, PASSED, 1, id="met on a disturbed machine"),
        pytest.param(GOOD, {"invalid": ["limit"]}, NO_VERDICT, 1, id="an invalid run"),
        pytest.param(GOOD, {"failures": ["lost one"]}, FAILED, 1, id="met, but a request was lost"),
        pytest.param(
            GOOD,
            {"failures": ["lost"], "invalid": ["limit"]},
            FAILED,
            1,
            id="a failure comes first",
        ),
        pytest.param({"speed": 11}, {}, NO_VERDICT, 1, id="a figure is missing"),
        pytest.param({**GOOD, "delay": None}, {}, NO_VERDICT, 1, id="a figure is null"),
    ],
)
def test_exit_code_and_reasons(
    figures: dict[str, object], notes: dict[str, list[str]], code: int, count: int
) -> None:
    result = verdict(figures, BARS, **notes)
    assert (result.exit_code, len(result.reasons)) == (code, count)


@pytest.mark.parametrize(
    ("ratio", "doubts", "code"),
    [
        pytest.param(4.0, [], PASSED, id="a quiet machine"),
        pytest.param(4.0, ["noise"], NO_VERDICT, id="the other may have been disturbed more"),
        pytest.param(2.0, ["noise"], NO_VERDICT, id="we may have been disturbed more"),
        pytest.param(2.0, [], FAILED, id="missed on a quiet machine"),
    ],
)
def test_a_comparison_needs_a_quiet_machine(ratio: float, doubts: list[str], code: int) -> None:
    bars = (Bar("ratio", 3, comparative=True),)
    assert verdict({"ratio": ratio}, bars, doubts=doubts).exit_code == code
