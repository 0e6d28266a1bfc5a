"""StepTable: what every step-time model boils down to; how long a step of an engine takes."""

from __future__ import annotations

import msgspec

__all__ = ["StepLine", "StepTable"]


class StepLine(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Seconds of one step, linear in the tokens of context that its attention reads.

    A step decodes one token each of `decoding` requests whose contexts hold `kv_tokens` together,
    and computes `prefill_tokens` of prompts. A step that only decodes takes

        decode_s[decoding] + kv_s * kv_tokens

    (`decode_s` holds what depends on the number of requests alone: GEMMs at the padded batch size,
    all-reduces, launches, sampling, host time), one with prompt tokens in it

        mixed_s[decoding + prefill_tokens] + request_s * decoding + kv_s * kv_tokens
            + pair_s * prefill_pairs

    as it is one GEMM over all of its tokens. `prefill_pairs` are the pairs of a query and a key of
    the prompts' attention: for a chunk of c tokens behind p earlier ones c * p + c * (c + 1) / 2.
    """

    decode_s: tuple[float, ...]
    """By the number of requests, 0 to the engine's most."""
    mixed_s: tuple[float, ...]
    """By the number of tokens, 0 to the step's most."""
    kv_s: float
    """With contexts of at least `spread` requests."""
    pair_s: float
    request_s: float = 0.0
    spread: int = 1
    """Ranks and stages that requests are spread over, one of them reading each one's context. With
    fewer requests, `kv_s` is so many times as long as there are requests too few: spread / n."""

    def kv_token_s(self, decoding: int) -> float:
        """Seconds that a token of context takes in a step with so many requests."""
        return self.kv_s * self.spread / min(max(decoding, 1), self.spread)


class StepTable(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A step takes as long as the slowest of its one or two lines: mostly there is one.

    All models (roofline, fitted, linear) are turned into such a table, for one engine with its
    limits, once; steps are then a few multiplications, and a stretch of steps that only decode is
    an arithmetic series.
    """

    lines: tuple[StepLine, ...]

    @property
    def requests_max(self) -> int:
        """The most requests that a step may decode."""
        return min(len(line.decode_s) for line in self.lines) - 1

    @property
    def tokens_max(self) -> int:
        """The most tokens that a step with prompt tokens in it may have."""
        return min(len(line.mixed_s) for line in self.lines) - 1

    def step_s(
        self, decoding: int, kv_tokens: int, prefill_tokens: int = 0, prefill_pairs: float = 0.0
    ) -> float:
        """Seconds of one step. IndexError beyond `requests_max` or `tokens_max`."""
        if not prefill_tokens:
            return max(
                line.decode_s[decoding] + line.kv_token_s(decoding) * kv_tokens
                for line in self.lines
            )
        tokens = decoding + prefill_tokens
        return max(
            line.mixed_s[tokens]
            + line.request_s * decoding
            + line.kv_token_s(decoding) * kv_tokens
            + line.pair_s * prefill_pairs
            for line in self.lines
        )
