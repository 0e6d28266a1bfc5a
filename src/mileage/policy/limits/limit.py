"""What every limits policy sees and says: signals of one replica come in, a decision goes out."""

from __future__ import annotations

from typing import Protocol

import msgspec

from mileage.core.replica import ReplicaView

__all__ = ["LimitDecision", "LimitPolicy", "LimitSignals", "RequestSample"]


class RequestSample(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One request that was answered well: how fast, and what the replica did meanwhile.

    `service_ttft_s` is from dispatch to the first token, `ttft_s` from arrival; None without a
    stream. The means are over the time between its first and its last token (without a stream:
    over its whole stay): `running_mean` our requests in flight there, itself included, and
    `decoding_mean` those of them whose first token has come;
    `kv_tokens_mean` the tokens of their context; `prefill_tokens_per_step` the prompt tokens of
    others (of itself too, without a stream) that were prefilled per step of this request.
    `step_s` is that time per output token. `prefill_tokens` is the length of its own prompt in the
    measure of `prefill_tokens_per_step`, which counts what was estimated when requests came, while
    `prompt_tokens` is what the engine said. Client cancels and failures are never samples.
    """

    prompt_tokens: int
    output_tokens: int
    stream: bool
    ttft_s: float | None
    service_ttft_s: float | None
    itl_p99_s: float | None
    step_s: float | None
    running_mean: float
    kv_tokens_mean: float
    prefill_tokens_per_step: float
    decoding_mean: float = 0.0
    prefill_tokens: float = 0.0


class LimitSignals(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What happened at one replica since the last decision.

    `view` is the newest observation, of whatever age: each policy says what it does with a stale
    one, or with none. `running_max` is what the engine itself runs at once at most, where it is
    known. `in_flight` are requests of ours there now, `in_flight_peak` the most since the last
    decision; `waiting` are those held in our queue that it could serve. `arrivals` came since the
    last decision for models that it serves (one replica's share of them where several do).
    `modality_counts` (text, image, audio) and `load_mean` (normalised, in tokens of context; see
    `mileage.policy.modality`) are of the requests in flight and waiting.
    """

    view: ReplicaView | None
    running_max: int | None
    in_flight: int
    in_flight_peak: int
    waiting: int
    arrivals: float
    samples: tuple[RequestSample, ...] = ()
    ttft_target_s: float | None = None
    itl_target_s: float | None = None
    modality_counts: tuple[int, int, int] = (0, 0, 0)
    load_mean: float = 0.0


class LimitDecision(msgspec.Struct, frozen=True, gc=False):
    """At most `limit` requests at once; `reason` tells people why, with the figures.

    `prefill_tokens_max` bounds the prompt tokens that are dispatched and have no first token yet;
    one request may always be dispatched. None: no bound.
    """

    limit: int
    reason: str
    prefill_tokens_max: int | None = None


class LimitPolicy(Protocol):
    """One object per replica. Pure: what it decides depends on what it was told, and when."""

    def update(self, signals: LimitSignals, now_s: float) -> LimitDecision:
        """Decide anew; called about every `governor.period_s` while there is traffic.

        The decision is clamped to 1..running_max by the caller, and to `governor.limit_min` and
        `governor.limit_max`. `now_s` never decreases.
        """
        ...
