"""TokenCosts: what a million prompt, cached and output tokens cost."""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

from mileage.ledger.bill import kinds_of_use
from mileage.ledger.bill_sums import UseSums
from mileage.ledger.usage_row import UsageRow

__all__ = ["TokenCosts", "cached_token_ratio", "token_costs"]

_ROWS_MIN = 24
_ERROR_MAX = 0.1
"""A ratio with a standard error above this is none."""
_MTOK_PER_NANO_USD = 1e6 / 1e9


class TokenCosts(msgspec.Struct, frozen=True, kw_only=True):
    """USD per million tokens; None where there were none of that kind, or where it cannot be known.

    `prompt` is of all prompt tokens, `computed` and `cached` of those that were not and that were
    out of the prefix cache. `computed` and `cached` times their tokens are what prefill cost, and
    with `output` times its tokens all that was used.
    """

    prompt: float | None = None
    computed: float | None = None
    cached: float | None = None
    output: float | None = None


def token_costs(use: UseSums, cached_ratio: float | None) -> TokenCosts:
    """Of all that was used: prefill is paid by prompt tokens, decode by output tokens.

    What was recomputed is paid by prompt tokens, what failed requests used by both, in proportion.
    A cached token costs `cached_ratio` of a computed one; where that is None, computed ones pay all
    and the price of a cached one is None.
    """
    if use.whole_nano_usd is None or not use.gpu_ns:
        return TokenCosts()
    kinds = {kind: amount.nano_usd for kind, amount in kinds_of_use(use).items()}
    of_prompts = float(kinds["prefill"] + kinds["recomputed"])
    of_answers = float(kinds["decode"])
    whole = of_prompts + of_answers
    share = of_prompts / whole if whole else 0.5
    of_prompts += kinds["failed"] * share
    of_answers += kinds["failed"] * (1.0 - share)
    computed_tokens = use.prompt_tokens - use.cached_tokens
    computed = _per(of_prompts, computed_tokens + (cached_ratio or 0.0) * use.cached_tokens)
    cached = None
    if cached_ratio is not None and computed is not None and use.cached_tokens:
        cached = cached_ratio * computed
    return TokenCosts(
        prompt=_per(of_prompts, use.prompt_tokens),
        computed=computed if computed_tokens else None,
        cached=cached,
        output=_per(of_answers, use.output_tokens),
    )


def cached_token_ratio(rows: Iterable[UsageRow]) -> float | None:
    """What a prompt token out of the cache costs, of a computed one, as the rows show it.

    Least squares of the prefill time of rows on their computed and their cached tokens, both
    weighted by 1/tokens (what is summed over requests varies with their number), for each model on
    each replica; the mean of these ratios by the inverse square of their standard errors, within
    0..1. None where rows are few, or where the error is above 0.1.
    """
    fits: dict[tuple[str, str], _Fit] = {}
    for row in rows:
        if row.prompt_tokens > 0 and row.prefill_ns > 0:
            fits.setdefault((row.replica, row.model), _Fit()).add(row)
    found = [ratio for fit in fits.values() if (ratio := fit.ratio()) is not None]
    if not found:
        return None
    weights = [1.0 / max(error, 1e-6) ** 2 for _, error in found]
    mean = sum(w * ratio for w, (ratio, _) in zip(weights, found, strict=True)) / sum(weights)
    error = math.sqrt(1.0 / sum(weights))
    return None if error > _ERROR_MAX else min(1.0, max(0.0, mean))


class _Fit:
    """prefill_ns = a * computed + b * cached: sums that give b / a and its error."""

    __slots__ = ("cc", "cy", "n", "uc", "uu", "uy", "yy")

    def __init__(self) -> None:
        self.n = 0
        self.uu = self.uc = self.cc = self.uy = self.cy = self.yy = 0.0

    def add(self, row: UsageRow) -> None:
        weight = 1.0 / row.prompt_tokens
        computed = float(row.prompt_tokens - row.cached_tokens)
        cached, y = float(row.cached_tokens), float(row.prefill_ns - row.recomputed_ns)
        self.n += 1
        self.uu += weight * computed * computed
        self.uc += weight * computed * cached
        self.cc += weight * cached * cached
        self.uy += weight * computed * y
        self.cy += weight * cached * y
        self.yy += weight * y * y

    def ratio(self) -> tuple[float, float] | None:
        """The ratio and its standard error (first order); None where it cannot be told."""
        determinant = self.uu * self.cc - self.uc * self.uc
        if self.n < _ROWS_MIN or determinant <= 1e-9 * self.uu * self.cc:
            return None
        a = (self.uy * self.cc - self.cy * self.uc) / determinant
        b = (self.cy * self.uu - self.uy * self.uc) / determinant
        if a <= 0.0:
            return None
        rest = max(0.0, self.yy - a * self.uy - b * self.cy) / (self.n - 2)
        ratio = b / a
        # Of a quotient: with the variances of a and b, and their covariance.
        spread = self.uu + 2.0 * ratio * self.uc + ratio * ratio * self.cc
        return ratio, math.sqrt(rest * spread / determinant) / a


def _per(nano_usd: float, tokens: float) -> float | None:
    return nano_usd / tokens * _MTOK_PER_NANO_USD if tokens > 0 else None
