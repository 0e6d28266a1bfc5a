"""Spend: what a request may cost and what it did cost, in whole tokens, GPU-ns, nano-USD."""

from __future__ import annotations

import math

import msgspec

from mileage.control.config import CostsConfig, TokenPrice
from mileage.core.request import Request
from mileage.policy.load import work_of
from mileage.policy.tenants import BudgetUnit

__all__ = ["NO_SPEND", "Estimate", "Prices", "Spend", "SpendEstimator"]

_GPU_NS_PER_HOUR = 3600 * 1_000_000_000
_MODELS_MAX = 4096
_TEMPLATE_TOKENS = 16
"""What a chat template adds to a short prompt; learned ratios are of the prompt with this."""
_BYTES_PER_TOKEN = 4.0
"""The estimate's own; a token has one byte at least."""
_OUTPUT_TOKENS = (4096, 256)
"""Of an answer of a model of which few were seen: at most, and likely."""
_GPU_NS_PER_WORK = (50_000_000, 10_000_000)
"""GPU time of a unit of work before it was seen: of a request alone at 20 and at 100 tokens/s."""
_DOUBT_S = 600.0
_ROUNDING = 1e-6
_SEEN_MIN = 8
_WINDOW = 128
_SAFETY = 1.5
"""What the bound may be above the highest seen lately, where there is no bound in the request."""


class Spend(msgspec.Struct, frozen=True, gc=False):
    """An amount in every unit that a budget may have. `nano_usd` is None without a price."""

    tokens: int
    gpu_ns: int
    nano_usd: int | None

    def at_most(self, bound: Spend) -> Spend:
        """The amount, but of each unit no more than `bound` has."""
        usd = self.nano_usd
        if usd is not None and bound.nano_usd is not None:
            usd = min(usd, bound.nano_usd)
        return Spend(min(self.tokens, bound.tokens), min(self.gpu_ns, bound.gpu_ns), usd)

    def of(self, unit: BudgetUnit) -> int:
        """The amount in one unit; USD that nobody can tell are 0."""
        if unit == "tokens":
            return self.tokens
        return self.gpu_ns if unit == "gpu_s" else self.nano_usd or 0


NO_SPEND = Spend(0, 0, 0)


class Estimate(msgspec.Struct, frozen=True, gc=False):
    """What a request may cost: `most`, with all that is not known taken at its worst, and `likely`,
    the highest that was seen lately of its kind (a guess where few were), no more than that."""

    most: Spend
    likely: Spend


class Prices:
    """Prices what was used, in whole nano-USD, rounded to the nearest."""

    __slots__ = ("_models", "_pico_usd_per_gpu_hour")

    def __init__(self, costs: CostsConfig) -> None:
        per_hour = costs.usd_per_gpu_hour
        self._pico_usd_per_gpu_hour = None if per_hour is None else round(per_hour * 1e12)
        self._models = {name: _pico_usd(price) for name, price in costs.models.items()}

    def nano_usd(
        self,
        model: str,
        *,
        gpu_ns: int,
        prompt_tokens: int,
        output_tokens: int,
        cached_tokens: int = 0,
    ) -> int | None:
        """By the model's token prices where it has some, else by GPU time; None without either."""
        prices = self._models.get(model)
        if prices is not None:
            prompt, cached, output = prices
            cached_tokens = min(cached_tokens, prompt_tokens)
            pico = (
                (prompt_tokens - cached_tokens) * prompt
                + cached_tokens * cached
                + output_tokens * output
            )
            return (pico + 500) // 1000
        if self._pico_usd_per_gpu_hour is None:
            return None
        divisor = 1000 * _GPU_NS_PER_HOUR
        return (gpu_ns * self._pico_usd_per_gpu_hour + divisor // 2) // divisor


def _pico_usd(price: TokenPrice) -> tuple[int, int, int]:
    """Whole pico-USD of a prompt, a cached and an output token."""
    cached = price.cached_usd_per_mtok
    if cached is None:
        cached = price.prompt_usd_per_mtok
    return (
        round(price.prompt_usd_per_mtok * 1e6),
        round(cached * 1e6),
        round(price.output_usd_per_mtok * 1e6),
    )


class _Highest:
    """The highest of the last 128 to 256 samples; None before the first few."""

    __slots__ = ("_before", "_count", "_now", "seen")

    def __init__(self) -> None:
        self.seen = 0
        self._count = 0
        self._now = self._before = 0.0

    def add(self, value: float) -> None:
        self.seen += 1
        if self._count == _WINDOW:
            self._before, self._now, self._count = self._now, 0.0, 0
        self._count += 1
        if value > self._now:
            self._now = value

    def value(self) -> float | None:
        return max(self._now, self._before) if self.seen >= _SEEN_MIN else None


class _Model:
    """What was learned of one model's requests."""

    __slots__ = (
        "counted_ratio",
        "doubted_s",
        "gpu_ns_per_work",
        "gpu_ns_per_work_mean",
        "output_tokens",
        "prompt_ratio",
    )

    def __init__(self) -> None:
        self.prompt_ratio = _Highest()
        """Prompt tokens by the engine's count, per token of our estimate with a template."""
        self.counted_ratio = _Highest()
        """The same of prompts that a tokenizer counted: what an estimate is off by tells nothing
        of a count."""
        self.output_tokens = _Highest()
        """Of each answer."""
        self.gpu_ns_per_work = _Highest()
        self.gpu_ns_per_work_mean: float | None = None
        self.doubted_s: float | None = None
        """Since when nothing is learned while requests are refused by it."""


class SpendEstimator:
    """Says what requests may cost, and learns from what they did cost, by model.

    A token bound comes from the request where it has one: the prompt's bytes, the client's own
    bound of the answer. GPU time has none: there the highest seen lately counts, with a margin.
    """

    def __init__(self, costs: CostsConfig, *, gpus_max: float = 1.0) -> None:
        """`gpus_max`: GPUs of the largest replica; what a request may take before any was seen."""
        self._gpus_max = gpus_max
        self._prices = Prices(costs)
        self._models: dict[str, _Model] = {}

    def reconfigure(self, costs: CostsConfig, *, gpus_max: float = 1.0) -> None:
        """Other prices from now on; what was learned stays."""
        self._gpus_max = gpus_max
        self._prices = Prices(costs)

    def estimate(self, request: Request) -> Estimate:
        """What the request may cost."""
        model = self._models.get(request.model)
        prompt_most, prompt_likely = _prompt_tokens(request, model)
        output_most, output_likely = _output_tokens(request, model)
        per_work = None if model is None else model.gpu_ns_per_work.value()
        if per_work is None:
            per_work_most, per_work_likely = (ns * self._gpus_max for ns in _GPU_NS_PER_WORK)
        else:
            per_work_most, per_work_likely = _SAFETY * per_work, per_work
        return Estimate(
            self._spend(request, prompt_most, output_most, per_work_most),
            self._spend(request, prompt_likely, output_likely, per_work_likely),
        )

    def doubt(self, request: Request, now_s: float) -> None:
        """A request was refused for ever, since by its estimate it costs more than there can be.

        Where that was learned from one that stalled, and all are refused by it, nothing would ever
        be learned anew: after ten minutes of that it is forgotten.
        """
        model = self._models.get(request.model)
        if model is None:
            return
        if model.doubted_s is None:
            model.doubted_s = now_s
        elif now_s - model.doubted_s > _DOUBT_S:
            del self._models[request.model]

    def actual(
        self,
        request: Request,
        *,
        gpu_ns: int,
        prompt_tokens: int | None,
        output_tokens: int | None,
        cached_tokens: int | None = None,
        learn: bool = True,
    ) -> Spend:
        """What a request cost that has ended; learns from it where the engine counted its tokens,
        unless told not to: nobody may need what is learned.

        Where it did not (an answer cut short, an engine without usage), its GPU time tells how
        many there can have been, and the bounds hold: an error at once costs next to nothing, and
        a stream that its client cut off costs what was made of it.
        """
        model = self._models.get(request.model)
        if prompt_tokens is not None and output_tokens is None and request.endpoint == "embeddings":
            output_tokens = 0
        if prompt_tokens is None or output_tokens is None:
            prompt_tokens, output_tokens = self._unseen(
                request, model, gpu_ns, prompt_tokens, output_tokens
            )
        else:
            prompt_tokens, output_tokens = max(0, prompt_tokens), max(0, output_tokens)
            if learn:
                self._learn(request, gpu_ns, prompt_tokens, output_tokens)
        nano_usd = self._prices.nano_usd(
            request.model,
            gpu_ns=gpu_ns,
            prompt_tokens=prompt_tokens,
            output_tokens=output_tokens,
            cached_tokens=cached_tokens or 0,
        )
        return Spend(prompt_tokens + output_tokens, gpu_ns, nano_usd)

    def _spend(
        self, request: Request, prompt_tokens: int, output_tokens: int, gpu_ns_per_work: float
    ) -> Spend:
        gpu_ns = math.ceil(work_of(prompt_tokens, output_tokens) * gpu_ns_per_work)
        nano_usd = self._prices.nano_usd(
            request.model, gpu_ns=gpu_ns, prompt_tokens=prompt_tokens, output_tokens=output_tokens
        )
        return Spend(prompt_tokens + output_tokens, gpu_ns, nano_usd)

    def _unseen(
        self,
        request: Request,
        model: _Model | None,
        gpu_ns: int,
        prompt_tokens: int | None,
        output_tokens: int | None,
    ) -> tuple[int, int]:
        """Tokens of a request that the engine has not counted: as many as its GPU time allows."""
        per_work = None if model is None else model.gpu_ns_per_work_mean
        work = gpu_ns / (per_work or _GPU_NS_PER_WORK[0] * self._gpus_max)
        if prompt_tokens is None and output_tokens:
            prompt_tokens = _prompt_tokens(request, model)[1]  # all of it was needed for the first
        elif prompt_tokens is None:
            likely = _prompt_tokens(request, model)[1]
            prompt_tokens = min(likely, max(0, round((work - 1.0) / (work_of(1.0, 0.0) - 1.0))))
        if output_tokens is None:
            left = work - work_of(prompt_tokens, 0.0)
            output_tokens = min(_output_tokens(request, model)[0], max(0, round(left)))
        return prompt_tokens, output_tokens

    def _learn(self, request: Request, gpu_ns: int, prompt_tokens: int, output_tokens: int) -> None:
        model = self._models.get(request.model)
        if model is None:
            if len(self._models) >= _MODELS_MAX:
                del self._models[next(iter(self._models))]
            model = self._models[request.model] = _Model()
        model.doubted_s = None
        ratio = model.counted_ratio if request.prompt_counted else model.prompt_ratio
        ratio.add(prompt_tokens / _expected_prompt_tokens(request))
        if request.endpoint != "embeddings":
            model.output_tokens.add(output_tokens / max(1, request.choices))
        if gpu_ns > 0:
            per_work = gpu_ns / work_of(prompt_tokens, output_tokens)
            model.gpu_ns_per_work.add(per_work)
            mean = model.gpu_ns_per_work_mean
            model.gpu_ns_per_work_mean = (
                per_work if mean is None else mean + (per_work - mean) / _WINDOW
            )


def _expected_prompt_tokens(request: Request) -> int:
    media = request.image_patches + request.audio_frames
    template = _TEMPLATE_TOKENS * max(1, request.batch_items)
    return request.prompt_tokens_estimate + media + template


def _prompt_tokens(request: Request, model: _Model | None) -> tuple[int, int]:
    """Bounds of the prompt's tokens: at most, and likely."""
    expected = _expected_prompt_tokens(request)
    most = math.ceil(_BYTES_PER_TOKEN * expected)
    if request.prompt_tokens_max is not None:
        besides = expected - request.prompt_tokens_estimate
        most = request.prompt_tokens_max + math.ceil(_BYTES_PER_TOKEN * besides)
    ratio = None
    if model is not None:
        seen = model.counted_ratio if request.prompt_counted else model.prompt_ratio
        ratio = seen.value()
    if ratio is None:
        return most, min(most, expected)
    likely = math.ceil(ratio * expected - _ROUNDING)
    if request.prompt_counted:
        # Of a count only little is learned: one prompt whose count missed a part of it, or whose
        # tokenizer is another model's, would make all others dearer than their bytes can be.
        return most, min(most, likely)
    # A model with a long template of its own has more than the bytes tell.
    return max(most, likely), likely


def _output_tokens(request: Request, model: _Model | None) -> tuple[int, int]:
    """Bounds of all answers' tokens: at most, and likely."""
    if request.endpoint == "embeddings":
        return 0, 0
    seen = None if model is None else model.output_tokens.value()
    bound = request.output_tokens_max
    if seen is None:
        most, likely = _OUTPUT_TOKENS
    else:
        most, likely = math.ceil(seen * _SAFETY), math.ceil(seen)
    if bound is not None:
        most, likely = bound, min(bound, likely)
    choices = max(1, request.choices)
    return most * choices, likely * choices
