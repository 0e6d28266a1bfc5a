"""Summary: the figures of a simulation: latency, targets met, money, utilisation."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from mileage.core.slo import Slo
from mileage.measure.quantiles import rank
from mileage.sim.outcome import CANCELLED, FAILED, OK
from mileage.sim.series import Series
from mileage.sim.simulation import SimResult

__all__ = ["Quantiles", "Summary", "attained", "summarise"]

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


class Quantiles(msgspec.Struct, frozen=True, kw_only=True):
    """Exact quantiles in seconds, by nearest rank."""

    p50: float
    p95: float
    p99: float


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """What a simulation shows. Latencies are of the requests that were answered; None: there were
    none. Shares are of all requests: one that was refused, or left, has missed its targets."""

    requests: int
    answered: int
    rejected: dict[str, int]
    """Requests refused, by reason."""
    failed: int
    """Requests that do not fit into any engine."""
    cancelled: int
    joined: int
    """Requests answered by the generation of another."""
    duration_s: float
    """From the first arrival to the end of the last request."""
    ttft_s: Quantiles | None
    """Time to first token since the arrival."""
    itl_s: Quantiles | None
    """Of each request's own p99 of the gaps between its tokens."""
    itl_mean_s: Quantiles | None
    """Of each request's own mean gap."""
    tpot_s: Quantiles | None
    """Time per output token after the first, of each stream of two tokens or more. It is the mean
    gap, but where an event brings several tokens."""
    tokens_per_event: float | None
    """Tokens after the first, over the events that brought them: more than 1 with speculation."""
    e2e_s: Quantiles | None
    slo_attainment_ratio: float | None
    """Share of requests that met all their targets; None without requests."""
    slo_attainment_itl_mean_ratio: float | None
    """The same by the mean gap of each request in place of its p99."""
    attainment_by_prompt_decile: tuple[float, ...]
    """Attainment of each tenth of the requests, from the shortest prompts to the longest; empty
    with fewer than ten requests."""
    goodput_rps: float
    """Requests per second that met all their targets."""
    requests_rps: float
    """Requests per second that were answered."""
    output_tokens_per_s: float
    """Generated, also for requests that were not answered in the end."""
    usd_per_mtok: float | None
    """Price of all GPUs for the whole time, per million output tokens of answers; None without a
    price or an answer."""
    usd_per_mtok_in_slo: float | None
    """The same per million output tokens of answers that met their targets."""
    gpu_busy_ratio: float
    """Share of the engines' time with a step in progress."""
    preemptions: int
    adapter_loads: int | None
    """Times that a LoRA adapter was brought to a GPU; None where none was."""
    prefix_cache_hit_ratio: float | None
    """Prompt tokens found in the cache over those looked up; None where none was."""
    kv_tier_hit_ratio: float | None
    """Prompt tokens found in the memory behind the GPU, and loaded, over those looked up; None
    where nothing was."""
    kv_cache_usage_mean_ratio: float | None
    """Of samples at each scrape; None where all was over before the first one after the start."""
    kv_cache_usage_peak_ratio: float
    """Of the fullest engine at its fullest moment."""


def summarise(
    result: SimResult,
    *,
    slo: Slo,
    usd_per_gpu_hour: float | None = None,
    ttft_targets_s: Sequence[float] | None = None,
    itl: str = "p99",
) -> Summary:
    """The figures of a result. `ttft_targets_s`: one for each request, in place of `slo.ttft_s`.

    `itl`: p99 or mean, of a request's own gaps: what has to meet the target in all figures but
    `slo_attainment_itl_mean_ratio`.
    """
    out = result.outcomes
    status = np.frombuffer(out.status, dtype=np.int8) if len(out) else np.empty(0, np.int8)
    output_tokens = np.array(out.output_tokens, dtype=np.int64)
    answered = status == OK
    own = answered & (np.array(out.joined, dtype=np.int8) == 0)
    met = attained(result, slo=slo, ttft_targets_s=ttft_targets_s, itl=itl)
    met_by_mean = attained(result, slo=slo, ttft_targets_s=ttft_targets_s, itl="mean")
    duration_s, count = result.duration_s, len(out)
    tpot_s, tokens_per_event = _tpot(result, own)
    replicas = result.replicas
    gpu_s = result.gpus * duration_s if result.gpu_s is None else result.gpu_s
    usd = None
    if usd_per_gpu_hour is not None:
        usd = usd_per_gpu_hour * gpu_s / 3600
    queried = sum(each.prefix_query_tokens for each in replicas)
    hits = sum(each.prefix_hit_tokens for each in replicas)
    loads = sum(each.load_tokens for each in replicas)
    busy_s = sum(each.busy_s for each in replicas)
    return Summary(
        requests=count,
        answered=int(answered.sum()),
        rejected=dict(result.rejections),
        failed=int((status == FAILED).sum()),
        cancelled=int((status == CANCELLED).sum()),
        joined=int(np.array(out.joined, dtype=np.int8).sum()),
        duration_s=duration_s,
        ttft_s=_quantiles(np.array(out.ttft_s)[answered]),
        itl_s=_quantiles(np.array(out.itl_p99_s)[answered]),
        itl_mean_s=_quantiles(np.array(out.itl_mean_s)[answered]),
        tpot_s=_quantiles(tpot_s),
        tokens_per_event=tokens_per_event,
        e2e_s=_quantiles(np.array(out.e2e_s)[answered]),
        slo_attainment_ratio=float(met.mean()) if count else None,
        slo_attainment_itl_mean_ratio=float(met_by_mean.mean()) if count else None,
        attainment_by_prompt_decile=_by_decile(met, np.array(out.prompt_tokens, dtype=np.int64)),
        goodput_rps=_per(int(met.sum()), duration_s),
        requests_rps=_per(int(answered.sum()), duration_s),
        output_tokens_per_s=_per(sum(each.output_tokens for each in replicas), duration_s),
        usd_per_mtok=_price(usd, int(output_tokens[own].sum())),
        usd_per_mtok_in_slo=_price(usd, int(output_tokens[own & met].sum())),
        gpu_busy_ratio=_per(busy_s, gpu_s / result.gpus * len(replicas)),
        preemptions=sum(each.preemptions for each in replicas),
        adapter_loads=sum(each.adapter_loads for each in replicas) or None,
        prefix_cache_hit_ratio=hits / queried if queried else None,
        kv_tier_hit_ratio=loads / queried if queried and loads else None,
        kv_cache_usage_mean_ratio=_kv_mean(result.series),
        kv_cache_usage_peak_ratio=max(e.kv_blocks_peak / e.kv_blocks for e in replicas),
    )


def attained(
    result: SimResult,
    *,
    slo: Slo,
    ttft_targets_s: Sequence[float] | None = None,
    itl: str = "p99",
) -> Bools:
    """Which requests met all their targets, in the order of arrival.

    `itl`: p99 or mean, of a request's own gaps; an answer without gaps has met that target.
    """
    out = result.outcomes
    met: Bools = np.array(out.status, dtype=np.int8) == OK
    ttft_s = np.array(out.ttft_s)
    if ttft_targets_s is not None:
        met &= ttft_s <= np.asarray(ttft_targets_s, dtype=np.float64)
    elif slo.ttft_s is not None:
        met &= ttft_s <= slo.ttft_s
    if slo.itl_s is not None:
        gaps_s = np.array(out.itl_p99_s if itl == "p99" else out.itl_mean_s)
        met &= ~(gaps_s > slo.itl_s)  # NaN: it had no gaps
    return met


def _tpot(result: SimResult, own: Bools) -> tuple[Floats, float | None]:
    """Seconds per output token after the first, of streams; and tokens per event, of all."""
    out = result.outcomes
    took_s = np.array(out.e2e_s) - np.array(out.ttft_s)
    tokens = np.array(out.output_tokens, dtype=np.int64) - 1
    gap_s = np.array(out.itl_mean_s)
    streams = own & (tokens > 0) & (took_s > 0.0) & (gap_s > 0.0)
    if not streams.any():
        return np.empty(0), None
    events = float((took_s[streams] / gap_s[streams]).sum())
    return took_s[streams] / tokens[streams], float(tokens[streams].sum()) / events


def _quantiles(values: Floats) -> Quantiles | None:
    values = np.sort(values[~np.isnan(values)])
    if not len(values):
        return None
    p50, p95, p99 = (float(values[rank(q, len(values)) - 1]) for q in (0.5, 0.95, 0.99))
    return Quantiles(p50=p50, p95=p95, p99=p99)


def _by_decile(met: Bools, prompt_tokens: NDArray[np.int64]) -> tuple[float, ...]:
    if len(met) < 10:
        return ()
    ordered = met[np.argsort(prompt_tokens, kind="stable")]
    return tuple(float(part.mean()) for part in np.array_split(ordered, 10))


def _per(amount: float, over: float) -> float:
    return amount / over if over > 0.0 else 0.0


def _kv_mean(series: Series) -> float | None:
    # The sample at the start is of engines that have had nothing to do yet.
    return series.mean("kv_usage_ratio") if sum(series.samples) > 1 else None


def _price(usd: float | None, tokens: int) -> float | None:
    return usd / tokens * 1e6 if usd is not None and tokens else None
