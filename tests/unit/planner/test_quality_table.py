"""Public scores: by the checkpoint's whole name, each with its source."""

from __future__ import annotations

import pytest

from mileage.planner.quality_table import MEASURES, best_measure, known_quality


@pytest.mark.parametrize(
    ("model", "measure", "score"),
    [
        pytest.param("meta-llama/Llama-3.1-8B-Instruct", "MMLU-Pro", 0.483, id="as on the hub"),
        pytest.param("llama-3.1-8b-instruct", "MMLU-Pro", 0.483, id="without who made it"),
        pytest.param("meta-llama/Meta-Llama-3-8B-Instruct", "HumanEval pass@1", 0.604, id="Meta-"),
        pytest.param("DeepSeek-R1-Distill-Qwen-32B", "MATH-500 pass@1", 0.943, id="a distillate"),
        pytest.param("llama-3.1-8b", "MMLU-Pro", None, id="a base model has no score of it"),
        pytest.param("DeepSeek-V3", "HumanEval pass@1", None, id="another measure"),
        pytest.param("my-own-model", "MMLU-Pro", None, id="nobody knows it"),
        pytest.param("DeepSeek-V3", "beauty", None, id="no such measure"),
    ],
)
def test_a_score_is_found_by_name_and_measure(
    model: str, measure: str, score: float | None
) -> None:
    found = known_quality(model, measure)
    assert (None if found is None else found.score) == score
    if found is not None:
        assert found.measure == measure
        assert "revision" in found.source


def test_the_measure_that_most_are_known_by() -> None:
    assert best_measure(["Llama-3.1-8B-Instruct", "DeepSeek-V3"]) == "MMLU-Pro"
    assert best_measure(["DeepSeek-R1-Distill-Qwen-7B", "DeepSeek-R1"]) == "MATH-500 pass@1"
    assert best_measure(["my-own-model"]) is None
    assert best_measure([]) is None
    assert len(set(MEASURES)) == len(MEASURES)
