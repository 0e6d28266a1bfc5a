"""Public scores of models that answer, each with the page that it is from; None where none is."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from mileage.planner.comparison import Quality

__all__ = ["MEASURES", "best_measure", "known_quality"]

_LLAMA: Final = "meta-llama/llama-models, models/llama3_1/MODEL_CARD.md (revision 1b28708f)"
_V3: Final = "deepseek-ai/DeepSeek-V3, README.md (revision 06dbd30b)"
_R1: Final = "deepseek-ai/DeepSeek-R1, README.md (revision 00f3296a)"
_MMLU_PRO: Final = "MMLU-Pro"
_HUMAN_EVAL: Final = "HumanEval pass@1"
_MATH: Final = "MATH-500 pass@1"

MEASURES: Final = (_MMLU_PRO, _HUMAN_EVAL, _MATH)
"""Those that the table has. MMLU-Pro with reasoning before the answer, exact match: both sources
give Llama-3.1-405B-Instruct the same score."""

_SCORES: Final = (
    ("Llama-3-8B-Instruct", _MMLU_PRO, 0.455, _LLAMA),
    ("Llama-3-70B-Instruct", _MMLU_PRO, 0.634, _LLAMA),
    ("Llama-3.1-8B-Instruct", _MMLU_PRO, 0.483, _LLAMA),
    ("Llama-3.1-70B-Instruct", _MMLU_PRO, 0.664, _LLAMA),
    ("Llama-3.1-405B-Instruct", _MMLU_PRO, 0.733, _LLAMA),
    ("Qwen2.5-72B-Instruct", _MMLU_PRO, 0.716, _V3),
    ("DeepSeek-V3", _MMLU_PRO, 0.759, _V3),
    ("DeepSeek-R1", _MMLU_PRO, 0.840, _R1),
    ("Llama-3-8B-Instruct", _HUMAN_EVAL, 0.604, _LLAMA),
    ("Llama-3-70B-Instruct", _HUMAN_EVAL, 0.817, _LLAMA),
    ("Llama-3.1-8B-Instruct", _HUMAN_EVAL, 0.726, _LLAMA),
    ("Llama-3.1-70B-Instruct", _HUMAN_EVAL, 0.805, _LLAMA),
    ("Llama-3.1-405B-Instruct", _HUMAN_EVAL, 0.890, _LLAMA),
    ("DeepSeek-V3", _MATH, 0.902, _R1),
    ("DeepSeek-R1", _MATH, 0.973, _R1),
    ("DeepSeek-R1-Distill-Qwen-1.5B", _MATH, 0.839, _R1),
    ("DeepSeek-R1-Distill-Qwen-7B", _MATH, 0.928, _R1),
    ("DeepSeek-R1-Distill-Qwen-14B", _MATH, 0.939, _R1),
    ("DeepSeek-R1-Distill-Qwen-32B", _MATH, 0.943, _R1),
    ("DeepSeek-R1-Distill-Llama-8B", _MATH, 0.891, _R1),
    ("DeepSeek-R1-Distill-Llama-70B", _MATH, 0.945, _R1),
)


def known_quality(model: str, measure: str) -> Quality | None:
    """The score of that checkpoint, by its whole name, with or without who made it.

    Of the checkpoint as it was published: one that was quantised may answer worse. Base models and
    those tuned to answer share an architecture, and not a score.
    """
    return _TABLE.get((_bare(model), measure))


def best_measure(models: Iterable[str]) -> str | None:
    """The measure that most of these have a score of; None: there is none of any."""
    names = [*models]
    counts = {
        each: sum(known_quality(name, each) is not None for name in names) for each in MEASURES
    }
    best = max(MEASURES, key=counts.__getitem__)
    return best if counts[best] else None


def _bare(name: str) -> str:
    last = name.rstrip("/").rpartition("/")[2].lower().removeprefix("meta-")
    return re.sub(r"[^a-z0-9.]", "", last)


_TABLE: Final = {
    (_bare(model), measure): Quality(score=score, measure=measure, source=source)
    for model, measure, score, source in _SCORES
}
