"""LengthCheck: how far prompts and answers were from the lengths that were planned."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from mileage.measure.call_record import CallRecord

__all__ = ["LengthCheck", "LengthError", "check_lengths"]


class LengthError(msgspec.Struct, frozen=True, kw_only=True):
    """Planned and counted tokens of requests that ended well and whose engine counted them."""

    count: int
    """Such requests."""
    planned_tokens: int
    counted_tokens: int
    worst_tokens: int
    """The largest difference of one request, either way."""
    worst_ratio: float
    """The largest difference, over what was planned for it."""
    exact: int
    """Requests without any difference."""

    @property
    def ratio(self) -> float:
        """Counted over planned."""
        return self.counted_tokens / self.planned_tokens


class LengthCheck(msgspec.Struct, frozen=True, kw_only=True):
    """None where no request tells."""

    prompts: LengthError | None = None
    outputs: LengthError | None = None


def check_lengths(records: Iterable[CallRecord]) -> LengthCheck:
    """Of all requests that ended well, those of the warm-up too."""
    prompts: list[tuple[int, int]] = []
    outputs: list[tuple[int, int]] = []
    for record in records:
        if record.outcome != "ok":
            continue
        if record.planned_prompt_tokens and record.prompt_tokens is not None:
            prompts.append((record.planned_prompt_tokens, record.prompt_tokens))
        if record.planned_output_tokens and record.output_tokens is not None:
            outputs.append((record.planned_output_tokens, record.output_tokens))
    return LengthCheck(prompts=_error(prompts), outputs=_error(outputs))


def _error(pairs: list[tuple[int, int]]) -> LengthError | None:
    if not pairs:
        return None
    differences = [abs(counted - planned) for planned, counted in pairs]
    return LengthError(
        count=len(pairs),
        planned_tokens=sum(planned for planned, _ in pairs),
        counted_tokens=sum(counted for _, counted in pairs),
        worst_tokens=max(differences),
        worst_ratio=max(
            difference / planned
            for difference, (planned, _) in zip(differences, pairs, strict=True)
        ),
        exact=differences.count(0),
    )
