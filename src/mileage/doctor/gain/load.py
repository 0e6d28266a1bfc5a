"""The load that a deployment is under, from the facts: requests in flight, or a rate; lengths."""

from __future__ import annotations

import msgspec

from mileage.doctor.evidence import Evidence
from mileage.doctor.gain.unsimulated import Unsimulated
from mileage.doctor.interval import Interval

__all__ = ["Load", "load_of"]

SPREAD_SERVED = 0.5
"""Prompts and answers are as long as the mean, up to so much of it more or less."""

SPREAD_BENCHMARK = 0.1
"""The same of a benchmark's, whose lengths are set."""


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """Of the whole deployment. Numbers of tokens and requests are means, known within bounds."""

    in_flight: Interval | None
    """Requests at a time; None: they come at `rate_rps`."""
    rate_rps: Interval | None
    prompt_tokens: Interval
    output_tokens: Interval
    spread_ratio: float
    shared_tokens: Interval
    """Of each prompt, that it has in common with the others of its group."""
    groups: int

    def told(self) -> str:
        """For people."""
        if self.in_flight is not None:
            load = f"{self.in_flight.shown()} requests in flight"
        else:
            load = f"{'' if self.rate_rps is None else self.rate_rps.shown()} requests/s"
        lengths = f"{self.prompt_tokens.shown()} prompt and {self.output_tokens.shown()}"
        return f"{load} of {lengths} output tokens"


def load_of(evidence: Evidence) -> Load | Unsimulated:
    """The load, as far as facts tell; else what they do not tell."""
    if evidence.text("mm_input") not in (None, "none"):
        return Unsimulated("media are not simulated")
    prompt, output = (
        _each(evidence, "isl_tokens", "prompt"),
        _each(evidence, "osl_tokens", "output"),
    )
    if prompt is None:
        return Unsimulated("how long prompts are is not known")
    if output is None:
        return Unsimulated("how long answers are is not known")
    in_flight = _positive(evidence, "concurrency")
    rate = None if in_flight is not None else _rate(evidence)
    if in_flight is None and rate is None:
        in_flight = _queued(evidence)
        rate = None if in_flight is not None else _positive(evidence, "requests_per_s")
    if in_flight is None and rate is None:
        return Unsimulated("neither requests in flight nor their rate are known")
    groups = _positive(evidence, "prefix_groups")
    return Load(
        in_flight=in_flight,
        rate_rps=rate,
        prompt_tokens=prompt,
        output_tokens=output,
        spread_ratio=SPREAD_BENCHMARK if evidence.text("kind") == "benchmark" else SPREAD_SERVED,
        shared_tokens=_shared(evidence, prompt),
        groups=1 if groups is None else max(1, round(groups.middle)),
    )


def _positive(evidence: Evidence, key: str) -> Interval | None:
    value = evidence.number(key).value
    return value if value.bounded and value.low > 0 else None


def _each(evidence: Evidence, key: str, name: str) -> Interval | None:
    """Tokens of a request: as stated, else by the rates of tokens and of requests."""
    stated = _positive(evidence, key)
    if stated is not None:
        return stated
    tokens = _positive(evidence, f"{name}_tokens_per_s")
    requests = _positive(evidence, "requests_per_s")
    return None if tokens is None or requests is None else tokens.over(requests)


def _rate(evidence: Evidence) -> Interval | None:
    stated = _positive(evidence, "rate_rps")
    return stated if stated is not None else _positive(evidence, "requests_per_s_arriving")


def _queued(evidence: Evidence) -> Interval | None:
    """Where some wait: those that are in flight, as if each that ends were followed by another."""
    running, waiting = evidence.number("requests_running"), evidence.number("requests_waiting")
    if not running.known or not waiting.known or waiting.total.low < 1:
        return None
    seen = running.total.plus(waiting.total)
    return seen if seen.bounded else None


def _shared(evidence: Evidence, prompt: Interval) -> Interval:
    tokens = evidence.number("shared_prefix_tokens").value
    if tokens.bounded:
        return tokens
    for key in ("shared_prefix_ratio", "prefix_cache_hit_ratio"):
        ratio = evidence.number(key).value
        if ratio.bounded:
            return prompt.times(ratio.clipped(0.0, 1.0))
    return Interval(0.0, 0.0)
